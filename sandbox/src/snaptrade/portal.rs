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
    self, Brand, Choice, ConsentProvider, ConsentResult, InstitutionOption, OfferedAccount, Reason,
    append_query, see_other,
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
    let redeemed = snaptrade.consent_sessions.redeem(token, now);
    // The portal's code for an expired session. The JSON body is a sandbox choice.
    let session = redeemed.ok_or_else(|| {
        let detail = "No authorization in progress";
        Failure::new(StatusCode::BAD_REQUEST, "1006", detail)
    })?;
    let link = session.auth_request;
    let reason = match word {
        "accept" => {
            let id = snaptrade.store.write().link_without_pages(&link, now);
            return Ok(see_other(&link.redirect(&success(&id))));
        }
        "error" => Reason::LoginRejected,
        "abandon" => Reason::Closed,
        "deny" => Reason::Cancelled,
        _ => {
            return Err(Failure::invalid(
                "sandbox_auto must be accept, error, abandon or deny",
            ));
        }
    };
    let location = snaptrade.fail(&link, reason).location;
    Ok(see_other(&location.unwrap_or_default()))
}

fn success(connection_id: &str) -> String {
    format!("status=SUCCESS&connection_id={connection_id}")
}

impl Link {
    /// Where a result leads. How the real portal joins it to a redirect URI that has a query is
    /// unknown (docs/providers/snaptrade.md#portal-results).
    fn redirect(&self, result: &str) -> String {
        append_query(&self.redirect_uri, result)
    }
}

fn chosen_broker(slug: &str) -> &'static Broker {
    broker(slug).unwrap_or_else(test_broker)
}

impl ConsentProvider for SnapTrade {
    fn institutions(&self) -> Vec<InstitutionOption> {
        let option = |broker: &Broker| InstitutionOption {
            id: broker.slug,
            name: broker.name,
            note: None,
        };
        BROKERAGE.brokers.iter().map(option).collect()
    }

    fn sign_in(
        &self,
        link: &Link,
        institution_id: &str,
        name: &str,
    ) -> Result<(String, Vec<OfferedAccount>), Reason> {
        let (store, now) = (self.store.read(), self.clock.now());
        store.check_login(link, name, now)?;
        Ok((
            display_name(store.seed, name),
            store.offers(link, chosen_broker(institution_id), name, now),
        ))
    }

    fn share(&self, link: &Link, choice: &Choice) -> Result<ConsentResult, Reason> {
        let (mut store, now) = (self.store.write(), self.clock.now());
        if !store.has_user(link.user, now) {
            return Err(Reason::UserDeleted);
        }
        store.check_login(link, &choice.name, now)?;
        let broker = chosen_broker(&choice.institution_id);
        let id = store.share(link, broker, choice, now);
        Ok(ConsentResult {
            location: Some(link.redirect(&success(&id))),
            shows_page: !link.immediate,
            title: "You are connected",
            text: Brand::of::<Self>().success(broker.name),
        })
    }

    /// Codes and statuses are the portal's own (docs/providers/snaptrade.md#portal-results). Where
    /// the documentation does not assign one to a reason, the sandbox chose it. Seen live: a cancel
    /// adds nothing to the redirect URI. Skipping the last page for an error too is a sandbox
    /// choice.
    fn fail(&self, link: &Link, reason: Reason) -> ConsentResult {
        let failure = Brand::of::<Self>().failure(reason);
        let code = failure.code;
        let (result, text) = match (failure.status, failure.text) {
            (Some(status), Some(text)) => (
                format!("status=ERROR&status_code={status}&error_code={code}"),
                format!("{text} (error {code})."),
            ),
            _ if code.is_empty() => (String::new(), "Nothing was shared.".to_owned()),
            _ => (format!("status={code}"), "Nothing was shared.".to_owned()),
        };
        ConsentResult {
            location: Some(link.redirect(&result)),
            shows_page: failure.status.is_some() && !link.immediate,
            title: "You are not connected",
            text,
        }
    }
}
