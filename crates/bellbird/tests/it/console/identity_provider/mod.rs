//! Signing in at an identity provider, which is oidc-provider as npm has it.

mod chromium;
mod sign_in;
mod visitor;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use bellbird_console::OidcSettings;
use bellbird_domain::Plan;
use serde_json::{Value, json};

use crate::support::browser;
use crate::support::harness::{App, Setup};
use crate::support::process::Process;

/// `scripts/setup` installs them: the versions and digests are in the lock files.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");
const PROGRAM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scripts/identity-provider/provider.mjs"
);

/// A running identity provider. Dropping it kills the process.
struct IdentityProvider {
    _process: Process,
    issuer: String,
}

impl IdentityProvider {
    fn start() -> Self {
        let node = ["linux-x64", "linux-arm64"]
            .map(|name| format!("{TARGET}/node22/node_modules/node-{name}/bin/node"));
        let node = node
            .iter()
            .find(|path| Path::new(path).exists())
            .expect("scripts/setup browser installs Node.js 22");
        let mut process = Command::new(node)
            .args([PROGRAM, &format!("{TARGET}/identity-provider")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Node.js starts");
        let mut issuer = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut issuer)
            .unwrap();
        assert!(
            issuer.starts_with("http://localhost:"),
            "scripts/setup browser installs oidc-provider: {issuer}"
        );
        Self {
            _process: Process(process),
            issuer: issuer.trim().to_owned(),
        }
    }

    /// Of a service that is a client here.
    fn settings(&self) -> OidcSettings {
        OidcSettings {
            issuer: self.issuer.clone(),
            client_id: "bellbird".to_owned(),
            client_secret: "a secret of the test: 100%".to_owned().into(),
            create_users: None,
            operators_only_here: false,
        }
    }

    async fn app(&self, create_users: Option<Plan>) -> App {
        self.app_with(OidcSettings {
            create_users,
            ..self.settings()
        })
        .await
    }

    /// A service, whose redirect URI this provider knows.
    async fn app_with(&self, oidc: OidcSettings) -> App {
        let app = App::start(Setup::with(|settings| settings.pages.oidc = Some(oidc))).await;
        self.control(json!({"redirectUri": format!("{}/sign-in/oidc/callback", app.console_url)}))
            .await;
        app
    }

    /// The first lines of `provider.mjs` list the members.
    async fn control(&self, change: Value) {
        let url = format!("{}/__control", self.issuer);
        let response = browser::client()
            .put(url)
            .json(&change)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
    }

    /// Whom the provider signs in from now on, with a verified e-mail address.
    async fn choose(&self, sub: &str, email: &str) {
        self.control(json!({"account": {"sub": sub, "email": email, "email_verified": true}}))
            .await;
    }
}
