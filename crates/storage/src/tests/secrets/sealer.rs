use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use proptest::prelude::*;

use crate::{SealError, SealedFor, Sealer, key_id_of};

const CONNECTION: SealedFor<'static> = SealedFor {
    purpose: "credentials",
    row: &["user", "connection"],
};

fn entry(id: &str, byte: u8) -> String {
    format!("{id}:{}", STANDARD.encode([byte; 32]))
}

fn sealer(entries: &[String]) -> Sealer {
    Sealer::parse(&entries.join(",")).expect("good keys")
}

proptest! {
    #[test]
    fn opens_what_it_sealed(
        secret in prop::collection::vec(any::<u8>(), 0..300),
        purpose in ".{0,20}",
        row in ".{0,20}",
    ) {
        let sealer = sealer(&[entry("a", 1)]);
        let sealed_for = SealedFor { purpose: &purpose, row: &[&row] };
        let sealed = sealer.seal(sealed_for, &secret).unwrap();
        prop_assert_eq!(&**sealer.open(sealed_for, &sealed).unwrap(), secret.as_slice());
        prop_assert_eq!(key_id_of(&sealed), Some("a"));
        prop_assert_eq!(sealed.len(), 1 + 1 + 1 + 12 + secret.len() + 16);
    }

    #[test]
    fn any_bytes_are_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..80), start in 0_usize..4) {
        let mut bytes = bytes;
        for (byte, good) in bytes.iter_mut().zip([1, 1, b'a', 0]).take(start) {
            *byte = good;
        }
        prop_assert!(sealer(&[entry("a", 1)]).open(CONNECTION, &bytes).is_err());
        let _ = key_id_of(&bytes);
    }
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let sealer = sealer(&[entry("ab", 1), entry("ac", 2)]);
    let sealed = sealer.seal(CONNECTION, b"secret").unwrap();
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            assert!(
                sealer.open(CONNECTION, &changed).is_err(),
                "byte {at} bit {bit}"
            );
        }
        assert!(
            sealer.open(CONNECTION, &sealed[..at]).is_err(),
            "cut at {at}"
        );
    }
    let longer = [sealed.as_slice(), b"x"].concat();
    let opened = sealer.open(CONNECTION, &longer);
    assert_eq!(opened, Err(SealError::DoesNotOpen));
    assert_eq!(sealer.open(CONNECTION, b""), Err(SealError::NotSealed));
    let opened = sealer.open(CONNECTION, &[2, 1, b'a']);
    assert_eq!(opened, Err(SealError::NotSealed));
}

#[test]
fn value_does_not_open_for_another_row() {
    let sealer = Sealer::random();
    let sealed = sealer.seal(CONNECTION, b"secret").unwrap();
    assert!(sealer.open(CONNECTION, &sealed).is_ok());
    for (purpose, row) in [
        ("webhook", CONNECTION.row),
        ("credentials", &["user", "other"]),
        ("credentials", &["connection", "user"]),
        ("credentials", &["userconnection"]),
        ("credentials", &["userc", "onnection"]),
        ("credentials", &["user", "connection", ""]),
        ("credentialsuser", &["connection"]),
        ("credentials", &[]),
    ] {
        let sealed_for = SealedFor { purpose, row };
        let opened = sealer.open(sealed_for, &sealed);
        assert_eq!(opened, Err(SealError::DoesNotOpen), "{sealed_for:?}");
    }
}

#[test]
fn rotation_opens_the_old_and_seals_with_the_new() {
    let old = sealer(&[entry("2025", 1)]);
    let both = sealer(&[entry("2026", 2), entry("2025", 1)]);
    let new = sealer(&[entry("2026", 2)]);
    assert_eq!(both.key_ids().collect::<Vec<_>>(), ["2026", "2025"]);
    let before = old.seal(CONNECTION, b"secret").unwrap();
    assert_eq!(&**both.open(CONNECTION, &before).unwrap(), b"secret");
    let opened = new.open(CONNECTION, &before);
    assert_eq!(opened, Err(SealError::UnknownKeyId("2025".to_owned())));
    let after = both.seal(CONNECTION, b"secret").unwrap();
    let key_ids = (key_id_of(&before), key_id_of(&after));
    assert_eq!(key_ids, (Some("2025"), Some("2026")));
    assert_eq!(&**new.open(CONNECTION, &after).unwrap(), b"secret");
    let opened = sealer(&[entry("2026", 3)]).open(CONNECTION, &after);
    assert_eq!(opened, Err(SealError::DoesNotOpen));
}

#[test]
fn cursor_is_sealed_with_a_key_of_its_own() {
    let (old, new) = (entry("old", 1), entry("new", 2));
    let before = sealer(std::slice::from_ref(&old));
    let cursor = before.seal_cursor(CONNECTION, b"position").unwrap();
    assert_ne!(cursor, before.seal_cursor(CONNECTION, b"position").unwrap());
    // A client may send a stored value as a cursor, and a leaked cursor may come as a stored value.
    let stored = before.seal(CONNECTION, b"position").unwrap();
    assert!(
        before.open(CONNECTION, &cursor).is_err()
            && before.open_cursor(CONNECTION, &stored).is_err()
    );
    let other = SealedFor {
        purpose: "credentials",
        row: &["user", "another connection"],
    };
    assert!(before.open_cursor(other, &cursor).is_err());
    for place in 0..cursor.len() {
        let mut changed = cursor.clone();
        changed[place] ^= 1;
        assert!(before.open_cursor(CONNECTION, &changed).is_err(), "{place}");
        assert!(
            before.open_cursor(CONNECTION, &cursor[..place]).is_err(),
            "cut at {place}"
        );
    }
    let during = sealer(&[new.clone(), old]);
    assert_eq!(
        &**during.open_cursor(CONNECTION, &cursor).unwrap(),
        b"position"
    );
    let cursor = during.seal_cursor(CONNECTION, b"position").unwrap();
    assert_eq!(
        &**sealer(&[new]).open_cursor(CONNECTION, &cursor).unwrap(),
        b"position"
    );
    assert!(before.open_cursor(CONNECTION, &cursor).is_err());
}

#[test]
fn the_same_secret_is_sealed_differently_each_time() {
    let sealer = Sealer::random();
    let sealed: std::collections::HashSet<_> = (0..100)
        .map(|_| sealer.seal(CONNECTION, b"secret").unwrap())
        .collect();
    assert_eq!(sealed.len(), 100);
    let opened = Sealer::random().open(CONNECTION, sealed.iter().next().unwrap());
    assert_eq!(opened, Err(SealError::DoesNotOpen));
}

#[test]
fn key_errors_do_not_show_keys() {
    let (good, other) = (entry("main", 0x41), entry("main", 2));
    let of_bytes = |bytes: usize| format!("main:{}", STANDARD.encode(vec![0x41_u8; bytes]));
    let bare = STANDARD.encode([0x41; 32]);
    let long = "x".repeat(33);
    for (text, expected) in [
        (String::new(), SealError::NoKey),
        ("  ".to_owned(), SealError::NoKey),
        (bare.clone(), SealError::NoKeyId(1)),
        (format!("{good},{bare}"), SealError::NoKeyId(2)),
        (format!("{good},"), SealError::NoKeyId(2)),
        (format!(":{bare}"), SealError::BadKeyId(1)),
        (format!("a b:{bare}"), SealError::BadKeyId(1)),
        (format!("é:{bare}"), SealError::BadKeyId(1)),
        (format!("{long}:{bare}"), SealError::BadKeyId(1)),
        ("main:".to_owned(), SealError::BadKey(1)),
        ("main:****".to_owned(), SealError::BadKey(1)),
        (format!("main:{bare}{bare}"), SealError::BadKey(1)),
        (of_bytes(31), SealError::BadKey(1)),
        (of_bytes(33), SealError::BadKey(1)),
        (of_bytes(200), SealError::BadKey(1)),
        (format!("{good},{other}"), SealError::DuplicateKeyId(2)),
    ] {
        let error = Sealer::parse(&text).expect_err("a wrong key");
        assert_eq!(error, expected);
        assert!(!format!("{error} {error:?}").contains("QUFB"), "{error}");
    }
    assert!(SealError::NoKeyId(1).to_string().contains("id:base64"));
}

#[test]
fn keys_may_have_blanks_and_no_padding() {
    let text = format!(
        " A-z.0_9:{} , {} ",
        STANDARD_NO_PAD.encode([1; 32]),
        entry("b", 2)
    );
    let sealer = Sealer::parse(&text).unwrap();
    assert_eq!(sealer.key_ids().collect::<Vec<_>>(), ["A-z.0_9", "b"]);
    assert_eq!(format!("{sealer:?}"), "Sealer(2 keys)", "and shows none");
}
