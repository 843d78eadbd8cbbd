//! E-mails that tell a user of something.

use crate::connection::string_enum;

string_enum! {
    /// What an e-mail is about.
    EmailKind {
        /// A connection needs its user, or will soon.
        Connection "connection",
        /// Deliveries to a webhook endpoint have ended.
        Endpoint "endpoint",
        /// A new browser, or something new that reads the accounts.
        Security "security",
    }
}
