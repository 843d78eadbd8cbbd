//! The promises of every provider's adapter. Each promise is written once, against the traits of
//! `bellbird_providers`, and tested with every adapter and its simulated provider.
//!
//! To add a provider, see `support/provider_spec.rs`.

/// A promise, or several of which each leaves to the next what that needs: one test for every
/// provider, each with its own sandbox.
macro_rules! promise {
    (async fn $name:ident($fixture:ident) $body:block) => {
        promise! { $name: async fn $name($fixture) $body }
    };
    ($group:ident: $(async fn $name:ident($fixture:ident) $body:block)+) => {
        mod $group {
            use super::*;

            $(async fn $name($fixture: &Fixture) $body)+

            async fn are_kept(fixture: Fixture) {
                $($name(&fixture).await;)+
            }

            $crate::support::provider_spec::for_every_provider! { promise_tests! are_kept }
        }
    };
}

macro_rules! promise_tests {
    ($are_kept:ident $($provider:ident)*) => {
        $(#[tokio::test]
        async fn $provider() {
            $are_kept(Fixture::start($crate::support::provider_spec::spec(stringify!($provider))).await).await;
        })*
    };
}

mod balances;
mod consent;
mod credentials;
mod faults;
mod fixture;
mod interval;
mod pages;

use std::collections::BTreeSet;

use crate::support::harness::simulated_providers;
use crate::support::provider_spec::{SPECS, for_every_provider};

macro_rules! names {
    (() $($provider:ident)*) => { [$(stringify!($provider)),*] };
}

#[test]
fn every_simulated_provider_has_contract_tests() {
    let tested: BTreeSet<&str> = for_every_provider! { names! () }.into();
    assert_eq!(tested, simulated_providers().collect());
    assert_eq!(tested, SPECS.iter().map(|spec| spec.name).collect());
}
