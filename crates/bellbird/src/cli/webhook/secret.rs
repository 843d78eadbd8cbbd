//! `bellbird webhook rotate-secret`: replaces the signing secret of an endpoint.

use bellbird_domain::EndpointId;
use bellbird_management::endpoints;
use bellbird_storage::Storage;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::super::{actor, output};
use super::{EndpointArgs, endpoint_error};

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
                output::format_instant(until)
            ),
            None => "The old one could not be opened and was deleted.".to_owned(),
        };
        format!("Store this secret: it is not shown again. {old}")
    }
}

pub(super) async fn rotate(storage: &Storage, args: &EndpointArgs) -> anyhow::Result<()> {
    let mut change = actor::begin_change(storage).await?;
    let rotated = endpoints::rotate_secret(&mut change, args.id).await;
    let rotated = rotated.map_err(|refusal| endpoint_error(args.id, refusal))?;
    change.commit().await?;
    let view = NewSecretView {
        id: args.id,
        secret: rotated.secret.expose_secret(),
        old_secret_expires_at: rotated.old_expires_at,
    };
    output::print_secret(&view, view.secret, &view.advice())
}
