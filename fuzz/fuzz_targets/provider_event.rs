//! Parses any bytes as a provider event whose signature is valid. The body is rejected, or names
//! affected resources.

#![no_main]

use bellbird_providers::{akahu, fiskil, snaptrade};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fiskil::test_support::fuzz_event(body);
    akahu::test_support::fuzz_event(body);
    snaptrade::test_support::fuzz_event(body);
});
