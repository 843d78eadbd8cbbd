//! The portal that a link leads to (docs/providers/snaptrade.md#connection-portal), and a way past its pages for those
//! who want none.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::SnapTrade;
use super::errors::Failure;
use super::linking::{Repair, who};
use crate::consent_page::{self, Brand, Desk, End, Host, Landing, Offer, Place, Visit, see_other, with_result};
use crate::query::Query;
use crate::world::brokerage::{BROKERS, Broker, SANDBOX};

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
    pub(super) redirect: String,
    pub(super) trading: bool,
    /// Without a last page.
    pub(super) immediate: bool,
}

/// The link as a browser follows it. `sandbox_auto` is ours: no pages, the result at once.
pub(super) async fn enter(State(snaptrade): State<Arc<SnapTrade>>, request: Request) -> Result<Response, Failure> {
    let query = Query::parse(request.uri().query());
    let token = query.get("token").unwrap_or_default();
    let Some(word) = query.get("sandbox_auto") else { return Ok(consent_page::enter(&*snaptrade, token)) };
    let now = snaptrade.now();
    let redeemed = snaptrade.desk.redeem(token, now).map(Visit::into_subject);
    // The code is the portal's for an expired session; JSON is ours.
    let link = redeemed.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "1006", "No authorization in progress"))?;
    let result = match word {
        "accept" => success(&snaptrade.store.write().link_at_once(&link, now)),
        "error" => error(403, "1066"),
        "abandon" => ABANDONED.to_owned(),
        "deny" => String::new(),
        _ => return Err(Failure::invalid("sandbox_auto must be accept, error, abandon or deny")),
    };
    Ok(see_other(&snaptrade.back(&link, &result)).into_response())
}

const ABANDONED: &str = "status=ABANDONED";

fn success(connection_id: &str) -> String {
    format!("status=SUCCESS&connection_id={connection_id}")
}

fn error(status: u16, code: &str) -> String {
    format!("status=ERROR&status_code={status}&error_code={code}")
}

impl SnapTrade {
    fn back(&self, link: &Link, result: &str) -> String {
        let join = match *self.join.lock() {
            Join::Ampersand => '&',
            Join::QuestionMark => '?',
        };
        with_result(&link.redirect, join, result)
    }

    fn failed(&self, link: &Link, status: u16, code: &str, text: &str) -> Landing {
        Landing {
            location: Some(self.back(link, &error(status, code))),
            // That the last page is skipped for an error too is ours.
            stays: !link.immediate,
            title: "You are not connected".to_owned(),
            text: format!("{text} (error {code})."),
        }
    }

    /// Straight back.
    fn left(&self, link: &Link, result: &str) -> Landing {
        Landing {
            location: Some(self.back(link, result)),
            stays: false,
            title: "You are not connected".to_owned(),
            text: "Nothing was shared.".to_owned(),
        }
    }
}

fn broker(slug: &str) -> &'static Broker {
    BROKERS.iter().copied().find(|broker| broker.slug == slug).unwrap_or(&SANDBOX)
}

impl Host for SnapTrade {
    type Subject = Link;

    const BRAND: Brand = Brand {
        name: "SnapTrade",
        colour: "#123a6b",
        tint: "#f1f5fa",
        // Apps may show the portal in a frame (docs/providers/snaptrade.md#connection-portal).
        framed: true,
        place: "broker",
        wants: &["Names and numbers of the accounts", "Balances and what you hold", "Trades, dividends and payments"],
        note: "It may do so until you stop it, which you can do at any time.",
        stale: "No authorization in progress (error 1006). A link is valid for five minutes and can be used once. Go \
                back to the app and begin anew.",
    };

    fn desk(&self) -> &Desk<Link> {
        &self.desk
    }

    fn now(&self) -> Timestamp {
        self.port.clock.now()
    }

    fn places(&self) -> Vec<Place> {
        let place = |broker: &&Broker| Place { id: broker.slug.to_owned(), name: broker.name.to_owned(), note: None };
        BROKERS.iter().map(place).collect()
    }

    fn barred(&self, _: &str) -> Option<End> {
        None
    }

    fn sign_in(&self, link: &Link, place: &str, name: &str) -> Result<(String, Vec<Offer>), End> {
        let (store, now) = (self.store.read(), self.now());
        match store.repair(link, name, now) {
            Repair::Different => Err(End::Different),
            Repair::Gone => Err(End::Gone),
            Repair::None | Repair::This => Ok((who(store.seed, name), store.offers(link, broker(place), name, now))),
        }
    }

    /// Codes and statuses are the portal's own (docs/providers/snaptrade.md#portal-results); which end has which is
    /// ours where it does not say so.
    fn finish(&self, link: &Link, end: End) -> Landing {
        match end {
            End::Allowed { place, name, chosen } => {
                let (mut store, now) = (self.store.write(), self.now());
                if !store.has_user(link.user, now) {
                    return self.failed(link, 401, "0000", "The user is not there any more");
                }
                match store.repair(link, &name, now) {
                    Repair::Different => self.different(link),
                    Repair::Gone => self.gone(link),
                    Repair::None | Repair::This => {
                        let broker = broker(&place);
                        let id = store.share(link, broker, &name, &chosen, now);
                        Landing {
                            location: Some(self.back(link, &success(&id))),
                            stays: !link.immediate,
                            title: "You are connected".to_owned(),
                            text: format!("{} now shares your accounts at {}.", Self::BRAND.name, broker.name),
                        }
                    }
                }
            }
            // Seen live: nothing but what was there before.
            End::Cancelled { .. } => self.left(link, ""),
            End::Left => self.left(link, ABANDONED),
            End::WrongCode => self.failed(link, 400, "1086", "The one-time code was wrong too often"),
            End::Failed => self.failed(link, 500, "3000", "The broker cannot be reached"),
            End::Refused => self.failed(link, 403, "1066", "The broker did not accept the login"),
            End::Different => self.different(link),
            End::Gone => self.gone(link),
            End::TimedOut => self.failed(link, 400, "1006", "It took too long"),
        }
    }
}

impl SnapTrade {
    fn gone(&self, link: &Link) -> Landing {
        self.failed(link, 400, "1012", "The connection is not there any more")
    }

    fn different(&self, link: &Link) -> Landing {
        self.failed(link, 400, "1023", "This is another login than the one that is to be repaired")
    }
}
