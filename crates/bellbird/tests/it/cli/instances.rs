//! Running instances: how commands see them, and that SQLite serves one.

use std::path::Path;

use bellbird::instances::{COMMIT, VERSION};
use serde_json::{Value, json};

use crate::support::database::{execute, query};
use crate::support::deployment::Deployment;
use crate::support::fields::assert_fields;
use crate::support::harness::{Database, also_on_postgres, eventually, postgres_database};
use crate::support::process::{
    ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, errors, send_signal, text,
};
use crate::support::receiver::Receiver;
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// A folder with settings for a migrated database, and the URL of the database.
pub(super) async fn migrated(database: Database) -> (Workdir, String) {
    let mut workdir = Workdir::with_key();
    let url = match database {
        Database::Sqlite => format!("sqlite:{}", workdir.folder.path().join("own.db").display()),
        Database::Postgres => postgres_database().await,
    };
    workdir.set("BELLBIRD_DATABASE__URL", &url);
    workdir.json("migrate");
    (workdir, url)
}

fn newest_migration() -> String {
    let folder = std::fs::read_dir(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../storage/migrations"
    ))
    .unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let migrations = names.filter_map(|name| name.strip_suffix(".sql").map(str::to_owned));
    migrations.max().expect("a migration")
}

fn api(running: &RunningCommand) -> String {
    running.url("apiUrl")
}

/// The URLs of the APIs that `status` shows as running.
fn running(workdir: &Workdir) -> Vec<String> {
    let status = workdir.json("status");
    let instances = status["instances"].as_array().unwrap().iter();
    instances
        .map(|instance| text(instance, "apiUrl").to_owned())
        .collect()
}

/// A number of a service's metrics, if it is there.
async fn metric(service: &RunningCommand, name: &str) -> Option<u32> {
    let url = format!("{}/metrics", service.url("opsUrl"));
    let page = reqwest::get(url).await.unwrap().text().await.unwrap();
    let begin = format!("{name} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&begin));
    value.map(|value| value.parse().unwrap())
}

#[tokio::test]
async fn status_shows_what_runs() {
    let database = Database::of_test();
    let (workdir, url) = migrated(database).await;
    workdir.json("user add --email me@example.com");
    let status = workdir.json("status");
    let jobs = json!({"due": 0, "running": 0, "failing": 0});
    assert_fields(
        &status,
        &json!({"instances": [], "users": 1, "connections": {}, "jobs": jobs, "settingsFile": null}),
    );
    assert_eq!(status["database"]["schema"], newest_migration());
    let shown = workdir.text("status");
    assert!(shown.ends_with("instances      none is running\n"));

    let service = workdir.start("serve");
    let status = workdir.json("status");
    let instance = &status["instances"][0];
    let expected =
        json!({"apiUrl": api(&service), "keyIds": ["main"], "version": status["version"]});
    assert_fields(instance, &expected);
    let (number, commit) = text(instance, "version").split_once('+').unwrap();
    assert_eq!((number, commit), (env!("CARGO_PKG_VERSION"), COMMIT));
    assert!(
        commit == "unknown" || commit.len() == 12 && commit.bytes().all(|c| c.is_ascii_hexdigit()),
        "{commit}"
    );
    assert_eq!(workdir.text("--version"), format!("bellbird {VERSION}\n"));
    assert_eq!(status["differences"], json!([]));
    let shown = workdir.text("status");
    assert_has(&shown, "1 running");
    assert_has(&shown, &api(&service));
    assert_lacks(&shown, &MASTER_KEY[5..]);
    let error = workdir.error("restore --decide --yes", 1);
    assert_has(&error, "a Bellbird service runs on ");
    let found = workdir.doctor("instances").remove(0);
    assert_starts(&found, "ok 1 running: ");
    assert_has(&found, &api(&service));
    service.end();
    assert_eq!(running(&workdir), [""; 0], "the row goes with a clean stop");
    let rows = query(&url, "SELECT id FROM instances").await;
    assert_eq!(rows, Vec::<Vec<String>>::new());
    assert_eq!(workdir.doctor("instances"), ["ok none is running"]);
}

#[test]
fn status_names_settings_file_and_database() {
    let mut workdir = Workdir::new();
    let folder = workdir.path();
    let status = workdir.run("status --json");
    assert_eq!(status.status.code(), Some(1));
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let path = folder.join("bellbird.db").display().to_string();
    let location = text(&status["database"], "location");
    assert!(location.ends_with(&path), "{status}");
    let message = text(&status["error"], "message");
    assert_has(message, "run `bellbird serve` or `bellbird init`");
    let made = folder.read_dir().unwrap().count();
    assert_eq!(made, 0, "it created a file");

    std::fs::write(folder.join("bellbird.toml"), "[log]\nlevel = \"warn\"\n").unwrap();
    workdir.json("migrate");
    assert_eq!(
        workdir.field("status", "settingsFile"),
        folder.join("bellbird.toml").display().to_string()
    );
    let password = "pa55word";
    let url = format!("postgres://me:{password}@127.0.0.1:1/own");
    workdir.set("BELLBIRD_DATABASE__URL", &url);
    let output = workdir.run("status");
    let shown = String::from_utf8(output.stdout.clone()).unwrap() + &errors(&output);
    assert_has(&shown, "own at 127.0.0.1, port 1");
    assert_lacks(&shown, password);
    assert_eq!(output.status.code(), Some(1));
}

/// The lock file stays, but the lock ends with its process.
#[tokio::test]
async fn sqlite_serves_one_service() {
    let (workdir, url) = migrated(Database::Sqlite).await;
    let error = workdir.error(&format!("serve --only worker {ANY_PORTS}"), 1);
    assert_has(&error, "leave out --only, or use PostgreSQL");
    let first = workdir.start("serve");
    let path = url.strip_prefix("sqlite:").unwrap();
    for command in ["serve", "demo"] {
        let error = workdir.error(&format!("{command} {ANY_PORTS}"), 1);
        let begin = format!(
            "error: another service runs on the SQLite database {path}, and SQLite serves one: stop"
        );
        assert_starts(&error, &begin);
        assert_has(&error, "PostgreSQL");
    }
    workdir.json("user add --email me@example.com");
    assert_eq!(running(&workdir), [api(&first)]);
    assert_eq!(first.stop("-KILL").0, None);

    let second = workdir.start("serve");
    assert_eq!(
        running(&workdir),
        [api(&second)],
        "the first one was killed"
    );
    let link = workdir.folder.path().join("link.db");
    std::os::unix::fs::symlink(path, &link).unwrap();
    let mut through_link = workdir.command(&format!("serve {ANY_PORTS}"));
    let url_of_link = format!("sqlite:{}", link.display());
    through_link.env("BELLBIRD_DATABASE__URL", url_of_link);
    let refused = errors(&through_link.output().unwrap());
    assert_has(&refused, "another service runs");
    second.end();
    let mode = |path: &str| {
        std::os::unix::fs::PermissionsExt::mode(&Path::new(path).metadata().unwrap().permissions())
    };
    assert_eq!(mode(&format!("{path}-lock")) & 0o777, 0o600);

    // What was planned by a clock that was ahead comes as soon as it was meant to.
    let year = 365 * 24 * 3_600 * 1_000_000_i64;
    let ahead =
        format!("UPDATE jobs SET started_at = started_at + {year}, run_at = run_at + {year}");
    execute(&url, &ahead, "").await;
    workdir.start("serve").end();
    let in_a_day = jiff::Timestamp::now().as_microsecond() + 24 * 3_600 * 1_000_000;
    let later = format!("SELECT kind FROM jobs WHERE run_at > {in_a_day}");
    let planned = query(&url, &later).await;
    assert_eq!(planned, [[""; 0]; 0], "jobs that would run in a year");
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn differing_instances_are_reported() {
        let (mut workdir, url) = migrated(Database::Postgres).await;
        let first = workdir.start("serve");
        let public_url = "https://bellbird.example.com";
        workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", public_url);
        let second = workdir.start("serve");
        assert_eq!(running(&workdir), [api(&first), api(&second)]);
        let notes = workdir.doctor("instances");
        let difference = "console.public_url is not the same everywhere, and 2 instances run";
        let note = notes.iter().find(|note| note.contains(difference)).unwrap();
        assert_starts(note, "note ");
        assert_has(note, "BELLBIRD_CONSOLE__PUBLIC_URL");
        assert_has(note, "restart");
        assert_has(&workdir.text("status"), difference);

        // One instance counts for all. The next count is due within 15 seconds.
        let counted = async |service: &RunningCommand| {
            metric(service, "bellbird_instances").await.unwrap_or(0)
        };
        eventually(async || counted(&first).await + counted(&second).await == 2).await;

        // An instance with another key, of another version.
        let other = "UPDATE instances SET key_ids = 'other', version = '0.0.9' WHERE api_url = ";
        execute(&url, &format!("{other}'{}'", api(&first)), "").await;
        let notes = workdir.doctor("instances");
        let wrong = notes.iter().filter(|note| note.starts_with("wrong "));
        let wrong: Vec<_> = wrong.collect();
        assert_eq!(wrong.len(), 3, "{notes:?}");
        assert_has(
            wrong[0],
            "cannot open the key `main`, with which this command seals: add it to secrets.key there",
        );
        assert_has(
            wrong[1],
            &format!("({}) cannot open the key `other`", api(&second)),
        );
        assert_has(wrong[2], "this command cannot open the key `other`");
        assert!(
            notes.iter().any(|note| note.contains(" versions differ: ")),
            "{notes:?}"
        );
        let (_, _, log_since_start) = second.stop("-TERM");
        assert_has(&log_since_start, &format!("instances: {difference}"));
    }

    /// Limits would depend on the instance that a request meets, and secrets on the one that seals
    /// them.
    #[tokio::test]
    async fn settings_that_differ_are_noticed_and_another_key_is_refused() {
        let (mut workdir, _) = migrated(Database::Postgres).await;
        let first = workdir.start("serve");
        workdir.set("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "30");
        // The default.
        assert_lacks(&workdir.text("status"), "section");
        workdir.set("BELLBIRD_LIMITS__LIVE_PER_MINUTE", "7");
        workdir.set("BELLBIRD_REDIS__URL", "redis://127.0.0.1:1");
        let second = workdir.start("serve");
        let texts = workdir.doctor("instances");
        for section in ["limits", "redis"] {
            let begin = format!(" the settings of section {section} are not the same everywhere: ");
            let found = texts.iter().find(|text| text.contains(&begin));
            let found = found.unwrap_or_else(|| panic!("{texts:?}"));
            assert_has(found, &api(&first));
            assert_has(found, &api(&second));
        }
        assert_has(&workdir.text("status"), "the settings of section limits");
        let (_, _, log) = second.stop("-TERM");
        let differ = "the settings of section redis are not the same everywhere";
        assert_has(&log, differ);

        let other_key = MASTER_KEY.replace("main:", "other:");
        workdir.set("BELLBIRD_SECRETS__KEY", &other_key);
        let error = workdir.error(&format!("serve {ANY_PORTS}"), 1);
        let reason = "the other instances seal with the master key `main`, such as ";
        assert_has(&error, reason);
        first.end();
    }

    /// The row of an instance appears again after the database was lost for a while. That of a
    /// killed one is deleted.
    #[tokio::test]
    async fn instance_renews_its_row_after_a_lost_database() {
        let (workdir, url) = migrated(Database::Postgres).await;
        let log = workdir.folder.path().join("log");
        let service =
            RunningCommand::start_with_log(&workdir, &format!("serve --json {ANY_PORTS}"), &log);
        execute(&url, "ALTER TABLE instances RENAME TO lost", "").await;
        let message = "could not renew the row of this instance";
        let logs = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
        eventually(async || logs(message)).await;
        // Nobody sends a request, and monitors see it all the same.
        let is_available =
            async |value: u32| metric(&service, "bellbird_database_available").await == Some(value);
        eventually(async || is_available(0).await).await;
        let lacks = "lacks a table or column of this version";
        eventually(async || {
            let (status, body) = service.get("opsUrl", "/ready").await;
            status == 503 && text(&body, "database").contains(lacks)
        })
        .await;
        // It renews each five seconds, and a command may take as long.
        send_signal(service.id(), "-STOP");
        let dead = uuid::Uuid::nil().to_string();
        let kill = format!("UPDATE lost SET id = '{dead}', last_seen_at = last_seen_at - 60000000");
        execute(&url, &kill, "").await;
        execute(&url, "ALTER TABLE lost RENAME TO instances", "").await;
        assert_eq!(running(&workdir), [""; 0]);
        send_signal(service.id(), "-CONT");
        eventually(async || {
            let ids = query(&url, "SELECT id FROM instances").await;
            ids.len() == 1 && ids[0] != [&*dead]
        })
        .await;
        assert_eq!(running(&workdir), [api(&service)]);
        eventually(async || is_available(1).await).await;
        eventually(async || logs("row of this instance renewed again")).await;
        service.end();
    }
}

/// The running service decides by the settings of its start, whatever a command allows.
#[tokio::test(flavor = "multi_thread")]
async fn warns_of_an_instance_that_rejects_the_address() {
    let Deployment {
        mut workdir,
        sandbox,
        ..
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.json("user add --email me@example.com");
    let receiver = Receiver::start().await;
    let url = &receiver.url;
    let error = workdir.error(&format!("webhook add --user me@example.com --url {url}"), 1);
    let setting = "webhooks.allow_loopback = true (BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK=true)";
    assert_has(&error, "use https");
    assert_has(&error, setting);
    let elsewhere = "webhook add --user me@example.com --url http://hooks.example.com/";
    let error = workdir.error(elsewhere, 1);
    assert_has(&error, "use https");
    assert_lacks(&error, "allow_loopback");

    let service = workdir.start("serve");
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    let output = workdir.run(&format!(
        "webhook add --user me@example.com --url {url} --json"
    ));
    let added: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = text(&added, "id");
    let warning = errors(&output);
    assert_starts(&warning, "warning: ");
    assert_has(&warning, &format!("({})", api(&service)));
    let advice = format!("Restart it with {setting}, then run `bellbird webhook enable {id}`");
    assert_has(&warning, &advice);
    let ping = workdir.run(&format!("webhook ping {id}"));
    assert_eq!(ping.status.code(), Some(0), "it was delivered");
    assert_starts(&errors(&ping), &format!("{warning}Delivered: "));
    assert_eq!(receiver.drain()[0].id.len(), 36);
    let enable = workdir.run(&format!("webhook enable {id}"));
    assert_eq!(
        errors(&enable),
        format!("Already enabled: {}.\n{warning}", text(&added, "url"))
    );
    // The service disables the endpoint, and commands say why no event comes.
    let credentials = sandbox.json()["credentials"][0].to_string();
    let import = "connection import --user me@example.com --credentials - --json";
    workdir.run_with_input(import, &credentials);
    let obstacle = errors(&workdir.run("connection sync --all"));
    assert_has(&obstacle, id);
    assert_has(&obstacle, setting);
    eventually(async || workdir.json("webhook list")[0]["status"] == "disabled").await;
    let list = String::from_utf8(workdir.run("webhook list").stdout).unwrap();
    assert_has(&list, "disabled by the service (address not allowed)");
    for command in ["webhook list", &format!("webhook deliveries {id}")] {
        let shown = errors(&workdir.run(command));
        let why = format!("The endpoint {id} is disabled (address not allowed): ");
        assert_has(&shown, &why);
        assert_has(&shown, &format!("restart the service with {setting}"));
    }
    service.end();

    // As the advice says.
    let service = workdir.start("serve");
    let said = errors(&workdir.run(&format!("webhook enable {id}")));
    assert_lacks(&said, "warning: ");
    assert_has(&said, &format!("`bellbird webhook recover {id} --since "));
    service.end();
}

also_on_postgres! { status_shows_what_runs }
