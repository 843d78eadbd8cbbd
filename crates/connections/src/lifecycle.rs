//! The states of a connection and the edges between them. Pure.
//!
//! ```text
//! (new) -> active
//! active -> invalidated | pending_mfa | revoked
//! pending_mfa -> invalidated | revoked
//! invalidated -> pending_mfa | revoked
//! invalidated | pending_mfa | revoked -> active      the provider says that it works again
//! any -> deleting -> gone
//! ```

use bellbird_domain::ConnectionStatus;
use bellbird_domain::ConnectionStatus::{Active, Deleting, Invalidated, PendingMfa, Revoked};
use bellbird_providers::Standing;

/// Whether a connection may go from one status to another.
#[must_use]
pub fn is_edge(from: ConnectionStatus, to: ConnectionStatus) -> bool {
    match (from, to) {
        (Deleting, _) => false,
        (_, Deleting) => true,
        (Active, Invalidated | PendingMfa | Revoked) => true,
        (PendingMfa, Invalidated | Revoked) => true,
        (Invalidated, PendingMfa | Revoked) => true,
        (Invalidated | PendingMfa | Revoked, Active) => true,
        _ => false,
    }
}

/// Where what the provider says leads a connection, or none when it stays where it is.
#[must_use]
pub fn after_look(status: ConnectionStatus, standing: Standing) -> Option<ConnectionStatus> {
    let said = match standing {
        Standing::Active => Active,
        Standing::Broken(said) => said,
    };
    (said != Deleting && is_edge(status, said)).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn these_edges_and_no_others() {
        let edges: Vec<(ConnectionStatus, ConnectionStatus)> = ConnectionStatus::ALL
            .iter()
            .flat_map(|from| ConnectionStatus::ALL.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| is_edge(*from, *to))
            .collect();
        assert_eq!(
            edges,
            [
                (Active, Invalidated),
                (Active, PendingMfa),
                (Active, Revoked),
                (Active, Deleting),
                (Invalidated, Active),
                (Invalidated, PendingMfa),
                (Invalidated, Revoked),
                (Invalidated, Deleting),
                (PendingMfa, Active),
                (PendingMfa, Invalidated),
                (PendingMfa, Revoked),
                (PendingMfa, Deleting),
                (Revoked, Active),
                (Revoked, Deleting),
            ]
        );
    }

    #[test]
    fn a_look_leads_along_an_edge_or_nowhere() {
        assert_eq!(after_look(Active, Standing::Active), None);
        assert_eq!(after_look(Active, Standing::Broken(Revoked)), Some(Revoked));
        assert_eq!(after_look(Revoked, Standing::Broken(Invalidated)), None);
        assert_eq!(after_look(Revoked, Standing::Active), Some(Active));
        assert_eq!(after_look(Deleting, Standing::Active), None);
        assert_eq!(after_look(Active, Standing::Broken(Deleting)), None);
    }
}
