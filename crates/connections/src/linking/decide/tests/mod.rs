//! A table of every case.

mod worlds;

use bellbird_domain::ConnectionStatus::{Active, Invalidated, PendingMfa, Revoked};

use super::super::fixtures::{at, connection, connection_id, found, found_account, stored_account};
use super::*;

/// What a consent belongs to when a session that started at 0 finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BelongsTo {
    Nothing,
    OtherUser,
    /// The connection to repair.
    Target(ConnectionStatus),
    /// A connection that was created since the session started.
    Newer(ConnectionStatus),
    /// A connection that was created before the session.
    Older(ConnectionStatus),
}
use BelongsTo::{Newer, Nothing, Older, OtherUser, Target};

/// What else matters.
#[derive(Debug, Clone, Copy)]
struct Facts {
    /// The consent existed before the session.
    is_known: bool,
    /// The callback names it.
    is_named: bool,
    /// The provider registers users.
    registers_users: bool,
    /// [`WITHDRAWAL_WAIT`] has passed.
    has_waited: bool,
}

/// What a row expects of one of the [`Facts`].
#[derive(Clone, Copy)]
enum Fact {
    Known(bool),
    Named(bool),
    RegistersUsers(bool),
    Waited(bool),
}
use Fact::{Known, Named, RegistersUsers, Waited};

/// A row of the table.
struct Row {
    says: &'static str,
    belongs_to: &'static [BelongsTo],
    /// A fact that is not here is either.
    facts: &'static [Fact],
    action: Action,
}

const fn row(
    says: &'static str,
    belongs_to: &'static [BelongsTo],
    facts: &'static [Fact],
    action: Action,
) -> Row {
    Row {
        says,
        belongs_to,
        facts,
        action,
    }
}

static TABLE: [Row; 19] = [
    row(
        "another user's consent is reported, and never applied",
        &[OtherUser],
        &[],
        Action::OwnedByOtherUser,
    ),
    row(
        "a new consent is linked",
        &[Nothing],
        &[Known(false)],
        Action::ReadAccounts(Effect::Linked),
    ),
    row(
        "an earlier consent was removed here, and stays removed",
        &[Nothing],
        &[Known(true), Named(false)],
        Action::Ignore,
    ),
    row(
        "if it is given again, a withdrawal has time to take effect",
        &[Nothing],
        &[Known(true), Named(true), Waited(false)],
        Action::Wait,
    ),
    row(
        "then it is linked",
        &[Nothing],
        &[Known(true), Named(true), Waited(true)],
        Action::ReadAccounts(Effect::Linked),
    ),
    row(
        "a broken connection whose consent is active is reconnected",
        &[
            Target(Revoked),
            Target(Invalidated),
            Target(PendingMfa),
            Older(Revoked),
            Older(Invalidated),
            Older(PendingMfa),
            Newer(Revoked),
            Newer(Invalidated),
            Newer(PendingMfa),
        ],
        &[],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    row(
        "a new consent of the connection to repair repairs it, also if a refresh was faster",
        &[Target(Active)],
        &[Known(false)],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    row(
        "an earlier one repairs it if the callback names it",
        &[Target(Active)],
        &[Known(true), Named(true)],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    row(
        "or if the credentials are those of the callback",
        &[Target(Active)],
        &[Known(true), Named(false), RegistersUsers(false)],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    row(
        "otherwise this session did not repair it",
        &[Target(Active)],
        &[Known(true), Named(false), RegistersUsers(true)],
        Action::Ignore,
    ),
    row(
        "credentials of the callback renew an active connection",
        &[Older(Active)],
        &[RegistersUsers(false)],
        Action::ReadAccounts(Effect::Renewed),
    ),
    row(
        "an active connection of a provider user is renewed if the callback names it",
        &[Older(Active)],
        &[Named(true), RegistersUsers(true)],
        Action::ReadAccounts(Effect::Renewed),
    ),
    row(
        "otherwise the session leaves it alone",
        &[Older(Active)],
        &[Named(false), RegistersUsers(true)],
        Action::Ignore,
    ),
    row(
        "the credentials of the callback go also to a connection that was linked meanwhile",
        &[Newer(Active)],
        &[Known(false), RegistersUsers(false)],
        Action::ReadAccounts(Effect::LinkedEarlier),
    ),
    row(
        "a connection linked meanwhile is that of this session if the callback names it",
        &[Newer(Active)],
        &[Known(false), Named(true), RegistersUsers(true)],
        Action::Count(Effect::Linked),
    ),
    row(
        "otherwise a concurrent session may have linked it",
        &[Newer(Active)],
        &[Known(false), Named(false), RegistersUsers(true)],
        Action::Count(Effect::LinkedEarlier),
    ),
    row(
        "an earlier consent that another session linked meanwhile is as any active connection",
        &[Newer(Active)],
        &[Known(true), RegistersUsers(false)],
        Action::ReadAccounts(Effect::Renewed),
    ),
    row(
        "which is renewed if the callback names it",
        &[Newer(Active)],
        &[Known(true), Named(true), RegistersUsers(true)],
        Action::ReadAccounts(Effect::Renewed),
    ),
    row(
        "and otherwise left alone",
        &[Newer(Active)],
        &[Known(true), Named(false), RegistersUsers(true)],
        Action::Ignore,
    ),
];

#[test]
fn table_of_decisions() {
    let statuses = [Active, Revoked, Invalidated, PendingMfa];
    let connected = statuses
        .into_iter()
        .flat_map(|status| [Target(status), Newer(status), Older(status)]);
    for belongs_to in connected.chain([Nothing, OtherUser]) {
        for bits in 0..16_u8 {
            let facts = Facts {
                is_known: bits & 1 > 0,
                is_named: bits & 2 > 0,
                registers_users: bits & 4 > 0,
                has_waited: bits & 8 > 0,
            };
            let rows: Vec<&Row> = TABLE
                .iter()
                .filter(|row| row.fits(belongs_to, facts))
                .collect();
            let [row] = rows[..] else {
                panic!("{belongs_to:?} {facts:?} is in {} rows", rows.len())
            };
            let (says, action) = (row.says, action(belongs_to, facts));
            assert_eq!(action, row.action, "{says}: {belongs_to:?} {facts:?}");
        }
    }
}

impl Row {
    fn fits(&self, belongs_to: BelongsTo, facts: Facts) -> bool {
        let is_so = |fact: &Fact| match *fact {
            Known(expected) => facts.is_known == expected,
            Named(expected) => facts.is_named == expected,
            RegistersUsers(expected) => facts.registers_users == expected,
            Waited(expected) => facts.has_waited == expected,
        };
        self.belongs_to.contains(&belongs_to) && self.facts.iter().all(is_so)
    }
}

/// The connection that a session is to repair: that of the consent, or another one.
fn target(belongs_to: BelongsTo) -> Connection {
    let number = if matches!(belongs_to, Target(_)) {
        1
    } else {
        2
    };
    connection(number, 1, Revoked, at(-1))
}

/// A session that started at 0 and is to repair this connection.
fn session(confirmation: Confirmation, target: &Connection) -> Session<'_> {
    Session {
        created_at: at(0),
        is_expired: false,
        confirmation,
        is_declined: false,
        registers_users: true,
        repair_targets: vec![target],
    }
}

#[test]
fn table_of_unfinished_sessions() {
    use Confirmation::{Denied, Open};
    let all = [
        Nothing,
        OtherUser,
        Target(Active),
        Target(Revoked),
        Newer(Active),
        Older(Active),
        Older(Revoked),
    ];
    let own = [Nothing, Target(Active), Target(Revoked), Newer(Active)];
    for (sentence, (confirmation, is_expired, [is_known, is_named]), withdrawn) in [
        (
            "before the answer, nothing happens",
            (Open, false, [false, false]),
            None,
        ),
        (
            "without an answer, a new consent is withdrawn at the end",
            (Open, true, [false, false]),
            Some(&own[..1]),
        ),
        (
            "an earlier consent is not that of the session",
            (Open, true, [true, false]),
            Some(&[]),
        ),
        (
            "unless the callback names it",
            (Open, true, [true, true]),
            Some(&own[..1]),
        ),
        (
            "a denial withdraws what the session gave",
            (Denied, false, [false, false]),
            Some(&own[..]),
        ),
        (
            "also what the callback names",
            (Denied, false, [true, true]),
            Some(&own[..]),
        ),
        (
            "and leaves earlier consents alone",
            (Denied, false, [true, false]),
            Some(&[]),
        ),
    ] {
        for belongs_to in all {
            let target = target(belongs_to);
            let session = Session {
                is_expired,
                ..session(confirmation, &target)
            };
            let existing = existing(belongs_to);
            let found = found(1, 1, ConsentStatus::Active);
            let consent = Consent {
                found: &found,
                is_known,
                is_named,
                existing,
            };
            if let (Existing::Connected(_), Denied) = (&consent.existing, confirmation) {
                let declined = Session {
                    is_declined: true,
                    ..self::session(confirmation, &target)
                };
                let action = decide(&consent, &declined, WITHDRAWAL_WAIT);
                assert_eq!(
                    action,
                    Action::Ignore,
                    "a user who declined removes nothing: {belongs_to:?}"
                );
            }
            let action = decide(&consent, &session, WITHDRAWAL_WAIT);
            let expected = match withdrawn {
                None => Action::Wait,
                Some(withdrawn) if withdrawn.contains(&belongs_to) => Action::Withdraw,
                Some(_) => Action::Ignore,
            };
            assert_eq!(action, expected, "{sentence}: {belongs_to:?}");
        }
    }
}

fn existing(belongs_to: BelongsTo) -> Existing {
    match belongs_to {
        Nothing => Existing::NotConnected,
        OtherUser => Existing::OwnedByOtherUser,
        Target(status) | Older(status) => Existing::Connected(connection(1, 1, status, at(-1))),
        // The same moment counts as after.
        Newer(status) => Existing::Connected(connection(1, 1, status, at(0))),
    }
}

fn action(belongs_to: BelongsTo, facts: Facts) -> Action {
    let Facts {
        is_known,
        is_named,
        registers_users,
        has_waited,
    } = facts;
    let target = target(belongs_to);
    let session = Session {
        registers_users,
        ..session(Confirmation::Confirmed, &target)
    };
    let found = found(1, 1, ConsentStatus::Active);
    let just_before = WITHDRAWAL_WAIT.saturating_sub(Duration::from_nanos(1));
    let elapsed = if has_waited {
        WITHDRAWAL_WAIT
    } else {
        just_before
    };
    let consent = Consent {
        found: &found,
        is_known,
        is_named,
        existing: existing(belongs_to),
    };
    decide(&consent, &session, elapsed)
}

#[test]
fn table_of_placements() {
    let target = connection(1, 1, Revoked, at(-1));
    let known = stored_account(1, 7);
    let replace = Placement::Replace(connection_id(1), vec![Some(known.id)]);
    let (stored, none) = (Placement::Store(Effect::Linked), vec![]);
    let targets = |accounts: &[Account]| vec![(connection_id(1), accounts.to_vec())];
    let (same, other) = (
        targets(std::slice::from_ref(&known)),
        targets(&[stored_account(1, 8)]),
    );
    let both = vec![
        (connection_id(2), vec![stored_account(2, 8)]),
        same[0].clone(),
    ];
    let (early, late) = (
        ACCOUNTS_WAIT.saturating_sub(Duration::from_nanos(1)),
        ACCOUNTS_WAIT,
    );
    for (sentence, (accounts, replaceable, is_expired, elapsed), expected) in [
        (
            "a new consent waits for its accounts",
            (0, &none, false, early),
            &Placement::Wait,
        ),
        (
            "then it is linked without them",
            (0, &none, false, late),
            &stored,
        ),
        (
            "or when the session expires",
            (0, &none, true, early),
            &stored,
        ),
        (
            "a consent with accounts is linked at once",
            (1, &none, false, Duration::ZERO),
            &stored,
        ),
        (
            "without accounts, a repair looks like another login",
            (0, &same, false, late),
            &Placement::Wait,
        ),
        ("until the session expires", (0, &same, true, late), &stored),
        (
            "a known account makes it a repair",
            (1, &same, false, Duration::ZERO),
            &replace,
        ),
        (
            "other accounts make it another connection",
            (1, &other, false, Duration::ZERO),
            &stored,
        ),
        (
            "of two connections to repair, the one with the account counts",
            (1, &both, false, late),
            &replace,
        ),
    ] {
        let session = Session {
            is_expired,
            ..session(Confirmation::Confirmed, &target)
        };
        let accounts: Vec<FoundAccount> = (0..accounts).map(|_| found_account(5, 7)).collect();
        assert_eq!(
            &place(Effect::Linked, &accounts, replaceable, &session, elapsed),
            expected,
            "{sentence}"
        );
    }
}

#[test]
fn inactive_and_repeated_consents_are_left_out() {
    let listed = [
        found(3, 1, ConsentStatus::Active),
        found(2, 1, ConsentStatus::Broken(Revoked)),
        found(1, 1, ConsentStatus::Active),
        found(3, 2, ConsentStatus::Active),
    ];
    let active = active_consents(&listed);
    let expected = [("consent1", "bank1"), ("consent3", "bank1")];
    let ids = |found: &&FoundConnection| {
        (
            found.provider_connection_id.clone(),
            found.institution_id.clone(),
        )
    };
    assert_eq!(
        active.iter().map(ids).collect::<Vec<_>>(),
        expected.map(|(id, bank)| (id.to_owned(), bank.to_owned()))
    );
}
