//! What operators enter for providers, and the instances that follow it.

use std::collections::BTreeMap;
use std::time::Duration;

use bellbird::config::Settings;
use bellbird::wiring::Wiring;
use bellbird_domain::{Actor, Clock, ProviderName};
use bellbird_management::provider_settings;
use bellbird_providers::Registry;
use bellbird_providers::registry::declaration;
use bellbird_storage::{Instance, Sealer, Storage};
use jiff::Timestamp;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

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
    };
    storage.instances().renew(&instance, now).await.unwrap();
}

async fn wait_for(registries: &[Registry], is_enabled: bool) {
    let is_there = |registry: &Registry| registry.find("fiskil").is_some() == is_enabled;
    let all = async {
        while !registries.iter().all(is_there) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all)
        .await
        .expect("every instance follows");
}

#[tokio::test]
async fn every_instance_follows_and_calls_in_flight_end() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    let (settings, sealer) = (Settings::default(), Sealer::random());
    let first = Storage::open(&url, sealer.clone()).await.unwrap();
    first.migrate().await.unwrap();
    let second = Storage::open(&url, sealer).await.unwrap();
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
        let credentials = [("client_id", "id"), ("client_secret", "secret")];
        let credentials = credentials
            .map(|(name, value)| (name.to_owned(), SecretString::from(value)))
            .into();
        if remove {
            provider_settings::remove(&mut change, FISKIL)
                .await
                .unwrap();
        } else {
            provider_settings::set(&mut change, FISKIL, &credentials)
                .await
                .unwrap();
        }
        change.commit().await.unwrap();
        renew(&first, 1).await;
        renew(&second, 2).await;
    };
    change(false).await;
    wait_for(&registries, true).await;
    let held = registries[1].find("fiskil").unwrap();
    change(true).await;
    wait_for(&registries, false).await;
    assert_eq!(
        held.name(),
        FISKIL,
        "whoever holds the old one uses it to the end"
    );
    stop.cancel();
}

#[tokio::test]
async fn what_the_settings_have_wins() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    let storage = Storage::open(&url, Sealer::random()).await.unwrap();
    storage.migrate().await.unwrap();
    let mut settings = Settings::default();
    let declared = declaration("fiskil").unwrap();
    for name in ["client_id", "client_secret"] {
        settings
            .providers
            .section(declared)
            .set(name, "of the settings".into());
    }
    let by = Actor::command("root");
    let mut change = storage.begin_change(by, Timestamp::now()).await.unwrap();
    provider_settings::use_sandbox(&mut change, FISKIL)
        .await
        .unwrap();
    change.commit().await.unwrap();
    let wiring = Wiring::new(&settings, &storage).await.unwrap();
    assert!(wiring.provider_loader.is_configured(declared));
    assert!(wiring.providers.find("fiskil").is_some() && !wiring.providers.is_sandbox("fiskil"));
}
