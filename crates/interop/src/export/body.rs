//! The body of a file: one page of the provider is read when the client has taken the page before.
//!
//! A file that cannot be continued is cut off: the connection is closed without the end of the body. Its client sees a
//! broken transfer, never a shorter file.

use std::time::Instant;

use axum::body::Body;
use bellbird_domain::Caller;
use bellbird_requests::{Access, Class, Problem};
use bytes::Bytes;
use futures_util::stream;
use tracing::{Instrument as _, Span};

use super::file::{Export, ExportError, Pace};

/// Size of a piece that is handed to the HTTP library, which holds a few of them. The next page is read when nearly all
/// of the page before has been sent.
const PIECE_BYTES: usize = 64 * 1024;

/// The rest of the file is not sent.
#[derive(Debug, thiserror::Error)]
#[error("the file was cut off")]
pub(crate) struct CutOff;

/// A file that is being sent.
pub(crate) struct FileBody {
    access: Access,
    class: Class,
    caller: Caller,
    /// As in the access log.
    route: &'static str,
    export: Export,
    /// What was read and not sent yet.
    unsent: Bytes,
    has_more: bool,
    bytes: u64,
    started: Instant,
    /// The request's.
    span: Span,
    is_ended: bool,
}

impl FileBody {
    /// Reads the first page. Its failure is an error of the request, as that of `/v1`.
    pub(crate) async fn begin(
        access: Access,
        class: Class,
        caller: Caller,
        route: &'static str,
        mut export: Export,
    ) -> Result<Self, Problem> {
        let mut page = Vec::new();
        let started = Instant::now();
        let read = export.next_page(Pace::Request, &mut || access.call_context(&caller), &mut page).await;
        let has_more = match read {
            Ok(has_more) => has_more,
            Err(ExportError { context, error }) => {
                return Err(access.after_failed_read(&caller, &context, &error).await);
            }
        };
        let (unsent, span) = (page.into(), Span::current());
        Ok(Self { access, class, caller, route, export, unsent, has_more, bytes: 0, started, span, is_ended: false })
    }

    /// Calls of the provider for the first page.
    pub(crate) fn provider_calls(&self) -> u32 {
        self.export.calls()
    }

    pub(crate) fn into_body(self) -> Body {
        Body::from_stream(stream::try_unfold(self, |mut file| {
            let span = file.span.clone();
            async move { Ok::<_, CutOff>(file.next_piece().await?.map(|piece| (piece, file))) }.instrument(span)
        }))
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, CutOff> {
        while self.unsent.is_empty() {
            if !self.has_more {
                self.end("complete");
                return Ok(None);
            }
            if let Err(problem) = self.read_page().await {
                self.cut_off(&problem);
                return Err(CutOff);
            }
        }
        let piece = self.unsent.split_to(self.unsent.len().min(PIECE_BYTES));
        self.bytes += piece.len() as u64;
        Ok(Some(piece))
    }

    async fn read_page(&mut self) -> Result<(), Problem> {
        let (access, caller) = (&self.access, &mut self.caller);
        if let Some(context) = self.export.context() {
            *caller = access.check_again(self.class, caller, context).await?;
        }
        let mut page = Vec::new();
        let read = self.export.next_page(Pace::Patient, &mut || access.call_context(caller), &mut page).await;
        match read {
            Ok(has_more) => {
                (self.unsent, self.has_more) = (page.into(), has_more);
                Ok(())
            }
            Err(ExportError { context, error }) => Err(access.after_failed_read(caller, &context, &error).await),
        }
    }

    fn cut_off(&mut self, problem: &Problem) {
        let reason = reason_of(problem);
        tracing::warn!(
            route = self.route,
            key_id = %self.caller.key_id,
            connection_id = self.export.context().map(|context| tracing::field::display(context.connection.id)),
            reason,
            rows = self.export.rows(),
            bytes = self.bytes,
            "export cut off"
        );
        self.count(reason);
    }

    fn end(&mut self, end: &'static str) {
        tracing::info!(
            route = self.route,
            key_id = %self.caller.key_id,
            end,
            rows = self.export.rows(),
            bytes = self.bytes,
            duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "export ended"
        );
        self.count(end);
    }

    fn count(&mut self, end: &'static str) {
        self.is_ended = true;
        metrics::counter!("bellbird_exports_total", "route" => self.route, "end" => end).increment(1);
    }
}

impl Drop for FileBody {
    /// The client went away or took nothing for too long, or the service stopped.
    fn drop(&mut self) {
        if !self.is_ended {
            let span = self.span.clone();
            span.in_scope(|| self.end("disconnected"));
        }
    }
}

/// The label of a file that was cut off.
fn reason_of(problem: &Problem) -> &'static str {
    match problem {
        Problem::Unauthorized => "key",
        Problem::PlanRequired | Problem::ProfessionalRequired => "plan",
        Problem::NotFound(_) => "removed",
        Problem::Reconnect(_) => "reconnect",
        Problem::TooManyRequests(_) => "budget",
        Problem::ProviderUnavailable(_) => "provider",
        _ => "internal",
    }
}
