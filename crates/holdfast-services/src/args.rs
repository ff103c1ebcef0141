//! Options of `holdfast up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::ArgPredicate;

use holdfast_base::flags::{address, quorum_nodes, whole_number};

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "The replicas also read the environment variables of `holdfast serve --help`, \
    such as HOLDFAST_LOCK_TTL_MS."
)]
pub struct UpArgs {
    /// Number of replicas; they listen on the listen port and the ports after it
    #[arg(long, env = "HOLDFAST_UP_REPLICAS", default_value_t = 2, value_parser = whole_number::<u16>(1..=16))]
    pub replicas: u16,
    /// Address of the first replica
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", default_value_if("class", ArgPredicate::IsPresent, "0.0.0.0:8080"), value_parser = address)]
    pub listen: SocketAddr,
    /// Folder that keeps the data between runs; relative to the current folder, so that in another
    /// one the same command is another shop
    #[arg(
        long,
        env = "HOLDFAST_DATA",
        default_value = ".holdfast",
        default_value_if("class", ArgPredicate::IsPresent, ".holdfast-class")
    )]
    pub data: PathBuf,
    /// Use a data folder that is a copy of another one: the copy of a running shop may be damaged
    #[arg(long)]
    pub adopt: bool,
    /// Number of independent Redis servers to start for the lock `redlock`: 3 or 5
    #[arg(long, value_name = "NODES", default_value_t = 0, value_parser = quorum_nodes)]
    pub redlock: u16,
    /// Allow a listen address other than loopback; the demo users' passwords are their names
    #[arg(long)]
    pub demo_users_on_network: bool,
    /// Teach a class on the network, without demo users and with data of its own. It listens on
    /// 0.0.0.0:8080 and keeps the data in .holdfast-class; prints how the students join
    #[arg(long)]
    pub class: bool,
    /// The URL of the class for its students' devices, without a path
    #[arg(skip)]
    pub class_url: Option<String>,
    /// Whether the network may be a container's own; the image sets it
    #[arg(long, env = "HOLDFAST_IN_CONTAINER", hide = true)]
    pub in_container: bool,
    /// Whether the lab is on: its headers, throw-away items and broken locks; with public, every
    /// signed-in user may run its lessons
    #[arg(long, env = "HOLDFAST_LAB", default_value = "on")]
    pub lab: LabMode,
    /// Strategy of the replicas: none, check-then-decrement, local, setnx, setnx-expire, ttl,
    /// check-then-del, expire-only, owner, watchdog, redlock, early-release, wrong-key, fenced,
    /// row-lock, atomic, version, serializable, advisory, queue or batched
    #[arg(long = "lock", env = "HOLDFAST_LOCK", default_value = "batched")]
    pub lock: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LabMode {
    /// Visitors on this machine run lessons; others need an admin's session.
    On,
    /// No lab.
    Off,
    /// Visitors on this machine and all signed-in users run lessons.
    Public,
    /// A class: its students, who joined with its code, run lessons.
    #[value(hide = true)]
    Class,
}

impl LabMode {
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    pub fn is_class(self) -> bool {
        self == Self::Class
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Public => "public",
            Self::Class => "class",
        }
    }
}
