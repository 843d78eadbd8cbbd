//! Which accounts and days the page is about, from its query.

use std::borrow::Cow;

use bellbird_domain::{AccountId, Connection, ConnectionCategory, ConnectionId};
use bellbird_storage::StorageError;
use jiff::ToSpan as _;
use jiff::civil::Date;

use crate::pages::names::{institution_name, sanitized};
use crate::session::Session;
use crate::state::Console;

/// Of the text of a search. What is longer is cut off.
const SEARCH_CHARS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Period {
    /// As far back as each broker lists them.
    All,
    Days30,
    Months3,
    Months12,
}

impl Period {
    pub(super) const ALL: [Self; 4] = [Self::All, Self::Days30, Self::Months3, Self::Months12];

    fn key(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Days30 => "30-days",
            Self::Months3 => "3-months",
            Self::Months12 => "12-months",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::All => "All days",
            Self::Days30 => "Last 30 days",
            Self::Months3 => "Last 3 months",
            Self::Months12 => "Last 12 months",
        }
    }

    fn first(self, today: Date) -> Option<Date> {
        match self {
            Self::All => None,
            Self::Days30 => Some(today.saturating_sub(30.days())),
            Self::Months3 => Some(today.saturating_sub(3.months())),
            Self::Months12 => Some(today.saturating_sub(12.months())),
        }
    }
}

#[derive(Clone)]
pub(super) struct Choice {
    /// All brokers of the user.
    pub(super) brokers: Vec<Broker>,
    /// None: all accounts.
    account: Option<AccountId>,
    pub(super) period: Period,
    /// The first day of the trades.
    from: Option<Date>,
    /// What the user looks for. Empty: everything is shown.
    pub(super) search: String,
    /// How many trades of each chosen broker are on newer pages.
    pub(super) offsets: Vec<u64>,
}

#[derive(Clone)]
pub(super) struct Broker {
    pub(super) connection: Connection,
    pub(super) name: String,
    pub(super) is_sandbox: bool,
    pub(super) accounts: Vec<AccountOption>,
}

#[derive(Clone)]
pub(super) struct AccountOption {
    pub(super) id: AccountId,
    pub(super) name: String,
}

impl Choice {
    /// An account that is not the user's counts as absent, and so does all that cannot be read.
    pub(super) async fn load(
        console: &Console,
        session: &Session,
        query: Option<&str>,
    ) -> Result<Self, StorageError> {
        let storage = console.storage();
        let connections = storage.connections().list(session.user()).await?;
        let (accounts, _) = storage.accounts().list(session.user(), u32::MAX, 0).await?;
        let brokers = connections
            .into_iter()
            .filter(|connection| connection.category == ConnectionCategory::Brokerage)
            .map(|connection| {
                let own = accounts
                    .iter()
                    .filter(|account| account.connection_id == connection.id);
                let option = |account: &bellbird_domain::Account| {
                    let number = account.number.as_ref();
                    let number = number.map(|number| format!(" {}", number.as_str()));
                    AccountOption {
                        id: account.id,
                        name: sanitized(&account.name) + &number.unwrap_or_default(),
                    }
                };
                Broker {
                    name: institution_name(&connection),
                    is_sandbox: console
                        .inner
                        .frame
                        .providers
                        .is_sandbox(&connection.provider),
                    accounts: own.map(option).collect(),
                    connection,
                }
            });
        let today = session.now.to_zoned(session.caller.timezone.clone()).date();
        Ok(Self::of(brokers.collect(), query, today))
    }

    pub(super) fn of(brokers: Vec<Broker>, query: Option<&str>, today: Date) -> Self {
        let fields: Vec<(Cow<'_, str>, Cow<'_, str>)> =
            form_urlencoded::parse(query.unwrap_or_default().as_bytes()).collect();
        let field = |name| {
            let mut found = fields.iter().filter(|(key, _)| key == name);
            found.next().map_or("", |(_, value)| value.as_ref())
        };
        let asked = field("account").parse::<AccountId>().ok();
        let mut all = brokers.iter().flat_map(|broker| &broker.accounts);
        let account = all.find(|account| Some(account.id) == asked);
        let account = account.map(|account| account.id);
        let mut periods = Period::ALL.into_iter();
        let period = periods.find(|period| period.key() == field("period"));
        let period = period.unwrap_or(Period::All);
        let search = field("search").trim();
        let mut choice = Self {
            brokers,
            account,
            period,
            from: period.first(today),
            search: search.chars().take(SEARCH_CHARS_MAX).collect(),
            offsets: Vec::new(),
        };
        let offsets = field("offset").split('.').map(str::parse);
        let offsets: Option<Vec<u64>> = offsets.map(Result::ok).collect();
        let count = choice.chosen().count();
        choice.offsets = offsets
            .filter(|offsets| offsets.len() == count)
            .unwrap_or(vec![0; count]);
        choice
    }

    /// The brokers of the chosen accounts.
    pub(super) fn chosen(&self) -> impl Iterator<Item = &Broker> {
        let has_account = |broker: &&Broker| {
            let mut own = broker.accounts.iter();
            self.account
                .is_none_or(|id| own.any(|account| account.id == id))
        };
        self.brokers.iter().filter(has_account)
    }

    pub(super) fn is_chosen(&self, id: AccountId) -> bool {
        self.account == Some(id)
    }

    /// The name of the chosen account.
    pub(super) fn account_name(&self) -> Option<&str> {
        let mut all = self.brokers.iter().flat_map(|broker| &broker.accounts);
        let found = all.find(|account| self.is_chosen(account.id));
        found.map(|account| account.name.as_str())
    }

    /// The query of the API for what the broker lists in the chosen accounts.
    pub(super) fn of_broker(&self, id: ConnectionId) -> String {
        let account = self.account.map(|id| format!("&accountId={id}"));
        format!("connectionId={id}{}", account.unwrap_or_default())
    }

    /// As [`Self::of_broker`], for a window of its trades.
    pub(super) fn window(&self, id: ConnectionId, limit: u64, offset: u64) -> String {
        let from = self.from.map(|day| format!("&from={day}"));
        format!(
            "{}{}&limit={limit}&offset={offset}",
            self.of_broker(id),
            from.unwrap_or_default()
        )
    }

    /// The parameters of the API for the file of the trades.
    pub(super) fn file_query(&self) -> String {
        let account = self.account.map(|id| format!("&accountId={id}"));
        let from = self.from.map(|day| format!("&from={day}"));
        account.unwrap_or_default() + &from.unwrap_or_default()
    }

    /// The query of the page for another account, period, search or place in the trades.
    fn link(
        &self,
        account: Option<AccountId>,
        period: Period,
        search: &str,
        offsets: &[u64],
    ) -> String {
        let mut query = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        if let Some(id) = account {
            query.append_pair("account", &id.to_string());
        }
        if period != Period::All {
            query.append_pair("period", period.key());
        }
        if !search.is_empty() {
            query.append_pair("search", search);
        }
        if offsets.iter().any(|offset| *offset > 0) {
            let offsets: Vec<String> = offsets.iter().map(u64::to_string).collect();
            query.append_pair("offset", &offsets.join("."));
        }
        query.finish()
    }

    pub(super) fn with_account(&self, account: Option<AccountId>) -> String {
        self.link(account, self.period, &self.search, &[])
    }

    pub(super) fn with_period(&self, period: &Period) -> String {
        self.link(self.account, *period, &self.search, &[])
    }

    pub(super) fn with_search(&self, search: &str) -> String {
        self.link(self.account, self.period, search, &[])
    }

    pub(super) fn with_offsets(&self, offsets: &[u64]) -> String {
        self.link(self.account, self.period, &self.search, offsets)
    }

    /// This page, for trying again.
    pub(super) fn same(&self) -> String {
        self.with_offsets(&self.offsets)
    }

    /// The fields of the search's form that keep the rest.
    pub(super) fn kept_fields(&self) -> Vec<(&'static str, String)> {
        let account = self.account.map(|id| ("account", id.to_string()));
        let period = (self.period != Period::All).then(|| ("period", self.period.key().to_owned()));
        account.into_iter().chain(period).collect()
    }

    /// Whether a row has the text, in upper or lower case.
    pub(super) fn finds<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> bool {
        let wanted = self.search.to_lowercase();
        let mut texts = texts.into_iter();
        wanted.is_empty() || texts.any(|text| text.to_lowercase().contains(&wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_counts_as_absent() {
        let today = "2026-11-29".parse().unwrap();
        let choice = Choice::of(
            Vec::new(),
            Some("account=1&period=ever&offset=1.x&%00"),
            today,
        );
        assert_eq!((choice.account, choice.period), (None, Period::All));
        assert!(choice.offsets.is_empty() && choice.from.is_none());
        assert_eq!(choice.same(), "?");
        let choice = Choice::of(Vec::new(), Some("period=3-months&search=+A%26b+"), today);
        assert_eq!(choice.from, "2026-08-29".parse().ok());
        assert_eq!(choice.same(), "?period=3-months&search=A%26b");
        assert!(choice.finds(["x", "xa&BX"]) && !choice.finds(["a"]));
    }
}
