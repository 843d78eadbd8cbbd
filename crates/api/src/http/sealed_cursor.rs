//! Cursors that only the service can read, each sealed for a user and a purpose. Nothing is kept
//! between requests, so any instance can continue.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellbird_domain::UserId;
use bellbird_storage::Storage;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The text of a cursor with these contents. `None` if the service cannot seal.
pub fn seal(
    storage: &Storage,
    user: UserId,
    purpose: &str,
    contents: &impl Serialize,
) -> Option<String> {
    let contents = serde_json::to_vec(contents).ok()?;
    let sealed = storage.secrets().seal_cursor(user, purpose, &contents);
    sealed.ok().map(|sealed| URL_SAFE_NO_PAD.encode(sealed))
}

/// The contents of a cursor of this user, for this purpose. `None` for any other text.
pub fn open<T: DeserializeOwned>(
    storage: &Storage,
    user: UserId,
    purpose: &str,
    cursor: &str,
) -> Option<T> {
    let sealed = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let contents = storage.secrets().open_cursor(user, purpose, &sealed)?;
    serde_json::from_slice(&contents).ok()
}
