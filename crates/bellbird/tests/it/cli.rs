//! The commands that do something and end, run as the built program.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

/// A folder with nothing in it, in which commands are run with no environment but what a test sets.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    variables: Vec<(String, String)>,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    /// With a database that is set up.
    pub(crate) fn migrated() -> Self {
        let place = Self::new();
        place.json("migrate");
        place
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// A command, its arguments separated by single blanks.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellbird"));
        command.args(line.split(' ').filter(|part| !part.is_empty())).current_dir(self.folder.path()).env_clear();
        command.env("TMPDIR", self.folder.path()).envs(self.variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Standard output of a command that succeeds and has nothing else to say.
    pub(crate) fn text(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(errors(&output), "", "{line}");
        assert_eq!(output.status.code(), Some(0), "{line}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a command prints with `--json`: one line.
    pub(crate) fn json(&self, line: &str) -> Value {
        let text = self.text(&format!("{line} --json"));
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The error of a command that fails without printing anything.
    pub(crate) fn error(&self, line: &str, code: i32) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", errors(&output));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
        errors(&output).trim_end().to_owned()
    }

    /// Runs a command that reads standard input.
    pub(crate) fn run_with_input(&self, line: &str, input: &str) -> Output {
        let mut child = self.command(line).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Ids, times and keys replaced by others of the same length, so that columns stay where they are.
fn redacted(text: &str) -> String {
    let mut result = text.to_owned();
    for word in text.split_whitespace().map(|word| word.trim_end_matches(['.', ','])) {
        if word.parse::<Timestamp>().is_ok() {
            result = result.replace(word, "2026-01-01T00:00:00Z");
        } else if Uuid::try_parse(word).is_ok() {
            result = result.replace(word, &Uuid::nil().to_string());
        } else if word.starts_with("bb_") {
            result = result.replace(word, &format!("bb_{}", "x".repeat(word.len() - 3)));
        }
    }
    result
}

#[test]
fn help_texts() {
    let place = Place::new();
    let commands = [
        "",
        "demo",
        "serve",
        "sandbox",
        "migrate",
        "doctor",
        "openapi",
        "completions",
        "user",
        "user add",
        "user list",
        "user show",
        "user set",
        "user remove",
        "key",
        "key create",
        "key list",
        "key rotate",
        "key revoke",
        "connection",
        "connection link",
        "connection adopt",
        "connection list",
        "connection show",
        "connection sync",
        "connection remove",
        "webhook",
        "webhook add",
        "webhook list",
        "webhook ping",
        "webhook rotate-secret",
        "webhook enable",
        "webhook disable",
        "webhook remove",
        "webhook deliveries",
        "webhook redeliver",
        "webhook recover",
        "secrets",
        "secrets rotate",
    ];
    let mut all = String::new();
    for command in commands {
        all.push_str(&format!("==== bellbird {command}\n\n{}\n", place.text(&format!("{command} --help"))));
    }
    insta::assert_snapshot!(without_providers(&all));
}

/// The list of providers taken out, so that a new one changes no snapshot.
fn without_providers(text: &str) -> String {
    let names: Vec<&str> =
        bellbird_providers::registry::PROVIDERS.iter().map(|provider| provider.name.as_str()).collect();
    text.replace(&names.join(", "), "PROVIDERS")
}

#[test]
fn the_life_of_a_user() {
    let place = Place::migrated();
    let added = place.json("user add --email Me@Example.com --plan developer --timezone Australia/Perth");
    assert_eq!(names(&added), ["createdAt", "email", "id", "plan", "timezone"]);
    assert_eq!((&added["email"], &added["plan"]), (&json!("Me@Example.com"), &json!("developer")));
    assert_eq!(place.json("user list"), json!([added]));
    for reference in
        ["me@example.com", "--user ME@example.com", "--email me@example.com", added["id"].as_str().unwrap()]
    {
        assert_eq!(place.json(&format!("user show {reference}")), added);
    }
    let changed = place.json("user set me@example.com --plan saver --no-timezone");
    assert_eq!((&changed["plan"], &changed["timezone"]), (&json!("saver"), &Value::Null));
    assert_eq!(
        place.error("user add --email ME@example.com", 1),
        "error: there is a user ME@example.com already: change it with `bellbird user set ME@example.com`"
    );
    assert_eq!(place.json("user remove me@example.com"), changed);
    assert_eq!(place.json("user list"), json!([]));
    assert_eq!(
        place.error("user show me@example.com", 1),
        "error: there is no user me@example.com: `bellbird user list` shows all of them"
    );
}

#[test]
fn the_life_of_a_key() {
    let place = Place::migrated();
    place.json("user add --email me@example.com");
    let made = place.json("key create --user me@example.com --name laptop --expires 90d");
    assert_eq!(names(&made), ["createdAt", "expiresAt", "id", "key", "name", "prefix"]);
    let key = made["key"].as_str().unwrap();
    assert!(bellbird_domain::ApiKey::parse(key).is_ok() && key.starts_with(made["prefix"].as_str().unwrap()));
    let lasts = |key: &Value| {
        let at = |name: &str| key[name].as_str().unwrap().parse::<Timestamp>().unwrap();
        at("expiresAt").duration_since(at("createdAt")).as_hours()
    };
    assert_eq!(lasts(&made), 90 * 24);

    let id = made["id"].as_str().unwrap();
    let rotated = place.json(&format!("key rotate {id} --grace 1h"));
    assert_eq!((names(&rotated), lasts(&rotated), &rotated["name"]), (names(&made), 90 * 24, &json!("laptop")));
    assert_ne!(rotated["key"], made["key"]);
    let list = place.json("key list --user me@example.com");
    assert_eq!((lasts(&list[0]), &list[0]["status"], &list[1]["status"]), (1, &json!("active"), &json!("active")));

    place.json(&format!("key rotate {id} --grace 0s"));
    assert_eq!(place.json("key list")[0]["status"], "expired");
    let error = place.error(&format!("key rotate {id}"), 1);
    assert_eq!(error, format!("error: the key {id} is expired: make a new one with `bellbird key create`"));

    let revoked = place.json(&format!("key revoke {}", rotated["id"].as_str().unwrap()));
    assert_eq!((&revoked["status"], &revoked["user"]), (&json!("revoked"), &json!("me@example.com")));
    let nobody = Uuid::nil();
    assert_eq!(
        place.error(&format!("key revoke {nobody}"), 1),
        format!("error: there is no key {nobody}: `bellbird key list` shows the ids")
    );
    assert!(!place.text("key list").contains(key));
    place.json("user remove me@example.com");
    assert_eq!(place.json("key list"), json!([]));
}

#[test]
fn what_people_read() {
    let place = Place::migrated();
    let mut all = String::new();
    for line in [
        "migrate",
        "user list",
        "user add --email me@example.com --timezone Pacific/Auckland",
        "user add --email someone.else@example.com --plan saver",
        "user list",
        "user set me@example.com --plan developer",
        "key list",
        "key create --user me@example.com --name laptop",
        "key create --user someone.else@example.com --expires 24h",
        "key list",
        "connection list",
        "user remove someone.else@example.com",
    ] {
        all.push_str(&format!("$ bellbird {line}\n{}\n", redacted(&place.text(line))));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_accepted() {
    let place = Place::new();
    for (line, says) in [
        ("", "Usage: bellbird"),
        ("fly", "unrecognized subcommand 'fly'"),
        ("user add --email me", "must be an e-mail address such as me@example.com"),
        ("user add --email me@example.com --plan gold", "[possible values: saver, developer, professional]"),
        ("user add --email me@example.com --timezone Sydney", "must be an IANA timezone such as Australia/Sydney"),
        ("user show", "required arguments were not provided"),
        ("user set me@example.com", "<--plan <PLAN>|--timezone <TZ>|--no-timezone>"),
        ("key create --user me@example.com --expires 5", "must be a whole number and a unit: 30s, 15m, 24h or 90d"),
        ("key create --user me@example.com --expires 0s", "must be longer than 0"),
        ("key rotate laptop", "not a hyphenated UUID"),
        ("serve --api-listen 8080", "invalid socket address"),
        ("serve --log-level loud", "[possible values: error, warn, info, debug, trace]"),
        ("demo --rows 0", "0 is not in 1..=1000000"),
        ("sandbox --akahu-listen 8091", "invalid socket address"),
        ("connection adopt --user me@example.com --provider acme --grant -", "[possible values: "),
    ] {
        let error = place.error(line, 2);
        assert!(error.contains(says), "{line}: {error}");
    }
}

#[test]
fn failures_end_with_1_and_say_what_to_do() {
    let mut place = Place::new();
    assert_eq!(
        place.error("user list", 1),
        "error: the database is not set up for this version: run `bellbird migrate`"
    );
    assert_eq!(
        place.error("serve", 1),
        "error: secrets.key is not set, and the tokens of providers are stored only under it: make one with \
         `head -c 32 /dev/urandom | base64`, set it as BELLBIRD_SECRETS__KEY=main:THE_OUTPUT, and keep it"
    );
    assert!(
        place
            .error("user list --config nowhere.toml", 1)
            .starts_with("error: the settings file nowhere.toml cannot be read")
    );
    place.set("BELLBIRD_SECRETS__KEY", "main:c2hvcnQ=");
    assert_eq!(
        place.error("serve", 1),
        "error: secrets.key cannot be used: sealing key number 1 must be base64 of exactly 32 bytes after its id"
    );
    place.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    assert_eq!(
        place.error("serve", 1),
        "error: fiskil.client_id is not set, though other credentials of fiskil are: set BELLBIRD_FISKIL__CLIENT_ID, or \
         take those away"
    );
    place.set("BELLBIRD_API__LISTNE", "127.0.0.1:1");
    assert!(place.error("serve", 1).starts_with("error: unknown setting `api.listne` in the environment variable"));
}

#[test]
fn a_port_that_is_taken_is_named_with_the_setting_that_chose_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = format!("demo --api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen {address}");
    assert_eq!(
        Place::new().error(&line, 1),
        format!(
            "error: ops cannot listen on {address} (as the flag --ops-listen says): something else listens there \
             already, perhaps another Bellbird"
        )
    );
}

#[test]
fn a_grant_is_checked_before_anybody_is_asked() {
    let mut place = Place::migrated();
    place.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    place.json("user add --email me@example.com");
    for (input, options, says) in [
        (
            "nonsense with s3cret",
            "--provider fiskil",
            "the grant is not a JSON object: `bellbird connection adopt --help` shows",
        ),
        (
            "[\"s3cret\"]",
            "--provider fiskil",
            "the grant is not a JSON object: `bellbird connection adopt --help` shows",
        ),
        ("{\"endUserId\": \"s3cret\"}", "", "the grant does not name its provider: say it with --provider"),
        ("{\"provider\": \"akahu\"}", "--provider fiskil", "the grant is for the provider akahu, not for fiskil"),
        ("{\"endUserId\": \"s3cret\"}", "--provider fiskil", "the provider fiskil is not configured here: set its"),
        ("{\"provider\": \"akahu\", \"userToken\": \"s3cret\"}", "", "the provider akahu is not configured here: set"),
    ] {
        let output =
            place.run_with_input(&format!("connection adopt --user me@example.com --grant - {options}"), input);
        assert_eq!(output.status.code(), Some(1));
        let error = errors(&output);
        assert!(error.starts_with(&format!("error: {says}")) && !error.contains("s3cret"), "{error}");
    }
    let error = place.error("connection adopt --user me@example.com --grant nowhere.json", 1);
    assert!(error.starts_with("error: the grant cannot be read from nowhere.json: No such file"), "{error}");
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let mut place = Place::new();
    let free = "--api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen 127.0.0.1:0";
    let verdicts = |place: &Place, code: i32| {
        let output = place.run(&format!("doctor --json {free}"));
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["ok"], json!(code == 0));
        let wrong = report["checks"].as_array().unwrap().iter().filter(|check| check["verdict"] == "wrong");
        wrong.map(|check| check["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&place, 1), ["secrets.key", "database"]);
    assert!(place.folder.path().read_dir().unwrap().next().is_none(), "the doctor made something");
    place.set("BELLBIRD_SECRETS__KEY", "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    place.json("migrate");
    assert_eq!(verdicts(&place, 0), [""; 0]);
    let text = place.text(&format!("doctor {free}"));
    insta::assert_snapshot!(without_providers(&text));
    place.set("BELLBIRD_FISKIL__CLIENT_ID", "id");
    assert_eq!(verdicts(&place, 1), ["providers"]);
    place.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    place.set("BELLBIRD_FISKIL__BASE_URL", "http://127.0.0.1:1");
    assert_eq!(verdicts(&place, 1), ["fiskil"]);
    place.set("BELLBIRD_READS__ROW_CAP", "0");
    assert_eq!(verdicts(&place, 1), ["settings"]);
}

#[test]
fn documents_and_scripts_are_printed() {
    let place = Place::new();
    let document: Value = serde_json::from_str(&place.text("openapi")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(place.text("openapi --yaml").lines().any(|line| line.starts_with("openapi:")));
    assert!(place.text("completions bash").contains("complete -F _bellbird"));
}
