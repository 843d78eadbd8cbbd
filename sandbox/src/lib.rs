//! The providers pretended, on their real wire protocols, so that Bellbird can be run and tested without an account
//! anywhere. Depends on nothing of ours: an adapter must not be able to tell the difference.
//!
//! [`start`] opens a listener per provider. Beside the provider's routes each has `/__control`, where a test forces
//! faults, sets the clock, changes rows and counts calls; the crate's README describes it.

mod akahu;
mod calls;
mod clock;
mod consent_page;
mod control;
mod empty_pages;
mod fault_injection;
mod faults;
mod fiskil;
mod members;
mod query;
mod serve;
mod snaptrade;
mod webhooks;
mod world;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde::Serialize;

/// The providers that are pretended, by the names of their members in [`Description`].
pub const PROVIDERS: [&str; 3] = ["fiskil", "akahu", "snaptrade"];

/// What to pretend, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The same seed gives the same amounts, texts and ids.
    pub seed: u64,
    /// Posted rows of the busiest account, all in the past.
    pub rows: u32,
    /// Where Fiskil listens; port 0 takes any free one.
    pub fiskil_listen: SocketAddr,
    /// Where Akahu listens.
    pub akahu_listen: SocketAddr,
    /// Where SnapTrade listens.
    pub snaptrade_listen: SocketAddr,
    /// The time at the start; it runs on from there. `None`: the system's clock.
    pub now: Option<jiff::Timestamp>,
}

impl Default for Options {
    fn default() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { seed: 1, rows: 2000, fiskil_listen: any, akahu_listen: any, snaptrade_listen: any, now: None }
    }
}

/// Where the pretended providers are and how to get in: what `bellbird sandbox --json` prints.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Description {
    /// Fiskil's address and credentials.
    pub fiskil: FiskilAccess,
    /// Akahu's addresses and credentials.
    pub akahu: AkahuAccess,
    /// SnapTrade's address and credentials.
    pub snaptrade: SnapTradeAccess,
    /// Ready-made credentials: Fiskil's (two of the first person's, one of the second's, two spare), then Akahu's, then
    /// SnapTrade's.
    pub credentials: Vec<Credentials>,
}

/// Address and credentials of the pretended Fiskil.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FiskilAccess {
    /// The origin, without a path and without a slash at the end.
    pub base_url: String,
    /// The team's id.
    pub client_id: String,
    /// The team's secret.
    pub client_secret: String,
    /// The key of webhook signatures, base64.
    pub webhook_secret: String,
}

/// Addresses and credentials of the pretended Akahu.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AkahuAccess {
    /// The API, with `/v1` and without a slash at the end.
    pub base_url: String,
    /// Where users consent.
    pub oauth_url: String,
    /// The app's id token.
    pub app_token: String,
    /// The app's secret.
    pub app_secret: String,
}

/// Address and credentials of the pretended SnapTrade.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapTradeAccess {
    /// The origin, without a path and without a slash at the end.
    pub base_url: String,
    /// The integration's id.
    pub client_id: String,
    /// The key of its signatures.
    pub consumer_key: String,
}

/// A consent that somebody has given already, in the form that `connection import` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "provider", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum Credentials {
    /// A consent at Fiskil.
    Fiskil {
        /// The end user who gave it.
        end_user_id: String,
        /// Which consent.
        arrangement_id: String,
    },
    /// A login that an Akahu user shares.
    Akahu {
        /// The user's token.
        user_token: String,
        /// Which login.
        authorisation: String,
    },
    /// A connection of a SnapTrade user.
    SnapTrade {
        /// The user.
        user_id: String,
        /// Their secret.
        user_secret: String,
        /// Which connection.
        authorization_id: String,
    },
}

/// Running listeners. They end when this is dropped.
pub struct Sandbox {
    description: Description,
    listeners: [serve::Listener; 3],
}

impl Sandbox {
    /// Addresses, credentials and credentials.
    #[must_use]
    pub const fn description(&self) -> &Description {
        &self.description
    }

    /// Ends the listeners: running calls get half a second, and it never takes more than one.
    pub async fn stop(self) {
        futures_util::future::join_all(self.listeners.map(serve::Listener::stop)).await;
    }
}

/// Binds, spawns the listeners and returns when they listen.
///
/// # Errors
///
/// When an address cannot be bound.
pub async fn start(options: Options) -> std::io::Result<Sandbox> {
    let (fiskil_socket, address) = serve::bind(options.fiskil_listen).await?;
    let fiskil = Arc::new(fiskil::Fiskil::new(&options, address));
    let (akahu_socket, address) = serve::bind(options.akahu_listen).await?;
    let akahu = Arc::new(akahu::Akahu::new(&options, address));
    let (snaptrade_socket, address) = serve::bind(options.snaptrade_listen).await?;
    let snaptrade = Arc::new(snaptrade::SnapTrade::new(&options, address));
    let description = Description {
        fiskil: fiskil.access(),
        akahu: akahu.access(),
        snaptrade: snaptrade.access(),
        credentials: [fiskil.credentials(), akahu.credentials(), snaptrade.credentials()].concat(),
    };
    let listeners = [
        serve::Listener::start(fiskil_socket, fiskil.router()),
        serve::Listener::start(akahu_socket, akahu.router()),
        serve::Listener::start(snaptrade_socket, snaptrade.router()),
    ];
    Ok(Sandbox { description, listeners })
}
