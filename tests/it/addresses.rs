//! Addresses and settings as other tools write them: supported, or rejected in one sentence.

use holdfast_testkit::{TestShop, run_program, services};

const CONFIGURATION: &str = include_str!("../../docs/CONFIGURATION.md");

/// Runs a command that must fail, and returns what it printed.
fn failure_of(command: &str, database_url: &str, redis_url: &str) -> String {
    let output = run_program(
        &[command],
        &[
            ("DATABASE_URL", database_url),
            ("REDIS_URL", redis_url),
            ("HOLDFAST_LISTEN", "127.0.0.1:0"),
        ],
    );
    assert!(!output.status.success(), "{command} {database_url} {redis_url}");
    String::from_utf8(output.stderr).unwrap()
}

/// The parser's own tests have all addresses; here one of each kind ends the commands.
#[test]
fn unsupported_addresses_end_each_command() {
    let redis = "redis://127.0.0.1:1";
    for command in ["serve", "migrate", "audit"] {
        for (url, why) in [
            ("postgres://ann:hush@one:5432,two:5432/shop", "several hosts"),
            ("\"postgres://ann:hush@one/shop\"", "remove the quotes"),
            ("jdbc:postgresql://one/shop?password=hush", "for Java"),
            ("postgres://ann:hush@one/shop?target_session_attrs=standby", "target_session_attrs"),
            ("postgres://ann:hush@one/shop?channel_binding=require", "channel_binding=require"),
        ] {
            let printed = failure_of(command, url, redis);
            assert!(printed.contains(why) && printed.contains("DATABASE_URL"), "{url}: {printed}");
            let lines = printed.lines().filter(|line| line.starts_with("holdfast: ")).count();
            assert_eq!((lines, printed.contains("hush")), (1, false), "{url}: {printed}");
        }
    }

    let database = &services().running.database_url;
    for (url, why) in [
        ("'redis://:hush@one'", "remove the quotes"),
        ("redis://:hush@one:6379,two:6379", "several hosts"),
    ] {
        let printed = failure_of("serve", database, url);
        assert!(printed.contains(why) && printed.contains("REDIS_URL"), "{url}: {printed}");
        assert!(!printed.contains("hush"), "{url}: {printed}");
    }
}

/// As after a clean-up of `/tmp`, or before the server has started.
#[test]
fn missing_socket_folder_is_named() {
    let missing = "/nonexistent/sockets";
    let url = format!("postgres:///shop?host={missing}");
    for command in ["serve", "migrate", "audit"] {
        let printed = failure_of(command, &url, "redis://127.0.0.1:1");
        assert!(printed.contains("the folder /nonexistent/sockets of its socket"), "{printed}");
        assert!(!printed.contains("No such file"), "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_socket_folder_of_redis_is_named() {
    let shop = TestShop::without_replicas().await;
    let url = "redis+unix:///nonexistent/sockets/redis.sock";
    let printed = failure_of("serve", &shop.database_url(), url);
    assert!(printed.contains("the folder /nonexistent/sockets of its socket"), "{printed}");
    assert!(!printed.contains("No such file"), "{printed}");
}

/// Compose and env files set what nobody has filled in.
#[tokio::test(flavor = "multi_thread")]
async fn empty_variable_is_not_set() {
    let serve = CONFIGURATION.split("## `holdfast serve`").nth(1).unwrap();
    let rows = serve.split("\n**").next().unwrap().lines().filter(|row| row.starts_with("| `--"));
    let variables: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(2)?.trim().strip_prefix('`')?.strip_suffix('`'))
        // The first two are required; the test's own are the others.
        .filter(|name| !["DATABASE_URL", "REDIS_URL", "HOLDFAST_LISTEN"].contains(name))
        .collect();
    assert!(variables.len() > 25, "{variables:?}");

    let mut shop = TestShop::without_replicas().await;
    let prefix = shop.prefix.clone();
    let mut empty: Vec<(&str, &str)> = variables.iter().map(|name| (*name, "")).collect();
    empty.push(("HOLDFAST_REDIS_PREFIX", &prefix));
    shop.add_replica(&empty);
    let order = shop.sign_in("alice").await.orders("deadbolt", 1).await;
    assert_eq!(order.header("holdfast-strategy"), "batched", "the default");

    let printed = failure_of("serve", "", "");
    assert!(printed.contains("--database-url"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_ipv6_address_is_served() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let shop = TestShop::start_with(1, &[("HOLDFAST_LISTEN", "[::1]:0")]).await;
    let base_url = &shop.replicas[0].base_url;
    assert!(base_url.starts_with("http://[::1]:"), "{base_url}");
    shop.sign_in("alice").await.orders("deadbolt", 1).ok().await;
}
