//! Lets tests add, change and remove trades and positions.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::json;
use uuid::Uuid;

use super::entries::{Entry, trade_id};
use super::store::{Account, Store};
use crate::control::BadRequest;
use crate::members::Members;
use crate::world::securities::security;

pub(super) fn not_found(what: &str, id: &str) -> BadRequest {
    BadRequest(format!("there is no {what} {id:?}"))
}

/// Removes and returns the account id of a row. Current rows do not name their account; rows of the
/// retired lists have an object.
fn take_account(row: &mut Members) -> Result<String, BadRequest> {
    let object = row
        .get("account")
        .and_then(|value| Members::parse(value.get().as_bytes()).ok());
    // Remove all three names, whatever their values are.
    let named = ["account", "accountId", "account_id"].map(|name| row.take_text(name));
    let id = named
        .into_iter()
        .flatten()
        .next()
        .or_else(|| object?.text("id"));
    id.ok_or_else(|| "\"account\" is needed: the id of an account".into())
}

impl Store {
    /// An account of any user.
    pub(super) fn any_account(&mut self, id: &str) -> Result<&mut Account, BadRequest> {
        self.accounts
            .iter_mut()
            .find(|account| account.id == id)
            .ok_or_else(|| not_found("account", id))
    }

    /// Returns the index of the account and of the row within it.
    fn find_trade(&self, id: &str) -> Result<(usize, usize), BadRequest> {
        let mut accounts = self.accounts.iter().enumerate();
        let found = accounts.find_map(|(account_index, account)| {
            let index = account
                .entries
                .iter()
                .position(|entry| entry.has_id(id, self.seed))?;
            Some((account_index, index))
        });
        found.ok_or_else(|| not_found("trade", id))
    }

    /// Adds a row and fills in the members that the test left out.
    pub(super) fn add_trade(
        &mut self,
        mut row: Members,
        now: Timestamp,
    ) -> Result<Members, BadRequest> {
        let account_id = take_account(&mut row)?;
        if row
            .text("id")
            .is_some_and(|id| self.find_trade(&id).is_ok())
        {
            return Err("there is a trade with this id already: PATCH it".into());
        }
        let (seed, security) = (self.seed, security("EXRB"));
        let symbol = Members::parse(self.instruments.get(security).symbol.as_bytes());
        let (symbol, dollars) = (
            symbol.unwrap_or_default(),
            self.instruments.any_currency("USD"),
        );
        let account = self.any_account(&account_id)?;
        let number = account.take_number();
        // Activities are never intraday (docs/providers/snaptrade.md#activities).
        let yesterday = TimeZone::UTC
            .to_datetime(now)
            .date()
            .saturating_sub(1.day());
        row.set_default("id", &trade_id(seed, number));
        if row.get("option_symbol").is_none() {
            row.set_default("symbol", &symbol);
        }
        for name in [
            "symbol",
            "option_symbol",
            "currency_universal_symbol",
            "fx_rate",
            "external_reference_id",
        ] {
            row.set_default(name, &());
        }
        for (name, value) in [("price", 1), ("units", 1), ("amount", -1), ("fee", 0)] {
            row.set_default(name, &value);
        }
        row.set_default("currency", &dollars);
        row.set_default("type", &"BUY");
        row.set_default("option_type", &"");
        row.set_default("description", &"ADDED TRADE");
        row.set_default("trade_date", &format!("{yesterday}T20:00:00Z"));
        row.set_default("settlement_date", &format!("{yesterday}T00:00:00Z"));
        row.set_default("institution", &account.institution);
        account.insert(Entry::given(row.clone(), number));
        Ok(row)
    }

    /// Merges members into a row and moves it to its new position.
    pub(super) fn change_trade(&mut self, id: &str, given: Members) -> Result<Members, BadRequest> {
        let (account, index) = self.find_trade(id)?;
        let entry = self.accounts[account].entries.remove(index);
        let mut row = entry.members(self.names(&self.accounts[account]));
        row.merge(given);
        self.accounts[account].insert(Entry::given(row.clone(), entry.number()));
        Ok(row)
    }

    pub(super) fn remove_trade(&mut self, id: &str) -> Result<(), BadRequest> {
        let (account, index) = self.find_trade(id)?;
        self.accounts[account].entries.remove(index);
        self.accounts[account].row_changes += 1;
        Ok(())
    }

    /// Adds a position and fills in the members that the test left out.
    pub(super) fn add_position(&mut self, mut position: Members) -> Result<Members, BadRequest> {
        let account_id = take_account(&mut position)?;
        let account = self.any_account(&account_id)?;
        position.set_default(
            "instrument",
            &json!({
                "kind": "stock", "id": Uuid::new_v4(), "symbol": "ADDED", "raw_symbol": "ADDED",
                "description": "Added Example Inc.", "currency": "USD", "exchange": "XNAS", "figi_instrument": null,
            }),
        );
        for name in ["units", "price", "cost_basis"] {
            position.set_default(name, &"1");
        }
        position.set_default("currency", &"USD");
        account.add_position(position.clone());
        Ok(position)
    }

    /// Returns the account that holds an instrument and the index there. An instrument that an
    /// account holds twice gives the first index.
    fn find_position(
        &mut self,
        instrument_id: &str,
        account: Option<&str>,
    ) -> Result<(&mut Account, usize), BadRequest> {
        let holds = |held: &Account| {
            let index = held
                .positions
                .iter()
                .position(|position| position.instrument_id == instrument_id)?;
            account.is_none_or(|id| held.id == id).then_some(index)
        };
        if self.accounts.iter().filter_map(holds).count() > 1 {
            return Err("several accounts hold this instrument: add ?account=<id>".into());
        }
        let mut accounts = self.accounts.iter_mut();
        let found = accounts.find_map(|account| holds(account).map(|index| (account, index)));
        found.ok_or_else(|| not_found("position of instrument", instrument_id))
    }

    /// Merges members into a position, which keeps its index.
    pub(super) fn change_position(
        &mut self,
        instrument_id: &str,
        account: Option<&str>,
        given: Members,
    ) -> Result<Members, BadRequest> {
        let (account, index) = self.find_position(instrument_id, account)?;
        let mut members = account.positions[index].members.clone();
        members.merge(given);
        account.add_position(members.clone());
        account.positions.swap_remove(index);
        Ok(members)
    }

    pub(super) fn remove_position(
        &mut self,
        instrument_id: &str,
        account: Option<&str>,
    ) -> Result<(), BadRequest> {
        let (account, index) = self.find_position(instrument_id, account)?;
        account.positions.remove(index);
        account.holding_changes += 1;
        Ok(())
    }
}
