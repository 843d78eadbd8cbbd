//! Grants, what they cover, and the accounts behind them.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_providers::Error;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::stage::{Asked, Stage, What, call, read, walk};

/// Stands in every bad grant, and in no error.
const SECRET: &str = "hush-4711";

promise! {
    async fn opening_makes_no_call(stage) {
        assert_eq!(stage.provider.name().as_str(), stage.subject.name);
        let _kind = stage.provider.kind();
        assert!(stage.calls().await.is_empty());
        // The count would have shown it.
        stage.discover(&stage.given()[0]).await;
        assert!(!stage.calls().await.is_empty());
    }
}

/// Grants that no adapter takes, made from a good one.
fn bad_grants(good: &Value, user: &str) -> Vec<String> {
    let with = |name: &str, value: Value| {
        let mut grant = good.clone();
        grant[name] = value;
        grant.to_string()
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

promise! {
    async fn bad_grants_are_refused_and_not_shown(stage) {
        let given = stage.given().remove(0);
        let bad = bad_grants(&given, stage.subject.user);
        // Found connections are stored one by one, so a stored grant names one.
        let stored = [bad.clone(), vec!["{}".to_owned(), stage.whole(&given).to_string()]].concat();
        let accounts = [stage.account("an-account")];
        let provider = stage.adapter(Duration::from_secs(20)).await;
        for what in stage.whats() {
            let grants = if what == What::Discover { &bad } else { &stored };
            for grant in grants {
                let grant = SecretString::from(grant.as_str());
                let outcome = read(&*provider, &call(), &Asked::all(&grant, &accounts, 10), what).await;
                assert_bad(outcome.expect_err("refused"));
            }
        }
        for grant in stored {
            assert_bad(stage.provider.withdraw(&call(), &SecretString::from(grant)).await.expect_err("refused"));
        }
        assert!(stage.calls().await.is_empty(), "what is bad is seen without a call");
    }
}

fn assert_bad(error: Error) {
    assert!(matches!(error, Error::BadGrant(_)), "{error:?}");
    let said = format!("{error} {error:?}");
    assert!(!said.contains(SECRET) && !said.contains("4711"), "{said}");
}

promise! {
    async fn what_a_grant_covers_is_found(stage) {
        for given in stage.given() {
            let name = given[stage.subject.connection].as_str().expect("an id");
            let found = stage.discover(&given).await;
            assert_eq!(found.iter().map(|link| link.id.as_str()).collect::<Vec<_>>(), [name], "the one it names");
            // All that the user has, which the sandbox has ready-made.
            let user = |grant: &Value| grant[stage.subject.user].clone();
            let theirs = stage.given().into_iter().filter(|other| user(other) == user(&given));
            let theirs: BTreeSet<String> =
                theirs.map(|grant| grant[stage.subject.connection].as_str().expect("an id").to_owned()).collect();
            let found: Vec<String> =
                stage.discover(&stage.whole(&given)).await.into_iter().map(|link| link.id).collect();
            assert_eq!(found.len(), theirs.len(), "each once");
            assert_eq!(BTreeSet::from_iter(found), theirs);
            let mut other = given.clone();
            other[stage.subject.connection] = json!("nobody's");
            assert_eq!(stage.discover(&other).await.len(), 0, "one that the user does not have");
        }
    }
}

promise! {
    async fn a_found_grant_is_good_for_everything(stage) {
        let mut links = Vec::new();
        for given in stage.given() {
            links.extend(stage.discover(&given).await);
        }
        for link in &links {
            assert_eq!(link.members[stage.subject.connection], link.id, "it names its connection");
            assert_eq!(stage.provider.standing(&call(), &link.grant).await, Ok(link.standing));
            let accounts = stage.provider.accounts(&call(), &link.grant).await.expect("accounts");
            assert!(!accounts.is_empty());
            for found in accounts {
                let account = [stage.account(&found.provider_account_id)];
                for what in stage.whats() {
                    let outcome = read(&*stage.provider, &call(), &Asked::all(&link.grant, &account, 10), what).await;
                    assert_eq!(outcome, Ok(()), "{what:?}");
                }
            }
        }
        for link in &links {
            assert_eq!(stage.provider.withdraw(&call(), &link.grant).await, Ok(()));
        }
    }
}

promise! {
    async fn account_numbers_end_in_the_adapter(stage) {
        const NUMBER: &str = "06-1234-7654321-00";
        let link = stage.links().await.remove(0);
        let plain: String = NUMBER.chars().filter(char::is_ascii_digit).collect();
        for (number, name) in [
            (NUMBER.to_owned(), "An everyday account".to_owned()),
            (plain.clone(), "An everyday account".to_owned()),
            (NUMBER.to_owned(), format!("Everyday {NUMBER}")),
            (plain.clone(), format!("Everyday {plain}")),
            (NUMBER.to_owned(), format!("Everyday {plain}, joint")),
            (plain.clone(), format!("Everyday {NUMBER}, joint")),
        ] {
            let account = stage.add_account(&link, (stage.subject.numbered)(&name, &number)).await;
            let accounts = stage.provider.accounts(&call(), &link.grant).await.expect("accounts");
            let found = accounts.iter().find(|found| found.provider_account_id == account.provider_account_id);
            let found = found.expect("it is listed");
            assert_eq!(found.number.as_ref().map(|number| number.as_str()), Some("xxxx2100"));
            assert!(found.name.starts_with(name.split(' ').next().expect("a word")), "what is no number stays");
            // The provider's own id is random, and kept as it is.
            let shown = format!("{found:?}").replace(&account.provider_account_id, "");
            let digits: String = found.name.chars().filter(char::is_ascii_digit).collect();
            for run in plain.as_bytes().windows(5).map(|run| std::str::from_utf8(run).expect("digits")) {
                assert!(!shown.contains(run) && !digits.contains(run), "{run} in {shown}");
            }
        }
        for found in stage.provider.accounts(&call(), &link.grant).await.expect("accounts") {
            let Some(number) = found.number else { continue };
            let last = number.as_str().strip_prefix("xxxx").expect("masked");
            assert!(last.len() == 4 && last.bytes().all(|byte| byte.is_ascii_digit()), "{last}");
        }
    }
}

promise! {
    async fn accounts_have_their_types(stage) {
        let link = stage.links().await.remove(0);
        for (member, word, expected) in stage.subject.types {
            let account = stage.add_account(&link, json!({*member: word})).await;
            let accounts = stage.provider.accounts(&call(), &link.grant).await.expect("accounts");
            let found = accounts.iter().find(|found| found.provider_account_id == account.provider_account_id);
            assert_eq!(found.expect("it is listed").account_type, *expected, "{word}");
        }
    }
}

promise! {
    async fn an_account_is_listed_once_and_on_its_connection_only(stage) {
        let links = stage.links().await;
        let mut ids = Vec::new();
        for link in &links {
            let added = stage.account_with_rows(link, 1).await;
            let found = stage.provider.accounts(&call(), &link.grant).await.expect("accounts");
            assert!(found.iter().any(|found| found.provider_account_id == added.provider_account_id));
            assert!(found.iter().all(|found| !found.name.is_empty()));
            ids.extend(found.into_iter().map(|found| found.provider_account_id));
            let rows = walk(&*stage.provider, &Asked::all(&link.grant, &[added], 10)).await;
            assert_eq!(rows.map(|rows| rows.len()), Ok(1));
        }
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }
}
