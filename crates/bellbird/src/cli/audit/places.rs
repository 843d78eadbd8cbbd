//! The places that are searched: tables, files and memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use bellbird_providers::settings::is_this_machine;
use bellbird_storage::{Instance, Storage};
use serde::Serialize;

use super::counted;
use crate::audit::files::visit_file;
use crate::audit::memory::visit_memory;
use crate::audit::process::{Listener, listener_of};
use crate::audit::strings::{Counts, Search, Searcher};
use crate::cli::{doctor, output};
use crate::config::Settings;
use crate::config::client::URL;
use crate::instances;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Place {
    /// `table`, `file`, `log` or `memory`.
    part: &'static str,
    name: String,
    #[serde(flatten)]
    pub size: Size,
    pub found: Counts,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Size {
    Rows(u64),
    Bytes(u64),
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => out.write_str(&output::count(*rows, "row", "rows")),
            Self::Bytes(bytes) => out.write_str(&output::count(*bytes, "byte", "bytes")),
        }
    }
}

impl Place {
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.part, self.name)
    }

    /// What to say if it contains something. `simulates`: the service has rows of its own.
    pub(super) fn failure(&self, simulates: bool) -> Option<String> {
        if self.found.is_empty() {
            return None;
        }
        let advice = if self.part != "memory" {
            ""
        } else if simulates {
            ": it simulates providers, so it keeps their rows in memory. Audit a service without them, or leave \
             the memory out with --no-memory"
        } else {
            ": another client or a sync may have read the same rows, so repeat it when nothing else reads. Trades that \
             somebody looked at stay for cache.trades_seconds (600 by default): add --wait 660"
        };
        Some(format!(
            "{} contains {}{advice}",
            self.name(),
            counted(&self.found)
        ))
    }
}

/// What was not searched.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gap {
    pub what: String,
    pub reason: String,
    /// Left out by an argument, or because there is nothing to search.
    is_chosen: bool,
}

impl Gap {
    pub(super) fn chosen(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            reason: reason.into(),
            is_chosen: true,
        }
    }

    pub(super) fn failed(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            is_chosen: false,
            ..Self::chosen(what, reason)
        }
    }

    pub(super) fn failure(&self) -> Option<String> {
        (!self.is_chosen).then(|| format!("{} was not searched: {}", self.what, self.reason))
    }
}

/// Every value of every table.
pub(super) async fn tables(
    storage: &Storage,
    searcher: &Searcher<'_>,
) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for name in storage.tables().await? {
        let mut search = searcher.search();
        let rows = storage
            .visit_values(&name, &mut |value| search.add(value))
            .await?;
        places.push(Place {
            part: "table",
            name,
            size: Size::Rows(rows),
            found: search.counts(),
        });
    }
    Ok(places)
}

/// The bytes of SQLite's files, which may have more than the tables.
pub(super) fn database_files(
    settings: &Settings,
    searcher: &Searcher<'_>,
    places: &mut Vec<Place>,
    gaps: &mut Vec<Gap>,
) {
    for path in doctor::database_files(settings) {
        match file("file", &path, searcher) {
            Ok(place) => places.push(place),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => gaps.push(Gap::failed(path.display().to_string(), error.to_string())),
        }
    }
}

pub(super) fn logs(
    paths: &[PathBuf],
    searcher: &Searcher<'_>,
    places: &mut Vec<Place>,
    gaps: &mut Vec<Gap>,
) {
    if paths.is_empty() {
        gaps.push(Gap::chosen("log", "no --log"));
    }
    for path in paths {
        match file("log", path, searcher) {
            Ok(place) => places.push(place),
            Err(error) => gaps.push(Gap::failed(
                format!("log {}", path.display()),
                error.to_string(),
            )),
        }
    }
}

fn file(part: &'static str, path: &Path, searcher: &Searcher<'_>) -> io::Result<Place> {
    let mut search = searcher.search();
    let bytes = visit_file(path, &mut |block| search.add(block))?;
    Ok(Place {
        part,
        name: path.display().to_string(),
        size: Size::Bytes(bytes),
        found: search.counts(),
    })
}

/// The memory of the service. Fails with what to do.
pub(super) async fn memory(
    pid: Option<u32>,
    url: &str,
    storage: Option<&Storage>,
    searcher: &Searcher<'_>,
) -> Result<Vec<Place>, String> {
    if !cfg!(target_os = "linux") {
        return Err(
            "only Linux shows the memory of a process: leave it out with --no-memory".to_owned(),
        );
    }
    let pid = match pid {
        Some(pid) => pid,
        None => process_of_service(url, storage).await?,
    };
    let mut regions: BTreeMap<String, (u64, Search<'_>)> = BTreeMap::new();
    let visited = visit_memory(pid, &mut |name, block| {
        let (bytes, search) = regions
            .entry(name.to_owned())
            .or_insert_with(|| (0, searcher.search()));
        *bytes += block.len() as u64;
        search.add(block);
    });
    visited.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "no permission to read the memory of process {pid}: run this command as root, or leave the memory out \
             with --no-memory"
        ),
        io::ErrorKind::NotFound => format!("there is no process {pid}"),
        _ => format!("process {pid}: {error}"),
    })?;
    let places = regions.into_iter().map(|(name, (bytes, search))| Place {
        part: "memory",
        name: format!("of process {pid}, {name}"),
        size: Size::Bytes(bytes),
        found: search.counts(),
    });
    Ok(places.collect())
}

/// The process of the instance that was read from.
async fn process_of_service(url: &str, storage: Option<&Storage>) -> Result<u32, String> {
    const ADVICE: &str =
        "name the service's process with --pid, or leave the memory out with --no-memory";
    let running = match storage {
        Some(storage) => instances::running(storage)
            .await
            .map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    let port = port_of_service(url, &running).ok_or_else(|| {
        format!(
            "it is not clear which process responds at {url}: set {URL} to the listener of an instance, or {ADVICE}"
        )
    })?;
    match listener_of(port) {
        Ok(Listener::Process(pid)) => Ok(pid),
        Ok(Listener::Nobody) => Err(format!(
            "no process of this machine listens on port {port}: {ADVICE}"
        )),
        Ok(Listener::Hidden) => Err(format!(
            "the process that listens on port {port} belongs to another user: run this command as root, or leave the \
             memory out with --no-memory"
        )),
        Err(error) => Err(format!(
            "could not find the process that listens on port {port} ({error}): {ADVICE}"
        )),
    }
}

/// The port of an instance on this machine: the one that the URL names, or the only one that runs.
/// A URL may be that of a proxy.
fn port_of_service(url: &str, running: &[Instance]) -> Option<u16> {
    let named = local_port(url);
    let here: Vec<_> = running
        .iter()
        .filter(|instance| instances::is_here(instance))
        .map(|instance| local_port(&instance.api_url))
        .collect();
    match (running, &here[..]) {
        ([], _) => named,
        (_, ports) if named.is_some() && ports.contains(&named) => named,
        ([_], [port]) => *port,
        _ => None,
    }
}

/// The port of a URL with a loopback address.
fn local_port(url: &str) -> Option<u16> {
    let url: http::Uri = url.parse().ok()?;
    is_this_machine(url.host()?).then(|| {
        url.port_u16()
            .unwrap_or(if url.scheme_str() == Some("https") {
                443
            } else {
                80
            })
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rustix::system::uname;
    use uuid::Uuid;

    use super::*;
    use crate::audit::strings::Kind;

    fn instance(host: &str, port: u16) -> Instance {
        Instance {
            id: Uuid::from_u128(port.into()),
            version: String::new(),
            host: host.to_owned(),
            api_url: format!("http://127.0.0.1:{port}"),
            roles: vec!["api".to_owned()],
            boot_id: String::new(),
            console_url: String::new(),
            key_ids: Vec::new(),
            settings: BTreeMap::new(),
            allow_loopback: false,
            started_at: Timestamp::UNIX_EPOCH,
            last_seen_at: Timestamp::UNIX_EPOCH,
            clock_ahead_ms: 0,
            provider_calls: Default::default(),
        }
    }

    #[test]
    fn simulated_rows_in_memory_have_an_advice_of_their_own() {
        let place = |part| Place {
            part,
            name: "x".to_owned(),
            size: Size::Rows(1),
            found: Counts::from([(Kind::Description, 1)]),
        };
        for (part, simulates, advice) in [
            ("memory", true, "it simulates providers"),
            ("memory", false, "add --wait 660"),
            ("table", true, "contains 1 description"),
        ] {
            let failure = place(part).failure(simulates).unwrap();
            assert!(failure.contains(advice), "{failure}");
        }
        assert_eq!(place("table").size.to_string(), "1 row");
    }

    #[test]
    fn process_is_that_of_an_instance() {
        let this_machine = uname().nodename().to_string_lossy().into_owned();
        let (one, two, away) = (
            instance(&this_machine, 81),
            instance(&this_machine, 82),
            instance("elsewhere", 83),
        );
        let (direct, proxied) = ("http://127.0.0.1:82", "https://bank.example.com");
        for (url, running, port) in [
            (direct, vec![], Some(82)),
            (direct, vec![one.clone(), two.clone()], Some(82)),
            // A proxy on this machine.
            (direct, vec![one.clone()], Some(81)),
            (proxied, vec![one.clone()], Some(81)),
            (proxied, vec![one.clone(), two], None),
            (proxied, vec![one, away.clone()], None),
            (proxied, vec![away], None),
            (proxied, vec![], None),
        ] {
            let urls: Vec<_> = running
                .iter()
                .map(|instance| instance.api_url.as_str())
                .collect();
            assert_eq!(port_of_service(url, &running), port, "{url} {urls:?}");
        }
    }

    #[test]
    fn port_is_that_of_this_machine() {
        for (url, port) in [
            ("http://127.0.0.1:8080", Some(8080)),
            ("http://[::1]:81", Some(81)),
            ("https://localhost/x", Some(443)),
            ("http://localhost", Some(80)),
            ("https://bank.example.com", None),
            ("http://10.0.0.5:8080", None),
        ] {
            assert_eq!(local_port(url), port, "{url}");
        }
    }
}
