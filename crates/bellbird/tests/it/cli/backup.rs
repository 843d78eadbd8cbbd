//! Backup and restore as docs/backup.md describes them: the commands of the page, on both
//! databases.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::instances::migrated;
use crate::repository::root;
use crate::support::browser::client;
use crate::support::database::execute;
use crate::support::deployment;
use crate::support::fields::assert_fields;
use crate::support::harness::{Database, also_on_postgres, eventually};
use crate::support::process::{
    ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, errors, get, metrics, text,
};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

const KEYS: &str = "BELLBIRD_SECRETS__KEY";
const URL: &str = "BELLBIRD_DATABASE__URL";
const NEW_KEY: &str = "2027:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";

/// The commands of a block of docs/backup.md: the first block after these headings.
fn documented(headings: &[&str]) -> String {
    let page = page();
    let mut rest = page.as_str();
    for heading in headings {
        rest = rest
            .split_once(&format!("\n{heading}\n"))
            .unwrap_or_else(|| panic!("no {heading}"))
            .1;
    }
    blocks(rest).remove(0)
}

fn page() -> String {
    fs::read_to_string(root().join("docs/backup.md")).unwrap()
}

fn blocks(page: &str) -> Vec<String> {
    page.split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
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
        let deployment::Deployment {
            mut workdir,
            sandbox,
            database: url,
        } = deployment::Deployment::start_on(database, 50, &[]).await;
        let bin = Path::new(env!("CARGO_BIN_EXE_bellbird")).parent().unwrap();
        let mut path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        if database == Database::Postgres {
            let mut find = Command::new(root().join("scripts/test-postgres"));
            let programs = find.arg("find").output().unwrap().stdout;
            path = format!("{}:{path}", String::from_utf8(programs).unwrap().trim());
            let server: reqwest::Url = url.parse().unwrap();
            workdir.set("PGHOST", server.host_str().unwrap());
            workdir.set("PGPORT", &server.port().unwrap().to_string());
            workdir.set("PGUSER", server.username());
            workdir.set("PGDATABASE", server.path().trim_start_matches('/'));
        }
        workdir.set("PATH", &path);
        Self {
            workdir,
            sandbox,
            url,
            service: None,
        }
    }

    fn add_user(&self, email: &str) -> String {
        self.workdir
            .json(&format!("user add --email {email} --plan professional"));
        self.add_key(email, "first")
    }

    fn add_key(&self, email: &str, name: &str) -> String {
        let line = format!("key create --user {email} --name {name}");
        self.workdir.field(&line, "key")
    }

    /// Imports one of the sandbox's credentials. Returns the connection's id.
    fn import(&self, email: &str, index: usize) -> String {
        let credentials = &self.sandbox.json()["credentials"][index];
        self.workdir.import(email, credentials)
    }

    fn serve(&mut self) {
        let running = self.workdir.start("serve");
        let api = running.url("apiUrl");
        self.service = Some((running, api));
    }

    fn stop(&mut self) {
        let (running, _) = self.service.take().unwrap();
        running.end();
    }

    /// The status of a live read, which opens the credentials.
    async fn read_status(&self, key: &str, connection: &str) -> u16 {
        let (_, api) = self.service.as_ref().unwrap();
        let url = format!("{api}/v1/transactions?connectionId={connection}");
        get(&url, Some(key)).await.0
    }

    fn ops(&self) -> String {
        self.service.as_ref().unwrap().0.url("opsUrl")
    }

    /// Runs documented commands with the names of this deployment. Returns their standard output,
    /// and their standard error after it.
    fn shell(&self, commands: &str) -> String {
        let (server, _) = self.url.rsplit_once('/').unwrap();
        let commands = commands
            .replace(
                "postgres://user:password@host/bellbird_",
                &format!("{server}/bellbird_"),
            )
            .replace("postgres://user:password@host/bellbird", &self.url)
            .replace("bellbird_restored", &self.scratch_database("restored"))
            .replace("bellbird_drill", &self.scratch_database("drill"));
        let environment = self.workdir.command("");
        let variables = environment.get_envs();
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &commands])
            .current_dir(self.workdir.folder.path())
            .env_clear()
            .envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let output = bash.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{commands}\n{}", errors(&output));
        String::from_utf8(output.stdout.clone()).unwrap() + &errors(&output)
    }

    /// A name that no other test uses.
    fn scratch_database(&self, name: &str) -> String {
        format!(
            "{}_{name}",
            self.url.rsplit_once('/').unwrap().1.replace('.', "_")
        )
    }

    /// A SQLite database whose operator has not decided yet: the backup was copied to its place.
    fn copy_backup_in_place(&self) {
        let database = self.url.strip_prefix("sqlite:").unwrap();
        self.shell(&format!(
            "rm -f {database} {database}-wal {database}-shm; cp backup.db {database}"
        ));
    }
}

/// What may let somebody in, before the backup and after the restore.
struct Access {
    key: String,
    operator_key: String,
    link: String,
    sign_in: String,
    setup_token: String,
    connection: String,
}

impl Access {
    /// Everything that a backup has, and the endpoints.
    fn create(deployment: &mut Deployment) -> Self {
        let workdir = &mut deployment.workdir;
        workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
        workdir.set("BELLBIRD_ADMIN__LISTEN", "127.0.0.1:0");
        let key = deployment.add_user("anna@example.com");
        let workdir = &deployment.workdir;
        workdir.json("user set anna@example.com --operator");
        workdir.json("webhook add --user anna@example.com --url http://127.0.0.1:9999/anna");
        workdir.json("webhook add --all-users --url http://127.0.0.1:9999/all");
        Self {
            key,
            operator_key: workdir.field("operator-key create --name backend", "key"),
            link: workdir.field("connection link --user anna@example.com", "url"),
            sign_in: workdir.field("console login --user anna@example.com", "url"),
            setup_token: workdir.field("simplefin token --user anna@example.com", "token"),
            connection: deployment.import("anna@example.com", 0),
        }
    }

    /// The status of each: key, operator key, link, sign-in link, setup token.
    async fn statuses(&self, deployment: &Deployment) -> [u16; 5] {
        let (running, api) = deployment.service.as_ref().unwrap();
        let urls = running.json();
        let (console, admin) = (text(&urls, "consoleUrl"), text(&urls, "adminUrl"));
        let path = |url: &str| {
            let (rest, token) = url.rsplit_once('/').unwrap();
            format!("{console}/{}/{token}", rest.rsplit_once('/').unwrap().1)
        };
        let claim_url = STANDARD.decode(&self.setup_token).unwrap();
        let claim_url = String::from_utf8(claim_url).unwrap();
        let (_, claim) = claim_url.split_once("/simplefin/").unwrap();
        let claim = client().post(format!("{api}/simplefin/{claim}"));
        let users = format!("{admin}/admin/v1/users");
        [
            deployment.read_status(&self.key, &self.connection).await,
            get(&users, Some(&self.operator_key)).await.0,
            status_of(&path(&self.link)).await,
            status_of(&path(&self.sign_in)).await,
            claim.send().await.unwrap().status().as_u16(),
        ]
    }
}

/// What is in the folder, sorted.
fn names_in(workdir: &Workdir) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(workdir.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn status_of(url: &str) -> u16 {
    reqwest::get(url).await.unwrap().status().as_u16()
}

/// The blocks of restoring PostgreSQL.
fn documented_restore() -> Vec<String> {
    let page = page();
    let (_, section) = page.split_once("\n## PostgreSQL\n").unwrap();
    let (_, restore) = section.split_once("\n### Restore\n").unwrap();
    blocks(restore.split("\n## ").next().unwrap())
}

/// Restores as the page says, while the master key is the new one. `keep_access` is what follows
/// each command.
fn restore(deployment: &mut Deployment, database: Database, keep_access: &str) -> String {
    let both_keys = format!("{NEW_KEY},{MASTER_KEY}");
    // First without the key of the backup.
    let printed = if database == Database::Sqlite {
        deployment.workdir.set(KEYS, "");
        let error = deployment.workdir.error("restore backup.db --yes", 1);
        assert_has(&error, "secrets.key is not set: `main`");
        assert_has(&error, "Set secrets.key_file");
        deployment.workdir.set(KEYS, NEW_KEY);
        let error = deployment.workdir.error("restore backup.db --yes", 1);
        assert_has(
            &error,
            "nothing was restored: backup.db needs a master key that is not in secrets.key: `main`",
        );
        deployment.workdir.set(KEYS, &both_keys);
        let command = documented(&["## SQLite", "### Restore"]);
        let printed = deployment.shell(&format!("{} --yes {keep_access}", command.trim_end()));
        assert_starts(&printed, "Restored backup.db to /");
        assert_has(&printed, ".db. The replaced database is /");
        printed
    } else {
        deployment.workdir.set(KEYS, NEW_KEY);
        let blocks = documented_restore();
        deployment.shell(&blocks[0]);
        let restored = format!("{}_restored", deployment.url);
        deployment.workdir.set(URL, &restored);
        let serve = format!("serve --json {ANY_PORTS}");
        let error = deployment.workdir.error(&serve, 1);
        assert_has(&error, "the database was restored from a backup");
        let printed = deployment.shell(&format!("{} {keep_access}", blocks[1].trim_end()));
        deployment.workdir.set(KEYS, &both_keys);
        printed
    };
    deployment.serve();
    printed
}

fn end(deployment: &mut Deployment, database: Database) {
    deployment.stop();
    if database == Database::Postgres {
        deployment.shell("dropdb bellbird_restored");
    }
}

/// Backs up, changes the master key, and restores twice.
#[tokio::test]
async fn restore_cuts_access_unless_the_operator_keeps_it() {
    let database = Database::of_test();
    let mut deployment = Deployment::start(database).await;
    let access = Access::create(&mut deployment);
    let section = if database == Database::Sqlite {
        "## SQLite"
    } else {
        "## PostgreSQL"
    };
    let printed = deployment.shell(&documented(&[section, "### Back up"]));
    if database == Database::Sqlite {
        assert_starts(&printed, "backup.db\nBacked up 1 user and 1 connection (");
        assert_has(&printed, "A restore needs the master key: `main` (");
        let backup = deployment.workdir.folder.path().join("backup.db");
        assert_eq!(mode_of(&backup), 0o600);
    }
    let both_keys = format!("{NEW_KEY},{MASTER_KEY}");
    deployment.workdir.set(KEYS, &both_keys);
    assert!(deployment.workdir.run("secrets rotate").status.success());

    let printed = restore(&mut deployment, database, "--keep-access");
    assert!(
        printed.ends_with("All access of the backup was kept. Start the service now.\n"),
        "{printed}"
    );
    assert_eq!(access.statuses(&deployment).await, [200; 5]);
    end(&mut deployment, database);

    let printed = restore(&mut deployment, database, "");
    for part in [
        "Nothing of the backup lets anybody in",
        "1 API key revoked",
        "`bellbird key create --user USER --name NAME`",
        "1 operator key revoked",
        "1 user no longer an operator",
        "2 links deleted",
        "1 setup token deleted",
        "2 endpoints paused",
        "1 user restored",
        "1 connection restored",
    ] {
        assert_has(&printed, part);
    }
    let statuses = access.statuses(&deployment).await;
    assert_eq!(statuses, [401, 401, 404, 410, 403]);
    let endpoints = deployment.workdir.json("webhook list");
    let paused = json!({"status": "disabled", "disabledReason": "database restored"});
    for endpoint in endpoints.as_array().unwrap() {
        assert_fields(endpoint, &paused);
        let enable = format!("webhook enable {}", text(endpoint, "id"));
        deployment.workdir.run(&enable);
    }
    let user = &deployment.workdir.json("user list")[0];
    assert_eq!(user["isOperator"], false);
    // The operator goes on as the list says.
    let key = deployment.add_key("anna@example.com", "new");
    assert_eq!(deployment.read_status(&key, &access.connection).await, 200);
    let audit = deployment.workdir.json("operator-key audit");
    let rows = audit.as_array().unwrap().iter().take(4);
    let actions: Vec<&str> = rows.map(|row| text(row, "action")).collect();
    let expected = [
        "key.create",
        "webhook_endpoint.enable",
        "webhook_endpoint.enable",
        "database.cut_access",
    ];
    assert_eq!(actions, expected);
    end(&mut deployment, database);
}

#[tokio::test]
async fn documented_drill_works() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    deployment.add_user("anna@example.com");
    deployment.import("anna@example.com", 0);
    let folder = deployment.workdir.folder.path();
    fs::create_dir(folder.join("safe")).unwrap();
    fs::write(folder.join("safe/master-key"), MASTER_KEY).unwrap();
    deployment.workdir.json("backup --keep 14 backups");
    deployment.workdir.set(KEYS, "");
    let commands = documented(&["## The drill"]);
    // What it makes and deletes would count as the last backup.
    assert_lacks(&commands, "bellbird backup");
    let commands = commands.replace("/var/backups/bellbird", "backups");
    // The service's own key is in a file too, which the drill does not read.
    let printed = deployment.shell(&format!("unset {KEYS}\n{commands}"));
    assert_has(&printed, "Restored backups/bellbird-");
    assert_has(&printed, "1 API key revoked");
    assert_has(&printed, "anna@example.com");
    let is_of_secrets = |line: &&str| line.split_whitespace().next() == Some("secrets");
    assert_has(printed.lines().find(is_of_secrets).unwrap(), " ok ");
    assert!(!deployment.workdir.folder.path().join("drill").exists());
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn documented_drill_works() {
        let deployment = Deployment::start(Database::Postgres).await;
        deployment.add_user("anna@example.com");
        deployment.import("anna@example.com", 0);
        let printed = deployment.shell(&documented(&["## The drill\n", "On PostgreSQL:"]));
        assert_has(&printed, "anna@example.com");
        assert_has(&printed, "restored from a backup");
        // Commands with the same names as on SQLite.
        let error = deployment.workdir.error("backup backup.dump", 1);
        let name = deployment.url.rsplit_once('/').unwrap().1;
        assert_has(
            &error,
            "(umask 077 && pg_dump --format=custom --file=backup.dump --host=127.0.0.1 --port=",
        );
        assert_has(&error, name);
        assert_has(&error, "A restore needs the master key: `main` (");
        let error = deployment.workdir.error("restore backup.dump", 1);
        assert_has(&error, "pg_restore");
        assert_has(&error, "bellbird restore --decide");
    }
}

/// A file in the place of the database is noticed, and the command decides.
#[tokio::test]
async fn restored_database_awaits_a_decision() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    let key = deployment.add_user("anna@example.com");
    let connection = deployment.import("anna@example.com", 0);
    let error = deployment
        .workdir
        .error("restore --decide --keep-access", 1);
    assert_has(&error, "is not known to be restored from a backup");
    deployment.workdir.json("backup backup.db");

    deployment.copy_backup_in_place();
    let serve = format!("serve --json {ANY_PORTS}");
    for line in [serve.as_str(), "connection sync --all", "secrets rotate"] {
        let error = deployment.workdir.error(line, 1);
        for part in [
            "the database was restored from a backup",
            "`bellbird restore --decide`",
            "restore --decide --keep-access`",
        ] {
            assert_has(&error, part);
        }
    }
    deployment.workdir.json("user list");
    assert_starts(&deployment.workdir.doctor("restore")[0], "wrong ");
    let doctor = format!("doctor --json {ANY_PORTS}");
    let status = deployment.workdir.run(&doctor).status;
    assert_eq!(status.code(), Some(1));

    let decided = deployment.workdir.json("restore --decide --keep-access");
    assert_eq!(decided, json!({"accessKept": true}));
    deployment.serve();
    assert_eq!(deployment.read_status(&key, &connection).await, 200);
    // A database that is replaced under a running service.
    let ready = format!("{}/ready", deployment.ops());
    // It asks its database for two seconds, in which a busy machine may not get to it.
    eventually(async || get(&ready, None).await.0 == 200).await;
    let replace = "UPDATE database_origin SET origin = 'copy'";
    execute(&deployment.url, replace, "").await;
    // It is not ready. With the next renewal of its row, it ends by itself.
    if let Ok(answer) = reqwest::get(&ready).await {
        assert_eq!(answer.status(), 503);
        let body = answer.text().await.unwrap();
        let reasons = ["restored from a backup", "did not respond in time"];
        assert!(reasons.iter().any(|reason| body.contains(reason)), "{body}");
    }
    let (running, _) = deployment.service.take().unwrap();
    // No signal, and waits for the end.
    let (code, _, log) = running.stop("-0");
    assert!(code.is_some(), "{log}");
    assert_has(&log, "database was restored from a backup, stopping");

    deployment.copy_backup_in_place();
    let cut = deployment.workdir.json("restore --decide");
    assert_eq!(cut["accessKept"], false);
    assert_eq!(cut["cut"]["keysRevoked"], 1);
    deployment.serve();
    assert_eq!(deployment.read_status(&key, &connection).await, 401);
    deployment.stop();

    // A physical copy is not noticed.
    let cut = deployment.workdir.json("restore --decide --yes");
    assert_eq!(cut["cut"]["keysRevoked"], 0);
}

/// Each change by a command is in the operators' audit, with the Unix user.
#[tokio::test]
async fn commands_are_in_the_audit() {
    let mut deployment = Deployment::start(Database::Sqlite).await;
    let access = Access::create(&mut deployment);
    let workdir = &deployment.workdir;
    let (first, endpoint) = (workdir.json("key list"), workdir.json("webhook list"));
    let (first, endpoint) = (text(&first[0], "id"), text(&endpoint[0], "id"));
    let rotated = workdir.run("key rotate first --json").stdout;
    let rotated: Value = serde_json::from_slice(&rotated).unwrap();
    assert_eq!(text(&rotated, "oldKeyId"), first);
    assert!(rotated["oldKeyExpiresAt"].is_string());
    // The former key works still, but the name is that of the new one.
    let message = errors(&workdir.run("key rotate first"));
    assert_has(&message, "works until ");
    let revoke = format!("`bellbird key revoke {}`", text(&rotated, "id"));
    assert_has(&message, &revoke);
    // Two of three are being replaced.
    workdir.json(&format!("key revoke {first}"));
    let revoked = workdir.field("key revoke first", "id");
    assert_eq!(revoked, text(&rotated, "id"));
    let operator_keys = workdir.json("operator-key list");
    for line in [
        "webhook set ENDPOINT --events trades.synced",
        "webhook disable ENDPOINT",
        "webhook enable ENDPOINT",
        "webhook rotate-secret ENDPOINT",
        "webhook remove ENDPOINT",
        "console forget-identity --user anna@example.com",
        "simplefin revoke --user anna@example.com",
        "operator-key revoke KEY",
        "user set anna@example.com --no-operator",
        // This one is no operator any more.
        "user set anna@example.com --no-operator",
        "user set anna@example.com --plan developer",
        "secrets rotate",
        "connection sync CONNECTION",
        "connection remove CONNECTION",
        "user remove anna@example.com",
        "backup backup.db",
    ] {
        let line = line
            .replace("ENDPOINT", endpoint)
            .replace("KEY", text(&operator_keys[0], "id"))
            .replace("CONNECTION", &access.connection);
        workdir.json(&line);
    }
    let audit = workdir.json("operator-key audit");
    let rows = audit.as_array().unwrap();
    let actions: Vec<_> = rows.iter().rev().map(|row| text(row, "action")).collect();
    assert_eq!(
        actions,
        [
            "user.create",
            "key.create",
            "operator.add",
            "webhook_endpoint.create",
            "webhook_endpoint.create",
            "operator_key.create",
            "link.create",
            "sign_in_link.create",
            "setup_token.create",
            "connection.import",
            "key.rotate",
            "key.rotate",
            "key.revoke",
            "key.revoke",
            "webhook_endpoint.update",
            "webhook_endpoint.disable",
            "webhook_endpoint.enable",
            "webhook_endpoint.rotate_secret",
            "webhook_endpoint.remove",
            "identity.forget",
            "setup_token.revoke",
            "operator_key.revoke",
            "operator.remove",
            "user.update",
            "user.update",
            "secrets.rotate",
            "connection.sync",
            "connection.remove",
            "user.remove",
            "database.backup",
        ]
    );
    let me = Command::new("id").arg("-un").output().unwrap().stdout;
    let me = String::from_utf8(me).unwrap();
    let actor = json!({"kind": "command", "id": me.trim()});
    for row in rows {
        assert_eq!(row["actor"], actor, "{row}");
    }
}

#[tokio::test]
async fn newest_backups_of_a_folder_are_kept() {
    let (workdir, _) = migrated(Database::Sqlite).await;
    workdir.json("user add --email anna@example.com");
    let folder = workdir.path().join("backups");
    fs::create_dir(&folder).unwrap();
    let old = [
        "bellbird-20260101T000000.000Z.db",
        "bellbird-20260102T000000.000Z.db",
        "bellbird-20260103T000000.000Z.db",
    ];
    let others = [
        "bellbird-2026-01-01.db",
        "bellbird-20260101T000000.000Z.db.old",
        "notes.txt",
    ];
    for name in old.iter().chain(&others) {
        fs::write(folder.join(name), "").unwrap();
    }
    let printed = workdir.json("backup --keep 2 backups");
    assert_eq!(printed["deleted"], json!(old[..2]));
    let mut left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.retain(|name| !others.contains(&name.as_str()));
    left.sort();
    assert_eq!((left.len(), left[0].as_str()), (2, old[2]));
    assert!(text(&printed, "file").ends_with(&left[1]), "{printed}");
    // At once, and not only in the next second.
    let again = workdir.json("backup --keep 2 backups");
    assert_eq!(again["deleted"], json!([old[2]]));
    // The clock was ahead when these were made.
    let ahead = [
        "bellbird-29990101T000000.000Z.db",
        "bellbird-29990102T000000.000Z.db",
    ];
    for name in ahead {
        fs::write(folder.join(name), "").unwrap();
    }
    let printed = workdir.json("backup --keep 4 backups");
    assert_eq!(printed["deleted"], json!(ahead[..1]));
    let newest = workdir.json("backup --keep 1 backups");
    assert_eq!(newest["deleted"][0], ahead[1]);
    assert!(workdir.path().join(text(&newest, "file")).exists());
    let file = workdir.field("backup --keep 1 new/folder", "file");
    let file = workdir.path().join(file);
    assert_eq!(mode_of(file.parent().unwrap()), 0o700);
    assert_backup_is_new(&workdir).await;
}

/// A database whose last backup, or whose creation, is a day ago, and a service that makes backups.
async fn with_due_backup() -> Workdir {
    let (mut workdir, url) = migrated(Database::Sqlite).await;
    let age = "UPDATE schema_migrations SET applied_at = applied_at - 86400000000";
    execute(&url, age, "").await;
    workdir.set("BELLBIRD_BACKUP__FOLDER", "backups");
    workdir.set("BELLBIRD_BACKUP__KEEP", "2");
    workdir
}

#[tokio::test]
async fn service_makes_the_backup_of_the_day() {
    let workdir = with_due_backup().await;
    let folder = workdir.path().join("backups");
    fs::create_dir(&folder).unwrap();
    let old = [
        "bellbird-20260101T000000.000Z.db",
        "bellbird-20260102T000000.000Z.db",
    ];
    for name in old {
        fs::write(folder.join(name), "").unwrap();
    }
    let service = workdir.start("serve");
    eventually(async || !folder.join(old[0]).exists()).await;
    let log = service.end();
    assert_has(&log, "database backed up");
    assert_lacks(&log, "could not back up");
    let names = || {
        let entries = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let made = names();
    assert_eq!((made.len(), made[0].to_str()), (2, Some(old[1])));
    assert_eq!(mode_of(&folder.join(&made[1])), 0o600);
    let audit = workdir.json("operator-key audit");
    let expected =
        json!({"action": "database.backup", "actor": {"kind": "command", "id": "settings"}});
    assert_fields(&audit[0], &expected);
    // It is no longer due.
    workdir.start("serve").end();
    assert_eq!(names(), made);
}

#[tokio::test]
async fn backup_that_fails_is_warned_of_and_holds_nothing_up() {
    let workdir = with_due_backup().await;
    fs::write(workdir.path().join("backups"), "no folder").unwrap();
    let log = workdir.path().join("log");
    let line = format!("serve --json {ANY_PORTS}");
    let service = RunningCommand::start_with_log(&workdir, &line, &log);
    let warned = "could not back up the database";
    eventually(async || fs::read_to_string(&log).unwrap().contains(warned)).await;
    eventually(async || service.get("opsUrl", "/ready").await.0 == 200).await;
    let (code, _, _) = service.stop("-TERM");
    assert_eq!(code, Some(0));
    let log = fs::read_to_string(&log).unwrap();
    assert_has(&log, "could not make the folder backups: ");
    assert_eq!(log.matches(warned).count(), 1, "{log}");
}

/// Asserts that a service says in its metrics how old the newest backup is: less than an hour.
async fn assert_backup_is_new(workdir: &Workdir) {
    let service = workdir.start("serve");
    let age = loop {
        let metrics = metrics(&service.url("opsUrl")).await;
        let name = "bellbird_backup_age_seconds ";
        if let Some(age) = metrics.lines().find_map(|line| line.strip_prefix(name)) {
            break age.parse::<u64>().unwrap();
        }
    };
    assert!(age < 3_600, "{age}");
    service.end();
}

#[tokio::test]
async fn backup_made_elsewhere_is_recorded() {
    let (workdir, _) = migrated(Database::of_test()).await;
    let printed = workdir.said("backup --made-elsewhere");
    assert_eq!(printed, "Recorded a backup that was made elsewhere.\n");
    assert_backup_is_new(&workdir).await;
}

#[tokio::test]
async fn restore_fails_without_a_change() {
    let (workdir, url) = migrated(Database::Sqlite).await;
    workdir.json("user add --email anna@example.com");
    workdir.json("backup backup.db");
    fs::write(workdir.folder.path().join("text.db"), "no database").unwrap();
    let backup = fs::read(workdir.folder.path().join("backup.db")).unwrap();
    let half = &backup[..backup.len() / 2];
    fs::write(workdir.folder.path().join("half.db"), half).unwrap();
    for (line, reason) in [
        (
            "backup backup.db",
            "backup.db exists already, and nothing is overwritten",
        ),
        ("restore text.db --yes", "text.db: not a SQLite database"),
        (
            "restore half.db --yes",
            "half.db is damaged: restore another",
        ),
        ("restore none.db", "restored: there is no file none.db"),
        ("restore own.db --yes", "the database itself"),
    ] {
        assert_has(&workdir.error(line, 1), reason);
    }
    assert_eq!(
        names_in(&workdir),
        ["backup.db", "half.db", "own.db", "own.db-open", "text.db"]
    );
    let lock = bellbird_storage::ServiceLock::acquire(&url).unwrap();
    let error = workdir.error("restore backup.db", 1);
    assert_has(&error, "a Bellbird service runs on");
    assert_has(&error, "own.db: stop it first");
    drop(lock);
    for line in [
        "restore",
        "restore backup.db --decide",
        "restore --keep-access",
        "backup",
        "backup other.db --made-elsewhere",
    ] {
        let error = workdir.error(line, 2);
        assert_has(&error, "Usage: bellbird ");
    }
    // Nobody can be asked, which is said before the file is read.
    for line in ["restore backup.db", "restore text.db"] {
        assert_has(&workdir.error(line, 2), "pass --yes to replace it");
    }
    assert_eq!(
        names_in(&workdir),
        [
            "backup.db",
            "half.db",
            "own.db",
            "own.db-lock",
            "own.db-open",
            "text.db"
        ]
    );
    // A database that cannot be read is replaced as well.
    fs::write(workdir.folder.path().join("own.db"), "damaged").unwrap();
    let printed = workdir.json("restore backup.db");
    assert_eq!(fs::read(text(&printed, "replaced")).unwrap(), b"damaged");
    assert_eq!(workdir.json("user list").as_array().unwrap().len(), 1);
}

also_on_postgres! {
    restore_cuts_access_unless_the_operator_keeps_it backup_made_elsewhere_is_recorded
}
