//! A bank or broker that is linked, as a row that opens to more about it. The page of a link URL
//! has the same rows as the console.

use bellbird_connections::{LinkableProvider, LinkedConnection};
use bellbird_domain::{Connection, ConnectionCategory, ConnectionStatus};
use jiff::{SignedDuration, Timestamp};

use super::bank_trouble::is_linkable;
use super::frame::Frame;
use super::institution::{AccountRow, Institution, account_rows};
use super::local_time::{LocalTime, When};
use super::names::institution_name;
use super::words::{count, status_text};

/// What was read within this time is up to date. Banks are read several times a day.
const UP_TO_DATE_FOR: SignedDuration = SignedDuration::from_hours(26);
/// Time before the end of a consent from which its bank offers to renew it.
const ENDING_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);

/// What the rows of a page have in common.
pub(crate) struct BankRows<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) zone: LocalTime,
    /// The providers that have a consent page.
    pub(crate) linkable: &'a [LinkableProvider],
    /// Whether the plan of the user reads it.
    pub(crate) is_in_plan: &'a dyn Fn(&Connection) -> bool,
}

pub(crate) struct BankRow {
    pub(crate) connection: Connection,
    pub(crate) institution: Institution,
    /// Whether nothing new comes from it until the user reconnects it.
    pub(crate) is_broken: bool,
    pub(crate) state: BankState,
    /// What it has, and for one of several of this name, which.
    pub(crate) holds: String,
    pub(crate) accounts: Vec<AccountRow>,
    /// The day on which the user linked it.
    pub(crate) since: String,
    /// None: unknown, or the consent is broken.
    pub(crate) consent_end: Option<When>,
    pub(crate) is_ending: bool,
    /// What distinguishes its buttons for a screen reader: institution and first account.
    pub(crate) label: String,
    pub(crate) can_reconnect: bool,
}

/// How a bank is doing, in words for its owner.
pub(crate) struct BankState {
    /// `good`, `attention`, or nothing.
    pub(crate) class: &'static str,
    pub(crate) words: &'static str,
    /// Follows the words.
    pub(crate) at: Option<When>,
}

impl BankState {
    pub(crate) const READING: Self = Self::new("good", "Being read now");

    const fn new(class: &'static str, words: &'static str) -> Self {
        Self {
            class,
            words,
            at: None,
        }
    }

    /// Of a bank that was read last at a time. `is_failing`: it was tried again since.
    pub(crate) fn of_read(read_at: Option<Timestamp>, is_failing: bool, zone: &LocalTime) -> Self {
        let Some(at) = read_at else {
            return Self::new("good", "Linked, and not read yet");
        };
        let is_fresh = !is_failing && zone.now.duration_since(at) < UP_TO_DATE_FOR;
        let words = match (is_fresh, is_failing) {
            (true, _) => "Up to date, ",
            (false, true) => "It does not respond. Last read ",
            (false, false) => "Last read ",
        };
        Self {
            class: if is_fresh { "good" } else { "" },
            words,
            at: Some(zone.when(at)),
        }
    }
}

impl BankRow {
    /// `of_this_name`: how many rows of the page have the name of this bank.
    fn new(linked: &LinkedConnection, page: &BankRows<'_>, of_this_name: usize) -> Self {
        let connection = &linked.connection;
        let is_active = connection.status == ConnectionStatus::Active;
        let is_in_plan = (page.is_in_plan)(connection);
        let institution = Institution::of(connection, page.frame);
        let accounts = account_rows(linked);
        let consent_end = connection.consent_expires_at.filter(|_| is_active);
        let state = if !is_in_plan {
            BankState::new("", "Not in your plan")
        } else if is_active {
            BankState::of_read(connection.last_refreshed_at, false, &page.zone)
        } else {
            BankState::new("attention", status_text(connection.status))
        };
        Self {
            label: label(&institution, accounts.first()),
            is_broken: is_in_plan && !is_active,
            state,
            holds: holds(&accounts, of_this_name > 1),
            since: page.zone.day(connection.created_at),
            consent_end: consent_end.map(|end| page.zone.when(end)),
            is_ending: is_in_plan && consent_end.is_some_and(|end| ends_soon(end, page.zone.now)),
            can_reconnect: is_in_plan && is_linkable(connection, page.linkable),
            institution,
            accounts,
            connection: connection.clone(),
        }
    }

    /// Rows in the order of what they need: to be reconnected, to be renewed soon, and nothing.
    /// Those of one name are beside each other.
    pub(crate) fn list<'a>(
        linked: impl IntoIterator<Item = &'a LinkedConnection>,
        page: &BankRows<'_>,
    ) -> Vec<Self> {
        let linked: Vec<_> = linked.into_iter().collect();
        let names: Vec<_> = linked
            .iter()
            .map(|one| institution_name(&one.connection))
            .collect();
        let of_name = |name: &String| names.iter().filter(|other| *other == name).count();
        let rows = linked.iter().zip(&names);
        let mut rows: Vec<_> = rows
            .map(|(one, name)| Self::new(one, page, of_name(name)))
            .collect();
        rows.sort_by_key(|row| {
            let first_of_name = names.iter().position(|name| *name == row.institution.name);
            (!row.is_broken, !row.is_ending, first_of_name)
        });
        rows
    }

    /// Makes each account lead to its rows, in the console of their user.
    pub(crate) fn link_accounts(&mut self, root: &str) {
        let page = match self.connection.category {
            ConnectionCategory::Banking => "transactions",
            ConnectionCategory::Brokerage => "investments",
        };
        for account in &mut self.accounts {
            account.href = Some(format!("{root}/{page}?account={}", account.id));
        }
    }

    /// Whether its row has the button to reconnect or to renew while it is closed.
    pub(crate) fn is_urgent(&self) -> bool {
        self.can_reconnect && (self.is_broken || self.is_ending)
    }

    /// Whether it has the button to renew when it is opened.
    pub(crate) fn can_renew(&self) -> bool {
        self.can_reconnect && !self.is_urgent()
    }
}

/// Whether the consent of an active connection is to be renewed.
pub(crate) fn ends_soon(consent_end: Timestamp, now: Timestamp) -> bool {
    consent_end.duration_since(now) < ENDING_WITHIN
}

fn label(institution: &Institution, account: Option<&AccountRow>) -> String {
    match account {
        Some(account) => format!("{}, {}", institution.name, account.text()),
        None => institution.name.clone(),
    }
}

fn holds(accounts: &[AccountRow], is_one_of_several: bool) -> String {
    match accounts {
        [] => "no accounts yet".to_owned(),
        [only] if is_one_of_several => only.text(),
        [first, others @ ..] if is_one_of_several => {
            format!("{} and {} more", first.text(), others.len())
        }
        accounts => count(accounts.len() as u64, "account"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_says_how_old_the_last_read_is() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let zone = LocalTime::of(Some("UTC"), now);
        let text = |at: Option<&str>, is_failing| {
            let at = at.map(|at| at.parse().unwrap());
            let state = BankState::of_read(at, is_failing, &zone);
            let when = state.at.map(|when| when.text).unwrap_or_default();
            format!("{}: {}{when}", state.class, state.words)
        };
        let recent = Some("2026-11-20T11:57:00Z");
        assert_eq!(text(recent, false), "good: Up to date, 3 minutes ago");
        assert_eq!(
            text(recent, true),
            ": It does not respond. Last read 3 minutes ago"
        );
        assert_eq!(
            text(Some("2026-11-18T11:00:00Z"), false),
            ": Last read 2 days ago"
        );
        assert_eq!(text(None, false), "good: Linked, and not read yet");
    }
}
