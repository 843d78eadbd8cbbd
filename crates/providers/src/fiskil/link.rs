//! Linking at Fiskil: end users and auth sessions (docs/providers/fiskil.md#end-users and
//! #sessions).

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use super::{Credentials, Fiskil, wire};
use crate::linking::{
    AuthorizationRequest, CallbackParams, Linking, NoConsent, Purpose, find_param,
};
use crate::{CallContext, Error, credentials};

#[async_trait]
impl Linking for Fiskil {
    fn registers_users(&self) -> bool {
        true
    }

    async fn register(
        &self,
        context: &CallContext,
        reference: &str,
        email: &str,
    ) -> Result<SecretString, Error> {
        end_user_credentials(self.api.add_end_user(context, reference, email).await?)
    }

    fn provider_user_id(&self, provider_user: &SecretString) -> Option<String> {
        Credentials::read(provider_user)
            .ok()
            .map(|credentials| credentials.end_user_id)
    }

    /// Registration is not idempotent, so several end users can have the reference as their name.
    async fn abandon_registration(
        &self,
        context: &CallContext,
        reference: &str,
        email: &str,
    ) -> Result<(), Error> {
        for id in self.api.end_users(context, email, reference).await? {
            self.api.delete_end_user(context, &id).await?;
        }
        Ok(())
    }

    async fn unregister(
        &self,
        context: &CallContext,
        provider_user: &SecretString,
    ) -> Result<(), Error> {
        self.api
            .delete_end_user(context, &Credentials::read(provider_user)?.end_user_id)
            .await
    }

    async fn authorize(
        &self,
        context: &CallContext,
        request: &AuthorizationRequest<'_>,
    ) -> Result<Url, Error> {
        let redirect_uri_with_state = request.redirect_uri_with_state();
        let credentials = end_user_of(request.purpose)?;
        let institution_id = match request.purpose {
            Purpose::Link { .. } => None,
            Purpose::Repair { institution_id, .. } => Some(institution_id),
        };
        let session = wire::NewSession {
            end_user_id: &credentials.end_user_id,
            redirect_uri: redirect_uri_with_state.as_str(),
            cancel_uri: redirect_uri_with_state.as_str(),
            institution_id,
            // Reported, not documented (docs/providers/fiskil.md#sessions). If the provider ignores
            // it, the session creates a new arrangement at the same institution.
            arrangement_id: credentials.arrangement_id.as_deref(),
        };
        self.api.session(context, &session).await
    }

    fn hint(&self, params: &[(String, String)]) -> Result<(), NoConsent> {
        match (
            find_param(params, "error"),
            find_param(params, "error_type"),
        ) {
            (None, None) => Ok(()),
            (_, Some("AUTH_SESSION_CANCELLED" | "CONSENT_ENDUSER_DENIED"))
            | (Some("access_denied"), None) => Err(NoConsent::Declined),
            (_, error_type) => Err(NoConsent::Failed(error_message(
                error_type.unwrap_or_default(),
            ))),
        }
    }

    /// The callback needs no parameters. The provider lists the end user's consents.
    fn can_finish(&self, _params: &[(String, String)]) -> bool {
        true
    }

    async fn finish(
        &self,
        _context: &CallContext,
        callback: &CallbackParams<'_>,
    ) -> Result<SecretString, Error> {
        end_user_credentials(end_user_of(callback.purpose)?.end_user_id)
    }
}

/// Credentials that cover all consents of an end user.
fn end_user_credentials(end_user_id: String) -> Result<SecretString, Error> {
    credentials::write(&Credentials {
        end_user_id,
        arrangement_id: None,
    })
}

/// The end user, with the arrangement if the session reconnects one.
fn end_user_of(purpose: Purpose<'_>) -> Result<Credentials, Error> {
    match purpose {
        Purpose::Link { provider_user } => {
            let provider_user = provider_user.ok_or_else(|| {
                Error::InvalidCredentials(
                    "Fiskil needs a registered end user before a consent".to_owned(),
                )
            })?;
            let Credentials { end_user_id, .. } = Credentials::read(provider_user)?;
            Ok(Credentials {
                end_user_id,
                arrangement_id: None,
            })
        }
        Purpose::Repair { credentials, .. } => Credentials::read(credentials),
    }
}

/// The message for the user, by `error_type` (docs/providers/fiskil.md#consent-errors).
fn error_message(error_type: &str) -> &'static str {
    match error_type {
        "AUTH_SESSION_INVALID" => {
            "The consent page was already used or has expired. Please start again."
        }
        "CONSENT_UPSTREAM_PROCESSING_ERROR" => {
            "The bank sent an unexpected response. Please try again later."
        }
        "CONSENT_OTP_FAILURE" => {
            "The one-time code was wrong. Please start again and request a new code."
        }
        "CONSENT_ENDUSER_INELIGIBLE" => {
            "The bank does not allow this login to share data. Please ask the bank to allow it, or use another login."
        }
        "CONSENT_TIMEOUT" => "The consent timed out. Please start again.",
        _ => {
            "The consent page reported an error. Please start again. If the error returns, try again later."
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bellbird_domain::ConnectionStatus;
    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;
    use crate::fiskil::open;
    use crate::settings::Values;
    use crate::test_support::{
        MockResponse, Peer, RecordedRequest, assert_hint, authorize, context, finish,
        mock_response, parameters,
    };
    use crate::{ConsentStatus, Provider};

    const REFERENCE: &str = "bellbird 0194";
    const ADDED: &str = r#"{"end_user_id": "eu_1"}"#;
    const GONE: &str = r#"{"name": "end_user_not_found", "id": "1", "message": "x"}"#;

    /// A provider that issues tokens. `answer` gets the number of the request, token requests not
    /// counted.
    async fn peer(
        answer: impl Fn(usize, &RecordedRequest) -> MockResponse + Send + 'static,
    ) -> (Peer, Arc<dyn Provider>) {
        let others = std::sync::atomic::AtomicUsize::new(0);
        let peer = Peer::new(move |_, recorded| match recorded.line.as_str() {
            "POST /v1/token" => mock_response(200, r#"{"token": "t", "expires_in": 900}"#),
            _ => answer(
                others.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
                recorded,
            ),
        })
        .await;
        let mut values = Values::default();
        values.set("base_url", peer.base_url.clone().into());
        values.set("client_id", "id".into());
        values.set("client_secret", "secret".into());
        let fiskil = open(&values, crate::test_support::client_settings(20)).unwrap();
        (peer, fiskil)
    }

    fn linking(fiskil: &Arc<dyn Provider>) -> &dyn Linking {
        fiskil.linking().unwrap()
    }

    async fn register(fiskil: &Arc<dyn Provider>) -> Result<SecretString, Error> {
        linking(fiskil)
            .register(&context(), REFERENCE, "a@example.com")
            .await
    }

    /// The recorded requests without token requests.
    fn recorded(peer: &Peer) -> Vec<RecordedRequest> {
        peer.recorded()
            .into_iter()
            .filter(|recorded| recorded.line != "POST /v1/token")
            .collect()
    }

    fn lines(peer: &Peer) -> Vec<String> {
        recorded(peer)
            .into_iter()
            .map(|recorded| recorded.line)
            .collect()
    }

    fn provider_user() -> SecretString {
        SecretString::from(r#"{"endUserId":"eu_1"}"#)
    }

    fn arrangement() -> SecretString {
        SecretString::from(r#"{"endUserId":"eu_1","arrangementId":"arr"}"#)
    }

    #[tokio::test]
    async fn an_end_user_is_registered_in_one_attempt() {
        let (peer, fiskil) = peer(|_, _| mock_response(201, ADDED)).await;
        let credentials = register(&fiskil).await.unwrap();
        assert_eq!(credentials.expose_secret(), r#"{"endUserId":"eu_1"}"#);
        let recorded = recorded(&peer);
        assert_eq!(recorded[0].line, "POST /v1/end-users");
        assert_eq!(
            recorded[0].json(),
            json!({"email": "a@example.com", "name": REFERENCE})
        );
        assert_eq!(recorded[0].header("authorization"), Some("Bearer t"));
    }

    #[tokio::test]
    async fn ambiguous_registration_is_not_retried() {
        for broken in [
            None,
            mock_response(503, "{}"),
            mock_response(429, "{}"),
            mock_response(200, "{"),
            mock_response(502, "<html>"),
        ] {
            let answer = broken.clone();
            let (peer, fiskil) = peer(move |_, _| answer.clone()).await;
            let outcome = register(&fiskil).await;
            let is_transient = outcome.is_err_and(|error| error.is_transient());
            assert!(is_transient, "{broken:?}");
            assert_eq!(recorded(&peer).len(), 1, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn registration_retries_after_a_stale_token() {
        for (rejections, outcome, requests) in
            [(1, Ok(()), 2), (9, Err(Error::Rejected { status: 401 }), 2)]
        {
            let (peer, fiskil) = peer(move |number, _| match number {
                number if number < rejections => mock_response(401, "{}"),
                _ => mock_response(201, ADDED),
            })
            .await;
            assert_eq!(register(&fiskil).await.map(|_| ()), outcome);
            assert_eq!(
                (recorded(&peer).len(), peer.lines().len()),
                (requests, 2 * requests),
                "a token for each"
            );
        }
    }

    #[tokio::test]
    async fn abandoned_registrations_are_found_by_name() {
        let (peer, fiskil) = peer(|_, recorded| match recorded.line.as_str() {
            "DELETE /v1/end-users/eu_3" => mock_response(404, GONE),
            line if line.starts_with("DELETE") => Some((204, String::new())),
            line if line.contains("after") => {
                mock_response(200, r#"[{"id": "eu_3", "name": "bellbird 0194"}]"#)
            }
            _ => {
                let page = json!({
                    "end_users": [
                        {"id": "eu_1", "name": "bellbird 0194"},
                        {"id": "eu_2", "name": "bellbird 01945"},
                        {"id": "eu_4"},
                    ],
                    "links": {"next": "/v1/end-users?page[after]=n"},
                });
                mock_response(200, &page.to_string())
            }
        })
        .await;
        assert_eq!(
            linking(&fiskil)
                .abandon_registration(&context(), REFERENCE, "a+b@example.com")
                .await,
            Ok(())
        );
        let list = "GET /v1/end-users?email=a%2Bb%40example.com&page%5Bsize%5D=1000";
        assert_eq!(
            lines(&peer),
            [
                list.to_owned(),
                format!("{list}&page%5Bafter%5D=n"),
                "DELETE /v1/end-users/eu_1".to_owned(),
                "DELETE /v1/end-users/eu_3".to_owned(),
            ]
        );
    }

    #[tokio::test]
    async fn unregistering_is_idempotent() {
        let rejected = |status| Err(Error::Rejected { status });
        for (status, body, expected) in [
            (204, "", Ok(())),
            (404, GONE, Ok(())),
            (404, r#"{"name": "bad_request"}"#, rejected(404)),
            (404, "<html>", rejected(404)),
            (403, "{}", rejected(403)),
        ] {
            let (peer, fiskil) = peer(move |_, _| mock_response(status, body)).await;
            let linking = linking(&fiskil);
            let outcome = linking.unregister(&context(), &provider_user()).await;
            assert_eq!(outcome, expected, "{status} {body}");
            assert_eq!(lines(&peer), ["DELETE /v1/end-users/eu_1"]);
        }
    }

    #[tokio::test]
    async fn consents_are_found_on_any_page() {
        let (peer, fiskil) = peer(|_, recorded| {
            let (id, links) = match recorded.line.contains("after") {
                true => ("arr", json!({})),
                false => ("other", json!({"next": "/v1/consent?page[after]=n"})),
            };
            let consent = json!({"arrangement_id": id, "active": true, "institution_id": "1"});
            let page = json!({"consents": [consent], "links": links});
            mock_response(200, &page.to_string())
        })
        .await;
        let consent = fiskil.consent(&context(), &arrangement()).await;
        assert_eq!(consent, Ok(ConsentStatus::Active.into()));
        let list = "GET /v1/consent?end_user_id=eu_1";
        let next = format!("{list}&page%5Bafter%5D=n");
        assert_eq!(lines(&peer), [list.to_owned(), next]);
    }

    #[tokio::test]
    async fn withdrawal_is_idempotent() {
        let rejected = |status| Err(Error::Rejected { status });
        for (status, body, expected) in [
            (204, "", Ok(())),
            (404, GONE, Ok(())),
            (404, r#"{"name": "not_found"}"#, Ok(())),
            (404, "{}", rejected(404)),
            (404, "<html>", rejected(404)),
            (400, r#"{"name": "bad_request"}"#, rejected(400)),
        ] {
            let (peer, fiskil) = peer(move |_, _| mock_response(status, body)).await;
            let outcome = fiskil.withdraw(&context(), &arrangement()).await;
            assert_eq!(outcome, expected, "{status} {body}");
            assert_eq!(lines(&peer), ["DELETE /v1/consent/arr"]);
        }
    }

    #[tokio::test]
    async fn consent_of_a_deleted_end_user_is_revoked() {
        let (_peer, fiskil) = peer(|_, _| mock_response(404, GONE)).await;
        let revoked = ConsentStatus::Broken(ConnectionStatus::Revoked);
        let consent = fiskil.consent(&context(), &arrangement()).await;
        assert_eq!(consent, Ok(revoked.into()));
    }

    #[tokio::test]
    async fn auth_session_for_link_and_repair() {
        let (peer, fiskil) = peer(|_, _| {
            mock_response(
                200,
                r#"{"auth_url": "https://auth.fiskil.com?sess_id=s", "expires_at": 1}"#,
            )
        })
        .await;
        let stored = arrangement();
        let (provider_user, redirect_uri_with_state) = (
            provider_user(),
            "https://b.example/link/callback?state=s7&via=bellbird",
        );
        let plain = json!({
            "end_user_id": "eu_1",
            "redirect_uri": redirect_uri_with_state,
            "cancel_uri": redirect_uri_with_state,
        });
        let mut repair = plain.clone();
        (repair["institution_id"], repair["arrangement_id"]) = ("22".into(), "arr".into());
        for (purpose, body) in [
            (
                Purpose::Link {
                    provider_user: Some(&provider_user),
                },
                plain,
            ),
            (
                Purpose::Repair {
                    credentials: &stored,
                    institution_id: "22",
                },
                repair,
            ),
        ] {
            let url = authorize(&*fiskil, purpose).await;
            assert_eq!(url.as_deref(), Ok("https://auth.fiskil.com/?sess_id=s"));
            let recorded = recorded(&peer).pop().unwrap();
            assert_eq!(
                (recorded.line.as_str(), recorded.json()),
                ("POST /v1/auth/session", body)
            );

            let credentials = finish(&*fiskil, purpose, &[]).await;
            assert_eq!(credentials.as_deref(), Ok(r#"{"endUserId":"eu_1"}"#));
        }
        let no_user = Purpose::Link {
            provider_user: None,
        };
        assert!(matches!(
            authorize(&*fiskil, no_user).await,
            Err(Error::InvalidCredentials(_))
        ));
    }

    #[tokio::test]
    async fn consent_page_must_be_a_http_url() {
        for url in [
            "javascript:alert(1)",
            "data:text/html,x",
            "//auth.fiskil.com",
            "",
            "https://",
        ] {
            let (_peer, fiskil) =
                peer(move |_, _| Some((200, json!({ "auth_url": url }).to_string()))).await;
            let provider_user = provider_user();
            let purpose = Purpose::Link {
                provider_user: Some(&provider_user),
            };
            let outcome = authorize(&*fiskil, purpose).await;
            assert!(matches!(outcome, Err(Error::Malformed(_))), "{url}");
        }
    }

    #[tokio::test]
    async fn callback_hints() {
        let (_peer, fiskil) = peer(|_, _| None).await;
        let denied = |error_type| vec![("error", "access_denied"), ("error_type", error_type)];
        for (answer, declined) in [
            (vec![], None),
            (vec![("session_id", "s")], None),
            (denied("AUTH_SESSION_CANCELLED"), Some(true)),
            (denied("CONSENT_ENDUSER_DENIED"), Some(true)),
            (vec![("error_type", "CONSENT_ENDUSER_DENIED")], Some(true)),
            (vec![("error", "access_denied")], Some(true)),
            (denied("AUTH_SESSION_INVALID"), Some(false)),
            (denied("CONSENT_UPSTREAM_PROCESSING_ERROR"), Some(false)),
            (denied("CONSENT_OTP_FAILURE"), Some(false)),
            (denied("CONSENT_ENDUSER_INELIGIBLE"), Some(false)),
            (denied("CONSENT_TIMEOUT"), Some(false)),
            (denied("<script>"), Some(false)),
            (vec![("error", "server_error")], Some(false)),
        ] {
            assert_hint(linking(&fiskil), &answer, declined);
            assert!(linking(&fiskil).can_finish(&parameters(&answer)));
        }
        let known = [
            "AUTH_SESSION_INVALID",
            "CONSENT_OTP_FAILURE",
            "CONSENT_TIMEOUT",
            "CONSENT_ENDUSER_INELIGIBLE",
        ];
        assert!(
            known
                .iter()
                .all(|error_type| error_message(error_type) != error_message("?")),
            "each has a sentence of its own"
        );
    }
}
