//! `serve --sandbox`: the simulated providers in the process of the service.

use reqwest::Url;

use crate::support::browser::{open, start};
use crate::support::harness::simulated_providers;
use crate::support::process::{Addresses, RunningCommand, Workdir, get, text};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// Where a link URL leads a browser.
async fn consent_page(link_url: &str) -> Url {
    let page = start(link_url).await;
    let location = page.headers["location"].to_str().unwrap();
    link_url.parse::<Url>().unwrap().join(location).unwrap()
}

/// From an empty folder to rows, and the same rows after restarts.
#[tokio::test]
async fn links_outlive_a_restart() {
    let (workdir, addresses) = (Workdir::new(), Addresses::new());
    let serve = |flag: &str| {
        let line = format!("serve --json {flag} {}", addresses.options());
        RunningCommand::start(&workdir, &line)
    };
    let service = serve("--sandbox");
    workdir.json("user add --email me@example.com");
    consent_pages_are_below_the_console(&workdir, &addresses).await;
    let key = workdir.field("key create --user me@example.com --name test", "key");
    for provider in simulated_providers() {
        let line = format!("connection link --user me@example.com --provider {provider}");
        let mut page = consent_page(&workdir.field(&line, "url")).await;
        // A browser elsewhere reaches it.
        let own = format!("http://{}/sandbox/{provider}", addresses.console);
        assert_starts(page.as_str(), &own);
        page.query_pairs_mut().append_pair("sandbox_auto", "accept");
        let consented = open(page.as_str()).await;
        let callback = consented.headers["location"].to_str().unwrap();
        // The browser stays at the address where its session is.
        assert_starts(callback, "/link/callback?");
        open(page.join(callback).unwrap().as_str()).await;
    }
    let api = format!("http://{}", addresses.api);
    let rows = async |limit: usize| {
        let connections = get(&format!("{api}/v1/connections"), Some(&key)).await.1;
        let mut all = Vec::new();
        for connection in connections["data"].as_array().unwrap() {
            assert_eq!(connection["status"], "active", "{connection}");
            let kind = match text(connection, "category") {
                "banking" => "transactions",
                _ => "trades",
            };
            let id = text(connection, "id");
            let path = format!("{api}/v1/{kind}?connectionId={id}&limit={limit}");
            let (status, body) = get(&path, Some(&key)).await;
            assert_eq!(status, 200, "{body}");
            all.push(body["data"].as_array().unwrap().clone());
        }
        all
    };
    let before = rows(20).await;
    // One of the providers shares two logins at once.
    assert!(before.len() >= simulated_providers().count());
    assert!(before.iter().all(|rows| !rows.is_empty()));
    // A command calls the same providers.
    let synced = workdir.json("connection sync --all");
    assert_eq!(synced.as_array().unwrap().len(), before.len(), "{synced}");
    drop(service);

    // Killed. The database remembers that the providers are simulated.
    let service = serve("");
    // A start adds the rows that the simulated banks have had since.
    let mut after = rows(100).await;
    for (rows, known) in after.iter_mut().zip(&before) {
        rows.retain(|row| known.contains(row));
    }
    assert_eq!(after, before);
    service.end();
}

/// The consent page works below the console, without a script.
async fn consent_pages_are_below_the_console(workdir: &Workdir, addresses: &Addresses) {
    let link = "connection link --user me@example.com --provider akahu";
    let page = consent_page(&workdir.field(link, "url")).await;
    let shown = reqwest::get(page.as_str()).await.unwrap();
    assert_eq!(shown.status(), 200);
    let console = format!("http://{}", addresses.console);
    // Nobody uses the sandbox to lead somebody elsewhere.
    let mut elsewhere = page.clone();
    let pairs: Vec<_> = page.query_pairs().into_owned().collect();
    let changed = pairs.into_iter().map(|(name, value)| match name.as_str() {
        "redirect_uri" => (name, "http://127.0.0.1:9/link/callback".to_owned()),
        _ => (name, value),
    });
    elsewhere.query_pairs_mut().clear().extend_pairs(changed);
    let rejected = reqwest::get(elsewhere.as_str()).await.unwrap();
    assert_eq!(rejected.status(), 400);
    // Another device of the network reaches no port but the console's.
    let logo = format!("{console}/sandbox/fiskil/logos/11.svg");
    let logo = reqwest::get(logo).await.unwrap();
    assert_eq!(logo.headers()["content-type"], "image/svg+xml");
    for path in [
        "/sandbox/akahu/v1/accounts",
        "/sandbox/akahu/__control/calls",
        "/sandbox/other",
    ] {
        let response = reqwest::get(format!("{console}{path}")).await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
    }

    // A second service leaves the simulated providers alone.
    let folder = workdir.data_folder().join("bellbird.db-sandbox");
    let running = || std::fs::read(folder.join("running.json")).unwrap();
    let before = running();
    let second = format!("serve --sandbox {}", Addresses::new().options());
    let error = workdir.error(&second, 1);
    assert_has(&error, "another service runs");
    assert!(running() == before);
}

/// With the flag, the service says so and does not start. Without it, everything else works.
#[tokio::test]
async fn damaged_state_is_in_the_log_with_what_to_do() {
    let (workdir, addresses) = (Workdir::new(), Addresses::new());
    let serve = |flag: &str| format!("serve {flag} {}", addresses.options());
    RunningCommand::start(&workdir, &serve("--sandbox --json")).end();
    let state = workdir.data_folder().join("bellbird.db-sandbox/akahu.json");
    std::fs::write(&state, "{").unwrap();
    let started = workdir.error(&serve("--sandbox"), 1);
    let log = RunningCommand::start(&workdir, &serve("--json")).end();
    for said in [started, log] {
        assert_has(&said, "akahu.json cannot be read");
        assert_has(&said, "Delete it, start again, and link again");
    }
    std::fs::remove_file(&state).unwrap();
    RunningCommand::start(&workdir, &serve("--json")).end();
    assert!(state.exists());
}

/// Anybody reaches the console of a public URL. Providers of the settings are not simulated.
#[tokio::test]
async fn public_console_has_all_pages_of_a_simulated_consent() {
    let (mut workdir, addresses) = (Workdir::new(), Addresses::new());
    let public = "https://bellbird.example/console";
    workdir.set("BELLBIRD_CONSOLE__PUBLIC_URL", public);
    workdir.set("BELLBIRD_FISKIL__CLIENT_ID", "real");
    workdir.set("BELLBIRD_FISKIL__CLIENT_SECRET", "real");
    let line = format!("serve --json --sandbox {}", addresses.options());
    let service = RunningCommand::start(&workdir, &line);
    workdir.json("user add --email me@example.com");
    let link = "connection link --user me@example.com --provider akahu";
    let console = format!("http://{}", addresses.console);
    let stripped = workdir.field(link, "url").replace(public, &console);
    let location = start(&stripped).await.headers["location"].clone();
    let path = location.to_str().unwrap();
    let below = path.strip_prefix("/console").unwrap();
    assert_starts(below, "/sandbox/akahu");

    let shown = reqwest::get(format!("{console}{below}")).await.unwrap();
    assert_eq!(shown.status(), 200, "its redirect URI is registered");
    assert_eq!(shown.headers()["x-frame-options"], "DENY");
    for name in ["sandbox_auto", "sandbox%5Fauto"] {
        let url = format!("{console}{below}&{name}=accept");
        assert_eq!(reqwest::get(url).await.unwrap().status(), 403, "{name}");
    }
    let status = workdir.json("status");
    let providers = status["providers"].as_array().unwrap();
    assert!(providers.contains(&"fiskil".into()), "{status}");
    assert_lacks(&service.end(), "\"provider\":\"fiskil\",\"is_enabled\"");
}
