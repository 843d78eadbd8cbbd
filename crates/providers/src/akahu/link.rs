//! Linking at Akahu: builds the authorization URL and exchanges the code
//! (docs/providers/akahu.md#consent-page and
//! #token-exchange).

use async_trait::async_trait;
use secrecy::SecretString;
use url::Url;

use super::{Akahu, Credentials, NAME};
use crate::linking::{
    AuthorizationRequest, CallbackParams, Linking, NoConsent, Purpose, find_param,
};
use crate::{CallContext, Error, credentials};

/// Requests all that the app may read (docs/providers/akahu.md#consent-page).
const SCOPE: &str = "ENDURING_CONSENT";
/// The longest accepted authorization code. Observed codes have fewer than 50 characters
/// (docs/providers/akahu.md#redirects).
const CODE_BYTES_MAX: usize = 1_024;

#[async_trait]
impl Linking for Akahu {
    /// A new consent needs no call. A reconnect reads the e-mail address of the consent, because
    /// linking the same login under another address fails (docs/providers/akahu.md#relinking).
    async fn authorize(
        &self,
        context: &CallContext,
        request: &AuthorizationRequest<'_>,
    ) -> Result<Url, Error> {
        let (email, connection) = match request.purpose {
            Purpose::Link { .. } => (None, None),
            Purpose::Repair {
                credentials,
                institution_id,
            } => (
                self.email_of_consent(context, credentials).await?,
                Some(institution_id),
            ),
        };
        let mut url = self.oauth_url.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", self.api.app())
            .append_pair("redirect_uri", request.redirect_uri.as_str())
            .append_pair("scope", SCOPE)
            .append_pair("state", request.state)
            .append_pair("email", email.as_deref().unwrap_or(request.email))
            .extend_pairs(connection.map(|id| ("connection", id)));
        Ok(url)
    }

    fn hint(&self, params: &[(String, String)]) -> Result<(), NoConsent> {
        match find_param(params, "error") {
            None if self.can_finish(params) => Ok(()),
            None => Err(NoConsent::Failed(
                "Akahu did not return an authorization code. Please start again.",
            )),
            Some("access_denied") => Err(NoConsent::Declined),
            Some("temporarily_unavailable" | "server_error") => Err(NoConsent::Failed(
                "Akahu or the bank is not available. Please try again later.",
            )),
            Some(_) => Err(NoConsent::Failed(
                "Akahu rejected the request. Please start again. If the error returns, contact the operator of this \
                 service.",
            )),
        }
    }

    fn can_finish(&self, params: &[(String, String)]) -> bool {
        code(params).is_some() && find_param(params, "error").is_none()
    }

    async fn finish(
        &self,
        context: &CallContext,
        callback: &CallbackParams<'_>,
    ) -> Result<SecretString, Error> {
        let code = code(callback.params).ok_or_else(|| {
            Error::InvalidCredentials("Akahu did not return an authorization code".to_owned())
        })?;
        let user_token = self
            .api
            .exchange(context, code, callback.redirect_uri)
            .await?;
        let credentials = credentials::write(&Credentials {
            user_token,
            authorisation: None,
        })?;
        // Rejects a token that could not be sent in a header later.
        Credentials::read(&credentials)
            .map_err(|_| Error::Malformed("the user token has invalid characters"))?;
        Ok(credentials)
    }
}

impl Akahu {
    /// Best effort. A connection is often reconnected because its token does not work any more.
    async fn email_of_consent(
        &self,
        context: &CallContext,
        credentials: &SecretString,
    ) -> Result<Option<String>, Error> {
        let credentials = Credentials::read(credentials)?;
        let email = self.api.email(context, &credentials.user_token).await;
        Ok(email.unwrap_or_else(|error| {
            tracing::debug!(provider = %NAME, error = %error, "could not read the e-mail address of a consent");
            None
        }))
    }
}

fn code(params: &[(String, String)]) -> Option<&str> {
    find_param(params, "code").filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::akahu::tests::akahu;
    use crate::test_support::{
        self, Peer, assert_hint, authorize, context, mock_response, parameters,
    };

    const TOKEN: &str = r#"{"success": true, "access_token": "user_token_2", "token_type": "bearer", "scope": "ENDURING_CONSENT"}"#;

    const NEW: Purpose<'_> = Purpose::Link {
        provider_user: None,
    };

    async fn finish(peer: &Peer, params: &[(&str, &str)]) -> Result<String, Error> {
        let akahu = akahu(&peer.base_url, Some("s"));
        test_support::finish(&*akahu, NEW, params).await
    }

    const LINK: &str = "https://oauth.akahu.nz/?response_type=code&client_id=app_token_1\
        &redirect_uri=https%3A%2F%2Fb.example%2Flink%2Fcallback&scope=ENDURING_CONSENT&state=s7";

    #[tokio::test]
    async fn authorize_url_for_a_new_consent() {
        let akahu = akahu("http://127.0.0.1:1", Some("s"));
        let url = authorize(&*akahu, NEW).await;
        assert_eq!(url, Ok(format!("{LINK}&email=a%2Bb%40example.nz")));
        let linking = akahu.linking().unwrap();
        assert!(!linking.registers_users());
        let no_user = SecretString::from("{}");
        for outcome in [
            linking.register(&context(), "r", "e").await.map(drop),
            linking.abandon_registration(&context(), "r", "e").await,
            linking.unregister(&context(), &no_user).await,
        ] {
            assert!(matches!(outcome, Err(Error::InvalidCredentials(_))));
        }
    }

    #[tokio::test]
    async fn repair_uses_the_email_of_the_consent() {
        let credentials = SecretString::from(r#"{"userToken":"user_token_1","authorisation":"a"}"#);
        for (status, body, email) in [
            (
                200,
                r#"{"success": true, "item": {"_id": "user_1", "email": "own@example.nz"}}"#,
                "own%40example.nz",
            ),
            (
                200,
                r#"{"success": true, "item": {"_id": "user_1"}}"#,
                "a%2Bb%40example.nz",
            ),
            (401, r#"{"success": false}"#, "a%2Bb%40example.nz"),
            (403, r#"{"success": false}"#, "a%2Bb%40example.nz"),
        ] {
            let peer = Peer::always(status, body).await;
            let purpose = Purpose::Repair {
                credentials: &credentials,
                institution_id: "conn_1",
            };
            let url = authorize(&*akahu(&peer.base_url, Some("s")), purpose).await;
            assert_eq!(
                url,
                Ok(format!("{LINK}&email={email}&connection=conn_1")),
                "{status}"
            );
            assert_eq!(peer.lines(), ["GET /v1/me"]);
            assert_eq!(
                peer.recorded()[0].header("authorization"),
                Some("Bearer user_token_1")
            );
        }
    }

    #[test]
    fn personal_app_has_no_linking_and_no_webhooks() {
        let without = akahu("http://127.0.0.1:1", None);
        assert!(without.linking().is_none() && without.webhook_verifier().is_none());
        let with = akahu("http://127.0.0.1:1", Some("s"));
        assert!(with.linking().is_some() && with.webhook_verifier().is_some());
    }

    #[test]
    fn callback_hints() {
        let akahu = akahu("http://127.0.0.1:1", Some("s"));
        let linking = akahu.linking().unwrap();
        let long = "x".repeat(CODE_BYTES_MAX + 1);
        let accepted = [("code", "c"), ("source", "oauth"), ("event", "ACCEPT")];
        let denied = ("error", "access_denied");
        for (params, declined, can_finish) in [
            (&accepted[..], None, true),
            (&[("code", "c"), denied], Some(true), false),
            (&[denied, ("error_description", "x")], Some(true), false),
            (&[("error", "temporarily_unavailable")], Some(false), false),
            (&[("error", "server_error")], Some(false), false),
            (&[("error", "invalid_request")], Some(false), false),
            (&[("error", "")], Some(false), false),
            (&[("code", "")], Some(false), false),
            (&[("code", &long)], Some(false), false),
            (&[], Some(false), false),
        ] {
            assert_hint(linking, params, declined);
            let found = linking.can_finish(&parameters(params));
            assert_eq!(found, can_finish, "{params:?}");
        }
    }

    #[tokio::test]
    async fn code_is_exchanged_for_a_token() {
        let peer = Peer::always(200, TOKEN).await;
        assert_eq!(
            finish(&peer, &[("code", "c=1")]).await,
            Ok(r#"{"userToken":"user_token_2"}"#.to_owned())
        );
        let recorded = &peer.recorded()[0];
        assert_eq!(recorded.line, "POST /v1/token");
        assert_eq!(
            recorded.json(),
            json!({
                "grant_type": "authorization_code",
                "code": "c=1",
                "redirect_uri": "https://b.example/link/callback",
                "client_id": "app_token_1",
                "client_secret": "s",
            })
        );
        assert!(matches!(
            finish(&peer, &[]).await,
            Err(Error::InvalidCredentials(_))
        ));
        assert_eq!(peer.lines().len(), 1);
    }

    #[tokio::test]
    async fn rejected_codes_are_mapped_to_errors() {
        let error =
            |code: &str| mock_response(400, &json!({"success": false, "error": code}).to_string());
        for code in ["invalid_grant", "expired_grant"] {
            let peer = Peer::answering(error(code)).await;
            let outcome = finish(&peer, &[("code", "c")]).await;
            assert!(
                matches!(outcome, Err(Error::InvalidCredentials(why)) if why.contains("start again")),
                "{code}"
            );
        }
        let rejected = Error::Rejected { status: 400 };
        let of_operator = Error::OperatorRejected {
            settings: super::super::api::CREDENTIALS,
            status: 400,
        };
        for (code, expected) in [
            ("invalid_client", of_operator),
            ("invalid Request", rejected.clone()),
            ("unsupported_grant_type", rejected),
        ] {
            let peer = Peer::answering(error(code)).await;
            assert_eq!(
                finish(&peer, &[("code", "c")]).await,
                Err(expected),
                "{code}"
            );
        }
    }

    #[tokio::test]
    async fn code_exchange_is_never_retried() {
        for broken in [
            None,
            mock_response(500, r#"{"success": false, "error": "server_error"}"#),
            mock_response(429, "{}"),
            mock_response(200, "{}"),
            mock_response(200, r#"{"success": false, "access_token": "t"}"#),
            mock_response(200, r#"{"access_token": "two words"}"#),
            mock_response(200, r#"{"access_token": ""}"#),
            mock_response(502, "<html>"),
        ] {
            let peer = Peer::answering(broken.clone()).await;
            let outcome = finish(&peer, &[("code", "c")]).await;
            assert!(
                outcome.is_err_and(|error| error.is_transient()),
                "{broken:?}"
            );
            assert_eq!(peer.lines().len(), 1, "{broken:?}");
        }
    }
}
