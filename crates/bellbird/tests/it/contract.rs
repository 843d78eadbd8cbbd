//! What every provider's adapter promises, whoever the provider is: each promise is written once, against the traits of
//! `bellbird_providers`, and kept by every adapter against its pretended provider.
//!
//! A new provider is a word in [`for_every_subject`] and a description in `contract/subjects.rs`.

/// The list of subjects. Hands `$then` what is given, and then the words.
macro_rules! for_every_subject {
    ($then:ident! $given:tt) => {
        $then! { $given fiskil akahu snaptrade }
    };
}

/// A promise: a test for every subject, each with providers of its own.
macro_rules! promise {
    ($(#[$meta:meta])* async fn $name:ident($stage:ident) $body:block) => {
        mod $name {
            use super::*;

            $(#[$meta])*
            async fn is_kept($stage: Stage) $body

            for_every_subject! { promise_tests! is_kept }
        }
    };
}

macro_rules! promise_tests {
    ($is_kept:ident $($provider:ident)*) => {
        $(#[tokio::test]
        async fn $provider() {
            $is_kept(Stage::start($crate::contract::subjects::$provider()).await).await;
        })*
    };
}

mod balances;
mod consent;
mod faults;
mod grants;
mod interval;
mod pages;
mod stage;
mod subjects;

use std::collections::BTreeSet;

use crate::harness::pretended;

macro_rules! names {
    (() $($provider:ident)*) => { [$(subjects::$provider().name),*] };
}

#[test]
fn every_pretended_provider_is_put_to_the_contract() {
    let subjects: BTreeSet<&str> = for_every_subject! { names! () }.into();
    assert_eq!(subjects, pretended().collect());
}
