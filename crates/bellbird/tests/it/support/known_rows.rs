//! The rows that a test adds and changes at the simulated providers, and what endpoints must
//! receive about them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::Value;

use crate::support::checked_endpoint::{Endpoint, number};
use crate::support::database::query;
use crate::support::deployment::control;
use crate::support::process::{RunningCommand, text};
use crate::support::provider_spec::{SetAmount, decimal, set_members, spec};
use crate::support::random::Random;

/// Begins the description of every added row.
pub(crate) const DESCRIPTION: &str = "CHECKED ROW";

struct Account {
    provider: String,
    /// The provider's id.
    id: String,
}

struct Added {
    provider: String,
    /// The provider's id.
    provider_id: String,
    /// The id in events.
    id: String,
    /// The amounts it has had, in cents, unless it is a trade.
    amounts: Vec<u64>,
    /// The member that the last change sets, and its value in events. `None`: the row was not
    /// changed.
    changed_to: Option<(&'static str, Value)>,
}

pub(crate) struct Rows {
    accounts: Vec<Account>,
    added: Vec<Added>,
    /// The number of rows and changes so far. It makes each of them unique.
    count: u64,
}

impl Rows {
    /// Reads one account of each connection.
    pub(crate) async fn new(database: &str) -> Self {
        let sql = "SELECT c.provider, MIN(a.provider_account_id) FROM accounts a
            JOIN connections c ON c.user_id = a.user_id AND c.id = a.connection_id
            WHERE c.category = 'brokerage' OR a.account_type IN ('transaction', 'savings')
            GROUP BY c.provider, c.id ORDER BY c.provider, c.id";
        let account = |row: Vec<String>| {
            let [provider, id] = row.try_into().unwrap();
            Account { provider, id }
        };
        let rows = query(database, sql).await.into_iter();
        let accounts: Vec<Account> = rows.map(account).collect();
        let providers = accounts.iter().map(|account| account.provider.as_str());
        let providers: BTreeSet<_> = providers.collect();
        assert_eq!((providers.len(), accounts.len()), (3, 5));
        Self {
            accounts,
            added: Vec::new(),
            count: 0,
        }
    }

    /// Adds up to eight rows to a random account.
    pub(crate) async fn add(&mut self, sandbox: &RunningCommand, random: &mut Random) {
        let account = random.below(self.accounts.len());
        for _ in 0..=random.below(8) {
            self.count += 1;
            let Account { provider, id } = &self.accounts[account];
            let (cents, description) =
                (self.count + 1_000, format!("{DESCRIPTION} {}", self.count));
            let spec = spec(provider);
            let mut row = (spec.row)(id, &description);
            set_members(&mut row, (spec.set_amount)(cents).members);
            let row = control(&sandbox.json(), provider, Method::POST, "transactions", row).await;
            let (provider_id, id) = (text(&row, spec.row_id), (spec.shown_id)(&row));
            let (provider, provider_id) = (provider.clone(), provider_id.to_owned());
            let amounts = vec![cents];
            self.added.push(Added {
                provider,
                provider_id,
                id,
                amounts,
                changed_to: None,
            });
        }
    }

    /// Changes a random row that `endpoint` has received as new.
    pub(crate) async fn change(
        &mut self,
        sandbox: &RunningCommand,
        random: &mut Random,
        endpoint: &Endpoint,
    ) {
        let known_ids = endpoint.new_rows();
        let added = self.added.iter().enumerate();
        let known = added.filter(|(_, row)| known_ids.contains(&row.id));
        let known: Vec<usize> = known.map(|(index, _)| index).collect();
        if known.is_empty() {
            return;
        }
        self.count += 1;
        let cents = self.count + 1_000;
        let row = &mut self.added[known[random.below(known.len())]];
        let spec = spec(&row.provider);
        let SetAmount { members, shown } = (spec.set_amount)(cents);
        let (path, sandbox) = (format!("transactions/{}", row.provider_id), sandbox.json());
        control(&sandbox, &row.provider, Method::PATCH, &path, members).await;
        row.amounts.push(cents);
        row.changed_to = Some(shown);
    }

    /// Asserts that every row was reported as new in exactly one event, and every change as an
    /// update. `fingerprints`: how many are stored, unless some are of rows that are too old now.
    pub(crate) fn assert_announced(&self, endpoint: &Endpoint, fingerprints: Option<u64>) {
        let accepted = endpoint.accepted();
        // An event that was accepted more than once counts once.
        let events = accepted.iter().map(|event| (text(event, "id"), event));
        let events: BTreeMap<&str, &Value> = events.collect();
        let metadata = events.values().map(|event| &event["metadata"]);
        let announced: u64 = metadata.map(|of| number(of, "new_count")).sum();
        if let Some(fingerprints) = fingerprints {
            // One for each announced row.
            assert_eq!(announced, fingerprints);
        }

        let mut as_new: BTreeMap<(&str, &str), BTreeSet<(&str, &str)>> = BTreeMap::new();
        let mut as_updated: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for event in &accepted {
            let (id, run) = (text(event, "id"), text(&event["metadata"], "sync_run_id"));
            for row in event["data"]["new"].as_array().unwrap() {
                let key = (text(row, "account_id"), text(row, "id"));
                as_new.entry(key).or_default().insert((id, run));
            }
            for row in event["data"]["updated"].as_array().unwrap() {
                as_updated.entry(text(row, "id")).or_default().push(row);
            }
        }
        let added_ids: BTreeSet<&str> = self.added.iter().map(|row| row.id.as_str()).collect();
        for ((_, row), announcements) in &as_new {
            // The sandbox has trades that are equal in all parts of their id. Those are several
            // rows with one id.
            let runs: BTreeSet<&str> = announcements.iter().map(|(_, run)| *run).collect();
            let is_trade = events[announcements.first().unwrap().0]["type"] == "trades.synced";
            let count = if is_trade && !added_ids.contains(row) {
                runs.len()
            } else {
                announcements.len()
            };
            assert_eq!(count, 1, "{row}: {announcements:?}");
        }
        let new_ids: BTreeSet<&str> = as_new.keys().map(|(_, row)| *row).collect();
        for row in &self.added {
            let (id, provider) = (row.id.as_str(), &row.provider);
            let is_announced = new_ids.contains(id);
            assert!(is_announced, "{id} of {provider} was never announced");
            let updated = as_updated.remove(id);
            let Some((name, value)) = &row.changed_to else {
                assert_eq!(updated, None, "{id} did not change");
                continue;
            };
            let is_announced =
                updated.is_some_and(|all| all.iter().any(|row| row[*name] == *value));
            let change = format!("{id} of {provider}: {name} {value}");
            assert!(is_announced, "{change} was never announced");
        }
        let ids: Vec<_> = as_updated.keys().collect();
        assert!(
            ids.is_empty(),
            "updates of rows that did not change: {ids:?}"
        );
    }

    /// The amounts that an added transaction has had, as the API shows them, the last one last.
    pub(crate) fn amounts(&self, id: &str) -> Option<Vec<String>> {
        let row = self.added.iter().find(|row| row.id == id)?;
        Some(row.amounts.iter().copied().map(decimal).collect())
    }

    /// The ids of the added rows, of transactions or of trades.
    pub(crate) fn added_ids(&self, trades: bool) -> impl Iterator<Item = &str> {
        self.added
            .iter()
            .filter(move |row| spec(&row.provider).is_brokerage() == trades)
            .map(|row| row.id.as_str())
    }

    /// How many rows were added, and how many of them were changed.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let changed = self.added.iter().filter(|row| row.changed_to.is_some());
        (self.added.len(), changed.count())
    }
}
