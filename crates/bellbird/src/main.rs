//! Bellbird: one read-only API over a person's bank accounts.

/// Faster than the system's when many requests allocate at once, and quicker to give memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    bellbird::cli::run()
}
