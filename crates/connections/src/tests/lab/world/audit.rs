//! What each commit may change, judged by the claims before and after it.

use bellbird_storage::ClaimState;

use super::scene::{OUTSIDE, Process, State};

/// Longer than any lease, and than a time slice takes.
pub(super) const LATE: std::time::Duration = std::time::Duration::from_secs(120);

/// Longer than a process needs to hear that it has lost a lease.
const HEARS: std::time::Duration = std::time::Duration::from_secs(30);

/// Compares the claims after a commit of `process` with those before it.
pub(super) fn check_commit(state: &mut State, process: Process, after: Vec<ClaimState>) {
    let before = std::mem::replace(&mut state.claims, after.clone());
    if process == OUTSIDE {
        state.want_again();
    }
    let mut old = before.iter().peekable();
    for new in &after {
        while old.next_if(|old| key(old) < key(new)).is_some() {}
        let Some(old) = old
            .next_if(|old| key(old) == key(new))
            .filter(|old| *old != new)
        else {
            continue;
        };
        if process == OUTSIDE {
            // A disabled endpoint takes the lease from its holder.
            if let Some(holder) = old.holder.filter(|_| old.fence != new.fence) {
                state.excuse(holder, HEARS);
            }
            continue;
        }
        if let Err(what) = check(state, process, old, new) {
            state.break_invariant(format!(
                "{what} by {}.{}: {}",
                process.place,
                process.number,
                changed(old, new)
            ));
        }
        if let (Some(until), Some(holder)) = (new.lease_until, old.holder)
            && until.as_microsecond() == 0
        {
            state.excuse(holder, LATE);
        }
    }
}

fn key(claim: &ClaimState) -> (&str, String, &str) {
    (&claim.kind, claim.user.to_string(), &claim.subject)
}

fn changed(old: &ClaimState, new: &ClaimState) -> String {
    let show = |claim: &ClaimState| {
        format!(
            "{:?} until {:?} fence {:?}",
            claim.holder, claim.lease_until, claim.fence
        )
    };
    format!(
        "{} {}: {}, then {}",
        new.kind,
        new.subject,
        show(old),
        show(new)
    )
}

fn check(
    state: &State,
    process: Process,
    old: &ClaimState,
    new: &ClaimState,
) -> Result<(), &'static str> {
    let is_job = new.kind != "queue";
    if is_job && new.lease_until.is_some() && new.fence.is_none() {
        return Err("lease without a holder");
    }
    let is_own = old.lease_until.is_some() && old.holder == Some(process.id);
    if old.progress != new.progress && !is_own {
        return Err("written without the lease");
    }
    let Some(until) = old.lease_until else {
        return Ok(());
    };
    let is_freed = new
        .lease_until
        .is_some_and(|until| until.as_microsecond() == 0);
    if is_freed || (old.lease_until == new.lease_until && old.fence == new.fence) {
        return Ok(());
    }
    let is_taken = new.lease_until.is_some() && new.fence != old.fence;
    let clock = state
        .living
        .iter()
        .find(|living| living.process == process)
        .map(|living| state.time_of(living.clock));
    match () {
        () if is_taken && clock.is_some_and(|now| until > now) => {
            Err("claimed before the lease ended")
        }
        () if !is_taken && !is_own && new.lease_until.is_none() => Err("released"),
        () if !is_taken && !is_own => Err("renewed"),
        () => Ok(()),
    }
}
