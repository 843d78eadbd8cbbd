//! Consent in the browser: the inline authorisation URL and the exchange of its code
//! (docs/providers/akahu.md#consent-page, #token-exchange).

use async_trait::async_trait;
use reqwest::Url;
use secrecy::SecretString;

use super::{Akahu, Grant, NAME};
use crate::linking::{Departure, Linking, NoConsent, Purpose, Return, parameter};
use crate::{Call, Error, grant};

/// What stands for all that the app may see (docs/providers/akahu.md#consent-page).
const SCOPE: &str = "ENDURING_CONSENT";
/// The longest code that is sent on; those seen have fewer than 50 characters (docs/providers/akahu.md#redirects).
const CODE_BYTES_MAX: usize = 1_024;

#[async_trait]
impl Linking for Akahu {
    /// People are users of Akahu's own, and make themselves known there.
    fn registers_users(&self) -> bool {
        false
    }

    /// Nobody is registered: always refused.
    async fn register(&self, _call: &Call, _reference: &str, _email: &str) -> Result<SecretString, Error> {
        Err(Error::BadGrant("Akahu's users register themselves".to_owned()))
    }

    /// Nothing can have been left behind.
    async fn abandon(&self, _call: &Call, _reference: &str, _email: &str) -> Result<(), Error> {
        Ok(())
    }

    /// There is no such user.
    async fn unregister(&self, _call: &Call, _owner: &SecretString) -> Result<(), Error> {
        Ok(())
    }

    /// No call is needed, but to learn the address with which a login was linked: under another one, linking it again
    /// fails (docs/providers/akahu.md#relinking).
    async fn depart(&self, call: &Call, departure: &Departure<'_>) -> Result<Url, Error> {
        let (email, connection) = match departure.purpose {
            Purpose::Link { .. } => (None, None),
            Purpose::Repair { grant, institution_id } => (self.known_email(call, grant).await?, Some(institution_id)),
        };
        let mut url = self.oauth_url.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", self.api.app())
            .append_pair("redirect_uri", departure.return_url.as_str())
            .append_pair("scope", SCOPE)
            .append_pair("state", departure.state)
            .append_pair("email", email.as_deref().unwrap_or(departure.email))
            .extend_pairs(connection.map(|id| ("connection", id)));
        Ok(url)
    }

    fn hint(&self, answer: &[(String, String)]) -> Result<(), NoConsent> {
        match parameter(answer, "error") {
            None if self.can_finish(answer) => Ok(()),
            None => Err(NoConsent::Failed("Akahu sent no answer along. Please begin again.")),
            Some("access_denied") => Err(NoConsent::Declined),
            Some("temporarily_unavailable" | "server_error") => {
                Err(NoConsent::Failed("Akahu or the bank did not answer as it should. Please try again later."))
            }
            Some(_) => Err(NoConsent::Failed(
                "Akahu did not accept the request. Please begin again; if it keeps happening, tell whoever runs this \
                 service.",
            )),
        }
    }

    fn can_finish(&self, answer: &[(String, String)]) -> bool {
        code(answer).is_some() && parameter(answer, "error").is_none()
    }

    async fn finish(&self, call: &Call, returned: &Return<'_>) -> Result<SecretString, Error> {
        let code = code(returned.answer).ok_or_else(|| Error::BadGrant("Akahu sent no code along".to_owned()))?;
        let user_token = self.api.exchange(call, code, returned.return_url).await?;
        let written = grant::write(&Grant { user_token, authorisation: None })?;
        // A token that could not be used later is not taken.
        Grant::read(&written).map_err(|_| Error::Malformed("a user token that no header can hold"))?;
        Ok(written)
    }
}

impl Akahu {
    /// Best effort: a token that does not work any more is the very reason for which a connection is repaired.
    async fn known_email(&self, call: &Call, grant: &SecretString) -> Result<Option<String>, Error> {
        let grant = Grant::read(grant)?;
        let known = self.api.email(call, &grant.user_token).await;
        Ok(known.unwrap_or_else(|error| {
            tracing::debug!(provider = %NAME, error = %error, "the address of a consent is not known");
            None
        }))
    }
}

fn code(answer: &[(String, String)]) -> Option<&str> {
    parameter(answer, "code").filter(|code| !code.is_empty() && code.len() <= CODE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;
    use crate::Provider;
    use crate::akahu::open;
    use crate::peer::{Peer, answered, call, parameters};
    use crate::settings::Values;

    const TOKEN: &str =
        r#"{"success": true, "access_token": "user_token_2", "token_type": "bearer", "scope": "ENDURING_CONSENT"}"#;

    fn akahu(base_url: &str, app_secret: Option<&str>) -> Arc<dyn Provider> {
        let mut values = Values::default();
        values.set("base_url", format!("{base_url}/v1").into());
        values.set("oauth_url", "https://oauth.akahu.nz".into());
        values.set("app_token", "app_token_1".into());
        if let Some(secret) = app_secret {
            values.set("app_secret", secret.into());
        }
        open(&values, Duration::from_secs(20)).unwrap()
    }

    async fn departed(akahu: &Arc<dyn Provider>, purpose: Purpose<'_>) -> Result<String, Error> {
        let return_url = "https://b.example/link/callback".parse().unwrap();
        let departure = Departure { purpose, email: "a+b@example.nz", return_url: &return_url, state: "s7" };
        akahu.linking().unwrap().depart(&call(), &departure).await.map(String::from)
    }

    async fn finished(peer: &Peer, answer: &[(&str, &str)]) -> Result<String, Error> {
        let return_url = "https://b.example/link/callback".parse().unwrap();
        let answer = parameters(answer);
        let returned = Return { purpose: Purpose::Link { owner: None }, return_url: &return_url, answer: &answer };
        let akahu = akahu(&peer.base_url, Some("s"));
        let grant = akahu.linking().unwrap().finish(&call(), &returned).await;
        grant.map(|grant| grant.expose_secret().to_owned())
    }

    const LINK: &str = "https://oauth.akahu.nz/?response_type=code&client_id=app_token_1\
        &redirect_uri=https%3A%2F%2Fb.example%2Flink%2Fcallback&scope=ENDURING_CONSENT&state=s7";

    #[tokio::test]
    async fn the_page_for_a_new_consent() {
        let akahu = akahu("http://127.0.0.1:1", Some("s"));
        let url = departed(&akahu, Purpose::Link { owner: None }).await;
        assert_eq!(url, Ok(format!("{LINK}&email=a%2Bb%40example.nz")));
        let linking = akahu.linking().unwrap();
        assert!(!linking.registers_users());
        let nobody = SecretString::from("{}");
        assert!(matches!(linking.register(&call(), "r", "e").await, Err(Error::BadGrant(_))));
        assert_eq!(linking.abandon(&call(), "r", "e").await, Ok(()));
        assert_eq!(linking.unregister(&call(), &nobody).await, Ok(()));
    }

    #[tokio::test]
    async fn an_old_consent_is_repaired_under_its_own_address() {
        let grant = SecretString::from(r#"{"userToken":"user_token_1","authorisation":"a"}"#);
        for (status, body, email) in [
            (200, r#"{"success": true, "item": {"_id": "user_1", "email": "own@example.nz"}}"#, "own%40example.nz"),
            (200, r#"{"success": true, "item": {"_id": "user_1"}}"#, "a%2Bb%40example.nz"),
            (401, r#"{"success": false}"#, "a%2Bb%40example.nz"),
            (403, r#"{"success": false}"#, "a%2Bb%40example.nz"),
        ] {
            let peer = Peer::always(status, body).await;
            let purpose = Purpose::Repair { grant: &grant, institution_id: "conn_1" };
            let url = departed(&akahu(&peer.base_url, Some("s")), purpose).await;
            assert_eq!(url, Ok(format!("{LINK}&email={email}&connection=conn_1")), "{status}");
            assert_eq!(peer.lines(), ["GET /v1/me"]);
            assert_eq!(peer.asked()[0].header("authorization"), Some("Bearer user_token_1"));
        }
    }

    #[test]
    fn a_personal_app_links_and_hears_nothing() {
        let without = akahu("http://127.0.0.1:1", None);
        assert!(without.linking().is_none() && without.notifying().is_none());
        let with = akahu("http://127.0.0.1:1", Some("s"));
        assert!(with.linking().is_some() && with.notifying().is_some());
    }

    #[test]
    fn hints() {
        let akahu = akahu("http://127.0.0.1:1", Some("s"));
        let linking = akahu.linking().unwrap();
        let long = "x".repeat(CODE_BYTES_MAX + 1);
        for (answer, declined, can_finish) in [
            (&[("code", "c"), ("source", "oauth"), ("event", "ACCEPT")][..], None, true),
            (&[("code", "c"), ("error", "access_denied")], Some(true), false),
            (&[("error", "access_denied"), ("error_description", "x")], Some(true), false),
            (&[("error", "temporarily_unavailable")], Some(false), false),
            (&[("error", "server_error")], Some(false), false),
            (&[("error", "invalid_request")], Some(false), false),
            (&[("error", "")], Some(false), false),
            (&[("code", "")], Some(false), false),
            (&[("code", &long)], Some(false), false),
            (&[], Some(false), false),
        ] {
            let answer = parameters(answer);
            let hint = linking.hint(&answer);
            match declined {
                None => assert_eq!(hint, Ok(()), "{answer:?}"),
                Some(true) => assert_eq!(hint, Err(NoConsent::Declined), "{answer:?}"),
                Some(false) => assert!(matches!(hint, Err(NoConsent::Failed(_))), "{answer:?}"),
            }
            assert_eq!(linking.can_finish(&answer), can_finish, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn a_code_is_exchanged() {
        let peer = Peer::always(200, TOKEN).await;
        assert_eq!(finished(&peer, &[("code", "c=1")]).await, Ok(r#"{"userToken":"user_token_2"}"#.to_owned()));
        let asked = &peer.asked()[0];
        assert_eq!(asked.line, "POST /v1/token");
        assert_eq!(
            asked.json(),
            json!({
                "grant_type": "authorization_code",
                "code": "c=1",
                "redirect_uri": "https://b.example/link/callback",
                "client_id": "app_token_1",
                "client_secret": "s",
            })
        );
        assert!(matches!(finished(&peer, &[]).await, Err(Error::BadGrant(_))));
        assert_eq!(peer.lines().len(), 1);
    }

    #[tokio::test]
    async fn a_code_that_does_not_work() {
        let error = |code: &str| answered(400, &json!({"success": false, "error": code}).to_string());
        for code in ["invalid_grant", "expired_grant"] {
            let peer = Peer::new(move |_, _| error(code)).await;
            let outcome = finished(&peer, &[("code", "c")]).await;
            assert!(matches!(outcome, Err(Error::BadGrant(why)) if why.contains("begin again")), "{code}");
        }
        for code in ["invalid_client", "invalid Request", "unsupported_grant_type"] {
            let peer = Peer::new(move |_, _| error(code)).await;
            assert_eq!(finished(&peer, &[("code", "c")]).await, Err(Error::Rejected { status: 400 }), "{code}");
        }
    }

    #[tokio::test]
    async fn an_exchange_is_never_repeated() {
        for broken in [
            None,
            answered(500, r#"{"success": false, "error": "server_error"}"#),
            answered(429, "{}"),
            answered(200, "{}"),
            answered(200, r#"{"success": false, "access_token": "t"}"#),
            answered(200, r#"{"access_token": "two words"}"#),
            answered(200, r#"{"access_token": ""}"#),
            answered(502, "<html>"),
        ] {
            let answer = broken.clone();
            let peer = Peer::new(move |_, _| answer.clone()).await;
            let outcome = finished(&peer, &[("code", "c")]).await;
            assert!(outcome.is_err_and(|error| error.is_transient()), "{broken:?}");
            assert_eq!(peer.lines().len(), 1, "{broken:?}");
        }
    }
}
