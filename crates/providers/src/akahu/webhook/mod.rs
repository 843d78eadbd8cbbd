//! Akahu's webhooks: subscribes to them, checks their signature and finds the affected resources
//! (docs/providers/akahu.md#webhooks and #webhook-keys).

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderMap;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::Instant;

use super::{Akahu, Credentials, wire};
use crate::http::parse_json;
use crate::webhook_verifier::{
    AffectedResource, ProviderEvent, Rejection, RemovedTransactions, WebhookVerifier, header, id,
};
use crate::{CallContext, Error};

/// Removed transactions that one event names. Further ones are found missing later.
const REMOVED_MAX: usize = 1_000;
/// The subscribed event types: the end of a consent, changes of accounts, new transactions.
const TYPES: [&str; 3] = ["TOKEN", "ACCOUNT", "TRANSACTION"];

#[async_trait]
impl WebhookVerifier for Akahu {
    async fn verify(
        &self,
        context: &CallContext,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<ProviderEvent, Rejection> {
        let (key_id, signature) = signature(headers).ok_or(Rejection::Forged)?;
        self.keys
            .check(
                (&self.api, context),
                Instant::now(),
                key_id,
                body,
                &signature,
            )
            .await?;
        parse_event(body)
    }

    async fn prepare(&self, context: &CallContext) -> Result<(), Error> {
        self.keys
            .find_first(&self.api, context, Instant::now())
            .await
    }

    /// The provider lists only the `state` of a subscription and not its type, so the state
    /// includes the type.
    async fn subscribe(
        &self,
        context: &CallContext,
        credentials: &SecretString,
        reference: &str,
    ) -> Result<(), Error> {
        let user_token = Credentials::read(credentials)?.user_token;
        let known = self.api.subscriptions(context, &user_token).await?;
        for kind in TYPES {
            let state = format!("{reference}:{kind}");
            if !known.contains(&state) {
                self.api
                    .subscribe(context, &user_token, kind, &state)
                    .await?;
            }
        }
        Ok(())
    }
}

/// The key id and the signature.
fn signature(headers: &HeaderMap) -> Option<(u64, Vec<u8>)> {
    let key_id = header(headers, "X-Akahu-Signing-Key")?;
    let key_id = key_id
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| key_id.parse().ok())??;
    Some((
        key_id,
        STANDARD
            .decode(header(headers, "X-Akahu-Signature")?)
            .ok()?,
    ))
}

/// Parses a signed event. Events have no id. In a TOKEN event `item_id` is a user token, so it is
/// not read.
pub(super) fn parse_event(body: &[u8]) -> Result<ProviderEvent, Rejection> {
    let event: wire::Event = parse_json(body).map_err(|_| Rejection::Malformed)?;
    let removed = event
        .removed_transactions
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let removed = removed.filter_map(|member| id(Some(member)));
    let transactions: Vec<String> = removed.take(REMOVED_MAX).collect();
    let account = id(event.item_id.as_ref())
        .filter(|_| event.webhook_type == "TRANSACTION" && !transactions.is_empty());
    let removed = account.map(|account| RemovedTransactions {
        account,
        transactions,
    });
    let mut affected = Vec::new();
    if matches!(event.webhook_type.as_str(), "ACCOUNT" | "TRANSACTION") {
        let accounts = [event.item_id, event.previous_item_id, event.new_item_id];
        affected.extend(
            accounts
                .iter()
                .filter_map(|member| id(member.as_ref()))
                .map(AffectedResource::Account),
        );
    }
    let state = id(event.state.as_ref());
    let reference = state.as_deref().map(|state| {
        state
            .rsplit_once(':')
            .map_or(state, |(reference, _)| reference)
    });
    affected.extend(reference.map(|reference| AffectedResource::Reference(reference.to_owned())));
    Ok(ProviderEvent {
        id: None,
        affected,
        removed,
    })
}

#[cfg(test)]
mod tests;
