//! Consent in the browser: end users and auth sessions (docs/providers/fiskil.md#end-users and #sessions).

use async_trait::async_trait;
use reqwest::Url;
use secrecy::SecretString;

use super::{Fiskil, Grant, wire};
use crate::linking::{Departure, Linking, NoConsent, Purpose, Return, parameter};
use crate::{Call, Error, grant};

#[async_trait]
impl Linking for Fiskil {
    fn registers_users(&self) -> bool {
        true
    }

    async fn register(&self, call: &Call, reference: &str, email: &str) -> Result<SecretString, Error> {
        whole(self.api.add_end_user(call, reference, email).await?)
    }

    fn owner_id(&self, owner: &SecretString) -> Option<String> {
        Grant::read(owner).ok().map(|grant| grant.end_user_id)
    }

    /// There is no uniqueness at the provider, and any number may have been made: the reference is their name.
    async fn abandon(&self, call: &Call, reference: &str, email: &str) -> Result<(), Error> {
        for id in self.api.end_users(call, email, reference).await? {
            self.api.delete_end_user(call, &id).await?;
        }
        Ok(())
    }

    async fn unregister(&self, call: &Call, owner: &SecretString) -> Result<(), Error> {
        self.api.delete_end_user(call, &Grant::read(owner)?.end_user_id).await
    }

    async fn depart(&self, call: &Call, departure: &Departure<'_>) -> Result<Url, Error> {
        let back = departure.way_back();
        let grant = whose(departure.purpose)?;
        let institution_id = match departure.purpose {
            Purpose::Link { .. } => None,
            Purpose::Repair { institution_id, .. } => Some(institution_id),
        };
        let session = wire::NewSession {
            end_user_id: &grant.end_user_id,
            redirect_uri: back.as_str(),
            cancel_uri: back.as_str(),
            institution_id,
            // Known third-hand only (docs/providers/fiskil.md#sessions). Were it ignored, a new arrangement at the same
            // institution is made.
            arrangement_id: grant.arrangement_id.as_deref(),
        };
        self.api.session(call, &session).await
    }

    fn hint(&self, answer: &[(String, String)]) -> Result<(), NoConsent> {
        match (parameter(answer, "error"), parameter(answer, "error_type")) {
            (None, None) => Ok(()),
            (_, Some("AUTH_SESSION_CANCELLED" | "CONSENT_ENDUSER_DENIED")) | (Some("access_denied"), None) => {
                Err(NoConsent::Declined)
            }
            (_, error_type) => Err(NoConsent::Failed(told(error_type.unwrap_or_default()))),
        }
    }

    /// Nothing in the answer is needed: the provider is asked for the end user's consents.
    fn can_finish(&self, _answer: &[(String, String)]) -> bool {
        true
    }

    async fn finish(&self, _call: &Call, returned: &Return<'_>) -> Result<SecretString, Error> {
        whole(whose(returned.purpose)?.end_user_id)
    }
}

/// The grant that covers all consents of an end user.
fn whole(end_user_id: String) -> Result<SecretString, Error> {
    grant::write(&Grant { end_user_id, arrangement_id: None })
}

/// The end user, and the arrangement if there is one already.
fn whose(purpose: Purpose<'_>) -> Result<Grant, Error> {
    match purpose {
        Purpose::Link { owner } => {
            let owner = owner.ok_or_else(|| Error::BadGrant("a consent at Fiskil needs an end user".to_owned()))?;
            let Grant { end_user_id, .. } = Grant::read(owner)?;
            Ok(Grant { end_user_id, arrangement_id: None })
        }
        Purpose::Repair { grant, .. } => Grant::read(grant),
    }
}

/// What happened and what to do, by `error_type` (docs/providers/fiskil.md#consent-errors).
fn told(error_type: &str) -> &'static str {
    match error_type {
        "AUTH_SESSION_INVALID" => "The consent page had been used already, or was too old. Please begin again.",
        "CONSENT_UPSTREAM_PROCESSING_ERROR" => "The bank did not answer as it should. Please try again later.",
        "CONSENT_OTP_FAILURE" => "The one-time code was not right. Please begin again and ask for a new code.",
        "CONSENT_ENDUSER_INELIGIBLE" => {
            "The bank does not let this login share its data. Please ask the bank to allow it, or use another login."
        }
        "CONSENT_TIMEOUT" => "Giving consent took too long. Please begin again.",
        _ => "The consent page ended with an error. Please begin again; if it keeps happening, try again later.",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use secrecy::ExposeSecret;
    use serde_json::json;

    use super::*;
    use crate::Provider;
    use crate::fiskil::open;
    use crate::peer::{Answered, Asked, Peer, answered, call, parameters};
    use crate::settings::Values;

    const REFERENCE: &str = "bellbird 0194";
    const ADDED: &str = r#"{"end_user_id": "eu_1"}"#;
    const GONE: &str = r#"{"name": "end_user_not_found", "id": "1", "message": "x"}"#;

    /// A provider with good tokens that answers everything else by the number of the request, tokens not counted.
    async fn peer(answer: impl Fn(usize, &Asked) -> Answered + Send + 'static) -> (Peer, Arc<dyn Provider>) {
        let others = std::sync::atomic::AtomicUsize::new(0);
        let peer = Peer::new(move |_, asked| match asked.line.as_str() {
            "POST /v1/token" => answered(200, r#"{"token": "t", "expires_in": 900}"#),
            _ => answer(others.fetch_add(1, std::sync::atomic::Ordering::Relaxed), asked),
        })
        .await;
        let mut values = Values::default();
        values.set("base_url", peer.base_url.clone().into());
        values.set("client_id", "id".into());
        values.set("client_secret", "secret".into());
        let fiskil = open(&values, Duration::from_secs(20)).unwrap();
        (peer, fiskil)
    }

    fn linking(fiskil: &Arc<dyn Provider>) -> &dyn Linking {
        fiskil.linking().unwrap()
    }

    /// What was asked, tokens left out.
    fn asked(peer: &Peer) -> Vec<Asked> {
        peer.asked().into_iter().filter(|asked| asked.line != "POST /v1/token").collect()
    }

    fn lines(peer: &Peer) -> Vec<String> {
        asked(peer).into_iter().map(|asked| asked.line).collect()
    }

    fn owner() -> SecretString {
        SecretString::from(r#"{"endUserId":"eu_1"}"#)
    }

    #[tokio::test]
    async fn an_end_user_is_registered_in_one_attempt() {
        let (peer, fiskil) = peer(|_, _| answered(201, ADDED)).await;
        let grant = linking(&fiskil).register(&call(), REFERENCE, "a@example.com").await.unwrap();
        assert_eq!(grant.expose_secret(), r#"{"endUserId":"eu_1"}"#);
        let asked = asked(&peer);
        assert_eq!(asked[0].line, "POST /v1/end-users");
        assert_eq!(asked[0].json(), json!({"email": "a@example.com", "name": REFERENCE}));
        assert_eq!(asked[0].header("authorization"), Some("Bearer t"));
    }

    #[tokio::test]
    async fn what_may_have_registered_is_not_repeated() {
        for broken in [None, answered(503, "{}"), answered(429, "{}"), answered(200, "{"), answered(502, "<html>")] {
            let answer = broken.clone();
            let (peer, fiskil) = peer(move |_, _| answer.clone()).await;
            let outcome = linking(&fiskil).register(&call(), REFERENCE, "a@example.com").await;
            assert!(outcome.is_err_and(|error| error.is_transient()), "{broken:?}");
            assert_eq!(asked(&peer).len(), 1, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn a_stale_token_has_registered_nobody() {
        for (refused, outcome, requests) in [(1, Ok(()), 2), (9, Err(Error::Rejected { status: 401 }), 2)] {
            let (peer, fiskil) = peer(move |number, _| match number {
                number if number < refused => answered(401, "{}"),
                _ => answered(201, ADDED),
            })
            .await;
            let registered = linking(&fiskil).register(&call(), REFERENCE, "a@example.com").await;
            assert_eq!(registered.map(|_| ()), outcome);
            assert_eq!((asked(&peer).len(), peer.lines().len()), (requests, 2 * requests), "a token for each");
        }
    }

    #[tokio::test]
    async fn what_an_attempt_left_behind_is_found_by_its_name() {
        let (peer, fiskil) = peer(|_, asked| match asked.line.as_str() {
            "DELETE /v1/end-users/eu_3" => answered(404, GONE),
            line if line.starts_with("DELETE") => Some((204, String::new())),
            line if line.contains("after") => answered(200, r#"[{"id": "eu_3", "name": "bellbird 0194"}]"#),
            _ => {
                let rows = r#"{"id": "eu_1", "name": "bellbird 0194"}, {"id": "eu_2", "name": "bellbird 01945"}, {"id": "eu_4"}"#;
                answered(200, &format!(r#"{{"end_users": [{rows}], "links": {{"next": "/v1/end-users?page[after]=n"}}}}"#))
            }
        })
        .await;
        assert_eq!(linking(&fiskil).abandon(&call(), REFERENCE, "a+b@example.com").await, Ok(()));
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
    async fn unregistering_twice_is_done() {
        for (answer, expected) in [
            (answered(204, ""), Ok(())),
            (answered(404, GONE), Ok(())),
            (answered(404, r#"{"name": "bad_request"}"#), Err(Error::Rejected { status: 404 })),
            (answered(404, "<html>"), Err(Error::Rejected { status: 404 })),
            (answered(403, "{}"), Err(Error::Rejected { status: 403 })),
        ] {
            let (peer, fiskil) = peer(move |_, _| answer.clone()).await;
            assert_eq!(linking(&fiskil).unregister(&call(), &owner()).await, expected);
            assert_eq!(lines(&peer), ["DELETE /v1/end-users/eu_1"]);
        }
    }

    #[tokio::test]
    async fn a_session_for_a_new_consent_and_for_an_old_one() {
        let (peer, fiskil) =
            peer(|_, _| answered(200, r#"{"auth_url": "https://auth.fiskil.com?sess_id=s", "expires_at": 1}"#)).await;
        let return_url = "https://b.example/link/callback".parse().unwrap();
        let stored = SecretString::from(r#"{"endUserId":"eu_1","arrangementId":"arr"}"#);
        let (owner, back) = (owner(), "https://b.example/link/callback?state=s7&via=bellbird");
        let plain = json!({"end_user_id": "eu_1", "redirect_uri": back, "cancel_uri": back});
        let mut repair = plain.clone();
        (repair["institution_id"], repair["arrangement_id"]) = ("22".into(), "arr".into());
        for (purpose, body) in [
            (Purpose::Link { owner: Some(&owner) }, plain),
            (Purpose::Repair { grant: &stored, institution_id: "22" }, repair),
        ] {
            let departure = Departure { purpose, email: "a@example.com", return_url: &return_url, state: "s7" };
            let url = linking(&fiskil).depart(&call(), &departure).await.unwrap();
            assert_eq!(url.as_str(), "https://auth.fiskil.com/?sess_id=s");
            let asked = asked(&peer).pop().unwrap();
            assert_eq!((asked.line.as_str(), asked.json()), ("POST /v1/auth/session", body));

            let returned = Return { purpose, return_url: &return_url, answer: &[] };
            let grant = linking(&fiskil).finish(&call(), &returned).await.unwrap();
            assert_eq!(grant.expose_secret(), r#"{"endUserId":"eu_1"}"#);
        }
        let nobody = Purpose::Link { owner: None };
        let departure = Departure { purpose: nobody, email: "a@example.com", return_url: &return_url, state: "s7" };
        assert!(matches!(linking(&fiskil).depart(&call(), &departure).await, Err(Error::BadGrant(_))));
    }

    #[tokio::test]
    async fn browsers_are_sent_to_pages_only() {
        for url in ["javascript:alert(1)", "data:text/html,x", "//auth.fiskil.com", "", "https://"] {
            let (_peer, fiskil) = peer(move |_, _| Some((200, json!({ "auth_url": url }).to_string()))).await;
            let return_url = "https://b.example/link/callback".parse().unwrap();
            let owner = owner();
            let purpose = Purpose::Link { owner: Some(&owner) };
            let departure = Departure { purpose, email: "a@example.com", return_url: &return_url, state: "s7" };
            let outcome = linking(&fiskil).depart(&call(), &departure).await;
            assert!(matches!(outcome, Err(Error::Malformed(_))), "{url}");
        }
    }

    #[tokio::test]
    async fn hints() {
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
            let given = parameters(&answer);
            let hint = linking(&fiskil).hint(&given);
            match declined {
                None => assert_eq!(hint, Ok(()), "{answer:?}"),
                Some(true) => assert_eq!(hint, Err(NoConsent::Declined), "{answer:?}"),
                Some(false) => assert!(matches!(hint, Err(NoConsent::Failed(_))), "{answer:?}"),
            }
            assert!(linking(&fiskil).can_finish(&given));
        }
        let known = ["AUTH_SESSION_INVALID", "CONSENT_OTP_FAILURE", "CONSENT_TIMEOUT", "CONSENT_ENDUSER_INELIGIBLE"];
        assert!(known.iter().all(|error_type| told(error_type) != told("?")), "each its own sentence");
    }
}
