//! `GET /connections[/{id}]`: the institutions that users can link
//! (docs/providers/akahu.md#institutions).

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::new_zealand::{Institution, NEW_ZEALAND, institution};

/// An institution as Akahu shows it, alone or within an account.
#[derive(Serialize)]
pub(super) struct ConnectionView {
    _id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    _classic: Option<&'static str>,
    name: &'static str,
    logo: String,
    connection_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_connections_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<&'static str>,
}

/// An official connection replaces its classic twin, which accepts no new logins
/// (docs/providers/akahu.md#institutions).
pub(super) fn is_closed_to_new_connections(institution: &Institution) -> bool {
    let mut officials = NEW_ZEALAND
        .institutions
        .iter()
        .filter_map(|other| other.official.as_ref());
    officials.any(|official| official.classic == institution.id)
}

impl ConnectionView {
    fn full(institution: &Institution) -> Self {
        let official = institution.official.as_ref();
        Self {
            _classic: official.map(|official| official.classic),
            new_connections_enabled: Some(!is_closed_to_new_connections(institution)),
            mode: official.map(|official| official.mode),
            deadline: official.and_then(|official| official.deadline),
            ..Self::for_account(institution)
        }
    }

    /// The four members that an account repeats.
    pub(super) fn for_account(institution: &Institution) -> Self {
        Self {
            _id: institution.id,
            _classic: None,
            name: institution.name,
            // It never loads. The real one is at `cdn.akahu.nz`, which a sandbox must not call.
            logo: format!("https://logos.example.com/nz/{}.png", institution.id),
            connection_type: if institution.official.is_some() {
                "official"
            } else {
                "classic"
            },
            new_connections_enabled: None,
            mode: None,
            deadline: None,
        }
    }
}

/// Lists all institutions, without pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(
        NEW_ZEALAND
            .institutions
            .iter()
            .map(ConnectionView::full)
            .collect::<Vec<_>>(),
    )
}

pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("conn_", &id)?;
    Ok(item(ConnectionView::full(
        institution(&id).ok_or_else(Failure::not_found)?,
    )))
}
