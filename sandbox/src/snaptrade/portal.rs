//! SnapTrade's part of the consent page, which a link opens
//! (docs/providers/snaptrade.md#connection-portal). `sandbox_auto` skips the pages for tests that
//! do not need them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;

use super::SnapTrade;
use super::errors::Failure;
use super::linking::display_name;
use super::login::Link;
use crate::consent_page::{
    self, Brand, ConsentOutcome, ConsentProvider, ConsentResult, ConsentSession, InstitutionOption,
    OfferedAccount, append_query, see_other,
};
use crate::query::Query;
use crate::world::brokerage::{BROKERAGE, Broker, broker, test_broker};

/// Opens a link in the browser. With `sandbox_auto`, which the sandbox adds, it responds at once
/// without pages.
pub(super) async fn enter(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
) -> Result<Response, Failure> {
    let query = Query::parse(request.uri().query());
    let token = query.get("token").unwrap_or_default();
    let Some(word) = query.get("sandbox_auto") else {
        return Ok(consent_page::session_page(&*snaptrade, token));
    };
    let now = snaptrade.clock.now();
    let redeemed = snaptrade
        .consent_sessions
        .redeem(token, now)
        .map(ConsentSession::into_auth_request);
    // The portal's code for an expired session. The JSON body is a sandbox choice.
    let link = redeemed.ok_or_else(|| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            "1006",
            "No authorization in progress",
        )
    })?;
    let result = match word {
        "accept" => success(&snaptrade.store.write().link_without_pages(&link, now)),
        "error" => error(403, "1066"),
        "abandon" => ABANDONED.to_owned(),
        "deny" => String::new(),
        _ => {
            return Err(Failure::invalid(
                "sandbox_auto must be accept, error, abandon or deny",
            ));
        }
    };
    Ok(see_other(&link.redirect(&result)))
}

const ABANDONED: &str = "status=ABANDONED";

fn success(connection_id: &str) -> String {
    format!("status=SUCCESS&connection_id={connection_id}")
}

fn error(status: u16, code: &str) -> String {
    format!("status=ERROR&status_code={status}&error_code={code}")
}

impl Link {
    /// Where a result leads. How the real portal joins it to a redirect URI that has a query is
    /// unknown (docs/providers/snaptrade.md#portal-results).
    fn redirect(&self, result: &str) -> String {
        append_query(&self.redirect_uri, result)
    }

    fn failed(&self, status: u16, code: &str, text: &str) -> ConsentResult {
        ConsentResult {
            location: Some(self.redirect(&error(status, code))),
            // Skipping the last page for an error too is a sandbox choice.
            shows_page: !self.immediate,
            title: "You are not connected".to_owned(),
            text: format!("{text} (error {code})."),
        }
    }

    /// Redirects at once.
    fn redirect_without_page(&self, result: &str) -> ConsentResult {
        ConsentResult {
            location: Some(self.redirect(result)),
            shows_page: false,
            title: "You are not connected".to_owned(),
            text: "Nothing was shared.".to_owned(),
        }
    }
}

fn chosen_broker(slug: &str) -> &'static Broker {
    broker(slug).unwrap_or_else(test_broker)
}

impl ConsentProvider for SnapTrade {
    const BRAND: Brand = Brand {
        name: "SnapTrade",
        colour: "#123a6b",
        tint: "#f1f5fa",
        // Apps may show the portal in a frame (docs/providers/snaptrade.md#connection-portal).
        framed: true,
        institution_word: "broker",
        permissions: &[
            "Names and numbers of the accounts",
            "Balances and what you hold",
            "Trades, dividends and payments",
        ],
        note: "It may do so until you stop it, which you can do at any time.",
        expired_text: "No authorization in progress (error 1006). A link is valid for five minutes and can be used \
            once. Go back to the app and start again.",
    };

    fn institutions(&self) -> Vec<InstitutionOption> {
        let option = |broker: &Broker| InstitutionOption {
            id: broker.slug.to_owned(),
            name: broker.name.to_owned(),
            note: None,
        };
        BROKERAGE.brokers.iter().map(option).collect()
    }

    fn unavailable_outcome(&self, _: &str) -> Option<ConsentOutcome> {
        None
    }

    fn sign_in(
        &self,
        link: &Link,
        institution_id: &str,
        name: &str,
    ) -> Result<(String, Vec<OfferedAccount>), ConsentOutcome> {
        let (store, now) = (self.store.read(), self.clock.now());
        match store.refuse_login(link, name, now) {
            Some(refused) => Err(refused),
            None => Ok((
                display_name(store.seed, name),
                store.offers(link, chosen_broker(institution_id), name, now),
            )),
        }
    }

    /// Codes and statuses are the portal's own (docs/providers/snaptrade.md#portal-results). Where
    /// the documentation does not assign one to an outcome, the sandbox chose it.
    fn finish(&self, link: &Link, outcome: ConsentOutcome) -> ConsentResult {
        match outcome {
            ConsentOutcome::Allowed {
                institution_id,
                name,
                chosen,
            } => {
                let (mut store, now) = (self.store.write(), self.clock.now());
                if !store.has_user(link.user, now) {
                    return link.failed(401, "0000", "The user no longer exists");
                }
                if let Some(refused) = store.refuse_login(link, &name, now) {
                    return self.finish(link, refused);
                }
                let broker = chosen_broker(&institution_id);
                let id = store.share(link, broker, &name, &chosen, now);
                ConsentResult {
                    location: Some(link.redirect(&success(&id))),
                    shows_page: !link.immediate,
                    title: "You are connected".to_owned(),
                    text: format!(
                        "{} now shares your accounts at {}.",
                        Self::BRAND.name,
                        broker.name
                    ),
                }
            }
            // Seen live: a cancel adds nothing to the redirect URI.
            ConsentOutcome::Cancelled { .. } => link.redirect_without_page(""),
            ConsentOutcome::Closed => link.redirect_without_page(ABANDONED),
            ConsentOutcome::WrongCode => {
                link.failed(400, "1086", "The one-time code was wrong too often")
            }
            ConsentOutcome::Unavailable => link.failed(500, "3000", "The broker cannot be reached"),
            ConsentOutcome::LoginRejected => {
                link.failed(403, "1066", "The broker did not accept the login")
            }
            ConsentOutcome::WrongLogin => link.failed(
                400,
                "1023",
                "This login is not the one of the connection to repair",
            ),
            ConsentOutcome::Deleted => link.failed(400, "1012", "The connection no longer exists"),
            ConsentOutcome::TimedOut => link.failed(400, "1006", "The session took too long"),
        }
    }
}
