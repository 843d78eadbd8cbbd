//! What fuzz targets call.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::from_str;

/// Asserts that any bytes are accepted as serde_json accepts them.
pub fn fuzz<'a, T: Deserialize<'a>>(body: &'a [u8]) {
    let Ok(text) = std::str::from_utf8(body) else {
        return;
    };
    assert_eq!(
        from_str::<T>(text).is_ok(),
        serde_json::from_str::<T>(text).is_ok()
    );
}

/// Asserts that any bytes are read as serde_json reads them.
pub fn fuzz_values(body: &[u8]) {
    fuzz::<IgnoredAny>(body);
    let Ok(text) = std::str::from_utf8(body) else {
        return;
    };
    let value = serde_json::from_str::<serde_json::Value>(text).ok();
    assert_eq!(from_str(text).ok(), value, "the same value");
}
