//! Concurrent tasks on several handles, as several processes have them.

use bellbird_domain::{ApiKey, Plan};
use tokio::task::JoinSet;

use crate::tests::support::{assert_fails, at, both, new_account, new_connection};
use crate::{Sealer, Storage, UserChange, in_tx};

/// Writes by each task.
const ROUNDS: u8 = 12;
const TASKS: u8 = 6;

both! {
    async fn concurrent_writes_are_all_stored(db) {
        let user = db.user("a@x").await.id;
        let handles = [db.reopen().await, db.reopen().await];
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let storage = handles[usize::from(task) % 2].clone();
            tasks.spawn(async move {
                for round in 0..ROUNDS {
                    let key = key_of(task, round);
                    in_tx!(storage, keys::insert(user, &key, "k", None, at(0))).await.unwrap();
                    assert!(
                        storage.keys().find_caller(&key, at(1)).await.unwrap().is_some(),
                        "its own write is visible",
                    );
                    let consent = format!("{task}-{round}");
                    let new = new_connection(user, &consent);
                    storage.connections().import(&new, &[new_account("a", "A")], at(2)).await.unwrap();
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let expected = usize::from(TASKS * ROUNDS);
        assert_eq!(db.keys().list(user).await.unwrap().len(), expected);
        assert_eq!(db.visible_accounts(user).await.len(), expected);
        let revision = i64::try_from(expected).unwrap();
        assert_eq!(db.revision(user).await, revision, "no revision was lost");

        let plan = UserChange { plan: Some(Plan::Saver), ..UserChange::default() };
        let zone = UserChange { timezone: Some(Some("Asia/Tokyo")), ..UserChange::default() };
        let (first, second) =
            tokio::join!(in_tx!(handles[0], user::update(user, &plan)), in_tx!(handles[1], user::update(user, &zone)));
        assert!(first.is_ok() && second.is_ok());
        let now = db.users().find(user).await.unwrap().unwrap();
        assert_eq!((now.plan, now.timezone.as_deref()), (Plan::Saver, Some("Asia/Tokyo")));
        assert_eq!(db.revision(user).await, revision + 2);
    }

    async fn consent_is_imported_by_one_user_only(db) {
        let users = [db.user("a@x").await.id, db.user("b@x").await.id];
        let handles = [db.reopen().await, db.reopen().await];
        for round in 0..8 {
            let consent = format!("c{round}");
            let new = users.map(|user| new_connection(user, &consent));
            let (first, second) = tokio::join!(
                handles[0].connections().import(&new[0], &[], at(1)),
                handles[1].connections().import(&new[1], &[], at(1)),
            );
            let (made, rejected): (Vec<_>, Vec<_>) = [first, second].into_iter().partition(Result::is_ok);
            assert_eq!(made.len(), 1);
            assert_fails!(rejected[0], Conflict(_));
        }
        assert_eq!(db.connections().list_all().await.unwrap().len(), 8);
    }
}

/// Several processes open and migrate a new file at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_processes_can_create_the_file() {
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("new.db").display());
        let mut tasks = JoinSet::new();
        for _ in 0..6 {
            let url = url.clone();
            tasks.spawn(async move {
                let storage = Storage::open(&url, Sealer::random()).await.unwrap();
                let applied = storage.migrate().await.unwrap();
                storage.ping().await.unwrap();
                storage.close().await;
                applied.len()
            });
        }
        let mut applied = Vec::new();
        while let Some(count) = tasks.join_next().await {
            applied.push(count.unwrap());
        }
        assert_eq!(
            applied.iter().filter(|count| **count > 0).count(),
            1,
            "one of them migrated: {applied:?}"
        );
    }
}

fn key_of(task: u8, round: u8) -> ApiKey {
    let mut numbers = [task; 32];
    numbers[31] = round;
    ApiKey::from_random(numbers)
}
