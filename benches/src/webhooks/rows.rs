//! Makes rows as syncs find them, and stores finished syncs with their webhook events as the
//! service does.

use bellbird_domain::{
    Account, AccountId, AccountType, Category, ConnectionId, ContentDigest, Currency, Decimal,
    Digest, EventType, Fingerprint, Fingerprints, RowDigests, RowKey, SyncRunId, Transaction,
    UserId, UtcDay,
};
use bellbird_storage::{FinishedSync, JobKey, Storage, SyncState, job_kinds};
use bellbird_webhooks::event::buffer::{ChangedRow, SyncRun, WebhookEventBuffer};
use bellbird_webhooks::event::digest::RowHasher;
use bellbird_webhooks::event::payload::{RowJson, RowWriter};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use anyhow::{Context as _, ensure};

/// The service's lease of a sync.
const LEASE: SignedDuration = SignedDuration::from_secs(60);
const DATE_RANGE_DAYS: i64 = 14;
const DESCRIPTIONS: [&str; 5] = [
    "VISA PURCHASE EXAMPLE SUPERMARKET 4410 SYDNEY AU 18NOV CARD 1234",
    "DIRECT DEBIT 048213 EXAMPLE ENERGY RETAIL PTY LTD INV 20261118",
    "OSKO PAYMENT FROM J CITIZEN RENT WEEK 47 REF 7781239",
    "SALARY EXAMPLE HOLDINGS PTY LTD PAYROLL 000318",
    "EFTPOS EXAMPLE CAFE CENTRAL STATION SYDNEY NSW",
];

/// The JSON of rows with the members that most banks send.
pub(super) fn rows(count: usize) -> anyhow::Result<Vec<RowJson>> {
    let account = account(AccountId::new());
    let mut writer = RowWriter::default();
    (0..count)
        .map(|number| row(number, &account, &mut writer))
        .collect()
}

fn row(number: usize, account: &Account, writer: &mut RowWriter) -> anyhow::Result<RowJson> {
    let amount = format!("-{}.{:02}", 3 + number * 7 % 900, number * 13 % 100);
    let row = Transaction {
        id: format!("tx_{}", Uuid::new_v4().simple()).into(),
        account,
        instant: "2026-11-18T03:12:45Z".parse()?,
        day: None,
        seen_at: None,
        datetime: "2026-11-18T03:12:45.000Z".into(),
        description: DESCRIPTIONS[number % DESCRIPTIONS.len()].into(),
        amount: Decimal::parse(&amount).context("the amount is not a decimal")?,
        category: Some(Category::FoodAndDrink),
        merchant_name: Some("Example Supermarket".into()),
        merchant_category_code: Some("5411".into()),
        currency: None,
        provider_type: Some("PAYMENT".into()),
        executed: Some("2026-11-18T14:12:45+11:00".into()),
        reference: Some("7781239".into()),
        extended_description: Some("Groceries, week 47".into()),
    };
    Ok(writer.transaction(&row, &TimeZone::get("Australia/Sydney")?))
}

fn account(id: AccountId) -> Account {
    Account {
        id,
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: "bench".to_owned(),
        provider_account_id: "1".to_owned(),
        name: "Everyday Account".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::parse("AUD").unwrap_or(Currency::UNKNOWN),
    }
}

fn digest() -> Digest {
    Digest(*Uuid::new_v4().as_bytes())
}

/// Stores a sync whose `rows` are all new: claim, fingerprints, webhook event, deliveries and
/// bodies. They are added to the `known` fingerprints of the connection, which the service would
/// have read. An event `without_keys` stores no row keys, so later attempts need no provider.
pub(super) async fn sync(
    storage: &Storage,
    event_buffer: &WebhookEventBuffer,
    (user, connection): (UserId, ConnectionId),
    rows: &[RowJson],
    known: &mut Fingerprints,
    without_keys: bool,
) -> anyhow::Result<()> {
    let started_at = Timestamp::now();
    let claim = storage
        .jobs()
        .claim(
            &JobKey::new(job_kinds::SYNC, user, connection),
            started_at,
            started_at + LEASE,
        )
        .await?
        .context("another sync holds the lease")?;
    let account = AccountId::new();
    let row = |json: &RowJson| ChangedRow {
        key: RowKey(Uuid::new_v4().as_u64_pair().1.to_be_bytes()),
        instant: started_at,
        account,
        json: Some(json.clone()),
    };
    let mut changed: Vec<ChangedRow> = rows.iter().map(row).collect();
    let seen_at = Fingerprint::seconds(started_at);
    known.rows.extend(changed.iter().map(|changed| Fingerprint {
        digests: RowDigests {
            row: digest(),
            content: ContentDigest([7; 8]),
            likeness: ContentDigest([7; 8]),
            account: account.into(),
            day: UtcDay::of(started_at),
        },
        occurrence: 0,
        key: changed.key,
        seen_at,
        misses: 0,
        is_gone: false,
        first_version: seen_at,
        changed_version: seen_at,
    }));
    known.rows.sort_unstable();
    let run = SyncRunId::new();
    let covered_from = started_at - SignedDuration::from_hours(24 * DATE_RANGE_DAYS);
    let (event_type, hasher) = (EventType::TransactionsSynced, RowHasher::new(&[7; 32]));
    let sync_run = SyncRun {
        id: run,
        connection_id: connection,
        event_type,
        started_at,
    };
    let (mut events, in_memory) = event_buffer.prepare(sync_run, &mut changed, &mut [], &hasher);
    if without_keys {
        events.iter_mut().for_each(|event| event.row_keys.clear());
    }
    let before = storage
        .syncs()
        .find(user, connection)
        .await?
        .context("no such connection")?;
    let after = SyncState {
        sequence: before.sequence + 1,
        synced_at: Some(started_at),
        covered_from: Some(covered_from),
        newest_row_at: Some(started_at),
        rows_backfill_began_at: covered_from,
        next_at: Some(started_at + SignedDuration::from_hours(6)),
        ..before.clone()
    };
    let finished = FinishedSync {
        run,
        started_at,
        date_range: (covered_from, started_at),
        before: &before,
        after: &after,
        fingerprints: Some(known),
        event_type: EventType::TransactionsSynced,
        first_attempt_at: event_buffer.first_attempt_at(started_at),
        events: &events,
        removed_events: (run, &[]),
    };
    event_buffer.hold(in_memory, started_at);
    let stored = storage
        .syncs()
        .finish(&claim, &finished)
        .await?
        .context("lease lost")?;
    ensure!(stored == 1, "{stored} events were stored");
    event_buffer.wake();
    Ok(())
}
