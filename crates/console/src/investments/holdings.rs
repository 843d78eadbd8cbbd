//! What the accounts hold, from `/v1/holdings`, by currency, with exact sums.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::ready;

use askama::Template;
use bellbird_domain::{AccountId, ConnectionCategory, ConnectionStatus, Decimal, ExactSum};
use bellbird_interop::export::formats::CsvLines;
use bellbird_interop::export::{CutOff, NameParts};
use bellbird_reads::Trades;
use futures_util::stream::{self, StreamExt as _};
use http::{StatusCode, Uri, Version};
use serde::Deserialize;

use crate::api_client::{ApiError, List};
use crate::error_page::PageResult;
use crate::overview::balances::{ReadBalance, balance_of};
use crate::pages::names::sanitized;
use crate::pages::{BankNames, BankTrouble, Money, Number, SignedInFrame, rendered_part};
use crate::rows::file::{FOR_SPREADSHEETS, csv_response, no_file, not_read, refusal};
use crate::rows::filter::Filter;
use crate::rows::linked::{Bank, Linked};
use crate::rows::list::RowList;
use crate::rows::{ListKind as _, Symbol};
use crate::session::Session;

/// Brokers read at the same time. The trades are read meanwhile, and a session has few permits.
const BROKERS_AT_ONCE: usize = 2;
const NONE_READ: &str = "None of your brokers could be read.";
/// Of the file.
const COLUMNS: [&str; 9] = [
    "Account", "Broker", "Symbol", "Name", "Quantity", "Price", "Value", "Gain", "Currency",
];

#[derive(Template)]
#[template(path = "investments_holdings.html")]
struct HoldingsPart<'a> {
    frame: &'a SignedInFrame<'a>,
    filter: &'a Filter,
    /// This page again.
    again: String,
    troubles: Vec<BankTrouble>,
    /// Of the account that is chosen.
    balance: Option<ReadBalance>,
    currencies: Vec<InCurrency<'a>>,
    /// Holdings without a value, which are in no total.
    without_value: usize,
    /// Holdings with a value, but without a cost, which are in no gain.
    without_cost: usize,
    /// Futures with a value, which are in no total and no gain.
    futures: usize,
}

/// The holdings of a currency, the most valuable first, and their sums.
struct InCurrency<'a> {
    code: &'a str,
    /// None: no holding counts.
    total: Option<ExactSum>,
    gain: Option<Gain>,
    /// Those that the search finds.
    holdings: Vec<&'a Holding>,
}

/// Value minus cost.
#[derive(Default)]
struct Gain {
    sum: ExactSum,
    cost: ExactSum,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    account_id: AccountId,
    account_name: String,
    symbol: String,
    name: Option<String>,
    quantity: String,
    current_price: Option<String>,
    market_value: Option<String>,
    unrealized_pnl: Option<String>,
    currency: String,
}

impl Holding {
    fn value(&self) -> Option<ExactSum> {
        sum_of(self.market_value.as_deref()?)
    }

    fn gain(&self) -> Option<Gain> {
        let (value, sum) = (self.value()?, sum_of(self.unrealized_pnl.as_deref()?)?);
        Some(Gain {
            cost: value.minus(&sum),
            sum,
        })
    }

    /// By the symbol as most brokers write it, because the API names no kinds. Its value is that of
    /// what the contract is about, for which nobody has paid, so it is in no sum.
    fn is_future(&self) -> bool {
        self.symbol.starts_with('/')
    }

    fn shown_symbol(&self) -> Symbol {
        Symbol::new(&self.symbol)
    }

    /// None: it says no more than the symbol.
    fn shown_name(&self) -> Option<String> {
        let name = self.name.as_deref().map(sanitized)?;
        let is_new = !name.is_empty() && name != self.shown_symbol().text;
        is_new.then_some(name)
    }

    fn shown_price(&self) -> Option<Number> {
        let price = self.current_price.as_ref()?;
        Some(Number::price(price, &self.currency))
    }
}

fn sum_of(number: &str) -> Option<ExactSum> {
    let mut sum = ExactSum::default();
    sum.add(&Decimal::parse(number).ok()?).then_some(sum)
}

impl InCurrency<'_> {
    fn number(&self, sum: &ExactSum) -> Number {
        Number::sum(sum, self.code)
    }

    /// Per cent of the total.
    fn share(&self, holding: &Holding) -> Option<String> {
        let value = holding.value().filter(|_| !holding.is_future())?;
        percent(&value, self.total.as_ref()?)
    }
}

impl Gain {
    /// Of the cost.
    fn percent(&self) -> Option<String> {
        percent(&self.sum, &self.cost)
    }

    fn plus(&self) -> &'static str {
        match self.sum > ExactSum::default() {
            true => "+",
            false => "",
        }
    }
}

fn percent(part: &ExactSum, whole: &ExactSum) -> Option<String> {
    let percent = part.percent_of(whole)?;
    Some(Number::percent(percent.as_str()).text)
}

/// Of the accounts that the page shows, with the brokers that it names as not read.
pub(super) async fn part(list: &RowList) -> (String, Vec<BankTrouble>) {
    let filter = &list.filter;
    let (mut holdings, mut troubles) = (Vec::<Holding>::new(), Vec::<BankTrouble>::new());
    let mut reads = Vec::new();
    for broker in &list.linked.banks {
        let has = |id| broker.name_of(id).is_some();
        if filter.account.is_none_or(has) {
            let (session, names) = (&list.session, &list.linked.names);
            reads.push(read(session, names, filter.account, broker));
        }
    }
    let reads = stream::iter(reads).buffered(BROKERS_AT_ONCE);
    let balance = balance_of(&list.session, filter.account);
    let (reads, balance) = tokio::join!(reads.collect::<Vec<_>>(), balance);
    for read in reads {
        match read {
            Ok(some) => holdings.extend(some),
            Err(not_read) => troubles.push(not_read.0),
        }
    }
    let mut by_currency: BTreeMap<&str, Vec<&Holding>> = BTreeMap::new();
    for holding in &holdings {
        let same = by_currency.entry(&holding.currency).or_default();
        same.push(holding);
    }
    let currencies = by_currency.into_iter();
    let currencies = currencies.map(|(code, holdings)| in_currency(filter, code, holdings));
    let count = |is: fn(&Holding) -> bool| holdings.iter().filter(|one| is(one)).count();
    let frame = list.session.frame("/investments");
    let part = HoldingsPart {
        frame: &frame,
        filter,
        again: format!("{}/investments?{}", frame.root, filter.query.this_page()),
        troubles,
        balance,
        currencies: currencies.filter(|one| !one.holdings.is_empty()).collect(),
        without_value: count(|one| one.value().is_none()),
        without_cost: count(|one| {
            one.value().is_some() && one.gain().is_none() && !one.is_future()
        }),
        futures: count(|one| one.value().is_some() && one.is_future()),
    };
    (rendered_part(&part), part.troubles)
}

/// `GET /holdings.csv`: all holdings, for people, of one broker after the other.
/// With `partial`, without the brokers that fail while others do not.
pub(crate) async fn download_holdings(session: Session, version: Version, uri: Uri) -> PageResult {
    if let Some(refusal) = refusal(version) {
        return Ok(refusal);
    }
    let Linked { mut banks, names } = Linked::load(&session, ConnectionCategory::Brokerage).await?;
    // What is known to fail does so before the file begins.
    banks.sort_by_key(|broker| broker.connection.status == ConnectionStatus::Active);
    let parts = NameParts {
        institution: None,
        account: None,
        resource: Some("holdings"),
        days: (None, Some(session.today())),
        extension: "csv",
    };
    let is_partial = uri.query() == Some("partial=true");
    let has_brokers = !banks.is_empty();
    let brokers = (session, names, banks.into_iter());
    let pieces = stream::unfold(brokers, |mut state| async move {
        let broker = state.2.next()?;
        let lines = lines_of(&state.0, &state.1, &broker).await;
        Some((lines, state))
    });
    let pieces = pieces.filter(move |piece| {
        // The others are of a limit, or of the plan.
        let codes = ["reconnect_required", "provider_unavailable"];
        let is_of_broker = |error: &ApiError| codes.contains(&error.code.as_str());
        ready(!is_partial || !piece.as_ref().is_err_and(is_of_broker))
    });
    let mut pieces = Box::pin(pieces.peekable());
    match pieces.as_mut().peek().await {
        Some(Err(error)) => return Ok(not_read(error)),
        None if has_brokers => return Ok(no_file(StatusCode::BAD_GATEWAY, NONE_READ)),
        _ => {}
    }
    let mut header = Vec::new();
    CsvLines::new(FOR_SPREADSHEETS).header(&COLUMNS, &mut header);
    let pieces = pieces.map(|piece| piece.map_err(|_| CutOff));
    let pieces = stream::once(ready(Ok(header))).chain(pieces);
    Ok(csv_response(&parts.name(), pieces))
}

/// The lines of a broker. A user who signs out, or whose plan ends, gets no further ones.
async fn lines_of(
    session: &Session,
    names: &BankNames,
    broker: &Bank,
) -> Result<Vec<u8>, ApiError> {
    let api = &session.context;
    let quota = Trades::quota(api.quotas());
    api.check_again(quota, &session.caller, None).await?;
    let read = read(session, names, None, broker).await;
    let holdings = read.map_err(|not_read| not_read.1)?;
    let (mut lines, mut file) = (CsvLines::new(FOR_SPREADSHEETS), Vec::new());
    for one in holdings {
        let account = broker.name_of(one.account_id);
        lines.text(account.unwrap_or(&one.account_name), &mut file);
        lines.text(&broker.name, &mut file);
        lines.text(&one.symbol, &mut file);
        lines.text(one.name.as_deref().unwrap_or_default(), &mut file);
        lines.plain(&one.quantity, &mut file);
        for number in [one.current_price, one.market_value, one.unrealized_pnl] {
            lines.plain(&number.unwrap_or_default(), &mut file);
        }
        lines.text(&one.currency, &mut file);
        lines.end_line(&mut file);
    }
    Ok(file)
}

/// Fails with the bank for the page, and the same for a file.
async fn read(
    session: &Session,
    names: &BankNames,
    account: Option<AccountId>,
    broker: &Bank,
) -> Result<Vec<Holding>, Box<(BankTrouble, ApiError)>> {
    let connection = &broker.connection;
    let account = account.map(|id| format!("&accountId={id}"));
    let account = account.unwrap_or_default();
    let path = format!("/v1/holdings?connectionId={}{account}", connection.id);
    let api = &session.api;
    let read = api.get::<List<Holding>>(&session.caller, &path, None).await;
    let holdings = read.map(|read| read.value.data);
    holdings.map_err(|error| {
        let bank = session.asked(connection, names);
        let trouble = bank.failed_by_api(&error.code, error.retry_after);
        let message = trouble.sentences();
        Box::new((trouble, ApiError { message, ..error }))
    })
}

fn in_currency<'a>(
    filter: &Filter,
    code: &'a str,
    mut holdings: Vec<&'a Holding>,
) -> InCurrency<'a> {
    let (mut total, mut gain) = (None::<ExactSum>, None::<Gain>);
    for holding in holdings.iter().filter(|one| !one.is_future()) {
        if let Some(value) = holding.value() {
            total = Some(total.unwrap_or_default().plus(&value));
        }
        if let Some(own) = holding.gain() {
            let all = gain.get_or_insert_default();
            all.sum = all.sum.plus(&own.sum);
            all.cost = all.cost.plus(&own.cost);
        }
    }
    holdings.sort_by_cached_key(|one| (Reverse(one.value()), &one.symbol));
    holdings.retain(|one| {
        let texts = [Some(&*one.symbol), one.name.as_deref()];
        filter.finds(texts.into_iter().flatten(), None, code)
    });
    InCurrency {
        code,
        total,
        gain,
        holdings,
    }
}
