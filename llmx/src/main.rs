//! The program `llmx`.

use std::process::ExitCode;

/// Documents are allocated on one thread and freed on another, many per message: the C library's allocator spends a
/// third of a round on its locks.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    llmx::main()
}
