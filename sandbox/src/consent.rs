//! A consent as it is known outside of a provider: its credentials and its state.

use serde::{Deserialize, Serialize};

/// Credentials of an existing consent, in the format that `bellbird connection import` reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "provider",
    rename_all = "lowercase",
    rename_all_fields = "camelCase"
)]
pub enum Credentials {
    Fiskil {
        /// The end user who gave the consent.
        end_user_id: String,
        arrangement_id: String,
    },
    /// One login that an Akahu user shares.
    Akahu {
        user_token: String,
        authorisation: String,
    },
    SnapTrade {
        user_id: String,
        user_secret: String,
        authorization_id: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentState {
    Active,
    /// Fiskil: the time of the consent is over. Akahu: the bank rejects the login. SnapTrade: the
    /// connection is disabled.
    Expired,
    /// The user ended it: accounts and rows are gone.
    Revoked,
}
