//! Checks the ports of the listeners. What uses one should be a service on the database of the
//! settings.

use std::io::ErrorKind;
use std::net::SocketAddr;

use bellbird_storage::Instance;

use super::{Checks, Verdict};
use crate::cli::listener;
use crate::config::{Settings, on_this_machine};
use crate::ops::ServiceInfo;
use crate::roles::Role;
use crate::wiring;
use bellbird_api::serve;

/// The body of `/health` and `/live`.
const ALIVE: &str = r#"{"status":"ok"}"#;

/// `running` are the instances on this machine and the database of the settings, if they are known.
pub(super) async fn check(checks: &mut Checks, settings: &Settings, running: Option<&[Instance]>) {
    let service = service_at(settings.ops_listen).await;
    let own = wiring::database_location(settings);
    let is_own = service
        .as_ref()
        .is_some_and(|service| service.location == own && !service.is_demo);
    let is_api = |instance: &Instance| port(&instance.api_url) == Some(settings.api.listen.port());
    let has_api = running.is_none_or(|running| running.iter().any(is_api));
    // No row has the port of the ops listener.
    let has_ops = running.is_none_or(|running| !running.is_empty());
    let mut listeners = vec![
        ("api.listen", settings.api.listen, Some("/health"), has_api),
        ("console.listen", settings.console.listen, None, true),
        ("ops.listen", settings.ops_listen, Some("/live"), has_ops),
    ];
    let admin = settings
        .admin_listen
        .filter(|admin| *admin != settings.api.listen);
    listeners.extend(admin.map(|admin| ("admin.listen", admin, None, true)));
    for (name, address, path, is_known) in listeners {
        match serve::listen(address).await {
            Ok(_) => {
                let elsewhere = elsewhere(running.unwrap_or_default(), name);
                checks.ok(name, format!("{address} is free{elsewhere}"));
            }
            Err(error) if error.kind() != ErrorKind::AddrInUse => {
                checks.wrong(name, format!("{address}: {error}"));
            }
            Err(_) => {
                if let Some(path) = path
                    && !is_known
                    && is_bellbird(address, path).await
                {
                    checks.wrong(name, foreign(address, settings, &own, service.as_ref()));
                    continue;
                }
                let (verdict, why) = match running {
                    Some([]) if !is_own => (
                        Verdict::Wrong,
                        ", but no instance of this database runs on this machine: another program has it",
                    ),
                    Some(_) => (Verdict::Ok, "; expected while the service runs"),
                    None => (Verdict::Note, ""),
                };
                checks.add(name, verdict, format!("{address} is in use{why}"));
            }
        }
    }
}

/// What to do about a Bellbird that has no row in the database of the settings.
fn foreign(
    address: SocketAddr,
    settings: &Settings,
    own: &str,
    service: Option<&ServiceInfo>,
) -> String {
    match service {
        Some(ServiceInfo { is_demo: true, .. }) => {
            format!("the Bellbird at {address} is a demo: stop it")
        }
        Some(ServiceInfo { location, .. }) if location == own => format!(
            "the Bellbird at {address} uses this database, but has not written to it for 20 s: its \
             http://{}/ready says why",
            settings.ops_listen
        ),
        Some(ServiceInfo { location, .. }) => format!(
            "the Bellbird at {address} uses another database, the {location}, and this command the {own}: give both \
             the same database.url, as in bellbird.toml"
        ),
        None => format!(
            "the Bellbird at {address} uses another database than this command: give both the same database.url, as in \
             bellbird.toml"
        ),
    }
}

/// Where the running service listens instead of a free address.
fn elsewhere(running: &[Instance], listener: &str) -> String {
    let with = |role: Role| running.iter().find(|instance| role.is_in(&instance.roles));
    let url = match listener {
        "api.listen" => with(Role::Api).map(|instance| &instance.api_url),
        "console.listen" => with(Role::Console).map(|instance| &instance.console_url),
        // No row has the others.
        _ => None,
    };
    url.map_or_else(String::new, |url| {
        format!("; the running service is at {url}")
    })
}

/// The port of a URL such as `http://127.0.0.1:8080`.
fn port(url: &str) -> Option<u16> {
    url.parse::<http::Uri>().ok()?.port_u16()
}

/// Whether a service of this program listens there. Asks over loopback only.
async fn is_bellbird(address: SocketAddr, path: &str) -> bool {
    on_this_machine(address).ip().is_loopback()
        && listener::get(address, path)
            .await
            .is_ok_and(|response| response == (200, ALIVE.to_owned()))
}

/// What the service with this ops listener says about itself, ready or not. Asks over loopback
/// only.
async fn service_at(ops: SocketAddr) -> Option<ServiceInfo> {
    if !on_this_machine(ops).ip().is_loopback() {
        return None;
    }
    let (_, body) = listener::get(ops, "/ready").await.ok()?;
    serde_json::from_str(&body).ok()
}
