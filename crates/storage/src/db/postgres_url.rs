//! The URL of a PostgreSQL server: what it may say, how the connection is encrypted, and what may
//! be shown of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::error::{Result, StorageError};

/// For all hosts of the URL together, so that one that does not respond leaves time for the others.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Detects a server that vanished without closing the connection.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// Parses the URL. `sslmode` works as in libpq, with two safer differences:
///
/// * Over TLS, the server's certificate is always checked against the system's roots and the host
///   name. So `verify-ca` and `verify-full` mean `require`.
/// * Without `sslmode`, a connection to this machine uses no TLS, and any other requires it: with
///   `prefer`, an attacker between the two could claim that the server has no TLS.
pub(super) fn configure(url: &str) -> Result<Config> {
    let strict = ["sslmode=verify-full", "sslmode=verify-ca"];
    let plain_url = strict.iter().fold(url.to_owned(), |url, mode| {
        url.replace(mode, "sslmode=require")
    });
    // The parser's message may repeat parts of the URL, for example of a password that contains
    // `?`.
    let mut config: Config = plain_url.parse().map_err(|_| {
        StorageError::BadUrl(
            "could not parse the PostgreSQL URL: expected postgres://user:password@host:port/database, with special \
             characters of user and password percent-encoded, and only parameters that Bellbird knows, such as sslmode"
                .to_owned(),
        )
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(StorageError::BadUrl(
            "the PostgreSQL URL has no host: expected postgres://user:password@host:port/database"
                .to_owned(),
        ));
    }
    // The parser takes the first `@` for the end of the password, and names are shown.
    let is_split = |name: &Host| matches!(name, Host::Tcp(name) if name.contains('@'));
    if config.get_hosts().iter().any(is_split)
        || config.get_dbname().is_some_and(|name| name.contains('@'))
    {
        return Err(StorageError::BadUrl(
            "the PostgreSQL URL has more than one @: write %40 for an @ of the password".to_owned(),
        ));
    }
    if !has_sslmode(url) {
        config.ssl_mode(if reaches_this_machine(&config) {
            SslMode::Disable
        } else {
            SslMode::Require
        });
    }
    if config.get_application_name().is_none() {
        config.application_name("bellbird");
    }
    if config.get_connect_timeout().is_none() {
        let hosts = config
            .get_hosts()
            .len()
            .max(config.get_hostaddrs().len())
            .max(1);
        config.connect_timeout(CONNECT_TIMEOUT / u32::try_from(hosts).unwrap_or(u32::MAX));
    }
    config
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL);
    config
        .keepalives_retries(KEEPALIVE_RETRIES)
        .tcp_user_timeout(TCP_USER_TIMEOUT);
    Ok(config)
}

/// Names database, host and port of a URL. `None` if it is not one of PostgreSQL.
pub(crate) fn location(url: &str) -> Option<String> {
    let config = configure(url).ok()?;
    let ports = config.get_ports();
    // One port may be for all hosts, and the default is 5432.
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let names = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(folder) => folder.display().to_string(),
    });
    // The address decides, if the URL has one.
    let addresses: Vec<_> = match config.get_hostaddrs() {
        [] => names.collect(),
        addresses => addresses.iter().map(ToString::to_string).collect(),
    };
    let hosts: Vec<_> = addresses
        .iter()
        .enumerate()
        .map(|(index, host)| format!("{host}, port {}", port(index)))
        .collect();
    let name = config
        .get_dbname()
        .or(config.get_user())
        .unwrap_or("(default)");
    Some(format!(
        "PostgreSQL database {name} at {}",
        hosts.join(" or ")
    ))
}

/// Whether the URL lets a connection to another machine go without TLS.
pub(crate) fn allows_plain_text(url: &str) -> bool {
    configure(url).is_ok_and(|config| {
        config.get_ssl_mode() != SslMode::Require && !reaches_this_machine(&config)
    })
}

/// The flags with which PostgreSQL's own programs reach the database of a URL, without the
/// password. None if a shell would not read them as they are.
pub(crate) fn client_flags(url: &str) -> Option<String> {
    let config = configure(url).ok()?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.to_str()?.to_owned(),
        None => config.get_hostaddrs().first()?.to_string(),
    };
    let (port, user) = (
        config.get_ports().first().copied().unwrap_or(5432),
        config.get_user()?,
    );
    let database = config.get_dbname().unwrap_or(user);
    let is_plain = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c))
    };
    [&host, user, database]
        .iter()
        .all(|text| is_plain(text))
        .then(|| format!("--host={host} --port={port} --username={user} {database}"))
}

/// Reads the parameters where the parser does: after user and password, which may contain anything.
fn has_sslmode(url: &str) -> bool {
    let address = url.split_once('@').map_or(url, |(_, address)| address);
    let parameters = address
        .split_once('?')
        .map_or("", |(_, parameters)| parameters);
    parameters
        .split('&')
        .any(|parameter| parameter.starts_with("sslmode="))
}

/// The address decides, if the URL has one: the host is only its name in the certificate then.
fn reaches_this_machine(config: &Config) -> bool {
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

pub(super) fn tls() -> std::result::Result<ClientConfig, rustls::Error> {
    Ok(
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_platform_verifier()?
            .with_no_client_auth(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_share_the_time_to_connect() {
        let timeout_of = |hosts: &str| {
            let url =
                format!("postgres://bellbird@{hosts}/bellbird?target_session_attrs=read-write");
            *configure(&url).unwrap().get_connect_timeout().unwrap()
        };
        assert_eq!(timeout_of("db-1"), CONNECT_TIMEOUT);
        assert_eq!(timeout_of("db-1,db-2:5433"), CONNECT_TIMEOUT / 2);
    }
}
