//! `GET /overview`: net worth, balances by institution, and money in and out. Each part is read
//! live and sent when it is there, so that a slow provider delays only its own part, and one that
//! fails spoils no other.

mod attention;
pub(crate) mod balances;
mod chart;
mod money;
mod money_view;
mod query;

use std::sync::Arc;

use askama::Template;
use bellbird_domain::{Account, ConnectionCategory};
use futures_util::FutureExt as _;
use futures_util::stream::FuturesUnordered;
use http::Uri;

use crate::error_page::PageResult;
use crate::operator;
use crate::pages::{SignedInFrame, rendered_part};
use crate::plan;
use crate::rows::linked::load_all;
use crate::session::Session;
use crate::stream;
use attention::Attention;
use balances::BalancesOf;
use money::MoneyOf;
use query::OverviewQuery;

/// The page, with a mark where its parts go.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage<'a> {
    frame: &'a SignedInFrame<'a>,
    attention: &'a Attention,
    /// What the operator has to do on the first start.
    setup: Option<&'static str>,
    /// Nothing is linked yet.
    is_empty: bool,
    /// The parts without amounts, of which that of balances is as high as the one that follows.
    expected: [String; 2],
}

pub(crate) async fn show(session: Session, uri: Uri) -> PageResult {
    let session = Arc::new(session);
    if let Some(page) = plan::page_in_place(&session, "/overview", ConnectionCategory::Banking) {
        return Ok(page);
    }
    let endpoints = session.storage().endpoints();
    let ((connections, accounts, names), endpoints) =
        tokio::try_join!(load_all(&session), endpoints.list(session.user()))?;
    let setup = operator::steps_left(&session).await?;
    let frame = session.frame("/overview");
    let names = Arc::new(names);
    let attention = Attention::of(&connections, &names, &endpoints, &session);
    let query = OverviewQuery::of(uri.query());
    let is_empty = connections.is_empty();
    let currency = |account: &Account| (account.connection_id, account.currency);
    let currencies = accounts.iter().map(currency).collect();
    let balances = BalancesOf {
        session: Arc::clone(&session),
        query: query.clone(),
        connections,
        names: Arc::clone(&names),
        accounts,
    };
    let money = MoneyOf {
        session: Arc::clone(&session),
        query,
        names,
        currencies,
    };
    let page = OverviewPage {
        frame: &frame,
        attention: &attention,
        setup,
        is_empty,
        expected: [balances.expected(), money.expected()],
    };
    let page = rendered_part(&page);
    // The browser puts each part into the place of its name.
    let parts = FuturesUnordered::from_iter([balances.part().boxed(), money.part().boxed()]);
    Ok(stream::response(&page, parts))
}
