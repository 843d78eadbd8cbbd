//! The odd rows of the world in Fiskil's format.

use jiff::Timestamp;
use serde_json::json;

use super::rows::{Entry, transaction_id};
use super::store::Account;
use crate::members::Members;
use crate::world::calendar::Calendar;
use crate::world::odd_rows::{OddRow, instant};

impl Account {
    /// Adds rows that are newest first.
    pub(super) fn insert_odd_rows(&mut self, rows: &[&OddRow], seed: u64, calendar: &Calendar) {
        for (index, row) in rows.iter().enumerate() {
            let number = self.take_number();
            let posted = Timestamp::from_millisecond(instant(calendar, index)).unwrap_or_default();
            let mut members = Members::from_value(&json!({
                "fiskil_id": transaction_id(seed, number), "account_id": self.account_id,
                "arrangement_id": self.arrangement_id, "institution_id": self.institution_id,
                "status": "POSTED", "type": "PAYMENT", "amount": row.amount, "currency": "AUD",
                "description": row.description, "reference": row.reference.as_deref().unwrap_or_default(),
                "posting_date_time": posted.to_string(), "is_detail_available": false,
            }));
            if let Some(merchant) = &row.merchant {
                members.set("merchant_name", merchant);
            }
            if let Some((primary, secondary)) = &row.category {
                let category = json!({
                    "primary_category": primary, "secondary_category": secondary, "confidence_level": "HIGH",
                });
                members.set("category", &category);
            }
            self.insert(Entry::given(members, number));
        }
    }
}
