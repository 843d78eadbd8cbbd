//! Rotation of the master key, with one service, with several, and with lost keys.

use serde_json::{Value, json};

use crate::support::process::{ANY_PORTS, ANY_SANDBOX_PORTS, RunningCommand, Workdir, errors, get, text};

const OLD: &str = "2026:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const NEW: &str = "2027:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=";
const LOST: &str = "1999:CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCA=";
const KEYS: &str = "BELLBIRD_SECRETS__KEY";

/// A deployment with a user and the simulated Fiskil. Tests import its credentials.
struct Deployment {
    workdir: Workdir,
    sandbox: RunningCommand,
    key: String,
}

impl Deployment {
    fn start(keys: &str) -> Self {
        let mut workdir = Workdir::migrated();
        workdir.set(KEYS, keys);
        let sandbox = RunningCommand::start(&workdir, &format!("sandbox --json --rows 50 {ANY_SANDBOX_PORTS}"));
        let fiskil = &sandbox.json()["fiskil"];
        workdir.set("BELLBIRD_FISKIL__BASE_URL", text(fiskil, "baseUrl"));
        workdir.set("BELLBIRD_FISKIL__CLIENT_ID", text(fiskil, "clientId"));
        workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", text(fiskil, "clientSecret"));
        workdir.json("user add --email me@example.com");
        let key = text(&workdir.json("key create --user me@example.com"), "key").to_owned();
        Self { workdir, sandbox, key }
    }

    /// Imports one of the sandbox's credentials. Returns the connection's id.
    fn import(&self, index: usize) -> String {
        let credentials = self.sandbox.json()["credentials"][index].to_string();
        let output =
            self.workdir.run_with_input("connection import --user me@example.com --credentials - --json", &credentials);
        assert_eq!(errors(&output), "");
        let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
        text(&imported[0], "id").to_owned()
    }

    /// Starts a service with these keys.
    fn serve(&mut self, keys: &str) -> Service {
        self.workdir.set(KEYS, keys);
        let running = RunningCommand::start(&self.workdir, &format!("serve --json {ANY_PORTS}"));
        let api = text(&running.json(), "apiUrl").to_owned();
        Service { running, api, key: self.key.clone() }
    }

    fn rotate(&mut self, keys: &str) -> Value {
        self.workdir.set(KEYS, keys);
        self.workdir.json("secrets rotate")
    }

    /// The verdicts and details of the doctor's check of secrets.
    fn doctor(&self) -> Vec<(String, String)> {
        let output = self.workdir.run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter().filter(|check| check["name"] == "sealed tokens");
        checks.map(|check| (text(check, "verdict").to_owned(), text(check, "detail").to_owned())).collect()
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
        get(&format!("{}/v1/transactions?connectionId={connection}", self.api), Some(&self.key)).await.0
    }

    fn stop(self) {
        assert_eq!(self.running.stop("-TERM").0, Some(0));
    }
}

#[tokio::test]
async fn single_instance_rotates_its_key() {
    let mut deployment = Deployment::start(OLD);
    let first = deployment.import(0);
    let service = deployment.serve(OLD);
    assert_eq!(service.read_status(&first).await, 200);
    assert_eq!(deployment.doctor(), [("ok".to_owned(), "1 with key `2026`; all can be opened".to_owned())]);
    service.stop();

    let both = format!("{NEW},{OLD}");
    let service = deployment.serve(&both);
    assert_eq!(service.read_status(&first).await, 200);
    let second = deployment.import(1);
    assert_eq!(
        deployment.doctor(),
        [(
            "note".to_owned(),
            "1 with key `2026`, 1 with key `2027`; all can be opened. Run `bellbird secrets rotate` to reseal them \
             with `2027`"
                .to_owned()
        )]
    );
    assert_eq!(deployment.rotate(&both), json!({"resealed": 1, "alreadyCurrent": 1, "unopenable": 0}));
    for connection in [&first, &second] {
        assert_eq!(service.read_status(connection).await, 200, "the running service still reads");
    }
    assert_eq!(deployment.rotate(&both), json!({"resealed": 0, "alreadyCurrent": 2, "unopenable": 0}));
    service.stop();

    let service = deployment.serve(NEW);
    for connection in [&first, &second] {
        assert_eq!(service.read_status(connection).await, 200, "the old key is no longer needed");
    }
    assert_eq!(deployment.doctor(), [("ok".to_owned(), "2 with key `2027`; all can be opened".to_owned())]);
    assert_eq!(
        deployment.workdir.text("secrets rotate"),
        "Resealed with key `2027`: 0. Already sealed with it: 2. Not opened: 0.\n"
    );
    service.stop();
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

/// In the order of docs/operating.md, every instance can always open what any instance has sealed.
#[tokio::test]
async fn several_instances_rotate_their_key() {
    let mut deployment = Deployment::start(OLD);
    let first = deployment.import(0);
    let (new_key_last, new_key_first) = (format!("{OLD},{NEW}"), format!("{NEW},{OLD}"));
    // First, add the new key after the old one, one instance at a time.
    let (first_service, second_service) = (deployment.serve(OLD), deployment.serve(&new_key_last));
    let second = deployment.import(1);
    for service in [&first_service, &second_service] {
        assert_eq!((service.read_status(&first).await, service.read_status(&second).await), (200, 200));
    }
    first_service.stop();
    // Then put the new key before the old one.
    let first_service = deployment.serve(&new_key_first);
    let third = deployment.import(2);
    for service in [&first_service, &second_service] {
        assert_eq!((service.read_status(&second).await, service.read_status(&third).await), (200, 200));
    }
    second_service.stop();
    let second_service = deployment.serve(&new_key_first);
    assert_eq!(deployment.rotate(&new_key_first), json!({"resealed": 2, "alreadyCurrent": 1, "unopenable": 0}));
    // Finally, remove the old key.
    let third_service = deployment.serve(NEW);
    for service in [first_service, second_service, third_service] {
        for connection in [&first, &second, &third] {
            assert_eq!(service.read_status(connection).await, 200);
        }
        service.stop();
    }
    // Out of order: an instance without the new key cannot open credentials that it has not opened before.
    let late = deployment.serve(OLD);
    assert_eq!(late.read_status(&first).await, 500);
    let (_, _, log) = late.running.stop("-TERM");
    let advice = "sealed with the master key `2027`, which is not in secrets.key: add it after the first key";
    assert!(log.contains("could not open stored secret") && log.contains(advice), "{log}");
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[test]
fn unopenable_secrets_are_reported_and_kept() {
    let mut deployment = Deployment::start(LOST);
    let lost = deployment.import(0);
    deployment.workdir.set(KEYS, OLD);
    deployment.import(1);
    deployment.workdir.set(KEYS, &format!("{NEW},{OLD}"));
    let output = deployment.workdir.run("secrets rotate --json");
    assert_eq!(output.status.code(), Some(1));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, json!({"resealed": 1, "alreadyCurrent": 0, "unopenable": 1}));
    let missing = format!(
        "1 secret cannot be opened: sealed with key `1999`, which is not in secrets.key. Add that key after the first \
         one, or remove the connection and link it again (credentials {lost})"
    );
    assert_eq!(errors(&output), format!("error: {missing}\n"));
    assert_eq!(
        deployment.doctor(),
        [
            ("wrong".to_owned(), "1 with key `1999`, 1 with key `2027`; some cannot be opened".to_owned()),
            ("wrong".to_owned(), missing)
        ]
    );
    // A different key with the same id.
    deployment.workdir.set(KEYS, &format!("{NEW},1999:{}", &OLD[5..]));
    let output = deployment.workdir.run("secrets rotate");
    assert_eq!(output.status.code(), Some(1));
    let error = errors(&output);
    assert!(error.contains("1 secret cannot be opened: not opened by the key with their id"), "{error}");
    for key in [OLD, NEW, LOST] {
        assert!(!error.contains(&key[5..]), "{error}");
    }
    let service = deployment.serve(NEW);
    let (code, _, log) = service.running.stop("-TERM");
    assert!(code == Some(0) && log.contains("1 secret cannot be opened: sealed with key `1999`"), "{log}");
    // With the lost key, every secret can be opened.
    assert_eq!(
        deployment.rotate(&format!("{NEW},{LOST}")),
        json!({"resealed": 1, "alreadyCurrent": 1, "unopenable": 0})
    );
    assert_eq!(deployment.sandbox.stop("-TERM").0, Some(0));
}

#[test]
fn invalid_keys_are_rejected_up_front() {
    let mut workdir = Workdir::migrated();
    let error = workdir.error("secrets rotate", 1);
    assert!(error.starts_with("error: secrets.key is not set"), "{error}");
    let bare = &OLD[5..];
    for (keys, message) in [
        (format!("{OLD},{OLD}"), "master key number 2 has the id of an earlier one"),
        (format!("{OLD},{bare}"), "master key number 2 has no id: expected id:base64"),
        (format!("{OLD},a b:{bare}"), "the id of master key number 2 must be 1 to 32 of the characters"),
        (format!("{OLD},2027:{}", &bare[1..]), "master key number 2 must be base64 of exactly 32 bytes after its id"),
        (format!("{OLD},"), "master key number 2 has no id"),
    ] {
        workdir.set(KEYS, &keys);
        let error = workdir.error("secrets rotate", 1);
        assert!(error.starts_with(&format!("error: secrets.key cannot be used: {message}")), "{error}");
        assert!(!error.contains(bare), "{error}");
    }
    let mut empty = Workdir::new();
    empty.set(KEYS, OLD);
    assert_eq!(
        empty.error("secrets rotate", 1),
        "error: the database is not set up for this version: run `bellbird migrate`"
    );
}
