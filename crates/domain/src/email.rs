//! E-mails that tell a user of something.

use crate::connection::string_enum;

string_enum! {
    /// What an e-mail is about. A user can switch each kind off.
    EmailKind {
        /// A connection needs its user, or will soon.
        Connection "connection",
        /// Deliveries to a webhook endpoint have ended.
        Endpoint "endpoint",
        /// A sign-in from a browser that was not used before.
        SignIn "sign_in",
    }
}
