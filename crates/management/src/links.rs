//! Links and link sessions, with which a user connects an institution in the browser.

use bellbird_connections::{CreatedLink, PreparedLink};
use bellbird_storage::writes::links;
use bellbird_storage::{AuditAction, ManagementChange};

use crate::change::require_owner;
use crate::refusal::{Refusal, USER};

/// Stores a link that `connections.links()` has prepared.
pub async fn create(
    change: &mut ManagementChange<'_>,
    prepared: PreparedLink<'_>,
) -> Result<CreatedLink, Refusal> {
    let new = prepared.new_link();
    let user_id = new.user_id;
    require_owner(change, user_id, USER)?;
    let name = match new.session {
        Some(_) => "link_session.create",
        None => "link.create",
    };
    let now = change.now();
    let id = links::insert(change.tx(), &new, now).await?;
    let action = AuditAction::of_user(name, user_id).about(id);
    change.record(&action).await?;
    Ok(prepared.into_created(id))
}
