//! `bellbird init`.

use bellbird_storage::{Sealer, Storage};
use serde_json::json;

use super::FILES;
use crate::support::fields::assert_fields;
use crate::support::process::{Workdir, errors};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

#[tokio::test]
async fn init_makes_the_first_operator() {
    let workdir = Workdir::new();
    let (link, shown) =
        workdir.secret("init --email me@example.com --timezone Australia/Perth --sandbox");
    assert_starts(&link, "http://127.0.0.1:8081/sign-in/");
    let folder = workdir.data_folder();
    insta::assert_snapshot!(shown.replace(folder.to_str().unwrap(), "DATA"));
    assert!(FILES.iter().all(|name| folder.join(name).exists()));
    let users = workdir.json("user list");
    let expected = json!({"timezone": "Australia/Perth", "isOperator": true});
    assert_fields(&users[0], &expected);

    // Nobody has steps to take in the browser, where the master key could be downloaded.
    let url = format!("sqlite:{}", folder.join("bellbird.db").display());
    let storage = Storage::open(&url, Sealer::random()).await.unwrap();
    let first_start = storage.first_start().find().await.unwrap().unwrap();
    assert!(first_start.done_at.is_some());
    storage.close().await;

    // The page of the first start is gone, and the link works.
    let service = workdir.start("serve");
    assert!(service.json().get("setupUrl").is_none());
    let again = workdir.field("init --email me@example.com", "signInUrl");
    let page = reqwest::get(again).await.unwrap();
    assert_eq!(page.status(), 200);
    let error = workdir.error("init --email other@example.com", 1);
    assert_has(&error, "there is an operator already, me@example.com");
    service.end();
}

/// A command that is shown finds the same installation.
#[test]
fn commands_that_init_shows_name_its_folder() {
    let workdir = Workdir::new();
    let shown = errors(&workdir.run("init --email me@example.com --data-dir mine"));
    for command in [
        "`bellbird serve --data-dir mine`",
        "`bellbird console login --user me@example.com --data-dir mine`",
    ] {
        assert_has(&shown, command);
    }
    let error = workdir.error("user show you@example.com --data-dir mine", 1);
    assert_has(
        &error,
        "`bellbird user list --data-dir mine` shows all of them",
    );
    // The folder of a service: only root can give it away.
    let folder = workdir.data_folder();
    std::fs::create_dir_all(&folder).unwrap();
    if std::os::unix::fs::chown(&folder, Some(1), Some(1)).is_ok() {
        let shown = errors(&workdir.run("init --email me@example.com"));
        assert_has(&shown, "Start it with `systemctl start bellbird`");
    }
}

/// Who has to use the identity provider gets no link, which would sign nobody in.
#[test]
fn no_command_makes_a_link_that_signs_nobody_in() {
    let mut workdir = Workdir::new();
    workdir.set("TZ", "Australia/Perth");
    workdir.json("init --email me@example.com");
    let users = workdir.json("user list");
    assert_eq!(users[0]["timezone"], "Australia/Perth", "of the machine");
    for (name, value) in [
        ("ISSUER", "https://login.example"),
        ("CLIENT_ID", "bellbird"),
        ("CLIENT_SECRET", "secret"),
        ("OPERATORS_ONLY_HERE", "true"),
    ] {
        workdir.set(&format!("BELLBIRD_OIDC__{name}"), value);
    }
    let (page, shown) = workdir.secret("init --email me@example.com");
    assert_eq!(page, "http://127.0.0.1:8081/sign-in");
    assert_has(&shown, "me@example.com signs in there");
    let error = workdir.error("console login --user me@example.com", 1);
    assert_has(&error, "oidc.operators_only_here");
    let error = workdir.error("init --email other@example.com", 1);
    assert_has(&error, "me@example.com: sign in at the identity provider");
    workdir.json("user add --email you@example.com");
    workdir.json("console login --user you@example.com");
}

/// With a terminal, which `script` provides.
#[test]
fn init_asks_on_a_terminal() {
    use std::io::Write as _;

    let workdir = Workdir::new();
    let init = format!("{} init", env!("CARGO_BIN_EXE_bellbird"));
    let mut child = std::process::Command::new("script")
        .args(["--quiet", "--return", "--command", &init, "/dev/null"])
        .current_dir(workdir.path())
        .env("BELLBIRD_DATA_DIR", workdir.data_folder())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input
        .write_all(
            b"not an address\nme@example.com\nNowhere/Town\n\nbank.example\nhttps://bank.example\n\
              whatever\nsandbox\n",
        )
        .unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for text in [
        "E-mail address of the first operator: ",
        "That must be",
        "Timezone, in which days begin and end",
        "URL at which others reach Bellbird",
        "That must be a URL such as https://example.com",
        "That must be sandbox, none or one of fiskil, ",
        "https://bank.example/sign-in/",
    ] {
        assert_has(&shown, text);
    }
    let settings = std::fs::read_to_string(workdir.data_folder().join("bellbird.toml")).unwrap();
    assert_has(&settings, "public_url = \"https://bank.example\"");
}

#[test]
fn init_that_is_wrong_makes_nothing() {
    let mut workdir = Workdir::new();
    // Without a terminal, it asks for nothing.
    assert_has(&workdir.error("init", 2), "pass --email");
    let error = workdir.error("init --email me@example.com --public-url example.com", 2);
    assert_has(&error, "must be a URL such as https://example.com");
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "client");
    for (credentials, code, part) in [
        ("{}", 2, "the credentials of fiskil have no client_id"),
        (
            "{\"client\":\"a\"}",
            2,
            "fiskil has no setting \"client\": the credentials are client_id",
        ),
        ("s3cret", 1, "must be one JSON object with texts"),
        (
            "{\"client_id\":\"other\",\"client_secret\":\"s3cret\"}",
            1,
            "fiskil.client_id is set in the settings, which win",
        ),
    ] {
        let line = "init --email me@example.com --provider fiskil --credentials -";
        let output = workdir.run_with_input(line, credentials);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_has(&error, part);
        assert_lacks(&error, "s3cret");
    }
    assert!(!workdir.data_folder().exists());

    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_DATABASE__URL", "postgres://127.0.0.1:1/none");
    let error = workdir.error("init --email me@example.com --sandbox", 2);
    assert_has(&error, "simulated providers need SQLite");
}

#[test]
fn several_at_once_make_one_operator() {
    let mut workdir = Workdir::new();
    workdir.set("TZ", "Etc/UTC");
    workdir.json("init --email first@example.com");
    let users = workdir.json("user list");
    assert_eq!(users[0]["timezone"], json!(null));
    workdir.json("user set first@example.com --no-operator");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let workdir = &workdir;
            scope.spawn(move || workdir.run(&format!("init --email {number}@example.com")));
        }
    });
    let users = workdir.json("user list");
    let operators = users.as_array().unwrap().iter();
    let operators = operators.filter(|user| user["isOperator"] == json!(true));
    assert_eq!(operators.count(), 1, "{users}");
}
