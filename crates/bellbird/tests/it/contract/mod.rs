//! What every provider's adapter promises, whoever the provider is: each promise is written once, against the traits of
//! `bellbird_providers`, and kept by every adapter against its simulated provider.
//!
//! A new provider is a word in [`for_every_provider`] and a description in `contract/provider_specs.rs`.

/// The list of subjects. Hands `$then` what is given, and then the words.
macro_rules! for_every_provider {
    ($then:ident! $given:tt) => {
        $then! { $given fiskil akahu snaptrade }
    };
}

/// A promise: a test for every subject, each with providers of its own.
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
