//! Properties of random worlds.

use bellbird_domain::ConnectionStatus::Revoked;
use proptest::prelude::*;

use crate::linking::decide::*;
use crate::linking::fixtures::{at, connection, found, found_account, stored_account};

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
