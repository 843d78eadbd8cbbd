//! Commands that end by themselves.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::process::{ANY_PORTS, MASTER_KEY, RunningCommand, Workdir, errors, text};

fn names(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Replaces ids, times and keys by values of the same length, so that columns stay aligned.
fn redacted(text: &str) -> String {
    let mut result = text.to_owned();
    for word in text
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',']))
    {
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

pub(super) fn without_folder(text: &str, workdir: &Workdir) -> String {
    text.replace(&workdir.path().display().to_string(), "FOLDER")
}

#[test]
fn help_texts() {
    let workdir = Workdir::new();
    let commands = [
        "",
        "demo",
        "serve",
        "init",
        "sandbox",
        "migrate",
        "status",
        "ready",
        "doctor",
        "audit",
        "record",
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
        "key show",
        "key rotate",
        "key revoke",
        "operator-key",
        "operator-key create",
        "operator-key list",
        "operator-key revoke",
        "operator-key audit",
        "simplefin",
        "simplefin revoke",
        "simplefin token",
        "connection",
        "connection link",
        "connection link-status",
        "connection import",
        "connection list",
        "connection show",
        "connection sync",
        "connection remove",
        "webhook",
        "webhook add",
        "webhook set",
        "webhook list",
        "webhook show",
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
        all.push_str(&format!(
            "==== bellbird {command}\n\n{}\n",
            workdir.text(&format!("{command} --help"))
        ));
    }
    insta::assert_snapshot!(without_providers(&all));
}

/// Replaces the list of providers, so that a new provider changes no snapshot.
pub(super) fn without_providers(text: &str) -> String {
    let names: Vec<&str> = bellbird_providers::registry::PROVIDERS
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    text.replace(&names.join(", "), "PROVIDERS")
}

#[test]
fn user_lifecycle() {
    let workdir = Workdir::migrated();
    let added =
        workdir.json("user add --email Me@Example.com --plan developer --timezone Australia/Perth");
    assert_eq!(
        names(&added),
        [
            "consoleSignIn",
            "createdAt",
            "email",
            "id",
            "isOperator",
            "plan",
            "reference",
            "timezone"
        ]
    );
    assert_eq!(added["email"], "Me@Example.com");
    assert_eq!(added["plan"], "developer");
    assert_eq!(workdir.json("user list"), json!([added]));
    for reference in [
        "me@example.com",
        "--user ME@example.com",
        added["id"].as_str().unwrap(),
    ] {
        assert_eq!(workdir.json(&format!("user show {reference}")), added);
    }
    let changed = workdir.json("user set me@example.com --plan saver --no-timezone");
    assert_eq!(changed["plan"], "saver");
    assert_eq!(changed["timezone"], Value::Null);
    assert_eq!(
        workdir.error("user add --email ME@example.com", 1),
        "error: the user ME@example.com already exists: change it with `bellbird user set ME@example.com`"
    );
    workdir.json("user add --email other@example.com");
    assert_eq!(
        workdir.error("user set me@example.com --email Other@example.com", 1),
        "error: another user has the e-mail address Other@example.com: `bellbird user list` shows all of them"
    );
    let named = workdir.json("user set other@example.com --reference customer-17");
    assert_eq!(named["reference"], "customer-17");
    assert_eq!(
        workdir.error("user set me@example.com --reference customer-17", 1),
        "error: another user has this reference: `bellbird user list --json` shows all of them"
    );
    assert_eq!(
        workdir.json("user set other@example.com --no-reference")["reference"],
        Value::Null
    );
    assert_eq!(added["isOperator"], false);
    for (flag, is_operator) in [
        ("--operator", true),
        ("--plan saver", true),
        ("--no-operator", false),
    ] {
        let changed = workdir.json(&format!("user set other@example.com {flag}"));
        assert_eq!(changed["isOperator"], is_operator, "{flag}");
    }
    workdir.error("user set other@example.com --operator --no-operator", 2);
    assert_eq!(
        workdir.json("user set other@example.com --no-console-sign-in")["consoleSignIn"],
        false
    );
    assert_eq!(
        workdir.json("user set other@example.com --console-sign-in")["consoleSignIn"],
        true
    );
    workdir.json("user remove other@example.com");
    let moved = workdir.json("user set me@example.com --email new@example.com");
    assert_eq!(
        (&moved["email"], &moved["id"], &moved["plan"]),
        (&json!("new@example.com"), &added["id"], &json!("saver"))
    );
    workdir.json("user set new@example.com --email Me@Example.com");
    assert_eq!(workdir.json("user remove me@example.com"), changed);
    assert_eq!(workdir.json("user list"), json!([]));
    assert_eq!(
        workdir.error("user show me@example.com", 1),
        "error: there is no user me@example.com: `bellbird user list` shows all of them"
    );
}

#[test]
fn key_lifecycle() {
    let workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let made = workdir.json("key create --user me@example.com --name laptop --expires 90d");
    assert_eq!(
        names(&made),
        [
            "createdAt",
            "expiresAt",
            "id",
            "key",
            "name",
            "prefix",
            "user"
        ]
    );
    let key = made["key"].as_str().unwrap();
    assert!(
        bellbird_domain::ApiKey::parse(key).is_ok()
            && key.starts_with(made["prefix"].as_str().unwrap())
    );
    let hours_valid = |key: &Value| {
        let at = |name: &str| key[name].as_str().unwrap().parse::<Timestamp>().unwrap();
        at("expiresAt").duration_since(at("createdAt")).as_hours()
    };
    assert_eq!(hours_valid(&made), 90 * 24);

    let id = made["id"].as_str().unwrap();
    let rotated = workdir.json(&format!("key rotate {id} --grace 1h"));
    let added = ["oldKeyExpiresAt", "oldKeyId"];
    assert_eq!(
        names(&rotated)
            .into_iter()
            .filter(|name| !added.contains(name))
            .collect::<Vec<_>>(),
        names(&made)
    );
    assert_eq!(rotated["oldKeyId"], made["id"]);
    assert_eq!(rotated["expiresAt"], made["expiresAt"]);
    assert_eq!(rotated["name"], "laptop");
    assert_ne!(rotated["key"], made["key"]);
    let list = workdir.json("key list --user me@example.com");
    assert_eq!(hours_valid(&list[0]), 1, "the grace period");
    assert_eq!(list[0]["status"], "active");
    assert_eq!(list[1]["status"], "active");

    workdir.json(&format!("key rotate {id} --grace 0s"));
    assert_eq!(workdir.json("key list")[0]["status"], "expired");
    let error = workdir.error(&format!("key rotate {id}"), 1);
    assert_eq!(
        error,
        format!("error: the key {id} is expired: create a new one with `bellbird key create`")
    );

    let revoked = workdir.json(&format!("key revoke {}", rotated["id"].as_str().unwrap()));
    assert_eq!(revoked["status"], "revoked");
    assert_eq!(revoked["user"], "me@example.com");
    assert_eq!(workdir.json(&format!("key show {id}"))["status"], "expired");
    let unknown_id = Uuid::nil();
    assert_eq!(
        workdir.error(&format!("key revoke {unknown_id}"), 1),
        format!("error: there is no key {unknown_id}: `bellbird key list` shows the ids")
    );
    assert!(!workdir.text("key list").contains(key));
    workdir.json("user remove me@example.com");
    assert_eq!(workdir.json("key list"), json!([]));
}

#[test]
fn operator_key_lifecycle() {
    let workdir = Workdir::migrated();
    assert!(
        workdir
            .text("operator-key list")
            .starts_with("No operator keys yet.")
    );
    let made = workdir.json("operator-key create --name backend --expires 90d");
    assert_eq!(
        names(&made),
        ["createdAt", "expiresAt", "id", "key", "name", "prefix"]
    );
    let (id, key) = (text(&made, "id"), text(&made, "key"));
    assert!(
        bellbird_domain::OperatorKey::parse(key).is_ok() && key.starts_with(text(&made, "prefix"))
    );
    let listed = workdir.json("operator-key list");
    assert_eq!(
        (&listed[0]["id"], &listed[0]["status"]),
        (&made["id"], &json!("active"))
    );
    assert!(!listed.to_string().contains(key));
    assert_eq!(
        workdir.json(&format!("operator-key revoke {id}"))["status"],
        "revoked"
    );
    let audit = workdir.text("operator-key audit");
    assert!(
        audit.contains("operator_key.revoke") && audit.contains("command of "),
        "{audit}"
    );
    let unknown_id = Uuid::nil();
    assert_eq!(
        workdir.error(&format!("operator-key revoke {unknown_id}"), 1),
        format!(
            "error: there is no operator key {unknown_id}: `bellbird operator-key list` shows the ids"
        )
    );
}

#[test]
fn sign_in_link_names_the_console() {
    let mut workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    for (public_url, root) in [
        ("", "http://127.0.0.1:8081"),
        ("https://bank.example.com/x/", "https://bank.example.com/x"),
    ] {
        workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", public_url);
        let printed = workdir.json("console login --user me@example.com");
        let token = printed["url"]
            .as_str()
            .unwrap()
            .strip_prefix(&format!("{root}/sign-in/"))
            .expect("the console's URL");
        assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    assert_eq!(
        workdir.json("console forget-identity --user me@example.com")["forgotten"],
        0
    );
    for command in ["login", "forget-identity"] {
        workdir.error(&format!("console {command} --user nobody@example.com"), 1);
    }
}

#[test]
fn setup_token_names_the_api() {
    let mut workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let claim_url = |workdir: &Workdir, arguments: &str| {
        let printed = workdir.json(arguments);
        assert_eq!(names(&printed), ["expiresAt", "token"]);
        let expires_at: Timestamp = printed["expiresAt"].as_str().unwrap().parse().unwrap();
        assert_eq!(expires_at.duration_since(Timestamp::now()).as_mins(), 59);
        String::from_utf8(STANDARD.decode(printed["token"].as_str().unwrap()).unwrap()).unwrap()
    };
    let url = claim_url(
        &workdir,
        "simplefin token --user me@example.com --name Actual",
    );
    let token = url
        .strip_prefix("http://127.0.0.1:8080/simplefin/claim/")
        .expect("the listener's URL");
    assert!(bellbird_domain::SetupToken::parse(token).is_ok());
    workdir.set("BELLBIRD_API__PUBLIC_URL", "https://bank.example.com/x/");
    let url = claim_url(&workdir, "simplefin token --user me@example.com");
    assert!(
        url.starts_with("https://bank.example.com/x/simplefin/claim/bbst"),
        "{}",
        &url[..40]
    );
    workdir.set("BELLBIRD_API__PUBLIC_URL", "");
    workdir.set("BELLBIRD_API__LISTEN", "127.0.0.1:0");
    assert_eq!(
        workdir.error("simplefin token --user me@example.com", 1),
        "error: the token needs the URL of the API: set api.public_url, or start the service first"
    );
    assert_eq!(
        workdir.json("key list"),
        json!([]),
        "a key comes with the claim"
    );
    assert_eq!(
        workdir.json("simplefin revoke --user me@example.com"),
        json!({"revoked": 2})
    );
    assert_eq!(
        workdir.json("simplefin revoke --user me@example.com"),
        json!({"revoked": 0})
    );
}

#[test]
fn key_is_found_by_its_name() {
    let workdir = Workdir::migrated();
    for user in ["me@example.com", "other@example.com"] {
        workdir.json(&format!("user add --email {user}"));
        workdir.json(&format!("key create --user {user} --name laptop"));
    }
    let sheet = workdir.json("key create --user me@example.com --name sheet");
    assert_eq!(sheet["user"], "me@example.com");
    let second = workdir.run("key create --user me@example.com --name sheet");
    let said = errors(&second);
    assert_eq!(
        said.split_once('\n').unwrap().1,
        "me@example.com now has 2 active keys with the name sheet, so `key rotate` and `key revoke` need the id of the \
         one that you mean\n"
    );
    workdir.json(&format!("key revoke {}", text(&sheet, "id")));
    let shown = workdir.json("key show sheet");
    assert_eq!(
        (&shown["name"], &shown["user"], &shown["status"]),
        (&json!("sheet"), &json!("me@example.com"), &json!("active"))
    );
    let error = workdir.error("key revoke laptop", 1);
    assert!(
        error.starts_with("error: 2 active keys have the name laptop: pass an id instead ("),
        "{error}"
    );
    for key in workdir
        .json("key list")
        .as_array()
        .unwrap()
        .iter()
        .filter(|key| key["name"] == "laptop")
    {
        assert!(
            error.contains(&format!("{} of {}", text(key, "id"), text(key, "user"))),
            "{error}"
        );
    }
    let revoked = workdir.json("key revoke laptop --user other@example.com");
    assert_eq!(
        (&revoked["user"], &revoked["status"]),
        (&json!("other@example.com"), &json!("revoked"))
    );
    let revoked = workdir.json("key revoke laptop");
    assert_eq!(
        revoked["user"], "me@example.com",
        "the other one is revoked already"
    );
    assert_eq!(
        workdir.error("key rotate laptop", 1),
        "error: no key laptop is active: `bellbird key list` shows the ids of the others"
    );
    assert_eq!(
        workdir.error("key revoke desktop", 1),
        "error: there is no key desktop: `bellbird key list` shows names and ids"
    );
    let rotated = workdir.json("key rotate sheet --grace 0s");
    assert_eq!(
        workdir.json("key show sheet")["id"],
        rotated["id"],
        "the old one has expired"
    );
}

#[test]
fn human_readable_output() {
    let workdir = Workdir::migrated();
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
        "key show laptop",
        "user remove someone.else@example.com --dry-run",
        "user remove someone.else@example.com --yes",
    ] {
        let text = match line.starts_with("key create") {
            true => {
                let (key, advice) = workdir.secret(line);
                format!("{key}\n\n{advice}")
            }
            false => workdir.text(line),
        };
        all.push_str(&format!("$ bellbird {line}\n{}\n", redacted(&text)));
    }
    let all = without_folder(&all, &workdir);
    insta::assert_snapshot!(all);
}

/// So that `KEY=$(bellbird key create ...)` is the key.
#[test]
fn secrets_are_alone_on_standard_output() {
    let mut workdir = Workdir::migrated();
    for (name, value) in [
        ("SECRETS__KEY", MASTER_KEY),
        ("WEBHOOKS__ALLOW_LOOPBACK", "true"),
        ("FISKIL__CLIENT_ID", "x"),
        ("FISKIL__CLIENT_SECRET", "x"),
    ] {
        workdir.set(&format!("BELLBIRD_{name}"), value);
    }
    workdir.json("user add --email me@example.com");
    let endpoint = text(
        &workdir.json("webhook add --user me@example.com --url http://127.0.0.1:8099/a"),
        "id",
    )
    .to_owned();
    for (line, prefix, advice) in [
        (
            "key create --user me@example.com --name one",
            "bb_",
            "Store this key: it is not shown again.",
        ),
        (
            "key rotate one --user me@example.com",
            "bb_",
            "Store this key: it is not shown again.",
        ),
        (
            "operator-key create --name one",
            "bbo_",
            "Store this key: it is not shown again.",
        ),
        (
            "webhook add --user me@example.com --url http://127.0.0.1:8099/b",
            "whsec_",
            "Next: bellbird webhook ping ",
        ),
        (
            &format!("webhook rotate-secret {endpoint}"),
            "whsec_",
            "The old one stays valid until ",
        ),
        (
            "simplefin token --user me@example.com",
            "",
            "Paste this token into the program within an hour",
        ),
        (
            "console login --user me@example.com",
            "http://",
            "Open this link in a browser within ten minutes",
        ),
        (
            "connection link --user me@example.com",
            "http://",
            "Open this URL in a browser within 30 minutes",
        ),
    ] {
        let (secret, said) = workdir.secret(line);
        assert!(
            secret.starts_with(prefix) && said.contains(advice),
            "{line}: {secret} {said}"
        );
        assert!(!said.contains(&secret), "{line}: {said}");
    }
}

/// A database that was deleted while nothing ran. The service must not bury it under an empty one.
#[test]
fn service_does_not_replace_a_database_that_is_gone() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
    let (_, _, log) = service.stop("-TERM");
    assert!(log.contains("new, empty database made"), "{log}");
    let file = workdir.path().join("bellbird.db");
    for empty in [false, true] {
        std::fs::remove_file(&file).unwrap();
        if empty {
            std::fs::write(&file, "").unwrap();
        }
        let error = workdir.error("serve", 1);
        assert!(
            error.contains("is gone, though a service has run on it"),
            "{error}"
        );
        assert!(
            error.contains("restore a backup with `bellbird restore`"),
            "{error}"
        );
        workdir.json("migrate");
    }
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
    let (status, _, log) = service.stop("-TERM");
    assert!(
        status == Some(0) && !log.contains("new, empty database"),
        "{log}"
    );
}

/// Root may prepare the folder of a service.
#[test]
fn new_database_belongs_to_the_user_of_its_folder() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    let workdir = Workdir::new();
    // Only root can give the folder away.
    let _ = chown(workdir.path(), Some(65_534), Some(65_534));
    let owner = std::fs::metadata(workdir.path()).unwrap().uid();
    workdir.json("migrate");
    assert_eq!(
        std::fs::metadata(workdir.path().join("bellbird.db"))
            .unwrap()
            .uid(),
        owner
    );
}

/// The text of SQLite's error holds the whole statement.
#[test]
fn failed_migration_is_one_line() {
    let workdir = Workdir::migrated();
    let database = rusqlite::Connection::open(workdir.path().join("bellbird.db")).unwrap();
    database
        .execute_batch("DELETE FROM schema_migrations")
        .unwrap();
    drop(database);
    let error = workdir.error("migrate", 1);
    assert!(
        error.lines().count() == 1 && !error.contains("CREATE TABLE"),
        "{error}"
    );
}

#[test]
fn wrong_usage_exits_with_2_and_explains() {
    let workdir = Workdir::new();
    for (line, message) in [
        ("", "Usage: bellbird"),
        ("fly", "unrecognized subcommand 'fly'"),
        (
            "user add --email me",
            "must be an e-mail address such as me@example.com",
        ),
        (
            "user add --email me@example.com --plan gold",
            "[possible values: saver, developer, professional]",
        ),
        (
            "user add --email me@example.com --timezone Sydney",
            "must be an IANA timezone such as Australia/Sydney",
        ),
        ("user show", "required arguments were not provided"),
        (
            "user set me@example.com",
            "<--email <EMAIL>|--plan <PLAN>|--timezone <TZ>|--no-timezone|--reference <REFERENCE>",
        ),
        (
            "key create --user me@example.com --expires 5",
            "must be a whole number and a unit: 30s, 15m, 24h or 90d",
        ),
        (
            "key create --user me@example.com --expires 0s",
            "must be longer than 0",
        ),
        ("connection sync", "<ID|--user <USER>|--all>"),
        (
            "connection sync --all --user me@example.com x",
            "`bellbird connection list` shows the ids",
        ),
        ("connection link", "<--user <USER>|--reconnect <ID>>"),
        (
            "connection show laptop",
            "must be an id: `bellbird connection list` shows the ids",
        ),
        (
            "webhook ping laptop",
            "must be an id: `bellbird webhook list` shows the ids",
        ),
        (
            "serve --api-listen :8080",
            "must be an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080",
        ),
        (
            "serve --log-level loud",
            "[possible values: error, warn, info, debug, trace]",
        ),
        ("demo --rows 0", "0 is not in 1..=1000000"),
        (
            "sandbox --akahu-listen 8091",
            "must be an IP address and a port",
        ),
        (
            "connection import --user me@example.com --provider acme --credentials -",
            "[possible values: ",
        ),
    ] {
        let error = workdir.error(line, 2);
        assert!(error.contains(message), "{line}: {error}");
    }
}

#[test]
fn failures_exit_with_1_and_explain() {
    let mut workdir = Workdir::new();
    let file = workdir.path().join("bellbird.db");
    assert_eq!(
        workdir.error("user list", 1),
        format!(
            "error: the SQLite database {} does not exist: is this the right folder, and database.url right (not set, \
             and this folder has no bellbird.toml)? If there was a database, restore a backup with `bellbird restore`. \
             For a new one, run `bellbird migrate`",
            file.display()
        )
    );
    std::fs::write(&file, "").unwrap();
    assert_eq!(
        workdir.error("user list", 1),
        format!(
            "error: the SQLite database {} is empty: is this the right folder, and database.url right (not set, and \
             this folder has no bellbird.toml)? If there was a database, restore a backup with `bellbird restore`. For \
             a new one, run `bellbird migrate`",
            file.display()
        )
    );
    assert_eq!(
        workdir.error("serve", 1),
        "error: secrets.key is not set, and stored secrets are encrypted with it: generate a key with \
         `head -c 32 /dev/urandom | base64`, write main:THE_OUTPUT into a file, name that in secrets.key_file, and \
         keep a copy"
    );
    assert!(
        workdir
            .error("user list --config nowhere.toml", 1)
            .starts_with("error: the settings file nowhere.toml cannot be read")
    );
    workdir.set("BELLBIRD_SECRETS__KEY", "main:c2hvcnQ=");
    assert_eq!(
        workdir.error("serve", 1),
        "error: secrets.key in the environment variable BELLBIRD_SECRETS__KEY cannot be used: master key number 1 must \
         be base64 of exactly 32 bytes after its id"
    );
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    assert_eq!(
        workdir.error("serve", 1),
        "error: fiskil.client_id is not set, but other credentials of fiskil are: set BELLBIRD_FISKIL__CLIENT_ID, \
         or remove the others"
    );
    workdir.set("BELLBIRD_API__LISTNE", "127.0.0.1:1");
    assert!(
        workdir
            .error("serve", 1)
            .starts_with("error: unknown setting `api.listne` in the environment variable")
    );
}

/// Every command but those that are for it.
#[test]
fn no_command_creates_a_database() {
    let mut workdir = Workdir::new();
    workdir.set(
        "BELLBIRD_SECRETS__KEY",
        "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    );
    let id = Uuid::nil();
    for line in [
        "user list".to_owned(),
        "user add --email me@example.com".to_owned(),
        "user remove me@example.com --yes".to_owned(),
        "key list".to_owned(),
        "key create --user me@example.com --name laptop".to_owned(),
        "backup backup.db".to_owned(),
        "restore --decide".to_owned(),
        "connection list".to_owned(),
        "connection link --user me@example.com".to_owned(),
        "connection sync --all".to_owned(),
        format!("connection remove {id} --yes"),
        "webhook list".to_owned(),
        format!("webhook ping {id}"),
        "secrets rotate".to_owned(),
    ] {
        let error = workdir.error(&line, 1);
        assert!(
            error.contains("bellbird.db does not exist: is this the right folder"),
            "{line}: {error}"
        );
        assert_eq!(
            workdir.folder.path().read_dir().unwrap().count(),
            0,
            "{line}"
        );
    }
}

#[test]
fn failure_is_one_json_value_too() {
    let workdir = Workdir::migrated();
    let failure = |line: &str, code: i32| {
        let output = workdir.run(line);
        assert_eq!(output.status.code(), Some(code), "{line}");
        let (printed, said) = (String::from_utf8_lossy(&output.stdout), errors(&output));
        assert_eq!(printed.lines().count(), 1, "{line}: {printed}");
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(names(&printed), ["error"], "{line}");
        assert!(
            said.starts_with("error: ") || said.contains("Usage: "),
            "{line}: {said}"
        );
        printed["error"].clone()
    };
    let no_user = json!({"message": "there is no user me@x: `bellbird user list` shows all of them", "code": "not_found"});
    for line in [
        "user show me@x --json",
        "user --json show me@x",
        "--json user show me@x",
    ] {
        assert_eq!(failure(line, 1), no_user, "{line}");
    }
    assert_eq!(
        failure("serve --json", 1)["message"]
            .as_str()
            .unwrap()
            .lines()
            .count(),
        1
    );
    assert_eq!(
        failure("connection sync --json", 2),
        json!({"message": "the following required arguments were not provided: <ID|--user <USER>|--all>"})
    );
    assert_eq!(
        failure("fly --json", 2),
        json!({"message": "unrecognized subcommand 'fly'"})
    );
    assert_eq!(
        failure("--json key", 2),
        json!({"message": "a command is missing: see `bellbird key --help`"})
    );
    let several = failure("user list --json --config nowhere.toml", 1);
    assert!(
        several["message"]
            .as_str()
            .unwrap()
            .starts_with("the settings file nowhere.toml cannot be read")
    );
    std::fs::write(
        workdir.folder.path().join("bellbird.toml"),
        "[api]\nlisten = 1\n[log]\nlevel = \"loud\"\n",
    )
    .unwrap();
    let several = failure("user list --json", 1);
    assert_eq!(several["details"].as_array().unwrap().len(), 2, "{several}");
    assert!(
        several["message"]
            .as_str()
            .unwrap()
            .contains("; log.level is `loud`"),
        "{several}"
    );
    // Without `--json`: nothing on standard output.
    workdir.error("user list", 1);
    workdir.error("fly", 2);
}

#[test]
fn json_belongs_before_or_after_the_command() {
    let workdir = Workdir::migrated();
    let users = workdir.run("--json user list");
    assert_eq!(
        (users.status.code(), users.stdout.as_slice()),
        (Some(0), &b"[]\n"[..])
    );
    let script: String = serde_json::from_value(workdir.json("completions bash")).unwrap();
    assert_eq!(script, workdir.text("completions bash"));
}

#[test]
fn database_errors_name_the_server_and_no_password() {
    let mut workdir = Workdir::new();
    workdir.set(
        "BELLBIRD_DATABASE__URL",
        "postgres://me:hunter2@127.0.0.1:1/bellbird",
    );
    assert_eq!(
        workdir.error("user list", 1),
        "error: could not open the PostgreSQL database bellbird at 127.0.0.1, port 1 (connection refused): start the \
         server, or correct database.url (set by the environment variable BELLBIRD_DATABASE__URL)"
    );
    workdir.set(
        "BELLBIRD_DATABASE__URL",
        "postgres://me:hunter2@127.0.0.1:port/bellbird",
    );
    let error = workdir.error("migrate", 1);
    assert!(error.starts_with(
        "error: database.url (set by the environment variable BELLBIRD_DATABASE__URL) cannot be"
    ));
    assert!(!error.contains("hunter2"), "{error}");
    workdir.set("BELLBIRD_DATABASE__URL", "sqlite:nowhere/b.db");
    let folder = workdir.path().join("nowhere");
    let error = workdir.error("migrate", 1);
    assert!(
        error.contains(&format!(
            "(the folder {} does not exist): create the folder",
            folder.display()
        )),
        "{error}"
    );
}

#[test]
fn removing_asks() {
    let workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    workdir.json("key create --user me@example.com");
    assert_eq!(
        workdir.error("user remove me@example.com", 2),
        "error: removing needs a confirmation, and standard input is no terminal: pass --yes to remove, or --dry-run \
         to see what would be removed"
    );
    let planned = workdir.json("user remove me@example.com --dry-run");
    assert_eq!(
        (&planned["keys"], &planned["endpoints"], &planned["dryRun"]),
        (&json!(1), &json!(0), &json!(true))
    );
    assert_eq!(workdir.json("user list").as_array().unwrap().len(), 1);
    for (answer, is_removed) in [("n", false), ("", false), ("y", true)] {
        let mut terminal = on_terminal(&workdir, "user remove me@example.com");
        terminal
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{answer}\n").as_bytes())
            .unwrap();
        let output = terminal.wait_with_output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            shown.contains("API keys           1") && shown.contains("Remove this? [y/N] "),
            "{shown}"
        );
        assert_eq!(
            shown.contains("error: nothing was removed"),
            !is_removed,
            "{shown}"
        );
        assert_eq!(output.status.success(), is_removed, "{shown}");
        assert_eq!(
            workdir.json("user list").as_array().unwrap().is_empty(),
            is_removed
        );
    }
}

/// Runs a command on a terminal, with `script` of util-linux. Its standard input is what is typed.
fn on_terminal(workdir: &Workdir, line: &str) -> std::process::Child {
    let mut command = std::process::Command::new("script");
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_bellbird"));
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(workdir.folder.path());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().expect("script of util-linux")
}

#[test]
fn all_occupied_ports_are_named_at_once() {
    let taken = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [api, console, ops] = taken
        .each_ref()
        .map(|listener| listener.local_addr().unwrap());
    let error = Workdir::new().error(
        &format!("demo --api-listen {api} --console-listen {console} --ops-listen {ops}"),
        1,
    );
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    for (line, (name, address)) in
        lines
            .iter()
            .zip([("api", api), ("console", console), ("ops", ops)])
    {
        assert!(
            line.starts_with(&format!(
                "error: {name} cannot listen on {address} (set by the flag"
            )),
            "{line}"
        );
    }
}

#[test]
fn occupied_port_error_names_its_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let line = format!(
        "demo --api-listen 127.0.0.1:0 --console-listen 127.0.0.1:0 --ops-listen {address}"
    );
    assert_eq!(
        Workdir::new().error(&line, 1),
        format!(
            "error: ops cannot listen on {address} (set by the flag --ops-listen): another process uses this \
             port, perhaps another Bellbird"
        )
    );
}

#[test]
fn credentials_are_checked_before_any_call() {
    let mut workdir = Workdir::migrated();
    workdir.set(
        "BELLBIRD_SECRETS__KEY",
        "main:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    );
    workdir.json("user add --email me@example.com");
    for (input, options, message) in [
        (
            "nonsense with s3cret",
            "--provider fiskil",
            "the credentials are not a JSON object: see the example in",
        ),
        (
            "[\"s3cret\"]",
            "--provider fiskil",
            "the credentials are not a JSON object: see the example in",
        ),
        (
            "{\"endUserId\": \"s3cret\"}",
            "",
            "the credentials do not name their provider: pass it with --provider",
        ),
        (
            "{\"provider\": \"akahu\"}",
            "--provider fiskil",
            "the credentials are for the provider akahu, not for fiskil",
        ),
        (
            "{\"endUserId\": \"s3cret\"}",
            "--provider fiskil",
            "the provider fiskil is not configured here: set its",
        ),
        (
            "{\"provider\": \"akahu\", \"userToken\": \"s3cret\"}",
            "",
            "the provider akahu is not configured here: set",
        ),
    ] {
        let output = workdir.run_with_input(
            &format!("connection import --user me@example.com --credentials - {options}"),
            input,
        );
        assert_eq!(output.status.code(), Some(1));
        let error = errors(&output);
        assert!(
            error.starts_with(&format!("error: {message}")) && !error.contains("s3cret"),
            "{error}"
        );
    }
    let error = workdir.error(
        "connection import --user me@example.com --credentials nowhere.json",
        1,
    );
    assert!(
        error.starts_with("error: the credentials cannot be read from nowhere.json: No such file"),
        "{error}"
    );
}

#[test]
fn documents_and_scripts_are_printed() {
    let workdir = Workdir::new();
    let document: Value = serde_json::from_str(&workdir.text("openapi")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(
        workdir
            .text("openapi --yaml")
            .lines()
            .any(|line| line.starts_with("openapi:"))
    );
    assert!(
        workdir
            .text("completions bash")
            .contains("complete -F _bellbird")
    );
    workdir.text("man .");
    let page = |name: &str| std::fs::read_to_string(workdir.path().join(name));
    assert!(page("bellbird.1").unwrap().contains("bellbird\\-user(1)"));
    assert!(page("bellbird-user-add.1").unwrap().contains("timezone"));
    assert!(
        page("bellbird-man.1").is_err(),
        "a page of a hidden command"
    );
}
