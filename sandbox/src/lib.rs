//! Simulates Fiskil, Akahu and SnapTrade on their real wire protocols. With it Bellbird runs and is
//! tested without an account at any provider. The crate depends on no other crate of the workspace:
//! an adapter must not be able to distinguish it from the real provider.
//!
//! [`start`] opens a listener per provider. A [`Bank`] for each sets faults and the clock, changes
//! rows and counts calls. `/__control` of each listener is the same over HTTP; the crate's README
//! describes it.

mod akahu;
mod bank;
mod calls;
mod clock;
mod consent_page;
mod control;
mod empty_pages;
mod fault_injection;
mod faults;
mod fiskil;
mod logos;
mod members;
mod provider;
mod query;
mod saved;
mod serve;
mod snaptrade;
mod state;
mod store;
mod webhooks;
mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use serde::Serialize;

pub use bank::{Bank, ConsentState, Refused};
pub use faults::{Fault, Kind as FaultKind};
pub use webhooks::{Sign, WebhookSettings};

/// The simulated providers, by the names of their members in [`Description`].
pub const PROVIDERS: [&str; 3] = ["fiskil", "akahu", "snaptrade"];

/// The paths at which browsers arrive, of all providers.
const PAGES: [&str; 4] = ["/", "/consent", "/authorize", "/snapTrade/redeemToken"];

#[derive(Debug, Clone)]
pub struct Options {
    /// The same seed gives the same amounts, texts and ids.
    pub seed: u64,
    /// Posted rows of the busiest account, all in the past.
    pub rows: u32,
    /// Port 0 takes any free one, here and below.
    pub fiskil_listen: SocketAddr,
    pub akahu_listen: SocketAddr,
    pub snaptrade_listen: SocketAddr,
    /// The folder with the state of an earlier sandbox, to go on with and to save into. Without it,
    /// consents end with the process.
    pub state: Option<PathBuf>,
    /// Whether control calls may send webhooks to other machines.
    pub webhooks_anywhere: bool,
    /// The start of the clock, which then runs on; `None` is the system time.
    pub now: Option<jiff::Timestamp>,
}

impl Default for Options {
    fn default() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            seed: 1,
            rows: 2000,
            fiskil_listen: any,
            akahu_listen: any,
            snaptrade_listen: any,
            state: None,
            webhooks_anywhere: false,
            now: None,
        }
    }
}

/// Base URLs and credentials of the simulated providers, as `bellbird sandbox --json` prints them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    pub fiskil: FiskilAccess,
    pub akahu: AkahuAccess,
    pub snaptrade: SnapTradeAccess,
    /// Ready-made consents: Fiskil's (two of the first user, one of the second, three spare), then
    /// Akahu's, then SnapTrade's.
    pub credentials: Vec<Credentials>,
    /// Whose each of them is, in the same order: name and institution.
    pub people: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FiskilAccess {
    /// The origin, without a path or trailing slash.
    pub base_url: String,
    pub client_id: String,
    pub client_secret: String,
    /// Signs webhooks; base64.
    pub webhook_secret: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AkahuAccess {
    /// The API with `/v1`, without a trailing slash.
    pub base_url: String,
    /// The consent page.
    pub oauth_url: String,
    /// The app's id token.
    pub app_token: String,
    pub app_secret: String,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapTradeAccess {
    /// The origin, without a path or trailing slash.
    pub base_url: String,
    pub client_id: String,
    /// Signs calls and webhooks.
    pub consumer_key: String,
    /// Not in the JSON, because the settings of a service have one key.
    #[serde(skip)]
    pub personal: SnapTradePersonalKey,
}

/// A key for one user, who needs no secret (docs/providers/snaptrade.md#keys).
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapTradePersonalKey {
    pub client_id: String,
    pub consumer_key: String,
    pub user_id: String,
}

/// Credentials of an existing consent, in the format that `bellbird connection import` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "provider",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum Credentials {
    Fiskil {
        /// The end user who gave the consent.
        end_user_id: String,
        arrangement_id: String,
    },
    /// One login that an Akahu user shares.
    Akahu {
        user_token: String,
        authorisation: String,
    },
    SnapTrade {
        user_id: String,
        user_secret: String,
        authorization_id: String,
    },
}

/// The running listeners. Dropping it stops them.
pub struct Sandbox {
    description: Description,
    /// In the order of [`PROVIDERS`], as those below.
    banks: [Bank; 3],
    routers: [Router; 3],
    listeners: [serve::Listener; 3],
}

impl Sandbox {
    #[must_use]
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// The provider with this name, one of [`PROVIDERS`].
    ///
    /// # Panics
    /// If it is none of them.
    #[must_use]
    pub fn bank(&self, provider: &str) -> &Bank {
        let index = PROVIDERS.iter().position(|name| *name == provider);
        &self.banks[index.expect("the sandbox simulates the provider")]
    }

    /// Where browsers find the pages of each provider.
    #[must_use]
    pub fn origins(&self) -> [(&'static str, &str); 3] {
        let Description {
            fiskil,
            akahu,
            snaptrade,
            ..
        } = &self.description;
        let [first, second, third] = PROVIDERS;
        [
            (first, &fiskil.base_url),
            (second, &akahu.oauth_url),
            (third, &snaptrade.base_url),
        ]
    }

    /// The routes of the provider with this name, if `path` is one of its pages for browsers.
    #[must_use]
    pub fn page_router(&self, provider: &str, path: &str) -> Option<&Router> {
        let index = PROVIDERS.iter().position(|name| *name == provider)?;
        PAGES.contains(&path).then(|| &self.routers[index])
    }

    /// Lets users of an app at this URI, which is not of this machine, come back from a consent
    /// page.
    pub fn register_redirect_uri(&self, uri: &str) -> Result<(), Refused> {
        let options = serde_json::json!({"redirectUris": [uri]});
        self.bank("akahu").set_options(&options).map(drop)
    }

    /// Stops the listeners within a second. Running calls get half a second to finish.
    pub async fn stop(self) {
        futures_util::future::join_all(self.listeners.map(serve::Listener::stop)).await;
    }
}

/// Binds the listeners, starts them and returns once they accept connections. Fails if an address
/// cannot be bound.
pub async fn start(options: Options) -> std::io::Result<Sandbox> {
    let (fiskil_socket, address) = serve::bind(options.fiskil_listen).await?;
    let saved = state::load(&options, "fiskil")?;
    let fiskil = Arc::new(fiskil::Fiskil::new(&options, address, saved));
    let (akahu_socket, address) = serve::bind(options.akahu_listen).await?;
    let saved = state::load(&options, "akahu")?;
    let akahu = Arc::new(akahu::Akahu::new(&options, address, saved));
    let (snaptrade_socket, address) = serve::bind(options.snaptrade_listen).await?;
    let saved = state::load(&options, "snaptrade")?;
    let snaptrade = Arc::new(snaptrade::SnapTrade::new(&options, address, saved));
    let (fiskil_access, akahu_access) = (fiskil.access(), akahu.access());
    let snaptrade_access = snaptrade.access();
    let banks = [
        Bank(Arc::clone(&fiskil) as _),
        Bank(Arc::clone(&akahu) as _),
        Bank(Arc::clone(&snaptrade) as _),
    ];
    let ready_made = banks.iter().flat_map(|bank| bank.0.credentials(false));
    let (credentials, people) = ready_made.unzip();
    let description = Description {
        fiskil: fiskil_access,
        akahu: akahu_access,
        snaptrade: snaptrade_access,
        credentials,
        people,
    };
    for bank in &banks {
        bank.0.save()?;
    }
    let [fiskil_bank, akahu_bank, snaptrade_bank] = &banks;
    let routers = [
        control::watch(fiskil_bank, fiskil.router()),
        control::watch(akahu_bank, akahu.router()),
        control::watch(snaptrade_bank, snaptrade.router()),
    ];
    let listen = |socket, bank: &Bank, router: &Router| {
        serve::Listener::start(socket, control::attach(bank, router.clone()))
    };
    let listeners = [
        listen(fiskil_socket, fiskil_bank, &routers[0]),
        listen(akahu_socket, akahu_bank, &routers[1]),
        listen(snaptrade_socket, snaptrade_bank, &routers[2]),
    ];
    Ok(Sandbox {
        description,
        banks,
        routers,
        listeners,
    })
}
