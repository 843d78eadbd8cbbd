//! Credentials that an operator enters, at providers that speak their real protocols.

use reqwest::Url;

use super::FirstPage;
use crate::privacy::{contains, files};
use crate::support::process::{ANY_SANDBOX_PORTS, Addresses, RunningCommand, Workdir, text};

const PATH: &str = "/operator/providers";
const WRONG: &str = "wrong-4f1c77a9";

/// What the form calls a credential, and what the sandbox calls it.
type Names = (&'static str, &'static str);

/// The two credentials of each provider, and what the page says if one of them is wrong. No
/// provider says which.
const PROVIDERS: [(&str, [Names; 2], &str); 3] = [
    (
        "fiskil",
        [("client_id", "clientId"), ("client_secret", "clientSecret")],
        "Fiskil rejects Client ID or Client secret (status 401).",
    ),
    (
        "akahu",
        [("app_token", "appToken"), ("app_secret", "appSecret")],
        "Akahu rejects App ID Token or App Secret, of a full app (status 401).",
    ),
    (
        "snaptrade",
        [("client_id", "clientId"), ("consumer_key", "consumerKey")],
        "SnapTrade rejects Client ID or Consumer key, or the clock of the server is wrong (status 401).",
    ),
];

fn form(pairs: &[(&str, &str)]) -> String {
    let url = Url::parse_with_params("http://form.example", pairs).unwrap();
    url.query().unwrap().to_owned()
}

#[tokio::test]
async fn wrong_credentials_are_named_and_right_ones_are_shown_nowhere() {
    let (mut workdir, addresses) = (Workdir::new(), Addresses::new());
    let line = format!("sandbox --json {ANY_SANDBOX_PORTS}");
    let sandbox = RunningCommand::start(&workdir, &line);
    let access = sandbox.json();
    for (provider, ..) in PROVIDERS {
        let name = format!("BELLBIRD_{}__BASE_URL", provider.to_uppercase());
        workdir.set(&name, text(&access[provider], "baseUrl"));
    }
    // As a compose file has one that is left to the page.
    workdir.set("BELLBIRD_AKAHU__APP_SECRET", "");
    workdir.set("BELLBIRD_LOG__LEVEL", "trace");
    let log = workdir.path().join("log");
    let line = format!("serve --json {}", addresses.options());
    let service = RunningCommand::start_with_log(&workdir, &line, &log);
    let console = FirstPage::of(&service, &addresses).await;

    let mut entered = Vec::new();
    for (provider, [id, secret], words) in PROVIDERS {
        let right = [id, secret].map(|(_, name)| text(&access[provider], name));
        for values in [[WRONG, right[1]], [right[0], WRONG]] {
            let wrong = form(&[("set", provider), (id.0, values[0]), (secret.0, values[1])]);
            let page = console.post(PATH, &wrong).await;
            page.assert_shows(400, words);
            assert_eq!(page.text.matches("aria-invalid").count(), 2, "{provider}");
            page.assert_lacks(values[1]);
        }
        let right_form = form(&[("set", provider), (id.0, right[0]), (secret.0, right[1])]);
        let stored = console.post(PATH, &right_form).await;
        stored.assert_leads_to(&format!(
            "{PATH}?done=credentials-stored&at={provider}#done"
        ));
        entered.extend(right);
    }
    let status = workdir.json("status");
    let used = status["providers"].as_array().unwrap();
    assert_eq!(used.len(), PROVIDERS.len(), "{status}");

    for path in [
        PATH,
        "/overview",
        "/connections",
        "/operator/health",
        "/operator/audit",
        "/operator/audit.csv",
        "/settings/data.json",
    ] {
        let page = console.get(path).await;
        page.assert_status(200);
        for credential in &entered {
            page.assert_lacks(credential);
        }
    }
    workdir.json("backup --keep 1 backups");
    service.end();
    entered.push(WRONG);
    for (name, content) in files(&workdir.path()) {
        for credential in &entered {
            assert!(!contains(&content, credential), "{credential} in {name}");
        }
    }
}
