//! The adapter for Akahu: New Zealand banks. docs/providers/akahu.md has the provider's quirks with
//! their sources, and what the adapter does about each.

mod api;
mod categories;
mod keys;
mod link;
mod map;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod webhook;
mod wire;

use std::sync::Arc;

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, ProviderName, Transaction};
use hyper::header::HeaderValue;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::balances::{BalanceRequest, by_provider_user};
use crate::consent_status_cache::ConsentStatusCache;
use crate::http::{Client, ClientSettings};
use crate::rows::{matching, parse_each};
use crate::settings::{Declaration, Opened, Setting, Values};
use crate::text::Text;
use crate::{
    BalancesQuery, Banking, CallContext, Consent, ConsentStatus, Cursor, Error, FoundAccount,
    FoundConnection, Kind, Linking, PageRequest, Provider, TransactionQuery, TransactionSink,
    UnreadableRow, WebhookVerifier, credentials,
};
use api::Api;
use keys::Keys;

pub const NAME: ProviderName = ProviderName::new("akahu");

pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "Akahu",
    reaches: "New Zealand banks",
    consents: "on my.akahu.nz",
    credentials_at: "at my.akahu.nz/developers",
    untested: Some(
        "Without an App Secret, Bellbird cannot test the App ID Token. Whether it is right shows when somebody links.",
    ),
    words: &[
        ("status", "INACTIVE"),
        (
            "type",
            "CHECKING CREDITCARD FEE FOREIGN INTEREST INVESTMENT KIWISAVER LOAN SAVINGS TAX TERMDEPOSIT TRANSFER \
             WALLET",
        ),
        ("error", "expired_grant invalid_client invalid_grant"),
    ],
    settings: &[
        Setting::url("base_url", "https://api.akahu.io/v1"),
        Setting::url("oauth_url", "https://oauth.akahu.nz"),
        Setting::text("app_token", "App ID Token"),
        Setting::secret("app_secret", "App Secret, of a full app"),
    ],
    needs: &["app_token"],
    open,
};

fn open(values: &Values, settings: ClientSettings<'_>) -> Opened {
    let app_token = HeaderValue::from_str(values.required("app_token")?);
    let app_token = app_token.map_err(|_| "app_token must be plain text".to_owned())?;
    let client = Client::new(NAME, settings)?;
    let api = Api::new(
        client,
        values.url("base_url")?,
        app_token,
        values.secret("app_secret"),
    );
    Ok(Arc::new(Akahu {
        api,
        oauth_url: values.url("oauth_url")?,
        auckland: auckland()?,
        keys: Keys::default(),
        consent_statuses: ConsentStatusCache::default(),
    }))
}

fn auckland() -> Result<TimeZone, String> {
    TimeZone::get("Pacific/Auckland")
        .map_err(|error| format!("could not load the time zone Pacific/Auckland: {error}"))
}

pub struct Akahu {
    api: Api,
    oauth_url: Url,
    auckland: TimeZone,
    keys: Keys,
    consent_statuses: ConsentStatusCache,
}

/// The credentials of one connection, or without an authorisation those of all connections of a
/// user token.
///
/// A user token covers every institution login that the user shared with the app. Each login is an
/// authorisation, and Bellbird treats it as a connection (docs/providers/akahu.md#authorisations).
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Credentials {
    user_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authorisation: Option<String>,
}

/// The credentials of one connection.
struct Authorisation {
    user_token: String,
    id: String,
}

impl Credentials {
    fn read(credentials: &SecretString) -> Result<Self, Error> {
        const FORM: &str =
            "{\"userToken\": \"...\", \"authorisation\": \"...\"}; authorisation is optional";
        let credentials: Self = credentials::read(credentials, NAME, FORM)?;
        // A token that does not fit into a header would otherwise look like a network failure.
        if credentials
            .user_token
            .bytes()
            .all(|byte| byte.is_ascii_graphic())
        {
            Ok(credentials)
        } else {
            Err(Error::InvalidCredentials(
                "the userToken has invalid characters".to_owned(),
            ))
        }
    }

    fn authorisation(credentials: &SecretString) -> Result<Authorisation, Error> {
        let credentials = Self::read(credentials)?;
        let id = credentials::stored_id(credentials.authorisation, "authorisation")?;
        Ok(Authorisation {
            user_token: credentials.user_token,
            id,
        })
    }
}

impl Akahu {
    async fn fetch_consent_status(
        &self,
        context: &CallContext,
        authorisation: &Authorisation,
    ) -> Result<ConsentStatus, Error> {
        let read = |rows: &[wire::Account<'_>]| Ok(map::consent_status(rows, &authorisation.id));
        self.api
            .accounts(context, &authorisation.user_token, read)
            .await
    }

    /// Checks after an empty response that the authorisation still exists. It can end while the
    /// user token still works, and its accounts are then not listed any more. An inactive
    /// authorisation still exists and has data (docs/providers/akahu.md#status).
    async fn check_consent_exists(
        &self,
        context: &CallContext,
        authorisation: &Authorisation,
    ) -> Result<(), Error> {
        match self
            .consent_statuses
            .get_or_fetch(
                &authorisation.id,
                context,
                self.fetch_consent_status(context, authorisation),
            )
            .await?
        {
            ConsentStatus::Broken(status @ ConnectionStatus::Revoked) => {
                Err(Error::ReconnectNeeded(status))
            }
            _ => Ok(()),
        }
    }

    /// Reads the balances of several authorisations of one user token.
    async fn token_balances(
        &self,
        context: &CallContext,
        user_token: String,
        requests: Vec<BalanceRequest<'_>>,
    ) -> Result<Vec<Vec<Result<Balance, Error>>>, Error> {
        let read = |rows: &[wire::Account<'_>]| {
            Ok(requests
                .iter()
                .map(|request| find_balances(request, rows))
                .collect::<Vec<_>>())
        };
        self.api.accounts(context, &user_token, read).await
    }
}

/// The balances of one authorisation's accounts, from the list of its user token.
fn find_balances(
    request: &BalanceRequest<'_>,
    rows: &[wire::Account<'_>],
) -> Vec<Result<Balance, Error>> {
    let missing = || match map::consent_status(rows, &request.id) {
        ConsentStatus::Broken(status @ ConnectionStatus::Revoked) => Error::ReconnectNeeded(status),
        _ => Error::Rejected { status: 404 },
    };
    let find = |account: &Account| {
        let row = rows
            .iter()
            .find(|row| row.id.as_str() == account.provider_account_id);
        row.ok_or_else(missing).and_then(map::balance)
    };
    request.accounts.iter().map(find).collect()
}

#[async_trait]
impl Provider for Akahu {
    fn name(&self) -> ProviderName {
        NAME
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Banking(self)
    }

    async fn check(&self, context: &CallContext) -> Result<(), Error> {
        self.api.check(context).await
    }

    async fn discover(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundConnection>, Error> {
        let credentials = Credentials::read(credentials)?;
        self.api
            .accounts(context, &credentials.user_token, |rows| {
                found_connections(rows, &credentials)
            })
            .await
    }

    async fn consent(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Consent, Error> {
        let authorisation = Credentials::authorisation(credentials)?;
        let consent_status = match self.fetch_consent_status(context, &authorisation).await {
            Err(Error::ReconnectNeeded(status)) => ConsentStatus::Broken(status),
            outcome => outcome?,
        };
        self.consent_statuses
            .insert(&authorisation.id, context, consent_status);
        Ok(consent_status.into())
    }

    async fn accounts(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error> {
        let authorisation = Credentials::authorisation(credentials)?;
        let is_own = |row: &&wire::Account<'_>| map::authorisation(row) == Some(&authorisation.id);
        let read = |rows: &[wire::Account<'_>]| {
            Ok(rows
                .iter()
                .filter(is_own)
                .map(map::account)
                .collect::<Vec<_>>())
        };
        let accounts = self
            .api
            .accounts(context, &authorisation.user_token, read)
            .await?;
        if accounts.is_empty() {
            Err(Error::ReconnectNeeded(ConnectionStatus::Revoked))
        } else {
            Ok(accounts)
        }
    }

    /// Reads the list of each user token once, because it has the balances of all its
    /// authorisations.
    async fn balances(
        &self,
        context: &CallContext,
        queries: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        let provider_user_of = |query: &BalancesQuery<'_>| {
            Credentials::authorisation(query.credentials)
                .map(|authorisation| (authorisation.user_token, authorisation.id))
        };
        by_provider_user(queries, provider_user_of, |user_token, requests| {
            self.token_balances(context, user_token, requests)
        })
        .await
    }

    async fn withdraw(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<(), Error> {
        let authorisation = Credentials::authorisation(credentials)?;
        self.consent_statuses.evict(&authorisation.id);
        self.api
            .delete_authorisation(context, &authorisation.user_token, &authorisation.id)
            .await
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.api.client)
    }

    /// A personal app has no consent page (docs/providers/akahu.md#apps).
    fn linking(&self) -> Option<&dyn Linking> {
        self.api.is_full_app().then_some(self)
    }

    /// Only a full app has webhooks and can read their signing keys
    /// (docs/providers/akahu.md#webhooks).
    fn webhook_verifier(&self) -> Option<&dyn WebhookVerifier> {
        self.api.is_full_app().then_some(self)
    }
}

/// The connections that the credentials cover: one per authorisation in a list of accounts, in its
/// order.
fn found_connections(
    rows: &[wire::Account<'_>],
    credentials: &Credentials,
) -> Result<Vec<FoundConnection>, Error> {
    let mut found: Vec<FoundConnection> = Vec::new();
    for row in rows {
        let Some(id) = map::authorisation(row) else {
            continue;
        };
        let requested = credentials
            .authorisation
            .as_ref()
            .is_none_or(|requested| requested == id);
        if !requested || found.iter().any(|known| known.provider_connection_id == id) {
            continue;
        }
        let institution = row
            .connection
            .as_ref()
            .ok_or(Error::Malformed("an account has no institution"))?;
        let name = institution
            .name
            .as_ref()
            .map(Text::as_str)
            .filter(|name| !name.trim().is_empty());
        let logo = institution
            .logo
            .as_ref()
            .map(Text::as_str)
            .filter(|logo| !logo.is_empty());
        let own = Credentials {
            user_token: credentials.user_token.clone(),
            authorisation: Some(id.to_owned()),
        };
        found.push(FoundConnection {
            provider_connection_id: id.to_owned(),
            provider_user_id: None,
            institution_id: institution.id.as_str().to_owned(),
            institution_name: name.unwrap_or("Bank").to_owned(),
            institution_logo: logo.map(str::to_owned),
            consent_status: map::consent_status(rows, id),
            consent_expires_at: None,
            credentials: credentials::write(&own)?,
        });
    }
    Ok(found)
}

#[async_trait]
impl Banking for Akahu {
    fn page_rows_max(&self) -> u32 {
        api::PAGE_ROWS
    }

    /// Reads posted transactions. Pending ones have endpoints of their own, which the adapter never
    /// calls (docs/providers/akahu.md#pending-rows).
    async fn transactions(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let authorisation = Credentials::authorisation(credentials)?;
        // The list without an account has the rows of all connections of the user token.
        let account_id = match query.accounts {
            [account] => Some(account.provider_account_id.as_str()),
            _ => None,
        };
        let read = self
            .api
            .transactions(
                context,
                &authorisation.user_token,
                account_id,
                map::instants(query.dates, query.zone, &self.auckland),
                page.cursor,
                |body| {
                    let (sent, mut unreadable) = parse_page(context, query.accounts, body)?;
                    let next = api::next(sent.cursor, page.cursor)?;
                    let kept = posted(sent.items, query, &self.auckland, &mut unreadable);
                    let row_count = kept.len() + unreadable.len();
                    context.unreadable.accept(&unreadable)?;
                    kept.into_iter().for_each(&mut *rows);
                    Ok((next, row_count))
                },
            )
            .await?;
        let has_no_row = match &read {
            // The list of all accounts silently leaves out the rows of an authorisation that has
            // ended.
            Some((None, 0)) => account_id.is_none(),
            Some(_) => false,
            None => true,
        };
        if has_no_row {
            // Behind other rows it ends the list early if the authorisation ended between the
            // pages, so an earlier answer does not count.
            if page.cursor.is_some() {
                self.consent_statuses.evict(&authorisation.id);
            }
            self.check_consent_exists(context, &authorisation).await?;
        }
        match read {
            Some((next, _)) => Ok(next),
            // Without a requested account, as in the list of all: it has no row there. A list that
            // had rows does not end so.
            None if query.one_account || page.cursor.is_some() => {
                Err(Error::Rejected { status: 404 })
            }
            None => Ok(None),
        }
    }
}

/// Parses a page, row by row if it cannot be parsed whole and a page with unreadable rows is read.
fn parse_page<'a>(
    context: &CallContext,
    accounts: &[Account],
    body: &'a [u8],
) -> Result<(wire::List<wire::Transaction<'a>>, Vec<UnreadableRow>), Error> {
    match api::list(body) {
        Err(_) if context.unreadable.are_collected() => {
            let wire::List {
                success,
                items,
                cursor,
            } = api::list(body)?;
            let (items, unreadable) =
                parse_each(NAME, items, |text| map::malformed(text, accounts));
            Ok((
                wire::List {
                    success,
                    items,
                    cursor,
                },
                unreadable,
            ))
        }
        page => Ok((page?, Vec::new())),
    }
}

/// Maps the rows of a page that match the query. The provider's order is observed, not documented
/// (docs/providers/akahu.md#transactions), so a page in another order is sorted.
fn posted<'a>(
    page: Vec<wire::Transaction<'a>>,
    query: &TransactionQuery<'a>,
    auckland: &TimeZone,
    unreadable: &mut Vec<UnreadableRow>,
) -> Vec<Transaction<'a>> {
    matching(NAME, page, query, unreadable, |row| {
        map::transaction(row, query.accounts, auckland)
    })
}

#[cfg(test)]
mod tests;
