//! The promises of every provider's adapter. Each promise is written once, against the traits of `bellbird_providers`,
//! and tested with every adapter and its simulated provider.
//!
//! To add a provider, add its name to [`for_every_provider`] and its description to `contract/provider_specs.rs`.

/// The list of providers. Calls the macro `$then` with `$given`, followed by their names.
macro_rules! for_every_provider {
    ($then:ident! $given:tt) => {
        $then! { $given fiskil akahu snaptrade }
    };
}

/// A promise: one test for every provider, each with its own sandbox.
macro_rules! promise {
    ($(#[$meta:meta])* async fn $name:ident($fixture:ident) $body:block) => {
        mod $name {
            use super::*;

            $(#[$meta])*
            async fn is_kept($fixture: Fixture) $body

            for_every_provider! { promise_tests! is_kept }
        }
    };
}

macro_rules! promise_tests {
    ($is_kept:ident $($provider:ident)*) => {
        $(#[tokio::test]
        async fn $provider() {
            $is_kept(Fixture::start($crate::contract::provider_specs::$provider()).await).await;
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
mod provider_specs;

use std::collections::BTreeSet;

use crate::support::harness::simulated_providers;

macro_rules! names {
    (() $($provider:ident)*) => { [$(provider_specs::$provider().name),*] };
}

#[test]
fn every_simulated_provider_has_contract_tests() {
    let provider_specs: BTreeSet<&str> = for_every_provider! { names! () }.into();
    assert_eq!(provider_specs, simulated_providers().collect());
}
