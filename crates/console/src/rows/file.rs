//! The file of a page of rows, for people: the same rows, all of the days, as CSV. A file that
//! cannot be continued is cut off, so that no shorter one looks whole.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bellbird_api::http::{LivePermit, Problem};
use bellbird_api::serve::ResponseTimeout;
use bellbird_domain::Caller;
use bellbird_interop::export::formats::{CsvLines, Layout, Options};
use bellbird_interop::export::{CutOff, FileName, NameParts};
use bellbird_reads::Merged;
use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::ListKind;
use super::filter::Filter;
use super::find::{Lists, errors_of, failed};
use super::linked::Bank;
use super::list::RowList;
use crate::api_client::ApiError;
use crate::error_page::PageResult;
use crate::pages::names::with_number;
use crate::pages::{BankTrouble, Notice, Tone, why_not_read};
use crate::session::Session;

/// A person opens it in a spreadsheet, and others choose the texts in it.
pub(crate) const FOR_SPREADSHEETS: Options = Options {
    layout: Layout::Wide,
    byte_order_mark: true,
    quote_formulas: true,
};
/// As a file of the API.
const FILE_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Between two pieces, and so often while none is full, it is checked that the session may still
/// read.
const PIECE_BYTES: usize = 64 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
pub(crate) const ACCOUNT_GONE: &str = "This account is not linked any more. Choose another one.";
const OLD_HTTP: &str = "Files need HTTP/1.1: with an older version, a file that breaks off looks \
                        whole.";

/// A file that is being sent.
struct File<K: ListKind> {
    list: Arc<RowList>,
    caller: Caller,
    permit: LivePermit,
    merged: Merged<'static, K, Vec<u8>>,
    /// Lists that failed at once. They are left out only if the page has said so.
    lists_left_out: usize,
    /// What was read and not sent.
    piece: Vec<u8>,
    rows: u64,
    checked_at: Instant,
    is_ended: bool,
}

/// `GET /transactions.csv` and `GET /trades.csv`
pub(crate) async fn download<K: ListKind>(
    session: Session,
    version: Version,
    uri: Uri,
) -> PageResult {
    let list = RowList::load(session, K::PAGE, uri.query()).await?;
    // An older client cannot see that a file is cut off.
    if version < Version::HTTP_11 {
        return Ok(no_file(&list, OLD_HTTP));
    }
    if let Err(error) = list.filter.days {
        return Ok(no_file(&list, error.text));
    }
    if list.filter.is_account_gone {
        return Ok(no_file(&list, ACCOUNT_GONE));
    }
    let (file, name) = match File::<K>::open(&list).await {
        Ok(opened) => opened,
        Err(error) => return Ok(not_read(&list, &error)),
    };
    let pieces = stream::try_unfold(file, |mut file| async move {
        let piece = file.next_piece().await?;
        Ok::<_, CutOff>(piece.map(|piece| (piece, file)))
    });
    Ok(csv_response(&name, pieces))
}

/// A file that is sent while it is read.
pub(crate) fn csv_response(
    name: &FileName,
    pieces: impl Stream<Item = Result<impl Into<Bytes>, CutOff>> + Send + 'static,
) -> Response {
    let content_type = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_DISPOSITION, name.content_disposition()),
    ];
    let timeout = Extension(ResponseTimeout(FILE_TIMEOUT));
    (headers, timeout, Body::from_stream(pieces)).into_response()
}

/// Of a request for no file that could be, at any time.
pub(crate) fn no_file(list: &RowList, why: &str) -> Response {
    notice(list, StatusCode::BAD_REQUEST, why).into_response()
}

/// Leads back to the page, which has the file without the banks that it names.
fn notice(list: &RowList, status: StatusCode, why: &str) -> Notice {
    let query = list.filter.query.with(&[("partial", "")]);
    let page = format!("{}?{query}", list.page.path);
    let page = page.trim_end_matches('?');
    let notice = Notice::new(Tone::Attention, "There is no file")
        .with(why)
        .with_status(status);
    let (notice, class) = match status {
        StatusCode::BAD_REQUEST => (notice, "button"),
        _ => (notice.with_retry_link(), "button quiet"),
    };
    notice.with_link(class, Some(page), "Back to the page")
}

/// Of a file that the API reads at one bank.
pub(crate) fn bank_not_read(list: &RowList, bank: &Bank, mut error: ApiError) -> Response {
    // The others are not of one bank.
    if ["reconnect_required", "provider_unavailable"].contains(&error.code.as_str()) {
        let asked = list.asked(bank);
        let trouble = asked.failed_by_api(&error.code, error.retry_after);
        error.message = trouble.sentences();
    }
    not_read(list, &error)
}

/// Status and wait are those of the user's limits and plan only.
fn not_read(list: &RowList, error: &ApiError) -> Response {
    let own = [StatusCode::TOO_MANY_REQUESTS, StatusCode::FORBIDDEN].contains(&error.status);
    let status = if own {
        error.status
    } else {
        StatusCode::BAD_GATEWAY
    };
    let notice = notice(list, status, &error.message);
    match error.retry_after.filter(|_| own) {
        Some(seconds) => notice.with_retry_after(seconds).into_response(),
        None => notice.into_response(),
    }
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        Self {
            message: why_not_read(&problem),
            code: problem.code().to_owned(),
            status: problem.status(),
            retry_after: problem.retry_after(),
        }
    }
}

impl<K: ListKind> File<K> {
    /// Reads the first page of each list. Fails if a bank cannot be read, and the page did not say
    /// so.
    async fn open(list: &Arc<RowList>) -> Result<(Box<Self>, FileName), ApiError> {
        let (session, filter, names) = (&list.session, &list.filter, &list.linked.names);
        let (api, caller) = (&session.context, &session.caller);
        let lists = Lists::<K>::select(session, names, filter.account, filter.dates()).await?;
        let name = name_of(&lists, filter);
        let mut lines = CsvLines::new(FOR_SPREADSHEETS);
        let mut header = Vec::new();
        lines.header(K::PAGE.columns, &mut header);
        // A row that is not wanted is an empty line, because each row ends at most one page of a
        // provider, and so has a deadline of its own.
        let of_rows = Arc::clone(list);
        let line = move |row: &K::Row<'_>, place: K::Place| {
            let mut line = Vec::new();
            if K::is_wanted(row, &of_rows.filter) {
                let day = K::day(row, place, &of_rows.session.caller.timezone);
                let account = K::account(row);
                let institution = account.institution_name.as_deref();
                lines.plain(&day.to_string(), &mut line);
                lines.text(&with_number(&account.name, account), &mut line);
                lines.text(institution.unwrap_or_default(), &mut line);
                K::write(row, &mut lines, &mut line);
                lines.end_line(&mut line);
            }
            Some(line)
        };
        let give_up_at = Instant::now() + FILE_TIMEOUT;
        let mut merged = Merged::new(lists.ranges, None, give_up_at, line);
        let first = merged.next(&api.call_context(caller)).await;
        let mut troubles = lists.troubles;
        troubles.extend(failed(session, names, &lists.contexts, errors_of(&merged)).await);
        let lists_left_out = merged.failed();
        let is_nothing_left = lists_left_out == merged.lists().count();
        if !troubles.is_empty() && (is_nothing_left || filter.query.get("partial") != "true") {
            troubles.sort_unstable();
            let why = troubles.iter().map(BankTrouble::sentences);
            return Err(ApiError::new(why.collect::<Vec<_>>().join(" ")));
        }
        let mut file = Self {
            list: Arc::clone(list),
            caller: caller.clone(),
            permit: lists.permit,
            merged,
            lists_left_out,
            piece: header,
            rows: 0,
            checked_at: Instant::now(),
            is_ended: false,
        };
        file.push(first.unwrap_or_default());
        Ok((Box::new(file), name))
    }

    /// Takes the line of a row that was read, or the end.
    fn push(&mut self, line: Option<Vec<u8>>) {
        self.is_ended = line.is_none();
        let line = line.unwrap_or_default();
        self.rows += u64::from(!line.is_empty());
        self.piece.extend(line);
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>, CutOff> {
        if !self.is_ended {
            self.check().await?;
        }
        while self.piece.len() < PIECE_BYTES && !self.is_ended {
            if self.checked_at.elapsed() >= CHECK_INTERVAL {
                self.check().await?;
            }
            self.read_row().await?;
        }
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            tracing::info!(rows = self.rows, "file of the console ended");
            return Ok(None);
        }
        Ok(Some(piece.into()))
    }

    async fn read_row(&mut self) -> Result<(), CutOff> {
        // Each attempt to read a page of a provider has its own deadline.
        let (api, caller) = (&self.list.session.context, &self.caller);
        let next = self
            .merged
            .next_with_retries(&|| api.call_context(caller))
            .await;
        let is_whole = self.merged.failed() == self.lists_left_out && !self.merged.is_stopped();
        let Some(next) = next.ok().filter(|_| is_whole) else {
            tracing::warn!(rows = self.rows, "file of the console cut off");
            return Err(CutOff);
        };
        self.push(next);
        Ok(())
    }

    /// A user who signs out, or whose plan ends, gets no further row.
    async fn check(&mut self) -> Result<(), CutOff> {
        let api = &self.list.session.context;
        let checked = api
            .check_again(K::quota(api.quotas()), &self.caller, None)
            .await;
        self.caller = checked.map_err(|_| CutOff)?;
        self.checked_at = Instant::now();
        if let Some(permit) = &self.permit {
            permit.renew(api.clock().now()).await;
        }
        Ok(())
    }
}

/// `Ironbark-Bank_Everyday_2026-10-30_2026-11-29.csv`, or without account
/// `transactions_2026-10-30_2026-11-29.csv`.
fn name_of<K: ListKind>(lists: &Lists<K>, filter: &Filter) -> FileName {
    let account = filter.account.and_then(|id| {
        lists.contexts.values().find_map(|context| {
            let mut accounts = context.accounts.iter();
            let account = accounts.find(|account| account.id == id)?;
            Some((&*context.connection.institution_name, &*account.name))
        })
    });
    let parts = NameParts {
        institution: account.map(|(institution, _)| institution),
        account: account.map(|(_, name)| name),
        resource: account.is_none().then_some(K::PAGE.name),
        days: filter.days.unwrap_or_default().unzip(),
        extension: "csv",
    };
    parts.name()
}
