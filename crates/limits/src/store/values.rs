//! Values that instances share for minutes. The server sees them sealed, under names that tell
//! nothing.

use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hmac;

use super::{SharedStore, name as name_of};

/// Larger values are not shared.
const BYTES_MAX: usize = 256 * 1024;
const GENERATION_BYTES: usize = 16;
const SALT_BYTES: usize = 16;

/// Random, one for each value that is made afresh. Whoever changes a value keeps its generation.
pub type Generation = [u8; GENERATION_BYTES];

/// What a value is in the server: the generation, a salt, and the sealed value.
pub(super) struct Name {
    pub(super) key: String,
    /// What the values are sealed for.
    text: Vec<u8>,
}

impl SharedStore {
    /// The value of this name and the generation that it belongs to. None if there is none, if it
    /// is not of this installation, and while the server is down.
    pub async fn get(&self, kind: &str, name: &[u8]) -> Option<(Generation, Vec<u8>)> {
        let name = self.name(kind, name);
        let mut connection = self.inner.connection.clone();
        let mut command = redis::cmd("GETRANGE");
        command.arg(&name.key).arg(0).arg(BYTES_MAX);
        let sealed: Vec<u8> = self
            .inner
            .call_for_value(command.query_async(&mut connection))
            .await?;
        self.open_value(&name, sealed)
    }

    /// Stores a value for a time, unless one of another generation is there and this one does not
    /// begin a generation. So a late request of an older generation does not overwrite a newer one.
    pub async fn put(
        &self,
        kind: &str,
        name: &[u8],
        (generation, begins): (Generation, bool),
        value: &[u8],
        ttl: Duration,
    ) {
        let name = self.name(kind, name);
        let Some(sealed) = self
            .seal_value(&name, generation, value)
            .filter(|sealed| sealed.len() <= BYTES_MAX)
        else {
            return;
        };
        let mut call = self.inner.put.prepare_invoke();
        call.key(&name.key)
            .arg(sealed)
            .arg(u8::from(begins))
            .arg(ttl.as_millis() as u64);
        let mut connection = self.inner.connection.clone();
        self.inner
            .call_for_value(call.invoke_async::<()>(&mut connection))
            .await;
    }

    pub(super) fn name(&self, kind: &str, name: &[u8]) -> Name {
        let text = [kind.as_bytes(), b" ", name].concat();
        Name {
            key: name_of(&self.inner.tag(&text), kind),
            text,
        }
    }

    /// Each value has a key of its own, made with its salt, so no limit of random nonces is
    /// reached.
    fn key_of(&self, name: &Name, salt: &[u8]) -> Option<LessSafeKey> {
        let key = hmac::sign(&self.inner.value_key, &[salt, &name.text].concat());
        UnboundKey::new(&AES_256_GCM, key.as_ref())
            .ok()
            .map(LessSafeKey::new)
    }

    fn seal_value(&self, name: &Name, generation: Generation, value: &[u8]) -> Option<Vec<u8>> {
        let mut salt = [0; SALT_BYTES];
        aws_lc_rs::rand::fill(&mut salt).ok()?;
        let mut sealed = value.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        self.key_of(name, &salt)?
            .seal_in_place_append_tag(nonce, Aad::from(generation), &mut sealed)
            .ok()?;
        Some([&generation[..], &salt, &sealed].concat())
    }

    fn open_value(&self, name: &Name, mut sealed: Vec<u8>) -> Option<(Generation, Vec<u8>)> {
        let (generation, rest) = sealed.split_first_chunk_mut::<GENERATION_BYTES>()?;
        let (salt, rest) = rest.split_first_chunk_mut::<SALT_BYTES>()?;
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let value = self
            .key_of(name, salt)?
            .open_in_place(nonce, Aad::from(*generation), rest)
            .ok()?;
        Some((*generation, value.to_vec()))
    }
}
