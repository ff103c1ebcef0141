//! The options of `holdfast user`.

use clap::{Args, Subcommand};

use super::DatabaseArgs;
use super::values::whole_number;

#[derive(Debug, Clone, Subcommand)]
pub enum UserCommand {
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
    /// Name of the user: 1 to 64 characters of a-z 0-9 . _ -
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
