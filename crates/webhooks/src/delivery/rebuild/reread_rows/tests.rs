//! Rows of events that were read again.

use bellbird_domain::{
    AccountTag, ConnectionId, EventId, EventType, Fingerprint, SyncRunId, UtcDay,
};
use jiff::Timestamp;
use serde_json::Value;

use super::*;

fn event(chunk: u32, rows: &[u8]) -> WebhookEvent {
    WebhookEvent {
        id: EventId::new(),
        event_type: EventType::TransactionsSynced,
        connection_id: Some(ConnectionId::new()),
        sync_run_id: SyncRunId::new(),
        created_at: Timestamp::UNIX_EPOCH,
        date_range: (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH),
        rows: rows.iter().map(|row| RowKey([*row; 8])).collect(),
        new_count: 1,
        updated_count: u32::try_from(rows.len()).unwrap() - 1,
        chunk,
        total_chunks: 3,
        row_locator: Vec::new(),
        shown: None,
        removed: Vec::new(),
    }
}

fn json(text: &str) -> RowJson {
    RowJson::of(text.as_bytes().to_vec())
}

fn hasher() -> RowHasher {
    RowHasher::new(&[7; 32])
}

fn digests(row: u8, content: u8) -> RowDigests {
    let content = ContentDigest([content; 8]);
    RowDigests {
        row: Digest([row; 16]),
        content,
        likeness: content,
        account: AccountTag(1),
        day: UtcDay(1),
    }
}

/// The fingerprint of the row with this key, as the last sync saw it.
fn fingerprint(key: u8, digests: RowDigests) -> Fingerprint {
    let (key, seen_at, misses, is_gone) = (RowKey([key; 8]), 1, 0, false);
    Fingerprint {
        digests,
        occurrence: 0,
        key,
        seen_at,
        misses,
        is_gone,
        first_version: 1,
        changed_version: 1,
    }
}

fn fingerprints(rows: impl IntoIterator<Item = Fingerprint>) -> Fingerprints {
    let mut rows: Vec<Fingerprint> = rows.into_iter().collect();
    rows.sort_unstable();
    Fingerprints {
        rows,
        ..Fingerprints::default()
    }
}

/// Of rows 1 to 9 with their first ids and contents.
fn usual() -> Fingerprints {
    fingerprints((1..10).map(|row| fingerprint(row, digests(row, row))))
}

/// Rows of each rebuilt body, by chunk.
fn bodies(found: RereadRows<'_>, are_gone: bool) -> Vec<(u32, Value)> {
    let body = |rows: EventRows| {
        let body = rows.body(bellbird_domain::ApiVersion::DEFAULT.into());
        let body: Value = serde_json::from_slice(&body).unwrap();
        (rows.envelope.chunk, body["data"].clone())
    };
    found.into_events(are_gone).map(body).collect()
}

fn data(new: &[u8], updated: &[u8]) -> Value {
    serde_json::json!({"new": new, "updated": updated})
}

/// What a read of these rows makes of an event of the rows 1 and 2.
fn body_after(known: &Fingerprints, read: &[(RowDigests, &str)], are_gone: bool) -> Option<Value> {
    let (event, hasher) = (event(1, &[1, 2]), hasher());
    let mut found = RereadRows::new(&[&event], known, &hasher, |_| false);
    for (row, text) in read {
        let _ = found.take(row, |_| json(text));
    }
    let (_, data) = bodies(found, are_gone).pop()?;
    Some(data)
}

#[test]
fn renewed_row_is_found_under_its_present_id() {
    let known = fingerprints([
        fingerprint(1, digests(101, 1)),
        fingerprint(2, digests(2, 2)),
    ]);
    let read = [(digests(101, 1), "1"), (digests(2, 2), "2")];
    assert_eq!(body_after(&known, &read, false), Some(data(&[1], &[2])));
    let not_seen = [(digests(201, 1), "1"), (digests(2, 2), "2")];
    let body = body_after(&known, &not_seen, true);
    assert_eq!(body, None, "an id that no sync has seen");
}

#[test]
fn row_that_a_read_lacks_is_waited_for() {
    let mut known = usual();
    let read = [(digests(2, 2), "2")];
    assert_eq!(body_after(&known, &read, true), None);
    known.rows[0].misses = 2;
    assert_eq!(body_after(&known, &read, true), None);
    (known.rows[0].misses, known.rows[0].is_gone) = (3, true);
    let without = Some(data(&[], &[2]));
    let body = body_after(&known, &read, false);
    assert_eq!(body, without, "a sync has found it gone");
    let back = [(digests(2, 2), "2"), (digests(1, 1), "1")];
    let body = body_after(&known, &back, false);
    assert_eq!(body, without, "the next sync reports it");
}

#[test]
fn content_that_no_sync_saw_is_not_sent() {
    let read = [(digests(1, 5), "5"), (digests(2, 2), "2")];
    assert_eq!(body_after(&usual(), &read, true), None);
    let seen = fingerprints([fingerprint(1, digests(1, 5)), fingerprint(2, digests(2, 2))]);
    assert_eq!(body_after(&seen, &read, false), Some(data(&[5], &[2])));
    // A list that moves between two pages may have a row twice.
    let twice = [
        (digests(1, 5), "5"),
        (digests(1, 1), "1"),
        (digests(2, 2), "2"),
    ];
    assert_eq!(body_after(&usual(), &twice, false), Some(data(&[1], &[2])));
}

/// What a read of these rows makes of an event of the rows 1 and 2, if no sync reads the first day
/// any more.
fn body_of_old(known: &Fingerprints, read: &[(RowDigests, &str)], are_gone: bool) -> Option<Value> {
    let (event, hasher, mut known) = (event(1, &[1, 2]), hasher(), known.clone());
    hasher.mask_days(&mut known.rows);
    let is_unwatched = |row: &RowDigests| row.day == UtcDay(0);
    let mut found = RereadRows::new(&[&event], &known, &hasher, is_unwatched);
    for (row, text) in read {
        let _ = found.take(row, |_| json(text));
    }
    found.take_changed();
    let (_, data) = bodies(found, are_gone).pop()?;
    Some(data)
}

#[test]
fn row_that_no_sync_reads_is_sent_as_it_is_listed() {
    let mut known = usual();
    known.rows[0].digests.day = UtcDay(0);
    let body = |read: &[(RowDigests, &str)], are_gone| body_of_old(&known, read, are_gone);
    let (first, changed, second) = (
        (digests(1, 1), "1"),
        (digests(1, 5), "5"),
        (digests(2, 2), "2"),
    );
    let with_change = Some(data(&[5], &[2]));
    assert_eq!(body(&[changed, second], false), with_change);
    assert_eq!(
        body(&[second, changed, (digests(1, 6), "6")], false),
        with_change
    );
    // A list that moves between two pages may have a row twice.
    let unchanged = Some(data(&[1], &[2]));
    assert_eq!(body(&[changed, first, second], false), unchanged);
    assert_eq!(body(&[second], false), None, "it may be back");
    assert_eq!(body(&[second], true), Some(data(&[], &[2])));
    let without_second = body(&[first], true);
    assert_eq!(
        without_second, None,
        "a sync will say what became of the other one"
    );
    assert_eq!(body(&[first, (digests(2, 5), "5")], true), None);
}

#[test]
fn rows_with_one_id_that_no_sync_reads_are_told_apart() {
    let mut known = fingerprints((1..4).map(|row| fingerprint(row, digests(1, row))));
    for row in &mut known.rows {
        row.digests.day = UtcDay(0);
    }
    let row = |content, text| (digests(1, content), text);
    let of_another = row(3, "3");
    let read = [of_another, row(5, "5"), row(2, "2")];
    assert_eq!(body_of_old(&known, &read, true), Some(data(&[5], &[2])));
    let read = [of_another, row(2, "2")];
    assert_eq!(body_of_old(&known, &read, true), Some(data(&[], &[2])));
    let read = [row(5, "5"), row(6, "6"), row(7, "7")];
    let body = body_of_old(&known, &read, false).unwrap();
    let mut texts = [&body["new"][0], &body["updated"][0]].map(Value::as_u64);
    texts.sort_unstable();
    assert_eq!(texts, [Some(5), Some(6)]);
}

#[test]
fn row_without_a_fingerprint_is_found_by_its_id() {
    let (hasher, known) = (hasher(), fingerprints([fingerprint(9, digests(2, 2))]));
    let key = |row: u8, occurrence| hasher.key(Digest([row; 16]), occurrence, 0);
    let read = |keys: [RowKey; 3], rows: &[u8], are_gone| {
        let event = WebhookEvent {
            rows: keys.to_vec(),
            ..event(1, &[0, 0, 0])
        };
        let mut found = RereadRows::new(&[&event], &known, &hasher, |_| false);
        for row in rows {
            let _ = found.take(&digests(*row, *row), |_| json(&row.to_string()));
        }
        let mut bodies = bodies(found, are_gone);
        bodies.pop().map(|(_, data)| data)
    };
    let body = read([key(1, 0), key(1, 1), key(3, 0)], &[3, 1, 1], false);
    assert_eq!(body, Some(data(&[1], &[1, 3])));
    let with_another_key = [key(1, 0), key(1, 1), key(2, 0)];
    let body = read(with_another_key, &[1, 1, 2], false);
    assert_eq!(body, None, "row 2 has a fingerprint");
    let body = read(with_another_key, &[1, 1, 2], true);
    assert_eq!(body, Some(data(&[1], &[1])));
}

#[test]
fn rows_are_given_to_their_events_in_order() {
    let events = [event(1, &[1, 2]), event(2, &[3, 4])];
    let mut known = usual();
    // Two equal trades.
    known.rows[2].digests = digests(2, 2);
    let hasher = hasher();
    let mut found = RereadRows::new(&events.each_ref(), &known, &hasher, |_| false);
    for row in [4, 9, 2, 1] {
        let taken = found.take(&digests(row, row), |_| json(&row.to_string()));
        assert!(taken.is_continue());
    }
    assert!(!found.is_done(), "one of two equal rows is missing");
    assert!(found.take(&digests(2, 2), |_| json("2")).is_break());
    let expected = [(1, data(&[1], &[2])), (2, data(&[2], &[4]))];
    assert_eq!(bodies(found, false), expected);
}

#[tokio::test(start_paused = true)]
async fn long_read_ends_with_the_event_that_is_due() {
    let (events, known, hasher) = ([event(1, &[1, 2]), event(2, &[3])], usual(), hasher());
    let mut found = RereadRows::new(&events.each_ref(), &known, &hasher, |_| false);
    assert!(found.take(&digests(1, 1), |_| json("1")).is_continue());
    tokio::time::advance(READ_TIME).await;
    let other = found.take(&digests(9, 9), |_| json("9"));
    assert!(other.is_continue(), "its rows are not complete");
    assert!(found.take(&digests(2, 2), |_| json("2")).is_break());
    // So the rows of the next chunk are not gone.
    assert!(found.has_stopped_early());
    assert_eq!(bodies(found, false), [(1, data(&[1], &[2]))]);
}

#[test]
fn chunks_that_take_too_much_memory_are_dropped() {
    let large = |row: u8| json(&format!("{}{row}", " ".repeat(READ_BYTES_MAX / 2)));
    let events = [event(1, &[1]), event(2, &[2, 3]), event(3, &[4])];
    let (known, hasher) = (usual(), hasher());
    let mut found = RereadRows::new(&events.each_ref(), &known, &hasher, |_| false);
    for row in [2, 4, 3] {
        assert!(found.take(&digests(row, row), |_| large(row)).is_continue());
    }
    let last = found.take(&digests(1, 1), |_| large(1));
    assert!(last.is_break(), "the event that is due is completed");
    let expected = [(1, data(&[1], &[])), (3, data(&[4], &[]))];
    assert_eq!(bodies(found, true), expected);
}
