use bellbird_domain::table::table;
use proptest::prelude::*;

use super::*;

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the rejection matters")]
struct All {
    connection_id: Id<ConnectionId>,
    account_id: Option<Id<AccountId>>,
    from: Option<DateBound>,
    to: Option<DateBound>,
    limit: Option<Limit<200, 500>>,
    offset: Option<Offset>,
}

fn rejection_of<T: DeserializeOwned>(query: &str) -> Option<(String, Vec<String>)> {
    match read::<T>(RawParams::Query(query)).map_err(Problem::from) {
        Err(Problem::BadRequest { message, details }) => Some((message.into_owned(), details)),
        _ => None,
    }
}

fn rejection(query: &str) -> Option<(String, Vec<String>)> {
    rejection_of::<All>(query)
}

const DATE: &str = "Must be a valid ISO 8601 date string (YYYY-MM-DD or YYYY-MM-DDTHH:mm:ssZ)";

#[test]
fn valid_queries_are_accepted() {
    for query in [
        "connectionId=a",
        "connectionId=a&from=2026-01-01&to=2026-01-31T00%3A00%3A00%2B11%3A00&limit=9999&offset=-0",
    ] {
        assert_eq!(rejection(query), None, "{query}");
    }
}

/// The message of a rejection and its details, in which `<date>` stands for [`DATE`].
fn rejected(query: &str) -> (String, String) {
    let (message, details) = rejection(query).unwrap();
    (message, details.join("; ").replace(DATE, "<date>"))
}

#[test]
fn one_rejection_lists_all_details_in_order() {
    let (message, details) = rejected("offset=x&limit=0&to=now&from=2026-02-30");
    assert_eq!(message, "Invalid date parameters, and others");
    assert_eq!(
        details,
        "connectionId: Must be given; from: <date>; to: <date>; limit: Must be an integer between 1 and 500; \
         offset: Must be an integer of at least 0"
    );
}

#[test]
fn message_names_the_most_important_error() {
    for [query, message] in table(
        "limit=1 | connectionId is required
        connectionId= | connectionId is required
        connectionId=a&limit= | Invalid query parameters
        connectionId=a&to= | Invalid date parameters
        connectionId=a&connectionId=a | Invalid query parameters
        connectionId=a&from=2026-01-01&from=2026-01-01 | Invalid date parameters",
    ) {
        assert_eq!(rejected(query).0, message, "{query}");
    }
}

#[test]
fn invalid_and_repeated_parameters_are_named() {
    for [query, details] in table(
        "connectionId=a&to= | to: <date>
        // A plus that is not encoded is a space.
        connectionId=a&from=2026-01-01T00:00:00+11:00 | from: <date>
        connectionId=a&from=2026-01-01&from=2026-01-01 | from: Must be given once
        connectionId=a&connectionId=a | connectionId: Must be given once
        connectionId=a&limit=1&limit=1 | limit: Must be given once
        connectionId=a&accountId=b&accountId=b | accountId: Must be given once",
    ) {
        assert_eq!(rejected(query).1, details, "{query}");
    }
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ids {
    account_ids: AccountIds,
}

fn ids(count: usize) -> Vec<String> {
    (0..count)
        .map(|id| format!("0191e7a0-7c3b-7def-8000-{id:012x}"))
        .collect()
}

#[test]
fn id_lists_are_sorted_and_deduplicated() {
    let read = |list: &str| {
        read::<Ids>(RawParams::Query(&format!("accountIds={list}")))
            .unwrap()
            .account_ids
            .0
    };
    let three = ids(3);
    let sorted: Vec<AccountId> = three.iter().map(|id| id.parse().unwrap()).collect();
    let [a, b, c] = &*three else { unreachable!() };
    assert_eq!(
        read(&format!("{c},,+{a}+,{b},{},", a.to_uppercase())),
        Some(sorted)
    );
    assert_eq!(read(&format!("{a},nonsense")), None);
    let most = ids(ACCOUNT_IDS_MAX).join(",");
    let repeated = format!("{most},{most},{}", most.to_uppercase());
    assert_eq!(read(&repeated).unwrap().len(), ACCOUNT_IDS_MAX);
}

#[test]
fn id_lists_are_neither_empty_nor_too_long() {
    for query in ["", "accountIds", "accountIds=", "accountIds=+,+,"] {
        let expected = (
            "accountIds is required".to_owned(),
            vec!["accountIds: Must be given".to_owned()],
        );
        assert_eq!(rejection_of::<Ids>(query), Some(expected), "{query:?}");
    }
    let many = format!("accountIds={}", ids(ACCOUNT_IDS_MAX + 1).join(","));
    let expected = (
        "Too many accountIds".to_owned(),
        vec!["accountIds: Must be at most 100 ids".to_owned()],
    );
    assert_eq!(rejection_of::<Ids>(&many), Some(expected));
    assert_eq!(
        rejection_of::<Ids>("accountIds=a&accountIds=a").unwrap().1,
        ["accountIds: Must be given once"]
    );
}

#[test]
fn text_that_is_no_id_is_read_as_none() {
    let read = |query: &str| read::<All>(RawParams::Query(query)).unwrap();
    assert_eq!(read("connectionId=a&accountId=").connection_id, Id(None));
    assert_eq!(read("connectionId=a&accountId=").account_id, Some(Id(None)));
    assert_eq!(read("connectionId=a").account_id, None);
}

#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct Mixed {
    account: Vec<String>,
    pending: Option<bool>,
    limit: Option<u32>,
    from: Option<String>,
}

#[test]
fn repeated_parameter_is_read_into_a_list() {
    let read = |query| {
        read_known::<Mixed>(RawParams::Query(query))
            .unwrap()
            .account
    };
    assert_eq!(read("account=a&x=1&account=b&account="), ["a", "b", ""]);
    assert_eq!(read("account=a"), ["a"]);
    assert_eq!(read("").len(), 0);
}

#[test]
fn unknown_parameter_names_the_one_that_is_meant() {
    for [query, expected] in table(
        "accountID=b | accountID: unknown; did you mean accountId?
        account_id=b | account_id: unknown; did you mean accountId?
        form=2026-01-01 | form: unknown; did you mean from?
        limits=1 | limits: unknown; did you mean limit?
        foo=1 | foo: unknown; known are connectionId, accountId, from, to, limit, offset
        a%41=2 | aA: unknown; known are connectionId, accountId, from, to, limit, offset",
    ) {
        let (message, details) = rejected(&format!("connectionId=a&{query}"));
        let found = (message.as_str(), details.as_str());
        assert_eq!(found, ("Invalid query parameters", expected));
    }
    assert_eq!(
        rejected("limit=0&cursr=1&from=x").1,
        "connectionId: Must be given; from: <date>; limit: Must be an integer between 1 and 500; \
         cursr: unknown; known are connectionId, accountId, from, to, limit, offset"
    );
    assert_eq!(
        rejection_of::<Nothing>("a=1").unwrap().1,
        ["a: unknown; none is known here"]
    );
    let long = format!("{}=1", "é".repeat(1_000));
    assert!(rejection_of::<Nothing>(&long).unwrap().1[0].len() < 200);
    assert_eq!(
        rejection_of::<Nothing>(&"x=1&".repeat(1_000))
            .unwrap()
            .1
            .len(),
        UNKNOWN_MAX
    );
    assert!(read_known::<Mixed>(RawParams::Query("b=1&account=a")).is_ok());
}

#[derive(Debug, serde::Deserialize)]
struct Nothing {}

#[test]
fn json_members_are_read_by_type() {
    let members = |json: &str| serde_json::from_str::<Map<String, Json>>(json).unwrap();
    let good = members(r#"{"account": ["a", "b"], "pending": false, "limit": 50.0, "from": null}"#);
    let expected = Mixed {
        account: vec!["a".to_owned(), "b".to_owned()],
        pending: Some(false),
        limit: Some(50),
        from: None,
    };
    assert_eq!(
        read::<Mixed>(RawParams::Arguments(&good)).unwrap(),
        expected
    );
    let bad =
        members(r#"{"account": ["a", 1], "pending": "yes", "limit": 1.5, "from": {}, "other": 1}"#);
    let faults = read::<Mixed>(RawParams::Arguments(&bad)).unwrap_err();
    let names: Vec<&str> = faults.known.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["account", "pending", "limit", "from"]);
    assert_eq!(faults.known[1].1, Fault::Invalid("a boolean".to_owned()));
    assert_eq!(faults.unknown, ["other"]);
}

#[derive(Debug, PartialEq, Eq, serde::Deserialize)]
struct Change {
    email: Option<String>,
    reference: Option<Option<String>>,
    events: Vec<String>,
}

#[test]
fn null_and_repeated_members_of_a_body_are_faults() {
    let read = |json: &str| {
        let members: Members = serde_json::from_str(json).unwrap();
        read::<Change>(RawParams::Body(&members)).map_err(|faults| faults.details())
    };
    let change = |reference| Change {
        email: None,
        reference,
        events: vec!["a".to_owned()],
    };
    assert_eq!(read(r#"{"events": ["a"]}"#), Ok(change(None)));
    assert_eq!(
        read(r#"{"events": ["a"], "reference": null}"#),
        Ok(change(Some(None)))
    );
    assert_eq!(
        read(r#"{"events": ["a"], "reference": "b"}"#),
        Ok(change(Some(Some("b".to_owned()))))
    );
    let wrong = r#"{"email": null, "reference": "a", "events": [], "reference": null, "events": ["a"], "x": 1, "x": 2}"#;
    let expected = [
        "email: Must be a string",
        "reference: Must be given once",
        "events: Must be given once",
    ];
    let unknown = "x: unknown; known are email, reference, events";
    assert_eq!(
        read(wrong).unwrap_err(),
        [&expected[..], &[unknown]].concat()
    );
    assert!(serde_json::from_str::<Members>("[]").is_err());
}

proptest! {
    #[test]
    fn pairs_are_those_of_the_url_standard(query in "[a-c=&%+20é]{0,40}") {
        let expected: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        prop_assert_eq!(pairs(&query).collect::<Vec<_>>(), expected);
    }
}
