//! `/transactions`: the transactions of one account.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Category, ConnectionCategory};
use http::{StatusCode, Version};
use serde::Deserialize;

use super::choice::{Choice, ChoiceQuery};
use super::download;
use super::search::{Searched, Window, search};
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::with_commas;
use crate::pages::{SignedInFrame, page_response};
use crate::plan;
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
            merchant: row
                .merchant_name
                .as_deref()
                .map(sanitized)
                .filter(|name| *name != row.description),
            category: category.map_or("", Category::label),
            is_pending: row.status == "pending",
            is_negative: row.amount.starts_with('-'),
            currency: row.currency,
            amount: with_commas(&row.amount),
        }
    }
}

impl Searched for Row {
    fn texts(&self) -> impl Iterator<Item = &str> {
        [self.description.as_str(), self.category, &self.amount]
            .into_iter()
            .chain(self.merchant.as_deref())
    }
}

impl TransactionsPage<'_> {
    /// The path of the file with the whole range.
    fn file(&self) -> String {
        format!(
            "{}/transactions.csv?{}",
            self.frame.root,
            self.choice.file_query()
        )
    }
}

/// `GET /transactions`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    query: ChoiceQuery,
) -> Response {
    if let Some(page) = plan::page_in_place(
        &console,
        &session,
        "/transactions",
        ConnectionCategory::Banking,
    ) {
        return page;
    }
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
    if let Some(problem) = choice.problem() {
        page.error = Some(problem);
    } else if let Some(window) = choice.window() {
        let path = format!("/v1/transactions?{window}");
        page.api_url = format!("{}{path}", console.inner.site.api_url.trim_end_matches('/'));
        if !choice.search.is_empty() {
            match search::<Transaction, Row>(&console, &session, &choice, "/v1/transactions").await
            {
                Ok((rows, position)) => {
                    (page.rows, page.position, page.newer) = (rows, position, None);
                }
                Err(error) => page.error = Some(error.message),
            }
            return page_response(StatusCode::OK, &page);
        }
        match console
            .inner
            .api
            .get::<Window<Transaction>>(&session.caller, &path)
            .await
        {
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

/// `GET /transactions.csv`
pub(crate) async fn download_csv(
    State(console): State<Console>,
    session: Session,
    version: Version,
    query: ChoiceQuery,
) -> Response {
    download(
        &console,
        &session,
        ConnectionCategory::Banking,
        query,
        "transactions.csv",
        version,
    )
    .await
}

/// `GET /transactions.ofx`
pub(crate) async fn download_ofx(
    State(console): State<Console>,
    session: Session,
    version: Version,
    query: ChoiceQuery,
) -> Response {
    download(
        &console,
        &session,
        ConnectionCategory::Banking,
        query,
        "transactions.ofx",
        version,
    )
    .await
}
