//! Parses API keys. It checks that a key parses to itself, and that a changed character or an added
//! text is rejected.

#![no_main]

use bellbird_domain::ApiKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 32], &str)| {
    let (numbers, text) = input;
    if let Ok(key) = ApiKey::parse(text) {
        check(&key);
        assert_eq!(key.expose(), text, "parsed to another key");
    }
    let key = ApiKey::from_random(numbers);
    check(&key);
    // The checksum detects a changed character.
    let mut wrong = key.expose().to_owned();
    let at = 3 + usize::from(numbers[0]) % 38;
    let other = if &wrong[at..=at] == "x" { "y" } else { "x" };
    wrong.replace_range(at..=at, other);
    assert!(
        ApiKey::parse(&wrong).is_err(),
        "a mistyped key was accepted"
    );
    // No text may follow the key.
    assert!(ApiKey::parse(&format!("{}{text}", key.expose())).is_err() || text.is_empty());
});

fn check(key: &ApiKey) {
    let text = key.expose();
    assert!(
        text.len() == 41 && text.starts_with("bb_"),
        "not formatted as a key"
    );
    assert_eq!(
        ApiKey::parse(text).as_ref(),
        Ok(key),
        "does not parse to itself"
    );
    assert_eq!(key.prefix(), &text[..10]);
    assert_eq!(format!("{key:?}"), "ApiKey(..)");
}
