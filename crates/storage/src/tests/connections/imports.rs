//! Repairs: a connection gets another consent, and its former one becomes a removal.

use bellbird_domain::{Account, AccountId, ConnectionId, ConnectionStatus, UserId};
use secrecy::{ExposeSecret as _, SecretString};

use crate::digest::provider_user_digest;
use crate::job_kinds::{REFRESH, REMOVAL};
use crate::tests::support::{
    CREDENTIALS, TestDb, assert_fails, at, both, masked, new_account, new_connection,
};
use crate::{ClaimedJob, NewAccount, NewConnection, Sealer, Storage, StorageError};

use ConnectionStatus::{Active, Deleting, Revoked};

const NEW_CREDENTIALS: &str = "{\"renewed\":true}";

/// Repairs a connection with a consent and the new credentials.
async fn repair(
    db: &Storage,
    (user, id): (UserId, ConnectionId),
    consent: &str,
    accounts: &[NewAccount<'_>],
) -> Result<ConnectionId, StorageError> {
    let credentials = SecretString::from(NEW_CREDENTIALS);
    let new = NewConnection {
        repairs: Some(id),
        credentials: &credentials,
        ..new_connection(user, consent)
    };
    Ok(db.connections().import(&new, accounts, at(50)).await?.id)
}

/// A connection with a revoked consent.
async fn broken(
    db: &TestDb,
    user: UserId,
    consent: &str,
    accounts: &[NewAccount<'_>],
) -> ConnectionId {
    let new = NewConnection {
        provider_user_id: Some("puser_1"),
        ..new_connection(user, consent)
    };
    let id = db
        .connections()
        .import(&new, accounts, at(10))
        .await
        .unwrap()
        .id;
    assert!(db.set_status((user, id), Active, Revoked, at(20)).await);
    id
}

async fn steps(
    db: &TestDb,
    id: ConnectionId,
) -> Vec<(Option<ConnectionStatus>, Option<ConnectionStatus>, String)> {
    db.connections()
        .list_audit(id)
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.from, row.to, row.cause))
        .collect()
}

async fn due_removal(db: &TestDb) -> ClaimedJob {
    let mut claims = db.claim_due(REMOVAL, at(50), at(80), 8).await.unwrap();
    assert_eq!(claims.len(), 1);
    claims.remove(0)
}

/// Our ids and the provider's ids of the user's accounts, by name.
async fn ids(db: &TestDb, user: UserId) -> Vec<(AccountId, String)> {
    let ids = |account: Account| (account.id, account.provider_account_id);
    db.visible_accounts(user)
        .await
        .into_iter()
        .map(ids)
        .collect()
}

both! {
    async fn repair_replaces_the_consent(db) {
        let user = db.user("a@x").await.id;
        let id = broken(db, user, "before", &[new_account("acc_1", "Everyday")]).await;
        let account = db.visible_accounts(user).await[0].id;
        let accounts = [NewAccount { known_as: Some(account), ..new_account("acc_9", "Everyday") }];
        assert_eq!(repair(db, (user, id), "after", &accounts).await.unwrap(), id);
        let found = db.connections().find(user, id).await.unwrap().unwrap();
        assert_eq!((found.status, found.created_at, found.last_refreshed_at), (Active, at(10), Some(at(50))));
        assert_eq!(ids(db, user).await, [(account, "acc_9".to_owned())]);
        assert_eq!(db.secrets().find_credentials(user, id).await.unwrap().unwrap().expose_secret(), NEW_CREDENTIALS);
        assert_eq!(
            (db.column(id, "provider_connection_id").await, db.column(id, "provider_user_digest").await),
            ("after".to_owned(), provider_user_digest("puser_1"))
        );
        assert_eq!(steps(db, id).await[2..], [(Some(Revoked), Some(Active), "reconnected".to_owned())]);

        // The former consent keeps its own credentials for the withdrawal.
        let removal = due_removal(db).await;
        let former_id = removal.connection_id();
        assert_ne!(former_id, id);
        assert_eq!((removal.user_id(), removal.provider.as_str()), (user, "akahu"));
        assert_eq!(db.secrets().find_credentials(user, former_id).await.unwrap().unwrap().expose_secret(), CREDENTIALS);
        assert_eq!(
            (db.column(former_id, "provider_connection_id").await, db.column(former_id, "provider_user_digest").await),
            ("before".to_owned(), provider_user_digest("puser_1"))
        );
        let hidden = db.connections().find_any(former_id).await.unwrap().unwrap();
        assert_eq!(
            (hidden.status, hidden.created_at, hidden.institution_name.as_str()),
            (Deleting, at(50), "First Bank")
        );
        assert_eq!(steps(db, former_id).await, [(Some(Revoked), Some(Deleting), "replaced".to_owned())]);
        assert!(db.secrets().sealed().await.unwrap().unopenable.is_empty());
        assert!(db.removals().finish(&removal, "deleted", at(60)).await.unwrap());
        assert_eq!((db.connections().list_all().await.unwrap().len(), db.secrets_for("credentials").await), (1, 1));
        assert_eq!(ids(db, user).await, [(account, "acc_9".to_owned())]);
    }

    async fn repair_with_same_consent_renews_it(db) {
        let user = db.user("a@x").await.id;
        let id = broken(db, user, "c", &[]).await;
        assert_eq!(repair(db, (user, id), "c", &[]).await.unwrap(), id);
        assert_eq!(db.claim_due(REMOVAL, at(50), at(80), 8).await.unwrap(), []);
        assert_eq!(db.secrets().find_credentials(user, id).await.unwrap().unwrap().expose_secret(), NEW_CREDENTIALS);
        assert_eq!(steps(db, id).await.len(), 3);
        assert_eq!(repair(db, (user, id), "c", &[]).await.unwrap(), id);
        assert_eq!(steps(db, id).await.len(), 3, "it was active");
        assert_eq!(repair(db, (user, id), "another", &[]).await.unwrap(), id);
        assert_eq!(steps(db, id).await.len(), 3, "it was active, with another consent");
        assert_eq!(
            steps(db, due_removal(db).await.connection_id()).await,
            [(Some(Active), Some(Deleting), "replaced".to_owned())]
        );
    }

    async fn consent_of_another_connection_is_rejected(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let id = broken(db, user, "c", &[]).await;
        db.connection(user, "own", &[]).await;
        db.connection(other, "strange", &[]).await;
        let going = db.connection(user, "going", &[]).await.id;
        db.hide(user, going, 20, 999).await;
        let revision = db.revision(user).await;
        for consent in ["own", "strange", "going"] {
            let error = repair(db, (user, id), consent, &[]).await.unwrap_err();
            assert!(matches!(error, StorageError::Conflict(_)), "{consent}: {error:?}");
        }
        let new =
            NewConnection { repairs: Some(id), provider: "fiskil", ..new_connection(user, "elsewhere") };
        assert_fails!(db.connections().import(&new, &[], at(50)).await, Conflict(_));
        assert_eq!(db.revision(user).await, revision);
        assert_eq!(db.connections().find(user, id).await.unwrap().unwrap().status, Revoked);
    }

    async fn repair_of_removed_connection_imports_again(db) {
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let strange = db.connection(other, "strange", &[]).await.id;
        let hidden = db.connection(user, "hidden", &[]).await.id;
        db.hide(user, hidden, 20, 999).await;
        let same = db.connection(user, "same", &[]).await.id;
        let mut made = std::collections::BTreeSet::new();
        for (number, id) in [ConnectionId::new(), strange, hidden].into_iter().enumerate() {
            made.insert(repair(db, (user, id), &format!("c{number}"), &[]).await.unwrap());
        }
        assert_eq!(repair(db, (user, hidden), "same", &[]).await.unwrap(), same, "as without a repair");
        assert!(made.len() == 3 && [strange, hidden, same].iter().all(|id| !made.contains(id)));
        assert_eq!(db.connections().find(other, strange).await.unwrap().unwrap().status, Active);
    }

    async fn unopenable_credentials_do_not_block_repair(db) {
        let user = db.user("a@x").await.id;
        let id = broken(db, user, "before", &[]).await;
        let other_key = Storage::open(&db.url, Sealer::random()).await.unwrap();
        assert_eq!(repair(&other_key, (user, id), "after", &[]).await.unwrap(), id);
        assert_eq!(
            other_key.secrets().find_credentials(user, id).await.unwrap().unwrap().expose_secret(),
            NEW_CREDENTIALS,
        );
        let former_id = due_removal(db).await.connection_id();
        assert_fails!(other_key.secrets().find_credentials(user, former_id).await, Sealed(_));
    }

    async fn refresh_with_old_credentials_loses_its_lease(db) {
        let user = db.user("a@x").await.id;
        let new = NewConnection {
            next_refresh_at: Some(at(20)),
            backfill_ends_at: Some(at(90)),
            consent_expires_at: Some(at(5_000)),
            ..new_connection(user, "c")
        };
        let end = async |id| db.connections().find(user, id).await.unwrap().unwrap().consent_expires_at;
        let id = db.connections().import(&new, &[new_account("acc_1", "One")], at(10)).await.unwrap().id;
        assert_eq!(end(id).await, Some(at(5_000)));
        let refresh = db.claim(REFRESH, user, id, at(20), at(999)).await.unwrap().expect("claimed");
        let again = NewConnection { next_refresh_at: None, backfill_ends_at: None, consent_expires_at: None, ..new };
        db.connections().import(&again, &[], at(25)).await.unwrap();
        assert_eq!((db.column(id, "backfill_ends_at").await, end(id).await), (String::new(), None));
        let stale = async |refresh| {
            let found = [new_account("acc_9", "Nine")];
            assert!(!db.refreshes().apply(refresh, &found, true, at(36)).await.unwrap());
            assert!(!db.refreshes().set_status(refresh, Active, Revoked, "refreshed", at(36), at(36)).await.unwrap());
            assert!(!db.refreshes().set_consent_expiry(refresh, Some(at(9_000))).await.unwrap());
            assert!(!db.refreshes().finish_backfill(refresh, None).await.unwrap());
        };
        stale(&refresh).await;
        let refresh = db.claim(REFRESH, user, id, at(30), at(999)).await.unwrap().expect("claimed");
        assert_eq!(refresh.attempts, 0);
        let repaired =
            NewConnection { repairs: Some(id), provider_connection_id: "after", next_refresh_at: Some(at(40)), ..new };
        db.connections().import(&repaired, &[new_account("acc_1", "One")], at(35)).await.unwrap();
        stale(&refresh).await;
        assert_eq!(end(id).await, Some(at(5_000)), "that of the new consent");
        assert_eq!(ids(db, user).await.len(), 1);
        let found = db.connections().find(user, id).await.unwrap().unwrap();
        assert_eq!((found.status, found.last_refreshed_at), (Active, Some(at(35))));
        let refresh = db.claim_due(REFRESH, at(40), at(99), 8).await.unwrap().remove(0);
        assert_eq!((refresh.connection_id(), refresh.attempts), (id, 0));
        assert_eq!(db.refreshes().find_backfill_end(user, id).await.unwrap(), Some(at(90)));
    }

    async fn concurrent_repairs_leave_one_consent(db) {
        let user = db.user("a@x").await.id;
        let id = broken(db, user, "before", &[new_account("acc", "Name")]).await;
        let account = db.visible_accounts(user).await[0].id;
        let handles = [db.reopen().await, db.reopen().await];
        let (one, other) = tokio::join!(
            repair(&handles[0], (user, id), "after 1", &[]),
            repair(&handles[1], (user, id), "after 2", &[]),
        );
        assert_eq!((one.unwrap(), other.unwrap()), (id, id));
        assert_eq!(
            db.claim_due(REMOVAL, at(50), at(80), 8).await.unwrap().len(),
            2,
            "both former consents are withdrawn"
        );
        assert_eq!(
            (db.connections().list(user).await.unwrap().len(), db.visible_accounts(user).await[0].id),
            (1, account),
        );
    }

    async fn matched_accounts_keep_their_ids(db) {
        let user = db.user("a@x").await.id;
        let number = masked("xx 4321");
        let all = [new_account("acc_1", "A"), new_account("acc_2", "B"), new_account("acc_3", "C")];
        let id = db.connection(user, "c", &all).await.id;
        let elsewhere = db.connection(user, "other", &[new_account("acc_1", "Z")]).await.id;
        let before = ids(db, user).await;
        let [a, b, c, z] = [0, 1, 2, 3].map(|index: usize| before[index].0);
        let new = [
            // `a` is listed under its own id below, so this account is new.
            NewAccount { known_as: Some(a), ..new_account("new_1", "D") },
            NewAccount { known_as: Some(b), number: Some(&number), ..new_account("new_2", "E") },
            // The entry before it already continues `b`, so this account is new.
            NewAccount { known_as: Some(b), ..new_account("new_3", "F") },
            // Its provider id matches `a`, so `known_as` is ignored.
            NewAccount { known_as: Some(c), ..new_account("acc_1", "A") },
            NewAccount { known_as: Some(z), ..new_account("new_4", "G") },
            NewAccount { known_as: Some(AccountId::new()), ..new_account("new_5", "H") },
        ];
        // The second one hides what is no longer listed.
        for now in [20, 3_620] {
            assert!(db.refresh((user, id), &new, true, at(now)).await);
        }
        let after = ids(db, user).await;
        let names: Vec<&str> = after.iter().map(|(_, id)| id.as_str()).collect();
        assert_eq!(names, ["acc_1", "new_1", "new_2", "new_3", "new_4", "new_5", "acc_1"]);
        assert_eq!((after[0].0, after[2].0, after[6].0), (a, b, z));
        for index in [1, 3, 4, 5] {
            assert!(!before.iter().any(|(id, _)| *id == after[index].0), "{index} is new");
        }
        assert_eq!(db.accounts().list_of_connection(user, elsewhere).await.unwrap().len(), 1);
        let accounts = db.accounts().list_of_connection(user, id).await.unwrap();
        assert_eq!((accounts[2].name.as_str(), accounts[2].number.as_ref()), ("E", Some(&number)));
        let revision = db.revision(user).await;
        assert!(db.refresh((user, id), &new, true, at(3_630)).await);
        assert_eq!((ids(db, user).await, db.revision(user).await), (after, revision), "a repeat changes nothing");
    }
}
