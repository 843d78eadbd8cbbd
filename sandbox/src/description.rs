//! How the sandbox is started, and what it says about itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::Serialize;

use crate::consent::Credentials;

#[derive(Debug, Clone)]
pub struct Options {
    /// The same seed gives the same amounts, texts and ids.
    pub seed: u64,
    /// Posted rows of the busiest account, all in the past.
    pub rows: u32,
    /// In the order of [`crate::PROVIDERS`]. Port 0 takes any free one.
    pub listen: [SocketAddr; 3],
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
            listen: [any; 3],
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
}
