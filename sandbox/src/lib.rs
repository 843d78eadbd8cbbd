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
mod consent;
mod consent_page;
mod control;
mod description;
mod empty_pages;
mod fault_injection;
mod faults;
mod fiskil;
mod host;
mod logos;
mod members;
mod merge;
mod provider;
mod query;
mod refused;
mod respond;
mod saved;
mod serve;
mod snaptrade;
mod state;
mod store;
mod webhooks;
mod world;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

pub use bank::Bank;
pub use consent::{ConsentState, Credentials};
pub use description::{AkahuAccess, Description, FiskilAccess, Options, SnapTradeAccess};
pub use faults::{Fault, Kind as FaultKind};
pub use refused::Refused;
pub use webhooks::{Sign, WebhookSettings};

use control::Callers;

/// The simulated providers, by the names of their members in [`Description`].
pub const PROVIDERS: [&str; 3] = ["fiskil", "akahu", "snaptrade"];

/// The paths at which browsers arrive, of all providers.
const PAGES: [&str; 4] = ["/", "/consent", "/authorize", "/snapTrade/redeemToken"];

/// How often rows are added to a saved state, so that they end today.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3600);

/// The running listeners. Dropping it stops them.
pub struct Sandbox {
    description: Description,
    /// In the order of [`PROVIDERS`].
    providers: [Running; 3],
    _save: SaveAtStop,
}

struct Running {
    bank: Bank,
    /// For browsers.
    pages: Router,
    listener: serve::Listener,
}

impl Running {
    fn start(bank: &Bank, socket: TcpListener, routes: Router) -> Self {
        let pages = control::watch(bank, Callers::Browsers, routes.clone());
        let routes = control::watch(bank, Callers::Clients, routes);
        Self {
            bank: bank.clone(),
            pages,
            listener: serve::Listener::start(socket, control::attach(bank, routes)),
        }
    }
}

/// Until it is aborted.
async fn repeat_rows(banks: &[Bank; 3]) {
    loop {
        tokio::time::sleep(REPEAT_INTERVAL).await;
        for bank in banks {
            if bank.0.repeat_rows() {
                bank.save();
            }
        }
    }
}

/// Saves what pages have changed in the last second, and ends what goes on without calls.
struct SaveAtStop([Bank; 3], Option<AbortHandle>);

impl Drop for SaveAtStop {
    fn drop(&mut self) {
        if let Some(repeating) = &self.1 {
            repeating.abort();
        }
        for bank in &self.0 {
            let file = bank.0.shared().state_file.as_ref();
            if file.is_some_and(state::StateFile::is_save_pending) {
                bank.save();
            }
        }
    }
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
        let running = self.running(provider);
        &running.expect("the sandbox simulates the provider").bank
    }

    fn running(&self, provider: &str) -> Option<&Running> {
        let index = PROVIDERS.iter().position(|name| *name == provider)?;
        self.providers.get(index)
    }

    /// Where browsers find the pages of each provider.
    #[must_use]
    pub fn origins(&self) -> [(&'static str, &str); 3] {
        let [fiskil, akahu, snaptrade] = PROVIDERS;
        let of = &self.description;
        [
            (fiskil, &of.fiskil.base_url),
            (akahu, &of.akahu.oauth_url),
            (snaptrade, &of.snaptrade.base_url),
        ]
    }

    /// The routes of the provider with this name, if `path` is one of its pages for browsers, or a
    /// logo.
    #[must_use]
    pub fn page_router(&self, provider: &str, path: &str) -> Option<&Router> {
        let running = self.running(provider)?;
        let is_page = PAGES.contains(&path) || path.starts_with(logos::PREFIX);
        is_page.then_some(&running.pages)
    }

    /// Lets users come back from a consent page to this URI of the app, and to no other.
    pub fn register_redirect_uri(&self, uri: &str) -> Result<(), Refused> {
        let options = serde_json::json!({"redirectUris": [uri]});
        self.bank("akahu").set_options(&options).map(drop)
    }

    /// Stops the listeners within a second. Running calls get half a second to finish.
    pub async fn stop(self) {
        join_all(self.providers.map(|running| running.listener.stop())).await;
    }
}

/// Binds the listeners, starts them and returns once they accept connections. Fails if an address
/// cannot be bound.
pub async fn start(options: Options) -> std::io::Result<Sandbox> {
    let keys = state::Keys::load(&options)?;
    let (fiskil_socket, address) = serve::bind(options.listen[0]).await?;
    let fiskil = Arc::new(fiskil::Fiskil::new(&options, &keys, address)?);
    let (akahu_socket, address) = serve::bind(options.listen[1]).await?;
    let akahu = Arc::new(akahu::Akahu::new(&options, &keys, address)?);
    let (snaptrade_socket, address) = serve::bind(options.listen[2]).await?;
    let snaptrade = Arc::new(snaptrade::SnapTrade::new(&options, &keys, address)?);
    let banks = [
        Bank(Arc::clone(&fiskil) as _),
        Bank(Arc::clone(&akahu) as _),
        Bank(Arc::clone(&snaptrade) as _),
    ];
    let ready_made = banks.iter().flat_map(|bank| bank.0.credentials(false));
    let (credentials, people) = ready_made.unzip();
    let description = Description {
        fiskil: fiskil.access.clone(),
        akahu: akahu.access.clone(),
        snaptrade: snaptrade.access.clone(),
        credentials,
        people,
    };
    for bank in &banks {
        bank.0.repeat_rows();
        bank.0.save()?;
    }
    let repeating = options.state.as_ref().map(|_| {
        let banks = banks.clone();
        tokio::spawn(async move { repeat_rows(&banks).await }).abort_handle()
    });
    let providers = [
        Running::start(&banks[0], fiskil_socket, fiskil.router()),
        Running::start(&banks[1], akahu_socket, akahu.router()),
        Running::start(&banks[2], snaptrade_socket, snaptrade.router()),
    ];
    Ok(Sandbox {
        description,
        providers,
        _save: SaveAtStop(banks, repeating),
    })
}
