//! `bellbird webhook rotate-secret`: replaces the signing secret of an endpoint.

use bellbird_domain::EndpointId;
use bellbird_storage::{SecretRotation, Storage};
use bellbird_webhooks::delivery::sign::new_secret;
use bellbird_webhooks::endpoint::OLD_SECRET_LIFE;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::super::{actor, output};
use super::{EndpointArgs, endpoint_not_found, find};

/// What `--json` prints. This is the only time that the secret is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewSecretView<'a> {
    id: EndpointId,
    secret: &'a str,
    /// `None` if the old secret could not be opened and is deleted.
    old_secret_expires_at: Option<Timestamp>,
}

impl NewSecretView<'_> {
    fn advice(&self) -> String {
        let old = match self.old_secret_expires_at {
            Some(until) => format!(
                "The old one stays valid until {}.",
                output::format_instant(Some(until))
            ),
            None => "The old one could not be opened and was deleted.".to_owned(),
        };
        format!("Store this secret: it is not shown again. {old}")
    }
}

pub(super) async fn rotate(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let endpoint = find(storage, args.id).await?;
    let (secret, now) = (new_secret(), Timestamp::now());
    let until = now.checked_add(OLD_SECRET_LIFE)?;
    let mut change = actor::begin_change(storage, now).await?;
    let rotation = change
        .rotate_endpoint_secret((endpoint.user_id, endpoint.id), &secret, until)
        .await?;
    let SecretRotation { old_expires_at } = rotation.ok_or_else(|| endpoint_not_found(args.id))?;
    actor::commit(
        change,
        "webhook_endpoint.rotate_secret",
        endpoint.user_id,
        Some(endpoint.id.to_string()),
    )
    .await?;
    let view = NewSecretView {
        id: endpoint.id,
        secret: secret.expose_secret(),
        old_secret_expires_at: old_expires_at,
    };
    output::print_secret(args.format, &view, view.secret, &view.advice())
}
