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

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Actor {
    /// `operator_key`, `operator` (on the console's pages for operators), `command` or `user` (in
    /// the console).
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "operator_key"))]
    pub kind: ActorKind,
    /// The id of the operator's key, of the operator, or of the user's session; of a command its
    /// Unix user.
    #[cfg_attr(
        feature = "openapi",
        schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")
    )]
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

    /// The service, for what its settings ask for.
    #[must_use]
    pub fn settings() -> Self {
        Self::command("settings")
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
