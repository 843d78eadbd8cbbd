//! `bellbird audit` finds a row's texts wherever they are, and says where it could not search.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::memory::{MARK, ROWS, import_with_marked_rows};
use crate::support::database::execute;
use crate::support::deployment::{Deployment, EMAIL};
use crate::support::harness::{Database, also_on_postgres, simulated_providers};
use crate::support::process::{ANY_PORTS, Process, RunningCommand, Workdir, errors, text};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// Of the description of each marked row, a piece that the audit searches for. There is one for
/// each provider.
fn piece(provider: &str) -> String {
    format!("{MARK} {provider}")
}

/// What `audit --json` printed.
pub(super) struct Audit {
    pub(super) code: Option<i32>,
    pub(super) printed: Value,
}

impl Audit {
    pub(super) fn rows(&self) -> u64 {
        self.printed["rows"].as_u64().unwrap()
    }

    /// Where strings were found, and of which kinds.
    pub(super) fn found(&self) -> Vec<(String, Vec<String>)> {
        let places = self.printed["places"].as_array().unwrap().iter();
        let places = places.filter(|place| !place["found"].as_object().unwrap().is_empty());
        places
            .map(|place| {
                let name = format!("{} {}", text(place, "part"), text(place, "name"));
                let kinds = place["found"].as_object().unwrap().keys();
                (name, kinds.cloned().collect())
            })
            .collect()
    }

    /// What could not be searched though nobody left it out. Without permission to trace, that is
    /// the memory.
    pub(super) fn not_searched(&self) -> Vec<String> {
        let gaps = self.printed["notSearched"].as_array().unwrap().iter();
        let failed =
            gaps.filter(|gap| gap["isChosen"] == false && (gap["what"] != "memory" || may_trace()));
        failed
            .map(|gap| format!("{}: {}", text(gap, "what"), text(gap, "reason")))
            .collect()
    }
}

/// Whether one child of this process may read the memory of another.
fn may_trace() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    !scope.is_ok_and(|scope| scope.trim() != "0") || rustix::process::geteuid().is_root()
}

/// Runs the command, with the key on standard input.
pub(super) async fn audit(workdir: &Workdir, key: &str, arguments: &str) -> Audit {
    let mut command = workdir.command(&format!("audit --json --key-file - {arguments}"));
    let key = key.to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(key.as_bytes()).unwrap();
        drop(stdin);
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    // It prints no string that it found.
    assert_lacks(&stdout, MARK);
    assert_lacks(&errors(&output), MARK);
    let printed =
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{}", errors(&output)));
    Audit {
        code: output.status.code(),
        printed,
    }
}

/// A process that has a text in its memory.
fn holder(text: &str) -> Process {
    let mut command = Command::new("sleep");
    command.arg("600").env_clear().env("PLANTED", text);
    Process(command.spawn().unwrap())
}

/// A service with marked rows, and a key that may read them.
async fn service(database: Database) -> (Workdir, RunningCommand, RunningCommand, String, String) {
    let deployment = Deployment::start_on(database, 50, &[("SYNC__ENABLED", "false")]).await;
    let key = deployment.add_user(EMAIL);
    let Deployment {
        mut workdir,
        sandbox,
        database,
    } = deployment;
    import_with_marked_rows(&workdir, &sandbox.json(), &database).await;
    let log = workdir.folder.path().join("service.log");
    let service =
        RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log);
    workdir.set("BELLBIRD_URL", &service.url("apiUrl"));
    (workdir, sandbox, service, database, key)
}

#[tokio::test]
async fn planted_row_is_found_in_each_place() {
    let database = Database::of_test();
    let (mut workdir, _sandbox, service, database, key) = service(database).await;
    let clean = audit(&workdir, &key, "--wait 0 --no-memory --log service.log").await;
    let printed = &clean.printed;
    assert_eq!((clean.code, clean.found()), (Some(0), vec![]), "{printed}");
    let strings = printed["strings"]["description"].as_u64().unwrap();
    let rows = (ROWS * simulated_providers().count()) as u64;
    assert!(strings >= rows, "{printed}");

    // A place that cannot be searched is not clean.
    for (arguments, what) in [
        ("--wait 0 --no-memory --log missing.log", "log missing.log"),
        // No process has this id.
        ("--wait 0 --pid 4194304", "memory"),
    ] {
        let audit = audit(&workdir, &key, arguments).await;
        let printed = &audit.printed;
        assert_eq!((audit.code, audit.found()), (Some(1), vec![]), "{printed}");
        assert_eq!(printed["clean"], false);
        let mut gaps = printed["notSearched"].as_array().unwrap().iter();
        let gap = gaps.find(|gap| gap["what"] == what).unwrap();
        assert_eq!(gap["isChosen"], false);
        let message = text(&printed["error"], "message");
        assert_starts(message, &format!("{what} was not searched: "));
    }
    // The text for people says the same.
    fs::write(workdir.path().join("key.txt"), format!("{key}\n")).unwrap();
    let printed = workdir.text("audit --key-file key.txt --wait 0 --no-memory");
    for expected in [
        "table fingerprints",
        "Not searched: memory (--no-memory)",
        "log (no --log)",
        "Nothing was found.",
    ] {
        assert_has(&printed, expected);
    }

    let mut providers = simulated_providers();
    let [in_table, in_log, in_memory] = [(); 3].map(|()| piece(providers.next().unwrap()));
    let sql = format!("UPDATE api_keys SET name = '{in_table}'");
    execute(&database, &sql, "").await;
    let log = workdir.path().join("service.log");
    let mut log = fs::File::options().append(true).open(log).unwrap();
    writeln!(log, "read {in_log} with {key}").unwrap();
    let holder = holder(&in_memory);
    let process = holder.0.id();
    let everywhere = format!("--wait 0 --log service.log --pid {process}");
    let dirty = audit(&workdir, &key, &everywhere).await;
    assert_eq!(dirty.code, Some(1));
    assert_eq!(dirty.not_searched(), Vec::<String>::new());
    let found = dirty.found();
    let expect = |place: &str, kinds: &str| {
        let found = found.iter().find(|(name, _)| name.starts_with(place));
        let found = found.map(|(_, kinds)| kinds.join(" "));
        assert_eq!(found.as_deref(), Some(kinds), "{place}: {}", dirty.printed);
    };
    expect("table api_keys", "description");
    expect("log service.log", "description key");
    if database.starts_with("sqlite:") {
        expect("file ", "description");
    }
    if may_trace() {
        let stack = format!("memory of process {process}, [stack]");
        expect(&stack, "description");
    }
    let tables = found.iter().filter(|(name, _)| name.starts_with("table "));
    assert_eq!(tables.count(), 1, "{}", dirty.printed);

    // Settings of another database than the service's.
    let other = format!("sqlite:{}", workdir.path().join("other.db").display());
    workdir.set("BELLBIRD_DATABASE__URL", &other);
    workdir.json("migrate");
    let audit = audit(&workdir, &key, "--wait 0 --no-memory").await;
    assert_eq!(audit.code, Some(1));
    assert_has(&audit.not_searched()[0], "does not have this key");
    drop(service);
    let error = workdir.error("audit --key-file key.txt", 1);
    assert_has(&error, "does not respond: see BELLBIRD_URL");
}

#[test]
fn key_that_cannot_be_read_is_an_error() {
    let workdir = Workdir::migrated_with_key();
    fs::write(workdir.path().join("key.txt"), "SECRET-KEY").unwrap();
    let error = workdir.error("audit --key-file key.txt", 1);
    assert_has(&error, "key.txt has no valid API key");
    assert_lacks(&error, "SECRET-KEY");
    let error = workdir.error("audit --key-file missing.txt", 1);
    assert_has(&error, "cannot be read from missing.txt");
    assert_has(&workdir.error("audit", 2), "--key-file");
}

also_on_postgres! { planted_row_is_found_in_each_place }
