//! The trace: every message every agent sent and received, one JSON document per line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use agents::observer::Observed;
use agents::strategy::SendOutcome;
use schemas::AgentId;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Writes a trace. The first failure ends writing and is reported by [`TraceFile::finish`].
pub struct TraceFile {
    out: BufWriter<File>,
    failed: Option<std::io::Error>,
}

impl TraceFile {
    /// Creates, or empties, the file, and creates the folder it is in.
    ///
    /// # Errors
    /// When it cannot be created; the text names the path.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let refused = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let file = std::fs::create_dir_all(folder).and_then(|()| File::create(path)).map_err(refused)?;
        Ok(Self { out: BufWriter::new(file), failed: None })
    }

    /// Writes one event; `since_start` is the agent's local time since the start of the run.
    pub fn write(&mut self, since_start: Duration, agent: &AgentId, event: &Observed<'_>) {
        if self.failed.is_none()
            && let Some(line) = Self::line(since_start, agent, event)
        {
            self.failed = writeln!(self.out, "{line}").err();
        }
    }

    /// The document of one event; none of what is decided, which is told by what is sent.
    pub fn line(since_start: Duration, agent: &AgentId, event: &Observed<'_>) -> Option<Value> {
        let mut line = match event {
            Observed::Connected => json!({"event": "connected"}),
            Observed::Disconnected => json!({"event": "disconnected"}),
            Observed::Transmitted { negotiation, msg_id, act, attempt, document } => {
                let document =
                    std::str::from_utf8(document).ok().and_then(|text| serde_json::from_str::<&RawValue>(text).ok());
                json!({"event": "sent", "negotiation": negotiation, "msg_id": msg_id, "act": act, "attempt": attempt,
                       "message": document})
            }
            Observed::Deferred { refusal } => json!({"event": "deferred", "code": refusal.code}),
            Observed::Settled { sent, .. } => {
                let (outcome, code) = match &sent.outcome {
                    SendOutcome::Accepted { .. } => ("accepted", None),
                    SendOutcome::Refused(refusal) => ("refused", Some(refusal.code)),
                    SendOutcome::Unanswered => ("unanswered", None),
                };
                json!({"event": outcome, "negotiation": sent.negotiation, "msg_id": sent.msg_id, "act": sent.act,
                       "code": code})
            }
            Observed::Delivered { delivery, is_repeat } => {
                let delivery: Value = serde_json::from_slice(&delivery.encode().ok()?).ok()?;
                json!({"event": "received", "repeat": is_repeat, "delivery": delivery})
            }
            Observed::Decided { .. } => return None,
        };
        line["t_us"] = u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX).into();
        line["agent"] = agent.as_str().into();
        Some(line)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first error of the whole trace.
    pub fn finish(mut self) -> std::io::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}
