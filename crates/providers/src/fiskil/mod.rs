//! The adapter for Fiskil: Australian banks through the Consumer Data Right.
//! docs/providers/fiskil.md has the provider's quirks with their sources, and what the adapter does
//! about each.

mod api;
mod link;
mod map;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod webhook;
mod wire;

use std::sync::{Arc, Once};

use async_trait::async_trait;
use bellbird_domain::{Account, Balance, ConnectionStatus, ProviderName, Transaction};
use futures_util::future::join_all;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::balances::{BalanceRequest, by_provider_user};
use crate::consent_status_cache::ConsentStatusCache;
use crate::http::{Client, ClientSettings, parse_json};
use crate::rows::{Skipped, matching, parse_each};
use crate::settings::{Declaration, Opened, Setting, Values};
use crate::text::currency;
use crate::{
    BalancesQuery, Banking, CallContext, Consent, ConsentStatus, Cursor, Error, FoundAccount,
    FoundConnection, Kind, Linking, PageRequest, Provider, TransactionQuery, TransactionSink,
    UnreadableRow, WebhookVerifier, credentials,
};
use api::Api;
use webhook::Webhooks;

pub const NAME: ProviderName = ProviderName::new("fiskil");

pub const DECLARATION: Declaration = Declaration {
    name: NAME,
    title: "Fiskil",
    reaches: "Australian banks",
    consents: "at your bank",
    credentials_at: "in the Fiskil console",
    untested: None,
    words: &[
        ("fiskil_id", ""),
        ("status", "POSTED"),
        (
            "product_category",
            "BUSINESS_LOANS BUY_NOW_PAY_LATER CRED_AND_CHRG_CARDS LEASES MARGIN_LOANS OVERDRAFTS PERS_LOANS \
             RESIDENTIAL_MORTGAGES TERM_DEPOSITS TRADE_FINANCE TRANS_AND_SAVINGS_ACCOUNTS TRAVEL_CARDS",
        ),
    ],
    settings: &[
        Setting::url("base_url", "https://api.fiskil.com"),
        Setting::text("client_id", "Client ID"),
        Setting::secret("client_secret", "Client secret"),
        Setting::secret("webhook_secret", "Signing secret of webhooks"),
    ],
    needs: &["client_id", "client_secret"],
    open,
};

fn open(values: &Values, settings: ClientSettings<'_>) -> Opened {
    let client_secret = SecretString::from(values.required("client_secret")?);
    let client = Client::new(NAME, settings)?;
    let api = Api::new(
        client,
        values.url("base_url")?,
        values.required("client_id")?.to_owned(),
        client_secret,
    );
    let webhooks = values
        .get("webhook_secret")
        .map(Webhooks::new)
        .transpose()?;
    Ok(Arc::new(Fiskil {
        api,
        consent_statuses: ConsentStatusCache::default(),
        webhooks,
    }))
}

pub struct Fiskil {
    api: Api,
    consent_statuses: ConsentStatusCache,
    webhooks: Option<Webhooks>,
}

/// The credentials of one connection, or without an arrangement those of all connections of an end
/// user.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Credentials {
    end_user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    arrangement_id: Option<String>,
}

/// The credentials of one connection. An arrangement is Fiskil's word for a consent.
struct Arrangement {
    end_user_id: String,
    id: String,
}

impl Credentials {
    fn read(credentials: &SecretString) -> Result<Self, Error> {
        const FORM: &str =
            "{\"endUserId\": \"...\", \"arrangementId\": \"...\"}; arrangementId is optional";
        credentials::read(credentials, NAME, FORM)
    }

    fn arrangement(credentials: &SecretString) -> Result<Arrangement, Error> {
        let credentials = Self::read(credentials)?;
        let id = credentials::stored_id(credentials.arrangement_id, "arrangementId")?;
        Ok(Arrangement {
            end_user_id: credentials.end_user_id,
            id,
        })
    }
}

impl Fiskil {
    async fn fetch_consent(
        &self,
        context: &CallContext,
        arrangement: &Arrangement,
    ) -> Result<Consent, Error> {
        let gone = ConsentStatus::Broken(ConnectionStatus::Revoked);
        let consents = match self.api.consents(context, &arrangement.end_user_id).await {
            // The end user is gone, and so are the consents.
            Err(Error::ReconnectNeeded(_)) => return Ok(gone.into()),
            consents => consents?,
        };
        let consent = consents
            .iter()
            .find(|consent| consent.arrangement_id == arrangement.id);
        Ok(consent.map_or(gone.into(), |consent| map::consent(consent, context.now)))
    }

    /// Checks the consent after an empty response. The provider returns 200 with an empty list if
    /// the consent is gone (docs/providers/fiskil.md#end-users). The status is cached for a minute.
    async fn check_consent_is_active(
        &self,
        context: &CallContext,
        arrangement: &Arrangement,
    ) -> Result<(), Error> {
        let status = async { Ok(self.fetch_consent(context, arrangement).await?.status) };
        match self
            .consent_statuses
            .get_or_fetch(&arrangement.id, context, status)
            .await?
        {
            ConsentStatus::Active => Ok(()),
            ConsentStatus::Broken(status) => Err(Error::ReconnectNeeded(status)),
        }
    }

    async fn found_connection(
        &self,
        context: &CallContext,
        end_user_id: &str,
        consent: wire::Consent,
    ) -> Result<FoundConnection, Error> {
        let Consent {
            status: consent_status,
            expires_at: consent_expires_at,
        } = map::consent(&consent, context.now);
        let (name, logo) = match consent.institution_name.filter(|name| !name.is_empty()) {
            Some(name) => (name, consent.institution_logo),
            None => {
                let institution = self
                    .api
                    .institution(context, &consent.institution_id)
                    .await?;
                (institution.name, institution.logo)
            }
        };
        let credentials = Credentials {
            end_user_id: end_user_id.to_owned(),
            arrangement_id: Some(consent.arrangement_id.clone()),
        };
        Ok(FoundConnection {
            provider_connection_id: consent.arrangement_id,
            provider_user_id: Some(end_user_id.to_owned()),
            institution_id: consent.institution_id,
            institution_name: name,
            institution_logo: logo.filter(|logo| !logo.is_empty()),
            consent_status,
            consent_expires_at,
            credentials: credentials::write(&credentials)?,
        })
    }

    /// Sets the currencies of accounts from their balances, because accounts have none
    /// (docs/providers/fiskil.md#accounts). Best effort: after a failure the first balance read
    /// sets the currency.
    async fn set_currencies(
        &self,
        context: &CallContext,
        arrangement: &Arrangement,
        accounts: &mut [FoundAccount],
    ) {
        let outcome = self
            .api
            .balances(context, &arrangement.end_user_id, |row| {
                if !map::is_of_consent(row.arrangement_id.as_ref(), &arrangement.id) {
                    return;
                }
                let account = accounts
                    .iter_mut()
                    .find(|account| account.provider_account_id == row.account_id.as_str());
                if let Some(account) = account {
                    account.currency = account.currency.or(currency(row.currency.as_ref()));
                }
            })
            .await;
        if let Err(error) = outcome {
            tracing::warn!(provider = %NAME, error = %error, "could not read account currencies");
        }
    }

    async fn end_user_balances(
        &self,
        context: &CallContext,
        end_user_id: String,
        consents: Vec<BalanceRequest<'_>>,
    ) -> Result<Vec<Vec<Result<Balance, Error>>>, Error> {
        let mut found: Vec<Vec<Option<Result<Balance, Error>>>> = consents
            .iter()
            .map(|consent| vec![None; consent.accounts.len()])
            .collect();
        self.api
            .balances(context, &end_user_id, |row| {
                for (consent, found) in consents.iter().zip(&mut found) {
                    let is_own = map::is_of_consent(row.arrangement_id.as_ref(), &consent.id);
                    let is_of =
                        |account: &Account| account.provider_account_id == row.account_id.as_str();
                    if let Some(at) = consent.accounts.iter().position(is_of).filter(|_| is_own) {
                        found[at] = Some(map::balance(row));
                    }
                }
            })
            .await?;
        let outcomes = consents.into_iter().zip(found).map(|(consent, found)| {
            let arrangement = Arrangement {
                end_user_id: end_user_id.clone(),
                id: consent.id,
            };
            async move {
                let ended = if found.iter().any(Option::is_none) {
                    self.check_consent_is_active(context, &arrangement)
                        .await
                        .err()
                } else {
                    None
                };
                let missing = ended.unwrap_or(Error::Rejected { status: 404 });
                let or_missing =
                    |balance: Option<_>| balance.unwrap_or_else(|| Err(missing.clone()));
                found.into_iter().map(or_missing).collect::<Vec<_>>()
            }
        });
        Ok(join_all(outcomes).await)
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

    async fn check(&self, context: &CallContext) -> Result<(), Error> {
        self.api.token(context).await.map(|_| ())
    }

    async fn discover(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundConnection>, Error> {
        let credentials = Credentials::read(credentials)?;
        let consents = self.api.consents(context, &credentials.end_user_id).await?;
        let requested = |consent: &wire::Consent| {
            credentials
                .arrangement_id
                .as_ref()
                .is_none_or(|requested| *requested == consent.arrangement_id)
        };
        let mut found = Vec::new();
        for consent in consents.into_iter().filter(requested) {
            found.push(
                self.found_connection(context, &credentials.end_user_id, consent)
                    .await?,
            );
        }
        Ok(found)
    }

    async fn consent(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Consent, Error> {
        let arrangement = Credentials::arrangement(credentials)?;
        let consent = self.fetch_consent(context, &arrangement).await?;
        self.consent_statuses
            .insert(&arrangement.id, context, consent.status);
        Ok(consent)
    }

    async fn accounts(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error> {
        let arrangement = Credentials::arrangement(credentials)?;
        let mut accounts: Vec<FoundAccount> = Vec::new();
        self.api
            .accounts(context, &arrangement.end_user_id, |row| {
                let is_own = map::is_of_consent(row.arrangement_id.as_ref(), &arrangement.id);
                let known =
                    |account: &FoundAccount| account.provider_account_id == row.account_id.as_str();
                if is_own && !accounts.iter().any(known) {
                    accounts.push(map::account(row));
                }
            })
            .await?;
        if accounts.is_empty() {
            self.check_consent_is_active(context, &arrangement).await?;
        }
        if accounts.iter().any(|account| account.currency.is_none()) {
            self.set_currencies(context, &arrangement, &mut accounts)
                .await;
        }
        Ok(accounts)
    }

    /// Reads the list of each end user once, because it has the balances of all their consents.
    async fn balances(
        &self,
        context: &CallContext,
        queries: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        let provider_user_of = |query: &BalancesQuery<'_>| {
            Credentials::arrangement(query.credentials)
                .map(|arrangement| (arrangement.end_user_id, arrangement.id))
        };
        by_provider_user(queries, provider_user_of, |end_user_id, consents| {
            self.end_user_balances(context, end_user_id, consents)
        })
        .await
    }

    async fn withdraw(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<(), Error> {
        let arrangement = Credentials::arrangement(credentials)?;
        self.consent_statuses.evict(&arrangement.id);
        self.api.delete_consent(context, &arrangement.id).await
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.api.client)
    }

    fn linking(&self) -> Option<&dyn Linking> {
        Some(self)
    }

    fn webhook_verifier(&self) -> Option<&dyn WebhookVerifier> {
        self.webhooks
            .as_ref()
            .map(|webhooks| webhooks as &dyn WebhookVerifier)
    }
}

#[async_trait]
impl Banking for Fiskil {
    fn page_rows_max(&self) -> u32 {
        api::PAGE_ROWS_MAX
    }

    async fn transactions(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let arrangement = Credentials::arrangement(credentials)?;
        let (next, row_count) = self
            .api
            .transactions(context, &arrangement.end_user_id, query, page, |body| {
                let (sent, mut unreadable) =
                    parse_page(context, &arrangement.id, query.accounts, body)?;
                let next = self.api.next(sent.links)?;
                if next.is_some() && next.as_ref() == page.cursor {
                    return Err(Error::Malformed("the next page is the current page"));
                }
                let kept = posted(sent.transactions, &arrangement.id, query, &mut unreadable)?;
                let row_count = kept.len() + unreadable.len();
                context.unreadable.accept(&unreadable)?;
                kept.into_iter().for_each(&mut *rows);
                Ok((next, row_count))
            })
            .await?;
        if row_count == 0 && next.is_none() {
            // Behind other rows it ends the list early if the consent ended between the pages, so
            // an earlier answer does not count.
            if page.cursor.is_some() {
                self.consent_statuses.evict(&arrangement.id);
            }
            self.check_consent_is_active(context, &arrangement).await?;
        }
        Ok(next)
    }
}

/// Parses a page, row by row if it cannot be parsed whole and a page with unreadable rows is read.
fn parse_page<'a>(
    context: &CallContext,
    arrangement_id: &str,
    accounts: &[Account],
    body: &'a [u8],
) -> Result<
    (
        wire::TransactionsPage<'a, wire::Transaction<'a>>,
        Vec<UnreadableRow>,
    ),
    Error,
> {
    match parse_json(body) {
        Err(_) if context.unreadable.are_collected() => {
            let wire::TransactionsPage {
                transactions,
                links,
            } = parse_json(body)?;
            let (transactions, unreadable) = parse_each(NAME, transactions, |text| {
                map::malformed(text, arrangement_id, accounts)
            });
            Ok((
                wire::TransactionsPage {
                    transactions,
                    links,
                },
                unreadable,
            ))
        }
        page => Ok((page?, Vec::new())),
    }
}

/// Maps the posted rows of a page that match the query.
///
/// The provider's order is observed, not documented (docs/providers/fiskil.md#transactions). A page
/// in another order is sorted by instant, and rows of one instant keep their order.
fn posted<'a>(
    page: Vec<wire::Transaction<'a>>,
    arrangement_id: &str,
    query: &TransactionQuery<'a>,
    unreadable: &mut Vec<UnreadableRow>,
) -> Result<Vec<Transaction<'a>>, Error> {
    static WARNED: Once = Once::new();
    if page.len() > api::PAGE_ROWS_MAX as usize {
        return Err(Error::Malformed("too many rows in a page"));
    }
    Ok(matching(NAME, page, query, unreadable, |row| {
        let mapped = map::transaction(row, arrangement_id, query.accounts);
        if query.one_account && matches!(mapped, Err(Skipped::OtherAccount)) {
            // It is unknown whether the filter takes the bank's id
            // (docs/providers/fiskil.md#transactions). This warning shows if it does not.
            WARNED.call_once(
                || tracing::warn!(provider = %NAME, "account filter ignored by the provider"),
            );
        }
        mapped
    }))
}

#[cfg(test)]
mod tests;
