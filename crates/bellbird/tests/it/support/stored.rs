//! What the service has stored, its work on one connection, and changes of users.

use bellbird_connections::Removal;
use bellbird_domain::{Account, Connection, ConnectionId, ConnectionStatus, KeyId, Plan, UserId};
use bellbird_storage::{
    ConnectionAuditRow, KeyRecord, PendingRemoval, SyncState, UserChange, in_tx,
};
use secrecy::SecretString;

use crate::support::harness::App;

impl App {
    pub(crate) async fn set_plan(&self, user: UserId, plan: Plan) {
        let change = UserChange {
            plan: Some(plan),
            ..UserChange::default()
        };
        self.change_user(user, &change).await;
    }

    pub(crate) async fn set_timezone(&self, user: UserId, zone: &str) {
        let change = UserChange {
            timezone: Some(Some(zone)),
            ..UserChange::default()
        };
        self.change_user(user, &change).await;
    }

    pub(crate) async fn set_reference(&self, user: UserId, reference: &str) {
        let change = UserChange {
            reference: Some(Some(reference)),
            ..UserChange::default()
        };
        self.change_user(user, &change).await;
    }

    /// Whether the user may sign in to the console.
    pub(crate) async fn set_console_sign_in(&self, user: UserId, may_sign_in: bool) {
        let change = UserChange {
            console_sign_in: Some(may_sign_in),
            ..UserChange::default()
        };
        self.change_user(user, &change).await;
    }

    pub(crate) async fn change_user(&self, user: UserId, change: &UserChange<'_>) {
        let changed = in_tx!(self.storage, user::update(user, change)).await;
        changed.unwrap();
    }

    pub(crate) async fn delete_user(&self, user: UserId) {
        let now = self.clock.now();
        let deleted = in_tx!(self.storage, user::delete(user, now)).await;
        deleted.expect("no connection is left");
    }

    pub(crate) async fn connections_of(&self, user: UserId) -> Vec<Connection> {
        self.storage.connections().list(user).await.unwrap()
    }

    pub(crate) async fn connection(&self, user: UserId, id: ConnectionId) -> Connection {
        let found = self.storage.connections().find(user, id).await.unwrap();
        found.expect("a connection")
    }

    /// Whether the user has this connection, and can see it.
    pub(crate) async fn has_connection(&self, user: UserId, id: ConnectionId) -> bool {
        let found = self.storage.connections().find(user, id).await.unwrap();
        found.is_some()
    }

    pub(crate) async fn stored_credentials(&self, connection: &Connection) -> SecretString {
        let (user, id) = (connection.user_id, connection.id);
        let found = self.storage.secrets().find_credentials(user, id).await;
        found.unwrap().expect("credentials")
    }

    /// Imports the consent of a connection again, which renews the connection.
    pub(crate) async fn import_again(&self, connection: &Connection) {
        let credentials = self.stored_credentials(connection).await;
        let (user, provider) = (connection.user_id, &connection.provider);
        let imports = self.connections.imports();
        let imported = imports.import(user, provider, &credentials).await;
        assert_eq!(imported.unwrap().connections[0].id, connection.id);
    }

    pub(crate) async fn audit_of(&self, connection: ConnectionId) -> Vec<ConnectionAuditRow> {
        let audit = self.storage.connections().list_audit(connection);
        audit.await.unwrap()
    }

    pub(crate) async fn stored_accounts(
        &self,
        user: UserId,
        connection: ConnectionId,
    ) -> Vec<Account> {
        let accounts = self.storage.accounts();
        accounts.list_of_connection(user, connection).await.unwrap()
    }

    pub(crate) async fn sync_state(&self, user: UserId, connection: ConnectionId) -> SyncState {
        let found = self.storage.syncs().find(user, connection).await.unwrap();
        found.expect("a connection that syncs")
    }

    pub(crate) async fn keys_of(&self, user: UserId) -> Vec<KeyRecord> {
        self.storage.keys().list(user).await.unwrap()
    }

    pub(crate) async fn revoke_key(&self, id: KeyId) {
        let now = self.clock.now();
        in_tx!(self.storage, keys::revoke(id, now)).await.unwrap();
    }

    pub(crate) async fn removals(&self) -> Vec<PendingRemoval> {
        self.storage.removals().list().await.unwrap()
    }

    pub(crate) async fn refresh(&self, user: UserId, id: ConnectionId) -> ConnectionStatus {
        self.connections.refreshes().run(user, id).await.unwrap()
    }

    pub(crate) async fn remove(&self, connection: ConnectionId) -> Removal {
        let removals = self.connections.removals();
        removals.remove(connection).await.unwrap()
    }
}
