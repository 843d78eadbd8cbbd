//! The model test of following (docs/adr/0016-following.md): any history of a provider's list, and
//! clients that do what the documentation says. At its end, the table of each client equals the
//! list.
//!
//! A history inserts, changes, hides and removes rows, renews the consent with new ids, syncs,
//! restores a backup, and lets clients read pages, of which they lose some.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use bellbird_domain::lab::{Chance, Outcome};
use bellbird_domain::{
    AccountTag, ContentDigest, Digest, Fingerprints, RowDigests, RowKey, UtcDay,
};
use bellbird_webhooks::event::digest::RowHasher;
use jiff::{SignedDuration, Timestamp};

use super::faults::{Fault, spoil};
use crate::sync::changes::{Coverage, DuplicateIds, Reading, detect_changes};
use crate::sync::following::{ChangesSince, DeliveredDaySum, Followed, PendingRow};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const START: i64 = 20_000 * DAY;
/// How far back a sync reads.
const RANGE: SignedDuration = SignedDuration::from_hours(7 * 24);
const PRUNE_MARGIN: SignedDuration = SignedDuration::from_hours(48);
const ACCOUNTS: u32 = 2;

/// What two rows share that may be taken for each other: account, day and amount.
type Likeness = (u32, UtcDay, u8);

/// An upsert, or a removal.
type Entry = (RowKey, Option<Content>);

/// What a client sees of a row, apart from its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Content {
    account: u32,
    at: i64,
    amount: u8,
    category: u8,
}

impl Content {
    fn day(&self) -> UtcDay {
        UtcDay::of(time(self.at))
    }

    fn likeness(&self) -> Likeness {
        (self.account, self.day(), self.amount)
    }
}

#[derive(Debug, Clone, Copy)]
struct Row {
    id: u64,
    /// The same under every id, as long as the row can be recognised.
    identity: u64,
    content: Content,
    is_hidden: bool,
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn digests(row: &Row) -> RowDigests {
    let digest = |value: u64| ContentDigest(value.to_be_bytes());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&hash_of(row.id).to_be_bytes());
    RowDigests {
        row: Digest(id),
        content: digest(hash_of(row.content)),
        likeness: digest(hash_of(row.content.likeness())),
        account: AccountTag(row.content.account),
        day: row.content.day(),
    }
}

/// A connection, at the provider and here.
#[derive(Clone, Default)]
struct Connection {
    rows: Vec<Row>,
    known: Fingerprints,
    covered_from: i64,
    synced_at: i64,
    /// Counts the restored backups.
    restores: u32,
}

/// What a client holds. A cursor is of one connection.
#[derive(Clone, Default)]
struct Client {
    table: BTreeMap<RowKey, Content>,
    cursor: Option<Cursor>,
}

#[derive(Clone)]
struct Cursor {
    connection: usize,
    restores: u32,
    since: Option<u32>,
    pending: Vec<PendingRow>,
    at: i64,
    page: Option<Page>,
}

/// Pages that follow: what is reached with the last one, and the last row that was delivered.
#[derive(Clone)]
struct Page {
    target: u32,
    gone: Option<RowKey>,
    rows: Option<i64>,
    delivered: DeliveredDaySum,
    pending: Vec<PendingRow>,
}

struct History {
    chance: Chance,
    is_settling: bool,
    fault: Option<Fault>,
    steps: u64,
    /// The first broken invariant.
    broken: Option<String>,
    hasher: RowHasher,
    now: i64,
    next: u64,
    connections: [Connection; 2],
    backups: [Option<(Fingerprints, i64, i64)>; 2],
    clients: [Vec<Client>; 2],
    /// The rows that have had a likeness, and those that may be taken for another one because of
    /// that.
    likenesses: HashMap<(usize, Likeness), HashSet<u64>>,
    ambiguous: HashSet<u64>,
    /// The key of each row that can be recognised, and since when reads have lacked it, with their
    /// number.
    keys: HashMap<u64, RowKey>,
    misses: HashMap<u64, (i64, u32)>,
}

impl History {
    fn new(seed: u64, fault: Option<Fault>) -> Self {
        Self {
            chance: Chance::new(seed),
            is_settling: false,
            fault,
            steps: 0,
            broken: None,
            hasher: RowHasher::new(&[7; 32]),
            now: START,
            next: 1,
            connections: Default::default(),
            backups: [None, None],
            clients: [vec![Client::default(); 2], vec![Client::default(); 1]],
            likenesses: HashMap::new(),
            ambiguous: HashSet::new(),
            keys: HashMap::new(),
            misses: HashMap::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Remembers rows that may be taken for each other, whose keys are not checked.
    fn note_likeness(&mut self, connection: usize, row: &Row) {
        let alike = self
            .likenesses
            .entry((connection, row.content.likeness()))
            .or_default();
        alike.insert(row.identity);
        if alike.len() > 1 {
            self.ambiguous.extend(alike.iter());
        }
    }

    fn change(&mut self, connection: usize) {
        let rows = self.connections[connection].rows.len() as u64;
        let at = (rows > 0).then(|| self.chance.below(rows.max(1)) as usize);
        match (self.chance.below(10), at) {
            (0..=3, _) | (_, None) => {
                let content = Content {
                    account: self.chance.below(ACCOUNTS.into()) as u32,
                    at: self.now - self.chance.below(4 * DAY as u64) as i64,
                    amount: self.chance.below(6) as u8,
                    category: 0,
                };
                let row = Row {
                    id: self.number(),
                    identity: self.number(),
                    content,
                    is_hidden: false,
                };
                self.note_likeness(connection, &row);
                self.connections[connection].rows.push(row);
            }
            (4..=5, Some(at)) => self.connections[connection].rows[at].content.category += 1,
            (6, Some(at)) => {
                // It stays the same row, unless no sync has seen its present id.
                let identity = self.number();
                let own = &mut self.connections[connection];
                let row = &mut own.rows[at];
                let before = digests(row);
                if own
                    .known
                    .rows
                    .iter()
                    .all(|known| known.digests.row != before.row)
                {
                    row.identity = identity;
                }
                row.content.amount ^= 8;
                let row = self.connections[connection].rows[at];
                self.note_likeness(connection, &row);
            }
            (7, Some(at)) => {
                self.connections[connection].rows.swap_remove(at);
            }
            (_, Some(at)) => {
                let row = &mut self.connections[connection].rows[at];
                row.is_hidden = !row.is_hidden;
            }
        }
    }

    /// A renewed consent gives every row a new id. A row that looks different from what the last
    /// sync saw is another row.
    fn renew(&mut self, connection: usize) {
        let known: HashSet<(Digest, ContentDigest)> = self.connections[connection]
            .known
            .rows
            .iter()
            .map(|known| (known.digests.row, known.digests.likeness))
            .collect();
        for at in 0..self.connections[connection].rows.len() {
            let before = digests(&self.connections[connection].rows[at]);
            let (id, identity) = (self.number(), self.number());
            let row = &mut self.connections[connection].rows[at];
            row.id = id;
            if !known.contains(&(before.row, before.likeness)) {
                row.identity = identity;
                let row = *row;
                self.note_likeness(connection, &row);
            }
        }
    }

    fn sync(&mut self, connection: usize) {
        let own = &mut self.connections[connection];
        let (now, from) = (
            time(self.now),
            time(self.now).saturating_sub(RANGE).unwrap(),
        );
        own.covered_from = own.covered_from.max(from.as_second());
        let from = own.covered_from;
        let mut read: Vec<Row> = own
            .rows
            .iter()
            .copied()
            .filter(|row| !row.is_hidden)
            .collect();
        read.retain(|row| (from..=self.now).contains(&row.content.at));
        read.sort_by_key(|row| std::cmp::Reverse(row.content.at));
        let seen: Vec<RowDigests> = read.iter().map(digests).collect();
        let accounts = (0..ACCOUNTS).map(AccountTag).collect();
        let is_complete = self.is_settling || !self.chance.one_in(8);
        // A row that cannot be read may be any row.
        let unreadable = if is_complete {
            HashSet::new()
        } else {
            HashSet::from([None])
        };
        let (watched, first_day) = (
            UtcDay::first_whole(time(from)),
            UtcDay(UtcDay::of(time(from)).0 + 1),
        );
        let coverage = Coverage {
            days: first_day..=UtcDay(u16::MAX),
            first_certain_day: watched,
            accounts,
            unreadable,
        };
        let reading = Reading {
            hasher: &self.hasher,
            duplicate_ids: DuplicateIds::SameRow,
            now,
            prune_before: time(from).saturating_sub(PRUNE_MARGIN).unwrap(),
            coverage: &coverage,
            removal_hints: &HashSet::new(),
        };
        let mut found = detect_changes(&own.known, &seen, &reading);
        let keys: HashMap<Digest, RowKey> = found
            .fingerprints
            .as_ref()
            .unwrap_or(&own.known)
            .rows
            .iter()
            .map(|row| (row.digests.row, row.key))
            .collect();
        if let Some(known) = &mut found.fingerprints {
            self.fault.inspect(|fault| spoil(*fault, known, &own.known));
        }
        let gone: Vec<RowKey> = found
            .fingerprints
            .iter()
            .flat_map(|all| &all.rows)
            .filter(|row| row.is_gone)
            .map(|row| row.key)
            .collect();
        if let Some(known) = found.fingerprints {
            own.known = known;
        }
        own.synced_at = self.now;
        let read_ids: HashSet<u64> = read.iter().map(|row| row.id).collect();
        for row in own.rows.clone() {
            let is_ambiguous = self.ambiguous.contains(&row.identity);
            if row.content.day() < watched || is_ambiguous {
                self.keys.remove(&row.identity);
                continue;
            }
            if read_ids.contains(&row.id) {
                self.misses.remove(&row.identity);
                let key = keys[&digests(&row).row];
                let known = *self.keys.entry(row.identity).or_insert(key);
                let stored = self.connections[connection]
                    .known
                    .rows
                    .iter()
                    .find(|known| known.digests == digests(&row));
                if stored.map(|stored| stored.key) != Some(known) {
                    self.broken
                        .get_or_insert("a row has another key".to_owned());
                }
            } else if is_complete {
                let (since, count) = self.misses.entry(row.identity).or_insert((self.now, 0));
                *count += 1;
                let may_be_gone = *count >= 3 && self.now - *since >= DAY;
                let key = self.keys.get(&row.identity);
                if !may_be_gone && key.is_some_and(|key| gone.contains(key)) {
                    self.broken
                        .get_or_insert("a row is gone too early".to_owned());
                }
            }
        }
    }

    /// A request for a page of at most `limit` entries. None: 410 or 400.
    fn page(
        &mut self,
        connection: usize,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Option<(Vec<Entry>, Cursor, bool)> {
        if cursor
            .as_ref()
            .is_some_and(|cursor| cursor.connection != connection)
            && self.fault != Some(Fault::ForeignCursor)
        {
            return None;
        }
        let restores = self.connections[connection].restores;
        if cursor
            .as_ref()
            .is_some_and(|cursor| cursor.restores != restores)
            && !matches!(self.fault, Some(Fault::Restore | Fault::SameMark))
        {
            return None;
        }
        let begin = || Cursor {
            connection,
            restores,
            since: None,
            pending: Vec::new(),
            at: 0,
            page: None,
        };
        let mut cursor = cursor.unwrap_or_else(begin);
        if cursor.page.is_none() && (self.now - self.connections[connection].synced_at >= 60) {
            self.sync(connection);
        }
        let own = self.connections[connection].clone();
        let mut page = cursor.page.take().unwrap_or(Page {
            target: own.known.change_version(),
            gone: None,
            rows: None,
            delivered: DeliveredDaySum::default(),
            pending: Vec::new(),
        });
        let is_news = cursor.since != Some(page.target)
            || (!cursor.pending.is_empty() && own.synced_at > cursor.at);
        if !is_news {
            (cursor.since, cursor.at) = (Some(page.target), self.now);
            return Some((Vec::new(), cursor, false));
        }
        let is_reached = [Some(page.target), cursor.since]
            .into_iter()
            .flatten()
            .all(|mark| own.known.reach_back_to(mark));
        if !is_reached && self.fault != Some(Fault::Restore) {
            return None;
        }
        let watched_from = UtcDay::first_whole(time(own.covered_from));
        let since = match cursor.since {
            None => ChangesSince::Nothing,
            Some(mark) => ChangesSince::Mark {
                mark,
                pending: &cursor.pending,
            },
        };
        let mut followed = Followed::new(
            &self.hasher,
            &own.known,
            DuplicateIds::SameRow,
            watched_from,
            since,
            None,
        );
        let (mut entries, mut has_more) = (Vec::new(), false);
        let begin = page.gone;
        for key in followed
            .gone()
            .keys()
            .filter(|key| begin.is_none_or(|last| **key > last))
        {
            if entries.len() == limit {
                has_more = true;
                break;
            }
            entries.push((*key, None));
            page.gone = Some(*key);
        }
        let range = match cursor.since {
            None => Some(START - 40 * DAY..=self.now),
            Some(_) => followed
                .days()
                .map(|days| days.start().start().as_second()..=days.end().end().as_second()),
        };
        if !has_more {
            let mut rows: Vec<Row> = own
                .rows
                .iter()
                .copied()
                .filter(|row| !row.is_hidden)
                .collect();
            rows.retain(|row| {
                range
                    .as_ref()
                    .is_some_and(|range| range.contains(&row.content.at))
            });
            rows.sort_by_key(|row| std::cmp::Reverse(row.content.at));
            let begin = page.rows;
            let mut end = None;
            // All rows of one instant are delivered again by the next page.
            for row in rows {
                let unseen = followed.take(&digests(&row));
                if begin.is_some_and(|begin| row.content.at > begin) {
                    continue;
                }
                if let Some(unseen) = unseen {
                    if entries.len() >= limit && end.is_some_and(|end| row.content.at < end) {
                        has_more = true;
                        break;
                    }
                    followed.deliver(unseen.key);
                    entries.push((unseen.key, Some(row.content)));
                    end = Some(row.content.at);
                }
            }
            let first = match has_more {
                true => end.map_or(UtcDay(0), |end| UtcDay(UtcDay::of(time(end)).0 + 1)),
                false => UtcDay(0),
            };
            let last = begin.map_or(UtcDay(u16::MAX), |begin| UtcDay::of(time(begin)));
            if self.fault != Some(Fault::NothingPending) {
                let (missing, absent) =
                    followed.pending(first.max(watched_from)..=last, page.delivered);
                page.pending.extend(missing.into_iter().chain(absent));
            }
            if let Some(end) = end {
                let day = UtcDay::of(time(end));
                let before = if day == last {
                    page.delivered
                } else {
                    DeliveredDaySum::default()
                };
                (page.rows, page.delivered) = (Some(end), before + followed.delivered_on(day));
            }
        }
        if has_more {
            cursor.page = Some(page);
        } else {
            (cursor.since, cursor.pending, cursor.at) = (Some(page.target), page.pending, self.now);
        }
        Some((entries, cursor, has_more))
    }

    /// A client asks for a page, and may lose it. Returns whether it should ask again at once.
    fn poll(&mut self, connection: usize, client: usize) -> bool {
        let mut own = self.clients[connection][client].clone();
        let mut cursor = own.cursor.clone();
        if self.chance.one_in(20) {
            // By mistake, a cursor of the other connection.
            let other = self.clients[1 - connection]
                .first()
                .and_then(|other| other.cursor.clone());
            cursor = other.filter(|other| other.page.is_none()).or(cursor);
        }
        let limit = 1 + self.chance.below(4) as usize;
        let Some((entries, after, has_more)) = self.page(connection, cursor, limit) else {
            // Begin again: keep what comes, remove what does not.
            self.clients[connection][client] = Client::default();
            return true;
        };
        let is_lost = self.chance.one_in(6);
        if is_lost && self.fault != Some(Fault::LostPage) {
            return true;
        }
        for (key, content) in entries.into_iter().filter(|_| !is_lost) {
            match content {
                Some(content) => own.table.insert(key, content),
                None => own.table.remove(&key),
            };
        }
        own.cursor = Some(after);
        self.clients[connection][client] = own;
        has_more
    }

    fn step(&mut self) {
        self.steps += 1;
        let connection = self.chance.below(2) as usize;
        let client = self.chance.below(self.clients[connection].len() as u64) as usize;
        match self.chance.below(24) {
            0..=8 => self.change(connection),
            9..=11 => self.sync(connection),
            12..=18 => {
                self.poll(connection, client);
            }
            19 => self.renew(connection),
            20 if self.chance.one_in(4) => {
                let own = &self.connections[connection];
                self.backups[connection] =
                    Some((own.known.clone(), own.covered_from, own.synced_at));
            }
            21 if self.chance.one_in(4) => {
                if let Some((known, covered_from, synced_at)) = self.backups[connection].take() {
                    let own = &mut self.connections[connection];
                    (own.known, own.covered_from, own.synced_at) = (known, covered_from, synced_at);
                    own.restores += 1;
                    // Rows that the lost history has renumbered are other rows now.
                    self.keys.clear();
                    self.misses.clear();
                }
            }
            _ => self.now += 30 + self.chance.below(20 * HOUR as u64) as i64,
        }
        // Syncs of one second have change versions that are ahead of the clock.
        self.now += i64::from(self.chance.one_in(4));
    }

    /// The provider calms down. After three reads over a day, every client has what the provider
    /// has.
    fn settle(&mut self) {
        for own in &mut self.connections {
            own.rows.iter_mut().for_each(|row| row.is_hidden = false);
        }
        self.is_settling = true;
        for hours in [1, 13, 13] {
            self.now += hours * HOUR;
            for connection in 0..2 {
                self.sync(connection);
                for client in 0..self.clients[connection].len() {
                    while self.poll(connection, client) {}
                }
            }
        }
        for connection in 0..2 {
            let own = &self.connections[connection];
            let watched_from = UtcDay::first_whole(time(own.covered_from));
            let mut listed: Vec<Content> = own.rows.iter().map(|row| row.content).collect();
            listed.retain(|content| content.day() >= watched_from);
            listed.sort_unstable();
            for (number, client) in self.clients[connection].iter().enumerate() {
                let mut held: Vec<Content> = client.table.values().copied().collect();
                held.retain(|content| content.day() >= watched_from);
                held.sort_unstable();
                if held != listed {
                    let what = format!("client {number} of connection {connection} has other rows");
                    self.broken.get_or_insert(what);
                }
            }
        }
    }
}

pub(super) fn run(seed: u64, fault: Option<Fault>) -> Outcome {
    let mut world = History::new(seed, fault);
    for _ in 0..20 + seed % 40 {
        world.step();
    }
    world.settle();
    Outcome {
        steps: world.steps,
        broken: world.broken,
        trace: String::new(),
    }
}
