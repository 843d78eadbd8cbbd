//! Computes the SHA-256 digests that are stored in place of keys, tokens and ids.

use aws_lc_rs::digest::{SHA256, digest};
pub(crate) use hex::encode as hex;

pub(crate) fn hash(text: &str) -> aws_lc_rs::digest::Digest {
    digest(&SHA256, text.as_bytes())
}

/// The value of the columns named `provider_user_digest`.
pub(crate) fn provider_user_digest(provider_user_id: &str) -> String {
    hex(hash(provider_user_id).as_ref())
}
