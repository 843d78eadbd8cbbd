//! The body of a file: one page of the provider is read when the client has taken the page before.
//!
//! A file that cannot be continued is cut off: the connection is closed without the end of the
//! body. Its client sees a broken transfer, never a shorter file. A proxy may hide that, so a whole
//! file also ends with the trailer [`ROWS_TRAILER`], for clients that accept trailers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::MatchedPath;
use bellbird_api::http::problem::problem_for_category;
use bellbird_api::http::{ApiContext, Authorized, LivePermit, Problem, QuotaClass};
use bellbird_domain::{Caller, ConnectionCategory};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::BodyExt as _;
use tracing::{Instrument as _, Span};

use super::file::{Export, ExportError, Retries};
use super::formats::{FormatError, LeftOut};

/// The number of rows, after the last byte of a whole file.
pub(crate) const ROWS_TRAILER: HeaderName = HeaderName::from_static("bellbird-rows");

/// Size of a piece that is handed to the HTTP library, which holds a few of them. The next page is
/// read when nearly all of the page before has been sent.
const PIECE_BYTES: usize = 64 * 1024;

/// A page that took longer is sent only if the key is still valid.
const CHECK_AFTER: Duration = Duration::from_secs(5);

/// The rest of the file is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the file was cut off")]
pub struct CutOff;

/// A file that is being sent.
pub(crate) struct FileBody {
    context: ApiContext,
    route: MatchedPath,
    quota: QuotaClass,
    /// Renewed with each page, because a file may be sent for longer than a permit lasts.
    permit: LivePermit,
    caller: Caller,
    export: Export,
    /// What the last page added to the file. Its memory is used again for the next page: a new one
    /// for each page would make the allocator keep several.
    page: Vec<u8>,
    /// Bytes of the page that were sent.
    sent: usize,
    has_more: bool,
    bytes: u64,
    started: Instant,
    /// The request's.
    span: Span,
    is_ended: bool,
    /// The number of rows, once the file is complete.
    complete_rows: Arc<AtomicU64>,
}

impl FileBody {
    /// Reads the first page. Its failure is an error of the request, as that of `/v1`.
    pub(crate) async fn begin(
        context: ApiContext,
        route: MatchedPath,
        authorized: Authorized,
        mut export: Export,
    ) -> Result<Self, Problem> {
        let Authorized {
            caller,
            permit,
            quota,
            ..
        } = authorized;
        let mut page = Vec::new();
        let started = Instant::now();
        let broken = match export
            .leave_out_broken(Retries::Off, &|| context.call_context(&caller))
            .await
        {
            Ok(broken) => broken,
            Err(error) => return Err(problem_of(&context, &caller, error).await),
        };
        for error in broken {
            let problem = problem_of(&context, &caller, error).await;
            // Else the connection was removed meanwhile, or the database is unavailable.
            if !matches!(
                problem,
                Problem::Reconnect { .. } | Problem::ProviderUnavailable { .. }
            ) {
                return Err(problem);
            }
        }
        let read = export
            .next_page(Retries::Off, &|| context.call_context(&caller), &mut page)
            .await;
        let has_more = match read {
            Ok(has_more) => has_more,
            Err(error) => return Err(problem_of(&context, &caller, error).await),
        };
        let span = Span::current();
        Ok(Self {
            context,
            route,
            quota,
            permit,
            caller,
            export,
            page,
            sent: 0,
            has_more,
            bytes: 0,
            started,
            span,
            is_ended: false,
            complete_rows: Arc::default(),
        })
    }

    /// Calls of the provider for the first page.
    pub(crate) fn provider_calls(&self) -> u32 {
        self.export.calls()
    }

    /// The connections that the file lacks.
    pub(crate) fn left_out(&self) -> &[LeftOut] {
        self.export.left_out()
    }

    pub(crate) fn into_body(self) -> Body {
        let rows = Arc::clone(&self.complete_rows);
        let pieces = Body::from_stream(stream::try_unfold(self, |mut file| {
            let span = file.span.clone();
            async move { Ok::<_, CutOff>(file.next_piece().await?.map(|piece| (piece, file))) }
                .instrument(span)
        }));
        // Asked for after the last piece, and never after a failure.
        let trailers = async move {
            let rows = HeaderValue::from(rows.load(Ordering::Relaxed));
            Some(Ok(HeaderMap::from_iter([(ROWS_TRAILER, rows)])))
        };
        Body::new(pieces.with_trailers(trailers))
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, CutOff> {
        while self.sent == self.page.len() {
            if !self.has_more {
                self.complete_rows
                    .store(self.export.rows(), Ordering::Relaxed);
                self.end("complete");
                return Ok(None);
            }
            if let Err(problem) = self.read_page().await {
                self.cut_off(&problem);
                return Err(CutOff);
            }
        }
        let rest = &self.page[self.sent..];
        let piece = Bytes::copy_from_slice(&rest[..rest.len().min(PIECE_BYTES)]);
        self.sent += piece.len();
        self.bytes += piece.len() as u64;
        Ok(Some(piece))
    }

    async fn read_page(&mut self) -> Result<(), Problem> {
        let (context, caller) = (&self.context, &mut self.caller);
        *caller = context
            .check_again(&self.quota, caller, self.export.open_context())
            .await?;
        self.export.set_revision(caller.revision);
        if let Some(permit) = &self.permit {
            permit.renew(context.clock().now()).await;
        }
        // No row stays behind a shorter page.
        self.page.fill(0);
        self.page.clear();
        self.sent = 0;
        let began = Instant::now();
        let read = self
            .export
            .next_page(
                Retries::On,
                &|| context.call_context(caller),
                &mut self.page,
            )
            .await;
        match read {
            Ok(has_more) => {
                // The page may have waited for minutes, during which the key may have been revoked.
                if began.elapsed() >= CHECK_AFTER {
                    context
                        .check_again(&self.quota, caller, self.export.context())
                        .await?;
                }
                self.has_more = has_more;
                Ok(())
            }
            Err(error) => Err(problem_of(context, caller, error).await),
        }
    }

    fn cut_off(&mut self, problem: &Problem) {
        let reason = reason_of(problem);
        let read_last = self.export.context().map(|context| context.connection.id);
        let connection_id = read_last.or_else(|| self.export.next_connection());
        tracing::warn!(
            route = self.route.as_str(),
            key_id = %self.caller.key_id,
            connection_id = connection_id.map(tracing::field::display),
            reason,
            rows = self.export.rows(),
            bytes = self.bytes,
            "export cut off"
        );
        self.count(reason);
    }

    fn end(&mut self, end: &'static str) {
        tracing::info!(
            route = self.route.as_str(),
            key_id = %self.caller.key_id,
            end,
            left_out = self.export.left_out().len(),
            rows = self.export.rows(),
            bytes = self.bytes,
            duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "export ended"
        );
        self.count(end);
    }

    fn count(&mut self, end: &'static str) {
        self.is_ended = true;
        metrics::counter!("bellbird_exports_total", "route" => self.route.as_str().to_owned(), "end" => end).increment(1);
    }
}

impl Drop for FileBody {
    /// The client went away or took nothing for too long, or the service stopped.
    fn drop(&mut self) {
        if !self.is_ended {
            let _entered = self.span.clone().entered();
            self.end("disconnected");
        }
    }
}

async fn problem_of(api: &ApiContext, caller: &Caller, error: ExportError) -> Problem {
    match error {
        ExportError::Open {
            connection_id,
            error,
        } => problem_for_category(&error, "Connection", ConnectionCategory::Banking)
            .at(connection_id),
        ExportError::Read { context, error } => {
            api.after_failed_read(caller, &context, &error).await
        }
        ExportError::Format(error) => problem_of_format(error),
    }
}

/// The client can choose another format.
pub(crate) fn problem_of_format(error: FormatError) -> Problem {
    match error {
        FormatError::Internal => Problem::Internal,
        FormatError::OneAccount => Problem::bad_request(
            "A file of this format holds one account: add accountId, an id from /v1/accounts",
        ),
        error => Problem::bad_request(format!("This format cannot hold the rows: {error}")),
    }
}

/// The label of a file that was cut off.
fn reason_of(problem: &Problem) -> &'static str {
    match problem {
        Problem::Unauthorized => "key",
        Problem::PlanRequired | Problem::ProfessionalRequired => "plan",
        Problem::NotFound(_) => "removed",
        Problem::Reconnect { .. } => "reconnect",
        Problem::TooManyRequests(_) | Problem::BudgetUsedUp(_) => "budget",
        Problem::ProviderUnavailable { .. } => "provider",
        Problem::BadRequest { .. } => "format",
        _ => "internal",
    }
}
