//! Who makes a change, as the audit records it.

use serde::Serialize;
use uuid::Uuid;

use crate::connection::string_enum;
use crate::{OperatorKeyId, UserId};

string_enum! {
    /// How somebody makes changes.
    ActorKind {
        /// By a command on the server.
        Command "command",
        /// By the operator's API.
        OperatorKey "operator_key",
        /// On the console's pages for operators.
        Operator "operator",
        /// The user whom it is about, in the console.
        User "user",
    }
}

/// Who makes a change. Serialized as the API and commands show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Actor {
    pub kind: ActorKind,
    /// The name of the Unix user who ran the command, or the id of the operator key, of the user
    /// who is an operator, or of the session of the user whom it is about.
    pub id: String,
}

impl Actor {
    #[must_use]
    pub fn command(unix_user: &str) -> Self {
        Self {
            kind: ActorKind::Command,
            id: unix_user.to_owned(),
        }
    }

    /// Whoever has the code that the log of a first start shows.
    #[must_use]
    pub fn first_start() -> Self {
        Self::command("first start")
    }

    #[must_use]
    pub fn operator_key(key: OperatorKeyId) -> Self {
        Self {
            kind: ActorKind::OperatorKey,
            id: key.to_string(),
        }
    }

    #[must_use]
    pub fn operator(user: UserId) -> Self {
        Self {
            kind: ActorKind::Operator,
            id: user.to_string(),
        }
    }

    #[must_use]
    pub fn user(session: Uuid) -> Self {
        Self {
            kind: ActorKind::User,
            id: session.to_string(),
        }
    }
}
