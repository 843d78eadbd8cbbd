//! Consent in the browser: users and the connection portal (docs/providers/snaptrade.md#users and #connection-portal).

use async_trait::async_trait;
use bellbird_domain::ConnectionStatus;
use reqwest::Url;
use secrecy::SecretString;
use serde_json::json;

use super::api::User;
use super::{Covered, Link, SnapTrade, written};
use crate::linking::{Departure, Linking, NoConsent, Purpose, Return, parameter};
use crate::{Call, Error};

#[async_trait]
impl Linking for SnapTrade {
    fn registers_users(&self) -> bool {
        true
    }

    /// A user's id is ours to choose. What it is refused with when there is one already, an earlier attempt may have
    /// left behind: its secret is lost, and it has to be abandoned.
    async fn register(&self, call: &Call, reference: &str, _email: &str) -> Result<SecretString, Error> {
        let registered = self.api.register_user(call, reference).await;
        let user = registered.map_err(|error| match error {
            Error::Rejected { status: 403 } => Error::BadGrant(
                "SnapTrade registers no users with this key; a personal key's connections are made in SnapTrade's own \
                 dashboard and taken over with `bellbird connection adopt`"
                    .to_owned(),
            ),
            error => error,
        })?;
        let grant = written(Some(&user), None)?;
        // A secret that could not be used later is not taken.
        Covered::read(&grant).map_err(|_| Error::Malformed("a user secret that is none"))?;
        Ok(grant)
    }

    fn owner_id(&self, owner: &SecretString) -> Option<String> {
        Covered::read(owner).ok()?.user.map(|user| user.id)
    }

    async fn abandon(&self, call: &Call, reference: &str, _email: &str) -> Result<(), Error> {
        self.delete_user(call, reference).await
    }

    /// The only user of a personal key was not registered by us, and stays.
    async fn unregister(&self, call: &Call, owner: &SecretString) -> Result<(), Error> {
        match Covered::read(owner)?.user {
            Some(user) => self.delete_user(call, &user.id).await,
            None => Ok(()),
        }
    }

    async fn depart(&self, call: &Call, departure: &Departure<'_>) -> Result<Url, Error> {
        let back = departure.way_back();
        let mut body = json!({
            "customRedirect": back.as_str(),
            "immediateRedirect": true,
            "connectionType": "read",
            "showCloseButton": true,
        });
        let user = whose(departure.purpose)?;
        let Purpose::Repair { grant, .. } = departure.purpose else {
            return self.api.log_in(call, user.as_ref(), &body).await;
        };
        body["reconnect"] = Link::read(grant)?.id.into();
        match self.api.log_in(call, user.as_ref(), &body).await {
            // What is not there any more cannot be repaired, only linked anew. How that is refused is not documented.
            Err(Error::Rejected { status: 400 | 404 }) => {
                if let Some(members) = body.as_object_mut() {
                    members.remove("reconnect");
                }
                self.api.log_in(call, user.as_ref(), &body).await
            }
            outcome => outcome,
        }
    }

    /// Without a `status` the user has cancelled in the portal (docs/providers/snaptrade.md#portal-results).
    fn hint(&self, answer: &[(String, String)]) -> Result<(), NoConsent> {
        match parameter(answer, "status") {
            Some("SUCCESS") => Ok(()),
            None | Some("ABANDONED") => Err(NoConsent::Declined),
            Some(_) => Err(NoConsent::Failed(told(parameter(answer, "error_code").unwrap_or_default()))),
        }
    }

    /// Nothing in the answer is needed: the provider is asked for the user's connections.
    fn can_finish(&self, _answer: &[(String, String)]) -> bool {
        true
    }

    async fn finish(&self, _call: &Call, returned: &Return<'_>) -> Result<SecretString, Error> {
        written(whose(returned.purpose)?.as_ref(), None)
    }
}

impl SnapTrade {
    async fn delete_user(&self, call: &Call, id: &str) -> Result<(), Error> {
        match self.api.delete_user(call, id).await {
            // A refusal in the provider's own words: there is no such user.
            Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => Ok(()),
            outcome => outcome,
        }
    }
}

/// None with a personal key.
fn whose(purpose: Purpose<'_>) -> Result<Option<User>, Error> {
    match purpose {
        Purpose::Link { owner: None } => Ok(None),
        Purpose::Link { owner: Some(grant) } | Purpose::Repair { grant, .. } => Ok(Covered::read(grant)?.user),
    }
}

/// What happened and what to do, by the portal's error code (docs/providers/snaptrade.md#portal-results).
fn told(error_code: &str) -> &'static str {
    match error_code {
        "1066" => "The broker did not accept the login. Please begin again with the right user name and password.",
        "3000" => "The broker did not answer. Please try again later.",
        "1006" => "Giving consent took too long, or the page had been used already. Please begin again.",
        "1012" => "The broker could not be linked in this way. Please begin again.",
        "1023" => {
            "This was another login than the one that was linked. Please begin again with the same login, or link the \
             other one as a new connection."
        }
        "1140" => "The broker's API key may not read accounts. Please allow it at the broker, and begin again.",
        "1086" => "The security code was not right. Please begin again and use a new code.",
        "0000" => "SnapTrade did not know who you are. Please begin again.",
        _ => "The consent page ended with an error. Please begin again; if it keeps happening, try again later.",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use secrecy::ExposeSecret;
    use serde_json::Value;

    use super::*;
    use crate::Provider;
    use crate::peer::{Peer, answered, call, parameters};
    use crate::settings::Values;
    use crate::snaptrade::{open, sign};

    const REGISTERED: &str = r#"{"userId": "bellbird-1", "userSecret": "s&e"}"#;
    const USER: &str = r#"{"userId":"bellbird-1","userSecret":"s&e"}"#;
    const LOGIN: &str =
        r#"{"redirectURI": "https://app.snaptrade.com/snapTrade/redeemToken?token=t", "sessionId": "s"}"#;

    fn snaptrade(peer: &Peer) -> Arc<dyn Provider> {
        let mut values = Values::default();
        values.set("base_url", peer.base_url.clone().into());
        values.set("client_id", "TESTCLIENT".into());
        values.set("consumer_key", "test-consumer-key-1".into());
        open(&values, Duration::from_secs(20)).unwrap()
    }

    /// The first request, up to its time; its body is signed with it.
    fn asked(peer: &Peer) -> (String, Value) {
        let asked = peer.asked().remove(0);
        let body = if asked.body.is_empty() { Value::Null } else { asked.json() };
        let (path, query) = asked.line.split_once(' ').unwrap().1.split_once('?').unwrap();
        let signer = sign::Signer::new(&SecretString::from("test-consumer-key-1"));
        assert_eq!(asked.header("signature"), Some(signer.sign(&body, path, query).as_str()));
        (asked.line.split("&timestamp=").next().unwrap().to_owned(), body)
    }

    #[tokio::test]
    async fn a_user_is_registered_in_one_attempt() {
        let peer = Peer::always(200, REGISTERED).await;
        let grant = snaptrade(&peer).linking().unwrap().register(&call(), "bellbird-1", "a@example.com").await.unwrap();
        assert_eq!(grant.expose_secret(), USER);
        let line = "POST /snapTrade/registerUser?clientId=TESTCLIENT".to_owned();
        assert_eq!(asked(&peer), (line, json!({"userId": "bellbird-1"})));

        for broken in [
            None,
            answered(503, "{}"),
            answered(425, "{}"),
            answered(429, "{}"),
            answered(200, "{"),
            answered(200, r#"{"userSecret": ""}"#),
            answered(502, "<html>"),
        ] {
            let answer = broken.clone();
            let peer = Peer::new(move |_, _| answer.clone()).await;
            let outcome = snaptrade(&peer).linking().unwrap().register(&call(), "bellbird-1", "a@example.com").await;
            assert!(outcome.is_err_and(|error| error.is_transient()), "{broken:?}");
            assert_eq!(peer.lines().len(), 1, "{broken:?}");
        }
    }

    #[tokio::test]
    async fn registrations_that_are_refused() {
        let register = async |status, body| {
            let peer = Peer::always(status, body).await;
            snaptrade(&peer).linking().unwrap().register(&call(), "bellbird-1", "a@example.com").await.err()
        };
        let taken = r#"{"detail": "User with the following userId already exist: 'bellbird-1'", "code": "1010"}"#;
        assert_eq!(register(400, taken).await, Some(Error::Rejected { status: 400 }));
        let Some(Error::BadGrant(why)) = register(403, r#"{"code": "1141"}"#).await else { panic!("personal") };
        assert!(why.contains("connection adopt"), "{why}");
    }

    #[tokio::test]
    async fn deleting_twice_is_done() {
        for (answer, expected) in [
            (answered(200, r#"{"status": "deleted"}"#), Ok(())),
            (answered(404, r#"{"code": "1011"}"#), Ok(())),
            (answered(401, r#"{"code": "1083"}"#), Ok(())),
            (answered(404, "<html>"), Err(Error::Rejected { status: 404 })),
            (answered(401, r#"{"code": "1076"}"#), Err(Error::Rejected { status: 401 })),
            (answered(403, "{}"), Err(Error::Rejected { status: 403 })),
        ] {
            let peer = Peer::new(move |_, _| answer.clone()).await;
            let line = "DELETE /snapTrade/deleteUser?userId=bellbird-1&clientId=TESTCLIENT".to_owned();
            let adapter = snaptrade(&peer);
            let linking = adapter.linking().unwrap();
            assert_eq!(linking.abandon(&call(), "bellbird-1", "a@example.com").await, expected);
            assert_eq!(asked(&peer), (line, Value::Null));
            assert_eq!(linking.unregister(&call(), &SecretString::from(USER)).await, expected);
            assert_eq!(linking.unregister(&call(), &SecretString::from("{}")).await, Ok(()));
            assert_eq!(peer.lines().len(), 2);
        }
    }

    #[tokio::test]
    async fn the_portal_for_a_new_consent_and_for_an_old_one() {
        let owner = SecretString::from(USER);
        let stored = SecretString::from(r#"{"userId":"bellbird-1","userSecret":"s&e","authorizationId":"conn"}"#);
        let personal = SecretString::from(r#"{"authorizationId":"conn"}"#);
        let of_user = "POST /snapTrade/login?userId=bellbird-1&userSecret=s%26e&clientId=TESTCLIENT";
        for (purpose, line, reconnect, grant) in [
            (Purpose::Link { owner: Some(&owner) }, of_user, None, USER),
            (Purpose::Repair { grant: &stored, institution_id: "x" }, of_user, Some("conn"), USER),
            (
                Purpose::Repair { grant: &personal, institution_id: "x" },
                "POST /snapTrade/login?clientId=TESTCLIENT",
                Some("conn"),
                "{}",
            ),
        ] {
            let peer = Peer::always(200, LOGIN).await;
            let adapter = snaptrade(&peer);
            let linking = adapter.linking().unwrap();
            let return_url = "https://b.example/link/callback".parse().unwrap();
            let departure = Departure { purpose, email: "a@example.com", return_url: &return_url, state: "s7" };
            let url = linking.depart(&call(), &departure).await.unwrap();
            assert_eq!(url.as_str(), "https://app.snaptrade.com/snapTrade/redeemToken?token=t");
            let mut body = json!({
                "customRedirect": "https://b.example/link/callback?state=s7&via=bellbird",
                "immediateRedirect": true,
                "connectionType": "read",
                "showCloseButton": true,
            });
            if let Some(id) = reconnect {
                body["reconnect"] = id.into();
            }
            assert_eq!(asked(&peer), (line.to_owned(), body));
            let returned = Return { purpose, return_url: &return_url, answer: &[] };
            assert_eq!(linking.finish(&call(), &returned).await.unwrap().expose_secret(), grant);
        }
    }

    #[tokio::test]
    async fn a_portal_that_does_not_open() {
        const GONE: Error = Error::ReconnectNeeded(ConnectionStatus::Revoked);
        for (status, body, expected) in [
            (200, r#"{"redirectURI": "javascript:alert(1)"}"#, Error::Malformed("a page that is no URL")),
            (200, r#"{"encryptedSharedKey": "x"}"#, Error::Malformed("not the documented JSON")),
            (401, r#"{"code": "1083"}"#, GONE),
            (404, r#"{"code": "1011"}"#, Error::Rejected { status: 404 }),
        ] {
            let peer = Peer::always(status, body).await;
            let (owner, return_url) = (SecretString::from(USER), "https://b.example/link/callback".parse().unwrap());
            let purpose = Purpose::Link { owner: Some(&owner) };
            let departure = Departure { purpose, email: "a@example.com", return_url: &return_url, state: "s7" };
            let outcome = snaptrade(&peer).linking().unwrap().depart(&call(), &departure).await;
            assert_eq!(outcome.err(), Some(expected), "{body}");
        }
    }

    #[tokio::test]
    async fn hints() {
        let peer = Peer::new(|_, _| None).await;
        let adapter = snaptrade(&peer);
        let linking = adapter.linking().unwrap();
        let failed = |code| vec![("status", "ERROR"), ("status_code", "400"), ("error_code", code)];
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
            let given = parameters(&answer);
            match (linking.hint(&given), declined) {
                (hint, None) => assert_eq!(hint, Ok(()), "{answer:?}"),
                (hint, Some(true)) => assert_eq!(hint, Err(NoConsent::Declined), "{answer:?}"),
                (hint, Some(false)) => assert!(matches!(hint, Err(NoConsent::Failed(_))), "{answer:?}"),
            }
            assert!(linking.can_finish(&given));
        }
        let codes = ["1066", "3000", "1006", "1012", "1023", "1140", "1086", "0000"];
        let sentences: std::collections::BTreeSet<&str> = codes.iter().map(|code| told(code)).collect();
        assert!(sentences.len() == codes.len() && !sentences.contains(told("?")), "each its own sentence");
    }
}
