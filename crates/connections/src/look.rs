//! Looking at the provider when a connection seems broken.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};

use crate::lifecycle;
use crate::{Connections, ConnectionsError};

impl Connections {
    /// Asks the provider whether the connection works, and moves it along the edge that the answer leads to. Returns the
    /// status after that.
    ///
    /// # Errors
    /// [`ConnectionsError`] when the connection is gone or the provider does not say.
    pub async fn check(&self, user_id: UserId, id: ConnectionId) -> Result<ConnectionStatus, ConnectionsError> {
        let connection = self.storage.find_connection(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        let grant = self.storage.find_grant(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        let standing = self.provider(&connection.provider)?.standing(&self.call(), &grant).await?;
        let Some(next) = lifecycle::after_look(connection.status, standing) else { return Ok(connection.status) };
        let now = self.clock.now();
        if !self.storage.set_connection_status(user_id, id, connection.status, next, "checked", now).await? {
            // Lost to somebody else's step: theirs is the newer one.
            return Ok(connection.status);
        }
        tracing::info!(connection_id = %id, from = %connection.status, to = %next, "connection changed its status");
        Ok(next)
    }

    /// Starts a check that nobody waits for; one at a time for each connection.
    pub fn check_soon(&self, user_id: UserId, id: ConnectionId) {
        let connections = self.clone();
        tokio::spawn(async move {
            let checks = std::sync::Arc::clone(&connections.checks);
            let work = || async move {
                if let Err(error) = connections.check(user_id, id).await {
                    tracing::warn!(connection_id = %id, error = %error, "connection could not be checked");
                }
            };
            let _ = checks.join(id, work).await;
        });
    }
}
