//! SnapTrade: brokers, mostly of North America. Facts and quirks with their sources: `README.md` here.

mod api;
mod budget;
mod link;
mod map;
mod sign;
mod webhook;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, ProviderName, Trade};
use futures_util::future::{join, join_all};
use jiff::civil::Date;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::http::{Client, parse_json};
use crate::rows::count_dropped;
use crate::settings::{Declaration, Form, Opened, Setting, Values};
use crate::standings::Standings;
use crate::{
    BalancesQuery, Brokerage, Call, Error, FoundAccount, FoundConnection, HoldingSink, Kind, Linking, Notifying,
    Provider, Standing, TradePage, TradeQuery, TradeSink, grant,
};
use api::{Api, User};
use map::Skipped;

/// The adapter's name.
pub const NAME: ProviderName = ProviderName::new("snaptrade");

/// What the configuration says of it.
pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "SnapTrade",
    reaches: "Brokers",
    help: &[
        "SnapTrade, for brokers. Offered once client_id and consumer_key are set. Enter {console.public_url}/webhooks/snaptrade",
        "in its dashboard as the address of webhooks: then a connection that breaks or ends is noticed at once.",
    ],
    settings: &[
        Setting {
            name: "base_url",
            help: &["Where its API is: another address only for a test server, such as the one of `bellbird sandbox`."],
            form: Form::Url("https://api.snaptrade.com"),
        },
        Setting {
            name: "client_id",
            help: &[
                "The client id from the SnapTrade dashboard, of a commercial or a personal key. Brokers are linked in the",
                "browser with a commercial key; connections of a personal one are adopted.",
            ],
            form: Form::Text,
        },
        Setting {
            name: "consumer_key",
            help: &[
                "The consumer key that belongs to it: it signs every request, and SnapTrade signs its webhooks with it. Better",
                "given as BELLBIRD_SNAPTRADE__CONSUMER_KEY.",
            ],
            form: Form::Secret,
        },
    ],
    needs: &["client_id", "consumer_key"],
    open,
};

fn open(values: &Values, call_timeout: Duration) -> Opened {
    let consumer_key = SecretString::from(values.needed("consumer_key")?);
    let client = Client::new(NAME, call_timeout)?;
    let api = Api::new(client, values.url("base_url")?, values.needed("client_id")?.to_owned(), &consumer_key);
    Ok(Arc::new(SnapTrade { api, standings: Standings::default() }))
}

/// The adapter.
pub struct SnapTrade {
    api: Api,
    standings: Standings,
}

/// The grant of one connection. No `Debug`: it holds a secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Grant {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization_id: Option<String>,
}

/// What a grant from outside covers: all of a user's connections, or one.
struct Covered {
    user: Option<User>,
    connection_id: Option<String>,
}

/// A stored grant: always one connection.
struct Link {
    user: Option<User>,
    id: String,
}

impl Covered {
    fn read(grant: &SecretString) -> Result<Self, Error> {
        const FORM: &str = "{\"userId\": \"...\", \"userSecret\": \"...\", \"authorizationId\": \"...\"}; authorizationId \
                            may be left out, and for a personal key userId and userSecret together";
        let grant: Grant = grant::read(grant, NAME, FORM)?;
        let user = match (grant.user_id, grant.user_secret) {
            (Some(id), Some(secret)) => Some(User { id, secret }),
            (None, None) => None,
            _ => return Err(Error::BadGrant("userId and userSecret belong together".to_owned())),
        };
        Ok(Self { user, connection_id: grant.authorization_id })
    }

    fn grant_of(&self, connection_id: &str) -> Result<SecretString, Error> {
        written(self.user.as_ref(), Some(connection_id))
    }
}

/// The grant of a user's connection, or of all of them.
fn written(user: Option<&User>, connection_id: Option<&str>) -> Result<SecretString, Error> {
    grant::write(&Grant {
        user_id: user.map(|user| user.id.clone()),
        user_secret: user.map(|user| user.secret.clone()),
        authorization_id: connection_id.map(str::to_owned),
    })
}

impl Link {
    fn read(grant: &SecretString) -> Result<Self, Error> {
        let Covered { user, connection_id } = Covered::read(grant)?;
        let id = connection_id.ok_or_else(|| Error::BadGrant("the stored grant has no connection".to_owned()))?;
        Ok(Self { user, id })
    }

    fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}

/// An account that the provider does not know.
const MISSING: Error = Error::Rejected { status: 404 };

impl SnapTrade {
    async fn look_up(&self, call: &Call, link: &Link) -> Result<Standing, Error> {
        match self.api.connection(call, link.user(), &link.id).await {
            Ok(connection) => Ok(map::standing(&connection)),
            Err(Error::ReconnectNeeded(status)) => Ok(Standing::Broken(status)),
            Err(error) => Err(error),
        }
    }

    /// Why an account is missing: because its connection is gone, or waits to be reconnected, or for no known reason.
    async fn why_missing(&self, call: &Call, link: &Link) -> Error {
        match self.standings.known_or(&link.id, self.look_up(call, link)).await {
            Ok(Standing::Broken(status)) => Error::ReconnectNeeded(status),
            Ok(Standing::Active) => MISSING,
            Err(error) => error,
        }
    }

    async fn explained<T>(&self, call: &Call, link: &Link, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Err(MISSING) => Err(self.why_missing(call, link).await),
            outcome => outcome,
        }
    }

    /// The balances of one connection's accounts: what they are worth is in its list of accounts, their cash is in a
    /// call an account, and none of these waits for another.
    async fn connection_balances(&self, call: &Call, asked: &BalancesQuery<'_>) -> Vec<Result<Balance, Error>> {
        let link = match Link::read(asked.grant) {
            Ok(link) => link,
            Err(error) => return vec![Err(error); asked.accounts.len()],
        };
        let totals = self.api.accounts(call, link.user(), &link.id, |rows| {
            let find = |account: &Account| rows.iter().find(|row| row.id.as_str() == account.provider_account_id);
            let total = |account| find(account).map_or(Ok(None), map::total_of);
            Ok(asked.accounts.iter().map(total).collect::<Vec<Result<_, Error>>>())
        });
        let cash = asked.accounts.iter().map(|account| {
            let read = |rows: Vec<wire::Balance<'_>>| rows.iter().map(map::cash).collect::<Result<Vec<_>, Error>>();
            self.api.balances(call, link.user(), &account.provider_account_id, read)
        });
        let (totals, cash) = join(totals, join_all(cash)).await;
        let totals = match totals {
            Ok(totals) => totals,
            Err(error) => return vec![Err(error); asked.accounts.len()],
        };
        let is_missing = |cash: &Result<_, Error>| matches!(cash, Err(MISSING));
        let why_missing = if cash.iter().any(is_missing) { self.why_missing(call, &link).await } else { MISSING };
        let settle = |((account, total), cash): ((&Account, Result<_, Error>), Result<_, Error>)| match cash {
            Ok(cash) => Ok(map::balance(account, total?, cash)),
            Err(MISSING) => Err(why_missing.clone()),
            Err(error) => Err(error),
        };
        asked.accounts.iter().zip(totals).zip(cash).map(settle).collect()
    }
}

#[async_trait]
impl Provider for SnapTrade {
    fn name(&self) -> ProviderName {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Brokerage(self)
    }

    async fn check(&self, call: &Call) -> Result<(), Error> {
        self.api.partner(call).await
    }

    async fn discover(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundConnection>, Error> {
        let covered = Covered::read(grant)?;
        let connections = match self.api.connections(call, covered.user.as_ref()).await {
            Err(Error::Rejected { status: 401 }) if covered.user.is_none() => {
                return Err(Error::BadGrant(
                    "SnapTrade refuses a grant without userId and userSecret, which works with a personal key only"
                        .to_owned(),
                ));
            }
            connections => connections?,
        };
        let wanted = |connection: &wire::Connection| {
            covered.connection_id.as_ref().is_none_or(|wanted| *wanted == connection.id)
        };
        let found = |connection: wire::Connection| {
            let standing = map::standing(&connection);
            let brokerage = connection.brokerage.ok_or(Error::Malformed("a connection without a brokerage"))?;
            let institution_id = brokerage.id.clone();
            let (institution_name, institution_logo) = map::shown(brokerage);
            let grant = covered.grant_of(&connection.id)?;
            Ok(FoundConnection {
                provider_connection_id: connection.id,
                owner: covered.user.as_ref().map(|user| user.id.clone()),
                institution_id,
                institution_name,
                institution_logo,
                standing,
                grant,
            })
        };
        connections.into_iter().filter(wanted).map(found).collect()
    }

    async fn standing(&self, call: &Call, grant: &SecretString) -> Result<Standing, Error> {
        let link = Link::read(grant)?;
        let standing = self.look_up(call, &link).await?;
        self.standings.learn(&link.id, standing).await;
        Ok(standing)
    }

    async fn accounts(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundAccount>, Error> {
        let link = Link::read(grant)?;
        let read = |rows: Vec<wire::Account<'_>>| {
            let mut accounts: Vec<FoundAccount> = Vec::with_capacity(rows.len());
            for row in &rows {
                if !accounts.iter().any(|known| known.provider_account_id == row.id.as_str()) {
                    accounts.push(map::account(row));
                }
            }
            Ok(accounts)
        };
        self.api.accounts(call, link.user(), &link.id, read).await
    }

    async fn balances(&self, call: &Call, asked: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>> {
        join_all(asked.iter().map(|query| self.connection_balances(call, query))).await
    }

    async fn withdraw(&self, call: &Call, grant: &SecretString) -> Result<(), Error> {
        let link = Link::read(grant)?;
        self.standings.forget(&link.id).await;
        match self.api.delete_connection(call, link.user(), &link.id).await {
            // A refusal in the provider's own words: it had ended before.
            Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => Ok(()),
            outcome => outcome,
        }
    }

    fn linking(&self) -> Option<&dyn Linking> {
        Some(self)
    }

    /// Always: what signs our requests signs its events.
    fn notifying(&self) -> Option<&dyn Notifying> {
        Some(self)
    }
}

#[async_trait]
impl Brokerage for SnapTrade {
    async fn holdings(
        &self,
        call: &Call,
        grant: &SecretString,
        account: &Account,
        rows: &mut HoldingSink<'_>,
    ) -> Result<(), Error> {
        let link = Link::read(grant)?;
        let outcome = self
            .api
            .positions(call, link.user(), &account.provider_account_id, |page| {
                map::holdings(page.results, account, count_skipped)?.into_iter().for_each(&mut *rows);
                Ok(())
            })
            .await;
        self.explained(call, &link, outcome).await
    }

    fn trades_rows_max(&self) -> u32 {
        api::ACTIVITIES_MAX
    }

    async fn trades(
        &self,
        call: &Call,
        grant: &SecretString,
        query: &TradeQuery<'_>,
        offset: u64,
        limit: u32,
        rows: &mut TradeSink<'_>,
    ) -> Result<TradePage, Error> {
        let link = Link::read(grant)?;
        let limit = limit.min(api::ACTIVITIES_MAX);
        let (from, to) = query.span.days(query.zone);
        let params = [
            ("startDate", from.map(day_text)),
            ("endDate", to.map(day_text)),
            ("offset", Some(offset.to_string())),
            ("limit", Some(limit.to_string())),
        ];
        let params: Vec<(&str, &str)> =
            params.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        let outcome = self
            .api
            .activities(call, link.user(), &query.account.provider_account_id, &params, |page| {
                let counted = counted(&page, offset, limit)?;
                trades(page, query.account)?.into_iter().for_each(|(at, trade)| rows(at, trade));
                Ok(counted)
            })
            .await;
        self.explained(call, &link, outcome).await
    }
}

/// `YYYY-MM-DD`: years that it cannot write are cut to those that it can.
fn day_text(day: Date) -> String {
    const FIRST: Date = jiff::civil::date(1, 1, 1);
    day.max(FIRST).to_string()
}

/// A larger total is not believed: it only has to be added to others.
const TRADES_BELIEVED: u64 = 1 << 53;

/// How many rows there are. A total that the page itself disproves is raised to what was seen.
fn counted(page: &wire::Activities<'_>, offset: u64, limit: u32) -> Result<TradePage, Error> {
    let rows = page.data.len() as u64;
    if rows > u64::from(limit) {
        return Err(Error::Malformed("more rows than asked for"));
    }
    let seen = if rows == 0 { 0 } else { offset.saturating_add(rows) };
    Ok(TradePage { rows, total: page.pagination.total.max(seen).min(TRADES_BELIEVED) })
}

/// The trades of a page, each with its place on it; the order, newest first, is the provider's
/// (docs/providers/snaptrade.md#activities).
fn trades<'a>(page: wire::Activities<'a>, account: &'a Account) -> Result<Vec<(u64, Trade<'a>)>, Error> {
    let mut trades = Vec::with_capacity(page.data.len());
    for (at, row) in (0_u64..).zip(page.data) {
        match map::trade(row, account)? {
            Ok(trade) => trades.push((at, trade)),
            Err(skipped) => count_skipped(skipped),
        }
    }
    Ok(trades)
}

fn count_skipped(skipped: Skipped) {
    count_dropped(NAME, skipped.0);
}

/// Reads any bytes as a page of activities and checks what must hold of every page: for the fuzz target.
///
/// # Panics
/// When a promise of the adapter does not hold.
#[doc(hidden)]
pub fn fuzz_activities_page(body: &[u8], account: &Account) {
    let Ok(page) = parse_json::<wire::Activities<'_>>(body) else { return };
    let Ok(counted) = counted(&page, 7, api::ACTIVITIES_MAX) else { return };
    let rows = page.data.len() as u64;
    assert!(counted.rows == rows && (rows == 0 || counted.total >= 7 + rows), "a total is never less than was seen");
    let Ok(trades) = trades(page, account) else { return };
    assert!(trades.iter().all(|(at, _)| *at < rows), "a place is on its page");
    assert!(trades.is_sorted_by(|(at, _), (next, _)| at < next), "in the provider's order, each once");
    for (_, trade) in &trades {
        assert!(trade.trade_date.as_bytes().get(10).is_none_or(|byte| *byte == b'T'), "a date that can be read");
        let (id, _) = (trade.id().to_string(), trade.time.instant());
        assert!(id.starts_with(&*trade.trade_date));
    }
}

/// Reads any bytes as the positions of an account and checks what must hold of them: for the fuzz target.
///
/// # Panics
/// When a promise of the adapter does not hold.
#[doc(hidden)]
pub fn fuzz_positions_page(body: &[u8], account: &Account) {
    let Ok(page) = parse_json::<wire::Positions<'_>>(body) else { return };
    let rows = page.results.len();
    let mut skipped = 0;
    let Ok(holdings) = map::holdings(page.results, account, |_| skipped += 1) else { return };
    assert_eq!(holdings.len() + skipped, rows, "each once, or counted");
    let mut seen = std::collections::HashSet::new();
    for holding in &holdings {
        assert!(!holding.symbol.is_empty() && !holding.currency.is_empty(), "what is promised is there");
        assert!(holding.current_price.is_some() || holding.market_value.is_none(), "no value without a price");
        assert!(seen.insert((&holding.instrument_id, holding.occurrence)), "told apart");
    }
}

/// Reads any bytes as an event, before and after its signature is checked: for the fuzz target.
///
/// # Panics
/// When a promise of the adapter does not hold.
#[doc(hidden)]
pub fn fuzz_event(body: &[u8]) {
    if let Some(canonical) = sign::canonical_text(body) {
        assert_eq!(sign::canonical_text(canonical.as_bytes()), Some(canonical), "a form is its own");
    }
    let _ = webhook::notification(body, jiff::Timestamp::UNIX_EPOCH, |_| true);
}

#[cfg(test)]
mod tests;
