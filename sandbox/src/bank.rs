//! The sandbox as a value: what a test or a demo does to a provider beside its protocol. The routes
//! below `/__control` are the same over HTTP.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::consent::{ConsentState, Credentials};
use crate::consent_page::ConsentProvider;
use crate::faults::Fault;
use crate::members::Members;
use crate::provider::{Controls, Shared};
use crate::refused::Refused;
use crate::webhooks::{self, WebhookSettings, WebhookSource};

/// A simulated provider. Ids and objects are those of its own protocol. Every change is at once
/// visible to calls, and reported by webhooks.
#[derive(Clone)]
pub struct Bank(pub(crate) Arc<dyn AnyProvider>);

impl Bank {
    /// Responds to the next call with this status.
    pub fn fail_next(&self, status: u16) {
        self.add_fault(Fault::status(status).times(1));
    }

    /// Adds a fault after those that are set.
    pub fn add_fault(&self, fault: Fault) {
        self.0.shared().faults.add(fault);
    }

    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.0.shared().faults.list()
    }

    pub fn clear_faults(&self) {
        self.0.shared().faults.clear();
    }

    /// Clears the faults, and ends the delays of calls that wait.
    pub fn release_calls(&self) {
        self.0.shared().faults.release();
    }

    /// The calls since the last [`Bank::reset_calls`], by route.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let mut calls = BTreeMap::new();
        for call in self.0.shared().calls.list() {
            *calls.entry(call.path).or_default() += call.count;
        }
        calls
    }

    /// The calls since the last [`Bank::reset_calls`], to all routes.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        self.calls().values().sum()
    }

    /// The calls with a method since the last [`Bank::reset_calls`].
    #[must_use]
    pub fn calls_with(&self, method: &str) -> u64 {
        let calls = self.0.shared().calls.list().into_iter();
        calls
            .filter(|call| call.method == method)
            .map(|call| call.count)
            .sum()
    }

    pub fn reset_calls(&self) {
        self.0.shared().calls.clear();
    }

    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.shared().clock.now()
    }

    /// Jumps to a time and runs on from there.
    pub fn set_clock(&self, to: Timestamp) {
        self.change(|bank| bank.shared().clock.set(to));
    }

    pub fn advance_clock(&self, by: SignedDuration) {
        self.change(|bank| bank.shared().clock.advance(by));
    }

    /// Leaves the rows out of every `every`th page of rows; 0 stops it.
    pub fn empty_pages(&self, every: u64) {
        self.0.shared().empty_pages.set(every);
    }

    /// Lists leave out these accounts and no others.
    pub fn unlist(&self, accounts: impl IntoIterator<Item = String>) {
        *self.0.shared().unlisted.lock() = accounts.into_iter().collect();
    }

    /// The credentials of every connection, also of those that are not ready-made.
    #[must_use]
    pub fn all_credentials(&self) -> Vec<Credentials> {
        self.credentials(true)
    }

    /// The ready-made credentials, or with `all` those of every connection.
    pub(crate) fn credentials(&self, all: bool) -> Vec<Credentials> {
        let found = self.0.credentials(all).into_iter();
        found.map(|(credentials, _)| credentials).collect()
    }

    pub fn set_consent(&self, id: &str, state: ConsentState) -> Result<(), Refused> {
        self.set_consent_until(id, state, None)
    }

    /// As [`Bank::set_consent`], with the time when a consent of Fiskil ends by itself.
    pub fn set_consent_until(
        &self,
        id: &str,
        state: ConsentState,
        expires_at: Option<Timestamp>,
    ) -> Result<(), Refused> {
        self.change(|bank| bank.set_consent(id, state, expires_at))
    }

    /// Whether a user's credentials are valid: Akahu's user token, or SnapTrade's user.
    pub fn set_user(&self, id: &str, valid: bool) -> Result<(), Refused> {
        self.change(|bank| bank.set_user(id, valid))
    }

    /// Sets some of the provider's options, and returns all of them.
    pub fn set_options(&self, options: &impl Serialize) -> Result<Value, Refused> {
        let options = fields(options);
        self.change(|bank| bank.set_options(options))
    }

    /// Adds an account with defaults for the fields that are left out, and returns it.
    pub fn add_account(&self, account: &impl Serialize) -> Result<Value, Refused> {
        self.merge(account, |bank, account| bank.add_account(account))
    }

    /// Merges fields into an account; `null` removes one.
    pub fn change_account(&self, id: &str, given: &impl Serialize) -> Result<Value, Refused> {
        self.merge(given, |bank, given| bank.change_account(id, given))
    }

    /// Sets the balance of an account: Fiskil's fields that change, or all of Akahu's balance or
    /// SnapTrade's balances.
    pub fn set_balance(&self, account: &str, balance: &impl Serialize) -> Result<(), Refused> {
        let balance = to_raw_value(balance).expect("plain values have a JSON text");
        self.change(|bank| bank.set_balance(account, balance))
            .map(drop)
    }

    /// Adds a row with defaults for the fields that are left out, and returns it.
    pub fn add_row(&self, row: &impl Serialize) -> Result<Value, Refused> {
        self.merge(row, |bank, row| bank.add_row(row))
    }

    /// Merges fields into a row; `null` removes one.
    pub fn change_row(&self, id: &str, given: &impl Serialize) -> Result<Value, Refused> {
        self.merge(given, |bank, given| bank.change_row(id, given))
    }

    pub fn remove_row(&self, id: &str) -> Result<(), Refused> {
        self.change(|bank| bank.remove_row(id))
    }

    /// Adds a position to an account, with defaults for the fields that are left out.
    pub fn add_position(&self, position: &impl Serialize) -> Result<Value, Refused> {
        self.merge(position, |bank, position| bank.add_position(position))
    }

    /// Replaces all rows of an account with `rows` drawn ones, some of which may share an instant.
    pub fn fill(&self, account: &str, rows: u32) -> Result<(), Refused> {
        self.change(|bank| bank.fill(account, rows))
    }

    /// Sets where and how webhooks are sent.
    pub fn set_webhooks(&self, settings: WebhookSettings) -> Result<(), Refused> {
        Arc::clone(&self.0).set_webhooks(settings)
    }

    /// The deliveries of webhooks, oldest first, as `GET /__control/webhooks` returns them.
    #[must_use]
    pub fn deliveries(&self) -> Vec<Value> {
        self.0.shared().webhooks.views()
    }

    pub fn forget_deliveries(&self) {
        self.0.shared().webhooks.forget();
    }

    /// Sends the bytes of the last attempt of a delivery again, and returns the id of the new one.
    pub fn resend(&self, delivery: u64) -> Result<u64, Refused> {
        self.0.shared().webhooks.resend(delivery, self.now())
    }

    /// Sends any event, known or not, with these fields, and returns the id of its delivery.
    pub fn send_event(&self, name: &str, given: &impl Serialize) -> Result<u64, Refused> {
        self.0.send_event(name, fields(given))
    }

    fn merge(
        &self,
        given: &impl Serialize,
        change: impl FnOnce(&dyn AnyProvider, Members) -> Result<Members, Refused>,
    ) -> Result<Value, Refused> {
        let changed = self.change(|bank| change(bank, fields(given)));
        changed.map(Members::into_value)
    }

    fn change<T>(&self, change: impl FnOnce(&dyn AnyProvider) -> T) -> T {
        let changed = change(&*self.0);
        self.0.announce();
        changed
    }

    /// Saves the state, and warns if that fails.
    pub(crate) fn save(&self) {
        if self.0.save().is_err() {
            tracing::warn!("could not write the state of a simulated provider");
        }
    }
}

fn fields(given: &impl Serialize) -> Members {
    let json = serde_json::to_vec(given).expect("plain values have a JSON text");
    Members::parse(&json).expect("a change is an object")
}

/// [`Provider`](crate::provider::Provider) without its types.
pub(crate) trait AnyProvider: Controls {
    fn shared(&self) -> &Shared;
    fn set_options(&self, given: Members) -> Result<Value, Refused>;
    fn add_row(&self, row: Members) -> Result<Members, Refused>;
    fn change_row(&self, id: &str, given: Members) -> Result<Members, Refused>;
    fn remove_row(&self, id: &str) -> Result<(), Refused>;
    fn set_webhooks(self: Arc<Self>, settings: WebhookSettings) -> Result<(), Refused>;
    fn send_event(&self, name: &str, given: Members) -> Result<u64, Refused>;
    /// Queues the webhooks that follow from changes.
    fn announce(&self);
    /// Writes the state into its file, if there is one.
    fn save(&self) -> io::Result<()>;
    /// Lets a state that is saved go on until now. Returns whether it has changed.
    fn repeat_rows(&self) -> bool;
}

impl<P: ConsentProvider + WebhookSource> AnyProvider for P {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn set_options(&self, given: Members) -> Result<Value, Refused> {
        let mut options = self.options.lock();
        let mut all = fields(&*options);
        all.merge_all(given);
        let changed = serde_json::from_str(&all.to_string()).map_err(|error| error.to_string())?;
        self.apply_options(&changed)?;
        *options = changed;
        Ok(fields(&*options).into_value())
    }

    fn add_row(&self, row: Members) -> Result<Members, Refused> {
        self.store.write().add_row(row, self.clock.now())
    }

    fn change_row(&self, id: &str, mut given: Members) -> Result<Members, Refused> {
        P::complete_change(&mut given, self.clock.now());
        self.store.write().change_row(id, given)
    }

    fn remove_row(&self, id: &str) -> Result<(), Refused> {
        self.store.write().remove_row(id)
    }

    fn set_webhooks(self: Arc<Self>, settings: WebhookSettings) -> Result<(), Refused> {
        webhooks::set(&self, settings)
    }

    fn send_event(&self, name: &str, given: Members) -> Result<u64, Refused> {
        self.webhooks.check_url()?;
        let now = self.clock.now();
        let event = self.build_event(name, given, now)?;
        self.webhooks
            .add(event, now)
            .ok_or_else(|| "the queue is full".into())
    }

    fn announce(&self) {
        webhooks::enqueue_changes(self);
    }

    fn save(&self) -> io::Result<()> {
        match &self.state_file {
            Some(file) => file.save(|| serde_json::to_vec(&*self.store.read())),
            None => Ok(()),
        }
    }

    fn repeat_rows(&self) -> bool {
        let now = self.clock.now();
        self.state_file.is_some() && self.store.write().repeat_rows(now)
    }
}
