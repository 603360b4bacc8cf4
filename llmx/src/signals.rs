//! The signals that end the process: SIGINT (Ctrl-C), SIGTERM and SIGQUIT, which would leave a terminal as it is.
//!
//! The first one lets a command that attends to it finish in order: [`asked_to_end`], [`Attending`]. Every other one
//! ends the command where it stands, with exit code 1. Handlers are there from the start, because the first process of
//! a container is not ended by a signal it does not handle.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::output::Failure;

/// Signals that come together count as one: a terminal and a script may both pass Ctrl-C on.
const TOGETHER: Duration = Duration::from_secs(1);
/// How long a command has to let go of what it holds before the process ends without it: it may be computing.
const GRACE: Duration = Duration::from_millis(500);

/// Whether the process has been asked to end.
static ASKED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Resolves when the process is asked to end: Ctrl-C or SIGTERM. Until it does, or is dropped, the command has the time
/// it needs to finish.
pub async fn asked_to_end() {
    let mut asked = ASKED.subscribe();
    // The sender lives as long as the process.
    let _ = asked.wait_for(|&asked| asked).await;
}

/// The same for a command that computes: as long as this lives, a first signal is only noted.
pub struct Attending(watch::Receiver<bool>);

impl Attending {
    /// From now on.
    pub fn new() -> Self {
        Self(ASKED.subscribe())
    }

    /// Whether the process has been asked to end.
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }
}

/// Begins to listen; must be called on the runtime. The receiver gets the name of the signal that ends the command where
/// it stands. A command that does not let go of its thread does not hold the process: it ends without it.
pub fn listen() -> std::io::Result<oneshot::Receiver<&'static str>> {
    let (ending, ended) = oneshot::channel();
    let mut signals = Signals::new()?;
    tokio::spawn(async move {
        let signal = signals.ending().await;
        // Whoever waits has ended already otherwise.
        let _ = ending.send(signal);
        sleep(GRACE).await;
        interrupted(signal).report();
        std::process::exit(1);
    });
    Ok(ended)
}

/// What a command that was ended where it stood returns.
pub fn interrupted(signal: &str) -> Failure {
    Failure::failed(anyhow::anyhow!("ended by {signal} before it was done"))
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.quit.recv() => "SIGQUIT",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        // Without a handler the signal ends the process anyway.
        let _ = tokio::signal::ctrl_c().await;
        "Ctrl-C"
    }
}

impl Signals {
    /// The signal after which nothing is waited for: the first one that nobody attends to, or a later one.
    async fn ending(&mut self) -> &'static str {
        let signal = self.next().await;
        if ASKED.receiver_count() == 0 {
            return signal;
        }
        ASKED.send_replace(true);
        let asked_at = Instant::now();
        loop {
            let signal = self.next().await;
            if asked_at.elapsed() >= TOGETHER {
                return signal;
            }
        }
    }
}
