//! What the banks and brokers of a user are called, wherever one is named alone.

use std::collections::{BTreeMap, BTreeSet};

use bellbird_domain::{Account, Connection, ConnectionId};
use jiff::Timestamp;

use super::local_time::LocalTime;
use super::names::{institution_name, sanitized, with_number};

/// Of several with one name, each has behind it what a person knows of it: its first account, or
/// when it was linked if the accounts do not tell them apart.
#[derive(Default)]
pub(crate) struct BankNames(BTreeMap<ConnectionId, String>);

impl BankNames {
    /// All connections of the user, and all accounts.
    pub(crate) fn new(connections: &[Connection], accounts: &[Account], zone: &LocalTime) -> Self {
        let mut by_name: BTreeMap<String, Vec<&Connection>> = BTreeMap::new();
        for connection in connections {
            let same = by_name.entry(institution_name(connection)).or_default();
            same.push(connection);
        }
        let mut names = BTreeMap::new();
        for (name, same) in by_name {
            if let [only] = same.as_slice() {
                names.insert(only.id, name);
                continue;
            }
            for (connection, which) in same.iter().zip(differences(&same, accounts, zone)) {
                names.insert(connection.id, format!("{name} ({which})"));
            }
        }
        Self(names)
    }

    pub(crate) fn of(&self, connection: &Connection) -> String {
        let known = self.find(connection.id).map(str::to_owned);
        known.unwrap_or_else(|| institution_name(connection))
    }

    pub(crate) fn find(&self, id: ConnectionId) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    /// What is to be said of banks that listed no row. A consent that has just ended can look so.
    pub(crate) fn nothing_came_from(&self, silent: &BTreeSet<ConnectionId>) -> Option<String> {
        let names: Vec<&str> = silent.iter().filter_map(|id| self.find(*id)).collect();
        (!names.is_empty()).then(|| {
            format!(
                "Nothing came from {}. If that surprises you, see under Banks whether your consent \
                 has ended.",
                names.join(", ")
            )
        })
    }
}

/// What tells connections of one name apart, in their order.
fn differences(same: &[&Connection], accounts: &[Account], zone: &LocalTime) -> Vec<String> {
    let first_account = |one: &&Connection| {
        let account = accounts
            .iter()
            .find(|account| account.connection_id == one.id)?;
        Some(with_number(&sanitized(&account.name), account))
    };
    let linked = |time: fn(&LocalTime, Timestamp) -> String| -> Vec<String> {
        let linked = |one: &&Connection| format!("linked {}", time(zone, one.created_at));
        same.iter().map(linked).collect()
    };
    let are_different =
        |words: &Vec<String>| words.iter().collect::<BTreeSet<_>>().len() == words.len();
    let by_account: Option<Vec<String>> = same.iter().map(first_account).collect();
    [by_account, Some(linked(LocalTime::day))]
        .into_iter()
        .flatten()
        .find(are_different)
        .unwrap_or_else(|| linked(LocalTime::at))
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::*;
    use crate::pages::fixtures::{account, connection};

    fn linked_on(name: &str, at: &str) -> Connection {
        Connection {
            created_at: at.parse().unwrap(),
            ..connection(name, ConnectionStatus::Active)
        }
    }

    fn names(connections: &[Connection], accounts: &[Account]) -> Vec<String> {
        let zone = LocalTime::of(Some("UTC"), "2026-11-29T12:00:00Z".parse().unwrap());
        let names = BankNames::new(connections, accounts, &zone);
        connections.iter().map(|one| names.of(one)).collect()
    }

    #[test]
    fn one_name_of_several_banks_has_their_accounts() {
        let banks = [
            linked_on("A", "2026-11-20T09:00:00Z"),
            linked_on("B", "2026-11-20T09:00:00Z"),
            linked_on("A", "2026-11-20T09:00:00Z"),
        ];
        let accounts = [
            account(&banks[0], "Everyday"),
            account(&banks[1], "Everyday"),
            account(&banks[2], "Card"),
            account(&banks[0], "Saver"),
        ];
        assert_eq!(
            names(&banks, &accounts),
            ["A (Everyday xxxx5678)", "B", "A (Card xxxx5678)"]
        );
    }

    #[test]
    fn accounts_that_tell_nothing_give_way_to_the_day() {
        let mut banks = [
            linked_on("A", "2026-11-19T09:00:00Z"),
            linked_on("A", "2026-11-20T09:00:00Z"),
        ];
        let by_day = ["A (linked 19 Nov 2026)", "A (linked 20 Nov 2026)"];
        assert_eq!(names(&banks, &[]), by_day);
        let alike = [account(&banks[0], "Card"), account(&banks[1], "Card")];
        assert_eq!(names(&banks, &alike), by_day);
        assert_eq!(names(&banks, &alike[..1]), by_day, "one has no account yet");
        banks[0].created_at = "2026-11-20T08:59:00Z".parse().unwrap();
        assert_eq!(
            names(&banks, &alike),
            [
                "A (linked 20 Nov 2026, 08:59 UTC)",
                "A (linked 20 Nov 2026, 09:00 UTC)"
            ]
        );
    }
}
