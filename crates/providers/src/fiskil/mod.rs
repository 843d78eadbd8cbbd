//! Fiskil: Australian banking through the Consumer Data Right. Facts and quirks with their sources: `README.md` here.

mod api;
mod link;
mod map;
mod webhook;
mod wire;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, Currency, ProviderName, Transaction};
use futures_util::future::join_all;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::balances::{Asked, by_owner};
use crate::http::{Client, parse_json};
use crate::rows::{assert_promises, count_dropped, newest_first};
use crate::settings::{Declaration, Form, Opened, Setting, Values};
use crate::standings::Standings;
use crate::text::Text;
use crate::{
    BalancesQuery, Banking, Call, Cursor, Error, FoundAccount, FoundConnection, Kind, Linking, Notifying, PageRequest,
    Provider, RowSink, Standing, TransactionQuery, grant,
};
use api::{Api, TransactionsQuery};
use map::Skipped;
use webhook::Webhooks;

/// The adapter's name.
pub const NAME: ProviderName = ProviderName::new("fiskil");
/// What the configuration says of it.
pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "Fiskil",
    reaches: "Australian banks",
    help: &["Fiskil, for Australian banks. Offered once client_id and client_secret are set."],
    settings: &[
        Setting {
            name: "base_url",
            help: &["Where its API is: another address only for a test server, such as the one of `bellbird sandbox`."],
            form: Form::Url("https://api.fiskil.com"),
        },
        Setting { name: "client_id", help: &["The client id from the Fiskil console."], form: Form::Text },
        Setting {
            name: "client_secret",
            help: &["The client secret that belongs to it. Better given as BELLBIRD_FISKIL__CLIENT_SECRET."],
            form: Form::Secret,
        },
        Setting {
            name: "webhook_secret",
            help: &[
                "The signing secret of its webhooks from the Fiskil console, where they are switched on by entering",
                "{console.public_url}/webhooks/fiskil as their address: then a consent that ends or changes is noticed at",
                "once. Without it nothing is received. Better given as BELLBIRD_FISKIL__WEBHOOK_SECRET.",
            ],
            form: Form::Secret,
        },
    ],
    needs: &["client_id", "client_secret"],
    open,
};

fn open(values: &Values, call_timeout: Duration) -> Opened {
    let client_secret = SecretString::from(values.needed("client_secret")?);
    let client = Client::new(NAME, call_timeout)?;
    let api = Api::new(client, values.url("base_url")?, values.needed("client_id")?.to_owned(), client_secret);
    let webhooks = values.get("webhook_secret").map(Webhooks::new).transpose()?;
    Ok(Arc::new(Fiskil { api, standings: Standings::default(), webhooks }))
}

/// The adapter.
pub struct Fiskil {
    api: Api,
    standings: Standings,
    webhooks: Option<Webhooks>,
}

/// The grant of one connection.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Grant {
    end_user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arrangement_id: Option<String>,
}

/// A stored grant: always one arrangement.
struct Arrangement {
    end_user_id: String,
    id: String,
}

impl Arrangement {
    /// Whether a row is this consent's: an end user's lists hold the rows of all their consents.
    fn has(&self, arrangement_id: Option<&Text<'_>>) -> bool {
        arrangement_id.is_none_or(|id| id.as_str() == self.id)
    }
}

impl Grant {
    fn read(grant: &SecretString) -> Result<Self, Error> {
        const FORM: &str = "{\"endUserId\": \"...\", \"arrangementId\": \"...\"}; arrangementId may be left out";
        grant::read(grant, NAME, FORM)
    }

    fn arrangement(grant: &SecretString) -> Result<Arrangement, Error> {
        let grant = Self::read(grant)?;
        let id =
            grant.arrangement_id.ok_or_else(|| Error::BadGrant("the stored grant has no arrangement".to_owned()))?;
        Ok(Arrangement { end_user_id: grant.end_user_id, id })
    }
}

impl Fiskil {
    async fn look_up(&self, call: &Call, arrangement: &Arrangement) -> Result<Standing, Error> {
        let consents = self.api.consents(call, &arrangement.end_user_id).await?;
        let consent = consents.iter().find(|consent| consent.arrangement_id == arrangement.id);
        Ok(consent.map_or(Standing::Broken(ConnectionStatus::Revoked), |consent| map::standing(consent, call.now)))
    }

    /// An empty answer may mean that consent is gone: the provider says 200 either way. The consent is looked up, and
    /// believed for a minute, before an empty answer counts.
    async fn believe_empty(&self, call: &Call, arrangement: &Arrangement) -> Result<(), Error> {
        match self.standings.known_or(&arrangement.id, self.look_up(call, arrangement)).await? {
            Standing::Active => Ok(()),
            Standing::Broken(status) => Err(Error::ReconnectNeeded(status)),
        }
    }

    async fn found(&self, call: &Call, end_user_id: &str, consent: wire::Consent) -> Result<FoundConnection, Error> {
        let standing = map::standing(&consent, call.now);
        let (name, logo) = match consent.institution_name.filter(|name| !name.is_empty()) {
            Some(name) => (name, consent.institution_logo),
            None => {
                let institution = self.api.institution(call, &consent.institution_id).await?;
                (institution.name, institution.logo)
            }
        };
        let grant = Grant { end_user_id: end_user_id.to_owned(), arrangement_id: Some(consent.arrangement_id.clone()) };
        Ok(FoundConnection {
            provider_connection_id: consent.arrangement_id,
            owner: Some(end_user_id.to_owned()),
            institution_id: consent.institution_id,
            institution_name: name,
            institution_logo: logo.filter(|logo| !logo.is_empty()),
            standing,
            grant: grant::write(&grant)?,
        })
    }

    /// Accounts do not say their currency (docs/providers/fiskil.md#accounts), balances do. Best effort: without it the
    /// currency is learned with the first balance that is read.
    async fn learn_currencies(&self, call: &Call, arrangement: &Arrangement, accounts: &mut [FoundAccount]) {
        let outcome = self
            .api
            .balances(call, &arrangement.end_user_id, |row| {
                if !arrangement.has(row.arrangement_id.as_ref()) {
                    return;
                }
                let account =
                    accounts.iter_mut().find(|account| account.provider_account_id == row.account_id.as_str());
                if let Some(account) = account {
                    let learned = row.currency.as_ref().and_then(|code| Currency::parse(code.as_str()));
                    account.currency = account.currency.or(learned);
                }
            })
            .await;
        if let Err(error) = outcome {
            tracing::warn!(provider = %NAME, error = %error, "currencies not learned");
        }
    }
}

impl Fiskil {
    async fn end_user_balances<'a>(
        &self,
        call: &Call,
        end_user_id: String,
        consents: Vec<Asked<'a>>,
    ) -> Vec<(Asked<'a>, Vec<Result<Balance, Error>>)> {
        let mut found: Vec<Vec<Option<Result<Balance, Error>>>> =
            consents.iter().map(|consent| vec![None; consent.accounts.len()]).collect();
        let walked = self
            .api
            .balances(call, &end_user_id, |row| {
                for (consent, found) in consents.iter().zip(&mut found) {
                    let ours = row.arrangement_id.as_ref().is_none_or(|id| id.as_str() == consent.id);
                    let is_of = |account: &Account| account.provider_account_id == row.account_id.as_str();
                    if let Some(at) = consent.accounts.iter().position(is_of).filter(|_| ours) {
                        found[at] = Some(map::balance(row));
                    }
                }
            })
            .await;
        let settled = consents.into_iter().zip(found).map(|(consent, found)| {
            let (walked, end_user_id) = (walked.clone(), end_user_id.clone());
            async move {
                let missing = match walked {
                    Err(error) => {
                        let failed = vec![Err(error); consent.accounts.len()];
                        return (consent, failed);
                    }
                    Ok(()) if found.iter().any(Option::is_none) => {
                        let arrangement = Arrangement { end_user_id, id: consent.id.clone() };
                        self.believe_empty(call, &arrangement).await.err()
                    }
                    Ok(()) => None,
                };
                let missing = missing.unwrap_or(Error::Rejected { status: 404 });
                let settle = |balance: Option<_>| balance.unwrap_or_else(|| Err(missing.clone()));
                (consent, found.into_iter().map(settle).collect())
            }
        });
        join_all(settled).await
    }
}

#[async_trait]
impl Provider for Fiskil {
    fn name(&self) -> ProviderName {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Banking(self)
    }

    async fn check(&self, call: &Call) -> Result<(), Error> {
        self.api.token(call).await.map(|_| ())
    }

    async fn discover(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundConnection>, Error> {
        let grant = Grant::read(grant)?;
        let consents = self.api.consents(call, &grant.end_user_id).await?;
        let wanted = |consent: &wire::Consent| {
            grant.arrangement_id.as_ref().is_none_or(|wanted| *wanted == consent.arrangement_id)
        };
        let mut found = Vec::new();
        for consent in consents.into_iter().filter(wanted) {
            found.push(self.found(call, &grant.end_user_id, consent).await?);
        }
        Ok(found)
    }

    async fn standing(&self, call: &Call, grant: &SecretString) -> Result<Standing, Error> {
        let arrangement = Grant::arrangement(grant)?;
        let standing = self.look_up(call, &arrangement).await?;
        self.standings.learn(&arrangement.id, standing).await;
        Ok(standing)
    }

    async fn accounts(&self, call: &Call, grant: &SecretString) -> Result<Vec<FoundAccount>, Error> {
        let arrangement = Grant::arrangement(grant)?;
        let mut accounts: Vec<FoundAccount> = Vec::new();
        self.api
            .accounts(call, &arrangement.end_user_id, |row| {
                let ours = arrangement.has(row.arrangement_id.as_ref());
                let known = |account: &FoundAccount| account.provider_account_id == row.account_id.as_str();
                if ours && !accounts.iter().any(known) {
                    accounts.push(map::account(row));
                }
            })
            .await?;
        if accounts.is_empty() {
            self.believe_empty(call, &arrangement).await?;
        }
        if accounts.iter().any(|account| account.currency.is_none()) {
            self.learn_currencies(call, &arrangement, &mut accounts).await;
        }
        Ok(accounts)
    }

    /// An end user's list holds the balances of all their consents: one walk for all that are asked of them.
    async fn balances(&self, call: &Call, asked: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>> {
        let whose = |query: &BalancesQuery<'_>| {
            Grant::arrangement(query.grant).map(|arrangement| (arrangement.end_user_id, arrangement.id))
        };
        by_owner(asked, whose, |end_user_id, consents| self.end_user_balances(call, end_user_id, consents)).await
    }

    async fn withdraw(&self, call: &Call, grant: &SecretString) -> Result<(), Error> {
        let arrangement = Grant::arrangement(grant)?;
        self.standings.forget(&arrangement.id).await;
        self.api.delete_consent(call, &arrangement.id).await
    }

    fn linking(&self) -> Option<&dyn Linking> {
        Some(self)
    }

    fn notifying(&self) -> Option<&dyn Notifying> {
        self.webhooks.as_ref().map(|webhooks| webhooks as &dyn Notifying)
    }
}

#[async_trait]
impl Banking for Fiskil {
    fn page_rows_max(&self) -> u32 {
        api::PAGE_ROWS_MAX
    }

    async fn transactions(
        &self,
        call: &Call,
        grant: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut RowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let arrangement = Grant::arrangement(grant)?;
        let account_id = match query.accounts {
            [account] if query.one_account => Some(account.provider_account_id.as_str()),
            _ => None,
        };
        let instants = query.interval.instants(query.zone);
        let asked = TransactionsQuery {
            end_user_id: &arrangement.end_user_id,
            account_id,
            instants,
            cursor: page.cursor,
            rows: page.rows,
        };
        let (next, given) = self
            .api
            .transactions(call, &asked, |body| {
                let page: wire::TransactionsPage<'_> = parse_json(body)?;
                let next = self.api.next(page.links)?;
                if next.is_some() && next.as_ref() == asked.cursor {
                    return Err(Error::Malformed("a page names itself as the next"));
                }
                let ours = posted(page.transactions, &arrangement.id, query)?;
                let given = ours.len();
                ours.into_iter().for_each(&mut *rows);
                Ok((next, given))
            })
            .await?;
        if given == 0 && next.is_none() {
            self.believe_empty(call, &arrangement).await?;
        }
        Ok(next)
    }
}

/// The posted rows of a page that are asked for, newest first. The provider's order is not documented beyond what was
/// seen (docs/providers/fiskil.md#transactions), so a page that is not in order is sorted. Rows of one instant stay as
/// they came; those of several accounts go by account id first.
fn posted<'a>(
    page: Vec<wire::Transaction<'a>>,
    arrangement_id: &str,
    query: &TransactionQuery<'a>,
) -> Result<Vec<Transaction<'a>>, Error> {
    if page.len() > api::PAGE_ROWS_MAX as usize {
        return Err(Error::Malformed("more rows than a page has"));
    }
    let mut ours: Vec<Transaction<'a>> = Vec::with_capacity(page.len());
    for row in page {
        match map::transaction(row, arrangement_id, query.accounts)? {
            Ok(row) => ours.push(row),
            Err(skipped) => count_skipped(skipped, query.one_account),
        }
    }
    newest_first(&mut ours);
    Ok(ours)
}

fn count_skipped(skipped: Skipped, one_account: bool) {
    static WARNED: LazyLock<std::sync::Once> = LazyLock::new(std::sync::Once::new);
    let reason = match skipped {
        Skipped::NoTime => "no_time",
        Skipped::Pending => "pending",
        Skipped::OtherAccount if one_account => {
            // Whether the filter takes the bank's id is not proven (docs/providers/fiskil.md#transactions): if it did
            // not, this would show it.
            WARNED.call_once(
                || tracing::warn!(provider = %NAME, "the account filter let another account's rows through"),
            );
            "other_account"
        }
        // Another consent of the same end user: not worth counting.
        Skipped::OtherAccount => return,
    };
    count_dropped(NAME, reason);
}

/// Reads a page of transactions and gives its rows, newest first: for benchmarks.
///
/// # Errors
/// [`Error::Malformed`].
#[doc(hidden)]
pub fn read_transactions_page(
    body: &[u8],
    arrangement_id: &str,
    query: &TransactionQuery<'_>,
    rows: &mut RowSink<'_>,
) -> Result<(), Error> {
    let page: wire::TransactionsPage<'_> = parse_json(body)?;
    posted(page.transactions, arrangement_id, query)?.into_iter().for_each(rows);
    Ok(())
}

/// Reads any bytes as a page of transactions and checks what must hold of every page: for the fuzz target.
///
/// # Panics
/// When a promise of the adapter does not hold.
#[doc(hidden)]
pub fn fuzz_transactions_page(body: &[u8], account: Account) {
    let interval = bellbird_domain::Interval::resolve(None, None, jiff::Timestamp::UNIX_EPOCH);
    let accounts = [account];
    let zone = jiff::tz::TimeZone::UTC;
    let query = TransactionQuery { accounts: &accounts, one_account: false, interval: &interval, zone: &zone };
    let Ok(page) = parse_json::<wire::TransactionsPage<'_>>(body) else { return };
    let rows = page.transactions.len();
    let Ok(ours) = posted(page.transactions, "arrangement", &query) else { return };
    assert_promises(&ours, rows);
    for row in &ours {
        let _ = row.local_day(&zone);
    }
}

/// Reads any bytes as an event whose signature is good: for the fuzz target.
#[doc(hidden)]
pub fn fuzz_event(body: &[u8]) {
    let _ = webhook::notification(body);
}

#[cfg(test)]
mod tests;
