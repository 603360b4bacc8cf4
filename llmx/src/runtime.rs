//! The threads a command's tasks run on.
//!
//! On one thread a task that another wakes runs without the kernel's help; between threads each hand-over is a system call
//! and two context switches, which at low rates cost more than the task. So few threads are the default, however many
//! cores there are.

use std::io;
use std::num::NonZeroUsize;

use tokio::runtime::{Builder, Runtime};

/// Threads of a long-running process.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ThreadsArgs {
    /// Threads that run its tasks, 1 to 256; more where the process is seen to use all it has (default: one for four
    /// cores, at least 1)
    #[arg(long, env = "LLMX_THREADS", value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

/// How many threads a command gets.
#[derive(Debug, Clone, Copy)]
pub enum Threads {
    /// As asked for.
    Given(ThreadsArgs),
    /// One: what it waits for is elsewhere.
    One,
    /// As many as there are cores: it holds a whole exchange, or computes.
    Cores,
}

impl Threads {
    /// A runtime on so many threads.
    ///
    /// # Errors
    /// When the system gives no thread or no means to wait for events.
    pub fn runtime(self) -> io::Result<Runtime> {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = self.count(cores);
        let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        builder.worker_threads(threads).enable_all().build()
    }

    fn count(self, cores: usize) -> usize {
        match self {
            Self::Given(ThreadsArgs { threads: Some(threads) }) => threads.into(),
            Self::Given(ThreadsArgs { threads: None }) => (cores / 4).max(1),
            Self::One => 1,
            // One would let whoever computes hold up all others.
            Self::Cores => cores.max(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_what_is_asked_for_or_a_quarter_of_the_cores() {
        let asked = |threads| Threads::Given(ThreadsArgs { threads });
        for (threads, cores, count) in [
            (asked(None), 1, 1),
            (asked(None), 2, 1),
            (asked(None), 8, 2),
            (asked(None), 64, 16),
            (asked(Some(3)), 2, 3),
            (Threads::One, 64, 1),
            (Threads::Cores, 64, 64),
            (Threads::Cores, 1, 2),
        ] {
            assert_eq!(threads.count(cores), count, "{threads:?} on {cores} cores");
        }
    }
}
