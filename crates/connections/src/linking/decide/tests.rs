//! A table of every case, and properties of random worlds.

use std::collections::BTreeMap;

use bellbird_domain::ConnectionStatus::{Active, Invalidated, PendingMfa, Revoked};
use proptest::prelude::*;

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
struct Facts<T> {
    /// The consent existed before the session.
    is_known: T,
    /// The callback names it.
    is_named: T,
    registers_users: T,
    /// [`WITHDRAWAL_WAIT`] has passed.
    has_waited: T,
}

/// A row of the table. A fact without a value is either.
struct Row {
    says: &'static str,
    belongs_to: &'static [BelongsTo],
    facts: Facts<Option<bool>>,
    action: Action,
}

const ANY: Facts<Option<bool>> = Facts {
    is_known: None,
    is_named: None,
    registers_users: None,
    has_waited: None,
};
const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);

const TABLE: [Row; 19] = [
    Row {
        says: "another user's consent is reported, and never applied",
        belongs_to: &[OtherUser],
        facts: ANY,
        action: Action::OwnedByOtherUser,
    },
    Row {
        says: "a new consent is linked",
        belongs_to: &[Nothing],
        facts: Facts {
            is_known: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Linked),
    },
    Row {
        says: "an earlier consent was removed here, and stays removed",
        belongs_to: &[Nothing],
        facts: Facts {
            is_known: YES,
            is_named: NO,
            ..ANY
        },
        action: Action::Ignore,
    },
    Row {
        says: "if it is given again, a withdrawal has time to take effect",
        belongs_to: &[Nothing],
        facts: Facts {
            is_known: YES,
            is_named: YES,
            has_waited: NO,
            ..ANY
        },
        action: Action::Wait,
    },
    Row {
        says: "then it is linked",
        belongs_to: &[Nothing],
        facts: Facts {
            is_known: YES,
            is_named: YES,
            has_waited: YES,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Linked),
    },
    Row {
        says: "a broken connection whose consent is active is reconnected",
        belongs_to: &[
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
        facts: ANY,
        action: Action::ReadAccounts(Effect::Reconnected),
    },
    Row {
        says: "a new consent of the connection to repair repairs it, also if a refresh was faster",
        belongs_to: &[Target(Active)],
        facts: Facts {
            is_known: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Reconnected),
    },
    Row {
        says: "an earlier one repairs it if the callback names it",
        belongs_to: &[Target(Active)],
        facts: Facts {
            is_known: YES,
            is_named: YES,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Reconnected),
    },
    Row {
        says: "or if the credentials are those of the callback",
        belongs_to: &[Target(Active)],
        facts: Facts {
            is_known: YES,
            is_named: NO,
            registers_users: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Reconnected),
    },
    Row {
        says: "otherwise this session did not repair it",
        belongs_to: &[Target(Active)],
        facts: Facts {
            is_known: YES,
            is_named: NO,
            registers_users: YES,
            ..ANY
        },
        action: Action::Ignore,
    },
    Row {
        says: "credentials of the callback renew an active connection",
        belongs_to: &[Older(Active)],
        facts: Facts {
            registers_users: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Renewed),
    },
    Row {
        says: "an active connection of a provider user is renewed if the callback names it",
        belongs_to: &[Older(Active)],
        facts: Facts {
            is_named: YES,
            registers_users: YES,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Renewed),
    },
    Row {
        says: "otherwise the session leaves it alone",
        belongs_to: &[Older(Active)],
        facts: Facts {
            is_named: NO,
            registers_users: YES,
            ..ANY
        },
        action: Action::Ignore,
    },
    Row {
        says: "the credentials of the callback go also to a connection that was linked meanwhile",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: NO,
            registers_users: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::LinkedEarlier),
    },
    Row {
        says: "a connection linked meanwhile is that of this session if the callback names it",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: NO,
            is_named: YES,
            registers_users: YES,
            ..ANY
        },
        action: Action::Count(Effect::Linked),
    },
    Row {
        says: "otherwise a concurrent session may have linked it",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: NO,
            is_named: NO,
            registers_users: YES,
            ..ANY
        },
        action: Action::Count(Effect::LinkedEarlier),
    },
    Row {
        says: "an earlier consent that another session linked meanwhile is as any active connection",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: YES,
            registers_users: NO,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Renewed),
    },
    Row {
        says: "which is renewed if the callback names it",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: YES,
            is_named: YES,
            registers_users: YES,
            ..ANY
        },
        action: Action::ReadAccounts(Effect::Renewed),
    },
    Row {
        says: "and otherwise left alone",
        belongs_to: &[Newer(Active)],
        facts: Facts {
            is_known: YES,
            is_named: NO,
            registers_users: YES,
            ..ANY
        },
        action: Action::Ignore,
    },
];

#[test]
fn table_of_decisions() {
    let statuses = [Active, Revoked, Invalidated, PendingMfa];
    let connected = statuses
        .into_iter()
        .flat_map(|status| [Target(status), Newer(status), Older(status)]);
    for belongs_to in connected.chain([Nothing, OtherUser]) {
        for bits in 0..16_u8 {
            let [is_known, is_named, registers_users, has_waited] =
                [1, 2, 4, 8].map(|bit| bits & bit > 0);
            let facts = Facts {
                is_known,
                is_named,
                registers_users,
                has_waited,
            };
            let rows: Vec<&Row> = TABLE
                .iter()
                .filter(|row| row.fits(belongs_to, facts))
                .collect();
            let [row] = rows[..] else {
                panic!("{belongs_to:?} {facts:?} is in {} rows", rows.len())
            };
            assert_eq!(
                action(belongs_to, facts),
                row.action,
                "{}: {belongs_to:?} {facts:?}",
                row.says
            );
        }
    }
}

impl Row {
    fn fits(&self, belongs_to: BelongsTo, facts: Facts<bool>) -> bool {
        let Facts {
            is_known,
            is_named,
            registers_users,
            has_waited,
        } = self.facts;
        let fits =
            |expected: Option<bool>, fact: bool| expected.is_none_or(|expected| expected == fact);
        self.belongs_to.contains(&belongs_to)
            && fits(is_known, facts.is_known)
            && fits(is_named, facts.is_named)
            && fits(registers_users, facts.registers_users)
            && fits(has_waited, facts.has_waited)
    }
}

/// A session that started at 0 and is to repair this connection.
fn session(confirmation: Confirmation, target: &Connection) -> Session<'_> {
    let (is_expired, is_declined) = (false, false);
    let repair_targets = vec![target];
    Session {
        created_at: at(0),
        is_expired,
        confirmation,
        is_declined,
        registers_users: true,
        repair_targets,
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
            let target = connection(
                if matches!(belongs_to, Target(_)) {
                    1
                } else {
                    2
                },
                1,
                Revoked,
                at(-1),
            );
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

fn action(belongs_to: BelongsTo, facts: Facts<bool>) -> Action {
    let Facts {
        is_known,
        is_named,
        registers_users,
        has_waited,
    } = facts;
    let target = connection(
        if matches!(belongs_to, Target(_)) {
            1
        } else {
            2
        },
        1,
        Revoked,
        at(-1),
    );
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

/// A consent of a random world. Its number is its index.
#[derive(Debug, Clone)]
struct RandomConsent {
    institution: u8,
    is_active: bool,
    is_known: bool,
    is_named: bool,
    /// 0 to 3: the connection with this number; 4: another user's connection; otherwise none.
    belongs_to: u8,
    accounts: Vec<u8>,
}

/// What a session finds at the provider, and what is stored here.
#[derive(Debug, Clone)]
struct World {
    consents: Vec<RandomConsent>,
    connections: Vec<Connection>,
    accounts: Vec<Vec<u8>>,
    /// Numbers of connections.
    targets: Vec<u8>,
    registers_users: bool,
    is_expired: bool,
    confirmation: Confirmation,
}

prop_compose! {
    fn consent()(
        institution in 0..2_u8,
        is_active in prop::bool::weighted(0.9),
        is_known: bool,
        is_named: bool,
        belongs_to in 0..9_u8,
        accounts in prop::collection::vec(0..4_u8, 0..3),
    ) -> RandomConsent {
        RandomConsent { institution, is_active, is_known, is_named, belongs_to, accounts }
    }
}

prop_compose! {
    fn world()(
        mut consents in prop::collection::vec(consent(), 1..6),
        stored in prop::collection::vec(
            (0..2_u8, prop::sample::select(ConnectionStatus::ALL), -2..2_i64, prop::collection::vec(0..4_u8, 0..3)),
            4,
        ),
        targets in prop::sample::subsequence(vec![0, 1, 2, 3], 0..3),
        registers_users: bool,
        is_expired: bool,
    ) -> World {
        // A connection has one consent.
        for index in 0..consents.len() {
            let belongs_to = consents[index].belongs_to;
            if belongs_to < 4 && consents[..index].iter().any(|other| other.belongs_to == belongs_to) {
                consents[index].belongs_to = 9;
            }
        }
        let connections = (0..4).zip(&stored).map(|(number, (bank, status, since, _))| {
            connection(number, *bank, *status, at(*since))
        });
        let connections = connections.collect();
        let accounts = stored.into_iter().map(|(.., accounts)| accounts).collect();
        let confirmation = Confirmation::Confirmed;
        World { consents, connections, accounts, targets, registers_users, is_expired, confirmation }
    }
}

/// What became of a consent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Decided(Action),
    Placed(Placement),
}

impl Fate {
    fn is_undecided(&self) -> bool {
        matches!(
            self,
            Self::Decided(Action::Wait) | Self::Placed(Placement::Wait)
        )
    }
}

impl World {
    fn session(&self, repaired: &[ConnectionId]) -> Session<'_> {
        let targets = self
            .targets
            .iter()
            .map(|number| &self.connections[usize::from(*number)]);
        Session {
            created_at: at(0),
            is_expired: self.is_expired,
            confirmation: self.confirmation,
            is_declined: false,
            registers_users: self.registers_users,
            repair_targets: targets
                .filter(|target| !repaired.contains(&target.id))
                .collect(),
        }
    }

    fn existing(&self, consent: &RandomConsent) -> Existing {
        match self.connections.get(usize::from(consent.belongs_to)) {
            Some(connection) => Existing::Connected(connection.clone()),
            None if consent.belongs_to == 4 => Existing::OwnedByOtherUser,
            None => Existing::NotConnected,
        }
    }

    /// Does what `apply.rs` does, without a provider and a database. The provider lists the
    /// consents in this order.
    fn fates(&self, order: &[usize], elapsed: Duration) -> BTreeMap<usize, Fate> {
        let index_of = |id: &str| id.trim_start_matches("consent").parse::<usize>().unwrap();
        let listed: Vec<FoundConnection> = order
            .iter()
            .map(|index| {
                let RandomConsent {
                    institution,
                    is_active,
                    ..
                } = self.consents[*index];
                let status = if is_active {
                    ConsentStatus::Active
                } else {
                    ConsentStatus::Broken(Revoked)
                };
                found(u8::try_from(*index).unwrap(), institution, status)
            })
            .collect();
        let mut consents: Vec<Consent<'_>> = active_consents(&listed)
            .into_iter()
            .map(|found| {
                let consent = &self.consents[index_of(&found.provider_connection_id)];
                let RandomConsent {
                    is_known, is_named, ..
                } = *consent;
                Consent {
                    found,
                    is_known,
                    is_named,
                    existing: self.existing(consent),
                }
            })
            .collect();
        put_repairs_first(&mut consents, &self.session(&[]));
        let (mut fates, mut repaired) = (BTreeMap::new(), Vec::new());
        for consent in consents {
            let index = index_of(&consent.found.provider_connection_id);
            let fate = self.fate(index, &consent, &self.session(&repaired), elapsed);
            match (&fate, &consent.existing) {
                (Fate::Placed(Placement::Replace(id, _)), _) => repaired.push(*id),
                (
                    Fate::Placed(Placement::Store(Effect::Reconnected)),
                    Existing::Connected(connection),
                ) => {
                    repaired.push(connection.id);
                }
                _ => {}
            }
            fates.insert(index, fate);
        }
        fates
    }

    fn fate(
        &self,
        index: usize,
        consent: &Consent<'_>,
        session: &Session<'_>,
        elapsed: Duration,
    ) -> Fate {
        let effect = match decide(consent, session, elapsed) {
            Action::ReadAccounts(effect) => effect,
            decided => return Fate::Decided(decided),
        };
        let number = u8::try_from(index).unwrap() + 100;
        let accounts: Vec<FoundAccount> = self.consents[index]
            .accounts
            .iter()
            .map(|account| found_account(number, *account))
            .collect();
        let replaceable: Vec<_> = replaceable(consent, session)
            .into_iter()
            .map(|target| {
                let number = self
                    .connections
                    .iter()
                    .position(|known| known.id == target.id)
                    .unwrap();
                let stored = self.accounts[number].iter();
                let stored = stored
                    .map(|account| stored_account(u8::try_from(number).unwrap(), *account))
                    .collect();
                (target.id, stored)
            })
            .collect();
        Fate::Placed(place(effect, &accounts, &replaceable, session, elapsed))
    }

    fn order(&self) -> Vec<usize> {
        (0..self.consents.len()).collect()
    }
}

/// Times around every limit.
fn elapsed() -> impl Strategy<Value = Duration> {
    (0..10_000_u64).prop_map(Duration::from_millis)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn nothing_is_stored_without_a_confirmation(world in world(), elapsed in elapsed(), is_denied: bool) {
        let confirmation = if is_denied { Confirmation::Denied } else { Confirmation::Open };
        let world = World { confirmation, ..world };
        for (index, fate) in world.fates(&world.order(), elapsed) {
            let is_of_other_user = world.consents[index].belongs_to == 4;
            let Fate::Decided(action) = fate else { return Err(TestCaseError::fail("placed")) };
            prop_assert!(matches!(action, Action::Ignore | Action::Wait | Action::Withdraw));
            prop_assert!(!is_of_other_user || action != Action::Withdraw);
            prop_assert_eq!(action == Action::Wait, !is_denied && !world.is_expired);
        }
    }

    #[test]
    fn earlier_consent_is_linked_only_if_the_callback_names_it(world in world(), elapsed in elapsed()) {
        for (index, fate) in world.fates(&world.order(), elapsed) {
            let consent = &world.consents[index];
            if consent.is_known && !consent.is_named && matches!(world.existing(consent), Existing::NotConnected) {
                prop_assert_eq!(fate, Fate::Decided(Action::Ignore));
            }
        }
    }

    #[test]
    fn consent_of_another_user_is_never_applied(world in world(), elapsed in elapsed()) {
        for (index, fate) in world.fates(&world.order(), elapsed) {
            if world.consents[index].belongs_to == 4 {
                prop_assert_eq!(fate, Fate::Decided(Action::OwnedByOtherUser));
            }
        }
    }

    /// A repair never replaces the consent of a connection at another institution, of one that is
    /// not to be repaired, or of one with other accounts, and replaces each once.
    #[test]
    fn only_a_connection_to_repair_gets_another_consent(world in world(), elapsed in elapsed()) {
        let mut replaced = Vec::new();
        let fates = world.fates(&world.order(), elapsed);
        let reconnected = |id| fates.iter().any(|(index, fate)| {
            let existing = world.existing(&world.consents[*index]);
            *fate == Fate::Placed(Placement::Store(Effect::Reconnected))
                && matches!(existing, Existing::Connected(connection) if connection.id == id)
        });
        for (index, fate) in fates.clone() {
            let Fate::Placed(Placement::Replace(id, known_as)) = fate else { continue };
            let consent = &world.consents[index];
            let number = world.connections.iter().position(|connection| connection.id == id).unwrap();
            prop_assert!(world.targets.contains(&u8::try_from(number).unwrap()));
            prop_assert_eq!(&world.connections[number].institution_id, &format!("bank{}", consent.institution));
            prop_assert!(matches!(world.existing(consent), Existing::NotConnected));
            prop_assert!(consent.accounts.iter().any(|account| world.accounts[number].contains(account)));
            prop_assert!(known_as.iter().flatten().count() > 0 && known_as.len() == consent.accounts.len());
            prop_assert!(!replaced.contains(&id), "a second consent");
            prop_assert!(!reconnected(id), "its own consent is active");
            replaced.push(id);
        }
    }

    #[test]
    fn order_of_the_provider_does_not_matter(
        world in world(), elapsed in elapsed(), shuffled in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let mut order = shuffled;
        order.retain(|index| *index < world.consents.len());
        prop_assert_eq!(world.fates(&order, elapsed), world.fates(&world.order(), elapsed));
        let repeated = [order.as_slice(), order.as_slice()].concat();
        prop_assert_eq!(world.fates(&repeated, elapsed), world.fates(&world.order(), elapsed), "each counts once");
    }

    /// More time decides what was undecided, and changes no decision about a consent.
    #[test]
    fn decisions_last(world in world(), elapsed in elapsed(), more in elapsed()) {
        let session = world.session(&[]);
        for (index, consent) in world.consents.iter().enumerate() {
            let found = found(u8::try_from(index).unwrap(), consent.institution, ConsentStatus::Active);
            let RandomConsent { is_known, is_named, .. } = *consent;
            let consent = Consent { found: &found, is_known, is_named, existing: world.existing(consent) };
            let early = world.fate(index, &consent, &session, elapsed);
            if !early.is_undecided() {
                prop_assert_eq!(world.fate(index, &consent, &session, elapsed + more), early);
            }
        }
    }

    #[test]
    fn every_consent_is_decided_in_time(world in world(), elapsed in elapsed()) {
        let elapsed = elapsed + ACCOUNTS_WAIT.max(WITHDRAWAL_WAIT);
        let expired = World { is_expired: true, ..world.clone() };
        prop_assert!(!expired.fates(&world.order(), elapsed).values().any(Fate::is_undecided));
        for (index, fate) in world.fates(&world.order(), elapsed) {
            // Before the expiry, only a possible repair without accounts waits longer.
            let is_repair = !world.targets.is_empty() && world.consents[index].accounts.is_empty();
            prop_assert!(!fate.is_undecided() || is_repair);
        }
    }
}
