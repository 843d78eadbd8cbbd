//! The settings of the console, and what it takes when it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Plan, UserId};
use bellbird_limits::client_address::Network;
use bellbird_webhooks::Webhooks;
use secrecy::SecretString;

use crate::emails::{EmailSettings, Mailer};
use crate::provider_control::{MasterKey, ProviderControl};

#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// Shown on every page.
    pub operator_name: Option<String>,
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Requests a minute with unknown link tokens and states, for each client address. 0 means no
    /// limit.
    pub failed_auth_per_minute: u32,
    /// Pages a minute that a user who is signed in opens, in all browsers together. 0 means no
    /// limit.
    pub console_per_minute: u32,
    /// The same for forms.
    pub console_forms_per_minute: u32,
    /// How long a page of trades counts, as their windows in the API. Zero caches none.
    pub trades_cache: Duration,
    /// How long the first rows of a page wait for slower banks.
    pub first_rows_within: Duration,
    /// None: users sign in by link only.
    pub oidc: Option<OidcSettings>,
    /// None: no e-mails.
    pub email: Option<EmailSettings>,
}

impl ConsoleSettings {
    /// Whether a link signs in a user. None is made for others.
    #[must_use]
    pub fn lets_in_by_link(&self, is_operator: bool) -> bool {
        let lets_in = |oidc: &OidcSettings| !oidc.operators_only_here;
        !is_operator || self.oidc.as_ref().is_none_or(lets_in)
    }
}

/// The identity provider at which users sign in.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// As the provider writes it. https, or http on this machine.
    pub issuer: String,
    pub client_id: String,
    pub client_secret: SecretString,
    /// The plan of users who are added because no user has their verified e-mail address. None:
    /// nobody is added.
    pub create_users: Option<Plan>,
    /// Whether no link signs in an operator, so that a mailbox alone makes nobody one.
    pub operators_only_here: bool,
}

/// What is known once the service has its addresses.
#[derive(Debug, Clone)]
pub struct Site {
    /// Public URLs of the service.
    pub api_url: String,
    pub console_url: String,
    /// Whether the API listens beyond this machine.
    pub is_api_open: bool,
    /// None: no e-mails.
    pub mailer: Option<Mailer>,
    pub webhooks: Webhooks,
    pub providers: Arc<dyn ProviderControl>,
    /// Whether pages and logos of simulated providers are below the console.
    pub serves_sandbox: bool,
    /// For commands that an operator runs beside the service. None: its settings need none.
    pub settings_file: Option<PathBuf>,
    /// None: there is no first start to complete.
    pub master_key: Option<MasterKey>,
    /// Only in `bellbird demo`.
    pub demo: Option<Demo>,
}

/// What the demo adds to the console: a button that makes a link URL, for a browser on this
/// machine.
#[derive(Debug, Clone)]
pub struct Demo {
    /// The user of the link URLs.
    pub user: UserId,
    pub email: String,
    /// The URL of its database for commands that run beside it. None if it has a password.
    pub database: Option<String>,
}
