//! `bellbird doctor`: the checks, and what they advise.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::commands::{without_folder, without_providers};
use crate::support::port::free_port;
use crate::support::process::{ANY_PORTS, MASTER_KEY, Workdir, text};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

#[test]
fn doctor_reports_failures() {
    let mut workdir = Workdir::new();
    let wrong = |workdir: &Workdir| {
        let output = workdir.run(&format!("doctor --json {ANY_PORTS}"));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap().iter();
        let wrong = checks.filter(|check| check["verdict"] == "wrong");
        let wrong: Vec<_> = wrong.map(|check| text(check, "name").to_owned()).collect();
        let code = i32::from(!wrong.is_empty());
        assert_eq!(output.status.code(), Some(code), "{report}");
        assert_eq!(report["ok"], json!(wrong.is_empty()));
        wrong
    };
    assert_eq!(wrong(&workdir), ["secrets.key", "database"]);
    let made = workdir.path().read_dir().unwrap().count();
    assert_eq!(made, 0, "the doctor created a file");
    workdir.set("BELLBIRD_SECRETS__KEY", MASTER_KEY);
    workdir.json("migrate");
    assert_eq!(wrong(&workdir), [""; 0]);
    let shown = workdir.text(&format!("doctor {ANY_PORTS}"));
    let shown = shown.replace(bellbird::instances::VERSION, "VERSION");
    insta::assert_snapshot!(without_folder(&without_providers(&shown), &workdir));
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "id");
    assert_eq!(wrong(&workdir), ["providers"]);
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "s3cret");
    workdir.set("BELLBIRD_FISKIL__BASE_URL", "http://127.0.0.1:1");
    assert_eq!(wrong(&workdir), ["fiskil"]);
    workdir.set("BELLBIRD_READS__ROW_CAP", "0");
    assert_eq!(wrong(&workdir), ["settings"]);
    let report = workdir.printed(&format!("doctor {ANY_PORTS}"));
    let message = format!("settings: {}", text(&report["checks"][0], "detail"));
    assert_eq!(report["error"]["message"], message);
}

#[test]
fn doctor_names_the_settings_file_and_notes_odd_settings() {
    let workdir = Workdir::migrated_with_key();
    let file = workdir.path().join("bellbird.toml");
    let toml = "[reads]\ndeadline_seconds = 5\n[fiskil]\nclient_id = \"...\"\nclient_secret = \"s3cret\"\n\
                base_url = \"http://127.0.0.1:1\"\n";
    std::fs::write(&file, toml).unwrap();
    assert_eq!(
        workdir.doctor("settings"),
        [
            format!("ok read from {}; 8 set, all others at their defaults", file.display()),
            "note reads.deadline_seconds (5) is below reads.provider_timeout_seconds (20): requests end before a slow \
             provider responds"
                .to_owned(),
            "note fiskil.client_id looks like a placeholder: set what Fiskil issued to you".to_owned(),
        ]
    );
    let linking = workdir.doctor("linking");
    assert_starts(&linking[0], "note ");
}

#[cfg(unix)]
#[test]
fn doctor_notes_files_that_others_may_open() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut workdir = Workdir::new();
    let folder = workdir.path();
    std::fs::write(folder.join("key"), format!("{MASTER_KEY}\n")).unwrap();
    let settings = "[fiskil]\nwebhook_secret = \"x\"\n";
    std::fs::write(folder.join("bellbird.toml"), settings).unwrap();
    workdir.set("BELLBIRD_SECRETS__KEY_FILE", "key");
    workdir.json("migrate");
    let files = ["bellbird.db", "bellbird.toml", "key"];
    let report = |mode: u32| {
        for file in files {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.join(file), permissions).unwrap();
        }
        workdir.doctor("files")
    };
    assert_eq!(
        report(0o640),
        ["ok database, settings and keys are closed to other users of this machine"]
    );
    let notes = report(0o644);
    assert_eq!(notes.len(), files.len());
    for (file, note) in files.iter().zip(notes) {
        assert_starts(&note, "note ");
        assert_has(&note, &format!("{file} (mode 0644)"));
    }
}

/// A URL that asks for less than TLS of a server elsewhere. Nothing listens there.
#[test]
fn doctor_notes_a_database_without_tls() {
    let mut workdir = Workdir::new();
    for (parameters, is_noted) in [
        ("", false),
        ("?sslmode=prefer", true),
        ("?sslmode=disable", true),
    ] {
        let url = format!("postgres://me:x@0.0.0.0:1/db{parameters}");
        workdir.set("BELLBIRD_DATABASE__URL", &url);
        let notes = workdir.doctor_with("--api-listen 127.0.0.1:0", "database TLS");
        let count = usize::from(is_noted);
        assert_eq!(notes.len(), count, "{parameters}: {notes:?}");
    }
}

/// As when the unit of the service names another database than bellbird.toml, which commands read.
#[test]
fn doctor_notices_a_service_on_another_database() {
    let (own, other) = (Workdir::migrated_with_key(), Workdir::with_key());
    let service = own.start("serve");
    let [api, console, ops] =
        ["apiUrl", "consoleUrl", "opsUrl"].map(|name| service.url(name).replace("http://", ""));
    let verdicts = |workdir: &Workdir, api: &str| {
        let listen = format!("--api-listen {api} --console-listen {console} --ops-listen {ops}");
        let report = workdir.printed(&format!("doctor {listen}"));
        let checks = report["checks"].as_array().unwrap().iter();
        let ports = checks.filter(|check| text(check, "name").ends_with(".listen"));
        ports
            .map(|check| format!("{} {}", text(check, "verdict"), text(check, "detail")))
            .collect::<Vec<_>>()
    };
    let expected =
        |address: &str| format!("ok {address} is in use; expected while the service runs");
    let foreign = |address: &str| {
        let why = "but no instance of this database runs on this machine: another program has it";
        format!("wrong {address} is in use, {why}")
    };
    let wrong = |address: &str| {
        format!(
            "wrong the Bellbird at {address} uses another database, the SQLite database {}, and this command the \
             SQLite database {}: give both the same database.url, as in bellbird.toml",
            own.path().join("bellbird.db").display(),
            other.path().join("bellbird.db").display()
        )
    };
    assert_eq!(
        verdicts(&own, &api),
        [expected(&api), expected(&console), expected(&ops)]
    );
    let report = own.printed(&format!("doctor {ANY_PORTS}"));
    assert_eq!(report["version"], bellbird::instances::VERSION);
    let elsewhere = format!("ok 127.0.0.1:0 is free; the running service is at http://{api}");
    assert_eq!(own.doctor("api.listen"), [elsewhere]);
    // There is no database yet, then an empty one, then one that is set up.
    let as_wrong = [wrong(&api), foreign(&console), wrong(&ops)];
    // The doctor waits three seconds for a service, in which a busy machine may not get to it.
    let assert_wrong = || {
        let mut found = verdicts(&other, &api);
        for _ in 0..9 {
            if found == as_wrong {
                break;
            }
            found = verdicts(&other, &api);
        }
        assert_eq!(found, as_wrong);
    };
    assert_wrong();
    rusqlite::Connection::open(other.path().join("bellbird.db"))
        .unwrap()
        .execute_batch("VACUUM")
        .unwrap();
    assert_wrong();
    other.json("migrate");
    assert_wrong();
    // What responds otherwise is another program.
    assert_eq!(verdicts(&other, &console)[0], foreign(&console));
    service.end();
    // Or says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    assert_eq!(verdicts(&own, &address)[0], foreign(&address));
}

/// A signature with a wrong time is rejected like a wrong key, so the clock is compared with that
/// of each response.
#[test]
fn doctor_compares_the_clock_with_the_provider() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut workdir = Workdir::migrated_with_key();
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "x1");
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "x1");
    let provider = format!("http://{}", listener.local_addr().unwrap());
    workdir.set("BELLBIRD_FISKIL__BASE_URL", &provider);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let date = jiff::Timestamp::now() - jiff::SignedDuration::from_mins(10);
            let date = jiff::fmt::rfc2822::DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&date)
                .unwrap();
            let body = r#"{"token": "t", "token_type": "Bearer", "expires_in": 900}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ndate: {date}\r\ncontent-type: application/json\r\nconnection: close"
            );
            let _ = write!(
                stream,
                "{head}\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    let found = workdir.doctor("clock");
    assert_eq!(found.len(), 1, "{found:?}");
    let (ahead, place) = found[0].split_once(" s ahead of that of ").unwrap();
    assert_starts(place, "Fiskil at http://127.0.0.1:");
    let ahead = ahead
        .strip_prefix("wrong this machine's clock is ")
        .unwrap();
    // And as long as the response took.
    let seconds: u64 = ahead.parse().unwrap();
    assert!((600..720).contains(&seconds), "{seconds}");
}

#[test]
fn doctor_checks_listeners_and_the_last_backup() {
    let mut workdir = Workdir::migrated_with_key();
    let open = "--api-listen 0.0.0.0:0 --console-listen 127.0.0.1:0 --ops-listen 0.0.0.0:0";
    let notes = workdir.doctor_with(open, "settings").join("\n");
    for note in [
        "note ops.listen 0.0.0.0:0 is open to other machines",
        "note api.listen 0.0.0.0:0 takes keys",
    ] {
        assert!(notes.lines().any(|line| line.starts_with(note)), "{notes}");
    }
    assert_lacks(&notes, "console.listen");
    let address = format!("127.0.0.1:{}", free_port());
    workdir.set("BELLBIRD_ADMIN__LISTEN", &address);
    let free = format!("ok {address} is free");
    assert_eq!(workdir.doctor("admin.listen"), [free]);
    workdir.json("backup backup.db");
    assert_starts(&workdir.doctor("backup")[0], "ok the last one at 20");
}

/// A mail server that takes one login. Returns its port, and the e-mails that it has taken.
fn mail_server() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(Mutex::new(Vec::new()));
    let emails = Arc::clone(&taken);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap())
                .lines()
                .map_while(Result::ok);
            let mut say = |text: &str| stream.write_all(format!("{text}\r\n").as_bytes()).is_ok();
            say("220 ready");
            while let Some(line) = lines.next() {
                let goes_on = match line.split(' ').next().unwrap() {
                    "EHLO" => say("250-mail\r\n250 AUTH PLAIN"),
                    "AUTH" if line.ends_with("AG1lAHJpZ2h0") => say("235 welcome"),
                    "AUTH" => say("535 5.7.8 not of me@example.com"),
                    "DATA" => {
                        say("354 go on");
                        let email: Vec<String> =
                            lines.by_ref().take_while(|line| line != ".").collect();
                        emails.lock().unwrap().push(email.join("\n"));
                        say("250 taken")
                    }
                    "QUIT" => false,
                    _ => say("250 well"),
                };
                if !goes_on {
                    break;
                }
            }
        }
    });
    (port, taken)
}

#[test]
fn doctor_and_test_email_speak_to_the_mail_server() {
    let (port, taken) = mail_server();
    let cases = [
        (
            "smtp://127.0.0.1:1".to_owned(),
            "connection refused by 127.0.0.1:1",
        ),
        (
            format!("smtps://127.0.0.1:{port}"),
            "TLS failed at 127.0.0.1:",
        ),
        (
            format!("smtp://me:wrong@127.0.0.1:{port}"),
            "rejects the user and password of console.smtp_url (535)",
        ),
        (format!("smtp://me:right@127.0.0.1:{port}"), ""),
    ];
    for (url, reason) in cases {
        let mut workdir = Workdir::migrated_with_key();
        workdir.set("BELLBIRD_CONSOLE__SMTP_URL", &url);
        let from = "Bellbird <bellbird@example.com>";
        workdir.set("BELLBIRD_CONSOLE__MAIL_FROM", from);
        let found = workdir.doctor("e-mail");
        let [found, links] = &found[..] else {
            panic!("{found:?}");
        };
        assert_starts(links, "note the links in e-mails lead to this machine only");
        if reason.is_empty() {
            assert_eq!(*found, format!("ok 127.0.0.1:{port} takes the login"));
            let printed = workdir.said("console test-email me@example.com");
            let sent = "took an e-mail for me@example.com. See that it arrives.";
            assert_eq!(printed, format!("127.0.0.1:{port} {sent}\n"));
        } else {
            assert_starts(found, "wrong console.smtp_url: ");
            let error = workdir.error("console test-email me@example.com", 1);
            assert_has(found, reason);
            assert_has(&error, reason);
            assert_lacks(found, "me@example.com");
            assert_lacks(&error, "wrong");
        }
    }
    let mut workdir = Workdir::migrated_with_key();
    workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", "http://bellbird.lan");
    workdir.set("BELLBIRD_CONSOLE__SMTP_URL", "smtp://127.0.0.1:1");
    workdir.set("BELLBIRD_CONSOLE__MAIL_FROM", "bellbird@example.com");
    assert_eq!(workdir.doctor("e-mail").len(), 1, "nothing of links");
    let taken = taken.lock().unwrap();
    assert_eq!(taken.len(), 1, "{taken:?}");
    for header in [
        "Message-ID: <",
        "MIME-Version: 1.0",
        "Date: ",
        "Content-Transfer-Encoding: 7bit",
    ] {
        let mut lines = taken[0].lines();
        let is_sent = lines.any(|line| line.starts_with(header));
        assert!(is_sent, "{header}: {}", taken[0]);
    }
}

mod postgres {
    use super::*;
    use crate::support::database::execute;
    use crate::support::harness::postgres_database;

    #[tokio::test]
    async fn doctor_notes_more_connections_than_the_server_has() {
        let mut workdir = Workdir::with_key();
        workdir.set("BELLBIRD_DATABASE__URL", &postgres_database().await);
        workdir.json("migrate");
        for (pool_size, is_noted) in [("2", false), ("1000", true)] {
            workdir.set("BELLBIRD_DATABASE__POOL_SIZE", pool_size);
            let details = workdir.doctor("database");
            let is_about_it = |detail: &String| detail.contains("the server's max_connections is ");
            assert_eq!(details.iter().any(is_about_it), is_noted, "{details:?}");
        }
    }

    /// Since PostgreSQL 15, only the owner of a database may create tables in it.
    #[tokio::test]
    async fn doctor_and_migrate_say_what_a_role_lacks() {
        let url = postgres_database().await;
        let (server, database) = url.rsplit_once('/').unwrap();
        let role = format!("guest_of_{database}");
        execute(&url, &format!("DROP ROLE IF EXISTS {role}"), "").await;
        execute(&url, &format!("CREATE ROLE {role} LOGIN"), "").await;
        let mut workdir = Workdir::with_key();
        let (_, host) = server.rsplit_once('@').unwrap();
        let url_of_role = format!("postgres://{role}@{host}/{database}");
        workdir.set("BELLBIRD_DATABASE__URL", &url_of_role);
        let remedy =
            format!("run `ALTER DATABASE {database} OWNER TO {role}` there as a superuser");
        let error = workdir.error("migrate", 1);
        let failed = "error: could not migrate the PostgreSQL database ";
        assert_starts(&error, failed);
        assert_has(&error, &remedy);
        let detail = workdir.doctor("database").remove(0);
        assert_has(&detail, "`bellbird migrate` would fail, because ");
        assert!(detail.ends_with(&remedy), "{detail}");
        execute(&url, &format!("DROP ROLE {role}"), "").await;
    }
}
