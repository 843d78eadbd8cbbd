//! What the operator and the command line list and count over all users, and other reads that no
//! other test of the crate makes.

use bellbird_domain::{
    Actor, ApiVersion, ConnectionId, ConnectionStatus, DeliveryState, EndpointId, EventId,
    EventType, Plan, UserId,
};

use crate::job_kinds::{REFRESH, USER_REMOVAL};
use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, connection_to_sync, endpoint, finish_sync_with, new_link, secret,
    sign_in_link,
};
use crate::tests::support::{assert_fails, at, both, key, setup_token};
use crate::{
    AuditAction, AuditFilter, JobKey, NewEndpoint, NewSetupToken, NewUser, USER_BEING_REMOVED,
    UserChange, UserFilter, UserNeed, in_tx,
};

const HOUR: i64 = 3_600;

both! {
    async fn users_connections_and_endpoints_have_pages(db) {
        let (one, two) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let first = db.users().list_after(None, 1).await.unwrap();
        let rest = db.users().list_after(Some(first[0].id), 9).await.unwrap();
        assert_eq!((first[0].id, rest.len(), rest[0].id), (one, 1, two));
        assert_eq!(db.users().count_by_plan().await.unwrap(), [(Plan::Professional, 2)]);

        let mut ids = Vec::new();
        for (user, consent) in [(one, "c1"), (two, "c2"), (two, "c3")] {
            ids.push(db.connection(user, consent, &[]).await.id);
        }
        let page = async |after: Option<ConnectionId>, user, limit| {
            let found = db.connections().list_after(after, user, limit).await.unwrap();
            found.iter().map(|connection| connection.id).collect::<Vec<_>>()
        };
        assert_eq!(page(None, None, 2).await, ids[..2]);
        assert_eq!(page(Some(ids[1]), None, 2).await, ids[2..]);
        assert_eq!(page(None, Some(two), 9).await, ids[1..]);
        assert_eq!(page(Some(ids[1]), Some(two), 9).await, ids[2..]);
        let counts = db.connections().count_by_user(one, two).await.unwrap();
        assert_eq!((counts[&one], counts[&two]), ((1, 0), (2, 0)));
        let (active, revoked) = (ConnectionStatus::Active, ConnectionStatus::Revoked);
        assert!(db.set_status((two, ids[2]), active, revoked, at(600)).await);
        let counts = db.connections().count_by_user(one, two).await.unwrap();
        assert_eq!((counts[&one], counts[&two]), ((1, 0), (2, 1)));

        let mut ids = Vec::new();
        for user in [one, two, two] {
            ids.push(endpoint(db, user, SYNCS_AND_CHANGES).await);
        }
        let page = async |after: Option<EndpointId>, user, limit| {
            let found = db.endpoints().list_after(after, user, limit).await.unwrap();
            found.iter().map(|endpoint| endpoint.id).collect::<Vec<_>>()
        };
        assert_eq!(page(None, None, 2).await, ids[..2]);
        assert_eq!(page(Some(ids[1]), None, 2).await, ids[2..]);
        assert_eq!(page(None, Some(two), 9).await, ids[1..]);
        assert_eq!(page(Some(ids[1]), Some(two), 9).await, ids[2..]);
    }

    async fn users_are_found_by_part_plan_and_trouble(db) {
        let zoe = NewUser {
            email: "Zoë_100%@Example.com",
            plan: Plan::Saver,
            timezone: None,
            reference: Some("Customer-17"),
            console_sign_in: true,
        };
        let zoe = in_tx!(db, user::insert(&zoe, at(0))).await.unwrap().id;
        let (bob, eve) = (db.user("bob@example.com").await.id, db.user("eve@x").await.id);
        let broken = db.connection(bob, "c1", &[]).await.id;
        db.connection(eve, "c2", &[]).await;
        let (active, revoked) = (ConnectionStatus::Active, ConnectionStatus::Revoked);
        assert!(db.set_status((bob, broken), active, revoked, at(600)).await);
        let ids = async |filter: UserFilter<'_>| {
            let found = db.users().list_matching(&filter, None, 9).await.unwrap();
            found.iter().map(|user| user.id).collect::<Vec<_>>()
        };
        let all = UserFilter::default();
        assert_eq!(ids(all).await, [zoe, bob, eve]);
        let nobody: &[UserId] = &[];
        for (part, found) in [
            ("EXAMPLE", &[zoe, bob][..]),
            ("zoË_", &[zoe]),
            ("0%@", &[zoe]),
            ("mer-1", &[zoe]),
            ("mer-2", nobody),
            ("%", &[zoe]),
            ("_", &[zoe]),
            ("' OR 1", nobody),
        ] {
            assert_eq!(ids(UserFilter { part, ..all }).await, found, "{part}");
        }
        let plan = |plan| UserFilter { plan: Some(plan), ..all };
        assert_eq!(ids(plan(Plan::Saver)).await, [zoe]);
        assert_eq!(ids(UserFilter { part: "bob", ..plan(Plan::Saver) }).await, nobody);
        let with = |status, provider| UserFilter { connection: Some((status, provider)), ..all };
        assert_eq!(ids(with(revoked, None)).await, [bob]);
        assert_eq!(ids(with(revoked, Some("akahu"))).await, [bob]);
        assert_eq!(ids(with(revoked, Some("fiskil"))).await, nobody);
        assert_eq!(ids(with(active, None)).await, [eve]);

        let needing = |need| UserFilter { needs: Some(need), ..all };
        let (attention, bank) = (needing(UserNeed::Attention), needing(UserNeed::Bank));
        assert_eq!((ids(attention).await, ids(bank).await), (vec![bob], vec![bob]));
        let id = endpoint(db, zoe, SYNCS_AND_CHANGES).await;
        in_tx!(db, endpoints::disable((zoe, id), "by user", at(1))).await.unwrap().unwrap();
        assert_eq!(ids(attention).await, [bob], "what is wanted needs no attention");
        assert!(db.endpoints().count_stopped_by_user(zoe, eve).await.unwrap().is_empty());
        in_tx!(db, endpoints::disable((zoe, id), "failing", at(1))).await.unwrap().unwrap();
        assert_eq!((ids(attention).await, ids(bank).await), (vec![zoe, bob], vec![bob]));
        assert_eq!(db.endpoints().count_stopped_by_user(zoe, eve).await.unwrap(), [(zoe, 1)].into());
        let rest = db.users().list_matching(&attention, Some(zoe), 9).await.unwrap();
        assert_eq!((rest.len(), rest[0].id), (1, bob));
        for (filter, last, limit, counted) in [
            (all, None, 9, (3, 0)),
            (all, Some(bob), 9, (3, 2)),
            (all, Some(eve), 2, (2, 2)),
            (attention, Some(bob), 9, (2, 2)),
            (bank, Some(zoe), 9, (1, 0)),
            (UserFilter { part: "nobody", ..all }, None, 9, (0, 0)),
        ] {
            let found = db.users().count_matching(&filter, last, limit).await.unwrap();
            assert_eq!(found, counted, "{filter:?}");
        }
        let to = UserChange { is_operator: Some(true), ..UserChange::default() };
        db.change_user(eve, &to).await;
        assert_eq!(ids(UserFilter { operators_only: true, ..all }).await, [eve]);
    }

    async fn audit_is_filtered(db) {
        let user = db.user("a@x").await.id;
        let (root, ben) = (Actor::command("root"), Actor::operator(UserId::new()));
        for (by, name, about, time) in [
            (&root, "key.create", user, 0),
            (&ben, "key_test.create", user, 10),
            (&ben, "user.update", user, 20),
            (&root, "user.create", UserId::INSTALLATION, 30),
        ] {
            let mut change = db.begin_change(by.clone(), at(time)).await.unwrap();
            change.record(&AuditAction::of_user(name, about).changing("plan")).await.unwrap();
            change.commit().await.unwrap();
        }
        let actions = async |filter: AuditFilter<'_>| {
            let found = db.audit().list_matching(&filter, None, 9).await.unwrap();
            assert!(found.iter().all(|row| row.detail.as_deref() == Some("plan")));
            found.into_iter().map(|row| row.action).collect::<Vec<_>>()
        };
        let all = AuditFilter::default();
        assert_eq!(actions(all).await.len(), 4);
        let of_user = AuditFilter { user: Some(user), ..all };
        assert_eq!(actions(of_user).await, ["user.update", "key_test.create", "key.create"]);
        assert_eq!(actions(AuditFilter { subject: "key", ..all }).await, ["key.create"]);
        assert_eq!(actions(AuditFilter { subject: "user", ..all }).await, ["user.create", "user.update"]);
        assert_eq!(actions(AuditFilter { subject: "user", ..of_user }).await, ["user.update"]);
        let by = AuditFilter { actor_kind: Some(ben.kind), ..all };
        assert_eq!(actions(by).await, ["user.update", "key_test.create"]);
        assert_eq!(actions(AuditFilter { actor_id: Some(&ben.id), ..all }).await.len(), 2);
        assert_eq!(actions(AuditFilter { actor_id: Some("root"), since: Some(at(30)), ..all }).await, ["user.create"]);
        assert_eq!(actions(AuditFilter { since: Some(at(31)), ..all }).await, [""; 0]);
        let between = AuditFilter { since: Some(at(10)), until: Some(at(20)), ..all };
        assert_eq!(actions(between).await, ["key_test.create"]);
    }

    async fn deliveries_are_found_alone_and_by_their_run(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let types = [EventType::TransactionsSynced];
        let (own, of_all) =
            (endpoint(db, user, SYNCS_AND_CHANGES).await, endpoint(db, UserId::INSTALLATION, &types).await);
        let events = [chunk(1, 3), chunk(2, 3), chunk(3, 3)];
        let (run, _) = finish_sync_with(db, (user, connection), 30, &events).await;
        let found = db.deliveries().find(user, own, events[1].id).await.unwrap().expect("there");
        assert_eq!((found.event_id, found.state), (events[1].id, DeliveryState::Waiting));
        assert!(db.deliveries().find(user, own, EventId::new()).await.unwrap().is_none());
        let waiting = db.webhook_events().list_waiting_chunks((user, own), run, 1, 9).await.unwrap();
        let waiting: Vec<_> = waiting.iter().map(|event| event.id).collect();
        assert_eq!(waiting, [events[1].id, events[2].id]);

        let failed = async || {
            let state = Some(DeliveryState::Failed);
            db.deliveries().list(UserId::INSTALLATION, of_all, state, 9).await.unwrap().len()
        };
        assert_eq!(failed().await, 0);
        let ended = in_tx!(db, endpoints::disable((UserId::INSTALLATION, of_all), "test", at(40))).await;
        assert_eq!(ended.unwrap(), Some(failed().await as u64));
    }

    async fn jobs_are_deferred_without_a_run(db) {
        let user = db.user("a@x").await.id;
        let id = db.connection(user, "c", &[]).await.id;
        let claim = db.claim(REFRESH, user, id, at(20), at(90)).await.unwrap().expect("claimed");
        assert!(db.jobs().defer(&claim, at(60)).await.unwrap());
        assert!(!db.jobs().defer(&claim, at(70)).await.unwrap(), "it is not held any more");
        let run_at = db.texts("SELECT CAST(run_at AS TEXT) FROM jobs WHERE kind = 'refresh'").await;
        assert_eq!(run_at, [at(60).as_microsecond().to_string()]);
        assert_eq!(db.instances().last_job_started_at().await.unwrap(), Some(at(20)));
        assert_eq!(db.instances().connections_max().await.unwrap().is_some(), db.kind() != "sqlite");
    }

    async fn connections_go_with_their_user(db) {
        let user = db.user("a@x").await.id;
        db.connection(user, "c", &[]).await;
        in_tx!(db, removal::begin(user, at(30))).await.unwrap();
        let link = sign_in_link(user, "link", 90);
        assert_fails!(db.sessions().insert_link(&link, 9, at(31)).await, Conflict(USER_BEING_REMOVED));
        let inserted = in_tx!(db, keys::insert(user, &key(1), "k", None, at(31))).await;
        assert_fails!(inserted, Conflict(USER_BEING_REMOVED));
        let inserted = in_tx!(db, links::insert(&new_link(user, "link", at(90)), at(31))).await;
        assert_fails!(inserted, Conflict(USER_BEING_REMOVED));
        let token = setup_token(1);
        let new_token = NewSetupToken { user_id: user, token: &token, name: "k", expires_at: at(90) };
        let inserted = in_tx!(db, setup_tokens::insert(&new_token, at(31))).await;
        assert_fails!(inserted, Conflict(USER_BEING_REMOVED));
        let new_endpoint = NewEndpoint {
            user_id: user,
            url: "https://hooks.example.com/x",
            event_types: SYNCS_AND_CHANGES,
            api_version: ApiVersion::DEFAULT,
            secret: &secret("whsec"),
        };
        let inserted = in_tx!(db, endpoints::insert(db.secrets(), &new_endpoint, 20, at(31))).await;
        assert_fails!(inserted, Conflict(USER_BEING_REMOVED));
        in_tx!(db, removal::begin(user, at(32))).await.unwrap();
        let job = JobKey::new(USER_REMOVAL, user, user);
        let claim = db.jobs().claim(&job, at(30), at(90)).await.unwrap().expect("claimed");
        let left = db.users().hide_connections(&claim, at(40)).await.unwrap();
        assert_eq!(left, Some(1), "its consent is still to be withdrawn");
    }

    async fn audit_is_kept_for_two_years(db) {
        let created_at = db.audit().unsaved_since(at(0)).await.unwrap();
        assert_eq!(created_at.is_some(), db.kind() == "sqlite", "without a backup, when SQLite was created");
        let backup = format!(
            "INSERT INTO audit (id, actor_kind, actor_id, action, user_id, is_reported, recorded_at)
                VALUES ('{id}', 'command', 'root', 'database.backup', '{id}', 0, {at})",
            id = EventId::new(),
            at = at(1).as_microsecond(),
        );
        db.raw(&backup).await;
        assert_eq!(db.audit().unsaved_since(at(1)).await.unwrap(), Some(at(1)));
        assert_eq!(db.audit().unsaved_since(at(0)).await.unwrap(), created_at, "a clock was ahead");
        assert_eq!(db.audit().delete_outdated(at(2 * 365 * 24 * HOUR)).await.unwrap(), 0);
        assert_eq!(db.audit().delete_outdated(at(3 * 365 * 24 * HOUR)).await.unwrap(), 1);
    }
}
