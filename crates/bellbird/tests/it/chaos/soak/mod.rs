//! A soak: hours of mixed load on services that are killed, and at the end nothing is lost, wrong
//! or left over.
//!
//! Users read, link and remove; keys are created and revoked; rows come and change at the
//! providers; providers fail; endpoints stop responding and return; a service is killed again and
//! again. In turn a provider sends rubbish, and the same service has a clock that jumps by an hour,
//! a full disk, or a pause. On PostgreSQL there are three services, and Valkey is emptied and
//! stopped, and PostgreSQL restarted, meanwhile. It takes 40 seconds, and `scripts/test soak` runs
//! it for an hour.

mod deployment;
mod load;
mod measure;
mod reads;

use std::time::Duration;

use bellbird_domain::lab;

use crate::support::harness::{Database, also_on_postgres};
use crate::support::random::{self, print_line};
use deployment::DisturbedDeployment;
use load::Load;
use measure::Figures;

/// How long it takes, unless `BELLBIRD_TEST_PERCENT` says otherwise.
const SECONDS: u64 = 40;
/// The memory that a service may have gained at the end.
const GAINED_KIB_MAX: u64 = 32 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_wrong_or_left_over() {
    let database = Database::of_test();
    let seed = random::seed();
    let length = Duration::from_secs(lab::times(SECONDS));
    let deployment = DisturbedDeployment::start(database, seed).await;
    let mut load = Load::start(deployment, length, seed).await;

    // The service that is measured has had some load before: on SQLite, the one that was started
    // after the last kill.
    let before = if database == Database::Sqlite {
        length * 3 / 4
    } else {
        length / 4
    };
    load.go_on(before).await;
    let first = load.measure_at_rest(|_| true).await;
    load.go_on(length - before).await;
    let last = load
        .measure_at_rest(|now| now.tasks_min <= first.tasks_max && now.files_min <= first.files_max)
        .await;
    let counts = load.stop_and_check().await;

    for line in counts {
        print_line(&line);
    }
    print_line(&format!("at rest, first {first}; last {last}"));
    let Figures {
        tasks_min,
        files_min,
        memory_kib,
        ..
    } = last;
    assert!(tasks_min <= first.tasks_max, "tasks: {first}; {last}");
    assert!(files_min <= first.files_max, "files: {first}; {last}");
    assert!(
        memory_kib <= first.memory_kib + GAINED_KIB_MAX,
        "memory: {first}; {last}"
    );
}

also_on_postgres! { nothing_is_lost_wrong_or_left_over }
