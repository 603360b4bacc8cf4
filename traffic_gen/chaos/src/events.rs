//! What agents of several processes send, hear and are told: one file, a line for each event.
//!
//! Every process appends its lines to the same file, each before it goes on: before a message leaves, before a delivery is
//! acknowledged. So a line stands behind the lines of what caused it, whoever wrote those, and all that a process did before it
//! was killed is there.
//!
//! | `event` | says |
//! |---|---|
//! | `began` | a process has begun to run this agent; what an earlier one had under way is lost |
//! | `due` | this agent is to call `negotiation` |
//! | any other | what [`TraceFile`] says of an event of the agent |

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use agents::observer::{Observed, Observer};
use parking_lot::Mutex;
use schemas::{AgentId, NegotiationId};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use traffic_gen::trace::TraceFile;

use super::journal::RunObserver;

/// What a line says beside events of [`Observed`].
pub(super) const BEGAN: &str = "began";
/// See [`BEGAN`].
pub(super) const DUE: &str = "due";

/// Appends the events of one process to the file that all of a run share.
pub(super) struct EventWriter {
    began: Instant,
    out: Mutex<EventOutput>,
    /// A line could not be written: what the agents do from now on is no evidence any more.
    has_failed: CancellationToken,
}

struct EventOutput {
    file: File,
    failed: Option<io::Error>,
}

impl EventWriter {
    /// Writes times since `began`, which is the same for all processes.
    ///
    /// # Errors
    /// When the file cannot be opened, or created.
    pub(super) fn open(path: &Path, began: Instant) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let out = Mutex::new(EventOutput { file, failed: None });
        Ok(Self { began, out, has_failed: CancellationToken::new() })
    }

    /// This process begins to run an agent.
    pub(super) fn begin(&self, agent: &AgentId) {
        self.write(&json!({"event": BEGAN, "agent": agent, "t_us": self.since_began_us(Instant::now())}));
    }

    /// Resolves when a line could not be written.
    pub(super) async fn failed(&self) {
        self.has_failed.cancelled().await;
    }

    /// Why a line could not be written, if one could not.
    pub(super) fn failure(&self) -> io::Result<()> {
        self.out.lock().failed.take().map_or(Ok(()), Err)
    }

    fn since_began_us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// One write for each line, so that those of different processes do not mix. A process that is killed while it writes leaves the
    /// beginning of a line; the next begins with a line end of its own.
    fn write(&self, line: &Value) {
        let mut out = self.out.lock();
        if out.failed.is_none()
            && let Err(error) = out.file.write_all(format!("\n{line}\n").as_bytes())
        {
            out.failed = Some(error);
            self.has_failed.cancel();
        }
    }
}

impl Observer for EventWriter {
    fn handle(&self, agent: &AgentId, at: Instant, event: Observed<'_>) {
        if let Some(line) = TraceFile::line(at.saturating_duration_since(self.began), agent, &event) {
            self.write(&line);
        }
    }
}

impl RunObserver for EventWriter {
    fn call_due(&self, negotiation: &NegotiationId, intended: Instant) {
        let t_us = self.since_began_us(intended);
        self.write(&json!({"event": DUE, "agent": negotiation.initiator(), "negotiation": negotiation, "t_us": t_us}));
    }
}
