//! Errors of the connection, the server's settings, and the schema.

use crate::tls::UnusableCertificate;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("DATABASE_URL can't be read: {0}. It looks like postgres://user:password@host/name")]
    Address(sqlx::Error),
    #[error("DATABASE_URL can't be used: {0}")]
    UnsupportedAddress(String),
    #[error(
        "Postgres does not respond at {place}: {cause}. Is it running, and is DATABASE_URL correct?"
    )]
    Unreachable { place: String, cause: String },
    #[error("Postgres refuses: {cause}. {advice}")]
    Refused { cause: String, advice: &'static str },
    #[error(transparent)]
    Certificate(#[from] UnusableCertificate),
    #[error("can't connect to Postgres: {cause}. {advice}")]
    Tls { cause: String, advice: String },
    #[error(
        "Postgres runs with synchronous_commit = off: a commit it has acknowledged can be lost, \
         and an order with it. Set synchronous_commit = on"
    )]
    Unsafe,
    #[error(
        "the database {name} has the encoding {encoding}, and Holdfast requires UTF8: use one that was \
         created with `createdb --encoding=UTF8 --locale=C --template=template0 NAME`"
    )]
    Encoding { name: String, encoding: String },
    /// A pooler gives several connections the same session, one transaction each.
    #[error(
        "between Holdfast and Postgres is a pooler in transaction mode, such as PgBouncer with \
         pool_mode = transaction: timeouts and prepared statements, which belong to a session, \
         would be those of other clients. Set pool_mode = session for this database, or let \
         DATABASE_URL name Postgres itself"
    )]
    SharedSession,
    /// The lines have the sequences, and the statements that mend them.
    #[error(
        "orders would fail or get wrong numbers, because the data came without the state of its \
         sequences, as by logical replication. Stop all replicas, and mend each sequence:\n{0}"
    )]
    Sequences(String),
    #[error("the schema is not up to date: {0}. Run `holdfast migrate`")]
    Schema(String),
    /// There is no release yet, so there is no path from one build's schema to another's.
    #[error(
        "this database has the schema of another build of Holdfast, which this one cannot upgrade: \
         use an empty database, or with `holdfast up` another folder: --data FOLDER"
    )]
    OtherBuild,
    #[error("the migration failed: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    #[error("Postgres: {0}")]
    Other(#[from] sqlx::Error),
}
