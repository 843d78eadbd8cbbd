//! The allowed transitions between the statuses of a connection. Pure.
//!
//! [`ConnectionStatus`] says what each status means. `gone` is not a status: the connection has
//! been deleted.
//!
//! ```text
//! (new) -> active
//! active -> invalidated | pending_mfa | revoked
//! pending_mfa -> invalidated | revoked
//! invalidated -> pending_mfa | revoked
//! invalidated | pending_mfa | revoked -> active    the provider reports the consent as active
//! any -> deleting -> gone
//! ```

use bellbird_domain::ConnectionStatus;
use bellbird_domain::ConnectionStatus::{Active, Deleting, Invalidated, PendingMfa, Revoked};
use bellbird_providers::ConsentStatus;

pub fn can_transition(from: ConnectionStatus, to: ConnectionStatus) -> bool {
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

/// Returns the status that the reported consent status leads to, or `None` if the connection keeps
/// its status.
pub fn next_status(
    status: ConnectionStatus,
    consent_status: ConsentStatus,
) -> Option<ConnectionStatus> {
    let reported = match consent_status {
        ConsentStatus::Active => Active,
        ConsentStatus::Broken(reported) => reported,
    };
    (reported != Deleting && can_transition(status, reported)).then_some(reported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_transitions_are_allowed() {
        let transitions: Vec<(ConnectionStatus, ConnectionStatus)> = ConnectionStatus::ALL
            .iter()
            .flat_map(|from| ConnectionStatus::ALL.iter().map(move |to| (*from, *to)))
            .filter(|(from, to)| can_transition(*from, *to))
            .collect();
        assert_eq!(
            transitions,
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
    fn refresh_moves_along_a_transition_or_not() {
        assert_eq!(next_status(Active, ConsentStatus::Active), None);
        let broken = next_status(Active, ConsentStatus::Broken(Revoked));
        assert_eq!(broken, Some(Revoked));
        let broken = next_status(Revoked, ConsentStatus::Broken(Invalidated));
        assert_eq!(broken, None);
        assert_eq!(next_status(Revoked, ConsentStatus::Active), Some(Active));
        assert_eq!(next_status(Deleting, ConsentStatus::Active), None);
        assert_eq!(next_status(Active, ConsentStatus::Broken(Deleting)), None);
    }
}
