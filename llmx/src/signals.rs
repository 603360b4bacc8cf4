//! The signals that end the process: SIGINT (Ctrl-C), SIGTERM, SIGQUIT, which would leave a terminal as it is, and SIGHUP,
//! by which a terminal or a connection that is closed takes its processes along.
//!
//! The first one lets a command that attends to it finish in order: [`asked_to_end`], [`Attending`]. Every other one
//! ends the command where it stands, with exit code 1. Handlers are there from the start, because the first process of
//! a container is not ended by a signal it does not handle. A SIGHUP that whoever started the process had it ignore
//! (`nohup`) stays ignored.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use crate::output::{Failure, Outcome};

/// Signals that come together count as one: a terminal and a script may both pass Ctrl-C on.
const TOGETHER: Duration = Duration::from_secs(1);
/// How long a command has to let go of what it holds before the process ends without it: it may be computing.
const GRACE: Duration = Duration::from_millis(500);

/// Whether the process has been asked to end.
static ASKED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// Resolves when the process is asked to end: Ctrl-C, SIGTERM or SIGHUP. Until it does, or is dropped, the command has the time
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

/// What a command returns that was to judge so many runs, and was asked to end before it had made them.
pub fn whole(is_interrupted: bool) -> Outcome {
    if is_interrupted { Err(interrupted("a signal")) } else { Ok(()) }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    /// Absent where it is ignored, or whether it is cannot be seen.
    hang_up: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let hang_up = (is_hang_up_ignored() == Some(false)).then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            hang_up,
        })
    }

    async fn next(&mut self) -> &'static str {
        let hang_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.quit.recv() => "SIGQUIT",
            _ = hang_up => "SIGHUP",
        }
    }
}

/// Whether SIGHUP is ignored since before this process began; unknown where the system does not show it. Unhandled, it ends
/// the process where it stands.
#[cfg(unix)]
fn is_hang_up_ignored() -> Option<bool> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    // Signals count from 1, which is SIGHUP.
    u64::from_str_radix(ignored.trim(), 16).ok().map(|signals| signals & 1 == 1)
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
