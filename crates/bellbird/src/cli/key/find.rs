//! Finds the key that a command is about, by id or name.

use anyhow::bail;
use bellbird_domain::KeyId;
use bellbird_storage::{KeyRecord, Storage};
use clap::Args;
use jiff::Timestamp;

use super::super::output;
use super::super::user::find_user;
use super::is_active;
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
    pub(super) async fn find(&self, storage: &Storage) -> anyhow::Result<KeyRecord> {
        self.find_with(storage, |_| true).await
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
            let found = storage.keys().find(id).await?;
            let missing = || {
                Failure::not_found(format!(
                    "there is no key {id}: `bellbird key list` shows the ids"
                ))
            };
            let found = found.ok_or_else(missing)?;
            let user = match &self.user {
                Some(user) => find_user(storage, user).await?.id,
                None => found.user_id,
            };
            return if found.user_id == user {
                Ok(found)
            } else {
                Err(missing())
            };
        }
        let users = match &self.user {
            Some(user) => vec![find_user(storage, user).await?],
            None => storage.users().list().await?,
        };
        let mut named = Vec::new();
        for user in users {
            let keys = storage
                .keys()
                .list(user.id)
                .await?
                .into_iter()
                .filter(|key| key.name == name);
            named.extend(keys.map(|key| (user.email.clone(), key)));
        }
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
