//! A link to the connection portal, as a login request defines it.

use serde::{Deserialize, Serialize};

use crate::world::brokerage::Broker;

/// The path of a link.
pub(super) const PATH: &str = "/snapTrade/redeemToken";

/// How a result is joined to a redirect URI that has a query. Tests set it because the real
/// portal's way is unknown (docs/providers/snaptrade.md#portal-results).
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) enum Join {
    #[default]
    #[serde(rename = "&")]
    Ampersand,
    #[serde(rename = "?")]
    QuestionMark,
}

/// The parameters of a link.
pub(crate) struct Link {
    pub(super) user: u64,
    pub(super) broker: Option<&'static Broker>,
    /// The connection to repair.
    pub(super) reconnect: Option<String>,
    pub(super) redirect_uri: String,
    pub(super) trading: bool,
    /// Skips the last page.
    pub(super) immediate: bool,
}
