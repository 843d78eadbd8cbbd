//! Tests of the store. Those with a real server are below `valkey`.

mod valkey;

use std::time::Duration;

use super::{SharedStore, StoreSettings, TimeLimits};

const NAME_KEY: [u8; 32] = [7; 32];

fn settings(url: &str) -> StoreSettings {
    StoreSettings {
        url: url.into(),
        is_cluster: false,
    }
}

/// A store that waits for a server which a busy machine has stopped for a while.
fn patient(settings: &StoreSettings) -> SharedStore {
    let limit = Duration::from_secs(60);
    let limits = TimeLimits {
        call: limit,
        connect: limit,
    };
    SharedStore::open_with(settings, &NAME_KEY, limits).unwrap()
}

/// A metric shows it before the first request waits for it.
#[tokio::test]
async fn server_that_is_away_is_noticed_without_a_request() {
    let settings = settings("redis://me:hunter2@127.0.0.1:1");
    assert_eq!(settings.servers(), "127.0.0.1:1");
    let store = patient(&settings);
    while !store.is_down() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let error = store.check().await.unwrap_err();
    assert!(
        error.contains("refused") && !error.contains("hunter2"),
        "{error}"
    );
}

#[tokio::test]
async fn url_that_cannot_be_used_is_not_repeated() {
    for url in [
        "",
        "0",
        "http://user:secret@host",
        "redis://user:secret@host:port",
    ] {
        let error = SharedStore::open(&settings(url), &NAME_KEY).err().unwrap();
        assert!(
            error.starts_with("expected redis://") && !error.contains("secret"),
            "{error}"
        );
    }
}
