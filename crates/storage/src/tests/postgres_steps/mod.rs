//! Operations stepped statement by statement on PostgreSQL: before each statement an operation
//! waits for leave from a scheduler, which tries the orders of two of them, and random ones of
//! three. So a race is found by each run or by none. With `BELLBIRD_TEST_PERCENT`, more sets of
//! three are tried, and all orders of two, up to 3,000 of each.
//!
//! An operation is correct if its outcome, and the rows that are left, are those of some order of
//! whole transactions, because that is what the rest of the program reckons with. Whatever the
//! order, no row may be without what it belongs to, and nothing that was requested may be lost.

pub(crate) mod gate;
mod operations;
mod rows;
mod scheduler;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bellbird_domain::lab::{self, Chance};
use tokio::task::LocalSet;

use self::gate::Fault;
use self::operations::{OPERATIONS, Operation, find};
use self::scheduler::{Played, Ready, World};
use crate::tests::support::on_postgres;

/// The most orders of two operations, which few pairs have.
const ORDERS_MAX: usize = 3_000;
/// How often an order leaves an operation that could go on. A race of two operations needs one such
/// switch, because the other one then waits or ends. At night orders with any number are tried.
const SWITCHES_MAX: usize = 1;
/// Sets of three operations that are tried, each in some random orders.
const TRIPLES: u64 = 60;
const ORDERS_OF_THREE: usize = 6;

const CLAIM_ENDPOINT: &str = "claim endpoint";

/// The results by the steps that lead to them.
type Results = BTreeMap<Vec<(usize, &'static str)>, Vec<String>>;

/// Tries the orders with few switches, or if `whole` those of whole transactions. Returns their
/// number, or the first one that `check` rejects.
async fn explore(
    world: &World,
    operations: &[&Operation],
    fault: Option<Fault>,
    whole: bool,
    check: &mut dyn FnMut(&Played) -> Result<(), String>,
) -> Result<usize, String> {
    let switches_max = if lab::times(TRIPLES) > TRIPLES {
        usize::MAX
    } else {
        SWITCHES_MAX
    };
    let mut prefix: Vec<usize> = Vec::new();
    for tried in 1..=ORDERS_MAX {
        let (mut last, mut switches) = (None, 0);
        // For each step: which of the operations that were ready, and how many orders differ there.
        let mut choices: Vec<(usize, usize)> = Vec::new();
        let mut choose = |ready: &[Ready]| {
            let same = ready.iter().position(|ready| Some(ready.place) == last);
            let stays = same.filter(|same| {
                if whole {
                    ready[*same].is_inside
                } else {
                    switches == switches_max
                }
            });
            let (chosen, count) = match stays {
                Some(same) => (same, same + 1),
                None => (
                    prefix
                        .get(choices.len())
                        .copied()
                        .unwrap_or(0)
                        .min(ready.len() - 1),
                    ready.len(),
                ),
            };
            switches += usize::from(same.is_some_and(|same| same != chosen));
            choices.push((chosen, count));
            last = Some(ready[chosen].place);
            chosen
        };
        let played = world.play(operations, fault, &mut choose).await;
        let steps = played.steps(operations);
        check(&played).map_err(|message| format!("order {tried}: {message}\n{steps}"))?;
        while let Some((chosen, count)) = choices.pop() {
            if chosen + 1 < count {
                choices.push((chosen + 1, count));
                break;
            }
        }
        if choices.is_empty() {
            return Ok(tried);
        }
        prefix = choices.into_iter().map(|(chosen, _)| chosen).collect();
    }
    Ok(ORDERS_MAX)
}

/// The results of all orders of whole transactions, without a fault.
async fn results_of_whole(world: &World, operations: &[&Operation]) -> Result<Results, String> {
    let mut results = Results::new();
    let mut check = |played: &Played| {
        results.insert(played.steps.clone(), played.result.clone());
        no_harm(played)
    };
    explore(world, operations, None, true, &mut check).await?;
    Ok(results)
}

fn no_harm(played: &Played) -> Result<(), String> {
    if played.broken.is_empty() {
        Ok(())
    } else {
        Err(format!("{:?}", played.broken))
    }
}

/// Compares a result with those of whole transactions: if the same steps are one, with that one.
fn is_as_whole(results: &Results, played: &Played) -> Result<(), String> {
    no_harm(played)?;
    let same = results.get(&played.steps);
    if same.is_none_or(|same| *same == played.result)
        && results.values().any(|result| *result == played.result)
    {
        return Ok(());
    }
    let of = |lines: &[String]| lines.iter().cloned().collect::<BTreeSet<_>>();
    let found = of(&played.result);
    let expected = same.map_or_else(|| results.values().collect::<Vec<_>>(), |same| vec![same]);
    let nearest = expected
        .into_iter()
        .map(|lines| of(lines))
        .min_by_key(|lines| lines.symmetric_difference(&found).count());
    let mut message =
        "an order of whole transactions has another result, the nearest one in:".to_owned();
    for line in nearest.unwrap_or_default().symmetric_difference(&found) {
        let _ = write!(
            message,
            "\n    {} {line}",
            if found.contains(line) {
                "found"
            } else {
                "lacks"
            }
        );
    }
    Err(message)
}

/// Tries all orders of two operations. Returns their number.
async fn try_pair(
    world: &World,
    names: (&str, &str),
    fault: Option<Fault>,
) -> Result<usize, String> {
    let operations = [find(names.0), find(names.1)];
    let results = results_of_whole(world, &operations).await?;
    // It skips what another transaction has locked, so its result may be that of no order.
    let skips = names.0 == CLAIM_ENDPOINT || names.1 == CLAIM_ENDPOINT;
    let mut check = |played: &Played| {
        if skips {
            no_harm(played)
        } else {
            is_as_whole(&results, played)
        }
    };
    explore(world, &operations, fault, false, &mut check).await
}

fn on_world(body: impl AsyncFnOnce(&World)) {
    on_postgres(async |db| {
        LocalSet::new()
            .run_until(async { body(&World::new(db).await).await })
            .await;
    });
}

/// Tries each of these with each of those, once.
fn try_pairs(these: &[&'static str], those: &[&'static str]) {
    on_world(async |world| {
        let (mut done, mut orders, mut failures) = (BTreeSet::new(), 0, String::new());
        for this in these {
            for that in those {
                if !done.insert((*this.min(that), *this.max(that))) {
                    continue;
                }
                match try_pair(world, (this, that), None).await {
                    Ok(tried) => orders += tried,
                    Err(message) => failures += &format!("\n{this} and {that}: {message}"),
                }
            }
        }
        println!("{} pairs, {orders} orders", done.len());
        assert!(failures.is_empty(), "{failures}");
    });
}

const JOBS: &[&str] = &[
    "claim due job",
    "claim job",
    "renew job",
    "finish job",
    "fail job",
    "request job",
    "run job",
];
const SYNCS: &[&str] = &["finish sync", "renew sync", "request sync"];
const CONNECTIONS: &[&str] = &[
    "merge accounts",
    "finish refresh",
    "end status",
    "import",
    "remove connection",
    "delete user",
    "change plan",
];
const ENDPOINTS: &[&str] = &[
    "add endpoint",
    "disable endpoint",
    "enable endpoint",
    "delete endpoint",
    "rotate secret",
];
const ATTEMPTS: &[&str] = &[
    CLAIM_ENDPOINT,
    "finish attempt",
    "fail attempt",
    "release endpoint",
    "give up endpoint",
    "redeliver failed",
    "redeliver sent",
    "recover",
    "delete events",
];
const INSTALLATION: &[&str] = &[
    "disable installation",
    "enable installation",
    "delete installation",
    "delete ended queues",
    "recover installation",
    "finish sync",
];
const REGISTRATIONS: &[&str] = &["register", "forget registration", "deregister"];
const SIGN_INS: &[&str] = &[
    "sign in",
    "sign in by another link",
    "ask for a link",
    "end sessions",
];
const KEYS: &[&str] = &["insert key", "rotate key", "revoke key", "use key"];
const ONCE: &[&str] = &[
    "claim setup token",
    "receive callback",
    "create key as operator",
];

#[test]
fn jobs_in_any_order() {
    try_pairs(JOBS, JOBS);
}

#[test]
fn syncs_in_any_order() {
    try_pairs(SYNCS, &[SYNCS, CONNECTIONS, ENDPOINTS, ATTEMPTS].concat());
}

#[test]
fn connections_in_any_order() {
    try_pairs(CONNECTIONS, &[CONNECTIONS, ENDPOINTS].concat());
}

#[test]
fn endpoints_in_any_order() {
    try_pairs(
        &[ENDPOINTS, ATTEMPTS].concat(),
        &[ENDPOINTS, ATTEMPTS].concat(),
    );
}

#[test]
fn removals_and_attempts_in_any_order() {
    try_pairs(&["remove connection", "delete user"], ATTEMPTS);
}

#[test]
fn removal_of_a_user_and_new_access_in_any_order() {
    let access = ["add endpoint", "insert key", "rotate key", "ask for a link"];
    try_pairs(&["begin removal"], &[ONCE, &access].concat());
}

#[test]
fn keys_in_any_order() {
    try_pairs(
        &[KEYS, ONCE, &["delete user"]].concat(),
        &[KEYS, ONCE].concat(),
    );
}

#[test]
fn endpoints_of_the_installation_in_any_order() {
    let others = [
        "delete user",
        "remove connection",
        CLAIM_ENDPOINT,
        "delete events",
    ];
    try_pairs(INSTALLATION, &[INSTALLATION, &others].concat());
}

#[test]
fn registrations_and_sign_ins_in_any_order() {
    try_pairs(REGISTRATIONS, &[REGISTRATIONS, &["delete user"]].concat());
    try_pairs(SIGN_INS, &[SIGN_INS, &["delete user"]].concat());
}

#[test]
fn cleanup_in_any_order() {
    try_pairs(
        &["clean up"],
        &["receive callback", "delete user", "rotate key"],
    );
}

#[test]
fn random_orders_of_three() {
    on_world(async |world| {
        for seed in lab::seed().map_or(1..=lab::times(TRIPLES), |seed| seed..=seed) {
            try_three(world, seed).await;
        }
    });
}

/// Random orders of three random operations, in which nothing may break.
async fn try_three(world: &World, seed: u64) {
    let mut chance = Chance::new(seed);
    let operations = [(); 3].map(|()| &OPERATIONS[chance.index(OPERATIONS.len())]);
    for _ in 0..ORDERS_OF_THREE {
        let played = world
            .play(&operations, None, &mut |ready: &[Ready]| {
                chance.index(ready.len())
            })
            .await;
        if let Err(message) = no_harm(&played) {
            panic!(
                "{message}\n{}to repeat it: BELLBIRD_TEST_SEED={seed}",
                played.steps(&operations)
            );
        }
    }
}

/// Faults that these pairs must find.
const PLANTED: &[((&str, &str), Fault)] = &[
    (
        ("claim setup token", "claim setup token"),
        fault("LOCK", " FOR NO KEY UPDATE", ""),
    ),
    (
        ("ask for a link", "ask for a link"),
        fault("LOCK", " FOR NO KEY UPDATE", ""),
    ),
    (
        ("finish job", "claim job"),
        fault(
            "FINISH",
            "AND fence = $4",
            "AND CAST($4 AS BIGINT) IS NOT NULL",
        ),
    ),
    (
        ("request job", "run job"),
        fault(
            "FINISH",
            "run_at >= started_at",
            "run_at > started_at + 1000000000",
        ),
    ),
    (
        ("finish sync", "release endpoint"),
        fault("LOCK_CLAIMED", " FOR NO KEY UPDATE", ""),
    ),
    (
        ("finish sync", "give up endpoint"),
        fault(
            "ADD_QUEUES",
            "DO UPDATE SET owner_id = excluded.owner_id WHERE 1 = 0",
            "DO NOTHING",
        ),
    ),
    (
        ("receive callback", "receive callback"),
        fault("RECEIVE_CALLBACK", "phase = 'started' AND", ""),
    ),
    (
        ("finish attempt", "redeliver sent"),
        fault(
            "FINISH",
            "AND next_attempt_at = :due_at",
            "AND CAST(:due_at AS BIGINT) IS NOT NULL",
        ),
    ),
];

const fn fault(statement: &'static str, from: &'static str, to: &'static str) -> Fault {
    Fault {
        statement,
        from,
        to,
    }
}

#[test]
fn planted_faults_are_found() {
    on_world(async |world| {
        for (pair, fault) in PLANTED {
            let found = try_pair(world, *pair, Some(*fault)).await;
            // A statement that the server rejects would be found by any pair.
            let is_found = found
                .as_ref()
                .is_err_and(|message| !message.contains("syntax error"));
            assert!(
                is_found,
                "{pair:?} do not find the fault in {}: {found:?}",
                fault.statement
            );
            let order = found.as_ref().err().and_then(|text| text.split(':').next());
            println!("{pair:?}: found in {}", order.unwrap_or_default());
        }
    });
}
