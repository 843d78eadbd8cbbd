//! `GET /v1/transactions`

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bellbird_domain::{Caller, ConnectionCategory, Page, page};
use bellbird_reads::transactions::TransactionsRequest;
use bellbird_reads::{ListKey, Scope};
use http::HeaderValue;
use http::header::{HeaderName, LINK};

use crate::guard::LivePlace;
use crate::live::{self, Cache, LiveAnswer, LiveOutcome};
use crate::params::Params;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{Pagination, TransactionList, TransactionView};

const KNOWN: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
const SUNSET: HeaderName = HeaderName::from_static("sunset");
/// When `accountId` becomes required.
pub(crate) const SUNSET_DATE: &str = "Wed, 01 Sep 2027 00:00:00 GMT";
/// A row takes some 450 bytes of JSON; the buffer grows where that was too little.
const ROW_BYTES: usize = 450;

/// Read transactions
///
/// Live from the provider, newest first, posted transactions only; never cached. To read on, ask for
/// `offset + limit` with the same other parameters while `hasMore` is true: no window is short while there is more, and
/// none overlaps another, even while new transactions arrive. A request with `offset` 0 begins afresh.
///
/// Counting stops about 5,000 rows behind the offset: then `X-Service-Truncated: true` is set, `hasMore` is true and
/// `total` is the most that is known. Leaving out `accountId` is deprecated: such answers carry `Deprecation`, `Sunset` and
/// `Link`.
#[utoipa::path(
    get,
    path = "/v1/transactions",
    tag = "Transactions",
    responses((status = 200, description = "A window of the transactions.", body = TransactionList))
)]
pub(crate) async fn list_transactions(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(place): Extension<LivePlace>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let request = read_request(query.as_deref(), &caller)?;
    let ListKey { connection_id, account_id, .. } = request.list;
    let scope = state.scope(&caller, connection_id, account_id, ConnectionCategory::Banking).await?;
    let question = (request.list.clone(), request.page);
    let reader = state.clone();
    let work = move || async move {
        let _place = place;
        reader.read_transactions(&caller, &scope, &request).await
    };
    let respond = |live: LiveAnswer| {
        let mut response = live::answer(live.body, Cache::Bypass, live.truncated);
        if account_id.is_none() {
            let headers = response.headers_mut();
            headers.insert(DEPRECATION, HeaderValue::from_static("true"));
            headers.insert(SUNSET, HeaderValue::from_static(SUNSET_DATE));
            headers.insert(LINK, state.inner.deprecation_link.clone());
        }
        response
    };
    Ok(live::ask(&state.inner.transactions_flights, question, work, respond).await)
}

fn read_request(query: Option<&str>, caller: &Caller) -> Result<TransactionsRequest, Problem> {
    let mut params = Params::read(query, KNOWN);
    let connection_id = params.required("connectionId", "connectionId is required");
    let account_id = params.take("accountId");
    let (from_text, from) = params.bound("from");
    let (to_text, to) = params.bound("to");
    let page = params.page(page::TRANSACTIONS);
    params.finish()?;
    let connection_id = live::read_id(&connection_id, "Connection")?;
    let account_id = account_id.map(|id| live::read_account_id(&id));
    let list = ListKey { key_id: caller.key_id, connection_id, account_id, from: from_text, to: to_text };
    Ok(TransactionsRequest { list, from, to, page })
}

impl AppState {
    async fn read_transactions(&self, caller: &Caller, scope: &Scope, request: &TransactionsRequest) -> LiveOutcome {
        let call = self.inner.reads.call();
        let mut body = TransactionsBody::new(request.page);
        let mut keep = |row: &bellbird_domain::Transaction<'_>| body.push(&TransactionView::new(row, &caller.timezone));
        let outcome = self.inner.reads.transactions(&call, caller, scope, request, &mut keep).await;
        let answer = match outcome {
            Ok(extent) => body.finish(&Pagination::of(request.page, extent)).map(|body| LiveAnswer {
                body: body.into(),
                truncated: extent.truncated,
                whole: true,
            }),
            Err(error) => Err(self.read_failed(caller, scope, &error).await),
        };
        (answer, call.calls())
    }
}

/// The body, written row by row while the provider's page is there.
pub struct TransactionsBody {
    bytes: Vec<u8>,
    /// Rows that there must be room for, until the first one comes: a request that waits holds no empty buffer.
    rows: usize,
    failed: bool,
}

impl TransactionsBody {
    /// The beginning of a body.
    #[must_use]
    pub fn new(page: Page) -> Self {
        Self { bytes: br#"{"data":["#.to_vec(), rows: page.limit as usize, failed: false }
    }

    /// Writes the next row.
    pub fn push(&mut self, row: &TransactionView<'_>) {
        if self.bytes.last() == Some(&b'}') {
            self.bytes.push(b',');
        } else {
            self.bytes.reserve(128 + self.rows * ROW_BYTES);
        }
        self.failed |= serde_json::to_writer(&mut self.bytes, row).is_err();
    }

    /// The whole body.
    ///
    /// # Errors
    /// [`Problem::Internal`] when a row could not be written.
    pub fn finish(mut self, pagination: &Pagination) -> Result<Vec<u8>, Problem> {
        self.bytes.extend_from_slice(br#"],"pagination":"#);
        self.failed |= serde_json::to_writer(&mut self.bytes, pagination).is_err();
        self.bytes.push(b'}');
        if self.failed { Err(Problem::Internal) } else { Ok(self.bytes) }
    }
}
