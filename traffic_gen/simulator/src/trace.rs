//! What a run leaves behind, and all that judges may know of it: the log, the register, and what each agent sent, was told
//! and received. Nothing in it comes from inside a gateway or an engine, except what these publish about themselves.

mod digest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bus::LogRecord;
use bytes::Bytes;
use policy_core::Limits;
use schemas::acknowledgement::AgentAcks;
use schemas::delivery::Delivery;
use schemas::evidence::LaneEvidence;
use schemas::{Act, AgentId, Code, DeliveryId, Digest, Lane, MsgId, NegotiationId, RegisterKey, Timestamp};

/// One run of the simulator.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// The seed it grew from: the same seed and options give the same trace.
    pub seed: u64,
    /// Whether faults stopped in the end and everything was given the time to finish.
    pub is_liveness: bool,
    /// Lanes of the log.
    pub lanes: u8,
    /// Bounds that every engine's lane states were given.
    pub limits: Limits,
    /// Who calls for more than can be done, in a run in which nothing else goes wrong.
    pub flooded_by: Option<AgentId>,
    /// Every record ever stored, in the order of the log: those that were trimmed later, too.
    pub records: Vec<LogRecord>,
    /// Up to where each lane was trimmed.
    pub trimmed: BTreeMap<Lane, u64>,
    /// What was written to the register, in the order of the writes: entries that were removed later, too.
    pub register: Vec<(RegisterKey, Bytes)>,
    /// Keys of the register under which another history had written: no write of the exchange took effect there.
    pub foreign: BTreeSet<RegisterKey>,
    /// True time at which each key of the register was first written.
    pub registered_at: BTreeMap<RegisterKey, Timestamp>,
    /// Entries of the register that were removed, in the order they went.
    pub expired: Vec<ExpiredEntry>,
    /// What engines stored of what panels have shown, in the order they stored it.
    pub ledgers: Vec<StoredLedger>,
    /// What each agent did and saw, in the order it did and saw it.
    pub journals: BTreeMap<AgentId, Vec<JournalEntry>>,
    /// Views that were asked for and answered, in the order of the answers.
    pub views: Vec<AnsweredView>,
    /// Of calls to topics and groups: who had to be invited, and who not, in the order of the log.
    pub invited: Vec<Invited>,
    /// What became of acknowledgements at gateways and engines, in the order it happened.
    pub acks: Vec<AckEvent>,
    /// State digests as engines announced them.
    pub digests: Vec<AnnouncedDigest>,
    /// The greatest load of each bounded thing that processes report.
    pub loads: BTreeMap<String, QueueLoad>,
    /// What was done to the exchange, in words: crashes, partitions, jumps of the clock.
    pub story: Vec<Happening>,
    /// Panics, in whatever task: there must be none.
    pub panics: Vec<String>,
    /// What had not come to rest when a liveness run ended, in words; empty after a safety run.
    pub unfinished: Vec<String>,
    /// How often each rare path was taken. Every point of the table is present, be it with 0.
    pub sometimes: BTreeMap<&'static str, u64>,
    /// True time at the end of the run.
    pub ended_at: Timestamp,
}

impl Trace {
    /// What agents noted, one agent after the other.
    pub fn noted(&self) -> impl Iterator<Item = (&AgentId, &JournalEntry)> {
        self.journals.iter().flat_map(|(agent, journal)| journal.iter().map(move |entry| (agent, entry)))
    }

    /// What agents received, repeated deliveries too.
    pub fn received(&self) -> impl Iterator<Item = (&AgentId, &Delivery)> {
        self.noted().filter_map(|(agent, entry)| {
            let Noted::Received { delivery, .. } = &entry.kind else { return None };
            Some((agent, &**delivery))
        })
    }
}

/// An entry of the register that was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredEntry {
    /// Its key.
    pub key: RegisterKey,
    /// How far its lane was archived then, register entries included.
    pub archived: u64,
    /// The position of its lane's checkpoint then.
    pub checkpoint: u64,
}

/// What panels of a lane have shown, as an engine stored it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLedger {
    /// The lane.
    pub lane: Lane,
    /// The last record of the log then, of whatever lane.
    pub last_seq: u64,
    /// The ledger.
    pub evidence: LaneEvidence,
}

/// A line of an agent's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// True time, which is not always the log's time.
    pub at: Timestamp,
    /// What it notes.
    pub kind: Noted,
}

/// What an agent notes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// It connected, for the first time or again: its gateway said hello.
    Connected,
    /// It handed a message in.
    Sent {
        /// The negotiation, as the exchange names it.
        negotiation: NegotiationId,
        /// The message.
        msg_id: MsgId,
        /// Its act.
        act: Act,
        /// 1 for the first time, then counted up. A deliberate repeat counts as well.
        attempt: u32,
        /// Digest of the canonical document: what the log must hold.
        digest: Digest,
        /// The document as sent.
        document: Bytes,
        /// Whose token it carried: its own, unless the agent tries to be another.
        token_of: AgentId,
    },
    /// A gateway answered, or no answer came in time.
    Answered {
        /// The negotiation.
        negotiation: NegotiationId,
        /// The message.
        msg_id: MsgId,
        /// Which attempt was answered.
        attempt: u32,
        /// The answer.
        answer: Answer,
    },
    /// A delivery arrived.
    Received {
        /// Its id.
        id: DeliveryId,
        /// SHA-256 of its bytes as they stood in the inbox message.
        digest: Digest,
        /// Whether this agent had it before.
        is_repeat: bool,
        /// The delivery.
        delivery: Arc<Delivery>,
    },
    /// It acknowledged deliveries.
    Acknowledged {
        /// Their ids.
        ids: Vec<DeliveryId>,
    },
    /// Something arrived that cannot be read.
    Unreadable {
        /// Its bytes.
        bytes: Bytes,
    },
    /// A public notice arrived.
    Notice {
        /// The topic's or group's subject.
        subject: String,
        /// Its content.
        payload: Bytes,
    },
}

/// An answer to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 202: it is in the log.
    Accepted {
        /// Sequence of its record.
        seq: u64,
        /// Its place in the record.
        index: u32,
    },
    /// Refused, with this code.
    Refused(Code),
    /// Nothing came in time, or nothing readable.
    None,
}

/// What follows for a logged call from what had arrived at its gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invited {
    /// Sequence of the call's record.
    pub seq: u64,
    /// Its negotiation.
    pub negotiation: NegotiationId,
    /// Whom it invited.
    pub found: BTreeSet<AgentId>,
    /// Who was there, is durable, or was asked for absent or not.
    pub must: BTreeSet<AgentId>,
    /// Who was absent, and not to be invited all the same.
    pub must_not: BTreeSet<AgentId>,
}

/// What became of acknowledgements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckEvent {
    /// True time.
    pub at: Timestamp,
    /// The gateway or engine, unique among all incarnations.
    pub process: String,
    /// What happened there.
    pub kind: AckEventKind,
}

/// What happens to acknowledgements at a gateway or an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AckEventKind {
    /// A gateway took one in.
    Taken(AgentAcks),
    /// A gateway handed some to the bus.
    Passed(Vec<AgentAcks>),
    /// One reached an engine that stood by and had read the lane as far as whoever had first sent the deliveries.
    Heard(AgentAcks),
    /// An engine handed deliveries of lanes it owns, to an agent, to the bus.
    Sent(AgentAcks),
    /// An engine began to read a lane.
    Read(Lane),
    /// The process goes on after it stood still, and has what arrived meanwhile.
    Resumed,
    /// The process died.
    Died,
}

/// A view that an engine answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnsweredView {
    /// The negotiation.
    pub negotiation: NegotiationId,
    /// On whose behalf.
    pub viewer: AgentId,
    /// The negotiation's lane.
    pub lane: Lane,
    /// The lane's last record when it was asked for; 0 before the first.
    pub from_seq: u64,
    /// The lane's last record when the answer arrived.
    pub to_seq: u64,
    /// The answer.
    pub answer: Bytes,
}

/// A state digest that an engine announced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedDigest {
    /// The engine.
    pub engine: String,
    /// The lane.
    pub lane: Lane,
    /// Sequence of the last record folded.
    pub position: u64,
    /// Digest of the lane's state after it.
    pub digest: String,
}

/// How full something bounded became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLoad {
    /// The most seen.
    pub seen_max: u64,
    /// Its limit.
    pub limit: u64,
    /// Whether it is asked between records: what the last one taken in adds may pass the limit.
    pub is_asked_between_records: bool,
}

/// Something that was done to the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    /// True time.
    pub at: Timestamp,
    /// What, in words.
    pub what: String,
}
