//! `bellbird sandbox`, and the commands that import what it prints.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::support::deployment::Deployment;
use crate::support::fields::assert_fields;
use crate::support::harness::{Database, eventually, simulated_providers};
use crate::support::process::{ANY_SANDBOX_PORTS, RunningCommand, Workdir, errors, names, text};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// Asserts that this describes all simulated providers, and nothing else.
pub(super) fn assert_described(sandbox: &Value) {
    let members = |value: &Value| names(value).join(" ");
    assert_eq!(
        members(sandbox),
        "akahu credentials fiskil people snaptrade"
    );
    for (provider, expected) in [
        ("fiskil", "baseUrl clientId clientSecret webhookSecret"),
        ("akahu", "appSecret appToken baseUrl oauthUrl"),
        ("snaptrade", "baseUrl clientId consumerKey"),
    ] {
        let described = &sandbox[provider];
        assert_eq!(members(described), expected);
        for name in names(described) {
            assert_ne!(text(described, name), "", "{provider}: {name}");
        }
    }
    let people = sandbox["people"].as_array().unwrap();
    let all_credentials = sandbox["credentials"].as_array().unwrap();
    assert_eq!(people.len(), all_credentials.len());
    for person in people {
        assert_has(person.as_str().unwrap(), ", ");
    }
    assert!(all_credentials.is_sorted_by_key(|credentials| {
        simulated_providers().position(|name| credentials["provider"] == name)
    }));
    for credentials in all_credentials {
        let form = match text(credentials, "provider") {
            "fiskil" => "arrangementId endUserId provider",
            "akahu" => "authorisation provider userToken",
            _ => "authorizationId provider userId userSecret",
        };
        assert_eq!(members(credentials), form);
    }
}

#[tokio::test]
async fn connection_is_imported_shown_and_removed() {
    let Deployment {
        mut workdir,
        sandbox,
        ..
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    let description = sandbox.json();
    assert_described(&description);
    workdir.json("user add --email me@example.com");

    // A first sync reads as far back as is set: ten years, at every provider.
    for provider in simulated_providers() {
        let new_count = |workdir: &Workdir| {
            workdir.import_at(&description, provider);
            let synced = workdir.json("connection sync --all");
            let id = text(&synced[0], "connectionId").to_owned();
            workdir.json(&format!("connection remove {id} --local-only"));
            synced[0]["newCount"].as_u64().unwrap()
        };
        workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "30");
        let month = new_count(&workdir);
        workdir.set("BELLBIRD_SYNC__FIRST_DAYS", "3650");
        let decade = new_count(&workdir);
        assert!(
            month > 0 && decade > month * 2,
            "{provider}: {month} rows of a month, {decade} of ten years"
        );
    }

    let credentials = description["credentials"][0].to_string();
    std::fs::write(workdir.folder.path().join("credentials.json"), &credentials).unwrap();
    let import = "connection import --user me@example.com --provider fiskil --credentials";
    let imported = workdir.json(&format!("{import} credentials.json"));
    let connection = &imported[0];
    let active = json!({"provider": "fiskil", "status": "active"});
    assert_fields(connection, &active);
    let id = text(connection, "id");
    let show = format!("connection show {id}");
    let mut shown = workdir.json(&show);
    let mut take = |name: &str| shown.as_object_mut().unwrap().remove(name).unwrap();
    let (accounts, sync) = (take("accounts"), take("sync"));
    assert_eq!(take("user"), "me@example.com");
    let history =
        json!([{"at": connection["createdAt"], "from": null, "to": "active", "cause": "imported"}]);
    assert_eq!(take("history"), history);
    assert_eq!(shown, *connection);
    for account in accounts.as_array().unwrap() {
        assert_eq!(account["connectionId"], id);
    }
    assert_fields(&sync, &json!({"syncedAt": null, "lastError": null}));
    assert!(sync["nextAt"].is_string(), "{sync}");
    let mut listed = connection.clone();
    listed["user"] = json!("me@example.com");
    listed["accounts"] = json!(accounts.as_array().unwrap().len());
    assert_eq!(workdir.json("connection list"), json!([listed]));
    let list = |status: &str| workdir.json(&format!("connection list --status {status}"));
    assert_eq!(
        (list("active"), list("revoked")),
        (json!([listed]), json!([]))
    );
    let table = workdir.text("connection list");
    assert_starts(&table, "USER ");
    assert_has(&table, "\nme@example.com  ");
    let shown = workdir.text(&show);
    assert_has(&shown, "me@example.com");
    assert_has(&shown, "xxxx");

    // A second import, from standard input, gives the same connection.
    let again = workdir.import("me@example.com", &description["credentials"][0]);
    assert_eq!(again, id);

    assert_eq!(
        workdir.error("user remove me@example.com --yes", 1),
        "error: me@example.com still has connections: `bellbird connection list --user me@example.com` shows them, \
         and `bellbird connection remove ID` withdraws the consent of each. `bellbird user remove me@example.com \
         --connections` removes all of it"
    );
    let planned = workdir.json("user remove me@example.com --dry-run");
    let plan = json!({"connections": [connection["institutionName"]], "stillConnected": true});
    assert_fields(&planned, &plan);
    let planned = workdir.json("user remove me@example.com --dry-run --connections");
    assert_eq!(planned["stillConnected"], false);
    let local = "user remove me@example.com --dry-run --local-only";
    let plan = json!({"connections": [], "stillConnected": true});
    assert_fields(&workdir.json(local), &plan);
    let said = errors(&workdir.run(local));
    assert_has(&said, "`bellbird connection remove ID --local-only`");
    assert_lacks(&said, "--connections");
    let synced = workdir.json("connection sync --user me@example.com");
    assert_eq!(synced[0]["connectionId"], id);
    let remove = format!("connection remove {id}");
    assert_has(&workdir.error(&remove, 2), "--dry-run");
    let planned = workdir.json(&format!("{remove} --dry-run"));
    let plan = json!({
        "user": "me@example.com", "accounts": accounts, "withdrawsConsent": true, "dryRun": true,
    });
    assert_fields(&planned, &plan);
    let planned = workdir.run(&format!("{remove} --dry-run --local-only"));
    assert_eq!(errors(&planned), "Nothing was changed.\n");
    let planned = String::from_utf8(planned.stdout).unwrap();
    assert_has(&planned, "xxxx");
    assert_has(&planned, "the consent stays active");
    assert_eq!(workdir.json(&show)["status"], "active");
    workdir.json(&remove);
    let left = workdir.json("connection list --user me@example.com");
    assert_eq!(left, json!([]));
    workdir.json("user remove me@example.com");

    // With all connections, which the service removes. The first consent is withdrawn already.
    workdir.json("user add --email me@example.com");
    workdir.import("me@example.com", &description["credentials"][1]);
    let removed = workdir.json("user remove me@example.com --connections");
    assert_eq!(removed["pending"], true);
    let service = workdir.start("serve");
    eventually(async || workdir.json("user list") == json!([])).await;
    service.end();
    sandbox.end();
}

/// Exports the variables that `sandbox` prints and imports the credentials that it prints, for
/// every provider.
#[test]
fn sandbox_output_can_be_pasted() {
    let mut workdir = Workdir::migrated_with_key();
    workdir.json("user add --email me@example.com");
    let mut sandbox =
        RunningCommand::start(&workdir, &format!("sandbox --rows 50 {ANY_SANDBOX_PORTS}"));
    let (mut all_credentials, mut line) = (Vec::new(), String::new());
    while !line.starts_with("Press Ctrl-C") {
        line.clear();
        assert!(sandbox.out.read_line(&mut line).unwrap() > 0);
        if let Some((name, value)) = line
            .trim()
            .strip_prefix("export ")
            .and_then(|rest| rest.split_once('='))
        {
            workdir.set(name, value.trim_matches('\''));
        }
        all_credentials.extend(serde_json::from_str::<Value>(&line).ok());
    }
    for name in simulated_providers() {
        let found = workdir.doctor(name);
        assert_starts(&found[0], "ok ");
        let credentials = all_credentials
            .iter()
            .find(|credentials| credentials["provider"] == name)
            .unwrap_or_else(|| panic!("no credentials of {name}"));
        let id = workdir.import("me@example.com", credentials);
        let imported = workdir.json(&format!("connection show {id}"));
        let active = json!({"provider": name, "status": "active"});
        assert_fields(&imported, &active);
    }
    assert_eq!(
        workdir.json("connection list").as_array().unwrap().len(),
        simulated_providers().count()
    );
    sandbox.end();
}
