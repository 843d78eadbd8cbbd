//! `/settings/data.json`: everything that is stored about a user, but secrets and their hashes.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::{Account, Connection, DeliveryState, EndpointId};
use bellbird_storage::{DeliveryRecord, IdentityRecord, SessionRecord, Storage, StorageError};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::error_page;
use crate::session::Session;
use crate::state::Console;

/// Deliveries in one read.
const DELIVERIES_PAGE: u32 = 500;
/// Deliveries of one endpoint in the file. The endpoint's log has the others.
const DELIVERIES_MAX: usize = 10_000;

/// `GET /settings/data.json`
pub(crate) async fn download(State(console): State<Console>, session: Session) -> Response {
    match collect(console.storage(), &session).await {
        Ok(data) => {
            let headers = [
                (CONTENT_TYPE, "application/json"),
                (CONTENT_DISPOSITION, "attachment; filename=\"bellbird-data.json\""),
            ];
            (headers, format!("{data:#}")).into_response()
        }
        Err(error) => error_page::storage_error(&console, &error),
    }
}

async fn collect(storage: &Storage, session: &Session) -> Result<Value, StorageError> {
    let user = session.user();
    let mut keys = Vec::new();
    for key in storage.keys().list(user).await? {
        let history = storage.setup_tokens().list_key_audit(user, key.id).await?;
        let history: Vec<_> = history.iter().map(|row| json!({"at": row.at, "event": row.event})).collect();
        keys.push(json!({"key": key, "history": history}));
    }
    let (accounts, _) = storage.accounts().list(user, u32::MAX, 0).await?;
    let mut connections = Vec::new();
    for connection in storage.connections().list(user).await? {
        let history = storage.connections().list_audit(connection.id).await?;
        let accounts = accounts.iter().filter(|account| account.connection_id == connection.id).map(account_data);
        connections.push(json!({
            "connection": connection_data(&connection),
            "accounts": accounts.collect::<Vec<_>>(),
            "history": history,
        }));
    }
    let mut endpoints = Vec::new();
    for endpoint in storage.endpoints().list(user).await? {
        let deliveries = deliveries(storage, session, endpoint.id).await?;
        endpoints.push(json!({"endpoint": endpoint, "deliveries": deliveries}));
    }
    let sessions = storage.sessions().list(user, session.now).await?;
    let identities = storage.sessions().list_identities(user).await?;
    let registrations = storage.provider_users().list(user).await?;
    Ok(json!({
        "user": storage.users().find(user).await?,
        "emailsOff": storage.emails().find_off(user).await?,
        "sessions": sessions.iter().map(session_data).collect::<Vec<_>>(),
        "identities": identities.iter().map(identity_data).collect::<Vec<_>>(),
        "keys": keys,
        "registeredAt": registrations.iter().map(|registration| &registration.provider).collect::<Vec<_>>(),
        "connections": connections,
        "webhookEndpoints": endpoints,
    }))
}

async fn deliveries(
    storage: &Storage,
    session: &Session,
    endpoint: EndpointId,
) -> Result<Vec<DeliveryRecord>, StorageError> {
    let every_state: Option<DeliveryState> = None;
    let mut found: Vec<DeliveryRecord> = Vec::new();
    while found.len() < DELIVERIES_MAX {
        let last = found.last().map(|delivery| (delivery.created_at, delivery.event_id));
        let of = (session.user(), endpoint);
        let page = storage.deliveries().list_before(last, of, every_state, DELIVERIES_PAGE).await?;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    Ok(found)
}

fn session_data(session: &SessionRecord) -> Value {
    json!({
        "browser": session.browser,
        "createdAt": session.created_at,
        "lastUsedAt": session.last_used_at,
        "expiresAt": session.expires_at,
    })
}

fn identity_data(identity: &IdentityRecord) -> Value {
    json!({"issuer": identity.issuer, "subject": identity.subject, "createdAt": identity.created_at})
}

fn connection_data(connection: &Connection) -> Value {
    json!({
        "id": connection.id,
        "provider": connection.provider,
        "institutionId": connection.institution_id,
        "institutionName": connection.institution_name,
        "status": connection.status,
        "consentExpiresAt": connection.consent_expires_at,
        "lastRefreshedAt": connection.last_refreshed_at,
        "createdAt": connection.created_at,
    })
}

fn account_data(account: &Account) -> Value {
    json!({
        "id": account.id,
        "name": account.name,
        "number": account.number.as_ref().map(|number| number.as_str()),
        "type": account.account_type,
        "currency": account.currency,
    })
}
