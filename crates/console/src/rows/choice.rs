//! Which account and which days a table is about, from the query of its page.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Query};
use bellbird_domain::{
    Account, AccountId, AccountType, Connection, ConnectionCategory, ConnectionId,
};
use bellbird_storage::StorageError;
use http::request::Parts;
use jiff::ToSpan as _;
use jiff::civil::Date;
use serde::Deserialize;

use super::WINDOW_ROWS;
use crate::pages::names::{institution_name, sanitized};
use crate::session::Session;
use crate::state::Console;

/// Of the text of a search. What is longer is cut off.
const SEARCH_CHARS_MAX: usize = 100;

/// The query of a page. What is wrong in it is the API's to say.
#[derive(Deserialize, Default)]
pub(crate) struct ChoiceQuery {
    #[serde(default)]
    account: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    offset: String,
    #[serde(default)]
    search: String,
}

impl<S: Send + Sync> FromRequestParts<S> for ChoiceQuery {
    type Rejection = Infallible;

    /// A query that is not a list of parameters chooses nothing.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Query::try_from_uri(&parts.uri)
            .map(|Query(query)| query)
            .unwrap_or_default())
    }
}

pub(crate) struct Choice {
    /// Accounts by institution.
    pub(crate) institutions: Vec<(String, Vec<AccountOption>)>,
    pub(super) from: String,
    pub(super) to: String,
    offset: u64,
    /// What the user looks for. Empty: every row is shown.
    pub(super) search: String,
    /// None: the user has no account of this category.
    chosen: Option<(ConnectionId, AccountId)>,
}

pub(crate) struct AccountOption {
    pub(crate) id: AccountId,
    pub(crate) name: String,
    pub(super) is_chosen: bool,
}

impl Choice {
    /// Among the user's accounts of one category. Days of banks that have an end only begin thirty
    /// days before it. Without an account that is theirs, the first one, at a
    /// broker the first that may have holdings.
    pub(crate) async fn load(
        console: &Console,
        session: &Session,
        category: ConnectionCategory,
        query: ChoiceQuery,
    ) -> Result<Self, StorageError> {
        let storage = console.storage();
        let connections = storage.connections().list(session.user()).await?;
        let (accounts, _) = storage.accounts().list(session.user(), u32::MAX, 0).await?;
        let shown: Vec<(&Connection, Vec<&Account>)> = connections
            .iter()
            .filter(|connection| connection.category == category)
            .map(|connection| {
                let own = accounts
                    .iter()
                    .filter(|account| account.connection_id == connection.id);
                (connection, own.collect())
            })
            .collect();
        let mut all = shown.iter().flat_map(|(_, accounts)| accounts.iter());
        let asked = query.account.parse::<AccountId>().ok();
        let may_have_holdings = |account: &&&Account| {
            category == ConnectionCategory::Brokerage
                && account.account_type == AccountType::Investment
        };
        let chosen = all
            .clone()
            .find(|account| Some(account.id) == asked)
            .or_else(|| all.clone().find(may_have_holdings))
            .or_else(|| all.next());
        let chosen = chosen.map(|account| (account.connection_id, account.id));
        let option = |account: &&Account| {
            let number = account
                .number
                .as_ref()
                .map(|number| format!(" {}", number.as_str()));
            AccountOption {
                id: account.id,
                name: sanitized(&account.name) + &number.unwrap_or_default(),
                is_chosen: chosen.is_some_and(|(_, id)| id == account.id),
            }
        };
        let institutions = shown
            .iter()
            .map(|(connection, accounts)| {
                let is_sandbox = console
                    .inner
                    .frame
                    .providers
                    .is_sandbox(&connection.provider);
                let mark = if is_sandbox { " (sandbox)" } else { "" };
                (
                    institution_name(connection) + mark,
                    accounts.iter().map(option).collect(),
                )
            })
            .collect();
        let offset = query.offset.parse().unwrap_or_default();
        let search = query.search.trim().chars().take(SEARCH_CHARS_MAX).collect();
        let from = match query.to.parse::<Date>() {
            Ok(to) if query.from.is_empty() && category == ConnectionCategory::Banking => {
                to.saturating_sub(30.days()).to_string()
            }
            _ => query.from,
        };
        Ok(Self {
            institutions,
            from,
            to: query.to,
            offset,
            search,
            chosen,
        })
    }

    /// Why no row can be on these days.
    pub(super) fn problem(&self) -> Option<String> {
        let (from, to) = (
            self.from.parse::<Date>().ok()?,
            self.to.parse::<Date>().ok()?,
        );
        (from > to).then(|| "The first day is after the last one. Change one of them.".to_owned())
    }

    /// The query of the API for the account, and for the days if it has some. None: there is no
    /// account.
    pub(super) fn of_account(&self, with_days: bool) -> Option<String> {
        let (connection, account) = self.chosen?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("connectionId", &connection.to_string())
            .append_pair("accountId", &account.to_string());
        for (name, day) in [("from", &self.from), ("to", &self.to)] {
            if with_days && !day.is_empty() {
                query.append_pair(name, day);
            }
        }
        Some(query.finish())
    }

    /// As [`Self::of_account`], for the window.
    pub(super) fn window(&self) -> Option<String> {
        self.window_of(WINDOW_ROWS, self.offset)
    }

    /// As [`Self::window`], for other rows.
    pub(super) fn window_of(&self, limit: u64, offset: u64) -> Option<String> {
        Some(format!(
            "{}&limit={limit}&offset={offset}",
            self.of_account(true)?
        ))
    }

    /// The query of this page at another offset.
    fn page_at(&self, offset: u64) -> String {
        let account = self
            .chosen
            .map(|(_, account)| account.to_string())
            .unwrap_or_default();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("account", &account)
            .append_pair("from", &self.from)
            .append_pair("to", &self.to);
        query.append_pair("offset", &offset.to_string()).finish()
    }

    pub(super) fn file_query(&self) -> String {
        self.page_at(0)
    }

    pub(super) fn newer(&self) -> Option<String> {
        (self.offset > 0).then(|| self.page_at(self.offset.saturating_sub(WINDOW_ROWS)))
    }

    pub(super) fn older(&self, has_more: bool) -> Option<String> {
        has_more.then(|| self.page_at(self.offset.saturating_add(WINDOW_ROWS)))
    }

    /// Such as `51 to 100 of 2000`. `total` is None if it is not known.
    pub(super) fn position(&self, rows: usize, total: Option<u64>) -> String {
        let of = total
            .map(|total| format!(" of {total}"))
            .unwrap_or_default();
        let first = self.offset.saturating_add(rows.min(1) as u64);
        format!("{first} to {}{of}", self.offset.saturating_add(rows as u64))
    }
}
