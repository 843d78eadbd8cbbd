//! Commands that end by themselves.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::fields::assert_fields;
use crate::support::process::{Workdir, errors, names, text};
use crate::support::transcript::{Transcript, transcript};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

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
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for command in commands {
        let name = format!("bellbird {command}").trim_end().to_owned();
        let help = workdir.text(&format!("{command} --help"));
        all.push_str(&format!("==== {name}\n\n"));
        for section in sections(&help) {
            // What a command before has too, such as the settings, is there once.
            let first = shown.entry(section.clone()).or_insert_with(|| name.clone());
            if *first == name {
                all.push_str(&section);
            } else {
                let heading = section.lines().next().unwrap();
                all.push_str(&format!("{heading} as in `{first}`"));
            }
            all.push_str("\n\n");
        }
    }
    insta::assert_snapshot!(without_providers(&all));
}

/// The sections of a help text. Each begins with a line that is not indented.
fn sections(help: &str) -> Vec<String> {
    let mut sections: Vec<String> = Vec::new();
    for paragraph in help.trim_end().split("\n\n") {
        match sections.last_mut() {
            Some(section) if paragraph.starts_with(' ') => {
                section.push_str("\n\n");
                section.push_str(paragraph);
            }
            _ => sections.push(paragraph.to_owned()),
        }
    }
    sections
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
    let mut all = Transcript::new(&workdir);
    let add = "user add --email Me@Example.com --plan developer --timezone Australia/Perth";
    let id = text(&all.json(add), "id").to_owned();
    all.json("user list");
    let added = all.json("user show me@example.com");
    for reference in ["--user ME@example.com", &id] {
        assert_eq!(workdir.json(&format!("user show {reference}")), added);
    }
    all.json("user set me@example.com --plan saver --no-timezone");
    all.run("user add --email ME@example.com");
    workdir.json("user add --email other@example.com");
    for line in [
        "user set me@example.com --email Other@example.com",
        "user set other@example.com --reference customer-17",
        "user set me@example.com --reference customer-17",
        "user list",
        "user set other@example.com --no-reference",
        "user set other@example.com --operator",
        "user set other@example.com --plan saver",
        "user set other@example.com --no-operator",
        "user set other@example.com --operator --no-operator",
        "user set other@example.com --no-console-sign-in",
        "user set other@example.com --console-sign-in",
        "user remove other@example.com --json",
        "user set me@example.com --email new@example.com",
        "user set new@example.com --email Me@Example.com",
        "user remove me@example.com --json",
        "user list",
        "user show me@example.com",
    ] {
        all.run(line);
    }
    insta::assert_snapshot!(all.finish());
}

#[test]
fn key_lifecycle() {
    let workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let mut all = Transcript::new(&workdir);
    let made = all.json("key create --user me@example.com --name laptop --expires 90d");
    let key = text(&made, "key");
    assert!(bellbird_domain::ApiKey::parse(key).is_ok() && key.starts_with(text(&made, "prefix")));
    let id = text(&made, "id");
    let rotated = all.json(&format!("key rotate {id} --grace 1h"));
    all.json("key list --user me@example.com");
    workdir.json(&format!("key rotate {id} --grace 0s"));
    all.run("key list");
    all.run(&format!("key rotate {id}"));
    all.json(&format!("key revoke {}", text(&rotated, "id")));
    all.json(&format!("key show {id}"));
    all.run(&format!("key revoke {}", Uuid::nil()));
    workdir.json("user remove me@example.com");
    all.json("key list");
    insta::assert_snapshot!(all.finish());
}

#[test]
fn operator_key_lifecycle() {
    let workdir = Workdir::migrated();
    let mut all = Transcript::new(&workdir);
    all.run("operator-key list");
    let made = all.json("operator-key create --name backend --expires 90d");
    let (id, key) = (text(&made, "id"), text(&made, "key"));
    assert!(
        bellbird_domain::OperatorKey::parse(key).is_ok() && key.starts_with(text(&made, "prefix"))
    );
    all.json("operator-key list");
    all.json(&format!("operator-key revoke {id}"));
    workdir.json("user add --email me@example.com --plan saver");
    workdir.json("user set me@example.com --plan developer");
    let audit = workdir.text("operator-key audit");
    for shown in [
        "operator_key.revoke",
        "command of ",
        "  me@example.com  ",
        "plan: saver → developer",
    ] {
        assert_has(&audit, shown);
    }
    all.run(&format!("operator-key revoke {}", Uuid::nil()));
    insta::assert_snapshot!(all.finish());
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
        let url = workdir.field("console login --user me@example.com", "url");
        let token = url.strip_prefix(&format!("{root}/sign-in/"));
        let token = token.expect("the console's URL");
        assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    let printed = workdir.json("console forget-identity --user me@example.com");
    assert_eq!(printed["forgotten"], 0);
    for command in ["login", "forget-identity"] {
        workdir.error(&format!("console {command} --user nobody@example.com"), 1);
    }
}

#[test]
fn setup_token_names_the_api() {
    let mut workdir = Workdir::migrated();
    workdir.json("user add --email me@example.com");
    let line = "simplefin token --user me@example.com";
    let claim_url = |workdir: &Workdir, options: &str| {
        let printed = workdir.json(&format!("{line}{options}"));
        assert_eq!(names(&printed), ["expiresAt", "token"]);
        let expires_at: Timestamp = text(&printed, "expiresAt").parse().unwrap();
        assert_eq!(expires_at.duration_since(Timestamp::now()).as_mins(), 59);
        let url = STANDARD.decode(text(&printed, "token")).unwrap();
        String::from_utf8(url).unwrap()
    };
    let url = claim_url(&workdir, " --name Actual");
    let token = url.strip_prefix("http://127.0.0.1:8080/simplefin/claim/");
    let token = token.expect("the listener's URL");
    assert!(bellbird_domain::SetupToken::parse(token).is_ok());
    workdir.set("BELLBIRD_API__PUBLIC_URL", "https://bank.example.com/x/");
    let url = claim_url(&workdir, "");
    assert_starts(&url, "https://bank.example.com/x/simplefin/claim/bbst");
    workdir.set("BELLBIRD_API__PUBLIC_URL", "");
    workdir.set("BELLBIRD_API__LISTEN", "127.0.0.1:0");
    assert_eq!(
        workdir.error(line, 1),
        "error: the token needs the URL of the API: set api.public_url, or start the service first"
    );
    // A key comes with the claim.
    assert_eq!(workdir.json("key list"), json!([]));
    for revoked in [2, 0] {
        let printed = workdir.json("simplefin revoke --user me@example.com");
        assert_eq!(printed, json!({ "revoked": revoked }));
    }
}

#[test]
fn key_is_found_by_its_name() {
    let workdir = Workdir::migrated();
    for user in ["me@example.com", "other@example.com"] {
        workdir.json(&format!("user add --email {user}"));
        workdir.json(&format!("key create --user {user} --name laptop"));
    }
    let mut all = Transcript::new(&workdir);
    let sheet = all.json("key create --user me@example.com --name sheet");
    all.run("key create --user me@example.com --name sheet");
    workdir.json(&format!("key revoke {}", text(&sheet, "id")));
    for line in [
        "key show sheet",
        "key list",
        "key revoke laptop",
        "key revoke laptop --user other@example.com",
        "key revoke laptop",
        "key rotate laptop",
        "key revoke desktop",
        "key rotate sheet --grace 0s",
        "key show sheet",
    ] {
        all.run(line);
    }
    insta::assert_snapshot!(all.finish());
}

#[test]
fn human_readable_output() {
    let workdir = Workdir::migrated();
    let lines = [
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
    ];
    insta::assert_snapshot!(transcript(&workdir, &lines));
}

/// So that `KEY=$(bellbird key create ...)` is the key.
#[test]
fn secrets_are_alone_on_standard_output() {
    let mut workdir = Workdir::migrated_with_key();
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "x");
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "x");
    workdir.json("user add --email me@example.com");
    let add = "webhook add --user me@example.com --url http://127.0.0.1:8099";
    let endpoint = workdir.field(&format!("{add}/a"), "id");
    let store = "Store this key: it is not shown again.";
    for (line, prefix, advice) in [
        ("key create --user me@example.com --name one", "bb_", store),
        ("key rotate one --user me@example.com", "bb_", store),
        ("operator-key create --name one", "bbo_", store),
        (
            &format!("{add}/b"),
            "whsec_",
            "Next: `bellbird webhook ping ",
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
        assert_starts(&secret, prefix);
        assert_has(&said, advice);
        assert_lacks(&said, &secret);
    }
}

/// A database that was deleted while nothing ran. The service must not bury it under an empty one.
#[test]
fn service_does_not_replace_a_database_that_is_gone() {
    let workdir = Workdir::with_key();
    let service = workdir.start("serve");
    let (_, _, log) = service.stop("-TERM");
    assert_has(&log, "new, empty database made");
    let file = workdir.path().join("bellbird.db");
    for empty in [false, true] {
        std::fs::remove_file(&file).unwrap();
        if empty {
            std::fs::write(&file, "").unwrap();
        }
        let error = workdir.error("serve", 1);
        assert_has(&error, "is gone, though a service has run on it");
        assert_has(&error, "restore a backup with `bellbird restore`");
        workdir.json("migrate");
    }
    let service = workdir.start("serve");
    assert_lacks(&service.end(), "new, empty database");
}

/// Root may prepare the folder of a service.
#[test]
fn new_database_belongs_to_the_user_of_its_folder() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    let workdir = Workdir::new();
    // Only root can give the folder away.
    let _ = chown(workdir.path(), Some(65_534), Some(65_534));
    let owner_of = |path: PathBuf| path.metadata().unwrap().uid();
    let owner = owner_of(workdir.path());
    workdir.json("migrate");
    assert_eq!(owner_of(workdir.path().join("bellbird.db")), owner);
}

/// The text of SQLite's error holds the whole statement.
#[test]
fn failed_migration_is_one_line() {
    let workdir = Workdir::migrated();
    let database = rusqlite::Connection::open(workdir.path().join("bellbird.db")).unwrap();
    let forget = "DELETE FROM schema_migrations";
    database.execute_batch(forget).unwrap();
    drop(database);
    let error = workdir.error("migrate", 1);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert_lacks(&error, "CREATE TABLE");
}

#[test]
fn wrong_usage_exits_with_2_and_explains() {
    let workdir = Workdir::new();
    let lines = [
        "",
        "fly",
        "user add --email me",
        "user add --email me@example.com --plan gold",
        "user add --email me@example.com --timezone Sydney",
        "user show",
        "user set me@example.com",
        "key create --user me@example.com --expires 5",
        "key create --user me@example.com --expires 0s",
        "connection sync",
        "connection sync --all --user me@example.com x",
        "connection link",
        "connection show laptop",
        "serve --api-listen :8080",
        "serve --log-level loud",
        "demo --rows 0",
        "demo --seed x",
        "connection link-status abc",
        "sandbox --akahu-listen 8091",
        "connection import --user me@example.com --provider acme --credentials -",
    ];
    insta::assert_snapshot!(without_providers(&transcript(&workdir, &lines)));
}

#[test]
fn failures_exit_with_1_and_explain() {
    let mut workdir = Workdir::new();
    let mut shown = transcript(&workdir, &["user list"]);
    std::fs::write(workdir.path().join("bellbird.db"), "").unwrap();
    let lines = ["user list", "serve", "user list --config nowhere.toml"];
    for line in lines {
        shown += &transcript(&workdir, &[line]);
    }
    workdir.set("BELLBIRD_SECRETS__KEY", "main:c2hvcnQ=");
    shown += &transcript(&workdir, &["serve"]);
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    shown += &transcript(&workdir, &["serve"]);
    workdir.set("BELLBIRD_API__LISTNE", "127.0.0.1:1");
    shown += &transcript(&workdir, &["serve"]);
    insta::assert_snapshot!(shown);
}

/// Every command but those that are for it.
#[test]
fn no_command_creates_a_database() {
    let workdir = Workdir::with_key();
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
        let reason = "bellbird.db does not exist: is this the right folder";
        assert_has(&error, reason);
        let made = workdir.path().read_dir().unwrap().count();
        assert_eq!(made, 0, "{line}");
    }
}

#[test]
fn failure_is_one_json_value_too() {
    let workdir = Workdir::migrated();
    let mut all = Transcript::new(&workdir);
    for line in [
        "user show me@x --json",
        "user --json show me@x",
        "--json user show me@x",
        "serve --json",
        "connection sync --json",
        "fly --json",
        "--json key",
        "user list --json --config nowhere.toml",
    ] {
        all.run(line);
    }
    let wrong = "[api]\nlisten = 1\n[log]\nlevel = \"loud\"\n";
    std::fs::write(workdir.folder.path().join("bellbird.toml"), wrong).unwrap();
    all.json("user list");
    // Without `--json`: nothing on standard output.
    all.run("user list");
    all.run("fly");
    insta::assert_snapshot!(all.finish());
}

#[test]
fn database_errors_name_the_server_and_no_password() {
    let mut workdir = Workdir::new();
    let mut shown = String::new();
    for (url, line) in [
        ("postgres://me:hunter2@127.0.0.1:1/bellbird", "user list"),
        ("postgres://me:hunter2@127.0.0.1:port/bellbird", "migrate"),
        ("sqlite:nowhere/b.db", "migrate"),
    ] {
        workdir.set("BELLBIRD_DATABASE__URL", url);
        shown += &transcript(&workdir, &[line]);
    }
    insta::assert_snapshot!(shown);
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
    let expected = json!({"keys": 1, "endpoints": 0, "dryRun": true});
    assert_fields(&planned, &expected);
    assert_eq!(workdir.json("user list").as_array().unwrap().len(), 1);
    for (answer, is_removed) in [("n", false), ("", false), ("y", true)] {
        let output = on_terminal(&workdir, "user remove me@example.com", answer);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_has(&shown, "API keys           1");
        assert_has(&shown, "Remove this? [y/N] ");
        let is_kept = shown.contains("error: nothing was removed");
        assert_eq!(is_kept, !is_removed, "{shown}");
        assert_eq!(output.status.success(), is_removed, "{shown}");
        let is_gone = workdir.json("user list") == json!([]);
        assert_eq!(is_gone, is_removed);
    }
    // The flag may be before the command, too.
    assert_eq!(workdir.text("--json user list"), "[]\n");
}

/// A file that is no database shows that the question comes before it is read.
#[test]
fn restoring_asks_first() {
    let workdir = Workdir::migrated();
    std::fs::write(workdir.path().join("text.db"), "no database").unwrap();
    for (answer, is_read) in [("n", false), ("y", true)] {
        let output = on_terminal(&workdir, "restore text.db", answer);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_has(&shown, "Replace this? [y/N] ");
        assert_has(&shown, "error: nothing was restored");
        assert_eq!(shown.contains("not a SQLite database"), is_read, "{shown}");
        assert!(!output.status.success(), "{shown}");
    }
}

/// Runs a command on a terminal, with `script` of util-linux, and types the answer.
fn on_terminal(workdir: &Workdir, line: &str, answer: &str) -> std::process::Output {
    let mut command = std::process::Command::new("script");
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_bellbird"));
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(workdir.folder.path());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut terminal = command.spawn().expect("script of util-linux");
    let mut stdin = terminal.stdin.take().unwrap();
    writeln!(stdin, "{answer}").unwrap();
    drop(stdin);
    terminal.wait_with_output().unwrap()
}

#[test]
fn occupied_ports_are_named_at_once_with_their_settings() {
    let taken = ["API", "CONSOLE", "OPS"].map(|name| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        (name, listener.local_addr().unwrap(), listener)
    });
    let workdir = Workdir::new();
    let mut all = Transcript::new(&workdir);
    let [api, console, ops] = taken.each_ref().map(|(name, address, _)| {
        all.name(address, name);
        address
    });
    let listen = format!("--api-listen {api} --console-listen {console} --ops-listen {ops}");
    all.run(&format!("demo {listen}"));
    insta::assert_snapshot!(all.finish());
}

#[test]
fn credentials_are_checked_before_any_call() {
    let workdir = Workdir::migrated_with_key();
    workdir.json("user add --email me@example.com");
    let mut all = Transcript::new(&workdir);
    for (input, options) in [
        ("nonsense with s3cret", " --provider fiskil"),
        (r#"["s3cret"]"#, " --provider fiskil"),
        (r#"{"endUserId": "s3cret"}"#, ""),
        (r#"{"provider": "akahu"}"#, " --provider fiskil"),
        (r#"{"endUserId": "s3cret"}"#, " --provider fiskil"),
        (r#"{"provider": "akahu", "userToken": "s3cret"}"#, ""),
    ] {
        let line = format!("connection import --user me@example.com --credentials -{options}");
        let output = all.run_with_input(&line, input);
        assert_lacks(&errors(&output), "s3cret");
    }
    all.run("connection import --user me@example.com --credentials nowhere.json");
    insta::assert_snapshot!(all.finish());
}

#[test]
fn documents_and_scripts_are_printed() {
    let workdir = Workdir::new();
    let document: Value = serde_json::from_str(&workdir.text("openapi")).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let yaml = workdir.text("openapi --yaml");
    assert!(yaml.lines().any(|line| line.starts_with("openapi:")));
    let script = workdir.text("completions bash");
    assert_has(&script, "complete -F _bellbird");
    assert_eq!(workdir.json("completions bash"), json!(script));
    workdir.text("man .");
    let page = |name: &str| std::fs::read_to_string(workdir.path().join(name));
    assert_has(&page("bellbird.1").unwrap(), "bellbird\\-user(1)");
    assert_has(&page("bellbird-user-add.1").unwrap(), "timezone");
    // The command is hidden.
    assert!(page("bellbird-man.1").is_err());
}
