//! A link to the connection portal.

use serde::{Deserialize, Serialize};

use crate::world::brokerage::Broker;

/// Where a link leads.
pub(super) const PATH: &str = "/snapTrade/redeemToken";

/// How a result is joined to a redirect that has a query already. Which of the two the real portal does is not known
/// (docs/providers/snaptrade.md#portal-results).
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) enum Join {
    #[default]
    #[serde(rename = "&")]
    Ampersand,
    #[serde(rename = "?")]
    QuestionMark,
}

/// What a link was made for.
pub(crate) struct Link {
    pub(super) user: u64,
    pub(super) broker: Option<&'static Broker>,
    /// The connection to be repaired.
    pub(super) reconnect: Option<String>,
    pub(super) redirect_uri: String,
    pub(super) trading: bool,
    /// Without a last page.
    pub(super) immediate: bool,
}
