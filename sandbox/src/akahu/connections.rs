//! `GET /connections[/{id}]`: which institutions can be linked (docs/providers/akahu.md#institutions).

use axum::extract::Path;
use axum::response::Response;
use serde::Serialize;

use super::call::{AppCall, check_id};
use super::errors::Failure;
use super::respond::{item, items};
use crate::world::nz::institutions::{INSTITUTIONS, Institution, find};

/// An institution as Akahu shows it, whole or within an account.
#[derive(Serialize)]
pub(super) struct Shown {
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

impl Shown {
    fn whole(institution: &Institution) -> Self {
        let official = institution.official.as_ref();
        // The classic twin of an official connection takes nobody new.
        let replaced = |other: &Institution| other.official.as_ref().is_some_and(|it| it.classic == institution.id);
        Self {
            _classic: official.map(|official| official.classic),
            new_connections_enabled: Some(!INSTITUTIONS.iter().any(replaced)),
            mode: official.map(|official| official.mode),
            deadline: official.and_then(|official| official.deadline),
            ..Self::inside_an_account(institution)
        }
    }

    /// The four members that accounts repeat.
    pub(super) fn inside_an_account(institution: &Institution) -> Self {
        Self {
            _id: institution.id,
            _classic: None,
            name: institution.name,
            logo: format!("https://cdn.akahu.nz/logos/connections/{}", institution.id),
            connection_type: if institution.official.is_some() { "official" } else { "classic" },
            new_connections_enabled: None,
            mode: None,
            deadline: None,
        }
    }
}

/// All of them; there are no pages.
pub(super) async fn list(_: AppCall) -> Response {
    items(INSTITUTIONS.iter().map(Shown::whole).collect::<Vec<_>>())
}

/// One of them.
pub(super) async fn show(Path(id): Path<String>, _: AppCall) -> Result<Response, Failure> {
    check_id("conn_", &id)?;
    Ok(item(Shown::whole(find(&id).ok_or_else(Failure::not_found)?)))
}
