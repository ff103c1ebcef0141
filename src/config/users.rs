//! The options of `holdfast user`.

use clap::{Args, Subcommand};

use super::DatabaseArgs;
use super::values::whole_number;

/// The `user` subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum UserCommand {
    /// Add a user; the password is read from HOLDFAST_PASSWORD or from a prompt
    Add(UserAddArgs),
    /// Change a user's password and end the user's sessions; the password is read as for `add`
    Passwd(UserPasswdArgs),
    /// Disable a user: the sessions end, and signing in fails. Orders and account stay
    Disable(UserNameArgs),
    /// Enable a disabled user, with the same password
    Enable(UserNameArgs),
}

/// Options of `holdfast user add`.
#[derive(Debug, Clone, Args)]
pub struct UserAddArgs {
    /// Name of the user: 1 to 64 characters of a-z 0-9 . _ -
    pub name: String,
    /// Allow the user to restock and to run the lab
    #[arg(long)]
    pub admin: bool,
    /// The new password.
    #[command(flatten)]
    pub password: PasswordArgs,
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// Options of `holdfast user passwd`.
#[derive(Debug, Clone, Args)]
pub struct UserPasswdArgs {
    /// Name of the user
    pub name: String,
    /// The new password.
    #[command(flatten)]
    pub password: PasswordArgs,
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}

/// A new password.
#[derive(Debug, Clone, Args)]
pub struct PasswordArgs {
    /// Password, instead of a prompt
    #[arg(long, env = "HOLDFAST_PASSWORD", hide_env_values = true, hide = true)]
    pub password: Option<String>,
    /// Minimum length of the password, in characters [default: 8; 3 for a running `holdfast up`]
    #[arg(long, env = "HOLDFAST_MIN_PASSWORD_LENGTH", value_parser = whole_number::<u16>(3..=64))]
    pub min_password_length: Option<u16>,
}

/// Options of `holdfast user disable` and `holdfast user enable`.
#[derive(Debug, Clone, Args)]
pub struct UserNameArgs {
    /// Name of the user
    pub name: String,
    /// The database.
    #[command(flatten)]
    pub database: DatabaseArgs,
}
