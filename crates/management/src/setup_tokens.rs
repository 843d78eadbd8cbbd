//! Setup tokens, with which a user's program gets an API key once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{SetupToken, TimestampExt as _, UserId};
use bellbird_storage::writes::{setup_tokens, user};
use bellbird_storage::{AuditAction, ManagementChange, NewSetupToken};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::change::require_owner;
use crate::refusal::{Refusal, USER};
use crate::values::KeyName;

const DEFAULT_NAME: &str = "SimpleFIN";
/// A program claims a token within this time.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// A created token.
pub struct CreatedSetupToken {
    /// Shown once, and not stored.
    pub token: SetupToken,
    pub expires_at: Timestamp,
}

impl CreatedSetupToken {
    /// The text for a program, which decodes it and sends a POST to the URL in it. `api_url` is the
    /// API's public one. Some clients require `simplefin` in the URL.
    #[must_use]
    pub fn text(&self, api_url: &str) -> SecretString {
        let (api_url, token) = (api_url.trim_end_matches('/'), self.token.expose());
        let claim_url = format!("{api_url}/simplefin/claim/{token}");
        STANDARD.encode(claim_url).into()
    }
}

/// The token of a user that was made last, so that a form that is sent again makes no other one.
pub async fn newest(
    change: &mut ManagementChange<'_>,
    user: UserId,
) -> Result<Option<Uuid>, Refusal> {
    Ok(setup_tokens::find_newest(change.tx(), user).await?)
}

/// Creates a token whose claim creates a key of this name, or `SimpleFIN`. A user has at most 20
/// that no program has claimed.
pub async fn create(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    name: Option<&KeyName>,
) -> Result<CreatedSetupToken, Refusal> {
    require_owner(change, user_id, USER)?;
    let name = name.map_or(DEFAULT_NAME, |name| name);
    let (token, now) = (bellbird_storage::new_setup_token(), change.now());
    let expires_at = now.plus(LIFETIME);
    let new = NewSetupToken {
        user_id,
        token: &token,
        name,
        expires_at,
    };
    let id = setup_tokens::insert(change.tx(), &new, now).await?;
    let action = AuditAction::of_user("setup_token.create", user_id)
        .about(id)
        .called(name);
    change.record(&action).await?;
    Ok(CreatedSetupToken { token, expires_at })
}

/// Revokes the tokens of a user that no program has claimed. Returns their number.
pub async fn revoke(change: &mut ManagementChange<'_>, user_id: UserId) -> Result<u64, Refusal> {
    require_owner(change, user_id, USER)?;
    if user::find(change.tx(), user_id).await?.is_none() {
        return Err(Refusal::NotFound(USER));
    }
    let now = change.now();
    let revoked = setup_tokens::revoke_unclaimed(change.tx(), user_id, now).await?;
    let action = AuditAction::of_user("setup_token.revoke", user_id);
    change.record(&action).await?;
    Ok(revoked)
}
