//! The data folder: what a first start makes, and when a start is none.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;

use super::{FILES, key, leftovers};
use crate::repository::root;
use crate::support::process::{ANY_PORTS, Workdir, errors, text};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

#[tokio::test]
async fn second_start_finds_what_the_first_one_made() {
    let workdir = Workdir::new();
    let service = workdir.start("serve");
    let urls = service.json();
    let setup_url = text(&urls, "setupUrl").to_owned();
    assert_starts(&setup_url, &format!("{}/setup/", text(&urls, "consoleUrl")));
    let folder = workdir.data_folder();
    let modes = FILES.map(|name| mode(&folder.join(name)));
    assert_eq!((mode(&folder), modes), (0o700, [0o600; 3]));
    assert!(leftovers(&folder).is_empty(), "{:?}", leftovers(&folder));
    let settings = std::fs::read_to_string(folder.join("bellbird.toml")).unwrap();
    for line in [
        "url = \"sqlite:bellbird.db\"",
        "folder = \"backups\"",
        "key_file = \"master.key\"",
    ] {
        assert!(settings.lines().any(|known| known == line), "{settings}");
    }
    // Another command finds it by itself.
    assert_eq!(workdir.json("user list").as_array().unwrap().len(), 0);
    let file = workdir.field("status", "settingsFile");
    assert_eq!(file, folder.join("bellbird.toml").to_str().unwrap());
    let log = service.end();
    assert_has(&log, "first start: installation made");
    let (code, made) = (setup_url.rsplit('/').next().unwrap(), key(&workdir));
    for secret in [code, made.trim().trim_start_matches("main:")] {
        assert_lacks(&log, secret);
    }

    let service = workdir.start("serve");
    let again = service.url("setupUrl");
    assert_ne!(again.rsplit('/').next(), setup_url.rsplit('/').next());
    let log = service.end();
    assert_lacks(&log, "first start");
    assert_lacks(&log, "no operator");
    assert_eq!(key(&workdir), made);

    workdir.json("user add --email me@example.com");
    workdir.json("user set me@example.com --operator");
    let service = workdir.start("serve");
    assert!(service.json().get("setupUrl").is_none());
    service.end();
    documented_commands_put_a_new_key_first(&workdir);
    other_user_is_told_how_to_run_commands(&workdir);
}

/// Those of docs/secrets.md#changing-the-key.
fn documented_commands_put_a_new_key_first(workdir: &Workdir) {
    let page = std::fs::read_to_string(root().join("docs/secrets.md")).unwrap();
    let (_, rest) = page.split_once("```sh\n").unwrap();
    let (commands, _) = rest.split_once("```").unwrap();
    let mut bash = std::process::Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", commands]);
    let status = bash.current_dir(workdir.data_folder()).status();
    assert!(status.unwrap().success(), "{commands}");
    let keys = "ok seals with key `new`, opens with new, main";
    assert_eq!(workdir.doctor("secrets.key"), [keys]);
    assert_eq!(mode(&workdir.data_folder().join("master.key")), 0o600);
}

#[test]
fn first_start_says_where_everything_is() {
    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", "https://bank.example.com");
    let mut command = workdir.command(&format!("serve {ANY_PORTS}"));
    let mut child: Child = command.spawn().unwrap();
    let folder = workdir.data_folder();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let (mut shown, mut line) = (String::new(), String::new());
    while !line.contains("bellbird.toml") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0);
        shown.push_str(&line);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let expected = format!("All of it is in {}:", folder.display());
    assert_has(&shown, &expected);
    assert_has(&shown, "https://bank.example.com/setup/");
    assert_has(&shown, ", public at https://bank.example.com\n");
}

#[test]
fn copy_is_an_installation_and_a_part_of_one_is_none() {
    let mut workdir = Workdir::new();
    workdir.start("serve").end();
    let (folder, copy) = (workdir.data_folder(), workdir.path().join("copy"));
    std::fs::create_dir(&copy).unwrap();
    for name in FILES {
        std::fs::copy(folder.join(name), copy.join(name)).unwrap();
    }
    workdir.set("BELLBIRD_DATA_DIR", copy.to_str().unwrap());
    workdir.json("user add --email me@example.com");
    let users = |folder: &std::path::Path| {
        let shown = workdir.json(&format!("user list --data-dir {}", folder.display()));
        shown.as_array().unwrap().len()
    };
    assert_eq!((users(&folder), users(&copy)), (0, 1));

    // A lost key or database is no first start.
    workdir.set("BELLBIRD_DATA_DIR", folder.to_str().unwrap());
    let key = key(&workdir);
    std::fs::remove_file(folder.join("master.key")).unwrap();
    let error = workdir.error("serve", 1);
    assert!(error.ends_with("restore your copy of it"), "{error}");
    let settings = std::fs::read(folder.join("bellbird.toml")).unwrap();
    std::fs::remove_file(folder.join("bellbird.toml")).unwrap();
    let error = workdir.error("serve", 1);
    assert_has(&error, "master.key is not there, but its database");
    assert_has(&error, "put your copy of the key there");
    assert!(!folder.join("master.key").exists());

    // With both, only the settings are made again.
    std::fs::write(folder.join("master.key"), key).unwrap();
    workdir.start("serve").end();
    let made = std::fs::read(folder.join("bellbird.toml")).unwrap();
    assert_eq!(made, settings);

    workdir.json("backup saved.db");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("bellbird.db") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    for (removed, advice) in [
        ("nothing", "restore a backup with `bellbird restore`"),
        ("bellbird.toml", "copy a backup to that place, start again"),
    ] {
        let _ = std::fs::remove_file(folder.join(removed));
        let error = workdir.error("serve", 1);
        assert_has(&error, "bellbird.db is not there, but its master key");
        assert_has(&error, advice);
        assert!(!folder.join("bellbird.db").exists());
    }

    // As on a new machine, with the saved key and a backup.
    std::fs::copy(workdir.path().join("saved.db"), folder.join("bellbird.db")).unwrap();
    let error = workdir.error(&format!("serve {ANY_PORTS}"), 1);
    assert_has(&error, "`bellbird restore --decide`");
    workdir.json("restore --decide");
    workdir.start("serve").end();
}

/// Also with the mark of a start that was interrupted, or failed.
#[test]
fn lost_part_is_noticed_in_every_state_of_the_folder() {
    let mut workdir = Workdir::new();
    workdir.start("serve").end();
    let folder = workdir.data_folder();
    let (key, database) = (folder.join("master.key"), folder.join("bellbird.db"));
    // Makes the settings again, and fails.
    std::fs::remove_file(folder.join("bellbird.toml")).unwrap();
    workdir.set("BELLBIRD_API__LISTEN", "nowhere");
    assert_has(&workdir.error("serve", 1), "api.listen");
    workdir.set("BELLBIRD_API__LISTEN", "127.0.0.1:0");
    std::fs::write(&database, "").unwrap();
    let error = workdir.error("serve", 1);
    assert_has(&error, "bellbird.db is empty, but its master key");
    std::fs::remove_file(&database).unwrap();
    let error = workdir.error("serve", 1);
    assert_has(&error, "bellbird.db is not there, but its master key");
    assert!(!database.exists());

    // A start makes the key before the database.
    std::fs::write(folder.join("first-start"), "").unwrap();
    std::fs::write(&database, "x").unwrap();
    std::fs::remove_file(&key).unwrap();
    let error = workdir.error("serve", 1);
    assert_has(&error, "master.key is not there, but its database");
    assert!(!key.exists());
}

/// Somebody begins with the settings.
#[test]
fn settings_without_a_key_do_not_end_the_way_to_a_first_start() {
    let workdir = Workdir::new();
    let folder = workdir.data_folder();
    std::fs::create_dir(&folder).unwrap();
    let (settings, aside) = (folder.join("bellbird.toml"), folder.join("mine.toml"));
    std::fs::write(&settings, "").unwrap();
    let error = workdir.error("serve", 1);
    assert_starts(&error, "error: secrets.key is not set");
    let advice = format!("move {} away, run `bellbird serve`", settings.display());
    assert_has(&error, &advice);
    std::fs::rename(&settings, &aside).unwrap();
    workdir.start("serve").end();
}

/// The steps of docs/backup.md#keep-the-access.
#[test]
fn installation_moves_to_another_folder() {
    let mut workdir = Workdir::new();
    workdir.start("serve").end();
    workdir.json("user add --email me@example.com");
    workdir.json("backup saved.db");
    let (copied, moved) = (key(&workdir), workdir.path().join("moved"));
    workdir.set("BELLBIRD_DATA_DIR", moved.to_str().unwrap());
    // Without an installation, the backup does not become one of the working directory.
    let error = workdir.error("restore saved.db", 1);
    assert_has(&error, "no installation found: run `bellbird serve`");
    assert_has(&error, moved.to_str().unwrap());
    let here = workdir.path().join("bellbird.db");
    assert!(!here.exists() && !moved.exists());

    workdir.start("serve").end();
    std::fs::write(moved.join("master.key"), copied).unwrap();
    let restored = workdir.json("restore --keep-access saved.db");
    let database = moved.join("bellbird.db");
    assert_eq!(restored["database"], database.to_str().unwrap());
    let users = workdir.json("user list");
    assert_eq!(users.as_array().unwrap().len(), 1);
    workdir.start("serve").end();
    assert!(!here.exists());
}

#[test]
fn flags_of_a_first_start() {
    let workdir = Workdir::new();
    // An installation that is made here has SQLite.
    let error = workdir.error(&format!("serve --only api {ANY_PORTS}"), 1);
    assert_has(&error, "leave out --only, or use PostgreSQL");
    assert!(!workdir.data_folder().exists());

    // A flag names the data folder.
    let error = workdir.error("user list --data-dir mine", 1);
    assert_has(&error, "mine has no bellbird.toml");
    workdir.start("serve --data-dir mine").end();
    assert!(workdir.path().join("mine/master.key").exists());
    assert!(!workdir.data_folder().exists());
    let users = workdir.json("user list --data-dir mine");
    assert_eq!(users, serde_json::json!([]));
}

/// Any number of them: one makes the installation and serves.
#[test]
fn one_of_several_first_starts_wins() {
    let workdir = Workdir::new();
    let start = || {
        let mut command = workdir.command(&format!("serve --json {ANY_PORTS}"));
        command.spawn().unwrap()
    };
    let mut all: Vec<Child> = std::iter::repeat_with(start).take(5).collect();
    let mut lost = Vec::new();
    while lost.len() < 4 {
        let mut running = all.iter_mut();
        let ended = running.position(|child| child.try_wait().unwrap().is_some());
        match ended {
            Some(index) => lost.push(all.remove(index).wait_with_output().unwrap()),
            None => std::thread::yield_now(),
        }
    }
    for output in lost {
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains("another Bellbird makes its first start in")
                || error.contains("another service runs on the SQLite database"),
            "{error}"
        );
    }
    let winner = &mut all[0];
    let mut ready = String::new();
    let mut out = std::io::BufReader::new(winner.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut out, &mut ready).unwrap();
    assert_has(&ready, "setupUrl");
    winner.kill().unwrap();
    winner.wait().unwrap();
    assert!(leftovers(&workdir.data_folder()).is_empty());
}

/// As before there was a first start: the key was in the environment, and is not any more.
#[test]
fn database_in_the_working_directory_is_no_first_start() {
    let workdir = Workdir::migrated();
    let error = workdir.error("serve", 1);
    assert_starts(&error, "error: secrets.key is not set");
    assert!(!workdir.data_folder().exists());
}

/// Only root can act as another user, whom the service may have.
fn other_user_is_told_how_to_run_commands(workdir: &Workdir) {
    use std::os::unix::process::CommandExt as _;

    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(workdir.path(), mode(0o755)).unwrap();
    let folder = workdir.data_folder();
    std::os::unix::fs::chown(&folder, Some(1), Some(1)).unwrap();
    let mut command = workdir.command("user list");
    let output = command.uid(65_534).gid(65_534).output().unwrap();
    let error = errors(&output);
    assert_has(&error, "bellbird.toml cannot be read: Permission denied");
    assert_has(&error, "so run `sudo -u daemon bellbird`");
}

/// As a volume of Kubernetes is, whose folder belongs to root.
#[test]
fn group_of_the_folder_may_make_the_first_start() {
    use std::os::unix::process::CommandExt as _;

    // Only root can act as another user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let workdir = Workdir::new();
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(workdir.path(), mode(0o755)).unwrap();
    make_folder(&workdir, 0o755);
    let init = || {
        let mut command = workdir.command("init --email me@example.com");
        command.uid(65_534).gid(65_534).output().unwrap()
    };
    let denied = errors(&init());
    assert_has(&denied, "could not write into the data folder");
    assert_has(
        &denied,
        "has to belong to the Unix user of this process (uid 65534)",
    );
    let folder = workdir.data_folder();
    std::os::unix::fs::chown(&folder, Some(0), Some(65_534)).unwrap();
    std::fs::set_permissions(&folder, mode(0o770)).unwrap();
    let made = init();
    assert!(made.status.success(), "{}", errors(&made));
    assert_has(&errors(&made), "Start it with `bellbird serve`");
}

fn make_folder(workdir: &Workdir, mode: u32) {
    let folder = workdir.data_folder();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(file: &std::path::Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

#[test]
fn empty_folder_is_tightened() {
    for open in [0o755, 0o777] {
        let workdir = Workdir::new();
        make_folder(&workdir, open);
        let output = workdir.run("init --email me@example.com");
        assert!(output.status.success());
        assert_starts(&errors(&output), "Bellbird is in ");
        assert_eq!(mode(&workdir.data_folder()), 0o700);
    }
}

/// Another user has made a draft, has it open, and waits for the key.
#[test]
fn draft_of_another_user_is_not_written_into() {
    use std::io::Read as _;

    let workdir = Workdir::new();
    make_folder(&workdir, 0o777);
    let folder = workdir.data_folder();
    let draft = folder.join(".master.key.new");
    std::fs::write(&draft, "").unwrap();
    let mut held = std::fs::File::open(&draft).unwrap();
    let output = workdir.run("init --email me@example.com");
    assert!(output.status.success());
    let warning = errors(&output);
    assert_has(&warning, "other users may read or write");
    let mut read = String::new();
    held.read_to_string(&mut read).unwrap();
    assert_eq!(read, "");
    assert_eq!(mode(&folder.join("master.key")), 0o600);
}
