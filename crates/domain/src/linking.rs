//! The phases and outcomes of consent sessions, and the status of link sessions.

use crate::connection::string_enum;

string_enum! {
    /// How far a consent session has got.
    LinkPhase {
        /// The browser was redirected to the provider.
        Started "started",
        /// The callback was received, and its parameters are sealed.
        CallbackReceived "callback_received",
        /// The provider returned credentials, which are sealed.
        CredentialsObtained "credentials_obtained",
        /// Successful or not: see the outcome.
        Ended "ended",
    }
}

string_enum! {
    /// Whether the user who gave the consent of a consent session has confirmed whose connection it
    /// becomes.
    Confirmation {
        /// Not answered yet. Until then, nothing is stored.
        Open "open",
        /// The browser that started the session has returned, or the user has answered yes.
        Confirmed "confirmed",
        /// The user has answered no. What the session found is withdrawn.
        Denied "denied",
    }
}

string_enum! {
    /// The outcome of a consent session.
    LinkOutcome {
        /// The consent led to new connections.
        Linked "linked",
        /// A connection is active again.
        Reconnected "reconnected",
        /// The session was to repair a connection, but the user shared other accounts, which became
        /// a new connection.
        LinkedOther "linked_other",
        /// The user consented, but everything was connected already.
        Unchanged "unchanged",
        Declined "declined",
        /// The session failed; the callback page showed the reason.
        Failed "failed",
        /// The session expired without approval, and the provider has no new consent.
        Expired "expired",
        /// The consent is connected for another user of this service.
        OwnedByOtherUser "owned_by_other_user",
        /// The user denied the session, or did not confirm it in time. What the provider listed for
        /// it is withdrawn by a job.
        Withdrawn "withdrawn",
        /// As `Withdrawn`, but the provider did not let this service withdraw the consent.
        NotWithdrawn "not_withdrawn",
    }
}

string_enum! {
    /// How far a link session is, as its app sees it.
    LinkStatus {
        /// Nobody has returned from a provider yet.
        Open "open",
        /// The provider has not confirmed the consent yet.
        Waiting "waiting",
        Connected "connected",
        /// The person gave no consent, and can try again until the link session expires.
        Declined "declined",
        /// As `Declined`, for any other reason.
        Failed "failed",
        Expired "expired",
    }
}

impl LinkOutcome {
    /// Whether the session created or repaired a connection.
    #[must_use]
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Linked | Self::Reconnected | Self::LinkedOther)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phase_names_round_trip() {
        for phase in LinkPhase::ALL {
            assert_eq!(phase.as_str().parse::<LinkPhase>(), Ok(*phase));
        }
        for text in ["Started", "started ", ""] {
            assert!(text.parse::<LinkPhase>().is_err(), "{text}");
        }
    }
}
