//! Checks `DATABASE_URL` for what `sqlx` would misread or leave out without an error. Each
//! rejection is one sentence that says what to change, without the password. Names a socket that is
//! missing.

use std::borrow::Cow;
use std::io::{self, ErrorKind};

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::error::Error;

/// Parameters of libpq that choose the server or protect the connection, and that `sqlx` leaves
/// out. Others only tune it, and `sqlx` warns that it leaves them out.
const UNSUPPORTED: [&str; 7] =
    ["service", "servicefile", "sslcrl", "sslcrldir", "require_auth", "requirepeer", "requiressl"];
/// Parameters that [`check_options`] answers.
const ANSWERED: [&str; 2] = ["target_session_attrs", "channel_binding"];

/// Checks the text, before it is parsed.
pub(super) fn check_text(url: &str) -> Result<(), Error> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if url.starts_with(['"', '\'']) || url.ends_with(['"', '\'']) {
        return rejected("it is in quotes, which env files of Docker keep: remove the quotes");
    }
    if scheme == "jdbc" {
        return rejected("it is an address for Java: write postgres://USER:PASSWORD@HOST/NAME");
    }
    if url.contains("://") && !matches!(scheme, "postgres" | "postgresql") {
        return rejected(&format!(
            "it begins with {scheme}://, and Holdfast needs Postgres: postgres://USER:PASSWORD@HOST/NAME"
        ));
    }

    // Else `sqlx` warns that it leaves out a parameter, and its name is a part of the password.
    if url.split_once('?').is_some_and(|(_, query)| query.contains('@')) {
        return rejected(
            "it has an @ behind a ?: write a ? of the password as %3F, or such an @ as %40",
        );
    }

    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let listed = parameters(url).any(|(name, value)| {
        matches!(name.as_ref(), "host" | "hostaddr" | "port") && value.contains(',')
    });
    if hosts.contains(',') || listed { several_hosts() } else { Ok(()) }
}

/// Checks what the text and libpq's variables say together; `variable` returns the value of one.
pub(super) fn check_options(
    url: &str,
    options: &PgConnectOptions,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), Error> {
    if options.get_host().contains(',') {
        return several_hosts();
    }

    for (name, value) in parameters(url) {
        if let Some(why) = objection(&name, &value, options) {
            return rejected(&why);
        }
    }

    for name in ANSWERED.into_iter().chain(UNSUPPORTED) {
        // libpq's variable for `require_auth` is `PGREQUIREAUTH`.
        let variable_name = format!("PG{}", name.replace('_', "").to_uppercase());
        let value = variable(&variable_name).filter(|value| !value.is_empty());
        let is_overridden = parameters(url).any(|(parameter, _)| parameter == name);
        if let Some(value) = value.filter(|_| !is_overridden)
            && let Some(why) = objection(name, &value, options)
        {
            return rejected(&format!("{why} (the variable {variable_name} sets it)"));
        }
    }
    Ok(())
}

/// Returns why a parameter cannot be kept, if so.
fn objection(name: &str, value: &str, options: &PgConnectOptions) -> Option<String> {
    match (name, value) {
        ("target_session_attrs", "any" | "read-write" | "primary") => None,
        ("target_session_attrs", other) => Some(format!(
            "with target_session_attrs={other} the server may be a standby, and Holdfast writes: \
             name the primary, and use read-write or leave it out"
        )),
        // It binds a sign-in to the server's certificate, which this mode verifies anyway.
        ("channel_binding", "require")
            if !matches!(options.get_ssl_mode(), PgSslMode::VerifyFull) =>
        {
            let why = "channel_binding=require is not supported without sslmode=verify-full, which \
                       verifies the server by its certificate: set that";
            Some(why.to_owned())
        }
        (name, _) if UNSUPPORTED.contains(&name) => {
            Some(format!("the parameter {name} is not supported: leave it out"))
        }
        _ => None,
    }
}

/// Returns the address without the parameters that [`check_options`] has answered, of which `sqlx`
/// would warn.
pub(super) fn without_answered_parameters(url: &str) -> Cow<'_, str> {
    let is_answered = |name: &str| ANSWERED.contains(&name);
    if !parameters(url).any(|(name, _)| is_answered(&name)) {
        return url.into();
    }

    let (address, query) = url.split_once('?').unwrap_or((url, ""));
    let name_of = |parameter: &str| parameter.split('=').next().unwrap_or_default().to_owned();
    let others: Vec<&str> =
        query.split('&').filter(|parameter| !is_answered(&name_of(parameter))).collect();
    format!("{address}?{}", others.join("&")).into()
}

/// Says what is missing where a Unix socket should be: the system's words name no file.
pub(super) fn name_missing_socket(error: sqlx::Error, options: &PgConnectOptions) -> sqlx::Error {
    let is_missing = matches!(&error, sqlx::Error::Io(io) if io.kind() == ErrorKind::NotFound);
    let Some(folder) = options.get_socket().filter(|_| is_missing) else { return error };
    let cause = if folder.exists() {
        "there is no such socket".to_owned()
    } else {
        format!(
            "the folder {} of its socket does not exist. If it was removed, restart the server, or \
             the `holdfast up` that runs it",
            folder.display()
        )
    };
    io::Error::new(ErrorKind::NotFound, cause).into()
}

/// Returns the parameters of an address, decoded.
pub(super) fn parameters(url: &str) -> form_urlencoded::Parse<'_> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    form_urlencoded::parse(query.split('#').next().unwrap_or_default().as_bytes())
}

fn several_hosts() -> Result<(), Error> {
    rejected(
        "it names several hosts, and a replica uses one: name the primary, or an address that \
         always leads to it",
    )
}

fn rejected(why: &str) -> Result<(), Error> {
    Err(Error::UnsupportedAddress(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::connect::options;
    use super::check_options;

    #[test]
    fn unsupported_addresses_are_named() {
        for (url, why) in [
            ("\"postgres://ann:hush@db/shop\"", "remove the quotes"),
            ("'postgres://ann:hush@db/shop'", "remove the quotes"),
            ("jdbc:postgresql://db/shop?user=ann&password=hush", "for Java"),
            ("mysql://ann:hush@db/shop", "begins with mysql://"),
            ("redis://:hush@db/0", "begins with redis://"),
            ("postgres://ann:?hush@db/shop", "%3F"),
            ("postgres://ann:hu?sh=hush@db/shop", "%3F"),
            ("postgres://ann:hush@one:5432,two:5432/shop", "several hosts"),
            ("postgres://ann:hush@one,two/shop", "several hosts"),
            ("postgres:///shop?host=one,two&password=hush", "several hosts"),
            ("postgres://ann:hush@one/shop?port=5432,5433", "several hosts"),
            (
                "postgres://ann:hush@db/shop?target_session_attrs=standby",
                "target_session_attrs=standby",
            ),
            (
                "postgres://ann:hush@db/shop?target_session_attrs=prefer-standby",
                "target_session_attrs=prefer-standby",
            ),
            ("postgres://ann:hush@db/shop?channel_binding=require", "channel_binding=require"),
            (
                "postgres://ann:hush@db/shop?sslmode=require&channel_binding=require",
                "sslmode=verify-full",
            ),
            ("postgres://ann:hush@db/shop?sslcrl=revoked.pem", "the parameter sslcrl"),
            ("postgres://ann:hush@db/shop?require_auth=scram-sha-256", "require_auth"),
        ] {
            let error = options(url).expect_err("it is rejected").to_string();
            assert!(error.contains(why) && error.contains("DATABASE_URL"), "{url}: {error}");
            assert!(!error.contains("hush") && !error.contains('\n'), "{url}: {error}");
        }
    }

    #[test]
    fn variables_of_libpq_are_checked_as_parameters() {
        let check = |url: &str, name: &'static str, value: &'static str| {
            let options = options(url).expect("the address is kept");
            check_options(url, &options, |variable| (variable == name).then(|| value.to_owned()))
        };
        for (name, value) in [
            ("PGTARGETSESSIONATTRS", "standby"),
            ("PGCHANNELBINDING", "require"),
            ("PGSSLCRL", "revoked.pem"),
        ] {
            let error = check("postgres://db/shop", name, value).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
            check("postgres://db/shop", name, "").expect("an empty variable is none");
        }
        let url = "postgres://db/shop?target_session_attrs=any";
        check(url, "PGTARGETSESSIONATTRS", "standby").expect("the address comes first");
    }

    #[test]
    fn supported_addresses_are_kept() {
        for (url, host) in [
            ("postgresql://ann:hush@db/shop", "db"),
            // The comma is of the password.
            ("postgres://ann:hu,sh@db:5433/shop", "db"),
            ("postgres://[::1]/shop", "[::1]"),
            ("postgres://db/shop?target_session_attrs=read-write&application_name=x", "db"),
            ("postgres://db/shop?application_name=x&target_session_attrs=any", "db"),
            ("postgres://db/shop?channel_binding=prefer", "db"),
            ("postgres://db/shop?sslmode=verify-full&channel_binding=require", "db"),
            ("postgres://db/shop?connect_timeout=10", "db"),
        ] {
            let options = options(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(options.get_host(), host, "{url}");
            assert_eq!(options.get_database(), Some("shop"), "{url}");
        }
        let named = options("postgres://db/shop?target_session_attrs=any&application_name=x");
        assert_eq!(named.expect("it is kept").get_application_name(), Some("x"));
    }
}
