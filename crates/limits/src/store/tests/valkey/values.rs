//! What the server sees, and values that instances share.

use std::time::Duration;

use super::{GENERATION, Server, limiter, now, permits, put};
use crate::admit;
use crate::store::tests::settings;
use crate::store::{Generation, SharedStore};

#[tokio::test]
async fn names_do_not_tell_whose_they_are() {
    let server = Server::start();
    let store = server.store();
    let (limit, permits) = (limiter(&store, 60), permits(&store, 4));
    let _held = admit(Some(&limit), Some(&permits), "192.0.2.77".to_owned(), now()).await;
    let names = server.ask::<Vec<String>>(&["KEYS", "*"]).await.join(" ");
    assert!(
        names.contains(":test") && names.contains(":permits"),
        "{names}"
    );
    assert!(
        !names.contains("192.0.2.77") && names.contains("bellbird1:{"),
        "{names}"
    );
}

#[tokio::test]
async fn value_is_there_for_other_instances_and_sealed() {
    let server = Server::start();
    let (one, two) = (server.store(), server.store());
    let (first, second) = (GENERATION, [2; 16]);
    let store_value =
        async |store: &SharedStore, generation: Generation, begins: bool, value: &str| {
            store
                .put(
                    "test",
                    b"name",
                    (generation, begins),
                    value.as_bytes(),
                    Duration::from_secs(60),
                )
                .await;
        };
    let get = async |store: &SharedStore| store.get("test", b"name").await;
    assert_eq!(get(&two).await, None);
    store_value(&one, first, false, "planted-1").await;
    assert_eq!(get(&two).await, Some((first, b"planted-1".to_vec())));
    store_value(&two, first, false, "planted-2").await;
    assert_eq!(get(&one).await, Some((first, b"planted-2".to_vec())));
    store_value(&one, second, true, "planted-3").await;
    store_value(&two, first, false, "late, of the older generation").await;
    assert_eq!(get(&two).await, Some((second, b"planted-3".to_vec())));
    let large = vec![b'x'; 256 * 1024];
    put(&one, b"large", &large).await;
    assert_eq!(one.get("test", b"large").await, None);

    let keys: Vec<String> = server.ask(&["KEYS", "*:test"]).await;
    let [key] = &keys[..] else { panic!("{keys:?}") };
    assert!(!key.contains("name"), "{key}");
    let sealed: Vec<u8> = server.ask(&["GET", key]).await;
    assert!(!sealed.windows(7).any(|part| part == b"planted"));
    let ttl: i64 = server.ask(&["TTL", key]).await;
    assert!((1..=60).contains(&ttl), "{ttl}");
    // Another installation's value, a changed one and one of another name are as none.
    let other = SharedStore::open(&settings(&server.url()), &[8; 32]).unwrap();
    assert_eq!(get(&other).await, None);
    let moved = one.name("test", b"another name").key;
    server.run(&["COPY", key, &moved]).await;
    assert_eq!(one.get("test", b"another name").await, None);
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        server.restore(key, &changed).await;
        assert_eq!(get(&one).await, None, "{at}");
    }
    server.restore(key, &sealed).await;
    assert!(get(&one).await.is_some());
    server.run(&["DEL", key]).await;
    server.run(&["RPUSH", key, "a list"]).await;
    assert_eq!(get(&one).await, None);
}
