//! Stores how often each key was used, by day and route. Nothing of a request or a response is
//! stored.

use bellbird_domain::{KeyId, UserId};
use jiff::Timestamp;

use crate::KeyReads;
use crate::db::{Row, params, statements};
use crate::error::Result;
use crate::outdated::{delete_in_steps, delete_some};

/// How long counts are kept.
const DAYS: i64 = 30;
const DAY_SECONDS: i64 = 86_400;

statements! {
    /// A key that is deleted meanwhile, and a session of the console, have none.
    ADD = "INSERT INTO key_reads (user_id, key_id, day, route, requests)
        SELECT user_id, id, $3, $4, $5 FROM api_keys WHERE user_id = $1 AND id = $2
        ON CONFLICT (user_id, key_id, day, route) DO UPDATE SET requests = key_reads.requests + excluded.requests";

    LIST = "SELECT user_id, key_id, route, CAST(SUM(requests) AS BIGINT) FROM key_reads
        WHERE user_id = $1 AND day > $2 GROUP BY user_id, key_id, route ORDER BY key_id, route";

    HAS_OUTDATED = "SELECT day FROM key_reads WHERE day <= $1 LIMIT 1";

    DELETE_OUTDATED = delete_some!("key_reads", "user_id, key_id, day, route", "day <= $1", ""),
        on_postgres =
            delete_some!("key_reads", "user_id, key_id, day, route", "day <= $1", " FOR UPDATE SKIP LOCKED");
}

/// How often a key was used on a route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyReadCount<R> {
    pub user_id: UserId,
    pub key_id: KeyId,
    pub route: R,
    pub requests: u64,
}

impl KeyReads<'_> {
    /// Adds counts of today, in the order of the table, so that instances do not wait for each
    /// other in a circle.
    pub async fn add(self, counts: &[KeyReadCount<&str>], now: Timestamp) -> Result<()> {
        let mut tx = self.db.begin().await?;
        for count in counts {
            let requests = i64::try_from(count.requests).unwrap_or(i64::MAX);
            tx.run(
                ADD,
                params![count.user_id, count.key_id, day(now), count.route, requests],
            )
            .await?;
        }
        tx.commit().await
    }

    /// The counts of the last 30 days, by key and route.
    pub async fn list(self, user: UserId, now: Timestamp) -> Result<Vec<KeyReadCount<String>>> {
        let count = |row: &Row<'_>| {
            Ok(KeyReadCount {
                user_id: row.get(0)?,
                key_id: row.get(1)?,
                route: row.get(2)?,
                requests: row.get(3)?,
            })
        };
        self.db
            .all(LIST, params![user, day(now) - DAYS], count)
            .await
    }

    /// Deletes the counts of days before the last 30. Returns how many.
    pub async fn delete_outdated(self, now: Timestamp) -> Result<u64> {
        let until = day(now) - DAYS;
        delete_in_steps(&self.db, HAS_OUTDATED, DELETE_OUTDATED, until.into()).await
    }
}

fn day(at: Timestamp) -> i64 {
    at.as_second().div_euclid(DAY_SECONDS)
}
