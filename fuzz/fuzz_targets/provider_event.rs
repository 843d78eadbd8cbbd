//! Any bytes as an event of a provider, as if its signature had been good: refused, or ids to look at.

#![no_main]

use bellbird_providers::{akahu, fiskil, snaptrade};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fiskil::fuzz_event(body);
    akahu::fuzz_event(body);
    snaptrade::fuzz_event(body);
});
