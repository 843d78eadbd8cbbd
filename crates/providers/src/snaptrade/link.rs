//! Linking at SnapTrade: users and the connection portal (docs/providers/snaptrade.md#users and
//! #connection-portal).

use async_trait::async_trait;
use bellbird_domain::ConnectionStatus;
use secrecy::SecretString;
use serde_json::json;
use url::Url;

use super::api::User;
use super::{ConnectionCredentials, SnapTrade, UserCredentials, user_credentials};
use crate::linking::{
    AuthorizationRequest, CallbackParams, Linking, NoConsent, Purpose, find_param,
};
use crate::{CallContext, Error};

#[async_trait]
impl Linking for SnapTrade {
    fn registers_users(&self) -> bool {
        true
    }

    /// The reference becomes the user's id. If the provider rejects it because that user exists, an
    /// earlier attempt has created the user and lost the secret. The caller must then abandon the
    /// registration.
    async fn register(
        &self,
        context: &CallContext,
        reference: &str,
        _email: &str,
    ) -> Result<SecretString, Error> {
        let registered = self.api.register_user(context, reference).await;
        let user = registered.map_err(|error| {
            match error {
            Error::Rejected { status: 403 } => Error::InvalidCredentials(
                "SnapTrade does not register users with this key; if it is a personal key, link brokers in SnapTrade's \
                 dashboard and run `bellbird connection import`"
                    .to_owned(),
            ),
            error => error,
        }
        })?;
        let credentials = user_credentials(Some(&user), None)?;
        // Rejects a secret that could not be read back later.
        UserCredentials::read(&credentials)
            .map_err(|_| Error::Malformed("the user secret is invalid"))?;
        Ok(credentials)
    }

    fn provider_user_id(&self, provider_user: &SecretString) -> Option<String> {
        UserCredentials::read(provider_user)
            .ok()?
            .user
            .map(|user| user.id)
    }

    async fn abandon_registration(
        &self,
        context: &CallContext,
        reference: &str,
        _email: &str,
    ) -> Result<(), Error> {
        self.delete_user(context, reference).await
    }

    /// Bellbird has not registered the user of a personal key, so that user is kept.
    async fn unregister(
        &self,
        context: &CallContext,
        provider_user: &SecretString,
    ) -> Result<(), Error> {
        match UserCredentials::read(provider_user)?.user {
            Some(user) => self.delete_user(context, &user.id).await,
            None => Ok(()),
        }
    }

    async fn authorize(
        &self,
        context: &CallContext,
        request: &AuthorizationRequest<'_>,
    ) -> Result<Url, Error> {
        let redirect_uri_with_state = request.redirect_uri_with_state();
        let mut body = json!({
            "customRedirect": redirect_uri_with_state.as_str(),
            "immediateRedirect": true,
            "connectionType": "read",
            "showCloseButton": true,
        });
        let user = user_of(request.purpose)?;
        let Purpose::Repair { credentials, .. } = request.purpose else {
            return self.api.log_in(context, user.as_ref(), &body).await;
        };
        body["reconnect"] = ConnectionCredentials::read(credentials)?.id.into();
        match self.api.log_in(context, user.as_ref(), &body).await {
            // The connection does not exist any more, so the user has to link it again. How the
            // provider rejects this is not documented.
            Err(Error::Rejected { status: 400 | 404 }) => {
                if let Some(members) = body.as_object_mut() {
                    members.remove("reconnect");
                }
                self.api.log_in(context, user.as_ref(), &body).await
            }
            outcome => outcome,
        }
    }

    /// A callback without a `status` means that the user cancelled
    /// (docs/providers/snaptrade.md#portal-results).
    fn hint(&self, params: &[(String, String)]) -> Result<(), NoConsent> {
        match find_param(params, "status") {
            Some("SUCCESS") => Ok(()),
            None | Some("ABANDONED") => Err(NoConsent::Declined),
            Some(_) => Err(NoConsent::Failed(error_message(
                find_param(params, "error_code").unwrap_or_default(),
            ))),
        }
    }

    /// The callback needs no parameters. The provider lists the user's connections.
    fn can_finish(&self, _params: &[(String, String)]) -> bool {
        true
    }

    async fn finish(
        &self,
        _context: &CallContext,
        callback: &CallbackParams<'_>,
    ) -> Result<SecretString, Error> {
        user_credentials(user_of(callback.purpose)?.as_ref(), None)
    }
}

impl SnapTrade {
    async fn delete_user(&self, context: &CallContext, id: &str) -> Result<(), Error> {
        match self.api.delete_user(context, id).await {
            // The provider itself reports that the user does not exist.
            Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => Ok(()),
            outcome => outcome,
        }
    }
}

/// The provider user of a consent session. None with a personal key.
fn user_of(purpose: Purpose<'_>) -> Result<Option<User>, Error> {
    match purpose {
        Purpose::Link {
            provider_user: None,
        } => Ok(None),
        Purpose::Link {
            provider_user: Some(credentials),
        }
        | Purpose::Repair { credentials, .. } => Ok(UserCredentials::read(credentials)?.user),
    }
}

/// The message for the user, by the portal's error code
/// (docs/providers/snaptrade.md#portal-results).
fn error_message(error_code: &str) -> &'static str {
    match error_code {
        "1066" => {
            "The broker rejected the login. Please start again and check user name and password."
        }
        "3000" => "The broker is not available. Please try again later.",
        "1006" => "The consent page has expired or was already used. Please start again.",
        "1012" => "The broker could not be linked in this way. Please start again.",
        "1023" => {
            "This login differs from the linked one. Please start again with the same login, or link this one as a new \
             bank."
        }
        "1140" => {
            "The broker's API key has no permission to read accounts. Please add it at the broker and start again."
        }
        "1086" => "The security code was wrong. Please start again and use a new code.",
        "0000" => "SnapTrade did not recognise you. Please start again.",
        _ => {
            "The consent page reported an error. Please start again. If the error returns, try again later."
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use secrecy::ExposeSecret;
    use serde_json::Value;

    use super::super::api::CREDENTIALS;
    use super::*;
    use crate::Provider;
    use crate::snaptrade::{self, sign};
    use crate::test_support::{
        Peer, assert_hint, authorize, context, finish, mock_response, parameters,
    };

    const REGISTERED: &str = r#"{"userId": "bellbird-1", "userSecret": "s&e"}"#;
    const USER: &str = r#"{"userId":"bellbird-1","userSecret":"s&e"}"#;
    const LOGIN: &str = r#"{"redirectURI": "https://app.snaptrade.com/snapTrade/redeemToken?token=t", "sessionId": "s"}"#;

    fn snaptrade(peer: &Peer) -> Arc<dyn Provider> {
        snaptrade::tests::snaptrade(&peer.base_url, "test-consumer-key-1")
    }

    /// The first request: its line up to the timestamp, and its body. Also checks the signature.
    fn recorded(peer: &Peer) -> (String, Value) {
        let recorded = peer.recorded().remove(0);
        let body = if recorded.body.is_empty() {
            Value::Null
        } else {
            recorded.json()
        };
        let (path, query) = recorded
            .line
            .split_once(' ')
            .unwrap()
            .1
            .split_once('?')
            .unwrap();
        let signer = sign::Signer::new(&SecretString::from("test-consumer-key-1"));
        assert_eq!(
            recorded.header("signature"),
            Some(signer.sign(&body, path, query).as_str())
        );
        (
            recorded
                .line
                .split("&timestamp=")
                .next()
                .unwrap()
                .to_owned(),
            body,
        )
    }

    async fn register(peer: &Peer) -> Result<SecretString, Error> {
        let adapter = snaptrade(peer);
        let linking = adapter.linking().unwrap();
        linking
            .register(&context(), "bellbird-1", "a@example.com")
            .await
    }

    #[tokio::test]
    async fn a_user_is_registered_in_one_attempt() {
        let peer = Peer::always(200, REGISTERED).await;
        assert_eq!(register(&peer).await.unwrap().expose_secret(), USER);
        let line = "POST /snapTrade/registerUser?clientId=TESTCLIENT".to_owned();
        assert_eq!(recorded(&peer), (line, json!({"userId": "bellbird-1"})));

        for broken in [
            None,
            mock_response(503, "{}"),
            mock_response(425, "{}"),
            mock_response(429, "{}"),
            mock_response(200, "{"),
            mock_response(200, r#"{"userSecret": ""}"#),
            mock_response(502, "<html>"),
        ] {
            let peer = Peer::answering(broken.clone()).await;
            let is_transient = register(&peer)
                .await
                .is_err_and(|error| error.is_transient());
            assert!(is_transient, "{broken:?}");
            assert_eq!(peer.lines().len(), 1, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn rejected_registrations_are_mapped_to_errors() {
        let rejection =
            async |status, body| register(&Peer::always(status, body).await).await.err();
        let taken = r#"{"detail": "User with the following userId already exist: 'bellbird-1'", "code": "1010"}"#;
        assert_eq!(
            rejection(400, taken).await,
            Some(Error::Rejected { status: 400 })
        );
        let Some(Error::InvalidCredentials(why)) = rejection(403, r#"{"code": "1141"}"#).await
        else {
            panic!("a personal key")
        };
        assert!(why.contains("connection import"), "{why}");
    }

    #[tokio::test]
    async fn deleting_a_user_is_idempotent() {
        let rejected = |status| Err(Error::Rejected { status });
        let of_operator = Err(Error::OperatorRejected {
            settings: CREDENTIALS,
            status: 401,
        });
        for (status, body, expected) in [
            (200, r#"{"status": "deleted"}"#, Ok(())),
            (404, r#"{"code": "1011"}"#, Ok(())),
            (401, r#"{"code": "1083"}"#, Ok(())),
            (404, "<html>", rejected(404)),
            (401, r#"{"code": "1076"}"#, of_operator),
            (403, "{}", rejected(403)),
        ] {
            let peer = Peer::always(status, body).await;
            let line = "DELETE /snapTrade/deleteUser?userId=bellbird-1&clientId=TESTCLIENT";
            let (context, adapter) = (context(), snaptrade(&peer));
            let linking = adapter.linking().unwrap();
            let abandoned = linking
                .abandon_registration(&context, "bellbird-1", "a@example.com")
                .await;
            assert_eq!(abandoned, expected, "{status} {body}");
            assert_eq!(recorded(&peer), (line.to_owned(), Value::Null));
            let [user, nobody] = [USER, "{}"].map(SecretString::from);
            assert_eq!(linking.unregister(&context, &user).await, expected);
            assert_eq!(linking.unregister(&context, &nobody).await, Ok(()));
            assert_eq!(peer.lines().len(), 2);
        }
    }

    #[tokio::test]
    async fn portal_for_link_and_repair() {
        let provider_user = SecretString::from(USER);
        let stored = SecretString::from(
            r#"{"userId":"bellbird-1","userSecret":"s&e","authorizationId":"conn"}"#,
        );
        let personal = SecretString::from(r#"{"authorizationId":"conn"}"#);
        let of_user =
            "POST /snapTrade/login?userId=bellbird-1&userSecret=s%26e&clientId=TESTCLIENT";
        for (purpose, line, reconnect, credentials) in [
            (
                Purpose::Link {
                    provider_user: Some(&provider_user),
                },
                of_user,
                None,
                USER,
            ),
            (
                Purpose::Repair {
                    credentials: &stored,
                    institution_id: "x",
                },
                of_user,
                Some("conn"),
                USER,
            ),
            (
                Purpose::Repair {
                    credentials: &personal,
                    institution_id: "x",
                },
                "POST /snapTrade/login?clientId=TESTCLIENT",
                Some("conn"),
                "{}",
            ),
        ] {
            let peer = Peer::always(200, LOGIN).await;
            let adapter = snaptrade(&peer);
            let url = authorize(&*adapter, purpose).await;
            assert_eq!(
                url.as_deref(),
                Ok("https://app.snaptrade.com/snapTrade/redeemToken?token=t")
            );
            let mut body = json!({
                "customRedirect": "https://b.example/link/callback?state=s7&via=bellbird",
                "immediateRedirect": true,
                "connectionType": "read",
                "showCloseButton": true,
            });
            if let Some(id) = reconnect {
                body["reconnect"] = id.into();
            }
            assert_eq!(recorded(&peer), (line.to_owned(), body));
            let finished = finish(&*adapter, purpose, &[]).await;
            assert_eq!(finished.as_deref(), Ok(credentials));
        }
    }

    #[tokio::test]
    async fn failed_portal_logins_are_mapped_to_errors() {
        const GONE: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);
        for (status, body, expected) in [
            (
                200,
                r#"{"redirectURI": "javascript:alert(1)"}"#,
                Error::Malformed("the consent page is not a URL"),
            ),
            (
                200,
                r#"{"encryptedSharedKey": "x"}"#,
                Error::Malformed("not the documented JSON"),
            ),
            (401, r#"{"code": "1083"}"#, GONE),
            (404, r#"{"code": "1011"}"#, Error::Rejected { status: 404 }),
        ] {
            let peer = Peer::always(status, body).await;
            let provider_user = SecretString::from(USER);
            let purpose = Purpose::Link {
                provider_user: Some(&provider_user),
            };
            let outcome = authorize(&*snaptrade(&peer), purpose).await;
            assert_eq!(outcome.err(), Some(expected), "{body}");
        }
    }

    #[tokio::test]
    async fn callback_hints() {
        let peer = Peer::answering(None).await;
        let adapter = snaptrade(&peer);
        let linking = adapter.linking().unwrap();
        let failed = |code| {
            vec![
                ("status", "ERROR"),
                ("status_code", "400"),
                ("error_code", code),
            ]
        };
        for (answer, declined) in [
            (vec![("status", "SUCCESS"), ("connection_id", "c")], None),
            (vec![("status", "ABANDONED")], Some(true)),
            (vec![("theme", "dark")], Some(true)),
            (vec![], Some(true)),
            (failed("1066"), Some(false)),
            (failed("<b>"), Some(false)),
            (vec![("status", "ERROR")], Some(false)),
            (vec![("status", "else")], Some(false)),
        ] {
            assert_hint(linking, &answer, declined);
            assert!(linking.can_finish(&parameters(&answer)));
        }
        let codes = [
            "1066", "3000", "1006", "1012", "1023", "1140", "1086", "0000",
        ];
        let sentences: std::collections::BTreeSet<&str> =
            codes.iter().map(|code| error_message(code)).collect();
        assert!(
            sentences.len() == codes.len() && !sentences.contains(error_message("?")),
            "each has a sentence of its own"
        );
    }
}
