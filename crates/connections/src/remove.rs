//! Removing a connection: hidden at once, consent withdrawn, everything about it forgotten.

use bellbird_domain::{ConnectionId, ConnectionStatus};

use crate::{Connections, ConnectionsError};

impl Connections {
    /// Removes a connection. When it fails on the way it stays hidden, and calling this again goes on.
    ///
    /// # Errors
    /// [`ConnectionsError::NotFound`]; [`ConnectionsError::NotWithdrawn`] when the provider could not be told.
    pub async fn remove(&self, id: ConnectionId) -> Result<(), ConnectionsError> {
        let connection = self.storage.find_connection_any(id).await?.ok_or(ConnectionsError::NotFound)?;
        let user_id = connection.user_id;
        let provider = self.provider(&connection.provider)?;
        // Before it is hidden: a grant that cannot be opened (the master key is lost) must leave it as it is.
        let grant = self.storage.find_grant(user_id, id).await?;
        if connection.status != ConnectionStatus::Deleting {
            let hidden = self
                .storage
                .set_connection_status(
                    user_id,
                    id,
                    connection.status,
                    ConnectionStatus::Deleting,
                    "removed",
                    self.clock.now(),
                )
                .await?;
            if !hidden {
                // Its status changed under us: begin again from the new one.
                return Box::pin(self.remove(id)).await;
            }
        }
        if let Some(grant) = grant {
            provider.withdraw(&self.call(), &grant).await.map_err(ConnectionsError::NotWithdrawn)?;
        }
        self.storage.delete_connection(user_id, id, self.clock.now()).await?;
        Ok(())
    }
}
