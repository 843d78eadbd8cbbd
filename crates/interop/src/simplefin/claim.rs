//! `POST /simplefin/claim/{token}`: exchanges a setup token for an access URL, once.
//!
//! The access URL has a new API key as its password. Headers and body are ignored: some clients
//! send empty credentials.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use bellbird_api::http::Problem;
use bellbird_domain::{ApiKey, SetupToken};
use bellbird_storage::SetupTokenClaim;
use http::StatusCode;

use super::text;
use crate::Interop;

/// The key says who asks. Some clients need a name, without `:`, `@` and percent-encoding.
const USER_NAME: &str = "bellbird";

pub(super) async fn claim(
    State(interop): State<Interop>,
    token: Result<Path<String>, PathRejection>,
) -> Result<Response, Problem> {
    let api = &interop.context;
    let now = api.clock().now();
    let Path(token) = token.map_err(|_| Problem::Unauthorized)?;
    let token = SetupToken::parse(&token).map_err(|_| Problem::Unauthorized)?;
    let key = bellbird_storage::new_key();
    match api
        .look_up_unproven(api.storage().setup_tokens().claim(&token, &key, now))
        .await?
    {
        SetupTokenClaim::Created(record) => {
            tracing::info!(user_id = %record.user_id, key_id = %record.id, "setup token claimed");
            Ok(text(
                StatusCode::OK,
                with_credentials(&interop.simplefin_url(), &key),
            ))
        }
        SetupTokenClaim::Repeated { user_id, key_id } => {
            tracing::warn!(%user_id, %key_id, "second claim of a setup token rejected");
            Err(Problem::Unauthorized)
        }
        SetupTokenClaim::Unknown => Err(Problem::Unauthorized),
    }
}

fn with_credentials(root_url: &str, key: &ApiKey) -> String {
    let (scheme, rest) = root_url.split_once("://").unwrap_or(("https", root_url));
    format!("{scheme}://{USER_NAME}:{}@{rest}", key.expose())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_url_has_user_and_key() {
        let key = ApiKey::from_random([1; 32]);
        for (root, start, end) in [
            (
                "https://x.example/simplefin",
                "https://bellbird:bb_1",
                "@x.example/simplefin",
            ),
            (
                "http://127.0.0.1:8080/simplefin",
                "http://bellbird:bb_1",
                "@127.0.0.1:8080/simplefin",
            ),
            (
                "https://x.example/a/simplefin",
                "https://bellbird:bb_1",
                "@x.example/a/simplefin",
            ),
        ] {
            let url = with_credentials(root, &key);
            assert!(url.starts_with(start) && url.ends_with(end), "{root}");
            assert_eq!(
                url.matches([':', '@']).count(),
                root.matches(':').count() + 2,
                "{root}"
            );
        }
    }
}
