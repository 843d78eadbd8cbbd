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

/// What else matters: whether the consent existed before the session, whether the callback names
/// it, whether the provider registers users, and whether [`WITHDRAWAL_WAIT`] has passed.
type Facts = [bool; 4];

/// What it says, what a consent belongs to, the [`Facts`], of which one without a value is either,
/// and what follows.
type Row = (
    &'static str,
    &'static [BelongsTo],
    [Option<bool>; 4],
    Action,
);

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);
const ANY: Option<bool> = None;

const TABLE: [Row; 19] = [
    (
        "another user's consent is reported, and never applied",
        &[OtherUser],
        [ANY, ANY, ANY, ANY],
        Action::OwnedByOtherUser,
    ),
    (
        "a new consent is linked",
        &[Nothing],
        [NO, ANY, ANY, ANY],
        Action::ReadAccounts(Effect::Linked),
    ),
    (
        "an earlier consent was removed here, and stays removed",
        &[Nothing],
        [YES, NO, ANY, ANY],
        Action::Ignore,
    ),
    (
        "if it is given again, a withdrawal has time to take effect",
        &[Nothing],
        [YES, YES, ANY, NO],
        Action::Wait,
    ),
    (
        "then it is linked",
        &[Nothing],
        [YES, YES, ANY, YES],
        Action::ReadAccounts(Effect::Linked),
    ),
    (
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
        [ANY, ANY, ANY, ANY],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    (
        "a new consent of the connection to repair repairs it, also if a refresh was faster",
        &[Target(Active)],
        [NO, ANY, ANY, ANY],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    (
        "an earlier one repairs it if the callback names it",
        &[Target(Active)],
        [YES, YES, ANY, ANY],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    (
        "or if the credentials are those of the callback",
        &[Target(Active)],
        [YES, NO, NO, ANY],
        Action::ReadAccounts(Effect::Reconnected),
    ),
    (
        "otherwise this session did not repair it",
        &[Target(Active)],
        [YES, NO, YES, ANY],
        Action::Ignore,
    ),
    (
        "credentials of the callback renew an active connection",
        &[Older(Active)],
        [ANY, ANY, NO, ANY],
        Action::ReadAccounts(Effect::Renewed),
    ),
    (
        "an active connection of a provider user is renewed if the callback names it",
        &[Older(Active)],
        [ANY, YES, YES, ANY],
        Action::ReadAccounts(Effect::Renewed),
    ),
    (
        "otherwise the session leaves it alone",
        &[Older(Active)],
        [ANY, NO, YES, ANY],
        Action::Ignore,
    ),
    (
        "the credentials of the callback go also to a connection that was linked meanwhile",
        &[Newer(Active)],
        [NO, ANY, NO, ANY],
        Action::ReadAccounts(Effect::LinkedEarlier),
    ),
    (
        "a connection linked meanwhile is that of this session if the callback names it",
        &[Newer(Active)],
        [NO, YES, YES, ANY],
        Action::Count(Effect::Linked),
    ),
    (
        "otherwise a concurrent session may have linked it",
        &[Newer(Active)],
        [NO, NO, YES, ANY],
        Action::Count(Effect::LinkedEarlier),
    ),
    (
        "an earlier consent that another session linked meanwhile is as any active connection",
        &[Newer(Active)],
        [YES, ANY, NO, ANY],
        Action::ReadAccounts(Effect::Renewed),
    ),
    (
        "which is renewed if the callback names it",
        &[Newer(Active)],
        [YES, YES, YES, ANY],
        Action::ReadAccounts(Effect::Renewed),
    ),
    (
        "and otherwise left alone",
        &[Newer(Active)],
        [YES, NO, YES, ANY],
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
            let facts = [1, 2, 4, 8].map(|bit| bits & bit > 0);
            let rows: Vec<&Row> = TABLE
                .iter()
                .filter(|row| fits(row, belongs_to, facts))
                .collect();
            let [(says, .., expected)] = rows[..] else {
                panic!("{belongs_to:?} {facts:?} is in {} rows", rows.len())
            };
            let action = action(belongs_to, facts);
            assert_eq!(action, *expected, "{says}: {belongs_to:?} {facts:?}");
        }
    }
}

fn fits((_, belong_to, expected, _): &Row, belongs_to: BelongsTo, facts: Facts) -> bool {
    let mut facts = expected.iter().zip(facts);
    belong_to.contains(&belongs_to)
        && facts.all(|(expected, fact)| expected.is_none_or(|expected| expected == fact))
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
    for (sentence, confirmation, is_expired, [is_known, is_named], withdrawn) in [
        (
            "before the answer, nothing happens",
            Open,
            false,
            [false, false],
            None,
        ),
        (
            "without an answer, a new consent is withdrawn at the end",
            Open,
            true,
            [false, false],
            Some(&own[..1]),
        ),
        (
            "an earlier consent is not that of the session",
            Open,
            true,
            [true, false],
            Some(&[]),
        ),
        (
            "unless the callback names it",
            Open,
            true,
            [true, true],
            Some(&own[..1]),
        ),
        (
            "a denial withdraws what the session gave",
            Denied,
            false,
            [false, false],
            Some(&own[..]),
        ),
        (
            "also what the callback names",
            Denied,
            false,
            [true, true],
            Some(&own[..]),
        ),
        (
            "and leaves earlier consents alone",
            Denied,
            false,
            [true, false],
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
    let [is_known, is_named, registers_users, has_waited] = facts;
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
    for (sentence, accounts, replaceable, is_expired, elapsed, expected) in [
        (
            "a new consent waits for its accounts",
            0,
            &none,
            false,
            early,
            &Placement::Wait,
        ),
        (
            "then it is linked without them",
            0,
            &none,
            false,
            late,
            &stored,
        ),
        (
            "or when the session expires",
            0,
            &none,
            true,
            early,
            &stored,
        ),
        (
            "a consent with accounts is linked at once",
            1,
            &none,
            false,
            Duration::ZERO,
            &stored,
        ),
        (
            "without accounts, a repair looks like another login",
            0,
            &same,
            false,
            late,
            &Placement::Wait,
        ),
        ("until the session expires", 0, &same, true, late, &stored),
        (
            "a known account makes it a repair",
            1,
            &same,
            false,
            Duration::ZERO,
            &replace,
        ),
        (
            "other accounts make it another connection",
            1,
            &other,
            false,
            Duration::ZERO,
            &stored,
        ),
        (
            "of two connections to repair, the one with the account counts",
            1,
            &both,
            false,
            late,
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
