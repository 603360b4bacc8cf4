//! The lines that say what was refused: one for each refusal. Of what is refused for now, because of a rate, there are
//! [`LINES_PER_S`] a second; the rest is counted, and the count written when the second is over.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use schemas::{AgentId, Code, NegotiationId, Refusal};
use telemetry::TraceId;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Transport;

/// Lines in a second of a code that a rate makes: what a person can look through.
const LINES_PER_S: u64 = 50;
const SECOND: Duration = Duration::from_secs(1);

/// What was refused in this second, by code.
pub(crate) struct AuditLog(Mutex<[u64; Code::ALL.len()]>);

impl AuditLog {
    pub(crate) fn new() -> Self {
        Self(Mutex::new([0; Code::ALL.len()]))
    }

    /// Writes the line of a refusal, if it is not one of too many: the code, who, which way, about which negotiation, in which
    /// trace. Never a token, never a value.
    pub(crate) fn refused(
        &self,
        transport: Transport,
        agent: Option<&AgentId>,
        negotiation: Option<&NegotiationId>,
        trace: Option<TraceId>,
        refusal: &Refusal,
    ) {
        if !self.count(refusal.code) {
            return;
        }
        tracing::info!(
            target: "llmx::audit",
            code = refusal.code.as_str(),
            agent = agent.map(AgentId::as_str),
            transport = transport.as_str(),
            negotiation = negotiation.map(NegotiationId::as_str),
            trace_id = trace.map(tracing::field::display),
            pointer = refusal.pointer.as_deref().map(sealed),
            "refused"
        );
    }

    /// Writes how many refusals had no line, every second until the gateway stops.
    pub(crate) async fn drive(&self, stop: CancellationToken) {
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = seconds.tick() => self.end_second(),
            }
        }
        self.end_second();
    }

    /// Whether a refusal of this code has a line.
    fn count(&self, code: Code) -> bool {
        if !matches!(code, Code::Overloaded | Code::RateLimited) {
            return true;
        }
        let refusals = &mut self.0.lock().unwrap_or_else(PoisonError::into_inner)[code as usize];
        *refusals += 1;
        *refusals <= LINES_PER_S
    }

    fn end_second(&self) {
        let refusals =
            std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), [0; Code::ALL.len()]);
        for (code, refusals) in Code::ALL.iter().zip(refusals).filter(|(_, refusals)| *refusals > LINES_PER_S) {
            tracing::info!(target: "llmx::audit", code = code.as_str(), unwritten = refusals - LINES_PER_S, "refused as well");
        }
    }
}

/// Where a mandate stands in a message.
const MANDATE: &str = "/payload/mandate";

/// A pointer as it may be recorded. One into a mandate ends there: mandates are sealed, and member names below may be the
/// sender's own.
fn sealed(pointer: &str) -> &str {
    let is_inside = pointer.strip_prefix(MANDATE).is_some_and(|rest| rest.starts_with('/'));
    if is_inside { MANDATE } else { pointer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rate_refuses_has_so_many_lines_a_second_and_all_else_one_each() {
        let log = AuditLog::new();
        let written = (0..10 * LINES_PER_S).filter(|_| log.count(Code::Overloaded)).count();
        assert_eq!(written as u64, LINES_PER_S);
        assert!((0..10 * LINES_PER_S).all(|_| log.count(Code::Unauthenticated)));
        log.end_second();
        assert!(log.count(Code::Overloaded), "in the next second");
    }

    #[test]
    fn every_code_has_a_count_of_its_own() {
        let numbers: Vec<usize> = Code::ALL.iter().map(|code| *code as usize).collect();
        assert_eq!(numbers, (0..Code::ALL.len()).collect::<Vec<_>>());
    }
}
