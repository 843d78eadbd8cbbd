//! `/transactions`: the transactions of one account.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Category, ConnectionCategory};
use http::StatusCode;
use serde::Deserialize;

use super::choice::{Choice, ChoiceQuery};
use super::download;
use crate::amounts::with_commas;
use crate::api_client::ApiError;
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{SignedInFrame, page_response};
use crate::session::Session;
use crate::state::Console;

#[derive(Template)]
#[template(path = "transactions.html")]
struct TransactionsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    choice: &'a Choice,
    error: Option<String>,
    rows: Vec<Row>,
    position: String,
    newer: Option<String>,
    older: Option<String>,
    /// The URL of the API that gives these rows, or all of them if they were searched.
    api_url: String,
}

struct Row {
    date: String,
    description: String,
    merchant: Option<String>,
    category: &'static str,
    is_pending: bool,
    currency: String,
    amount: String,
    is_negative: bool,
}

/// Rows of one read of a search: as many as the API gives.
const SEARCH_WINDOW: u64 = 500;
/// Rows that a search reads at most.
const SEARCHED_MAX: u64 = 5_000;
/// Rows that a search shows at most.
const FOUND_MAX: usize = 200;

#[derive(Deserialize)]
pub(super) struct Window<T> {
    pub(super) data: Vec<T>,
    pub(super) pagination: Pagination,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pagination {
    /// Negative: nobody has counted the rows.
    total: i64,
    pub(super) has_more: bool,
}

impl Pagination {
    pub(super) fn total(&self) -> Option<u64> {
        u64::try_from(self.total).ok()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Transaction {
    date: String,
    description: String,
    merchant_name: Option<String>,
    category: Option<String>,
    status: String,
    currency: String,
    amount: String,
}

impl From<Transaction> for Row {
    fn from(row: Transaction) -> Self {
        let category = row.category.as_deref().and_then(Category::from_key);
        Self {
            date: row.date,
            description: sanitized(&row.description),
            merchant: row.merchant_name.as_deref().map(sanitized).filter(|name| *name != row.description),
            category: category.map_or("", Category::label),
            is_pending: row.status == "pending",
            is_negative: row.amount.starts_with('-'),
            currency: row.currency,
            amount: with_commas(&row.amount),
        }
    }
}

impl Row {
    /// `wanted` is in lower case.
    fn has(&self, wanted: &str) -> bool {
        let texts = [self.description.as_str(), self.merchant.as_deref().unwrap_or_default(), self.category];
        texts.iter().any(|text| text.to_lowercase().contains(wanted))
            || self.amount.contains(wanted)
            || self.amount.replace(',', "").contains(wanted)
    }
}

impl TransactionsPage<'_> {
    /// The path of the file with the whole range.
    fn file(&self) -> String {
        format!("{}/transactions.csv?{}", self.frame.root, self.choice.file_query())
    }
}

/// `GET /transactions`
pub(crate) async fn show(State(console): State<Console>, session: Session, query: ChoiceQuery) -> Response {
    let choice = match Choice::load(&console, &session, ConnectionCategory::Banking, query).await {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let frame = session.frame(&console, "/transactions");
    let mut page = TransactionsPage {
        frame: &frame,
        choice: &choice,
        error: None,
        rows: Vec::new(),
        position: String::new(),
        newer: choice.newer(),
        older: None,
        api_url: String::new(),
    };
    if let Some(window) = choice.window() {
        let path = format!("/v1/transactions?{window}");
        page.api_url = format!("{}{path}", console.inner.site.api_url.trim_end_matches('/'));
        if !choice.search.is_empty() {
            match search(&console, &session, &choice).await {
                Ok((rows, position)) => (page.rows, page.position, page.newer) = (rows, position, None),
                Err(error) => page.error = Some(error.message),
            }
            return page_response(StatusCode::OK, &page);
        }
        match console.inner.api.get::<Window<Transaction>>(&session.caller, &path).await {
            Ok(window) => {
                page.position = choice.position(window.data.len(), window.pagination.total());
                page.older = choice.older(window.pagination.has_more);
                page.rows = window.data.into_iter().map(Row::from).collect();
            }
            Err(error) => page.error = Some(error.message),
        }
    }
    page_response(StatusCode::OK, &page)
}

/// The rows of the range that have the text, newest first, and how many they are.
async fn search(console: &Console, session: &Session, choice: &Choice) -> Result<(Vec<Row>, String), ApiError> {
    let wanted = choice.search.to_lowercase();
    let (mut rows, mut found, mut searched, mut has_more) = (Vec::new(), 0_u64, 0, true);
    while has_more && searched < SEARCHED_MAX {
        let Some(window) = choice.window_of(SEARCH_WINDOW, searched) else { break };
        let path = format!("/v1/transactions?{window}");
        let read = console.inner.api.get::<Window<Transaction>>(&session.caller, &path).await?;
        searched += read.data.len() as u64;
        has_more = read.pagination.has_more && !read.data.is_empty();
        for row in read.data.into_iter().map(Row::from).filter(|row| row.has(&wanted)) {
            found += 1;
            if rows.len() < FOUND_MAX {
                rows.push(row);
            }
        }
    }
    let shown = if found > FOUND_MAX as u64 {
        format!("The newest {FOUND_MAX} of {found} found")
    } else {
        format!("{found} found")
    };
    let of = if has_more {
        format!("in the newest {searched} rows: choose other days for the rest")
    } else {
        format!("in {searched} rows")
    };
    Ok((rows, format!("{shown}, {of}")))
}

/// `GET /transactions.csv`
pub(crate) async fn download_csv(State(console): State<Console>, session: Session, query: ChoiceQuery) -> Response {
    download(&console, &session, ConnectionCategory::Banking, query, "transactions.csv").await
}

/// `GET /transactions.ofx`
pub(crate) async fn download_ofx(State(console): State<Console>, session: Session, query: ChoiceQuery) -> Response {
    download(&console, &session, ConnectionCategory::Banking, query, "transactions.ofx").await
}
