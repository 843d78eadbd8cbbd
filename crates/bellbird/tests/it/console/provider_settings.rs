//! What operators enter for providers, and the instances that follow it.

use std::collections::BTreeMap;

use bellbird::config::Settings;
use bellbird::provider_loader::simulate_others;
use bellbird::public_info::PublicInfo;
use bellbird::wiring::Wiring;
use bellbird_console::ProviderControl as _;
use bellbird_domain::{Actor, Clock, ConnectionCategory, Plan, ProviderName};
use bellbird_management::provider_settings;
use bellbird_providers::Registry;
use bellbird_providers::registry::declaration;
use bellbird_storage::{Instance, NewConnection, NewUser, Sealer, Storage, StoredConsole, in_tx};
use jiff::Timestamp;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::harness::eventually;
use crate::support::words::assert_has;

const FISKIL: ProviderName = ProviderName::new("fiskil");

/// As an instance does every five seconds.
async fn renew(storage: &Storage, id: u128) {
    let now = Timestamp::now();
    let instance = Instance {
        id: Uuid::from_u128(id),
        version: String::new(),
        host: String::new(),
        api_url: String::new(),
        roles: Vec::new(),
        boot_id: String::new(),
        console_url: String::new(),
        key_ids: Vec::new(),
        settings: BTreeMap::new(),
        allow_loopback: false,
        started_at: now,
        last_seen_at: now,
        clock_ahead_ms: 0,
        provider_calls: Default::default(),
    };
    storage.instances().renew(&instance, now).await.unwrap();
}

/// The database in a folder.
async fn open(folder: &TempDir, sealer: Sealer) -> Storage {
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    Storage::open(&url, sealer).await.unwrap()
}

async fn migrated(folder: &TempDir, sealer: Sealer) -> Storage {
    let storage = open(folder, sealer).await;
    storage.migrate().await.unwrap();
    storage
}

/// As an operator enters it.
async fn use_sandbox(storage: &Storage) {
    let by = Actor::command("root");
    let mut change = storage.begin_change(by, Timestamp::now()).await.unwrap();
    let used = provider_settings::use_sandbox(&mut change, FISKIL).await;
    used.unwrap();
    change.commit().await.unwrap();
}

async fn wait_for(registries: &[Registry], is_enabled: bool) {
    let is_there = |registry: &Registry| registry.find("fiskil").is_some() == is_enabled;
    eventually(async || registries.iter().all(is_there)).await;
}

#[tokio::test]
async fn every_instance_follows_and_calls_in_flight_end() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, sealer) = (Settings::default(), Sealer::random());
    let first = migrated(&folder, sealer.clone()).await;
    let second = open(&folder, sealer).await;
    let stop = CancellationToken::new();
    let mut registries = Vec::new();
    for storage in [&first, &second] {
        let wiring = Wiring::with_clock(&settings, storage, Clock::system(), None).unwrap();
        registries.push(wiring.providers.clone());
        let (loader, stop) = (wiring.provider_loader, stop.clone());
        tokio::spawn(async move { loader.follow(&stop).await });
    }
    let change = async |remove: bool| {
        let by = Actor::command("root");
        let mut change = first.begin_change(by, Timestamp::now()).await.unwrap();
        let changed = if remove {
            provider_settings::remove(&mut change, FISKIL).await
        } else {
            let credentials = [("client_id", "id"), ("client_secret", "secret")]
                .map(|(name, value)| (name.to_owned(), SecretString::from(value)));
            provider_settings::set(&mut change, FISKIL, &credentials.into()).await
        };
        changed.unwrap();
        change.commit().await.unwrap();
        renew(&first, 1).await;
        renew(&second, 2).await;
    };
    change(false).await;
    wait_for(&registries, true).await;
    let held = registries[1].find("fiskil").unwrap();
    change(true).await;
    wait_for(&registries, false).await;
    // Whoever holds the old one uses it to the end.
    assert_eq!(held.name(), FISKIL);
    stop.cancel();
}

#[tokio::test]
async fn every_instance_follows_the_name_and_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, sealer) = (Settings::default(), Sealer::random());
    let first = migrated(&folder, sealer.clone()).await;
    let second = open(&folder, sealer).await;
    let stop = CancellationToken::new();
    let mut instances = Vec::new();
    for storage in [&first, &second] {
        let wiring = Wiring::with_clock(&settings, storage, Clock::system(), None).unwrap();
        let (public, loader) = (PublicInfo::default(), wiring.provider_loader);
        let (followed, of_settings) = (public.clone(), settings.clone());
        let listeners = ["http://127.0.0.1:8080", "http://127.0.0.1:8081"].map(str::to_owned);
        loader.follow_console(move |entered| followed.apply(&of_settings, &listeners, entered));
        loader.apply().await.unwrap();
        instances.push(public);
        let stop = stop.clone();
        tokio::spawn(async move { loader.follow(&stop).await });
    }
    let url = "https://bellbird.example.com";
    let entered = StoredConsole {
        operator_name: Some("Example Ltd".to_owned()),
        public_url: Some(url.to_owned()),
    };
    let by = Actor::command("root");
    let mut change = first.begin_change(by, Timestamp::now()).await.unwrap();
    let set = provider_settings::set_console(&mut change, &entered, "console.public_url").await;
    set.unwrap();
    change.commit().await.unwrap();
    renew(&first, 1).await;
    renew(&second, 2).await;
    let expected = [url, url, "Example Ltd"];
    let follows = |public: &PublicInfo| public.texts().iter().map(|text| &**text).eq(expected);
    eventually(async || instances.iter().all(follows)).await;
    stop.cancel();
}

#[tokio::test]
async fn what_the_settings_have_wins() {
    let folder = tempfile::tempdir().unwrap();
    let storage = migrated(&folder, Sealer::random()).await;
    let mut settings = Settings::default();
    let declared = declaration("fiskil").unwrap();
    for name in ["client_id", "client_secret"] {
        let section = settings.providers.section(declared);
        section.set(name, "of the settings".into());
    }
    use_sandbox(&storage).await;
    let wiring = Wiring::new(&settings, &storage).await.unwrap();
    assert!(wiring.provider_loader.is_configured(declared));
    assert!(wiring.providers.find("fiskil").is_some() && !wiring.providers.is_sandbox("fiskil"));
}

/// The real provider would be called with what the simulated one has issued.
#[tokio::test]
async fn configured_provider_with_connections_of_the_sandbox_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let storage = migrated(&folder, Sealer::random()).await;
    let declared = declaration("fiskil").unwrap();
    let mut settings = Settings::default();
    for name in declared.needs {
        let section = settings.providers.section(declared);
        section.set(name, "of the settings".into());
    }
    let is_sandbox = async || {
        let stored = storage.provider_settings().list().await.unwrap();
        stored[0].is_sandbox
    };
    // Without connections, the next one is of the real provider.
    use_sandbox(&storage).await;
    let wiring = Wiring::new(&settings, &storage).await.unwrap();
    wiring.provider_loader.end_unused_sandbox().await.unwrap();
    assert!(wiring.providers.find("fiskil").is_some() && !is_sandbox().await);

    use_sandbox(&storage).await;
    let now = Timestamp::now();
    let new = NewUser {
        email: "me@example.com",
        plan: Plan::Professional,
        timezone: None,
        reference: None,
        console_sign_in: true,
    };
    let user = in_tx!(storage, user::insert(&new, now)).await.unwrap();
    let credentials = SecretString::from("{}");
    let new = NewConnection {
        user_id: user.id,
        provider: "fiskil",
        category: ConnectionCategory::Banking,
        provider_connection_id: "consent",
        institution_id: "bank",
        institution_name: "Bank",
        institution_logo: None,
        credentials: &credentials,
        provider_user_id: None,
        consent_expires_at: None,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        next_sync_at: now,
        first_attempt_at: now,
        cause: "imported",
    };
    storage.connections().import(&new, &[], now).await.unwrap();
    let wiring = Wiring::new(&settings, &storage).await.unwrap();
    let loader = &wiring.provider_loader;
    loader.end_unused_sandbox().await.unwrap();
    loader.apply().await.unwrap();
    assert!(wiring.providers.find("fiskil").is_none() && is_sandbox().await);
    let reason = loader.left_out(declared).unwrap();
    assert_has(&reason, "of the sandbox");
    assert!(
        wiring.providers.is_sandbox("fiskil"),
        "they are still marked"
    );
}

/// Such as with the state of another version, or after a move to a build without simulations.
#[tokio::test]
async fn simulated_provider_that_cannot_run_is_still_marked() {
    let folder = tempfile::tempdir().unwrap();
    let storage = migrated(&folder, Sealer::random()).await;
    use_sandbox(&storage).await;
    let settings = Settings::default();
    let wiring = Wiring::with_clock(&settings, &storage, Clock::system(), None).unwrap();
    wiring.provider_loader.apply().await.unwrap();
    assert!(wiring.providers.find("fiskil").is_none());
    assert!(wiring.providers.is_sandbox("fiskil") && !wiring.providers.is_sandbox("akahu"));
    let by = Actor::command("root");
    let mut change = storage.begin_change(by, Timestamp::now()).await.unwrap();
    let removed = provider_settings::remove(&mut change, FISKIL).await;
    removed.unwrap();
    change.commit().await.unwrap();
    wiring.provider_loader.apply().await.unwrap();
    assert!(!wiring.providers.is_sandbox("fiskil"));
}

/// `init --sandbox` and `serve --sandbox`.
#[tokio::test]
async fn others_are_simulated_and_nothing_entered_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let storage = migrated(&folder, Sealer::random()).await;
    let by = Actor::command("root");
    let now = Timestamp::now();
    let mut change = storage.begin_change(by.clone(), now).await.unwrap();
    let values = [("client_id".to_owned(), "id".into())].into();
    let set = provider_settings::set(&mut change, FISKIL, &values).await;
    set.unwrap();
    change.commit().await.unwrap();
    let other_key = open(&folder, Sealer::random()).await;
    let stored = other_key.provider_settings().list().await.unwrap();
    assert!(stored[0].is_sealed);
    let mut change = other_key.begin_change(by, now).await.unwrap();
    let in_use = simulate_others(&Settings::default(), &stored, &mut change).await;
    assert!(in_use.unwrap().is_empty());
    change.commit().await.unwrap();
    let stored = storage.provider_settings().list().await.unwrap();
    let shown: Vec<_> = stored
        .iter()
        .map(|stored| (stored.provider.as_str(), stored.is_sandbox))
        .collect();
    let expected = [("akahu", true), ("fiskil", false), ("snaptrade", true)];
    assert_eq!(shown, expected);
    assert!(stored[1].credentials.is_some());
}
