//! Who may change what, and what the audit says of it, over a real database.

use bellbird_domain::{
    Actor, ActorKind, ApiVersion, ConnectionCategory, EventId, EventType, Plan, ProviderName,
    UserId,
};
use bellbird_storage::{AuditRow, NewConnection, NewUser, Sealer, Storage, UserChange};
use bellbird_webhooks::endpoint::EndpointUrl;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use tempfile::TempDir;
use uuid::Uuid;

use crate::endpoints::{CreatedEndpoint, EndpointChange, NewEndpoint};
use crate::health::{Backup, backup};
use crate::keys::{CreatedKey, NewKey};
use crate::{
    ManagementChange, Refusal, deliveries, endpoints, keys, provider_settings, setup_tokens,
    sign_in, users,
};

/// A user with a key and an endpoint, and another user.
struct World {
    storage: Storage,
    user: UserId,
    other: UserId,
    key: CreatedKey,
    endpoint: CreatedEndpoint,
    _folder: TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("test.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        storage.migrate().await.unwrap();
        let mut change = by_command(&storage).await;
        let user = add_user(&mut change, "a@example.com").await;
        let other = add_user(&mut change, "b@example.com").await;
        let key = keys::create(&mut change, new_key(user)).await.unwrap();
        let endpoint = endpoints::create(&mut change, new_endpoint(user, &checked()))
            .await
            .unwrap();
        change.commit().await.unwrap();
        Self {
            storage,
            user,
            other,
            key,
            endpoint,
            _folder: folder,
        }
    }

    async fn by_other(&self) -> ManagementChange<'_> {
        let (storage, session) = (&self.storage, Uuid::now_v7());
        storage
            .begin_own_change(self.other, session, now())
            .await
            .unwrap()
    }

    /// Of a user, newest first.
    async fn audit(&self, user: UserId) -> Vec<AuditRow> {
        let audit = self.storage.audit();
        audit.list_before(None, Some(user), 99).await.unwrap()
    }
}

fn now() -> Timestamp {
    "2026-11-20T09:30:00Z".parse().unwrap()
}

async fn by_command(storage: &Storage) -> ManagementChange<'_> {
    let by = Actor::command("root");
    storage.begin_change(by, now()).await.unwrap()
}

async fn add_user(change: &mut ManagementChange<'_>, email: &str) -> UserId {
    let new = NewUser {
        email,
        plan: Plan::Professional,
        timezone: None,
        reference: None,
        console_sign_in: true,
    };
    users::create(change, &new).await.unwrap().id
}

fn new_key<'a>(user_id: UserId) -> NewKey<'a> {
    NewKey {
        user_id,
        name: None,
        expires_at: None,
    }
}

fn checked() -> EndpointUrl {
    EndpointUrl {
        url: "https://hooks.example.com/".to_owned(),
        unresolved: None,
    }
}

fn new_endpoint(user_id: UserId, url: &EndpointUrl) -> NewEndpoint<'_> {
    NewEndpoint {
        user_id,
        url,
        events: None,
        api_version: None,
    }
}

fn is_not_found<T>(result: Result<T, Refusal>) -> bool {
    matches!(result, Err(Refusal::NotFound(_)))
}

#[tokio::test]
async fn user_reaches_only_what_is_theirs() {
    let world = World::start().await;
    let (user, key, endpoint) = (world.user, world.key.record.id, world.endpoint.endpoint.id);
    let mut change = world.by_other().await;
    let by = &mut change;
    let (url, grace) = (checked(), keys::DEFAULT_GRACE);
    assert!(is_not_found(keys::create(by, new_key(user)).await));
    assert!(is_not_found(keys::rotate(by, key, grace).await));
    assert!(is_not_found(keys::revoke(by, key).await));
    assert!(is_not_found(setup_tokens::create(by, user, None).await));
    assert!(is_not_found(setup_tokens::revoke(by, user).await));
    assert!(is_not_found(
        endpoints::create(by, new_endpoint(user, &url)).await
    ));
    let to = EndpointChange::default();
    assert!(is_not_found(endpoints::update(by, endpoint, to).await));
    assert!(is_not_found(endpoints::enable(by, endpoint).await));
    assert!(is_not_found(endpoints::disable(by, endpoint).await));
    assert!(is_not_found(endpoints::rotate_secret(by, endpoint).await));
    assert!(is_not_found(endpoints::remove(by, endpoint).await));
    let event = EventId::new();
    assert!(is_not_found(
        deliveries::redeliver(by, endpoint, None, event).await
    ));
    let found = &world.endpoint.endpoint;
    assert!(is_not_found(
        deliveries::recover(by, found, user, now()).await
    ));
    assert!(is_not_found(
        deliveries::record_recovery(by, found, user).await
    ));
    assert!(is_not_found(endpoints::record_ping(by, found).await));
    let to = UserChange::default();
    assert!(is_not_found(users::update(by, user, &to).await));
    assert!(is_not_found(users::set_emails_off(by, user, &[]).await));
    assert!(is_not_found(users::remove(by, user).await));
    assert!(is_not_found(users::begin_removal(by, user).await));
    let session = Uuid::now_v7();
    assert!(is_not_found(sign_in::end_session(by, user, session).await));
    assert!(is_not_found(
        sign_in::end_other_sessions(by, user, session).await
    ));
    assert!(is_not_found(sign_in::end_all_sessions(by, user).await));
    assert!(is_not_found(sign_in::forget_identities(by, user).await));
    assert!(is_not_found(sign_in::create_link(by, user, "").await));
    drop(change);
    let mut change = world.by_other().await;
    let own = keys::create(&mut change, new_key(world.other))
        .await
        .unwrap();
    assert!(keys::revoke(&mut change, own.record.id).await.is_ok());
}

#[tokio::test]
async fn audit_says_who_did_what() {
    let world = World::start().await;
    let mut change = world.by_other().await;
    let own = keys::create(&mut change, new_key(world.other))
        .await
        .unwrap();
    change.commit().await.unwrap();
    let rows = world.audit(world.other).await;
    assert_eq!(rows.len(), 2);
    let row = &rows[0];
    assert_eq!(
        (row.actor.kind, &*row.action),
        (ActorKind::User, "key.create")
    );
    assert_eq!(row.subject, Some(own.record.id.to_string()));
    assert_eq!(row.detail.as_deref(), Some("default"));
    let rows = world.audit(world.user).await;
    let actions: Vec<_> = rows.iter().rev().map(|row| &*row.action).collect();
    assert_eq!(
        actions,
        ["user.create", "key.create", "webhook_endpoint.create"]
    );
    let root = Actor::command("root");
    assert!(rows.iter().all(|row| row.actor == root), "{rows:?}");
    let details: Vec<_> = rows.iter().rev().map(|row| row.detail.as_deref()).collect();
    assert_eq!(details, [Some("plan: professional"), None, None]);
}

/// The values of what names nobody, and else the names only: the row outlives the user.
#[tokio::test]
async fn audit_says_what_an_operator_changed() {
    let world = World::start().await;
    let to = UserChange {
        email: Some("new@example.com"),
        plan: Some(Plan::Saver),
        reference: Some(Some("customer-17")),
        ..UserChange::default()
    };
    let url = EndpointUrl {
        url: "https://hooks.example.com/secret".to_owned(),
        unresolved: None,
    };
    let endpoint = EndpointChange {
        url: Some(&url),
        enabled: Some(false),
        ..EndpointChange::default()
    };
    let mut change = by_command(&world.storage).await;
    for _ in 0..2 {
        users::update(&mut change, world.user, &to).await.unwrap();
    }
    for _ in 0..2 {
        endpoints::update(&mut change, world.endpoint.endpoint.id, endpoint)
            .await
            .unwrap();
    }
    change.commit().await.unwrap();
    let rows = world.audit(world.user).await;
    let details: Vec<_> = rows.iter().map(|row| row.detail.as_deref()).collect();
    assert_eq!(
        details[..4],
        [
            Some("nothing new"),
            Some("URL, enabled or disabled"),
            Some("nothing new"),
            Some("plan: professional → saver, may sign in: yes → no, e-mail address, reference"),
        ]
    );
}

#[tokio::test]
async fn only_a_command_makes_an_operator() {
    let world = World::start().await;
    let to = UserChange {
        is_operator: Some(true),
        ..UserChange::default()
    };
    let operator = Actor::operator(world.other);
    for by in [operator, Actor::operator_key(Default::default())] {
        let mut change = world.storage.begin_change(by, now()).await.unwrap();
        let made = users::update(&mut change, world.user, &to).await;
        assert!(matches!(made, Err(Refusal::CommandsOnly)));
    }
    let mut change = by_command(&world.storage).await;
    let made = users::update(&mut change, world.user, &to).await.unwrap();
    assert!(made.is_operator);
}

#[tokio::test]
async fn endpoint_of_a_user_gets_no_events_of_all() {
    let world = World::start().await;
    let (url, mut change) = (checked(), by_command(&world.storage).await);
    let wrong = NewEndpoint {
        events: Some(&[EventType::UserRemoved]),
        ..new_endpoint(world.user, &url)
    };
    let made = endpoints::create(&mut change, wrong).await;
    assert!(matches!(
        made,
        Err(Refusal::ForAllUsersOnly(EventType::UserRemoved))
    ));
    let all = NewEndpoint {
        user_id: UserId::INSTALLATION,
        ..wrong
    };
    let made = endpoints::create(&mut change, all).await.unwrap();
    assert_eq!(made.endpoint.api_version, ApiVersion::NEWEST);
}

#[tokio::test]
async fn settings_of_providers_are_in_the_audit_without_values() {
    let world = World::start().await;
    let fiskil = ProviderName::new("fiskil");
    let values = [("client_secret".to_owned(), "hidden-17".into())].into();
    let mut change = by_command(&world.storage).await;
    provider_settings::set(&mut change, fiskil, &values)
        .await
        .unwrap();
    provider_settings::remove(&mut change, fiskil)
        .await
        .unwrap();
    provider_settings::use_sandbox(&mut change, fiskil)
        .await
        .unwrap();
    change.commit().await.unwrap();
    let rows = world
        .storage
        .audit()
        .list_before(None, None, 3)
        .await
        .unwrap();
    let actions: Vec<_> = rows.iter().map(|row| row.action.as_str()).collect();
    assert_eq!(
        actions,
        [
            "provider_settings.use_sandbox",
            "provider_settings.remove",
            "provider_settings.set"
        ]
    );
    assert!(
        rows.iter()
            .all(|row| row.subject.as_deref() == Some("fiskil") && row.detail.is_none())
    );
    assert!(!format!("{rows:?}").contains("hidden-17"));
}

async fn connect(world: &World, provider: ProviderName) {
    let credentials = SecretString::from("{}");
    let new = NewConnection {
        user_id: world.user,
        provider: provider.as_str(),
        category: ConnectionCategory::Banking,
        provider_connection_id: provider.as_str(),
        institution_id: "bank",
        institution_name: "Bank",
        institution_logo: None,
        credentials: &credentials,
        provider_user_id: None,
        consent_expires_at: None,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        next_sync_at: now(),
        first_attempt_at: now(),
        cause: "imported",
    };
    let connections = world.storage.connections();
    connections.import(&new, &[], now()).await.unwrap();
}

#[tokio::test]
async fn sandbox_with_a_connection_is_neither_stopped_nor_replaced() {
    let world = World::start().await;
    let fiskil = ProviderName::new("fiskil");
    let values = [("client_secret".to_owned(), "real".into())].into();
    let mut change = by_command(&world.storage).await;
    provider_settings::use_sandbox(&mut change, fiskil)
        .await
        .unwrap();
    change.commit().await.unwrap();
    connect(&world, fiskil).await;
    let mut change = by_command(&world.storage).await;
    let stopped = provider_settings::remove(&mut change, fiskil).await;
    assert!(matches!(stopped, Err(Refusal::ProviderInUse)));
    let replaced = provider_settings::set(&mut change, fiskil, &values).await;
    assert!(matches!(replaced, Err(Refusal::ProviderInUse)));
    provider_settings::use_sandbox(&mut change, fiskil)
        .await
        .unwrap();
    change.commit().await.unwrap();

    let akahu = ProviderName::new("akahu");
    let mut change = by_command(&world.storage).await;
    provider_settings::set(&mut change, akahu, &values)
        .await
        .unwrap();
    change.commit().await.unwrap();
    connect(&world, akahu).await;
    let mut change = by_command(&world.storage).await;
    let simulated = provider_settings::use_sandbox(&mut change, akahu).await;
    assert!(matches!(simulated, Err(Refusal::ProviderInUse)));
    // The connections wait for other credentials of the same provider.
    provider_settings::remove(&mut change, akahu).await.unwrap();
    let simulated = provider_settings::use_sandbox(&mut change, akahu).await;
    assert!(matches!(simulated, Err(Refusal::ProviderInUse)));
}

#[tokio::test]
async fn backup_is_old_after_two_days() {
    let world = World::start().await;
    let found = async |now: Timestamp| backup(&world.storage, now).await.unwrap();
    let Some(Backup::NoneYet(created)) = found(Timestamp::UNIX_EPOCH).await else {
        panic!("no database was created before 1970");
    };
    let two_days = created + SignedDuration::from_hours(48);
    assert_eq!(found(two_days).await, Some(Backup::NoneYet(created)));
    let later = two_days + SignedDuration::from_secs(1);
    assert_eq!(found(later).await, Some(Backup::Old(created)));
}
