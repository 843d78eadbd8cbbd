//! What the portal offers, and what a consent changes in the store
//! (docs/providers/snaptrade.md#connection-portal).

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::instruments::number;
use super::login::Link;
use super::store::{Connection, Store};
use crate::consent_page::{Choice, OfferedAccount, Reason};
use crate::members::Members;
use crate::world::brokerage::{AccountTemplate, BROKERAGE, Broker, Investor, Login, test_broker};
use crate::world::names::{first_row, first_word, full_name, stream};
use crate::world::rng::DIGITS;
use crate::world::trades::draw;

fn investor(name: &str) -> Option<&'static Investor> {
    let mut all = BROKERAGE.investors.iter();
    all.find(|investor| investor.email == name)
}

/// The display name of the user with this login name, known or new.
pub(super) fn display_name(seed: u64, name: &str) -> String {
    investor(name).map_or_else(
        || full_name(seed, name),
        |investor| investor.name.to_owned(),
    )
}

/// The login that the world defines for a user at a broker.
fn known_login(broker: &Broker, name: &str) -> Option<&'static Login> {
    let mut logins = investor(name)?.logins.iter();
    logins.find(|login| login.broker == broker.slug)
}

impl Store {
    /// Refuses a login if the connection that the link repairs has another one, or is deleted.
    pub(super) fn check_login(
        &self,
        link: &Link,
        name: &str,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let Some(id) = &link.reconnect else {
            return Ok(());
        };
        let connection = self.connection(link.user, id, now);
        let connection = connection.map_err(|_| Reason::Deleted)?;
        match &connection.login {
            Some(login) if login != name => Err(Reason::WrongLogin),
            _ => Ok(()),
        }
    }

    /// The existing connection of a login: the one to repair, or one at the same broker.
    fn linked_connection(
        &self,
        link: &Link,
        broker: &Broker,
        name: &str,
        now: Timestamp,
    ) -> Option<&Connection> {
        if let Some(id) = &link.reconnect {
            return self.connection(link.user, id, now).ok();
        }
        let mut all = self.connections_of(link.user, now);
        all.find(|known| known.broker.slug == broker.slug && known.login.as_deref() == Some(name))
    }

    /// The accounts of a login: the stored ones, else those of the world, else the same set for
    /// every user name.
    pub(super) fn offers(
        &self,
        link: &Link,
        broker: &'static Broker,
        name: &str,
        now: Timestamp,
    ) -> Vec<OfferedAccount> {
        if let Some(connection) = self.linked_connection(link, broker, name, now) {
            let own = self
                .accounts
                .iter()
                .filter(|account| account.connection_id == connection.id);
            return own
                .map(|account| offer(account.id.clone(), &account.members))
                .collect();
        }
        // Preview the accounts in a temporary store.
        let mut preview = Self::without_users(self.seed, self.today);
        preview.add_connection("", broker, name, 0, now);
        let accounts = preview.accounts.iter().enumerate();
        accounts
            .map(|(index, account)| offer(index.to_string(), &account.members))
            .collect()
    }

    /// Shares the chosen accounts of a login and no others. Returns the connection's id.
    pub(super) fn share(
        &mut self,
        link: &Link,
        broker: &'static Broker,
        choice: &Choice,
        now: Timestamp,
    ) -> String {
        let name = &choice.name;
        let known = self
            .linked_connection(link, broker, name, now)
            .map(|connection| connection.id.clone());
        let id = known.unwrap_or_else(|| {
            let id = Uuid::new_v4().to_string();
            self.add_connection(&id, broker, name, link.user, now);
            id
        });
        if let Some(connection) = self.any_connection_mut(&id) {
            connection.reactivate();
            connection.login = Some(name.clone());
        }
        for (index, account) in self.accounts_at(&id).enumerate() {
            account.shared = choice.accounts.iter().any(|offer| {
                offer.account_key == account.id || offer.account_key == index.to_string()
            });
        }
        id
    }

    /// Links for tests that skip the pages: reactivates the user's connection at that broker, or
    /// adds a new one.
    pub(super) fn link_without_pages(&mut self, link: &Link, now: Timestamp) -> String {
        let broker = link.broker.unwrap_or_else(test_broker);
        let is_known = |held: &&mut Connection| {
            held.user == link.user
                && held.exists(now)
                && match &link.reconnect {
                    Some(id) => held.id == *id,
                    None => held.broker.slug == broker.slug,
                }
        };
        if let Some(connection) = self.connections.iter_mut().find(is_known) {
            connection.reactivate();
            return connection.id.clone();
        }
        let id = Uuid::new_v4().to_string();
        self.add_connection(&id, broker, "", link.user, now);
        if let Some(connection) = self.connections.last_mut() {
            connection.login = None;
        }
        id
    }

    /// Adds a connection with all accounts of a login.
    fn add_connection(
        &mut self,
        id: &str,
        broker: &'static Broker,
        name: &str,
        user: u64,
        now: Timestamp,
    ) {
        let title = format!("Connection-{}", self.connections_of(user, now).count() + 1);
        let mut connection = Connection::new(id.to_owned(), user, broker, title, now);
        connection.login = Some(name.to_owned());
        self.connections.push(connection);
        let new_id = |_: &AccountTemplate| Uuid::new_v4().to_string();
        match known_login(broker, name) {
            Some(login) => match &login.accounts {
                Some(templates) => self.add_template_accounts(id, templates, now, new_id),
                None => self.add_messy(id, now),
            },
            None => {
                self.add_template_accounts(id, &BROKERAGE.new_login, now, new_id);
                self.personalize(id, broker, name);
            }
        }
    }

    /// Gives the accounts of an unknown user name their own names, numbers, money and rows. They
    /// depend on seed, broker and user name only, not on earlier links.
    fn personalize(&mut self, id: &str, broker: &Broker, name: &str) {
        let (seed, today) = (self.seed, self.today);
        for (account, template) in self.accounts_at(id).zip(&BROKERAGE.new_login) {
            let mut rng = stream(seed, name, broker.slug, template.number);
            let title = format!(
                "{} {}",
                first_word(broker.name),
                template.name.unwrap_or_default()
            );
            account.members.set("name", &title);
            account
                .members
                .set("number", &format!("LK-{}", rng.text(DIGITS, 8)));
            let total = format!("{}.{:02}", rng.between(2_000, 40_000), rng.between(10, 99));
            let total = json!({"total": {"amount": number(&total), "currency": template.total.1}});
            account.members.set("balance", &total);
            let base = first_row(name, broker.slug, template.number);
            account.set_rows(draw(&template.plan, template.total.1, seed, base, today));
        }
    }
}

fn offer(account_key: String, members: &Members) -> OfferedAccount {
    let text = |name| members.text(name).filter(|text| !text.is_empty());
    let number = text("number").unwrap_or_default();
    let hidden = number.chars().count().saturating_sub(4);
    let number: String = number.chars().skip(hidden).collect();
    let name = text("name")
        .or_else(|| text("raw_type"))
        .unwrap_or_else(|| "Account".to_owned());
    OfferedAccount {
        account_key,
        name,
        detail: format!("{} ••••{number}", text("raw_type").unwrap_or_default())
            .trim()
            .to_owned(),
    }
}
