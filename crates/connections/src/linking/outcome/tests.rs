//! Tables of outcomes, and properties of what follows a poll.

use bellbird_domain::ConnectionStatus;
use proptest::prelude::*;

use super::super::fixtures::{at, connection, connection_id};
use super::super::start::CONSENT_SESSION_TTL;
use super::*;

const APPROVED: Result<(), NoConsent> = Ok(());
const OPEN_PHASES: [LinkPhase; 3] = [
    LinkPhase::Started,
    LinkPhase::CallbackReceived,
    LinkPhase::CredentialsObtained,
];

const DECLINED: Result<(), NoConsent> = Err(NoConsent::Declined);
const REJECTED: Result<(), NoConsent> = Err(NoConsent::Failed("The bank is down."));

/// A session that started at 0, has its callback, is the only one, and links a new connection.
fn session() -> SessionFacts {
    SessionFacts {
        phase: LinkPhase::CallbackReceived,
        confirmation: Confirmation::Confirmed,
        created_at: at(0),
        expires_at: at(i64::try_from(CONSENT_SESSION_TTL.as_secs()).unwrap()),
        repairs: None,
        callback_result: APPROVED,
        is_only_session: true,
    }
}

/// As [`session`], to repair connection 1.
fn repair() -> SessionFacts {
    SessionFacts {
        repairs: Some(connection_id(1)),
        ..session()
    }
}

/// Connections by number.
fn applied(effects: &[(u8, Effect)]) -> Applied {
    let mut applied = Applied::default();
    for (number, effect) in effects {
        let connection = connection(*number, 1, ConnectionStatus::Active, at(0));
        applied.add(*effect, connection);
    }
    applied
}

fn with_other_user(effects: &[(u8, Effect)]) -> Applied {
    Applied {
        owned_by_other_user: true,
        ..applied(effects)
    }
}

/// The outcome, and the numbers of the connections.
fn short(conclusion: &Conclusion) -> (LinkOutcome, Vec<u8>) {
    let number = |connection: &Connection| {
        let mut numbers = 0..9;
        let own = numbers.find(|number| connection_id(*number) == connection.id);
        own.unwrap()
    };
    let numbers = conclusion.connections.iter().map(number);
    (conclusion.outcome, numbers.collect())
}

#[test]
fn table_of_conclusions() {
    use Effect::{Linked, LinkedEarlier, Reconnected, Renewed};
    use LinkOutcome::{Declined, Failed, LinkedOther, OwnedByOtherUser, Unchanged};
    let second = Duration::from_secs(1);
    let (early, renewed) = (RENEWED_WAIT.saturating_sub(second), RENEWED_WAIT);
    let (late, unchanged) = (UNCHANGED_WAIT.saturating_sub(second), UNCHANGED_WAIT);
    let started = SessionFacts {
        phase: LinkPhase::Started,
        ..session()
    };
    let one_of_two = SessionFacts {
        is_only_session: false,
        ..session()
    };
    let with = |callback_result| SessionFacts {
        callback_result,
        ..session()
    };
    let undecided = Applied {
        undecided: true,
        ..applied(&[(2, Linked)])
    };
    let nothing = || applied(&[]);
    for (sentence, (session, applied, elapsed), expected) in [
        (
            "before the callback, there may be more to come",
            (started, applied(&[(2, Linked)]), unchanged),
            None,
        ),
        (
            "an undecided consent is waited for",
            (session(), undecided, unchanged),
            None,
        ),
        (
            "a new connection ends it",
            (session(), applied(&[(2, Linked)]), Duration::ZERO),
            Some((LinkOutcome::Linked, vec![2])),
        ),
        (
            "what a session to link repaired is shown too",
            (session(), applied(&[(1, Reconnected), (2, Linked)]), early),
            Some((LinkOutcome::Linked, vec![2, 1])),
        ),
        (
            "a session to link may only repair",
            (session(), applied(&[(2, Reconnected)]), early),
            Some((LinkOutcome::Reconnected, vec![2])),
        ),
        (
            "a repair ends with its connection, whatever else was linked",
            (repair(), applied(&[(1, Reconnected), (2, Linked)]), early),
            Some((LinkOutcome::Reconnected, vec![2, 1])),
        ),
        (
            "a repair may link another login",
            (repair(), applied(&[(2, Linked)]), early),
            Some((LinkedOther, vec![2])),
        ),
        (
            "a repair may reconnect another connection",
            (repair(), applied(&[(2, Reconnected)]), early),
            Some((LinkOutcome::Reconnected, vec![2])),
        ),
        (
            "the user declined",
            (with(DECLINED), nothing(), Duration::ZERO),
            Some((Declined, vec![])),
        ),
        (
            "the provider failed",
            (with(REJECTED), nothing(), Duration::ZERO),
            Some((Failed, vec![])),
        ),
        (
            "a hint is no more than a hint",
            (with(DECLINED), applied(&[(2, Linked)]), Duration::ZERO),
            Some((LinkOutcome::Linked, vec![2])),
        ),
        (
            "a consent may be listed late",
            (session(), nothing(), late),
            None,
        ),
        (
            "without one, nothing has changed",
            (session(), nothing(), unchanged),
            Some((Unchanged, vec![])),
        ),
        (
            "an earlier attempt of the only session linked it",
            (session(), applied(&[(2, LinkedEarlier)]), Duration::ZERO),
            Some((LinkOutcome::Linked, vec![2])),
        ),
        (
            "of two sessions, either may have",
            (one_of_two, applied(&[(2, LinkedEarlier)]), late),
            None,
        ),
        (
            "so there may be a consent of this one, for some time",
            (one_of_two, applied(&[(2, LinkedEarlier)]), unchanged),
            Some((LinkOutcome::Linked, vec![2])),
        ),
        (
            "a renewal may be followed by a link",
            (session(), applied(&[(2, Renewed)]), late),
            None,
        ),
        (
            "or not",
            (session(), applied(&[(2, Renewed)]), unchanged),
            Some((Unchanged, vec![2])),
        ),
        (
            "a repair waits shorter after a renewal",
            (repair(), applied(&[(2, Renewed)]), early),
            None,
        ),
        (
            "of another connection",
            (repair(), applied(&[(2, Renewed)]), renewed),
            Some((Unchanged, vec![2])),
        ),
        (
            "but no shorter without one",
            (repair(), nothing(), late),
            None,
        ),
        (
            "another user's consent is not final at once",
            (session(), with_other_user(&[]), late),
            None,
        ),
        (
            "but explains why there is no other",
            (session(), with_other_user(&[(2, Renewed)]), unchanged),
            Some((OwnedByOtherUser, vec![])),
        ),
        (
            "unless an earlier attempt linked one",
            (session(), with_other_user(&[(2, LinkedEarlier)]), unchanged),
            Some((LinkOutcome::Linked, vec![2])),
        ),
    ] {
        let conclusion = conclude(&session, &applied, elapsed);
        assert_eq!(conclusion.as_ref().map(short), expected, "{sentence}");
    }
}

#[test]
fn table_of_denials() {
    use LinkOutcome::{Declined, Expired, NotWithdrawn, Withdrawn};
    let second = Duration::from_secs(1);
    let early = UNCHANGED_WAIT.saturating_sub(second);
    let denied = SessionFacts {
        confirmation: Confirmation::Denied,
        ..session()
    };
    let with = |callback_result| SessionFacts {
        callback_result,
        ..denied
    };
    let withdrawn = || Applied {
        withdrawn: true,
        ..Applied::default()
    };
    let nothing = Applied::default;
    for (sentence, (session, applied, elapsed), expected) in [
        (
            "a withdrawn consent ends it",
            (denied, withdrawn(), Duration::ZERO),
            Some(Withdrawn),
        ),
        (
            "a consent may be listed late",
            (denied, nothing(), early),
            None,
        ),
        (
            "until the session expires",
            (denied, nothing(), UNCHANGED_WAIT),
            None,
        ),
        (
            "a user who declined gave none",
            (with(DECLINED), nothing(), Duration::ZERO),
            Some(Declined),
        ),
        (
            "or did all the same",
            (with(DECLINED), withdrawn(), Duration::ZERO),
            Some(Withdrawn),
        ),
    ] {
        let conclusion = conclude(&session, &applied, elapsed);
        let outcome = conclusion.map(|conclusion| conclusion.outcome);
        assert_eq!(outcome, expected, "{sentence}");
    }
    let unconfirmed = SessionFacts {
        phase: LinkPhase::Started,
        confirmation: Confirmation::Open,
        ..session()
    };
    for (poll, session, applied, now, expected) in [
        (Poll::Pending, unconfirmed, withdrawn(), 1_800, Withdrawn),
        (Poll::Pending, unconfirmed, nothing(), 1_800, Expired),
        (Poll::Pending, denied, nothing(), 1_800, Withdrawn),
        (Poll::Failed, denied, nothing(), 100_000, NotWithdrawn),
    ] {
        match after_poll(poll, (&session, &applied), 0, at(now), false) {
            Next::Finish(conclusion) => assert_eq!(conclusion.outcome, expected),
            next => panic!("{next:?} for {expected:?}"),
        }
    }
}

#[test]
fn callback_without_a_result_ends_the_session() {
    let concluded = |phase, callback_result| {
        let session = SessionFacts {
            phase,
            callback_result,
            ..session()
        };
        conclude_without_polling(&session).map(|conclusion| (conclusion.outcome, conclusion.reason))
    };
    let none = concluded(LinkPhase::Started, APPROVED);
    assert_eq!(none, None, "it may still be received");
    let without = "The provider returned you without a result.";
    for (result, outcome, reason) in [
        (DECLINED, LinkOutcome::Declined, None),
        (REJECTED, LinkOutcome::Failed, Some("The bank is down.")),
        (APPROVED, LinkOutcome::Failed, Some(without)),
    ] {
        let conclusion = concluded(LinkPhase::CallbackReceived, result);
        assert_eq!(conclusion, Some((outcome, reason)));
    }
}

#[test]
fn greatest_effect_on_a_connection_counts() {
    use Effect::{Linked, LinkedEarlier, Reconnected, Renewed};
    for [first, second] in [
        [Linked, LinkedEarlier],
        [Renewed, Reconnected],
        [Reconnected, Renewed],
    ] {
        let applied = applied(&[(1, first), (1, second)]);
        let conclusion = conclude(&session(), &applied, Duration::ZERO).unwrap();
        let (_, shown) = short(&conclusion);
        assert_eq!(shown, [1], "{first:?}, {second:?}");
        assert_eq!(applied.is_repaired(connection_id(1)), first != Linked);
    }
}

#[test]
fn table_of_expiry() {
    use Effect::{Linked, LinkedEarlier, Renewed};
    let started = SessionFacts {
        phase: LinkPhase::Started,
        ..session()
    };
    let declined = SessionFacts {
        callback_result: DECLINED,
        ..session()
    };
    for (sentence, (session, effects, failed), expected) in [
        (
            "a user who left is not waited for",
            (started, &[][..], false),
            (LinkOutcome::Expired, vec![]),
        ),
        (
            "what a session without a callback linked counts",
            (started, &[(2, Linked)], false),
            (LinkOutcome::Linked, vec![2]),
        ),
        (
            "what others linked meanwhile does not",
            (started, &[(2, LinkedEarlier)], false),
            (LinkOutcome::Expired, vec![]),
        ),
        (
            "an approval without a new consent changed nothing",
            (session(), &[], false),
            (LinkOutcome::Unchanged, vec![]),
        ),
        (
            "or renewed",
            (session(), &[(2, Renewed)], false),
            (LinkOutcome::Unchanged, vec![2]),
        ),
        (
            "a provider that failed to the end leaves it open",
            (session(), &[], true),
            (LinkOutcome::Expired, vec![]),
        ),
        (
            "unless a connection was linked before",
            (session(), &[(2, Linked)], true),
            (LinkOutcome::Linked, vec![2]),
        ),
        (
            "without an approval, nothing was to be found",
            (declined, &[(2, Renewed)], false),
            (LinkOutcome::Expired, vec![]),
        ),
    ] {
        let (poll, more_time) = match failed {
            true => (Poll::Failed, RETRY_AFTER_EXPIRY_MAX),
            false => (Poll::Pending, Duration::ZERO),
        };
        let ends_at = session.expires_at.saturating_add(more_time).unwrap();
        let next = after_poll(poll, (&session, &applied(effects)), 3, ends_at, false);
        let Next::Finish(conclusion) = next else {
            panic!("{sentence}: {next:?}")
        };
        assert_eq!(short(&conclusion), expected, "{sentence}");
    }
}

#[test]
fn table_of_what_follows_a_poll() {
    let started = SessionFacts {
        phase: LinkPhase::Started,
        ..session()
    };
    let (received, end) = (session(), session().expires_at);
    let hours = |hours: i64| at(hours * 3_600);
    for (sentence, (session, poll, attempts, now), expected) in [
        (
            "without a callback, the first poll is after five minutes",
            (started, Poll::Pending, 0, at(10)),
            at(300),
        ),
        (
            "the second is at the expiry",
            (started, Poll::Pending, 1, at(300)),
            end,
        ),
        (
            "unless the provider fails",
            (started, Poll::Failed, 0, at(300)),
            at(305),
        ),
        (
            "after a callback, polls become rarer",
            (received, Poll::Pending, 3, at(100)),
            at(140),
        ),
        (
            "up to the expiry",
            (received, Poll::Pending, 9, at(1_700)),
            end,
        ),
        (
            "a failing provider gets more time",
            (received, Poll::Failed, 9, end),
            at(1_800 + 320),
        ),
        (
            "for hours",
            (received, Poll::Failed, 99, hours(20)),
            hours(20).saturating_add(Duration::from_secs(320)).unwrap(),
        ),
    ] {
        let next = after_poll(poll, (&session, &applied(&[])), attempts, now, false);
        assert_eq!(next, Next::PostponeUntil(expected), "{sentence}");
    }
}

fn effect() -> impl Strategy<Value = Effect> {
    prop::sample::select(
        &[
            Effect::Renewed,
            Effect::LinkedEarlier,
            Effect::Reconnected,
            Effect::Linked,
        ][..],
    )
}

prop_compose! {
    fn facts()(
        phase in prop::sample::select(&OPEN_PHASES[..]),
        is_denied: bool,
        repairs: bool,
        callback_result in prop::sample::select(&[APPROVED, DECLINED, REJECTED][..]),
        is_only_session: bool,
    ) -> SessionFacts {
        let confirmation = if is_denied { Confirmation::Denied } else { Confirmation::Confirmed };
        let facts = if repairs { repair() } else { session() };
        SessionFacts { phase, confirmation, callback_result, is_only_session, ..facts }
    }
}

prop_compose! {
    fn any_applied()(
        effects in prop::collection::vec((0..4_u8, effect()), 0..5), owned_by_other_user: bool, undecided: bool,
        withdrawn: bool,
    ) -> Applied {
        Applied { owned_by_other_user, undecided, withdrawn, ..applied(&effects) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn conclusions_last(session in facts(), applied in any_applied(), millis in 0..10_000_u64, more in 0..10_000_u64) {
        let [early, late] = [millis, millis + more].map(Duration::from_millis);
        if let Some(conclusion) = conclude(&session, &applied, early) {
            prop_assert_eq!(conclude(&session, &applied, late), Some(conclusion));
        }
    }

    #[test]
    fn decided_session_is_concluded_in_time(session in facts(), applied in any_applied()) {
        let waits_for_consent =
            session.confirmation == Confirmation::Denied && session.callback_result.is_ok() && !applied.withdrawn;
        let is_open = session.phase == LinkPhase::Started || applied.undecided || waits_for_consent;
        prop_assert_eq!(conclude(&session, &applied, UNCHANGED_WAIT).is_none(), is_open);
    }

    /// A conclusion shows a connection only if it says so, and each once.
    #[test]
    fn connections_fit_the_outcome(session in facts(), applied in any_applied()) {
        let Some(conclusion) = conclude(&session, &applied, UNCHANGED_WAIT) else { return Ok(()) };
        let (outcome, mut shown) = short(&conclusion);
        let has_connections =
            matches!(outcome, LinkOutcome::Linked | LinkOutcome::LinkedOther | LinkOutcome::Reconnected);
        prop_assert!(shown.is_empty() || has_connections || outcome == LinkOutcome::Unchanged);
        prop_assert!(!has_connections || !shown.is_empty());
        prop_assert!(has_connections || !applied.has_changes() || session.confirmation == Confirmation::Denied);
        prop_assert!(!has_connections || session.confirmation == Confirmation::Confirmed);
        prop_assert_eq!(conclusion.reason.is_some(), outcome == LinkOutcome::Failed);
        let count = shown.len();
        shown.sort_unstable();
        shown.dedup();
        prop_assert_eq!(shown.len(), count);
    }

    /// Every poll that has no conclusion leads to a later one, up to a last.
    #[test]
    fn every_session_ends(
        session in facts(),
        applied in any_applied(),
        failures in prop::collection::vec(any::<bool>(), 200),
        start in 0..2_000_i64,
    ) {
        let end = session.expires_at.saturating_add(RETRY_AFTER_EXPIRY_MAX).unwrap();
        let (mut now, mut is_finished) = (at(start), false);
        // Twenty hours have 225 polls, one every 320 seconds.
        for (attempts, failed) in (0..).zip(failures.into_iter().chain([true; 300])) {
            let poll = if failed { Poll::Failed } else { Poll::Pending };
            match after_poll(poll, (&session, &applied), attempts, now, false) {
                Next::Finish(_) => {
                    is_finished = true;
                    prop_assert!(now >= session.expires_at && (!failed || now >= end));
                    break;
                }
                Next::PostponeUntil(next) => {
                    prop_assert!(next > now);
                    prop_assert!(next <= end && (failed || next <= session.expires_at));
                    now = next;
                }
                Next::PollAgain => prop_assert!(false, "no browser waits"),
            }
        }
        prop_assert!(is_finished);
    }

    #[test]
    fn browser_waits_for_a_conclusion(session in facts(), applied in any_applied(), now in 0..99_999_i64) {
        for poll in [Poll::Pending, Poll::Failed] {
            prop_assert_eq!(after_poll(poll, (&session, &applied), 0, at(now), true), Next::PollAgain);
        }
        let conclusion = Conclusion::failed("why");
        let concluded = Poll::Concluded(conclusion.clone());
        prop_assert_eq!(after_poll(concluded, (&session, &applied), 0, at(now), true), Next::Finish(conclusion));
    }
}
