//! What `holdfast up --class` does beside `up`: it finds the address that phones can type, closes
//! the demo users' accounts, makes the admin's password, and says how to join.

use std::io::IsTerminal as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Context as _, bail, ensure};
use rand::seq::IndexedRandom as _;

use crate::qr;
use crate::settings::{BESIDE_POOL, MIN_PASSWORD_LENGTH};
use holdfast_base::output::{self, print_progress};
use holdfast_lab::class;
use holdfast_lab::scheduler_game::CONNECTIONS_OF_CLASS;
use holdfast_services::{LabMode, MAX_CONNECTIONS, UpArgs};
use holdfast_shop::Failure;
use holdfast_shop::db::Pool;
use holdfast_shop::seed;
use holdfast_shop::users::{self, Credentials};

const ADMIN: &str = "admin";
/// Letters and digits of a password: none that look alike. Twelve of them have 59 bits.
const PASSWORD_ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
/// Connections of the lab's runner, of commands and of people.
const OF_OTHERS: u32 = 20;
/// An address of a network for documentation: a way to it is a way out of this machine.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// The message to the teacher when the class can join.
#[derive(Debug)]
pub struct Invitation {
    code: String,
    /// Unless an earlier start has printed it.
    password: Option<String>,
    disabled: Vec<String>,
}

/// Checks that the private Postgres has a connection for everything that the replicas of a class
/// may do at once: otherwise one of them fails in the middle of the lesson.
pub fn check_connections(options: &UpArgs, pool_size: u32) -> anyhow::Result<()> {
    let of_replica = pool_size + BESIDE_POOL + CONNECTIONS_OF_CLASS;
    let most = (MAX_CONNECTIONS - OF_OTHERS) / of_replica;
    let replicas = u32::from(options.replicas);
    let fewer = if most > 0 { format!("--replicas {most} or fewer, or ") } else { String::new() };
    ensure!(
        !options.class || replicas <= most,
        "{replicas} replicas of a class may open {} connections, and its Postgres accepts \
         {MAX_CONNECTIONS}, {OF_OTHERS} of them for the lab and for people: use {fewer}a \
         smaller HOLDFAST_POOL_SIZE (now {pool_size})",
        replicas * of_replica,
    );
    Ok(())
}

/// Checks the options of a class, and completes them.
pub fn complete(options: &mut UpArgs) -> anyhow::Result<()> {
    if !options.class {
        ensure!(!options.lab.is_class(), "a class is started with --class, not with --lab class");
        return Ok(());
    }
    ensure!(
        options.lab.is_on(),
        "--class needs the lab: leave out --lab off, and HOLDFAST_LAB=off in the environment"
    );
    ensure!(
        !options.demo_users_on_network,
        "a class has no demo users: leave out --demo-users-on-network"
    );

    let hosts = std::env::var("HOLDFAST_PUBLIC_HOSTS").unwrap_or_default();
    options.class_url = Some(match address_of_class(options, &hosts) {
        Some(address) => format!("http://{address}"),
        None if options.in_container => bail!(
            "from inside a container, the address of this machine is not known: set \
             HOLDFAST_PUBLIC_HOSTS to the one that phones can reach, such as 192.168.1.20"
        ),
        None => {
            print_progress(
                "no network was found: connect this machine to the class's Wi-Fi and start again, \
                 or name its address with --listen ADDRESS:PORT",
            );
            format!("http://{}", SocketAddr::new(Ipv4Addr::LOCALHOST.into(), options.listen.port()))
        }
    });
    options.lab = LabMode::Class;
    Ok(())
}

/// Returns the host and port to type: the first of the public hosts, the address to listen on, or
/// that of the network's interface.
fn address_of_class(options: &UpArgs, hosts: &str) -> Option<String> {
    let port = options.listen.port();
    let named =
        hosts.split(',').map(str::trim).find(|host| !host.is_empty() && !host.contains('*'));
    if let Some(host) = named {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        return Some(if has_port { host.to_owned() } else { format!("{host}:{port}") });
    }

    let ip = options.listen.ip();
    if !ip.is_unspecified() {
        return Some(options.listen.to_string());
    }
    if options.in_container {
        return None;
    }
    network_address().map(|ip| SocketAddr::new(ip, port).to_string())
}

/// Returns the address of the interface that leads out of this machine. Nothing is sent.
fn network_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Prepares a database with a catalogue: no account whose password is its name stays open, there is
/// an admin, and the class has a code.
pub(crate) async fn prepare(pool: &Pool) -> anyhow::Result<Invitation> {
    let mut disabled = seed::find_demo_users(pool).await?;
    let is_open = disabled.iter().any(|name| name == ADMIN);
    disabled.retain(|name| name != ADMIN);
    for name in &disabled {
        users::disable(pool, name).await?;
    }

    let password = new_password();
    let credentials = Credentials { user: ADMIN.to_owned(), password: password.clone() };
    let is_new = if is_open {
        users::set_password(pool, ADMIN, password.clone(), MIN_PASSWORD_LENGTH).await?;
        true
    } else {
        match users::create(pool, credentials, true, None, MIN_PASSWORD_LENGTH).await {
            Ok(_) => true,
            Err(Failure::Rejected(holdfast_shop::Rejection::Exists(_))) => false,
            Err(failure) => return Err(failure).context("the admin could not be created"),
        }
    };

    let code = class::open(pool).await?;
    // The last lesson, perhaps on another day, has ended with a page.
    class::leave(pool).await?;
    Ok(Invitation { code, password: is_new.then_some(password), disabled })
}

/// Returns a password that can be read aloud: `k7mq-x2ef-9hbn`.
fn new_password() -> String {
    let mut random = rand::rng();
    let mut letter = || PASSWORD_ALPHABET.choose(&mut random).copied().map_or('x', char::from);
    let mut group = || (0..4).map(|_| letter()).collect::<String>();
    [group(), group(), group()].join("-")
}

impl Invitation {
    /// Prints to stderr how the class joins, and how the teacher signs in.
    pub fn print(&self, options: &UpArgs) {
        let url = options.class_url.as_deref().unwrap_or_default();
        let port = options.listen.port();
        if !self.disabled.is_empty() {
            let names = self.disabled.join(", ");
            print_progress(&format!("disabled, as their passwords are their names: {names}"));
        }

        let is_alone = options.listen.ip().is_loopback();
        if is_alone {
            print_progress("only this machine reaches this address: a trial, without a class");
        }

        print_progress(&format!("\nThe class joins at {url}/join with the code {}.", self.code));
        if std::io::stderr().is_terminal() && !output::is_json() {
            let code = qr::for_terminal(&format!("{url}/join/{}", self.code));
            print_progress(&code.map(|code| format!("\n{code}")).unwrap_or_default());
        }

        let sign_in = format!("http://127.0.0.1:{port}/sign-in?next=/lab/class");
        match &self.password {
            Some(password) => print_progress(&format!(
                "You are the user {ADMIN} with the password {password}: write it down, it is not \
                 printed again.\nThe class's page: {sign_in}\n"
            )),
            None => print_progress(&format!(
                "You are the user {ADMIN}; an earlier start printed the password. A new one, while \
                 this runs: holdfast user passwd {ADMIN} --data {}\nThe class's page: {sign_in}\n",
                options.data.display()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::{Cli, CliCommand};

    fn options(line: &[&str]) -> UpArgs {
        let parsed = Cli::try_parse_from([&["holdfast", "up"], line].concat());
        match parsed.expect("the options are valid").command {
            CliCommand::Up(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn class_has_a_network_and_a_folder_of_its_own() {
        let plain = options(&[]);
        assert_eq!(plain.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(plain.data.display().to_string(), ".holdfast");
        let class = options(&["--class"]);
        assert_eq!(class.listen.to_string(), "0.0.0.0:8080");
        assert_eq!(class.data.display().to_string(), ".holdfast-class");
        let named = options(&["--class", "--listen", "127.0.0.1:9000", "--data", "here"]);
        assert_eq!(named.listen.to_string(), "127.0.0.1:9000");
        assert_eq!(named.data.display().to_string(), "here");
    }

    #[test]
    fn contradictory_options_are_refused() {
        for (line, why) in [
            (&["--class", "--lab", "off"][..], "leave out --lab off"),
            (&["--class", "--demo-users-on-network"], "leave out --demo-users-on-network"),
            (&["--lab", "class"], "started with --class"),
        ] {
            let error = complete(&mut options(line)).expect_err("it is refused").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn replicas_of_class_fit_their_postgres() {
        let check = |line: &[&str], pool_size| check_connections(&options(line), pool_size);
        for fits in [&["--class"][..], &["--class", "--replicas", "3"], &["--replicas", "16"]] {
            check(fits, 16).expect("there are connections");
        }
        let error = check(&["--class", "--replicas", "4"], 16).expect_err("too many").to_string();
        assert!(error.contains("348") && error.contains("--replicas 3"), "{error}");
        check(&["--class", "--replicas", "3"], 40).expect_err("the pools are larger");
    }

    #[test]
    fn address_is_the_one_that_phones_type() {
        let address = |line: &[&str], hosts: &str| address_of_class(&options(line), hosts);
        let some = |text: &str| Some(text.to_owned());
        let on_wifi = ["--class", "--listen", "192.168.1.20:8000"];
        assert_eq!(address(&on_wifi, ""), some("192.168.1.20:8000"));
        assert_eq!(address(&on_wifi, "*.local, class.local"), some("class.local:8000"));
        assert_eq!(address(&["--class"], "10.0.0.7:80,other"), some("10.0.0.7:80"));
        assert_eq!(address(&["--class", "--listen", "[fd00::1]:8080"], ""), some("[fd00::1]:8080"));
    }

    #[test]
    fn password_is_long_and_readable() {
        let password = new_password();
        let groups: Vec<&str> = password.split('-').collect();
        assert_eq!(groups.iter().map(|group| group.len()).collect::<Vec<_>>(), [4, 4, 4]);
        assert!(password.bytes().all(|b| b == b'-' || PASSWORD_ALPHABET.contains(&b)));
        assert_ne!(password, new_password());
    }
}
