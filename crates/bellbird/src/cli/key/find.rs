//! Finds the key that a command is about, by id or name.

use anyhow::bail;
use bellbird_domain::KeyId;
use bellbird_storage::{KeyRecord, Storage};
use clap::Args;
use jiff::Timestamp;

use super::super::output;
use super::super::user::find_optional_user;
use super::{is_active, keys_of};
use crate::failure::Failure;

/// The key that a command is about.
#[derive(Args)]
pub(crate) struct KeyRef {
    /// Name or id of the key, as `key list` shows them
    key: String,

    /// With a name: the user whose key it is, by e-mail address or id
    #[arg(long)]
    user: Option<String>,
}

impl KeyRef {
    /// Of several keys of a name, prefers the one that is not being replaced.
    pub(super) async fn find(&self, storage: &Storage) -> anyhow::Result<KeyRecord> {
        self.find_with(storage, |key| key.replaced_by.is_none())
            .await
    }

    /// Of several keys of a name, prefers the one that is being replaced.
    pub(super) async fn find_to_revoke(&self, storage: &Storage) -> anyhow::Result<KeyRecord> {
        self.find_with(storage, |key| key.replaced_by.is_some())
            .await
    }

    async fn find_with(
        &self,
        storage: &Storage,
        is_preferred: impl Fn(&KeyRecord) -> bool,
    ) -> anyhow::Result<KeyRecord> {
        let name = self.key.trim();
        if let Ok(id) = name.parse::<KeyId>() {
            let missing = || Failure::unknown_id("key", id, "key list");
            let found = storage.keys().find(id).await?.ok_or_else(missing)?;
            return match find_optional_user(storage, self.user.as_deref()).await? {
                Some(user) if user.id != found.user_id => Err(missing()),
                _ => Ok(found),
            };
        }
        let user = find_optional_user(storage, self.user.as_deref()).await?;
        let mut named = keys_of(storage, user).await?;
        named.retain(|(_, key)| key.name == name);
        let now = Timestamp::now();
        let mut active: Vec<_> = named
            .iter()
            .filter(|(_, key)| is_active(key, now))
            .collect();
        if active.iter().filter(|(_, key)| is_preferred(key)).count() == 1 {
            active.retain(|(_, key)| is_preferred(key));
        }
        match (&active[..], &named[..]) {
            ([(_, key)], _) | ([], [(_, key)]) => Ok(key.clone()),
            ([], []) => Err(Failure::not_found(format!(
                "there is no key {name}: `bellbird key list` shows names and ids"
            ))),
            ([], _) => {
                bail!("no key {name} is active: `bellbird key list` shows the ids of the others")
            }
            (several, _) => {
                let ids: Vec<_> = several
                    .iter()
                    .map(|(email, key)| {
                        let expires = output::format_instant(key.expires_at);
                        format!(
                            "{} of {email}, created {:.0}, expires {expires}",
                            key.id, key.created_at
                        )
                    })
                    .collect();
                bail!(
                    "{} active keys have the name {name}: pass an id instead ({})",
                    several.len(),
                    ids.join("; ")
                )
            }
        }
    }
}
