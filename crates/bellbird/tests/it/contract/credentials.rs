//! Credentials, what they cover, and the accounts behind them.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_providers::{Consent, Error};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::fixture::{Fixture, Operation, ReadRequest, call_context, read, walk};
use crate::support::words::assert_lacks;

/// Appears in all bad credentials and must not appear in any error.
const SECRET: &str = "hush-4711";

/// Credentials that no adapter accepts, made from good ones.
fn bad_credentials(good: &Value, user: &str) -> Vec<String> {
    let with = |name: &str, value: Value| {
        let mut credentials = good.clone();
        credentials[name] = value;
        credentials.to_string()
    };
    vec![
        String::new(),
        SECRET.to_owned(),
        json!(SECRET).to_string(),
        json!([SECRET]).to_string(),
        format!("{good}{SECRET}"),
        with("provider", json!(SECRET)),
        with("provider", json!({"name": SECRET})),
        with(SECRET, json!(SECRET)),
        with(user, json!([SECRET])),
        with(user, json!("")),
        with(user, json!(4711)),
        with(user, Value::Null),
        with(user, json!(SECRET.repeat(1_000))),
    ]
}

fn assert_bad(error: Error) {
    assert!(matches!(error, Error::InvalidCredentials(_)), "{error:?}");
    let text = format!("{error} {error:?}");
    assert_lacks(&text, SECRET);
    assert_lacks(&text, "4711");
}

promise! {
    credentials_are_checked_found_and_used:

    async fn new_adapter_makes_no_call(fixture) {
        assert_eq!(fixture.provider.name().as_str(), fixture.spec.name);
        let _kind = fixture.provider.kind();
        assert!(fixture.calls().is_empty());
        // A call does appear in the count.
        fixture.discover(&fixture.ready_made()[0]).await;
        assert!(!fixture.calls().is_empty());
    }

    async fn bad_credentials_are_rejected_and_not_shown(fixture) {
        let given = fixture.ready_made().remove(0);
        let bad = bad_credentials(&given, fixture.spec.user);
        // Discovered connections are stored one by one, so stored credentials must name a
        // connection.
        let stored = [bad.clone(), vec!["{}".to_owned(), fixture.without_connection(&given).to_string()]].concat();
        let accounts = [fixture.account("an-account")];
        let provider = fixture.adapter(Duration::from_secs(20)).await;
        for operation in fixture.operations() {
            let all_credentials = if operation == Operation::Discover { &bad } else { &stored };
            for credentials in all_credentials {
                let credentials = SecretString::from(credentials.as_str());
                let outcome =
                    read(&*provider, &call_context(), &ReadRequest::all(&credentials, &accounts, 10), operation).await;
                assert_bad(outcome.expect_err("rejected"));
            }
        }
        for credentials in stored {
            assert_bad(
                fixture
                    .provider
                    .withdraw(&call_context(), &SecretString::from(credentials))
                    .await
                    .expect_err("rejected"),
            );
        }
        assert!(fixture.calls().is_empty(), "bad credentials are rejected without a call");
    }

    async fn discovery_finds_all_covered_connections(fixture) {
        for given in fixture.ready_made() {
            let name = given[fixture.spec.connection].as_str().expect("an id");
            let found = fixture.discover(&given).await;
            assert_eq!(found.iter().map(|link| link.id.as_str()).collect::<Vec<_>>(), [name], "the named connection");
            // All connections of the user. The sandbox has ready-made credentials for each.
            let user = |credentials: &Value| credentials[fixture.spec.user].clone();
            let expected_ids = fixture.ready_made().into_iter().filter(|other| user(other) == user(&given));
            let expected_ids: BTreeSet<String> = expected_ids
                .map(|credentials| credentials[fixture.spec.connection].as_str().expect("an id").to_owned())
                .collect();
            let found: Vec<String> =
                fixture.discover(&fixture.without_connection(&given)).await.into_iter().map(|link| link.id).collect();
            assert_eq!(found.len(), expected_ids.len(), "each once");
            assert_eq!(BTreeSet::from_iter(found), expected_ids);
            let mut other = given.clone();
            other[fixture.spec.connection] = json!("unknown");
            assert_eq!(fixture.discover(&other).await.len(), 0, "a connection that the user does not have");
        }
    }

    async fn discovered_credentials_allow_every_read(fixture) {
        let mut links = Vec::new();
        for given in fixture.ready_made() {
            links.extend(fixture.discover(&given).await);
        }
        for link in &links {
            assert_eq!(link.members[fixture.spec.connection], link.id, "the credentials name their connection");
            assert_eq!(
                fixture.provider.consent(&call_context(), &link.credentials).await,
                Ok(Consent { status: link.consent_status, expires_at: link.consent_expires_at })
            );
            let accounts = fixture.provider.accounts(&call_context(), &link.credentials).await.expect("accounts");
            assert!(!accounts.is_empty());
            for found in accounts {
                let account = [fixture.account(&found.provider_account_id)];
                for operation in fixture.operations() {
                    let outcome = read(
                        &*fixture.provider,
                        &call_context(),
                        &ReadRequest::all(&link.credentials, &account, 10),
                        operation,
                    )
                    .await;
                    assert_eq!(outcome, Ok(()), "{operation:?}");
                }
            }
        }
        for link in &links {
            assert_eq!(fixture.provider.withdraw(&call_context(), &link.credentials).await, Ok(()));
        }
    }
}

promise! {
    accounts_are_masked_typed_and_listed_once:

    async fn account_numbers_are_masked_by_the_adapter(fixture) {
        const NUMBER: &str = "06-1234-7654321-00";
        let link = fixture.links().await.remove(0);
        let plain: String = NUMBER.chars().filter(char::is_ascii_digit).collect();
        for (number, name) in [
            (NUMBER.to_owned(), "An everyday account".to_owned()),
            (plain.clone(), "An everyday account".to_owned()),
            (NUMBER.to_owned(), format!("Everyday {NUMBER}")),
            (plain.clone(), format!("Everyday {plain}")),
            (NUMBER.to_owned(), format!("Everyday {plain}, joint")),
            (plain.clone(), format!("Everyday {NUMBER}, joint")),
        ] {
            let account = fixture.add_account(&link, (fixture.spec.numbered)(&name, &number));
            let accounts = fixture.provider.accounts(&call_context(), &link.credentials).await.expect("accounts");
            let found = accounts.iter().find(|found| found.provider_account_id == account.provider_account_id);
            let found = found.expect("the account is listed");
            assert_eq!(found.number.as_ref().map(|number| number.as_str()), Some("xxxx2100"));
            assert!(found.name.starts_with(name.split(' ').next().expect("a word")), "words of the name stay");
            // The provider's id is random and may contain digits by chance.
            let shown = format!("{found:?}").replace(&account.provider_account_id, "");
            let digits: String = found.name.chars().filter(char::is_ascii_digit).collect();
            for run in plain.as_bytes().windows(5).map(|run| std::str::from_utf8(run).expect("digits")) {
                assert!(!shown.contains(run) && !digits.contains(run), "{run} in {shown}");
            }
        }
        for found in fixture.provider.accounts(&call_context(), &link.credentials).await.expect("accounts") {
            let Some(number) = found.number else { continue };
            let last = number.as_str().strip_prefix("xxxx").expect("masked");
            assert!(last.len() == 4 && last.bytes().all(|byte| byte.is_ascii_digit()), "{last}");
        }
    }

    async fn accounts_have_their_types(fixture) {
        let link = fixture.links().await.remove(0);
        for (member, word, expected) in fixture.spec.types {
            let account = fixture.add_account(&link, json!({*member: word}));
            let accounts = fixture.provider.accounts(&call_context(), &link.credentials).await.expect("accounts");
            let found = accounts.iter().find(|found| found.provider_account_id == account.provider_account_id);
            assert_eq!(found.expect("the account is listed").account_type, *expected, "{word}");
        }
    }

    async fn account_is_listed_once_on_its_connection(fixture) {
        let links = fixture.links().await;
        let mut ids = Vec::new();
        for link in &links {
            let added = fixture.account_with_rows(link, 1);
            let found = fixture.provider.accounts(&call_context(), &link.credentials).await.expect("accounts");
            assert!(found.iter().any(|found| found.provider_account_id == added.provider_account_id));
            assert!(found.iter().all(|found| !found.name.is_empty()));
            ids.extend(found.into_iter().map(|found| found.provider_account_id));
            let rows = walk(&*fixture.provider, &ReadRequest::all(&link.credentials, &[added], 10)).await;
            assert_eq!(rows.map(|rows| rows.len()), Ok(1));
        }
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }
}
