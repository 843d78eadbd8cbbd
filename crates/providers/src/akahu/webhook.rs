//! Webhooks: their signature, what they are about, and asking for them (docs/providers/akahu.md#webhooks,
//! #webhook-keys).

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use tokio::time::Instant;

use super::{Akahu, Grant, wire};
use crate::http::parse_json;
use crate::notifying::{Concern, Notification, Notifying, Refused, header, id};
use crate::{Call, Error};

/// What is subscribed to: the end of a consent, changes of its accounts, new rows.
const TYPES: [&str; 3] = ["TOKEN", "ACCOUNT", "TRANSACTION"];

#[async_trait]
impl Notifying for Akahu {
    async fn read(&self, call: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Notification, Refused> {
        let (key_id, signature) = signature(headers).ok_or(Refused::Forged)?;
        self.keys.check((&self.api, call), Instant::now(), key_id, body, &signature).await?;
        notification(body)
    }

    /// A subscription is known by its `state`, and its type is not listed: so the state tells the type too.
    async fn subscribe(&self, call: &Call, grant: &SecretString, reference: &str) -> Result<(), Error> {
        let user_token = Grant::read(grant)?.user_token;
        let known = self.api.subscriptions(call, &user_token).await?;
        for kind in TYPES {
            let state = format!("{reference}:{kind}");
            if !known.contains(&state) {
                self.api.subscribe(call, &user_token, kind, &state).await?;
            }
        }
        Ok(())
    }
}

/// The number of the key, and the signature.
fn signature(headers: &HeaderMap) -> Option<(u64, Vec<u8>)> {
    let key_id = header(headers, "X-Akahu-Signing-Key")?;
    let key_id = key_id.bytes().all(|byte| byte.is_ascii_digit()).then(|| key_id.parse().ok())??;
    Some((key_id, STANDARD.decode(header(headers, "X-Akahu-Signature")?).ok()?))
}

/// The provider gives events no id. In an event about a token, `item_id` is the token: it is not looked at.
pub(super) fn notification(body: &[u8]) -> Result<Notification, Refused> {
    let event: wire::Event = parse_json(body).map_err(|_| Refused::Malformed)?;
    let mut concerns = Vec::new();
    if matches!(event.webhook_type.as_str(), "ACCOUNT" | "TRANSACTION") {
        let accounts = [event.item_id, event.previous_item_id, event.new_item_id];
        concerns.extend(accounts.iter().filter_map(|member| id(member.as_ref())).map(Concern::Account));
    }
    let state = id(event.state.as_ref());
    let reference = state.as_deref().map(|state| state.rsplit_once(':').map_or(state, |(reference, _)| reference));
    concerns.extend(reference.map(|reference| Concern::Reference(reference.to_owned())));
    Ok(Notification { id: None, concerns })
}

#[cfg(test)]
mod tests;
