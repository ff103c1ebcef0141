//! `holdfast user`: adds, disables and enables users, and changes their passwords.

use std::io::IsTerminal as _;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};

use super::database::{DatabaseArgs, connect};
use crate::settings::MIN_PASSWORD_LENGTH;
use holdfast_base::flags::whole_number;
use holdfast_base::output;
use holdfast_services::DEMO_PASSWORD_LENGTH;
use holdfast_shop::db;
use holdfast_shop::names;
use holdfast_shop::users::{self, Credentials};
use holdfast_shop::{Failure, Rejection};

#[derive(Debug, Clone, Subcommand)]
pub enum UserSubcommand {
    /// Add a user; the password is read from HOLDFAST_PASSWORD or from a prompt
    Add(UserAddArgs),
    /// Change a user's password and end the user's sessions; the password is read as for `add`
    Passwd(UserPasswordArgs),
    /// Disable a user: the sessions end, and signing in fails. Orders and account stay
    Disable(UserNameArgs),
    /// Enable a disabled user, with the same password
    Enable(UserNameArgs),
}

#[derive(Debug, Clone, Args)]
pub struct UserAddArgs {
    /// Allow the user to restock and to run the lab
    #[arg(long)]
    pub admin: bool,
    #[command(flatten)]
    pub user: UserPasswordArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UserPasswordArgs {
    /// Name of the user: 1 to 64 characters of a-z 0-9 . _ -; Alice is alice
    pub name: String,
    /// Password, instead of a prompt
    #[arg(long, env = "HOLDFAST_PASSWORD", hide_env_values = true, hide = true)]
    pub password: Option<String>,
    /// Minimum length of the password, in characters [default: 8; 3 for a running `holdfast up`]
    #[arg(long, env = "HOLDFAST_MIN_PASSWORD_LENGTH", value_parser = whole_number::<u16>(3..=64))]
    pub min_password_length: Option<u16>,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

#[derive(Debug, Clone, Args)]
pub struct UserNameArgs {
    /// Name of the user
    pub name: String,
    #[command(flatten)]
    pub database: DatabaseArgs,
}

pub(crate) async fn user(command: UserSubcommand) -> anyhow::Result<()> {
    let done = match command {
        UserSubcommand::Add(UserAddArgs { admin, user }) => {
            let (pool, password, min_length) = with_password(&user).await?;
            let credentials = Credentials { user: user.name.clone(), password };
            let added = users::create(&pool, credentials, admin, None, min_length).await;
            added.map(|_| format!("user {} added", stored(&user.name)))
        }
        UserSubcommand::Passwd(user) => {
            let (pool, password, min_length) = with_password(&user).await?;
            let set = users::set_password(&pool, &user.name, password, min_length).await;
            set.map(|is_disabled| {
                let note = if is_disabled { "; the user stays disabled" } else { "" };
                format!("password of {} changed, sessions ended{note}", stored(&user.name))
            })
        }
        UserSubcommand::Disable(UserNameArgs { name, database }) => {
            let disabled = users::disable(&connect(&database).await?, &name).await;
            disabled.map(|_| format!("user {} disabled, sessions ended", stored(&name)))
        }
        UserSubcommand::Enable(UserNameArgs { name, database }) => {
            let enabled = users::enable(&connect(&database).await?, &name).await;
            enabled.map(|_| format!("user {} enabled", stored(&name)))
        }
    };
    Ok(output::print(&(done.map_err(user_error)? + "\n"))?)
}

/// Returns the name of a user who exists, as it is stored.
fn stored(name: &str) -> String {
    names::user_name(name).unwrap_or_default()
}

/// Returns the database, the new password and its minimum length.
async fn with_password(user: &UserPasswordArgs) -> anyhow::Result<(db::Pool, String, u16)> {
    let password = match &user.password {
        Some(password) => password.clone(),
        None => prompt_password(&user.name)?,
    };

    // Without a URL, the database is that of an `up`.
    let is_up = user.database.database_url.is_none();
    let default = if is_up { DEMO_PASSWORD_LENGTH } else { MIN_PASSWORD_LENGTH };

    let pool = connect(&user.database).await?;
    Ok((pool, password, user.min_password_length.unwrap_or(default)))
}

fn prompt_password(name: &str) -> anyhow::Result<String> {
    if !std::io::stdin().is_terminal() {
        bail!("no terminal to prompt for the password; set HOLDFAST_PASSWORD");
    }

    let password = ask(&format!("Password for {name}: "))?;
    if ask("Repeat the password: ")? != password {
        bail!("the passwords differ; nothing was changed");
    }
    Ok(password)
}

fn ask(prompt: &str) -> anyhow::Result<String> {
    rpassword::prompt_password(prompt).context("can't read the password")
}

fn user_error(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Rejected(Rejection::Exists(what) | Rejection::NotFound(what)) => {
            anyhow::Error::msg(what.english())
        }
        Failure::Rejected(Rejection::Invalid(field, why)) => {
            anyhow::anyhow!("{field}: {}", why.english())
        }
        other => other.into(),
    }
}
