//! Files that leave out a connection that cannot be read, and say so.

use bellbird_domain::{Connection, Plan};
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Download, json_lines};
use crate::support::harness::{App, Person, Response, Setup, assert_reconnect};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

const ALL_BANKS: &str = "/v1/export/transactions.jsonl?from=2000-01-01&partial=true";

/// What the header says.
fn left_out(answer: &Response) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let lines = answer.headers.get_all("bellbird-left-out").iter();
    lines
        .map(|line| line.to_str().unwrap().to_owned())
        .collect()
}

fn named(connection: &Connection, word: &str) -> String {
    format!("{}; {word}", connection.id)
}

/// The rows of a partial file of JSON Lines, and the last line, which is none.
fn rows_and_end(file: &str) -> (Vec<Value>, Value) {
    let mut lines = json_lines(file);
    let end = lines.pop().unwrap();
    (lines, end["leftOut"].clone())
}

/// Asserts that the rows are those of these connections, all of them.
async fn assert_rows_of(
    app: &App,
    rows: &[Value],
    readable: &[&Connection],
    person: &Person,
    resource: &str,
) {
    let mut expected = 0;
    for connection in readable {
        let mut file = format!("{resource}.jsonl?connectionId={}", connection.id);
        if resource == "transactions" {
            file.push_str("&from=2000-01-01");
        }
        let rows = app.export(&person.key, &file).await;
        assert_eq!(rows.status, 200, "{}", rows.text);
        expected += rows.text.lines().count();
    }
    assert!(expected > 0);
    assert_eq!(rows.len(), expected);
    assert!(rows.iter().all(|row| row["accountId"].is_string()));
}

/// A user with a connection at each provider, and two at the broker's.
async fn person_with_all(app: &App) -> Person {
    let [fiskil, akahu, brokers] =
        ["fiskil", "akahu", "snaptrade"].map(|provider| app.credentials_of(provider));
    let all = [&fiskil[5], &akahu[0], &brokers[0], &brokers[1]];
    app.add_person("all@example.com", Plan::Professional, &all)
        .await
}

#[tokio::test]
async fn only_a_withdrawn_consent_is_left_out_and_named() {
    let app = App::start(Setup::with_rows(50)).await;
    app.reset_calls();
    let whole = app.get(&ALL_BANKS.replace("=true", "=false")).await;
    let calls = app.transaction_calls();
    let file = app.get(ALL_BANKS).await;
    assert_eq!(left_out(&file), Vec::<String>::new());
    assert_eq!(file.text, format!("{}{{\"leftOut\":[]}}\n", whole.text));
    // The first page of each is read twice.
    assert_eq!(app.transaction_calls(), 2 * calls + 2);
    // A user without connections.
    let email = "nobody@example.com";
    let nobody = app.add_person(email, Plan::Developer, &[]).await;
    let file = app.get_as(&nobody.key, ALL_BANKS).await;
    assert_eq!(file.text, "{\"leftOut\":[]}\n");
    let (key, wrong) = (&app.olivia.key, ALL_BANKS.replace("=true", "=1"));
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(app.method_as(method, key, &wrong).await.status, 400);
    }
    app.reset_calls();
    let head = app.method_as(Method::HEAD, key, ALL_BANKS).await;
    assert_eq!(head.status, 200);
    assert_eq!(app.transaction_calls(), 0);

    // Longer than what a provider has said of a consent is cached.
    app.advance_own_clock(SignedDuration::from_mins(2));
    let [readable, broken] = app.olivia.connections.as_slice() else {
        panic!("two connections")
    };
    app.set_consent(broken, ConsentState::Revoked).await;
    let entry = json!({
        "connectionId": broken.id, "institutionName": broken.institution_name, "error": "reconnect_required",
    });
    let journal = format!(
        "; Left out: {}, connection {}: reconnect_required",
        broken.institution_name, broken.id
    );
    // First the provider says so. Then it is known, and after a read of it, for a minute, without a
    // call.
    for _ in 0..3 {
        let file = app.get(ALL_BANKS).await;
        assert_eq!(left_out(&file), [named(broken, "reconnect_required")]);
        let (rows, end) = rows_and_end(&file.text);
        assert_eq!(end, json!([entry]));
        assert_rows_of(&app, &rows, &[readable], &app.olivia, "transactions").await;
        for format in ["journal", "beancount"] {
            let file = app.get(&ALL_BANKS.replace("jsonl", format)).await;
            assert_eq!(left_out(&file), [named(broken, "reconnect_required")]);
            let (_, end) = file.text.rsplit_once(&journal).unwrap();
            assert_starts(end, "\n\n; End of the file. Transactions: ");
        }
        let file = app.get(&ALL_BANKS.replace("jsonl", "csv")).await;
        assert_eq!(left_out(&file), [named(broken, "reconnect_required")]);
        let csv_rows = file.text.matches(",posted,").count();
        assert_eq!(csv_rows, rows.len(), "CSV has rows only");
        app.refresh(app.olivia.user.id, broken.id).await;
    }
    // Without the parameter, the file fails and names the connection.
    let answer = app.get(&ALL_BANKS.replace("&partial=true", "")).await;
    assert_reconnect(&answer, "revoked");
    assert_eq!(answer.details()[1], format!("connectionId: {}", broken.id));
}

#[tokio::test]
async fn connections_of_a_provider_that_fails_are_left_out() {
    let app = App::start(Setup::with_rows(50)).await;
    let person = person_with_all(&app).await;
    let [fiskil, akahu, broker, other_broker] = person.connections.as_slice() else {
        panic!("four connections")
    };
    app.bank("akahu")
        .add_fault(Fault::status(500).at("/v1/").times(1000));
    let file = app.get_as(&person.key, ALL_BANKS).await;
    assert_eq!(left_out(&file), [named(akahu, "provider_unavailable")]);
    let (rows, _) = rows_and_end(&file.text);
    assert_rows_of(&app, &rows, &[fiskil], &person, "transactions").await;

    app.set_consent(broker, ConsentState::Revoked).await;
    for resource in ["trades", "holdings"] {
        let path = format!("{resource}.jsonl?partial=true");
        let file = app.export(&person.key, &path).await;
        let broken = [named(broker, "reconnect_required")];
        assert_eq!(left_out(&file), broken, "{resource}");
        let (rows, end) = rows_and_end(&file.text);
        assert_eq!(end[0]["connectionId"], broker.id.to_string());
        assert_rows_of(&app, &rows, &[other_broker], &person, resource).await;
        let csv = app
            .get_as(
                &person.key,
                &format!("/v1/export/{resource}.csv?partial=true"),
            )
            .await;
        assert_eq!(left_out(&csv), [named(broker, "reconnect_required")]);
        assert_eq!(csv.text.lines().count(), rows.len() + 1);
    }
}

#[tokio::test]
async fn file_that_could_have_nothing_is_an_error() {
    let app = App::start(Setup::with_rows(50)).await;
    let [one, other] = app.olivia.connections.as_slice() else {
        panic!("two connections")
    };
    app.set_consent(one, ConsentState::Revoked).await;
    // The only connection that is requested.
    for query in [
        format!("connectionId={}", one.id),
        format!("accountId={}", app.accounts_of(one).await[0].id),
    ] {
        let answer = app.get(&format!("{ALL_BANKS}&{query}")).await;
        answer.error(503);
        assert_eq!(answer.header("bellbird-error"), Some("reconnect_required"));
        let details = answer.details();
        assert_has(&details.to_string(), &format!("connectionId: {}", one.id));
    }
    app.set_consent(other, ConsentState::Revoked).await;
    let answer = app.get(ALL_BANKS).await;
    answer.error(503);
    assert_eq!(answer.header("retry-after"), None);
    // One that may pass counts first.
    app.set_consent(other, ConsentState::Active).await;
    app.fiskil()
        .add_fault(Fault::status(500).at("/v1/banking/transactions"));
    let answer = app.get(ALL_BANKS).await;
    answer.error(503);
    let code = answer.header("bellbird-error");
    assert_eq!(code, Some("provider_unavailable"));
    assert!(answer.header("retry-after").is_some() && answer.header("bellbird-left-out").is_none());
}

#[tokio::test]
async fn used_up_budget_fails_the_whole_file() {
    let mut setup = Setup::with_rows(50);
    setup.settings.api_context.provider_calls_per_minute = 1;
    let app = App::start(setup).await;
    let answer = app.get(ALL_BANKS).await;
    answer.error(429);
    assert_eq!(answer.header("bellbird-error"), Some("budget_used_up"));
}

#[tokio::test]
async fn connection_that_breaks_later_breaks_the_file_off() {
    let app = App::start(Setup::with_rows(30_000)).await;
    let mut download = Download::start(&app, &app.olivia.key, ALL_BANKS).await;
    download.begin().await;
    for connection in &app.olivia.connections {
        app.set_consent(connection, ConsentState::Revoked).await;
    }
    assert!(!download.finish().await, "half a connection looks whole");
    assert_lacks(&download.file(), "leftOut");
    assert_eq!(download.rows(), None, "the trailer");
}
