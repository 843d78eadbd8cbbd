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
        "connectionId=a&unknown=1&unknown=2",
        "connectionId=a&from=2026-01-01&to=2026-01-31T00%3A00%3A00%2B11%3A00&limit=9999&offset=-0",
    ] {
        assert_eq!(rejection(query), None, "{query}");
    }
}

#[test]
fn one_rejection_lists_all_details_in_order() {
    let (message, details) = rejection("offset=x&limit=0&to=now&from=2026-02-30").unwrap();
    assert_eq!(message, "Invalid date parameters");
    assert_eq!(
        details,
        [
            "connectionId: Must be given".to_owned(),
            format!("from: {DATE}"),
            format!("to: {DATE}"),
            "limit: Must be an integer between 1 and 500".to_owned(),
            "offset: Must be an integer of at least 0".to_owned(),
        ]
    );
}

#[test]
fn message_names_the_most_important_error() {
    assert_eq!(rejection("limit=1").unwrap().0, "connectionId is required");
    assert_eq!(rejection("connectionId=").unwrap().0, "connectionId is required");
    assert_eq!(rejection("connectionId=a&limit=").unwrap().0, "Invalid query parameters");
    assert_eq!(
        rejection("connectionId=a&to=").unwrap(),
        ("Invalid date parameters".to_owned(), vec![format!("to: {DATE}")])
    );
}

#[test]
fn repeated_known_parameter_is_rejected() {
    let rejected = |query: &str| rejection(query).unwrap();
    assert_eq!(
        rejected("connectionId=a&connectionId=a"),
        ("Invalid query parameters".to_owned(), vec!["connectionId: Must be given once".to_owned()])
    );
    assert_eq!(rejected("connectionId=a&limit=1&limit=1").1, ["limit: Must be given once"]);
    assert_eq!(
        rejected("connectionId=a&from=2026-01-01&from=2026-01-01"),
        ("Invalid date parameters".to_owned(), vec!["from: Must be given once".to_owned()])
    );
    assert_eq!(rejected("connectionId=a&accountId=b&accountId=b").1, ["accountId: Must be given once"]);
}

#[test]
fn unencoded_plus_is_read_as_a_space() {
    assert_eq!(rejection("connectionId=a&from=2026-01-01T00:00:00+11:00").unwrap().1, [format!("from: {DATE}")]);
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ids {
    account_ids: AccountIds,
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|id| format!("0191e7a0-7c3b-7def-8000-{id:012x}")).collect()
}

#[test]
fn id_lists_are_sorted_and_deduplicated() {
    let read = |list: &str| read::<Ids>(RawParams::Query(&format!("accountIds={list}"))).unwrap().account_ids.0;
    let three = ids(3);
    let sorted: Vec<AccountId> = three.iter().map(|id| id.parse().unwrap()).collect();
    let [a, b, c] = &*three else { unreachable!() };
    assert_eq!(read(&format!("{c},,+{a}+,{b},{},", a.to_uppercase())), Some(sorted));
    assert_eq!(read(&format!("{a},nonsense")), None);
    let repeated = [ids(ACCOUNT_IDS_MAX), ids(ACCOUNT_IDS_MAX)].concat().join(",");
    assert_eq!(read(&repeated).unwrap().len(), ACCOUNT_IDS_MAX);
}

#[test]
fn id_lists_are_neither_empty_nor_too_long() {
    for query in ["", "accountIds", "accountIds=", "accountIds=+,+,"] {
        let expected = ("accountIds is required".to_owned(), vec!["accountIds: Must be given".to_owned()]);
        assert_eq!(rejection_of::<Ids>(query), Some(expected), "{query:?}");
    }
    let many = format!("accountIds={}", ids(ACCOUNT_IDS_MAX + 1).join(","));
    let expected = ("Too many accountIds".to_owned(), vec!["accountIds: Must be at most 100 ids".to_owned()]);
    assert_eq!(rejection_of::<Ids>(&many), Some(expected));
    assert_eq!(rejection_of::<Ids>("accountIds=a&accountIds=a").unwrap().1, ["accountIds: Must be given once"]);
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
    let read = |query| read::<Mixed>(RawParams::Query(query)).unwrap().account;
    assert_eq!(read("account=a&x=1&account=b&account="), ["a", "b", ""]);
    assert_eq!(read("account=a"), ["a"]);
    assert_eq!(read("").len(), 0);
}

#[test]
fn unknown_parameters_are_faults_on_request() {
    let faults = read_strict::<Mixed>(RawParams::Query("b=1&account=a&a%41=2")).unwrap_err();
    assert_eq!((&*faults.known, &*faults.unknown), (&[][..], &["b".to_owned(), "aA".to_owned()][..]));
    assert_eq!(faults.names, ["account", "pending", "limit", "from"]);
    assert!(read_strict::<Mixed>(RawParams::Query("account=a")).is_ok());
}

#[test]
fn json_members_are_read_by_type() {
    let members = |json: &str| serde_json::from_str::<Map<String, Json>>(json).unwrap();
    let good = members(r#"{"account": ["a", "b"], "pending": false, "limit": 50.0, "from": null}"#);
    let expected =
        Mixed { account: vec!["a".to_owned(), "b".to_owned()], pending: Some(false), limit: Some(50), from: None };
    assert_eq!(read_strict::<Mixed>(RawParams::Json(&good)).unwrap(), expected);
    let bad = members(r#"{"account": ["a", 1], "pending": "yes", "limit": 1.5, "from": {}, "other": 1}"#);
    let faults = read_strict::<Mixed>(RawParams::Json(&bad)).unwrap_err();
    let names: Vec<&str> = faults.known.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["account", "pending", "limit", "from"]);
    assert_eq!(faults.known[1].1, Fault::Invalid("a boolean".to_owned()));
    assert_eq!(faults.unknown, ["other"]);
}

proptest! {
    #[test]
    fn pairs_are_those_of_the_url_standard(query in "[a-c=&%+20é]{0,40}") {
        let expected: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
        prop_assert_eq!(pairs(&query).collect::<Vec<_>>(), expected);
    }
}
