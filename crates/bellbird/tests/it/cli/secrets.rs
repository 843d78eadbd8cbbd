//! Rotation of the master key, with one service, with several, and with lost keys.

use serde_json::{Value, json};

use crate::support::database::execute;
use crate::support::deployment;
use crate::support::harness::Database;
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, errors, get};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

const OLD: &str = "2026:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const NEW: &str = "2027:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";
const LOST: &str = "1999:CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA=";
const KEYS: &str = "BELLBIRD_SECRETS__KEY";

/// A deployment with a user. Tests import credentials of Fiskil.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    key: String,
    database: String,
}

impl Deployment {
    async fn start(database: Database, keys: &str) -> Self {
        let deployment::Deployment {
            workdir,
            sandbox,
            database,
        } = deployment::Deployment::start_on(database, 50, &[("SECRETS__KEY", keys)]).await;
        workdir.json("user add --email me@example.com");
        let key = workdir.field("key create --user me@example.com", "key");
        Self {
            workdir,
            sandbox,
            key,
            database,
        }
    }

    /// Imports one of the sandbox's credentials. Returns the connection's id.
    fn import(&self, index: usize) -> String {
        let credentials = &self.sandbox.json()["credentials"][index];
        self.workdir.import("me@example.com", credentials)
    }

    /// Starts a service with these keys.
    fn serve(&mut self, keys: &str) -> Service {
        self.workdir.set(KEYS, keys);
        let running = self.workdir.start("serve");
        let (api, key) = (running.url("apiUrl"), self.key.clone());
        Service { running, api, key }
    }

    /// The JSON of a rotation that succeeds. On PostgreSQL it prints a note about dead rows, and
    /// nothing else.
    fn rotate(&mut self, keys: &str) -> Value {
        let (code, printed, error) = self.try_rotate(keys);
        assert_eq!(code, Some(0), "{error}");
        let notes = usize::from(self.database.starts_with("postgres"));
        assert_eq!(error.lines().count(), notes, "{error}");
        printed
    }

    /// Exit status, JSON if any, and standard error of a rotation.
    fn try_rotate(&mut self, keys: &str) -> (Option<i32>, Value, String) {
        self.workdir.set(KEYS, keys);
        let output = self.workdir.run("secrets rotate --json");
        let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), printed, errors(&output))
    }

    fn doctor(&self) -> Vec<String> {
        self.workdir.doctor("secrets")
    }
}

struct Service {
    running: RunningCommand,
    api: String,
    key: String,
}

impl Service {
    /// The status of a live read, which opens the credentials.
    async fn read_status(&self, connection: &str) -> u16 {
        let url = format!("{}/v1/transactions?connectionId={connection}", self.api);
        get(&url, Some(&self.key)).await.0
    }

    async fn assert_reads(&self, connections: &[&String]) {
        for connection in connections {
            assert_eq!(self.read_status(connection).await, 200);
        }
    }

    fn stop(self) {
        self.running.end();
    }
}

/// What a rotation prints of the secrets that it found, and of the instances that run.
fn rotated(resealed: u32, current: u32, unopenable: u32, instances: u32) -> Value {
    json!({"resealed": resealed, "alreadyCurrent": current, "unopenable": unopenable, "instances": instances})
}

#[tokio::test]
async fn single_instance_rotates_its_key() {
    let mut deployment = Deployment::start(Database::Sqlite, OLD).await;
    let first = deployment.import(0);
    // Another key of the same id seals nothing, as after `secrets.key` was generated again. What is
    // stored stays readable with the old key, and nothing is added that only the new one opens.
    let another = format!("2026:{}", &NEW[5..]);
    deployment.workdir.set(KEYS, &another);
    let reason = "the master key `2026` of secrets.key is not the one that sealed what the database holds \
                  (credentials: 1), so nothing is sealed with it: find the old key. If it is lost, give the new key \
                  another id, such as `2026-2`, and follow docs/secrets.md#if-the-key-is-lost";
    let credentials = deployment.sandbox.json()["credentials"][1].to_string();
    let import = "connection import --user me@example.com --credentials -";
    let imported = deployment.workdir.run_with_input(import, &credentials);
    assert_eq!(
        (imported.status.code(), errors(&imported)),
        (Some(1), format!("error: {reason}\n"))
    );
    let serve = format!("serve {ANY_PORTS}");
    for command in ["secrets rotate", &serve] {
        assert_has(&deployment.workdir.error(command, 1), reason);
    }
    assert_eq!(deployment.doctor(), [format!("wrong {reason}")]);

    // Without a key, the advice is not to generate one.
    deployment.workdir.set(KEYS, "");
    let error = deployment.workdir.error(&serve, 1);
    let missing = "secrets.key is not set, but the database holds secrets that are sealed with the master key `2026` (1)";
    assert_has(&error, missing);
    assert_has(&error, "find the old key");
    let doctor = format!("doctor --json {ANY_PORTS}");
    let checked = String::from_utf8(deployment.workdir.run(&doctor).stdout).unwrap();
    assert_has(&checked, "sealed with the master key `2026` (1)");
    assert_lacks(&checked, "urandom");

    // The old key opens what it sealed.
    let service = deployment.serve(OLD);
    service.assert_reads(&[&first]).await;
    assert_eq!(
        deployment.doctor(),
        ["ok 1 secret: 1 with key `2026`; all can be opened"]
    );
    service.stop();

    let both = format!("{NEW},{OLD}");
    let service = deployment.serve(&both);
    service.assert_reads(&[&first]).await;
    let second = deployment.import(1);
    assert_eq!(
        deployment.doctor(),
        [
            "note 2 secrets: 1 with key `2026`, 1 with key `2027`; all can be opened. Run `bellbird secrets \
             rotate` to reseal them with `2027`"
        ]
    );
    assert_eq!(deployment.rotate(&both), rotated(1, 1, 0, 1));
    // The running service still reads.
    service.assert_reads(&[&first, &second]).await;
    assert_eq!(deployment.rotate(&both), rotated(0, 2, 0, 1));
    service.stop();

    // The old key is no longer needed.
    let service = deployment.serve(NEW);
    service.assert_reads(&[&first, &second]).await;
    assert_eq!(
        deployment.doctor(),
        ["ok 2 secrets: 2 with key `2027`; all can be opened"]
    );
    assert_eq!(
        deployment.workdir.said("secrets rotate"),
        "Resealed with key `2027`: 0. Already sealed with it: 2. Not opened: 0.\n\
         One instance of the service runs, and was checked.\n"
    );
    service.stop();
    deployment.sandbox.end();
}

mod postgres {
    use super::*;

    /// In the order of docs/secrets.md, every instance can always open what any instance has
    /// sealed.
    #[tokio::test]
    async fn several_instances_rotate_their_key() {
        let mut deployment = Deployment::start(Database::Postgres, OLD).await;
        let first = deployment.import(0);
        let (new_key_last, new_key_first) = (format!("{OLD},{NEW}"), format!("{NEW},{OLD}"));
        // First, add the new key after the old one, one instance at a time.
        let first_service = deployment.serve(OLD);
        let second_service = deployment.serve(&new_key_last);
        let second = deployment.import(1);
        for service in [&first_service, &second_service] {
            service.assert_reads(&[&first, &second]).await;
        }
        first_service.stop();
        // Then put the new key before the old one.
        let first_service = deployment.serve(&new_key_first);
        let third = deployment.import(2);
        for service in [&first_service, &second_service] {
            service.assert_reads(&[&second, &third]).await;
        }
        second_service.stop();
        let second_service = deployment.serve(&new_key_first);
        assert_eq!(deployment.rotate(&new_key_first), rotated(2, 1, 0, 2));
        // Finally, remove the old key.
        let third_service = deployment.serve(NEW);
        for service in [first_service, second_service, third_service] {
            service.assert_reads(&[&first, &second, &third]).await;
            service.stop();
        }
        // Out of order: an instance without the new key cannot open credentials that it has not
        // opened before.
        let late = deployment.serve(OLD);
        assert_eq!(late.read_status(&first).await, 500);
        let (_, _, log) = late.running.stop("-TERM");
        let advice = "sealed with the master key `2027`, which is not in secrets.key: add it after the first key";
        assert_has(&log, "could not open stored secret");
        assert_has(&log, advice);
        deployment.sandbox.end();
    }

    /// The order of docs/secrets.md is enforced: no instance is left with secrets that it cannot
    /// open.
    #[tokio::test]
    async fn rotation_waits_until_every_instance_has_the_new_key() {
        let mut deployment = Deployment::start(Database::Postgres, OLD).await;
        let connection = deployment.import(0);
        let (new_key_last, new_key_first) = (format!("{OLD},{NEW}"), format!("{NEW},{OLD}"));
        let (late, early) = (deployment.serve(OLD), deployment.serve(&new_key_first));

        let (code, _, error) = deployment.try_rotate(&new_key_first);
        assert_eq!(code, Some(1));
        let begin = "error: nothing was changed, because 1 of 2 running instances cannot open the key `2027`";
        assert_starts(&error, begin);
        let advice = format!(
            "({}) opens only `2026`: add `2027` to its secrets.key, restart it",
            late.api
        );
        assert_has(&error, &advice);
        assert_lacks(&error, &early.api);
        let found = deployment.doctor();
        assert_starts(&found[0], "note 1 secret: 1 with key `2026`");
        late.assert_reads(&[&connection]).await;

        // It opens both, but what it seals would be lost with the old key.
        late.stop();
        let late = deployment.serve(&new_key_last);
        let (code, printed, error) = deployment.try_rotate(&new_key_first);
        assert_eq!(code, Some(1), "{error}");
        let message = error.lines().find_map(|line| line.strip_prefix("error: "));
        let mut expected = rotated(1, 0, 0, 2);
        expected["error"] = json!({ "message": message.unwrap() });
        assert_eq!(printed, expected);
        let advice = format!("({}) seals with key `2026`: put `2027` first", late.api);
        assert_has(&error, &advice);
        late.assert_reads(&[&connection]).await;

        // An instance that was killed does not block forever.
        let late_api = late.api;
        assert_eq!(late.running.stop("-KILL").0, None);
        let sql = format!(
            "UPDATE instances SET last_seen_at = last_seen_at - 31000000 WHERE api_url = '{late_api}'"
        );
        execute(&deployment.database, &sql, "").await;
        assert_eq!(deployment.rotate(&new_key_first), rotated(0, 1, 0, 1));
        early.stop();
        deployment.sandbox.end();
    }
}

#[tokio::test]
async fn unopenable_secrets_are_reported_and_kept() {
    let mut deployment = Deployment::start(Database::Sqlite, LOST).await;
    let lost = deployment.import(0);
    // A key with another id begins again.
    deployment.workdir.set(KEYS, OLD);
    deployment.import(1);
    let (code, printed, error) = deployment.try_rotate(&format!("{NEW},{OLD}"));
    let (reason, advice) = (
        "cannot be opened: sealed with key `1999`, which is not in secrets.key.",
        "Add the missing key to secrets.key, after the first one. If it is lost, see docs/secrets.md",
    );
    let missing = format!("1 secret {reason} {advice} (credentials of connection {lost})");
    let mut expected = rotated(1, 0, 1, 0);
    expected["error"] = json!({ "message": missing });
    assert_eq!(printed, expected);
    assert_eq!((code, error), (Some(1), format!("error: {missing}\n")));
    assert_eq!(
        deployment.doctor(),
        [format!(
            "wrong 2 secrets: 1 with key `1999`, 1 with key `2027`; 1 {reason} {advice}"
        )]
    );
    // A different key with the same id.
    let (code, _, error) = deployment.try_rotate(&format!("{NEW},1999:{}", &OLD[5..]));
    assert_eq!(code, Some(1));
    let reason = "1 secret cannot be opened: not opened by the key with their id";
    assert_has(&error, reason);
    for key in [OLD, NEW, LOST] {
        assert_lacks(&error, &key[5..]);
    }
    let log = deployment.serve(NEW).running.end();
    assert_has(&log, "1 secret cannot be opened: sealed with key `1999`");
    // With the lost key, every secret can be opened.
    let with_lost_key = format!("{NEW},{LOST}");
    assert_eq!(deployment.rotate(&with_lost_key), rotated(1, 1, 0, 0));
    deployment.sandbox.end();
}

#[test]
fn invalid_keys_are_rejected_up_front() {
    let mut workdir = Workdir::migrated();
    let error = workdir.error("secrets rotate", 1);
    assert_starts(&error, "error: secrets.key is not set");
    let bare = &OLD[5..];
    for (keys, message) in [
        (
            format!("{OLD},{OLD}"),
            "master key number 2 has the id of an earlier one",
        ),
        (
            format!("{OLD},{bare}"),
            "master key number 2 has no id: expected id:base64",
        ),
        (
            format!("{OLD},a b:{bare}"),
            "the id of master key number 2 must be 1 to 32 of the characters",
        ),
        (
            format!("{OLD},2027:{}", &bare[1..]),
            "master key number 2 must be base64 of exactly 32 bytes after its id",
        ),
        (format!("{OLD},"), "master key number 2 has no id"),
    ] {
        workdir.set(KEYS, &keys);
        let error = workdir.error("secrets rotate", 1);
        assert_has(&error, &format!(" cannot be used: {message}"));
        assert_lacks(&error, bare);
    }
    let error = Workdir::with_key().error("secrets rotate", 1);
    assert_has(&error, "bellbird.db does not exist");
    // In a file, a line for each key is the natural form. One that is wrong is named with the file.
    let mut empty = Workdir::new();
    let file = empty.path().join("keys");
    empty.set("BELLBIRD_SECRETS__KEY_FILE", "keys");
    std::fs::write(&file, format!("{NEW}\n\n{OLD}\n")).unwrap();
    empty.json("migrate");
    let ids = json!([&NEW[..4], &OLD[..4]]);
    assert_eq!(empty.json("status")["keyIds"], ids);
    std::fs::write(&file, "main:c2hvcnQ=").unwrap();
    let error = empty.error("secrets rotate", 1);
    let reason = "error: secrets.key in the file keys cannot be used: ";
    assert_starts(&error, reason);
    std::fs::write(&file, "\n").unwrap();
    let error = empty.error("secrets rotate", 1);
    let reason = "/keys is empty: restore your copy of it";
    assert!(error.ends_with(reason), "{error}");
}
