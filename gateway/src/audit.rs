//! The lines that say what was refused: one for each refusal, up to [`LINES_PER_S`] of one code a second, and of these
//! [`SOURCE_LINES_PER_S`] of one agent, or of one address where nobody is named. The rest is counted, and the counts are
//! written when the second is over.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use schemas::{AgentId, Code, NegotiationId, Refusal};
use telemetry::TraceId;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::Transport;

/// Lines in a second of one code: what a person can look through.
const LINES_PER_S: u64 = 50;
/// Lines in a second of one code and one source: five of them leave room for no other.
const SOURCE_LINES_PER_S: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Whose refusal it is: of whoever has named no agent, the address, where there is one.
type LineSource = (Option<AgentId>, Option<IpAddr>);

/// What was refused in this second, by code.
pub(crate) struct AuditLog(Mutex<[CodeCount; Code::ALL.len()]>);

/// The refusals of one code in this second.
#[derive(Default)]
struct CodeCount {
    written: u64,
    /// An entry begins with a line, so there are at most [`LINES_PER_S`].
    by_source: BTreeMap<LineSource, SourceCount>,
    /// Unwritten, of sources that have no entry.
    unwritten: u64,
}

#[derive(Default)]
struct SourceCount {
    written: u64,
    unwritten: u64,
}

impl CodeCount {
    /// Whether a refusal of this source has a line.
    fn count(&mut self, source: LineSource) -> bool {
        let has_room = self.written < LINES_PER_S;
        let known =
            if has_room { Some(self.by_source.entry(source).or_default()) } else { self.by_source.get_mut(&source) };
        let Some(known) = known else {
            self.unwritten += 1;
            return false;
        };
        let is_written = has_room && known.written < SOURCE_LINES_PER_S;
        if is_written {
            known.written += 1;
            self.written += 1;
        } else {
            known.unwritten += 1;
        }
        is_written
    }
}

impl AuditLog {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(nothing_yet()))
    }

    /// Writes the line of a refusal, if it is not one of too many: the code, who or else from where, which way, about which
    /// negotiation, in which trace. Never a token, never a value.
    pub(crate) fn refused(
        &self,
        transport: Transport,
        agent: Option<&AgentId>,
        peer: Option<IpAddr>,
        negotiation: Option<&NegotiationId>,
        trace: Option<TraceId>,
        refusal: &Refusal,
    ) {
        let peer = peer.filter(|_| agent.is_none());
        if !self.count(refusal.code, (agent.cloned(), peer)) {
            return;
        }
        tracing::info!(
            target: "llmx::audit",
            code = refusal.code.as_str(),
            agent = agent.map(AgentId::as_str),
            peer = peer.map(tracing::field::display),
            transport = <&str>::from(transport),
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

    fn count(&self, code: Code, source: LineSource) -> bool {
        self.0.lock()[code as usize].count(source)
    }

    fn end_second(&self) {
        let counts = std::mem::replace(&mut *self.0.lock(), nothing_yet());
        for (code, count) in Code::ALL.iter().map(|code| code.as_str()).zip(counts) {
            for ((agent, peer), SourceCount { unwritten, .. }) in count.by_source {
                if unwritten > 0 {
                    let (agent, peer) = (agent.as_ref().map(AgentId::as_str), peer.map(tracing::field::display));
                    tracing::info!(target: "llmx::audit", code, agent, peer, unwritten, "refused as well");
                }
            }
            if count.unwritten > 0 {
                tracing::info!(target: "llmx::audit", code, unwritten = count.unwritten, "refused as well, of other sources");
            }
        }
    }
}

fn nothing_yet() -> [CodeCount; Code::ALL.len()] {
    std::array::from_fn(|_| CodeCount::default())
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
    fn each_code_and_source_has_so_many_lines_a_second_and_a_flood_leaves_room_for_others() {
        let log = AuditLog::new();
        let agent = |number: u64| AgentId::try_new(&format!("agent-{number}")).unwrap();
        let [first, second] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(|address| (None, Some(IpAddr::from(address))));
        let lines = |code, source: &LineSource| (0..1000).filter(|_| log.count(code, source.clone())).count() as u64;
        for code in [Code::Unauthenticated, Code::RateLimited, Code::Overloaded] {
            assert_eq!(lines(code, &first), SOURCE_LINES_PER_S, "{code:?}: without a token");
            assert!(log.count(code, second.clone()), "{code:?}: without a token, from another address");
            assert_eq!(lines(code, &(Some(agent(0)), None)), SOURCE_LINES_PER_S, "{code:?}");
            assert!(log.count(code, (Some(agent(1)), None)), "{code:?}: another agent");
        }
        log.end_second();
        assert_eq!(lines(Code::RateLimited, &(Some(agent(0)), None)), SOURCE_LINES_PER_S, "in the next second");
    }

    #[test]
    fn any_number_of_agents_has_so_many_lines_a_second_of_a_code_and_takes_no_more_memory() {
        let log = AuditLog::new();
        let agents = (0..10_000).map(|number| AgentId::try_new(&format!("agent-{number}")).unwrap());
        let written = agents.filter(|agent| log.count(Code::RateLimited, (Some(agent.clone()), None))).count();
        assert_eq!(written as u64, LINES_PER_S);
        let counts = log.0.lock();
        let count = &counts[Code::RateLimited as usize];
        assert_eq!((count.by_source.len(), count.unwritten), (50, 9_950));
    }

    #[test]
    fn every_code_has_a_count_of_its_own() {
        let numbers: Vec<usize> = Code::ALL.iter().map(|code| *code as usize).collect();
        assert_eq!(numbers, (0..Code::ALL.len()).collect::<Vec<_>>());
    }
}
