//! Backup and restore as docs/backup.md describes them: the commands of the page, on both databases.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::database::execute;
use crate::support::harness::{Database, on_both_databases};
use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, errors, get, new_deployment, text};

const KEYS: &str = "BELLBIRD_SECRETS__KEY";
const URL: &str = "BELLBIRD_DATABASE__URL";
const NEW_KEY: &str = "2027:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";

/// The commands of a block of docs/backup.md: the first block after these headings.
fn documented(headings: &[&str]) -> String {
    let page = page();
    let mut rest = page.as_str();
    for heading in headings {
        rest = rest.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading}")).1;
    }
    blocks(rest).remove(0)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> String {
    fs::read_to_string(root().join("docs/backup.md")).unwrap()
}

fn blocks(page: &str) -> Vec<String> {
    page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Two users with keys and connections, and the service.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    url: String,
    service: Option<(RunningCommand, String)>,
}

impl Deployment {
    async fn start(database: Database) -> Self {
        let (mut workdir, sandbox, url) = new_deployment(database).await;
        let bin = Path::new(env!("CARGO_BIN_EXE_bellbird")).parent().unwrap().display().to_string();
        let mut path = format!("{bin}:{}", std::env::var("PATH").unwrap());
        if database == Database::Postgres {
            let programs = Command::new(root().join("scripts/test-postgres")).arg("find").output().unwrap().stdout;
            path = format!("{}:{path}", String::from_utf8(programs).unwrap().trim());
            let server: reqwest::Url = url.parse().unwrap();
            workdir.set("PGHOST", server.host_str().unwrap());
            workdir.set("PGPORT", &server.port().unwrap().to_string());
            workdir.set("PGUSER", server.username());
            workdir.set("PGDATABASE", server.path().trim_start_matches('/'));
        }
        workdir.set("PATH", &path);
        Self { workdir, sandbox, url, service: None }
    }

    fn add_user(&self, email: &str) -> String {
        self.workdir.json(&format!("user add --email {email} --plan professional"));
        self.add_key(email, "first")["key"].as_str().unwrap().to_owned()
    }

    fn add_key(&self, email: &str, name: &str) -> Value {
        self.workdir.json(&format!("key create --user {email} --name {name}"))
    }

    /// Imports one of the sandbox's credentials. Returns the connection's id.
    fn import(&self, email: &str, index: usize) -> String {
        let credentials = self.sandbox.json()["credentials"][index].to_string();
        let line = format!("connection import --user {email} --credentials - --json");
        let output = self.workdir.run_with_input(&line, &credentials);
        assert_eq!(errors(&output), "");
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        text(&imported[0], "id").to_owned()
    }

    fn serve(&mut self) {
        let running = RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"));
        let api = text(&running.json(), "apiUrl").to_owned();
        self.service = Some((running, api));
    }

    fn stop(&mut self) {
        let (running, _) = self.service.take().unwrap();
        assert_eq!(running.stop("-TERM").0, Some(0));
    }

    /// The status of a live read, which opens the credentials.
    async fn read_status(&self, key: &str, connection: &str) -> u16 {
        let (_, api) = self.service.as_ref().unwrap();
        get(&format!("{api}/v1/transactions?connectionId={connection}"), Some(key)).await.0
    }

    /// Runs documented commands with the names of this deployment. Returns their standard output.
    fn shell(&self, commands: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').unwrap();
        let commands = commands
            .replace("postgres://user:password@host/bellbird_", &format!("{server}/bellbird_"))
            .replace("postgres://user:password@host/bellbird", &self.url)
            .replace("bellbird_restored", &self.scratch_database("restored"))
            .replace("bellbird_drill", &self.scratch_database("drill"));
        let environment = self.workdir.command("");
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &commands]).current_dir(self.workdir.folder.path()).env_clear();
        bash.envs(environment.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = bash.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{commands}\n{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A name that no other test uses.
    fn scratch_database(&self, name: &str) -> String {
        format!("{}_{name}", self.url.rsplit_once('/').unwrap().1.replace('.', "_"))
    }

    /// A SQLite database whose operator has not decided yet: the backup was copied to its place.
    fn copy_backup_in_place(&self) {
        let database = self.url.strip_prefix("sqlite:").unwrap();
        self.shell(&format!("rm -f {database} {database}-wal {database}-shm; cp backup.db {database}"));
    }
}

/// What a restore must keep as it is now, with the same assertions on both databases.
async fn drill(database: Database) {
    let mut deployment = Deployment::start(database).await;
    let (anna, ben) = (deployment.add_user("anna@example.com"), deployment.add_user("ben@example.com"));
    let revoked = deployment.add_key("anna@example.com", "revoked");
    let (kept, removed) = (deployment.import("anna@example.com", 0), deployment.import("anna@example.com", 1));
    let bens = deployment.import("ben@example.com", 2);
    deployment.serve();
    let section = if database == Database::Sqlite { "## SQLite" } else { "## PostgreSQL" };
    let printed = deployment.shell(&documented(&[section, "### Back up"]));
    if database == Database::Sqlite {
        assert!(printed.starts_with("Backed up 2 users and 3 connections to backup.db ("), "{printed}");
        assert!(printed.contains("A restore needs the master key: `main` ("), "{printed}");
        let backup = deployment.workdir.folder.path().join("backup.db");
        assert_eq!(fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Since the backup, all of this happens.
    deployment.stop();
    deployment.workdir.set(KEYS, &format!("{NEW_KEY},{MASTER_KEY}"));
    assert!(deployment.workdir.run("secrets rotate").status.success());
    deployment.workdir.set(KEYS, NEW_KEY);
    deployment.serve();
    deployment.workdir.json(&format!("key revoke {}", text(&revoked, "id")));
    deployment.workdir.json(&format!("connection remove {removed}"));
    deployment.add_key("ben@example.com", "lost");
    let revoked = text(&revoked, "key").to_owned();
    assert_eq!(deployment.read_status(&anna, &kept).await, 200);
    deployment.stop();

    // The restore, first without the key of the backup.
    let done = "Done again, as since the backup: 1 API key revoked, 1 connection removed.\n\
        Newer than the backup, so lost here: 1 API key.\nStart the service now.\n";
    if database == Database::Sqlite {
        let error = deployment.workdir.error("restore backup.db", 1);
        assert!(
            error.contains("nothing was restored: backup.db needs a master key that is not in secrets.key: `main`")
        );
        deployment.workdir.set(KEYS, &format!("{NEW_KEY},{MASTER_KEY}"));
        let printed = deployment.shell(&documented(&[section, "### Restore"]));
        assert!(printed.starts_with("Restored backup.db. The replaced database is /"), "{printed}");
        assert!(printed.ends_with(done), "{printed}");
    } else {
        let blocks = documented_restore();
        deployment.shell(&blocks[0]);
        let restored = format!("{}_restored", deployment.url);
        deployment.workdir.set(URL, &restored);
        let error = deployment.workdir.error(&format!("serve --json {ANY_PORTS}"), 1);
        assert!(error.contains("the database was restored from a backup"), "{error}");
        let printed = deployment.shell(&blocks[1]);
        assert!(printed.ends_with(done), "{printed}");
        deployment.workdir.set(KEYS, &format!("{NEW_KEY},{MASTER_KEY}"));
    }

    deployment.serve();
    assert_eq!(deployment.read_status(&revoked, &kept).await, 401, "revoked since the backup");
    assert_eq!(deployment.read_status(&anna, &removed).await, 404, "removed since the backup");
    assert_eq!(deployment.read_status(&anna, &kept).await, 200);
    assert_eq!(deployment.read_status(&ben, &bens).await, 200);
    deployment.stop();
    if database == Database::Postgres {
        deployment.shell("dropdb bellbird_restored");
    }
}

/// The blocks of restoring PostgreSQL.
fn documented_restore() -> Vec<String> {
    let page = page();
    let section = page.split_once("\n## PostgreSQL\n").unwrap().1.split_once("\n### Restore\n").unwrap().1;
    blocks(section.split("\n## ").next().unwrap())
}

on_both_databases! {
    async fn restore_revives_nothing(database: Database) {
        drill(database).await;
    }
}

#[tokio::test]
async fn documented_drill_works() {
    let deployment = Deployment::start(Database::Sqlite).await;
    deployment.add_user("anna@example.com");
    deployment.import("anna@example.com", 0);
    let printed = deployment.shell(&documented(&["## The drill"]));
    assert!(printed.contains("The service does not start yet: there was no database before"), "{printed}");
    assert!(printed.contains("anna@example.com") && !deployment.workdir.folder.path().join("drill").exists());
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn documented_drill_works() {
        let deployment = Deployment::start(Database::Postgres).await;
        deployment.add_user("anna@example.com");
        deployment.import("anna@example.com", 0);
        let printed = deployment.shell(&documented(&["## The drill\n", "On PostgreSQL:"]));
        assert!(printed.contains("anna@example.com") && printed.contains("restored from a backup"), "{printed}");
        // Commands with the same names as on SQLite.
        let error = deployment.workdir.error("backup backup.dump", 1);
        let name = deployment.url.rsplit_once('/').unwrap().1;
        assert!(error.contains("(umask 077 && pg_dump --format=custom --file=backup.dump --host=127.0.0.1 --port="));
        assert!(error.contains(name) && error.contains("A restore needs the master key: `main` ("), "{error}");
        let error = deployment.workdir.error("restore backup.dump", 1);
        assert!(error.contains("pg_restore") && error.contains("bellbird restore --previous FILE"), "{error}");
    }
}

/// A file in the place of the database is noticed, and each command decides.
#[tokio::test]
async fn restored_database_awaits_a_decision() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    let key = deployment.add_user("anna@example.com");
    let connection = deployment.import("anna@example.com", 0);
    deployment.workdir.json("backup backup.db");
    deployment.shell("cp deployment.db previous.db; rm -f deployment.db-wal deployment.db-shm");

    deployment.copy_backup_in_place();
    let serve = format!("serve --json {ANY_PORTS}");
    for line in [serve.as_str(), "connection sync --all", "secrets rotate"] {
        let error = deployment.workdir.error(line, 1);
        for part in
            ["the database was restored from a backup", "restore --previous FILE", "--revoke-keys", "--keep-keys"]
        {
            assert!(error.contains(part), "{line}: {error}");
        }
    }
    deployment.workdir.json("user list");
    let doctor = deployment.workdir.run(&format!("doctor --json {ANY_PORTS}"));
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "restore").unwrap();
    assert_eq!((&check["verdict"], doctor.status.code()), (&json!("wrong"), Some(1)));

    assert_eq!(deployment.workdir.json("restore --keep-keys"), json!({"keysRevoked": 0, "operatorKeysRevoked": 0}));
    deployment.serve();
    assert_eq!(deployment.read_status(&key, &connection).await, 200);
    // A database that is replaced under a running service.
    let ops = text(&deployment.service.as_ref().unwrap().0.json(), "opsUrl").to_owned();
    assert_eq!(get(&format!("{ops}/ready"), None).await.0, 200);
    execute(&deployment.url, "UPDATE database_origin SET origin = 'copy'", "").await;
    let (status, body) = get(&format!("{ops}/ready"), None).await;
    assert_eq!(status, 503);
    assert!(text(&body, "database").contains("restored from a backup"), "{body}");
    deployment.stop();

    deployment.copy_backup_in_place();
    assert_eq!(deployment.workdir.json("restore --revoke-keys"), json!({"keysRevoked": 1, "operatorKeysRevoked": 0}));
    deployment.serve();
    assert_eq!(deployment.read_status(&key, &connection).await, 401);
    deployment.stop();

    deployment.copy_backup_in_place();
    let previous = |url: &str| deployment.workdir.run_with_input("restore --previous - --json", url);
    for (url, message) in [
        ("sqlite:missing.db", "missing.db: correct the URL in standard input"),
        ("nonsense", "the database URL must be sqlite:PATH"),
        ("sqlite:backup.db", "without a decision since"),
    ] {
        let output = previous(url);
        assert_eq!(output.status.code(), Some(1));
        assert!(errors(&output).contains(message), "{}", errors(&output));
    }
    deployment.workdir.error(&serve, 1);
    let output = previous("sqlite:previous.db\n");
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&printed["decisionNeeded"], &printed["carriedOver"]["keysRevoked"]), (&json!(false), &json!(0)));
    deployment.serve();
    assert_eq!(deployment.read_status(&key, &connection).await, 200);
    deployment.stop();
    assert!(deployment.workdir.text("restore --keep-keys").starts_with("Nothing to decide"));
    let output = deployment.workdir.run_with_input("restore --previous -", "sqlite:previous.db");
    assert!(errors(&output).contains("is not known to be restored from a backup"), "{}", errors(&output));
    let output = deployment.workdir.run_with_input("restore --previous - --yes", "sqlite:previous.db");
    assert!(output.status.success(), "{}", errors(&output));
}

#[tokio::test]
async fn restore_fails_without_a_change() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    deployment.add_user("anna@example.com");
    let workdir = &mut deployment.workdir;
    workdir.json("backup backup.db");
    fs::write(workdir.folder.path().join("text.db"), "no database").unwrap();
    assert!(workdir.error("backup backup.db", 1).contains("backup.db exists already, and nothing is overwritten"));
    assert!(workdir.error("restore text.db", 1).contains("text.db: not a SQLite database"));
    assert!(workdir.error("restore deployment.db", 1).contains("the database itself"));
    let lock = bellbird_storage::ServiceLock::acquire(&deployment.url).unwrap();
    let error = workdir.error("restore backup.db", 1);
    assert!(error.contains("a Bellbird service runs on") && error.contains("deployment.db: stop it first"), "{error}");
    drop(lock);
    for line in ["restore", "restore backup.db --keep-keys", "restore --keep-keys --revoke-keys", "backup"] {
        let error = workdir.error(line, 2);
        assert!(error.contains("Usage: bellbird "), "{error}");
    }
    let mut names: Vec<_> =
        fs::read_dir(workdir.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["backup.db", "deployment.db", "deployment.db-lock", "deployment.db-open", "text.db"]);
    // A database that cannot be read is replaced, and the operator decides.
    fs::write(workdir.folder.path().join("deployment.db"), "damaged").unwrap();
    let printed = workdir.json("restore backup.db");
    assert_eq!(printed["decisionNeeded"], true);
    assert!(text(&printed, "reason").contains("the replaced database could not be compared"), "{printed}");
    assert_eq!(fs::read(text(&printed, "replaced")).unwrap(), b"damaged");
}
