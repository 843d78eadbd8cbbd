//! `/investments`: the holdings and the trades of one account at a broker.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use http::{StatusCode, Version};
use serde::Deserialize;

use super::choice::{Choice, ChoiceQuery};
use super::download;
use super::search::{Searched, Wanted, Window, search};
use crate::api_client::ApiError;
use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::with_commas;
use crate::pages::{SignedInFrame, page_response};
use crate::plan;
use crate::session::Session;
use crate::state::Console;

#[derive(Template)]
#[template(path = "investments.html")]
struct InvestmentsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    choice: &'a Choice,
    holdings: Result<Vec<HoldingRow>, String>,
    trades: Result<Vec<TradeRow>, String>,
    position: String,
    newer: Option<String>,
    older: Option<String>,
    /// The URLs of the API that give these rows.
    holdings_url: String,
    trades_url: String,
}

/// An absent value is an en dash.
struct HoldingRow {
    symbol: String,
    name: Option<String>,
    quantity: String,
    price: String,
    value: String,
    gain: String,
    currency: String,
}

struct TradeRow {
    date: String,
    kind: String,
    symbol: String,
    description: Option<String>,
    quantity: String,
    price: String,
    amount: String,
    currency: String,
}

#[derive(Deserialize)]
struct Holdings {
    data: Vec<Holding>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    symbol: String,
    name: Option<String>,
    quantity: String,
    current_price: Option<String>,
    market_value: Option<String>,
    unrealized_pnl: Option<String>,
    currency: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trade {
    trade_date: String,
    #[serde(rename = "type")]
    kind: String,
    symbol: String,
    description: Option<String>,
    quantity: String,
    price: String,
    total_amount: String,
    currency: String,
}

fn or_dash(value: Option<&String>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| with_commas(value))
}

impl From<Holding> for HoldingRow {
    fn from(row: Holding) -> Self {
        Self {
            symbol: sanitized(&row.symbol),
            name: row.name.as_deref().map(sanitized),
            quantity: with_commas(&row.quantity),
            price: or_dash(row.current_price.as_ref()),
            value: or_dash(row.market_value.as_ref()),
            gain: or_dash(row.unrealized_pnl.as_ref()),
            currency: row.currency,
        }
    }
}

impl From<Trade> for TradeRow {
    fn from(row: Trade) -> Self {
        Self {
            date: row
                .trade_date
                .split('T')
                .next()
                .unwrap_or_default()
                .to_owned(),
            kind: sanitized(&row.kind),
            symbol: sanitized(&row.symbol),
            description: row.description.as_deref().map(sanitized),
            quantity: with_commas(&row.quantity),
            price: with_commas(&row.price),
            amount: with_commas(&row.total_amount),
            currency: row.currency,
        }
    }
}

impl Searched for HoldingRow {
    fn texts(&self) -> impl Iterator<Item = &str> {
        [self.symbol.as_str(), &self.value]
            .into_iter()
            .chain(self.name.as_deref())
    }
}

impl Searched for TradeRow {
    fn texts(&self) -> impl Iterator<Item = &str> {
        [self.symbol.as_str(), &self.kind, &self.amount]
            .into_iter()
            .chain(self.description.as_deref())
    }
}

impl InvestmentsPage<'_> {
    /// The path of the file with the whole range.
    fn file(&self) -> String {
        format!(
            "{}/trades.csv?{}",
            self.frame.root,
            self.choice.file_query()
        )
    }
}

/// `GET /investments`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    query: ChoiceQuery,
) -> Response {
    if let Some(page) = plan::page_in_place(
        &console,
        &session,
        "/investments",
        ConnectionCategory::Brokerage,
    ) {
        return page;
    }
    let choice = match Choice::load(&console, &session, ConnectionCategory::Brokerage, query).await
    {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let frame = session.frame(&console, "/investments");
    let mut page = InvestmentsPage {
        frame: &frame,
        choice: &choice,
        holdings: Ok(Vec::new()),
        trades: Ok(Vec::new()),
        position: String::new(),
        newer: choice.newer().filter(|_| choice.search.is_empty()),
        older: None,
        holdings_url: String::new(),
        trades_url: String::new(),
    };
    if let (Some(account), Some(window)) = (choice.of_account(false), choice.window()) {
        let (holdings, trades) = (
            format!("/v1/holdings?{account}"),
            format!("/v1/trades?{window}"),
        );
        let root = console.inner.site.api_url.trim_end_matches('/');
        (page.holdings_url, page.trades_url) =
            (format!("{root}{holdings}"), format!("{root}{trades}"));
        let api = &console.inner.api;
        let (holdings, trades) =
            tokio::join!(api.get::<Holdings>(&session.caller, &holdings), async {
                if choice.search.is_empty() {
                    let window = api.get::<Window<Trade>>(&session.caller, &trades).await?;
                    let position = choice.position(window.data.len(), window.pagination.total());
                    let older = choice.older(window.pagination.has_more);
                    return Ok((
                        window.data.into_iter().map(TradeRow::from).collect(),
                        position,
                        older,
                    ));
                }
                let (rows, position) =
                    search::<Trade, TradeRow>(&console, &session, &choice, "/v1/trades").await?;
                Ok((rows, position, None))
            });
        let wanted = Wanted::from(&*choice.search);
        page.holdings = holdings
            .map_err(|error: ApiError| error.message)
            .map(|holdings| {
                holdings
                    .data
                    .into_iter()
                    .map(HoldingRow::from)
                    .filter(|row| row.has(&wanted))
                    .collect()
            });
        page.trades =
            trades
                .map_err(|error: ApiError| error.message)
                .map(|(rows, position, older)| {
                    (page.position, page.older) = (position, older);
                    rows
                });
    }
    if let Some(problem) = choice.problem() {
        page.trades = Err(problem);
    }
    page_response(StatusCode::OK, &page)
}

/// `GET /trades.csv`
pub(crate) async fn download_csv(
    State(console): State<Console>,
    session: Session,
    version: Version,
    query: ChoiceQuery,
) -> Response {
    download(
        &console,
        &session,
        ConnectionCategory::Brokerage,
        query,
        "trades.csv",
        version,
    )
    .await
}
