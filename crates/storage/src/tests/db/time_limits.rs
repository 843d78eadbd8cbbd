//! Time limits of PostgreSQL: what waits at the server ends there, and what is given up is
//! cancelled.

use std::time::{Duration, Instant};

use bellbird_domain::UserId;
use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use crate::db::{Sql, params};
use crate::error::Result;
use crate::tests::fixtures::wait_for_lock_waiters;
use crate::tests::support::{TestDb, assert_fails, connect, on_postgres, use_product_limits};
use crate::{PostgresOptions, Storage, UserChange, in_tx};

const ROUNDS: u32 = 3;
/// For what the server does a moment later.
const WAIT_MAX: Duration = Duration::from_secs(60);

const SETTING: Sql = Sql::new("SETTING", "").on_postgres("SELECT current_setting($1)");
const LOCK: Sql = Sql::new("LOCK", "").on_postgres("SELECT 1 FROM users WHERE id = $1 FOR UPDATE");

impl TestDb {
    async fn setting(&self, name: &str) -> String {
        self.db
            .one(SETTING, params![name], |row| row.text(0).map(str::to_owned))
            .await
            .unwrap()
            .unwrap()
    }

    /// Runs `body` while another session holds the lock on a user's row, as an instance does that
    /// lost its network.
    async fn with_locked_user(&self, body: impl AsyncFnOnce(Locked<'_>)) {
        let user = self.user("a@x").await.id;
        let holder = connect(&self.url).await;
        holder
            .batch_execute(&format!(
                "BEGIN; SELECT 1 FROM users WHERE id = '{user}' FOR UPDATE"
            ))
            .await
            .unwrap();
        let other = connect(&self.url).await;
        body(Locked {
            user,
            observer: &other,
        })
        .await;
        holder.batch_execute("COMMIT").await.unwrap();
        write(self, user).await.expect("the lock is free");
    }
}

struct Locked<'a> {
    user: UserId,
    observer: &'a Client,
}

impl Locked<'_> {
    async fn count(&self, condition: &str) -> i64 {
        let sql = format!(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
        );
        self.observer.query_one(&sql, &[]).await.unwrap().get(0)
    }

    async fn waiting(&self) -> i64 {
        self.count("wait_event_type = 'Lock'").await
    }

    /// Sessions of the pool.
    async fn sessions(&self) -> i64 {
        self.count("application_name = 'bellbird'").await
    }
}

/// The connections of the pool that nobody uses.
fn idle(db: &Storage) -> i64 {
    db.connections_in_use().expect("of PostgreSQL").1.into()
}

async fn write(db: &Storage, user: UserId) -> Result<()> {
    let change = UserChange {
        timezone: Some(None),
        ..UserChange::default()
    };
    in_tx!(db, user::update(user, &change)).await.map(drop)
}

async fn lock(db: &Storage, user: UserId) -> Result<()> {
    db.db.run(LOCK, params![user]).await.map(|_| ())
}

#[test]
fn postgres_ends_a_lock_wait_and_a_given_up_statement() {
    use_product_limits();
    on_postgres(async |db| {
        for (name, value) in [
            ("statement_timeout", "9s"),
            ("lock_timeout", "4s"),
            ("idle_in_transaction_session_timeout", "15s"),
            ("tcp_user_timeout", "15000"),
            ("tcp_keepalives_idle", "30"),
        ] {
            assert_eq!(db.setting(name).await, value, "{name}");
        }
        db.with_locked_user(async |locked| {
            // A wait that ends before it was seen begins again.
            loop {
                tokio::select! {
                    ended = lock(db, locked.user) => assert_fails!(ended, Unavailable(_)),
                    () = wait_for_lock_waiters(db, 1) => break,
                }
            }
            // The pool hands out the connection used last. It must not be the one that still waits.
            assert!(db.users().find(locked.user).await.unwrap().is_some());
            assert_fails!(write(db, locked.user).await, Unavailable(_));
            assert_eq!(
                locked.waiting().await,
                0,
                "the server ended the wait before the caller did"
            );
        })
        .await;
    });
}

/// As requests do whose clients left: in a transaction, and in a single statement.
#[test]
fn postgres_cancels_what_is_given_up() {
    let pool_size = PostgresOptions::default().pool_size;
    on_postgres(async |db| {
        db.with_locked_user(async |locked| {
            for _ in 0..ROUNDS {
                let mut requests = JoinSet::new();
                for number in 0..pool_size * 2 {
                    let (storage, user) = (Storage::clone(db), locked.user);
                    requests.spawn(async move {
                        if number % 2 == 0 {
                            write(&storage, user).await
                        } else {
                            lock(&storage, user).await
                        }
                    });
                }
                wait_for_lock_waiters(db, pool_size as usize).await;
                let (used, _, waiting) = db.connections_in_use().expect("of PostgreSQL");
                assert!(
                    used == pool_size && waiting <= pool_size,
                    "{used} {waiting}"
                );
                drop(requests);
                while locked.waiting().await > 0 {
                    assert!(
                        locked.sessions().await <= i64::from(pool_size),
                        "given up, and replaced by others"
                    );
                }
                // A session that was closed ends at the server a moment later.
                let until = Instant::now() + WAIT_MAX;
                while locked.sessions().await > idle(db) {
                    assert!(Instant::now() < until, "a closed session is still there");
                }
            }
            assert!(db.users().find(locked.user).await.unwrap().is_some());
        })
        .await;
    });
}

#[test]
fn postgres_transaction_that_is_given_up_while_it_begins_is_rolled_back() {
    on_postgres(async |db| {
        let user = db.user("a@x").await.id;
        let observer = connect(&db.url).await;
        // The first poll sends BEGIN, and its response is not awaited.
        assert!(db.db.begin().now_or_never().is_none());
        write(db, user).await.unwrap();
        let committed = "SELECT COUNT(*) FROM users WHERE timezone IS NULL";
        assert_eq!(
            observer
                .query_one(committed, &[])
                .await
                .unwrap()
                .get::<_, i64>(0),
            1
        );
        let open = Locked {
            user,
            observer: &observer,
        };
        // The rollback is on its way.
        let until = Instant::now() + WAIT_MAX;
        while open
            .count("application_name = 'bellbird' AND state = 'idle in transaction'")
            .await
            > 0
        {
            assert!(Instant::now() < until, "not rolled back");
        }
    });
}
