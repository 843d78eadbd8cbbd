//! `bellbird webhook rotate-secret`.

use bellbird_domain::EndpointId;
use bellbird_storage::Storage;
use bellbird_webhooks::sign::new_secret;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::super::output::{self, JsonFlag};
use super::{find, gone};

/// How long events are signed with the old secret too: docs/contract.md#webhook-signatures.
const OLD_SECRET_LIFE: SignedDuration = SignedDuration::from_hours(24);

/// Make a new secret for an endpoint; the old one stays in use for a day beside it.
///
/// In that day each event carries two signatures, and verifies with either secret. The new secret is shown now and
/// never again. Rotating twice within a day ends the first of the three secrets at once.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird webhook rotate-secret 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(in super::super) struct RotateSecretArgs {
    /// Id of the endpoint, as `webhook list` shows it
    id: EndpointId,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `--json` prints: the only time that the secret is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NewSecretView<'a> {
    id: EndpointId,
    secret: &'a str,
    /// None: the old one could not be opened any more.
    old_secret_until: Option<Timestamp>,
}

impl NewSecretView<'_> {
    fn text(&self) -> String {
        let old = match self.old_secret_until {
            Some(until) => format!("The old one verifies until {} too.", output::when(Some(until))),
            None => "The old one could not be opened, and is gone.".to_owned(),
        };
        format!("{}\n\nKeep it: it is not shown again. {old}", self.secret)
    }
}

pub(super) async fn rotate(storage: &Storage, args: &RotateSecretArgs) -> anyhow::Result<()> {
    let endpoint = find(storage, args.id).await?;
    let (secret, now) = (new_secret()?, Timestamp::now());
    let until = now.checked_add(OLD_SECRET_LIFE)?;
    if !storage.rotate_endpoint_secret(endpoint.user_id, endpoint.id, &secret, until).await? {
        return Err(gone(args.id));
    }
    let secrets = storage.endpoint_secrets(endpoint.user_id, endpoint.id, now).await?;
    let old_secret_until = secrets.and_then(|secrets| secrets.old).map(|_| until);
    let view = NewSecretView { id: endpoint.id, secret: secret.expose_secret(), old_secret_until };
    output::print(args.format, &view, NewSecretView::text)
}
