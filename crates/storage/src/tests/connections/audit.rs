use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};

use crate::tests::support::{at, both, new_connection};

both! {
    async fn audit_lists_every_status_change(db) {
        let user = db.user("a@x").await;
        let id = db.connection(user.id, "consent", &[]).await.id;
        let (active, invalidated, deleting) =
            (ConnectionStatus::Active, ConnectionStatus::Invalidated, ConnectionStatus::Deleting);
        // All at the same time: the rows keep the order of the changes.
        assert!(db.set_status((user.id, id), active, invalidated, at(20)).await);
        db.connections().import(&new_connection(user.id, "consent"), &[], at(20)).await.unwrap();
        assert!(db.remove(user.id, id, at(20)).await);
        let rows = db.connections().list_audit(id).await.unwrap();
        let steps: Vec<_> = rows.iter().map(|row| (row.from, row.to, row.cause.as_str())).collect();
        assert_eq!(
            steps,
            [
                (None, Some(active), "imported"),
                (Some(active), Some(invalidated), "refreshed"),
                (Some(invalidated), Some(active), "reconnected"),
                (Some(active), Some(deleting), "removed"),
                (Some(deleting), None, "deleted"),
            ]
        );
        assert!(rows.iter().all(|row| row.connection_id == id && row.user_id == user.id));
        assert_eq!((rows[0].at, rows[4].at), (at(10), at(20)));
        assert_eq!(db.connections().list_audit(ConnectionId::new()).await.unwrap(), []);
        let (newest, user) = (rows.last().unwrap(), rows[0].user_id);
        assert_eq!(db.connections().list_history(user, id, 1).await.unwrap(), std::slice::from_ref(newest));
        assert_eq!(db.connections().list_history(UserId::new(), id, 9).await.unwrap(), [], "of another user");
        // Two years after the first row, which ten seconds separate from the others.
        let later = at(10 + 2 * 365 * 24 * 3_600);
        assert_eq!(db.connections().delete_outdated_audit(later).await.unwrap(), 1);
        assert_eq!(db.connections().list_audit(id).await.unwrap(), rows[1..]);
    }
}
