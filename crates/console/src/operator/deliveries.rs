//! `/operator/deliveries`: how many webhook events are to be delivered, and the endpoints at which
//! that fails.

use askama::Template;
use bellbird_domain::{EndpointId, EndpointStatus, UserId};
use bellbird_storage::{DeliveryOverview, Endpoint};
use http::{StatusCode, Uri};

use super::{Emails, Operator, PAGE_ROWS};
use crate::error_page::PageResult;
use crate::list_query::{Chip, ListQuery, Pages};
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, When, page_response};

/// What a query chooses. Without it, endpoints are listed too that somebody has paused.
const FILTERS: [&str; 1] = ["only"];
/// The value of what nobody has paused.
const ATTENTION: &str = "attention";

#[derive(Template)]
#[template(path = "operator_deliveries.html")]
struct DeliveriesPage<'a> {
    frame: &'a SignedInFrame<'a>,
    overview: DeliveryOverview,
    /// When the longest due attempt became due.
    oldest_due: Option<When>,
    /// To be sent again later.
    later: u64,
    /// One.
    chips: Vec<Chip>,
    /// Disabled or failing.
    rows: Vec<EndpointRow>,
    of_all: Vec<EndpointRow>,
    pages: Pages,
}

/// An endpoint, for an operator.
pub(super) struct EndpointRow {
    pub(super) id: EndpointId,
    pub(super) url: String,
    /// None: it receives the events of all users.
    pub(super) user: Option<(UserId, String)>,
    pub(super) status: String,
    /// `good`, `attention`, or nothing if somebody has disabled it on purpose.
    pub(super) class: &'static str,
    pub(super) can_enable: bool,
    pub(super) delivered: Option<When>,
}

impl EndpointRow {
    pub(super) fn new(endpoint: &Endpoint, email: Option<String>, zone: &LocalTime) -> Self {
        let Endpoint {
            status,
            disabled_reason,
            failing_since,
            ..
        } = endpoint;
        let is_disabled = *status == EndpointStatus::Disabled;
        let text = match (is_disabled, failing_since) {
            (true, _) if endpoint.is_paused() => {
                format!("paused {}", disabled_reason.as_deref().unwrap_or_default())
            }
            (true, _) => format!(
                "disabled: {}",
                sanitized(disabled_reason.as_deref().unwrap_or("no reason"))
            ),
            (false, None) => "enabled".to_owned(),
            (false, Some(since)) => format!("failing, first {}", zone.when(*since).text),
        };
        Self {
            id: endpoint.id,
            url: endpoint.url.clone(),
            user: email.map(|email| (endpoint.user_id, email)),
            status: text,
            class: match (is_disabled, failing_since) {
                (true, _) if endpoint.is_paused() => "",
                (false, None) => "good",
                _ => "attention",
            },
            can_enable: is_disabled,
            delivered: endpoint.delivered_at.map(|at| zone.when(at)),
        }
    }
}

/// `GET /operator/deliveries`
pub(super) async fn show(Operator(session): Operator, uri: Uri) -> PageResult {
    let query = ListQuery::parse(uri.query(), &FILTERS);
    let (storage, zone) = (session.storage(), session.zone());
    let overview = storage.deliveries().overview(zone.now).await?;
    let mut endpoints = storage
        .endpoints()
        .list_troubled_after(query.start(), query.get("only") != ATTENTION, PAGE_ROWS + 1)
        .await?;
    let pages = query.cut(&mut endpoints, PAGE_ROWS, |endpoint| endpoint.id);
    let mut emails = Emails::default();
    let mut rows = Vec::new();
    for endpoint in endpoints {
        let email = emails.find(storage, Some(endpoint.user_id)).await?;
        rows.push(EndpointRow::new(&endpoint, email, &zone));
    }
    let of_all = storage.endpoints().list(UserId::INSTALLATION).await?;
    let of_all = of_all
        .iter()
        .map(|endpoint| EndpointRow::new(endpoint, None, &zone))
        .collect();
    let oldest_due = overview.oldest_due.map(|at| zone.when(at));
    let page = DeliveriesPage {
        frame: &session.frame("/operator/deliveries"),
        later: overview.pending.saturating_sub(overview.due),
        overview,
        oldest_due,
        chips: vec![query.toggle("only", ATTENTION, "Needs attention")],
        rows,
        of_all,
        pages,
    };
    Ok(page_response(StatusCode::OK, &page))
}
