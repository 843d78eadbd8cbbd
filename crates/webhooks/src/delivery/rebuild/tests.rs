//! Rows of events that were read again.

use bellbird_domain::{AccountTag, ConnectionId, ContentDigest, EventId, Fingerprint, RowDigests, UtcDay};
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
        rows: rows.iter().map(|row| Digest([*row; 16])).collect(),
        new_count: 1,
        updated_count: u32::try_from(rows.len()).unwrap() - 1,
        chunk,
        total_chunks: 3,
        hint: Vec::new(),
        shown: None,
        removed: Vec::new(),
    }
}

fn json(text: &str) -> RowJson {
    RowJson::of(text.as_bytes().to_vec())
}

fn reread<'e>(events: &[&'e WebhookEvent]) -> RereadRows<'e> {
    RereadRows::with_keys(events, RowKeys::of(&Fingerprints::default(), &RowHasher::new(&[7; 32])))
}

/// Rows and counts of each rebuilt body, by chunk.
fn bodies(found: RereadRows<'_>, is_final: bool) -> Vec<(u32, Value)> {
    let body = |rows: EventRows| {
        let body = rows.body(bellbird_domain::ApiVersion::DEFAULT.into());
        (rows.envelope.chunk, serde_json::from_slice::<Value>(&body).unwrap()["data"].clone())
    };
    found.into_events(is_final).map(body).collect()
}

fn fingerprint(row: Digest, key: RowKey) -> Fingerprint {
    let content = ContentDigest([1; 8]);
    let digests = RowDigests { row, content, likeness: content, account: AccountTag(1), day: UtcDay(1) };
    let (seen_at, misses, is_gone) = (1, 0, false);
    Fingerprint { digests, occurrence: 0, key, seen_at, misses, is_gone, first_mark: 1, changed_mark: 1 }
}

fn data(new: &[u8], updated: &[u8]) -> Value {
    serde_json::json!({"new": new, "updated": updated})
}

#[test]
fn renewed_row_is_found_under_its_present_id() {
    let (hasher, event) = (RowHasher::new(&[7; 32]), event(1, &[1]));
    let (first, present) = (Digest([1; 16]), Digest([9; 16]));
    let known = fingerprint(present, hasher.key(first, 0, 0));
    let fingerprints = Fingerprints { rows: vec![known], ..Fingerprints::default() };
    let mut found = RereadRows::with_keys(&[&event], RowKeys::of(&fingerprints, &hasher));
    assert!(found.take(present, || json("1")).is_break());
    let rows = found.into_events(false).next().unwrap();
    assert_eq!(rows.new[0].0, known.key);
}

#[test]
fn rows_are_given_to_their_events_in_order() {
    let events = [event(1, &[1, 2]), event(2, &[2, 3])];
    let mut found = reread(&events.each_ref());
    for row in [3, 9, 2, 1] {
        assert!(found.take(Digest([row; 16]), || json(&row.to_string())).is_continue());
    }
    assert!(found.has_first() && !found.is_done(), "the second chunk misses one of two equal rows");
    assert!(found.take(Digest([2; 16]), || json("2")).is_break());
    assert_eq!(bodies(found, false), [(1, data(&[1], &[2])), (2, data(&[2], &[3]))]);
}

#[test]
fn missing_rows_are_gone_only_after_a_whole_read() {
    for (is_final, expected) in [(false, vec![]), (true, vec![(1, data(&[], &[2]))])] {
        let event = event(1, &[1, 2]);
        let mut found = reread(&[&event]);
        assert!(found.take(Digest([2; 16]), || json("2")).is_continue());
        assert!(!found.is_empty());
        assert_eq!(bodies(found, is_final), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn long_read_ends_with_the_event_that_is_due() {
    let events = [event(1, &[1, 2]), event(2, &[3])];
    let mut found = reread(&events.each_ref());
    assert!(found.take(Digest([1; 16]), || json("1")).is_continue());
    tokio::time::advance(READ_TIME).await;
    assert!(found.take(Digest([9; 16]), || json("9")).is_continue(), "its rows are not complete");
    assert!(found.take(Digest([2; 16]), || json("2")).is_break());
    assert!(found.has_stopped_early(), "so the rows of the next chunk are not gone");
    assert_eq!(bodies(found, false), [(1, data(&[1], &[2]))]);
}

#[test]
fn chunks_that_take_too_much_memory_are_dropped() {
    let large = |row: u8| json(&format!("{}{row}", " ".repeat(READ_BYTES_MAX / 2)));
    let events = [event(1, &[1]), event(2, &[2, 3]), event(3, &[4])];
    let mut found = reread(&events.each_ref());
    for row in [2, 4, 3] {
        assert!(found.take(Digest([row; 16]), || large(row)).is_continue());
    }
    assert!(found.take(Digest([1; 16]), || large(1)).is_break(), "the event that is due is completed");
    assert_eq!(bodies(found, true), [(1, data(&[1], &[])), (3, data(&[4], &[]))]);
}
