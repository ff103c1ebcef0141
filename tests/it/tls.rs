//! TLS to Postgres and Redis: valid settings, and what each failure reports.

use std::path::Path;
use std::process::Output;

use holdfast_testkit::proxy;
use holdfast_testkit::tls::TlsServers;
use holdfast_testkit::topology::{self, Topology, certificates, free_ports};
use holdfast_testkit::{Replica, TestShop, run_program, until};
use sqlx::{Connection as _, Executor as _, PgConnection};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that the command fails with a message that contains all of `parts`.
fn assert_fails(arguments: &[&str], environment: &[(&str, &str)], parts: &[&str]) {
    let output = run_program(arguments, environment);
    let text = stderr(&output);
    assert!(!output.status.success(), "{arguments:?} {environment:?}");
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
}

fn assert_migrate_fails(url: &str, parts: &[&str]) {
    assert_fails(&["migrate"], &[("DATABASE_URL", url)], parts);
}

fn assert_migrate_succeeds(url: &str) {
    let output = run_program(&["migrate"], &[("DATABASE_URL", url)]);
    assert!(output.status.success(), "{url}: {}", stderr(&output));
}

/// Starts TLS-only servers, which takes seconds.
async fn start_servers() -> TlsServers {
    tokio::task::spawn_blocking(TlsServers::start).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_with_tls_is_verified() {
    let servers = start_servers().await;
    let [authority, chain, key] =
        ["authority", "client", "client-key"].map(|name| servers.file(name));
    let url = |parameters: &str| format!("{}?{parameters}", servers.bare_url("holdfast"));
    let client = format!("sslcert={chain}&sslkey={key}");
    let trusted = format!("{client}&sslrootcert={authority}");

    assert_migrate_succeeds(&url(&format!("{trusted}&sslmode=verify-full")));
    for mode in ["prefer", "require"] {
        assert_migrate_succeeds(&url(&format!("{client}&sslmode={mode}")));
    }
    let from_variables = [
        ("DATABASE_URL", servers.bare_url("holdfast")),
        ("PGSSLMODE", "verify-full".to_owned()),
        ("PGSSLROOTCERT", authority.clone()),
        ("PGSSLCERT", chain.clone()),
        ("PGSSLKEY", key.clone()),
    ];
    let environment = from_variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let output = run_program(&["migrate"], &environment);
    assert!(output.status.success(), "{}", stderr(&output));

    let unknown = ["no trusted authority has signed", "Set sslrootcert in DATABASE_URL"];
    for mode in ["verify-ca", "verify-full"] {
        assert_migrate_fails(&url(&format!("{client}&sslmode={mode}")), &unknown);
    }
    let other = servers.file("namesake");
    for mode in ["prefer", "require"] {
        assert_migrate_fails(
            &url(&format!("{client}&sslmode={mode}&sslrootcert={other}")),
            &unknown,
        );
    }

    let with_authority = format!("sslmode=verify-full&sslrootcert={authority}");
    assert_migrate_fails(
        &url(&with_authority),
        &["client certificate", "Set sslcert and sslkey in DATABASE_URL"],
    );
    let foreign = servers.file("foreign-client");
    assert_migrate_fails(
        &url(&format!("{with_authority}&sslcert={foreign}&sslkey={key}")),
        &["does not accept the client certificate", "Set sslcert in DATABASE_URL and sslkey"],
    );
    assert_migrate_fails(
        &url("sslmode=disable"),
        &["no encryption", "set sslmode=verify-full in DATABASE_URL"],
    );

    present(&servers, "misnamed").await;
    let name = ["another host name", "elsewhere.example", "Use a host in DATABASE_URL"];
    until("the certificate is presented", async || {
        let output =
            run_program(&["migrate"], &[("DATABASE_URL", &servers.database_url("holdfast"))]);
        name.iter().all(|part| stderr(&output).contains(part))
    })
    .await;
    assert_migrate_succeeds(&url(&format!("{trusted}&sslmode=verify-ca")));
    present(&servers, "expired").await;
    let expired = ["has expired or is not valid yet", "Renew it, or correct the clock"];
    until("the certificate is presented", async || {
        let output =
            run_program(&["migrate"], &[("DATABASE_URL", &servers.database_url("holdfast"))]);
        expired.iter().all(|part| stderr(&output).contains(part))
    })
    .await;
}

/// Makes Postgres present another certificate to new connections, after its reload.
async fn present(servers: &TlsServers, certificate: &str) {
    let mut socket = PgConnection::connect(&servers.socket_url("holdfast")).await.unwrap();
    let set = format!("alter system set ssl_cert_file = '{}'", servers.file(certificate));
    socket.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
    socket.execute("select pg_reload_conf()").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_postgres_certificates_are_named() {
    let folder = tempfile::tempdir().unwrap();
    certificates().write(folder.path());
    let file = |name: &str| folder.path().join(name).with_extension("pem").display().to_string();
    let [chain, key, other_key] = ["client", "client-key", "server-key"].map(file);
    let postgres = proxy::to_postgres().await;
    let url = |parameters: &str| {
        format!("postgres://holdfast@localhost:{}/holdfast?{parameters}", postgres.port)
    };
    let verify = "sslmode=verify-full";
    assert_migrate_fails(
        &url(verify),
        &["server does not support TLS", "Set ssl = on at the server"],
    );
    for (parameters, part) in [
        (
            "sslrootcert=/nowhere.pem".to_owned(),
            "sslrootcert in DATABASE_URL: can't read /nowhere.pem: No such file",
        ),
        (
            format!("sslrootcert={key}"),
            "sslrootcert in DATABASE_URL: there is no certificate in PEM",
        ),
        (
            format!("sslcert={chain}&sslkey=/nowhere.pem"),
            "sslkey in DATABASE_URL: can't read /nowhere.pem",
        ),
        (
            format!("sslcert={chain}&sslkey={other_key}"),
            "the key does not belong to the certificate",
        ),
        (format!("sslcert={chain}"), "needs both"),
    ] {
        assert_migrate_fails(&url(&format!("{verify}&{parameters}")), &[part]);
    }
}

/// The environment with certificates in `folder`; an empty name is one that is not set.
fn redis_environment(
    folder: &Path,
    url: &str,
    [ca, cert, key]: [&str; 3],
) -> [(&'static str, String); 4] {
    let file = |name: &str| match name {
        "" => String::new(),
        name => folder.join(name).with_extension("pem").display().to_string(),
    };
    [
        ("REDIS_URL", url.to_owned()),
        ("HOLDFAST_REDIS_CA", file(ca)),
        ("HOLDFAST_REDIS_CERT", file(cert)),
        ("HOLDFAST_REDIS_KEY", file(key)),
    ]
}

const ALL: [&str; 3] = ["authority", "client", "client-key"];

#[tokio::test(flavor = "multi_thread")]
async fn redis_failures_name_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    certificates().write(folder.path());
    let redis = topology::start(Topology::TlsRedis).unwrap();
    let database_url = TestShop::without_replicas().await.database_url();
    let serve_fails = |url: &str, files, parts: &[&str]| {
        let environment = redis_environment(folder.path(), url, files);
        let mut environment: Vec<_> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend([("DATABASE_URL", &*database_url), ("HOLDFAST_LISTEN", "127.0.0.1:0")]);
        assert_fails(&["serve"], &environment, parts);
    };

    let unknown = ["no trusted authority has signed", "Set HOLDFAST_REDIS_CA to a file"];
    serve_fails(&redis.url, ["", "client", "client-key"], &unknown);
    let missing =
        ["requires a client certificate", "Set HOLDFAST_REDIS_CERT and HOLDFAST_REDIS_KEY"];
    serve_fails(&redis.url, ["authority", "", ""], &missing);
    let foreign = ["authority", "foreign-client", "client-key"];
    serve_fails(
        &redis.url,
        foreign,
        &["does not accept the client certificate", "Set HOLDFAST_REDIS_CERT"],
    );
    for (certificate, parts) in [
        ("misnamed", ["another host name", "Use a host in REDIS_URL"]),
        ("expired", ["has expired or is not valid yet", "Renew it, or correct the clock"]),
    ] {
        let other = topology::start_with_certificate(certificate);
        serve_fails(&other.url, ALL, &parts);
    }
    let plain_url = redis.url.replace("rediss", "redis");
    let mixed = ["It begins with rediss if the server requires TLS, and only then"];
    serve_fails(&plain_url, ["", "", ""], &mixed);
    let [port] = free_ports();
    let _: String = topology::query(&redis.url, &format!("CONFIG SET port {port}")).unwrap();
    serve_fails(&format!("rediss://localhost:{port}"), ALL, &mixed);
    serve_fails(&plain_url, ALL, &["certificates are given, but the address is one without TLS"]);
    serve_fails(
        &redis.url,
        ["nowhere", "", ""],
        &["HOLDFAST_REDIS_CA: can't read", "No such file"],
    );
    serve_fails(
        &redis.url,
        ["client-key", "", ""],
        &["HOLDFAST_REDIS_CA: there is no certificate in PEM"],
    );
    serve_fails(&redis.url, ["authority", "client", ""], &["a client certificate needs both"]);
    serve_fails(
        &redis.url,
        ["authority", "client", "server-key"],
        &["the key does not belong to the certificate"],
    );
}

/// Two replicas on each kind of Redis with TLS.
#[tokio::test(flavor = "multi_thread")]
async fn shop_sells_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    certificates().write(folder.path());
    let servers = start_servers().await;
    let database_url = servers.database_url("holdfast");
    let seed =
        run_program(&["migrate", "--seed", "--demo-users"], &[("DATABASE_URL", &database_url)]);
    assert!(seed.status.success(), "{}", stderr(&seed));
    for kind in [Topology::TlsRedis, Topology::TlsCluster, Topology::TlsSentinel] {
        let redis =
            tokio::task::spawn_blocking(move || topology::start(kind)).await.unwrap().unwrap();
        let mut shop = TestShop::without_replicas().await;
        let mut environment = redis_environment(folder.path(), &redis.url, ALL).to_vec();
        environment.push(("DATABASE_URL", database_url.clone()));
        environment.push(("HOLDFAST_JOBS", "on".to_owned()));
        let environment: Vec<_> =
            environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for _ in 0..2 {
            shop.add_replica(&environment);
        }
        let alice = shop.sign_in("alice").await;
        let sku = shop.lab_item(10).await;
        let orders = (0..20).map(|number| alice.at(number % 2).orders(&sku, 1).send());
        let mut sold = 0;
        for response in futures_util::future::join_all(orders).await {
            sold += usize::from(response.status == 201);
        }
        assert_eq!(sold, 10, "{kind:?}");
        let audit = run_program(&["audit"], &environment);
        assert!(audit.status.success(), "{}", stderr(&audit));
        assert!(String::from_utf8_lossy(&audit.stdout).contains(" held, "), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_plain_text_is_reported() {
    let [postgres, redis] = [proxy::to_postgres().await, proxy::to_redis().await];
    let shop = TestShop::without_replicas().await;
    let folder = tempfile::tempdir().unwrap();
    let log_of = |host: &str| {
        let log = folder.path().join(host);
        let database_url =
            format!("postgres://holdfast@{host}:{}/{}", postgres.port, shop.database);
        let redis_url = format!("redis://{host}:{}", redis.port);
        let environment = [("DATABASE_URL", database_url.as_str()), ("REDIS_URL", &redis_url)];
        drop(Replica::start_with_log(&log, &environment));
        std::fs::read_to_string(log).unwrap()
    };
    // A form of 127.0.0.1 that only the resolver understands, like the name of a remote host.
    let remote = log_of("127.1");
    for service in ["Postgres", "Redis"] {
        let warning = format!("the connection to {service} is not encrypted");
        assert_eq!(remote.matches(&warning).count(), 1, "{remote}");
        assert!(!log_of("localhost").contains(&warning));
    }
}
