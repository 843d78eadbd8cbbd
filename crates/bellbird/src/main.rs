//! Bellbird: one read-only API over a person's bank and brokerage accounts.

use mimalloc::MiMalloc;
use zeroizing_alloc::ZeroAlloc;

/// mimalloc is faster than the system allocator under concurrent requests, and returns memory
/// sooner. Freed memory is overwritten, so no row stays in it (docs/threat-model.md, "In memory").
#[global_allocator]
static ALLOCATOR: ZeroAlloc<MiMalloc> = ZeroAlloc(MiMalloc);

fn main() -> std::process::ExitCode {
    bellbird::cli::run()
}
