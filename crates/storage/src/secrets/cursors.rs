//! Seals positions that a client carries from one response to the next, so that any instance can go
//! on. Not stored.
//!
//! The master key itself seals none of them, because clients make many and choose what is sent to
//! be opened.

use bellbird_domain::UserId;
use zeroize::Zeroizing;

use crate::{SealError, SealedFor, Secrets};

const PURPOSE: &str = "cursor";

impl Secrets<'_> {
    /// Seals a position in a list of one user. It opens for this user and list only.
    pub fn seal_cursor(
        self,
        user: UserId,
        list: &str,
        position: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        self.sealer.seal_cursor(
            SealedFor {
                purpose: PURPOSE,
                row: &[&user.to_string(), list],
            },
            position,
        )
    }

    /// Opens what `storage.secrets().seal_cursor` sealed. `None` for anything else.
    pub fn open_cursor(
        self,
        user: UserId,
        list: &str,
        sealed: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        self.sealer
            .open_cursor(
                SealedFor {
                    purpose: PURPOSE,
                    row: &[&user.to_string(), list],
                },
                sealed,
            )
            .ok()
    }
}
