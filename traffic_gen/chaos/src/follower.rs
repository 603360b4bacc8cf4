//! Reads what agents of other processes wrote, in its order, and hands it to the journal as if they ran here.
//!
//! What a process that was killed had under way is over: a message nobody answered, a call that never left. A delivery that was
//! heard by the killed process and comes again to the next is a repeat.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use agents::observer::{Observed, Observer};
use agents::strategy::{SendOutcome, Sent, Way};
use bytes::Bytes;
use retry::RecentMap;
use schemas::delivery::Delivery;
use schemas::{Act, AgentId, Code, DeliveryId, MsgId, NegotiationId, Refusal};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::events::{BEGAN, DUE};
use super::journal::{AgentJournal, RunObserver};

/// At least this many of the latest deliveries are known as repeats: all of any minute.
const DELIVERIES_REMEMBERED: usize = 1 << 20;

/// A line. Which members it has depends on `event`.
#[derive(Deserialize)]
struct EventLine {
    event: String,
    t_us: u64,
    agent: AgentId,
    negotiation: Option<NegotiationId>,
    msg_id: Option<MsgId>,
    act: Option<Act>,
    attempt: Option<u32>,
    code: Option<Code>,
    message: Option<Box<RawValue>>,
    delivery: Option<Box<RawValue>>,
    #[serde(default)]
    repeat: bool,
}

/// Follows one file.
pub(super) struct Follower {
    lines: BufReader<File>,
    /// What was read of a line that has no end yet.
    line: Vec<u8>,
    began: Instant,
    agents: LostAgents,
    /// Lines that could not be read: a process was killed while it wrote them.
    torn: u64,
}

/// What is to be known of agents should their process be killed.
struct LostAgents {
    /// Messages that nobody has answered, by agent.
    under_way: BTreeMap<AgentId, BTreeMap<MsgId, (NegotiationId, Act)>>,
    /// Calls that are due and have not left.
    due: BTreeSet<NegotiationId>,
    heard: RecentMap<DeliveryId, ()>,
}

impl Follower {
    /// Reads a file from its beginning; times in it count from `began`.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(super) fn open(path: &Path, began: Instant) -> io::Result<Self> {
        let (under_way, due) = (BTreeMap::new(), BTreeSet::new());
        let agents = LostAgents { under_way, due, heard: RecentMap::new(DELIVERIES_REMEMBERED) };
        Ok(Self { lines: BufReader::new(File::open(path)?), line: Vec::new(), began, agents, torn: 0 })
    }

    /// Hands over every whole line that is there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn follow(&mut self, journal: &AgentJournal) -> io::Result<()> {
        loop {
            self.lines.read_until(b'\n', &mut self.line)?;
            if !self.line.ends_with(b"\n") {
                return Ok(());
            }
            let line = std::mem::take(&mut self.line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let read = serde_json::from_slice(&line).ok();
            let is_read = read.is_some_and(|line: EventLine| {
                let at = self.began + Duration::from_micros(line.t_us);
                self.agents.handle(&line, at, journal).is_some()
            });
            self.torn += u64::from(!is_read);
        }
    }

    /// Lines that could not be read, one at most for each process that was killed.
    pub(super) fn torn(&self) -> u64 {
        self.torn
    }
}

impl LostAgents {
    /// None where the line lacks what its event has.
    fn handle(&mut self, line: &EventLine, at: Instant, journal: &AgentJournal) -> Option<()> {
        let agent = &line.agent;
        match line.event.as_str() {
            BEGAN => self.begin(agent, at, journal),
            DUE => {
                let negotiation = line.negotiation.as_ref()?;
                self.due.insert(negotiation.clone());
                journal.call_due(negotiation, at);
            }
            "connected" => journal.handle(agent, at, Observed::Connected),
            "disconnected" => journal.handle(agent, at, Observed::Disconnected),
            "deferred" => journal.handle(agent, at, Observed::Deferred { refusal: &Refusal::new(line.code?, "") }),
            "sent" => self.sent(line, at, journal)?,
            "accepted" => self.settled(line, SendOutcome::Accepted { seq: None, policy: None }, at, journal)?,
            "refused" => self.settled(line, SendOutcome::Refused(Refusal::new(line.code?, "")), at, journal)?,
            "unanswered" => self.settled(line, SendOutcome::Unanswered, at, journal)?,
            "received" => {
                let delivery = Delivery::decode(line.delivery.as_ref()?.get().as_bytes()).ok()?;
                let id = delivery.envelope.msg_id;
                let is_repeat = line.repeat || self.heard.contains(&id);
                if !is_repeat {
                    self.heard.insert(id, ());
                }
                journal.handle(agent, at, Observed::Delivered { delivery: &delivery, is_repeat });
            }
            _ => return None,
        }
        Some(())
    }

    /// Another process runs the agent now.
    fn begin(&mut self, agent: &AgentId, at: Instant, journal: &AgentJournal) {
        for (msg_id, (negotiation, act)) in self.under_way.remove(agent).unwrap_or_default() {
            if act == Act::Cfp {
                journal.recorder.turned_down(&negotiation);
            }
            let (outcome, way) = (SendOutcome::Unanswered, Way::default());
            let sent = Sent { negotiation, msg_id, act, outcome, way };
            journal.handle(agent, at, Observed::Settled { sent: &sent, took: Duration::ZERO });
        }
        for negotiation in self.due.extract_if(.., |due| due.initiator() == agent.as_str()) {
            journal.recorder.turned_down(&negotiation);
        }
    }

    fn sent(&mut self, line: &EventLine, at: Instant, journal: &AgentJournal) -> Option<()> {
        let (negotiation, msg_id, act) = (line.negotiation.as_ref()?, line.msg_id.as_ref()?, line.act?);
        let document = Bytes::from(line.message.as_ref()?.get().to_owned());
        if act == Act::Cfp {
            self.due.remove(negotiation);
        }
        let under_way = self.under_way.entry(line.agent.clone()).or_default();
        under_way.insert(msg_id.clone(), (negotiation.clone(), act));
        let attempt = line.attempt?;
        let event = Observed::Transmitted { negotiation, msg_id, act, attempt, document: &document };
        journal.handle(&line.agent, at, event);
        Some(())
    }

    fn settled(&mut self, line: &EventLine, outcome: SendOutcome, at: Instant, journal: &AgentJournal) -> Option<()> {
        let (negotiation, msg_id, act) = (line.negotiation.clone()?, line.msg_id.clone()?, line.act?);
        if let Some(under_way) = self.under_way.get_mut(&line.agent) {
            under_way.remove(&msg_id);
        }
        let sent = Sent { negotiation, msg_id, act, outcome, way: Way::default() };
        journal.handle(&line.agent, at, Observed::Settled { sent: &sent, took: Duration::ZERO });
        Some(())
    }
}

#[cfg(test)]
mod tests;
