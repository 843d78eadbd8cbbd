//! Seals (encrypts) secrets with AES-256-GCM, under the master keys of the setting `secrets.key`.
//!
//! A sealed value is one version byte, the length of the key's id, the id, a nonce of 12 bytes, the
//! ciphertext and a tag of 16 bytes. Purpose and row are authenticated with it. So a value that was
//! moved to another row or purpose cannot be opened.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, RandomizedNonceKey, UnboundKey};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::random::random_bytes;
use crate::error::SealError;

const VERSION: u8 = 1;
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES_MAX: usize = 32;
const NONCE_BYTES: usize = 12;
const SALT_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

/// Standard base64. Padding is optional, because shells and editors lose it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The purpose and the row of a sealed value. Opening needs the same ones as sealing.
#[derive(Debug, Clone, Copy)]
pub struct SealedFor<'a> {
    /// `credentials`, `provider_user`, `consent_session`, `fingerprints`, `webhook`, `old_webhook`,
    /// `operator_request`, `provider_settings` or `cursor`.
    pub purpose: &'a str,
    /// The user id, then the subject's id, or the name of a list for a cursor.
    pub row: &'a [&'a str],
}

/// Seals with its first key, opens with any of its keys. Cheap to clone. `Debug` shows no key.
#[derive(Clone)]
pub struct Sealer(Arc<[Key]>);

struct Key {
    id: String,
    /// The only copy of the key. The library wipes it on drop.
    aead: RandomizedNonceKey,
    names: Zeroizing<[u8; 32]>,
    /// Makes the keys of cursors.
    cursors: hmac::Key,
}

impl Key {
    fn new(id: &str, bytes: &[u8]) -> Option<Self> {
        let mut names = Zeroizing::new([0; 32]);
        let derived = |purpose: &[u8]| hmac::sign(&hmac::Key::new(HMAC_SHA256, bytes), purpose);
        names.copy_from_slice(derived(b"bellbird names outside the database").as_ref());
        let cursors = hmac::Key::new(HMAC_SHA256, derived(b"bellbird cursors").as_ref());
        Some(Self {
            id: id.to_owned(),
            aead: RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()?,
            names,
            cursors,
        })
    }

    /// Each cursor has a key of its own, made with its salt, because there is no limit to their
    /// number, as there is to that of random nonces of one key.
    fn of_cursor(&self, salt: &[u8]) -> Result<LessSafeKey, SealError> {
        let key = hmac::sign(&self.cursors, salt);
        UnboundKey::new(&AES_256_GCM, key.as_ref())
            .map(LessSafeKey::new)
            .map_err(|_| SealError::DoesNotSeal)
    }
}

impl Sealer {
    /// Parses `id:base64[,id:base64]` with 32 bytes for each key. A line break separates entries as
    /// a comma does. The first key seals, all keys open. Whitespace around entries is ignored.
    ///
    /// # Errors
    /// The message says which entry is wrong and what is expected. It does not repeat the entry.
    pub fn parse(text: &str) -> Result<Self, SealError> {
        if text.trim().is_empty() {
            return Err(SealError::NoKey);
        }
        let mut keys: Vec<Key> = Vec::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        for (entry, number) in lines.flat_map(|line| line.split(',')).zip(1..) {
            let key = parse_entry(entry.trim(), number)?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(SealError::DuplicateKeyId(number));
            }
            keys.push(key);
        }
        Ok(Self(keys.into()))
    }

    /// A sealer with one random key, for commands that need no master key, and for tests: no value
    /// that it seals is opened by another process.
    pub fn random() -> Self {
        let key = random_bytes::<KEY_BYTES>();
        Self(Arc::new([
            Key::new("random", &*key).expect("32 bytes are a key")
        ]))
    }

    /// The ids of all keys. The first one seals.
    pub fn key_ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|key| key.id.as_str())
    }

    /// A key for names that say nothing to who sees them outside of the database. Derived from the
    /// first master key, so all instances with the same one make the same names. Zeros without a
    /// key.
    pub fn name_key(&self) -> [u8; 32] {
        self.0.first().map_or([0; 32], |key| *key.names)
    }

    /// Seals a secret with the first key and a random nonce, so two seals of one secret differ.
    pub fn seal(&self, sealed_for: SealedFor<'_>, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let key = self.0.first().ok_or(SealError::DoesNotSeal)?;
        let mut sealed = header(&key.id);
        let aad = associated_data(&sealed, sealed_for);
        // Allocated at its final size, so that growing leaves no copy of the secret in freed
        // memory.
        let mut body = Zeroizing::new(Vec::with_capacity(secret.len() + TAG_BYTES));
        body.extend_from_slice(secret);
        let nonce = key
            .aead
            .seal_in_place_append_tag(Aad::from(aad), &mut *body)
            .map_err(|_| SealError::DoesNotSeal)?;
        sealed.extend_from_slice(nonce.as_ref());
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// As [`Self::seal`], for what clients carry: under a key of its own, which is derived from the
    /// first key.
    pub fn seal_cursor(
        &self,
        sealed_for: SealedFor<'_>,
        position: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let key = self.0.first().ok_or(SealError::DoesNotSeal)?;
        let mut sealed = header(&key.id);
        let aad = associated_data(&sealed, sealed_for);
        let salt = random_bytes::<SALT_BYTES>();
        let (nonce, mut body) = (
            Nonce::assume_unique_for_key([0; NONCE_BYTES]),
            position.to_vec(),
        );
        let sealing =
            key.of_cursor(&*salt)?
                .seal_in_place_append_tag(nonce, Aad::from(aad), &mut body);
        sealing.map_err(|_| SealError::DoesNotSeal)?;
        sealed.extend_from_slice(&*salt);
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// Opens what [`Self::seal_cursor`] sealed.
    pub fn open_cursor(
        &self,
        sealed_for: SealedFor<'_>,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (header, key_id, rest) = split_header(sealed)?;
        let (salt, body) = rest
            .split_at_checked(SALT_BYTES)
            .ok_or(SealError::NotSealed)?;
        let key = self.key(key_id)?.of_cursor(salt)?;
        let (nonce, aad) = (
            Nonce::assume_unique_for_key([0; NONCE_BYTES]),
            associated_data(header, sealed_for),
        );
        let mut body = Zeroizing::new(body.to_vec());
        let length = key
            .open_in_place(nonce, Aad::from(aad), &mut body)
            .map_err(|_| SealError::DoesNotOpen)?
            .len();
        body.truncate(length);
        Ok(body)
    }

    fn key(&self, id: &str) -> Result<&Key, SealError> {
        self.0
            .iter()
            .find(|key| key.id == id)
            .ok_or_else(|| SealError::UnknownKeyId(id.to_owned()))
    }

    /// Opens a sealed value. The result is wiped from memory on drop.
    pub fn open(
        &self,
        sealed_for: SealedFor<'_>,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let parts = split(sealed)?;
        let key = self.key(parts.key_id)?;
        let aad = associated_data(parts.header, sealed_for);
        let nonce =
            Nonce::try_assume_unique_for_key(parts.nonce).map_err(|_| SealError::NotSealed)?;
        let mut body = Zeroizing::new(parts.body.to_vec());
        let length = key
            .aead
            .open_in_place(nonce, Aad::from(aad), &mut body)
            .map_err(|_| SealError::DoesNotOpen)?
            .len();
        body.truncate(length);
        Ok(body)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Sealer({} keys)", self.0.len())
    }
}

/// The id of the key that sealed a value. None if it is not a sealed value.
pub fn key_id_of(sealed: &[u8]) -> Option<&str> {
    split(sealed).ok().map(|parts| parts.key_id)
}

struct Parts<'a> {
    /// Version, length and key id.
    header: &'a [u8],
    key_id: &'a str,
    nonce: &'a [u8],
    /// Ciphertext and tag.
    body: &'a [u8],
}

/// Splits a sealed value, and checks each length first.
fn split(sealed: &[u8]) -> Result<Parts<'_>, SealError> {
    let (header, key_id, rest) = split_header(sealed)?;
    let (nonce, body) = rest
        .split_at_checked(NONCE_BYTES)
        .ok_or(SealError::NotSealed)?;
    if body.len() < TAG_BYTES {
        return Err(SealError::NotSealed);
    }
    Ok(Parts {
        header,
        key_id,
        nonce,
        body,
    })
}

/// Splits off version, length and key id, and returns them, the key id and the rest.
fn split_header(sealed: &[u8]) -> Result<(&[u8], &str, &[u8]), SealError> {
    let [VERSION, length, ..] = *sealed else {
        return Err(SealError::NotSealed);
    };
    let (header, rest) = sealed
        .split_at_checked(2 + usize::from(length))
        .ok_or(SealError::NotSealed)?;
    let key_id = std::str::from_utf8(&header[2..]).map_err(|_| SealError::NotSealed)?;
    if is_key_id(key_id) {
        Ok((header, key_id, rest))
    } else {
        Err(SealError::NotSealed)
    }
}

/// Version, length and key id: what every value begins with that a key of this id sealed.
/// [`is_key_id`] limits the id, so its length fits in a byte.
pub(super) fn header(key_id: &str) -> Vec<u8> {
    let mut header = vec![VERSION, u8::try_from(key_id.len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(key_id.as_bytes());
    header
}

/// Header, purpose and row, each part after its length, so that different rows never give the same
/// bytes.
fn associated_data(header: &[u8], sealed_for: SealedFor<'_>) -> Vec<u8> {
    let mut data = header.to_vec();
    for part in std::iter::once(&sealed_for.purpose).chain(sealed_for.row) {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

fn parse_entry(entry: &str, number: usize) -> Result<Key, SealError> {
    let (id, encoded) = entry.split_once(':').ok_or(SealError::NoKeyId(number))?;
    if !is_key_id(id) {
        return Err(SealError::BadKeyId(number));
    }
    // Larger than a key, so that a long value is rejected for its length and not truncated.
    let mut bytes = Zeroizing::new([0_u8; 64]);
    let length = BASE64
        .decode_slice(encoded, &mut *bytes)
        .map_err(|_| SealError::BadKey(number))?;
    if length != KEY_BYTES {
        return Err(SealError::BadKey(number));
    }
    Key::new(id, &bytes[..KEY_BYTES]).ok_or(SealError::BadKey(number))
}

fn is_key_id(id: &str) -> bool {
    (1..=KEY_ID_BYTES_MAX).contains(&id.len())
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
