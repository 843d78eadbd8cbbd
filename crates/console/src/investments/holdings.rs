//! What the accounts hold, from `/v1/holdings`, by currency, with exact sums.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::ready;

use askama::Template;
use bellbird_domain::{AccountId, Decimal, ExactSum};
use bellbird_interop::export::NameParts;
use bellbird_interop::export::formats::CsvLines;
use bellbird_reads::Trades;
use futures_util::stream::{self, StreamExt as _};
use http::Uri;
use serde::Deserialize;

use crate::api_client::{Aged, ApiError, List};
use crate::error_page::PageResult;
use crate::overview::balances::{ReadBalance, with_balance_of};
use crate::pages::names::sanitized;
use crate::pages::{BankTrouble, Money, Number, SignedInFrame, rendered_part};
use crate::rows::file::{ACCOUNT_GONE, FOR_SPREADSHEETS, bank_not_read, csv_response, no_file};
use crate::rows::filter::Filter;
use crate::rows::linked::Bank;
use crate::rows::list::RowList;
use crate::rows::{ListKind as _, Symbol};
use crate::session::Session;

/// Brokers read at the same time. The trades are read meanwhile, and a session has few permits.
const BROKERS_AT_ONCE: usize = 2;
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
    /// The time of the oldest read. None: no broker was read.
    as_of: Option<String>,
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

    /// None: it says no more than the symbol.
    fn shown_name(&self) -> Option<String> {
        let name = self.name.as_deref().map(sanitized)?;
        let is_new = !name.is_empty() && name != Symbol::new(&self.symbol).text;
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
    /// Per cent of the total.
    fn share(&self, holding: &Holding) -> Option<String> {
        let value = holding.value().filter(|_| !holding.is_future())?;
        percent(&value, self.total.as_ref()?)
    }
}

impl Gain {
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

/// Of the accounts that the page shows, with the brokers that it names because they were not read
/// or need the user.
pub(super) async fn part(list: &RowList) -> (String, Vec<BankTrouble>) {
    let filter = &list.filter;
    let (mut holdings, mut troubles) = (Vec::<Holding>::new(), Vec::<BankTrouble>::new());
    let account = list.account_with_balance();
    let (reads, balance) = with_balance_of(&list.session, account, read_all(list)).await;
    let mut age = None;
    for (broker, read) in reads {
        let bank = list.asked(broker);
        match read {
            Ok(read) => {
                // A broker may give its last report after the consent has ended.
                troubles.extend(bank.broken());
                age = age.max(Some(read.age));
                holdings.extend(read.value.data);
            }
            Err(error) => troubles.push(bank.failed_by_api(&error.code, error.retry_after)),
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
    let (frame, now) = (list.session.frame("/investments"), list.session.now);
    let as_of = age.map(|age| now.checked_sub(age).unwrap_or(now));
    let part = HoldingsPart {
        frame: &frame,
        filter,
        again: format!("{}/investments?{}", frame.root, filter.query.this_page()),
        troubles,
        as_of: as_of.map(|at| list.session.zone().time(at)),
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

/// `GET /holdings.csv`: all holdings, for people. The file is short, and begins when all is read,
/// so that a broker that fails is named on a page.
/// With `partial`, without the brokers that fail while others do not.
pub(crate) async fn download_holdings(session: Session, uri: Uri) -> PageResult {
    let list = RowList::load(session, Trades::PAGE, uri.query()).await?;
    if list.filter.is_account_gone {
        return Ok(no_file(&list, ACCOUNT_GONE));
    }
    let mut lines = CsvLines::new(FOR_SPREADSHEETS);
    let mut file = Vec::new();
    lines.header(&COLUMNS, &mut file);
    let reads = read_all(&list).await;
    let leaves_out = list.filter.query.get("partial") == "true"
        && reads.iter().any(|(_, holdings)| holdings.is_ok());
    for (broker, holdings) in reads {
        let holdings = match holdings {
            Ok(read) => read.value.data,
            Err(_) if leaves_out => continue,
            Err(error) => return Ok(bank_not_read(&list, broker, error)),
        };
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
    }
    let parts = NameParts {
        institution: None,
        account: None,
        resource: Some("holdings"),
        days: (None, Some(list.session.today())),
        extension: "csv",
    };
    Ok(csv_response(&parts.name(), stream::once(ready(Ok(file)))))
}

/// A broker, and what was read of it.
type HoldingsRead<'b> = (&'b Bank, Result<Aged<List<Holding>>, ApiError>);

/// Of each broker of the accounts that the page shows.
async fn read_all(list: &RowList) -> Vec<HoldingsRead<'_>> {
    let mut reads = Vec::new();
    for broker in &list.linked.banks {
        let has = |id| broker.name_of(id).is_some();
        if list.filter.account.is_none_or(has) {
            reads.push(read(list, broker));
        }
    }
    let reads = stream::iter(reads).buffered(BROKERS_AT_ONCE);
    reads.collect().await
}

async fn read<'b>(list: &RowList, broker: &'b Bank) -> HoldingsRead<'b> {
    let session = &list.session;
    let account = list.filter.account.map(|id| format!("&accountId={id}"));
    let account = account.unwrap_or_default();
    let id = broker.connection.id;
    let path = format!("/v1/holdings?connectionId={id}{account}");
    (broker, session.api.get(&session.caller, &path, None).await)
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
