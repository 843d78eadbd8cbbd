//! Users: create, change, remove.

use bellbird_connections::Connections;
use bellbird_domain::{ActorKind, EmailKind, User, UserId};
use bellbird_storage::writes::{emails, removal, user};
use bellbird_storage::{AuditAction, ManagementChange, NewUser, Storage, StorageError, UserChange};

use crate::change::{NOTHING_CHANGED, require_owner};
use crate::refusal::{Refusal, USER};

/// Creates a user. The address and the reference are unique.
pub async fn create(change: &mut ManagementChange<'_>, new: &NewUser<'_>) -> Result<User, Refusal> {
    let now = change.now();
    let user = user::insert(change.tx(), new, now).await?;
    let changed = format!("plan: {}", user.plan);
    let action = AuditAction::of_user("user.create", user.id).changing(&changed);
    change.record(&action).await?;
    Ok(user)
}

/// Changes a user. Only a command makes somebody an operator, or [`crate::first_start`].
pub async fn update(
    change: &mut ManagementChange<'_>,
    id: UserId,
    to: &UserChange<'_>,
) -> Result<User, Refusal> {
    require_owner(change, id, USER)?;
    if to.is_operator.is_some() && change.actor().kind != ActorKind::Command {
        return Err(Refusal::CommandsOnly);
    }
    let before = user::find_locked(change.tx(), id).await?;
    let before = before.ok_or(Refusal::NotFound(USER))?;
    let name = match to.is_operator.filter(|is| *is != before.is_operator) {
        Some(true) => "operator.add",
        Some(false) => "operator.remove",
        None => "user.update",
    };
    let user = user::update(change.tx(), id, to).await?;
    let changed = changed(&before, &user);
    // All that users change themselves.
    let timezone = to
        .timezone
        .flatten()
        .map(|name| format!("timezone: {name}"));
    let action = AuditAction::of_user(name, id)
        .called(timezone.as_deref().unwrap_or_default())
        .changing(&changed);
    change.record(&action).await?;
    Ok(user)
}

/// What differs, for the audit: of what names the user only that it changed, because the audit
/// outlives the user.
fn changed(before: &User, after: &User) -> String {
    if before == after {
        return NOTHING_CHANGED.to_owned();
    }
    let mut changed = Vec::new();
    if before.plan != after.plan {
        changed.push(format!("plan: {} → {}", before.plan, after.plan));
    }
    let may_sign_in = |user: &User| if user.console_sign_in { "yes" } else { "no" };
    if before.console_sign_in != after.console_sign_in {
        let (before, after) = (may_sign_in(before), may_sign_in(after));
        changed.push(format!("may sign in: {before} → {after}"));
    }
    for (what, is_other) in [
        ("e-mail address", before.email != after.email),
        ("reference", before.reference != after.reference),
        ("timezone", before.timezone != after.timezone),
    ] {
        if is_other {
            changed.push(what.to_owned());
        }
    }
    changed.join(", ")
}

/// Sets which e-mails a user has switched off.
pub async fn set_emails_off(
    change: &mut ManagementChange<'_>,
    id: UserId,
    kinds: &[EmailKind],
) -> Result<(), Refusal> {
    require_owner(change, id, USER)?;
    emails::set_off(change.tx(), id, kinds).await?;
    let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
    let off = match &*kinds {
        [] => "e-mails off: none".to_owned(),
        kinds => format!("e-mails off: {}", kinds.join(", ")),
    };
    let action = AuditAction::of_user("user.update", id).called(&off);
    Ok(change.record(&action).await?)
}

/// Whether a user cannot be removed yet: connections count until their consents are withdrawn.
pub async fn has_connections(storage: &Storage, id: UserId) -> Result<bool, StorageError> {
    Ok(!storage
        .connections()
        .list_after(None, Some(id), 1)
        .await?
        .is_empty())
}

/// What comes before [`remove`], outside of a change, because providers are asked: a user who has
/// connections stays, and other registrations at providers are removed, or only forgotten.
///
/// A removal that ends after this has no row in the audit until it is repeated, which is how it is
/// completed.
pub async fn prepare_removal(
    storage: &Storage,
    connections: &Connections,
    id: UserId,
    local_only: bool,
) -> Result<(), Refusal> {
    if has_connections(storage, id).await? {
        return Err(Refusal::StillConnected);
    }
    let links = connections.links();
    Ok(links.unregister_provider_users(id, local_only).await?)
}

/// Removes a user without connections, with all keys and endpoints.
pub async fn remove(change: &mut ManagementChange<'_>, id: UserId) -> Result<(), Refusal> {
    require_owner(change, id, USER)?;
    let now = change.now();
    match user::delete(change.tx(), id, now).await {
        // A connection was made meanwhile.
        Err(StorageError::Conflict(_)) => return Err(Refusal::StillConnected),
        other => other?,
    }
    Ok(change
        .record(&AuditAction::of_user("user.remove", id))
        .await?)
}

/// Ends all access of a user, and begins the removal of their connections and then of the user,
/// which the service completes. The caller commits and wakes the service. From then on, no key,
/// token, link or endpoint is made for the user. Repeated, it is due at once.
pub async fn begin_removal(change: &mut ManagementChange<'_>, id: UserId) -> Result<(), Refusal> {
    require_owner(change, id, USER)?;
    let now = change.now();
    removal::begin(change.tx(), id, now).await?;
    Ok(change
        .record(&AuditAction::of_user("user.remove", id))
        .await?)
}
