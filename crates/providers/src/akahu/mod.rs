//! Akahu: New Zealand banking. Facts and quirks with their sources: `README.md` here.

mod api;
mod categories;
mod keys;
mod link;
mod map;
mod webhook;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, ProviderName, Transaction};
use jiff::tz::TimeZone;
use reqwest::Url;
use reqwest::header::HeaderValue;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::balances::{Asked, by_owner};
use crate::http::Client;
use crate::rows::{assert_promises, count_dropped, newest_first};
use crate::settings::{Declaration, Form, Opened, Setting, Values};
use crate::standings::Standings;
use crate::text::Text;
use crate::{
    BalancesQuery, Banking, Call, Cursor, Error, FoundAccount, FoundConnection, Kind, Linking, Notifying, PageRequest,
    Provider, RowSink, Standing, TransactionQuery, grant,
};
use api::{Api, TransactionsQuery};
use keys::Keys;
use map::Skipped;

/// The adapter's name.
pub const NAME: ProviderName = ProviderName::new("akahu");

/// What the configuration says of it.
pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "Akahu",
    reaches: "New Zealand banks",
    help: &["Akahu, for New Zealand banks. Offered once app_token is set."],
    settings: &[
        Setting {
            name: "base_url",
            help: &[
                "Where its API is, with the version: another address only for a test server, such as the one of",
                "`bellbird sandbox`.",
            ],
            form: Form::Url("https://api.akahu.io/v1"),
        },
        Setting {
            name: "oauth_url",
            help: &[
                "Where its consent pages are, to which browsers are sent: another address only for a test server.",
                "Register {console.public_url}/link/callback with Akahu as the app's redirect URI.",
            ],
            form: Form::Url("https://oauth.akahu.nz"),
        },
        Setting {
            name: "app_token",
            help: &["The App ID Token from my.akahu.nz/developers, which starts with app_token_."],
            form: Form::Text,
        },
        Setting {
            name: "app_secret",
            help: &[
                "The App Secret of a full app; a personal app has none. Better given as BELLBIRD_AKAHU__APP_SECRET.",
                "With it banks are linked in the browser, and Akahu's webhooks are received: have Akahu send them to",
                "{console.public_url}/webhooks/akahu. Without it connections are adopted, and everything else works.",
            ],
            form: Form::Secret,
        },
    ],
    needs: &["app_token"],
    open,
};

fn open(values: &Values, call_timeout: Duration) -> Opened {
    let app_token = HeaderValue::from_str(values.needed("app_token")?);
    let app_token = app_token.map_err(|_| "app_token must be plain text".to_owned())?;
    let client = Client::new(NAME, call_timeout)?;
    let api = Api::new(client, values.url("base_url")?, app_token, values.secret("app_secret"));
    let oauth_url = values.url("oauth_url")?;
    let (keys, standings) = (Keys::default(), Standings::default());
    Ok(Arc::new(Akahu { api, oauth_url, auckland: auckland()?, keys, standings }))
}

fn auckland() -> Result<TimeZone, String> {
    TimeZone::get("Pacific/Auckland").map_err(|error| format!("New Zealand's timezone is not known: {error}"))
}

/// The adapter.
pub struct Akahu {
    api: Api,
    oauth_url: Url,
    auckland: TimeZone,
    keys: Keys,
    standings: Standings,
}

/// A grant. One user token covers every institution login that the user shared with the app; each
/// is an authorisation, and a connection of ours (docs/providers/akahu.md#authorisations).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Grant {
    user_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorisation: Option<String>,
}

/// A stored grant: always one authorisation.
struct Authorisation {
    user_token: String,
    id: String,
}

impl Grant {
    fn read(grant: &SecretString) -> Result<Self, Error> {
        const FORM: &str = "{\"userToken\": \"...\", \"authorisation\": \"...\"}; authorisation may be left out";
        let grant: Self = grant::read(grant, NAME, FORM)?;
        // What no header can hold would look like a failing network.
        if grant.user_token.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(grant)
        } else {
            Err(Error::BadGrant("the userToken holds characters that no token has".to_owned()))
        }
    }

    fn authorisation(grant: &SecretString) -> Result<Authorisation, Error> {
        let grant = Self::read(grant)?;
        let id =
            grant.authorisation.ok_or_else(|| Error::BadGrant("the stored grant has no authorisation".to_owned()))?;
        Ok(Authorisation { user_token: grant.user_token, id })
    }
}

impl Akahu {
    async fn look_up(&self, call: &Call, authorisation: &Authorisation) -> Result<Standing, Error> {
        let read = |rows: &[wire::Account<'_>]| Ok(map::standing(rows, &authorisation.id));
        self.api.accounts(call, &authorisation.user_token, read).await
    }

    /// Nothing where something was asked for may mean that the authorisation is gone while the token lives: then none
    /// of its accounts is listed any more. One that waits for the user still answers (docs/providers/akahu.md#status).
    async fn believe_nothing(&self, call: &Call, authorisation: &Authorisation) -> Result<(), Error> {
        match self.standings.known_or(&authorisation.id, self.look_up(call, authorisation)).await? {
            Standing::Broken(status @ ConnectionStatus::Revoked) => Err(Error::ReconnectNeeded(status)),
            _ => Ok(()),
        }
    }

    /// The balances of accounts of several authorisations of one user token.
    async fn token_balances<'a>(
        &self,
        call: &Call,
        user_token: String,
        asked: Vec<Asked<'a>>,
    ) -> Vec<(Asked<'a>, Vec<Result<Balance, Error>>)> {
        let read = |rows: &[wire::Account<'_>]| Ok(asked.iter().map(|asked| find(asked, rows)).collect::<Vec<_>>());
        let found = self.api.accounts(call, &user_token, read).await;
        let found = found
            .unwrap_or_else(|error| asked.iter().map(|asked| vec![Err(error.clone()); asked.accounts.len()]).collect());
        asked.into_iter().zip(found).collect()
    }
}

/// The balances of one authorisation's accounts in the list of its user token.
fn find(asked: &Asked<'_>, rows: &[wire::Account<'_>]) -> Vec<Result<Balance, Error>> {
    let missing = || match map::standing(rows, &asked.id) {
        Standing::Broken(status @ ConnectionStatus::Revoked) => Error::ReconnectNeeded(status),
        _ => Error::Rejected { status: 404 },
    };
    let find = |account: &Account| {
        let row = rows.iter().find(|row| row.id.as_str() == account.provider_account_id);
        row.ok_or_else(missing).and_then(map::balance)
    };
    asked.accounts.iter().map(find).collect()
}

#[async_trait]
impl Provider for Akahu {
    fn name(&self) -> ProviderName {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Banking(self)
    }

    async fn check(&self, call: &Call) -> Result<(), Error> {
        self.api.check(call).await
    }

    async fn discover(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundConnection>, Error> {
        let grant = Grant::read(grant)?;
        self.api.accounts(call, &grant.user_token, |rows| found(rows, &grant)).await
    }

    async fn standing(&self, call: &Call, grant: &SecretString) -> Result<Standing, Error> {
        let authorisation = Grant::authorisation(grant)?;
        let standing = match self.look_up(call, &authorisation).await {
            Err(Error::ReconnectNeeded(status)) => Standing::Broken(status),
            outcome => outcome?,
        };
        self.standings.learn(&authorisation.id, standing).await;
        Ok(standing)
    }

    async fn accounts(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundAccount>, Error> {
        let authorisation = Grant::authorisation(grant)?;
        let ours = |row: &&wire::Account<'_>| map::authorisation(row) == Some(&authorisation.id);
        let read = |rows: &[wire::Account<'_>]| Ok(rows.iter().filter(ours).map(map::account).collect::<Vec<_>>());
        let accounts = self.api.accounts(call, &authorisation.user_token, read).await?;
        if accounts.is_empty() { Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) } else { Ok(accounts) }
    }

    /// A user token's list holds the balances of all its authorisations: one call for all that are asked of it.
    async fn balances(&self, call: &Call, asked: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>> {
        let whose = |query: &BalancesQuery<'_>| {
            Grant::authorisation(query.grant).map(|authorisation| (authorisation.user_token, authorisation.id))
        };
        by_owner(asked, whose, |user_token, asked| self.token_balances(call, user_token, asked)).await
    }

    async fn withdraw(&self, call: &Call, grant: &SecretString) -> Result<(), Error> {
        let authorisation = Grant::authorisation(grant)?;
        self.standings.forget(&authorisation.id).await;
        self.api.delete_authorisation(call, &authorisation.user_token, &authorisation.id).await
    }

    /// A personal app has no consent page of its own (docs/providers/akahu.md#apps).
    fn linking(&self) -> Option<&dyn Linking> {
        self.api.is_full_app().then_some(self)
    }

    /// Webhooks, and the keys to check them with, are a full app's too.
    fn notifying(&self) -> Option<&dyn Notifying> {
        self.api.is_full_app().then_some(self)
    }
}

/// The connections of a list of accounts that a grant is about: one an authorisation, in the order of the list.
fn found(rows: &[wire::Account<'_>], grant: &Grant) -> Result<Vec<FoundConnection>, Error> {
    let mut found: Vec<FoundConnection> = Vec::new();
    for row in rows {
        let Some(id) = map::authorisation(row) else { continue };
        let wanted = grant.authorisation.as_ref().is_none_or(|wanted| wanted == id);
        if !wanted || found.iter().any(|known| known.provider_connection_id == id) {
            continue;
        }
        let institution = row.connection.as_ref().ok_or(Error::Malformed("an account without its institution"))?;
        let name = institution.name.as_ref().map(Text::as_str).filter(|name| !name.trim().is_empty());
        let logo = institution.logo.as_ref().map(Text::as_str).filter(|logo| !logo.is_empty());
        let own = Grant { user_token: grant.user_token.clone(), authorisation: Some(id.to_owned()) };
        found.push(FoundConnection {
            provider_connection_id: id.to_owned(),
            owner: None,
            institution_id: institution.id.as_str().to_owned(),
            institution_name: name.unwrap_or("Bank").to_owned(),
            institution_logo: logo.map(str::to_owned),
            standing: map::standing(rows, id),
            grant: grant::write(&own)?,
        });
    }
    Ok(found)
}

#[async_trait]
impl Banking for Akahu {
    fn page_rows_max(&self) -> u32 {
        api::PAGE_ROWS
    }

    /// Settled rows only: pending ones have endpoints of their own, which are never called
    /// (docs/providers/akahu.md#pending-rows).
    async fn transactions(
        &self,
        call: &Call,
        grant: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut RowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let authorisation = Grant::authorisation(grant)?;
        let account_id = match query.accounts {
            [account] if query.one_account => Some(account.provider_account_id.as_str()),
            _ => None,
        };
        let instants = map::instants(query.interval, query.zone, &self.auckland);
        let asked = TransactionsQuery { account_id, instants, cursor: page.cursor };
        let read = self
            .api
            .transactions(call, &authorisation.user_token, &asked, |body| {
                let page: wire::List<wire::Transaction<'_>> = api::list(body)?;
                let next = api::next(page.cursor, asked.cursor)?;
                let ours = settled(page.items, query, &self.auckland)?;
                let given = ours.len();
                ours.into_iter().for_each(&mut *rows);
                Ok((next, given))
            })
            .await;
        match read {
            // Without an account in the path, an authorisation that is gone leaves its rows out and says nothing.
            Ok((None, 0)) if account_id.is_none() => self.believe_nothing(call, &authorisation).await.map(|()| None),
            Ok((next, _)) => Ok(next),
            Err(error @ Error::Rejected { status: 404 }) if account_id.is_some() => {
                self.believe_nothing(call, &authorisation).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
}

/// The rows of a page that are asked for, newest first. The provider's order is not documented beyond what was seen
/// (docs/providers/akahu.md#transactions), so a page that is not in order is sorted.
fn settled<'a>(
    page: Vec<wire::Transaction<'a>>,
    query: &TransactionQuery<'a>,
    auckland: &TimeZone,
) -> Result<Vec<Transaction<'a>>, Error> {
    let mut ours: Vec<Transaction<'a>> = Vec::with_capacity(page.len());
    for row in page {
        match map::transaction(row, query.accounts, auckland)? {
            Ok(row) => ours.push(row),
            Err(Skipped::NoTime) => count_dropped(NAME, "no_time"),
            Err(Skipped::OtherAccount) if query.one_account => count_dropped(NAME, "other_account"),
            // Another authorisation of the same user token: not worth counting.
            Err(Skipped::OtherAccount) => {}
        }
    }
    newest_first(&mut ours);
    Ok(ours)
}

/// Reads any bytes as a page of transactions and checks what must hold of every page: for the fuzz target.
///
/// # Panics
/// When a promise of the adapter does not hold.
#[doc(hidden)]
pub fn fuzz_transactions_page(body: &[u8], account: Account) {
    let interval = bellbird_domain::Interval::resolve(None, None, jiff::Timestamp::UNIX_EPOCH);
    let accounts = [account];
    let zone = TimeZone::UTC;
    let query = TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &zone };
    let (Ok(auckland), Ok(page)) = (auckland(), api::list::<wire::Transaction<'_>>(body)) else { return };
    let rows = page.items.len();
    let Ok(ours) = settled(page.items, &query, &auckland) else { return };
    assert_promises(&ours, rows);
    for row in &ours {
        let day = row.local_day(&zone);
        let there = bellbird_domain::date::day_of(row.instant, &auckland);
        assert!(row.day.is_none() || day == there, "a day is New Zealand's");
    }
}

/// Reads any bytes as an event whose signature is good: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_event(body: &[u8]) {
    let _ = webhook::notification(body);
}

#[cfg(test)]
mod tests;
