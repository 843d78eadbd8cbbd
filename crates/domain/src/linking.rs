//! The phases and outcomes of link sessions.

use crate::connection::string_enum;

string_enum! {
    /// How far a link session has got.
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
    /// The outcome of a link session.
    LinkOutcome {
        /// The consent led to new connections.
        Linked "linked",
        /// A connection is active again.
        Reconnected "reconnected",
        /// The session was to repair a connection, but the user shared other accounts, which became a new connection.
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
    }
}
