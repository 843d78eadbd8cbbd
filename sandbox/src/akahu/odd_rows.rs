//! The odd rows of the world in Akahu's format.

use jiff::Timestamp;
use serde_json::json;
use serde_json::value::RawValue;

use super::ids;
use super::respond::iso;
use super::rows::Entry;
use super::store::Account;
use crate::members::Members;
use crate::world::calendar::Calendar;
use crate::world::odd_rows::{OddRow, days_back, instant};

impl Account {
    /// Adds rows that are newest first. Every second one has only a day, as midnight in New Zealand
    /// (docs/providers/akahu.md#dates).
    pub(super) fn insert_odd_rows(&mut self, rows: &[&OddRow], seed: u64, calendar: &Calendar) {
        let start = self.take_numbers(rows.len() as u64);
        for (index, row) in rows.iter().enumerate() {
            let number = start + index as u64;
            let day_only = index % 2 == 0;
            let at = if day_only {
                calendar.instant(days_back(index), 0)
            } else {
                instant(calendar, index)
            };
            let at = iso(Timestamp::from_millisecond(at).unwrap_or_default());
            let names = self.names();
            let mut members = Members::from_value(&json!({
                "_id": ids::of_row(seed, number), "_account": names.account_id, "_connection": names.connection_id,
                "_user": names.user_id, "created_at": at, "updated_at": at, "date": at,
                "hash": ids::hash_of_row(seed, number), "description": row.description,
                "type": if row.amount.starts_with('-') { "DEBIT" } else { "CREDIT" },
                "meta": row.reference.as_ref().map_or_else(|| json!({}), |text| json!({"reference": text})),
            }));
            // As a JSON number with exactly these digits.
            let amount = RawValue::from_string(row.amount.clone())
                .expect("the world's amounts are JSON numbers");
            members.set("amount", &amount);
            if let Some(merchant) = &row.merchant {
                members.set(
                    "merchant",
                    &json!({"_id": ids::named("merchant_", merchant), "name": merchant}),
                );
            }
            self.insert(Entry::given(members, number));
        }
    }
}
