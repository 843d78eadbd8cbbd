//! `GET /v1/transactions`: reads a window of a bank connection's transactions. Nothing is cached.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Caller, ConnectionCategory, DateFilter, Page};
use bellbird_reads::transactions::TransactionsRequest;
use bellbird_reads::{ConnectionContext, ListKey};
use http::HeaderValue;
use http::header::LINK;

use crate::cache::{LiveAnswer, LiveOutcome};
use crate::deprecation::{DEPRECATION, SUNSET, SUNSET_DATE};
use crate::front::extract::{Admitted, Query};
use crate::front::json::write_json;
use crate::front::parameters::page;
use crate::front::problem::Problem;
use crate::live::{self, CacheStatus};
use crate::queries::TransactionsQuery;
use crate::state::AppState;
use crate::views::{Pagination, TransactionList, TransactionView};

/// Typical size of a row as JSON. The buffer grows if rows are larger.
const ROW_BYTES: usize = 450;

/// Read transactions
///
/// Posted transactions, read live from the provider, newest first; never cached. To continue while `hasMore` is true,
/// request `offset + limit` with the other parameters unchanged. Every window but the last is full, and windows never
/// overlap, even if new transactions are posted meanwhile. A request with `offset` 0 starts again from the newest.
///
/// Counting stops about 5,000 rows after the offset. Then `X-Service-Truncated: true` is set, `hasMore` is true and
/// `total` is a lower bound. Omitting `accountId` is deprecated: such responses have the headers `Deprecation`,
/// `Sunset` and `Link`.
#[utoipa::path(
    get,
    path = "/v1/transactions",
    tag = "Transactions",
    params(TransactionsQuery),
    responses((status = 200, description = "A window of the transactions.", body = TransactionList))
)]
pub(crate) async fn list_transactions(
    State(state): State<AppState>,
    Admitted { caller, permit, .. }: Admitted,
    Query(query): Query<TransactionsQuery>,
) -> Result<Response, Problem> {
    let (context, account_id) = state
        .access
        .connection_context(&caller, query.connection_id, query.account_id, ConnectionCategory::Banking)
        .await?;
    let span = DateFilter { from: query.from.map(|date| date.0), to: query.to.map(|date| date.0) };
    let list = ListKey { key_id: caller.key_id, connection_id: context.connection.id, account_id, span };
    let request = TransactionsRequest { list, page: page(query.limit, query.offset) };
    let flight_key = ((list, request.page), caller.revision);
    let reader = state.clone();
    let work = move || async move {
        let _permit = permit;
        reader.read_transactions(&caller, &context, &request).await
    };
    let respond = |live: LiveAnswer| {
        let mut response = live::response(live.body, CacheStatus::Bypass, live.truncated);
        if account_id.is_none() {
            let headers = response.headers_mut();
            headers.insert(DEPRECATION, HeaderValue::from_static("true"));
            headers.insert(SUNSET, HeaderValue::from_static(SUNSET_DATE));
            headers.insert(LINK, state.inner.deprecation_link.clone());
        }
        response
    };
    Ok(live::coalesce(&state.inner.transactions_flights, flight_key, work, respond).await)
}

impl AppState {
    async fn read_transactions(
        &self,
        caller: &Caller,
        context: &ConnectionContext,
        request: &TransactionsRequest,
    ) -> LiveOutcome {
        let call = self.access.call_context(caller);
        let mut body = TransactionsBody::new(request.page);
        let mut push_row = |row: &bellbird_domain::Transaction<'_>, day| body.push(&TransactionView::new(row, day));
        let outcome = self.access.reads().transactions(&call, caller, context, request, &mut push_row).await;
        let answer = match outcome {
            Ok(extent) => Ok(LiveAnswer {
                body: body.finish(&Pagination::of(request.page, extent)).into(),
                truncated: extent.truncated,
                complete: true,
            }),
            Err(error) => Err(self.access.after_failed_read(caller, context, &error).await),
        };
        (answer, call.calls())
    }
}

/// The response body, written row by row while the provider's page is in memory.
pub struct TransactionsBody {
    bytes: Vec<u8>,
    /// The number of rows to reserve memory for. The first row reserves it, so that a waiting request holds no empty
    /// buffer.
    rows: usize,
}

impl TransactionsBody {
    #[must_use]
    pub fn new(page: Page) -> Self {
        Self { bytes: br#"{"data":["#.to_vec(), rows: page.limit as usize }
    }

    pub fn push(&mut self, row: &TransactionView<'_>) {
        if self.bytes.last() == Some(&b'}') {
            self.bytes.push(b',');
        } else {
            self.bytes.reserve(128 + self.rows * ROW_BYTES);
        }
        row.write(&mut self.bytes);
    }

    #[must_use]
    pub fn finish(mut self, pagination: &Pagination) -> Vec<u8> {
        self.bytes.extend_from_slice(br#"],"pagination":"#);
        write_json(pagination, &mut self.bytes);
        self.bytes.push(b'}');
        self.bytes
    }
}
