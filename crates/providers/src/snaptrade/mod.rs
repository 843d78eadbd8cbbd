//! The adapter for SnapTrade: brokers, mostly in North America. docs/providers/snaptrade.md has the
//! provider's quirks with their sources, and what the adapter does about each.

mod api;
mod budget;
mod link;
mod map;
mod sign;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod webhook;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, ProviderName, Trade};
use futures_util::future::{join, join_all};
use jiff::civil::Date;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::consent_status_cache::ConsentStatusCache;
use crate::http::{Client, ClientSettings, Response};
use crate::rows::{MalformedRow, count_dropped, leave_out, parse_each};
use crate::settings::{Declaration, Opened, Setting, Values};
use crate::{
    BalancesQuery, Brokerage, CallContext, Consent, ConsentStatus, Cursor, Error, FoundAccount,
    FoundConnection, HoldingSink, Kind, Linking, Page, PageRequest, Provider, TradeQuery,
    TradeSink, UnreadableRow, WebhookVerifier, credentials,
};
use api::{Api, User};

/// Calls of the whole app, until a header says otherwise (docs/providers/snaptrade.md#rate-limits).
const CALLS_PER_MINUTE: u32 = 250;

pub const NAME: ProviderName = ProviderName::new("snaptrade");

pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "SnapTrade",
    reaches: "Brokers",
    consents: "at your broker",
    credentials_at: "in the SnapTrade dashboard",
    untested: None,
    words: &[
        (
            "type",
            "BUY CONTRIBUTION DISTRIBUTION DIVIDEND FEE INTEREST REI RETURN_OF_CAPITAL REVERSE_SPLIT SELL SPLIT \
             STOCK_DIVIDEND SUBSTITUTE_DIVIDEND TAX TRANSFER WITHDRAWAL",
        ),
        ("account_category", "ANNUITY DEPOSIT INVESTMENT LOC"),
        ("kind", "future future_option option"),
        ("code", "1083 3003"),
        ("default_code", "1083 3003"),
    ],
    settings: &[
        Setting::url("base_url", "https://api.snaptrade.com"),
        Setting::text("client_id", "Client ID"),
        Setting::secret("consumer_key", "Consumer key"),
    ],
    needs: &["client_id", "consumer_key"],
    open,
};

fn open(values: &Values, settings: ClientSettings<'_>) -> Opened {
    let consumer_key = SecretString::from(values.required("consumer_key")?);
    let client = Client::new(NAME, settings)?.with_calls_per_minute(CALLS_PER_MINUTE);
    let api = Api::new(
        client,
        values.url("base_url")?,
        values.required("client_id")?.to_owned(),
        &consumer_key,
    );
    Ok(Arc::new(SnapTrade {
        api,
        consent_statuses: ConsentStatusCache::default(),
    }))
}

pub struct SnapTrade {
    api: Api,
    consent_statuses: ConsentStatusCache,
}

/// The JSON form of credentials. No `Debug`: it holds a secret.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Credentials {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorization_id: Option<String>,
}

/// Credentials from a consent session or an import. They cover one connection, or without an id all
/// of the user.
struct UserCredentials {
    user: Option<User>,
    connection_id: Option<String>,
}

/// The stored credentials of one connection.
struct ConnectionCredentials {
    user: Option<User>,
    id: String,
}

impl UserCredentials {
    fn read(credentials: &SecretString) -> Result<Self, Error> {
        const FORM: &str = "{\"userId\": \"...\", \"userSecret\": \"...\", \"authorizationId\": \"...\"}; \
                            authorizationId is optional, and a personal key has neither userId nor userSecret";
        let credentials: Credentials = credentials::read(credentials, NAME, FORM)?;
        let user = match (credentials.user_id, credentials.user_secret) {
            (Some(id), Some(secret)) => Some(User { id, secret }),
            (None, None) => None,
            _ => {
                return Err(Error::InvalidCredentials(
                    "userId and userSecret must be given together".to_owned(),
                ));
            }
        };
        Ok(Self {
            user,
            connection_id: credentials.authorization_id,
        })
    }
}

/// The credentials of one connection, or without an id those of all connections of the user.
fn user_credentials(
    user: Option<&User>,
    connection_id: Option<&str>,
) -> Result<SecretString, Error> {
    credentials::write(&Credentials {
        user_id: user.map(|user| user.id.clone()),
        user_secret: user.map(|user| user.secret.clone()),
        authorization_id: connection_id.map(str::to_owned),
    })
}

impl ConnectionCredentials {
    fn read(credentials: &SecretString) -> Result<Self, Error> {
        let UserCredentials {
            user,
            connection_id,
        } = UserCredentials::read(credentials)?;
        Ok(Self {
            user,
            id: credentials::stored_id(connection_id, "authorizationId")?,
        })
    }

    fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }
}

/// The error of an account that the provider does not know.
const ACCOUNT_NOT_FOUND: Error = Error::Rejected { status: 404 };

impl SnapTrade {
    async fn fetch_consent_status(
        &self,
        context: &CallContext,
        stored: &ConnectionCredentials,
    ) -> Result<ConsentStatus, Error> {
        match self
            .api
            .connection(context, stored.user(), &stored.id)
            .await
        {
            Ok(connection) => Ok(map::consent_status(&connection)),
            Err(Error::ReconnectNeeded(status)) => Ok(ConsentStatus::Broken(status)),
            Err(error) => Err(error),
        }
    }

    /// The error for a missing account. It depends on the connection, which may have ended or need
    /// a reconnect.
    async fn missing_account_error(
        &self,
        context: &CallContext,
        stored: &ConnectionCredentials,
    ) -> Error {
        match self
            .consent_statuses
            .get_or_fetch(
                &stored.id,
                context,
                self.fetch_consent_status(context, stored),
            )
            .await
        {
            Ok(ConsentStatus::Broken(status)) => Error::ReconnectNeeded(status),
            Ok(ConsentStatus::Active) => ACCOUNT_NOT_FOUND,
            Err(error) => error,
        }
    }

    /// Replaces [`ACCOUNT_NOT_FOUND`] in `outcome` by its cause.
    async fn explain_missing_account<T>(
        &self,
        context: &CallContext,
        stored: &ConnectionCredentials,
        outcome: Result<T, Error>,
    ) -> Result<T, Error> {
        match outcome {
            Err(ACCOUNT_NOT_FOUND) => Err(self.missing_account_error(context, stored).await),
            outcome => outcome,
        }
    }

    /// The balances of one connection's accounts. The list of accounts has their total values. The
    /// cash takes one call per account. All calls run concurrently.
    async fn connection_balances(
        &self,
        context: &CallContext,
        query: &BalancesQuery<'_>,
    ) -> Vec<Result<Balance, Error>> {
        let stored = match ConnectionCredentials::read(query.credentials) {
            Ok(stored) => stored,
            Err(error) => return vec![Err(error); query.accounts.len()],
        };
        let totals = self
            .api
            .accounts(context, stored.user(), &stored.id, |rows| {
                let find = |account: &Account| {
                    rows.iter()
                        .find(|row| row.id.as_str() == account.provider_account_id)
                };
                let total = |account| find(account).map_or(Ok(None), map::total_of);
                Ok(query
                    .accounts
                    .iter()
                    .map(total)
                    .collect::<Vec<Result<_, Error>>>())
            });
        let cash = query.accounts.iter().map(|account| {
            let read = |rows: Vec<wire::Balance<'_>>| {
                rows.iter()
                    .map(map::cash)
                    .collect::<Result<Vec<_>, Error>>()
            };
            self.api
                .balances(context, stored.user(), &account.provider_account_id, read)
        });
        let (totals, cash) = join(totals, join_all(cash)).await;
        let totals = match totals {
            Ok(totals) => totals,
            Err(error) => return vec![Err(error); query.accounts.len()],
        };
        let is_missing = |cash: &Result<_, Error>| matches!(cash, Err(ACCOUNT_NOT_FOUND));
        let missing_account_error = if cash.iter().any(is_missing) {
            self.missing_account_error(context, &stored).await
        } else {
            ACCOUNT_NOT_FOUND
        };
        let combine =
            |((account, total), cash): ((&Account, Result<_, Error>), Result<_, Error>)| match cash
            {
                Ok(cash) => Ok(map::balance(account, total?, cash)),
                Err(ACCOUNT_NOT_FOUND) => Err(missing_account_error.clone()),
                Err(error) => Err(error),
            };
        query
            .accounts
            .iter()
            .zip(totals)
            .zip(cash)
            .map(combine)
            .collect()
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

    async fn check(&self, context: &CallContext) -> Result<(), Error> {
        self.api.partner(context).await
    }

    async fn discover(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundConnection>, Error> {
        let imported = UserCredentials::read(credentials)?;
        let connections = match self.api.connections(context, imported.user.as_ref()).await {
            Err(Error::OperatorRejected { .. }) if imported.user.is_none() => {
                return Err(Error::InvalidCredentials(
                    "SnapTrade rejected credentials without userId and userSecret; only personal keys work without"
                        .to_owned(),
                ));
            }
            connections => connections?,
        };
        let requested = |connection: &wire::Connection| {
            imported
                .connection_id
                .as_ref()
                .is_none_or(|requested| *requested == connection.id)
        };
        let found = |connection: wire::Connection| {
            let consent_status = map::consent_status(&connection);
            let brokerage = connection
                .brokerage
                .ok_or(Error::Malformed("a connection has no brokerage"))?;
            let institution_id = brokerage.id.clone();
            let (institution_name, institution_logo) = map::name_and_logo(brokerage);
            let credentials = user_credentials(imported.user.as_ref(), Some(&connection.id))?;
            Ok(FoundConnection {
                provider_connection_id: connection.id,
                provider_user_id: imported.user.as_ref().map(|user| user.id.clone()),
                institution_id,
                institution_name,
                institution_logo,
                consent_status,
                consent_expires_at: None,
                credentials,
            })
        };
        connections
            .into_iter()
            .filter(requested)
            .map(found)
            .collect()
    }

    async fn consent(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Consent, Error> {
        let stored = ConnectionCredentials::read(credentials)?;
        let consent_status = self.fetch_consent_status(context, &stored).await?;
        self.consent_statuses
            .insert(&stored.id, context, consent_status);
        Ok(consent_status.into())
    }

    async fn accounts(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error> {
        let stored = ConnectionCredentials::read(credentials)?;
        let read = |rows: Vec<wire::Account<'_>>| {
            let mut accounts: Vec<FoundAccount> = Vec::with_capacity(rows.len());
            for row in &rows {
                if !accounts
                    .iter()
                    .any(|known| known.provider_account_id == row.id.as_str())
                {
                    accounts.push(map::account(row));
                }
            }
            Ok(accounts)
        };
        self.api
            .accounts(context, stored.user(), &stored.id, read)
            .await
    }

    async fn balances(
        &self,
        context: &CallContext,
        queries: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        join_all(
            queries
                .iter()
                .map(|query| self.connection_balances(context, query)),
        )
        .await
    }

    async fn withdraw(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<(), Error> {
        let stored = ConnectionCredentials::read(credentials)?;
        self.consent_statuses.evict(&stored.id);
        match self
            .api
            .delete_connection(context, stored.user(), &stored.id)
            .await
        {
            // The provider itself reports that the connection does not exist.
            Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => Ok(()),
            outcome => outcome,
        }
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.api.client)
    }

    fn linking(&self) -> Option<&dyn Linking> {
        Some(self)
    }

    /// Always available, because the consumer key that signs requests also signs events.
    fn webhook_verifier(&self) -> Option<&dyn WebhookVerifier> {
        Some(self)
    }
}

#[async_trait]
impl Brokerage for SnapTrade {
    async fn holdings(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        account: &Account,
        rows: &mut HoldingSink<'_>,
    ) -> Result<(), Error> {
        let stored = ConnectionCredentials::read(credentials)?;
        let outcome = self
            .api
            .positions(
                context,
                stored.user(),
                &account.provider_account_id,
                |page| {
                    map::holdings(page.results, account, |reason| count_dropped(NAME, reason))?
                        .into_iter()
                        .for_each(&mut *rows);
                    Ok(())
                },
            )
            .await;
        self.explain_missing_account(context, &stored, outcome)
            .await
    }

    fn trades_rows_max(&self) -> u32 {
        api::ACTIVITIES_MAX
    }

    fn trades_cursor(&self, number: u64) -> Cursor {
        cursor_at(number)
    }

    async fn trades(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        query: &TradeQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TradeSink<'_>,
    ) -> Result<Page, Error> {
        let stored = ConnectionCredentials::read(credentials)?;
        let (offset, limit) = (offset_of(page.cursor)?, page.rows.min(api::ACTIVITIES_MAX));
        let (from, to) = query.dates.days(query.zone);
        let params = [
            ("startDate", from.map(day_text)),
            ("endDate", to.map(day_text)),
            ("offset", Some(offset.to_string())),
            ("limit", Some(limit.to_string())),
        ];
        let params: Vec<(&str, &str)> = params
            .iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
            .collect();
        let outcome = self
            .api
            .activities(
                context,
                stored.user(),
                &query.account.provider_account_id,
                &params,
                |response| {
                    let (page, mut unreadable) = parse_page(context, response)?;
                    let place = place_of(&page, unreadable.len() as u64, offset, limit)?;
                    let trades = trades(page, query.account, &mut unreadable);
                    context.unreadable.accept(&unreadable)?;
                    trades
                        .into_iter()
                        .for_each(|(index, trade)| rows(offset + index, trade));
                    Ok(place)
                },
            )
            .await;
        self.explain_missing_account(context, &stored, outcome)
            .await
    }
}

/// `YYYY-MM-DD`. Days before the year 1 are clamped.
fn day_text(day: Date) -> String {
    const FIRST: Date = jiff::civil::date(1, 1, 1);
    day.max(FIRST).to_string()
}

/// Larger totals are clamped, so that sums of several totals cannot overflow.
const TRADES_TOTAL_MAX: u64 = 1 << 53;

/// Parses a page, row by row if it cannot be parsed whole and a page with unreadable rows is read.
fn parse_page<'a>(
    context: &CallContext,
    response: &'a Response,
) -> Result<(wire::Activities<wire::Activity<'a>>, Vec<UnreadableRow>), Error> {
    match response.success() {
        Err(_) if context.unreadable.are_collected() => {
            let wire::Activities { data, pagination } = response.success()?;
            let (data, unreadable) = parse_each(NAME, data, |_| MalformedRow::default());
            Ok((wire::Activities { data, pagination }, unreadable))
        }
        page => Ok((page?, Vec::new())),
    }
}

/// The provider pages by offset, which is the number of the page's first row.
fn cursor_at(number: u64) -> Cursor {
    Cursor(number.to_string())
}

fn offset_of(cursor: Option<&Cursor>) -> Result<u64, Error> {
    let offset = cursor.map_or(Ok(0), |cursor| cursor.0.parse());
    offset.map_err(|_| Error::Malformed("not a cursor of SnapTrade"))
}

/// Where the page lies in the list. If the total is smaller than the rows seen, it is raised to
/// them. A page without rows is the last one, even if the total is larger. `malformed` rows of the
/// page are not in its data.
fn place_of<T>(
    page: &wire::Activities<T>,
    malformed: u64,
    offset: u64,
    limit: u32,
) -> Result<Page, Error> {
    let rows = page.data.len() as u64 + malformed;
    if rows > u64::from(limit) {
        return Err(Error::Malformed("more rows than requested"));
    }
    let end = offset.saturating_add(rows);
    let seen = if rows == 0 { 0 } else { end };
    let total = page.pagination.total.max(seen).min(TRADES_TOTAL_MAX);
    Ok(Page {
        next: (rows > 0 && end < total).then(|| cursor_at(end)),
        total: Some(total),
    })
}

/// Maps the trades of a page, each with its index on the page. Those that cannot be read go to
/// `unreadable`. The provider's order is newest first (docs/providers/snaptrade.md#activities).
fn trades<'a>(
    page: wire::Activities<wire::Activity<'a>>,
    account: &'a Account,
    unreadable: &mut Vec<UnreadableRow>,
) -> Vec<(u64, Trade<'a>)> {
    let mut trades = Vec::with_capacity(page.data.len());
    for (index, row) in (0_u64..).zip(page.data) {
        match map::trade(row, account) {
            Ok(trade) => trades.push((index, trade)),
            Err(skipped) => leave_out(NAME, skipped, "no_date", unreadable),
        }
    }
    trades
}

#[cfg(test)]
mod tests;
