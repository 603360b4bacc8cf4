//! The digest of a trace: two runs of one seed must agree in everything that is judged.

use schemas::Digest;
use schemas::acknowledgement::AgentAcks;

use super::{AckEvent, AckEventKind, Answer, JournalEntry, Noted, Trace};

impl Trace {
    /// The digest of everything that is judged: the same for every run of a seed.
    pub fn digest(&self) -> Digest {
        let mut text = Text(Vec::new());
        text.number(self.seed);
        text.number(self.ended_at.0);
        for record in &self.records {
            text.numbers(&[u64::from(record.lane.0), record.seq, record.time.0, record.stamped.0]);
            text.bytes(&record.bytes);
        }
        for (lane, trimmed) in &self.trimmed {
            text.numbers(&[u64::from(lane.0), *trimmed]);
        }
        for (key, value) in &self.register {
            text.bytes(key.to_string().as_bytes());
            text.bytes(value);
        }
        for key in &self.foreign {
            text.bytes(key.to_string().as_bytes());
        }
        for expired in &self.expired {
            text.bytes(expired.key.to_string().as_bytes());
            text.numbers(&[expired.archived, expired.checkpoint]);
        }
        for ledger in &self.ledgers {
            text.numbers(&[u64::from(ledger.lane.0), ledger.last_seq, ledger.evidence.position]);
            text.bytes(&serde_json::to_vec(&ledger.evidence).unwrap_or_default());
        }
        for at in self.registered_at.values() {
            text.number(at.0);
        }
        for (agent, entries) in &self.journals {
            text.bytes(agent.as_str().as_bytes());
            entries.iter().for_each(|entry| text.entry(entry));
        }
        for invited in &self.invited {
            text.number(invited.seq);
            for (agents, tag) in [(&invited.found, 0), (&invited.must, 1), (&invited.must_not, 2)] {
                text.number(tag);
                agents.iter().for_each(|agent| text.bytes(agent.as_str().as_bytes()));
            }
        }
        for view in &self.views {
            text.bytes(view.negotiation.as_str().as_bytes());
            text.bytes(view.viewer.as_str().as_bytes());
            text.numbers(&[view.from_seq, view.to_seq]);
            text.bytes(&view.answer);
        }
        self.acks.iter().for_each(|event| text.ack_event(event));
        for digest in &self.digests {
            text.bytes(digest.engine.as_bytes());
            text.numbers(&[u64::from(digest.lane.0), digest.position]);
            text.bytes(digest.digest.as_bytes());
        }
        for (what, load) in &self.loads {
            text.bytes(what.as_bytes());
            text.numbers(&[load.seen_max, load.limit]);
        }
        for happening in &self.story {
            text.number(happening.at.0);
            text.bytes(happening.what.as_bytes());
        }
        for line in self.unfinished.iter().chain(&self.panics) {
            text.bytes(line.as_bytes());
        }
        for (point, count) in &self.sometimes {
            text.bytes(point.as_bytes());
            text.number(*count);
        }
        Digest::of_bytes(&text.0)
    }
}

/// What is digested: each part behind its length, so that parts cannot run into each other.
struct Text(Vec<u8>);

impl Text {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn ack_event(&mut self, event: &AckEvent) {
        self.number(event.at.0);
        self.bytes(event.process.as_bytes());
        match &event.kind {
            AckEventKind::Taken(acks) => self.acks(0, std::slice::from_ref(acks)),
            AckEventKind::Passed(acks) => self.acks(1, acks),
            AckEventKind::Heard(acks) => self.acks(2, std::slice::from_ref(acks)),
            AckEventKind::Sent(acks) => self.acks(3, std::slice::from_ref(acks)),
            AckEventKind::Read(lane) => self.numbers(&[4, u64::from(lane.0)]),
            AckEventKind::Resumed => self.number(5),
            AckEventKind::Died => self.number(6),
        }
    }

    fn acks(&mut self, tag: u64, acks: &[AgentAcks]) {
        self.number(tag);
        for (agent, ids) in acks {
            self.bytes(agent.as_str().as_bytes());
            ids.iter().for_each(|id| self.bytes(&id.to_bytes()));
        }
    }

    fn entry(&mut self, entry: &JournalEntry) {
        self.number(entry.at.0);
        match &entry.kind {
            Noted::Connected => self.number(0),
            Noted::Sent { negotiation, msg_id, act, attempt, digest, document, token_of } => {
                self.numbers(&[1, u64::from(*attempt)]);
                for part in [negotiation.as_str(), msg_id.as_str(), act.as_str(), token_of.as_str()] {
                    self.bytes(part.as_bytes());
                }
                self.bytes(&digest.0);
                self.bytes(document);
            }
            Noted::Answered { negotiation, msg_id, attempt, answer } => {
                self.numbers(&[2, u64::from(*attempt)]);
                self.bytes(negotiation.as_str().as_bytes());
                self.bytes(msg_id.as_str().as_bytes());
                match answer {
                    Answer::Accepted { seq, index } => self.numbers(&[0, *seq, u64::from(*index)]),
                    Answer::Refused(code) => self.bytes(code.as_str().as_bytes()),
                    Answer::None => self.number(1),
                }
            }
            Noted::Received { id, digest, is_repeat, delivery: _ } => {
                self.numbers(&[3, u64::from(*is_repeat)]);
                self.bytes(id.to_string().as_bytes());
                self.bytes(&digest.0);
            }
            Noted::Acknowledged { ids } => {
                self.number(4);
                ids.iter().for_each(|id| self.bytes(id.to_string().as_bytes()));
            }
            Noted::Unreadable { bytes } => {
                self.number(5);
                self.bytes(bytes);
            }
            Noted::Notice { subject, payload } => {
                self.number(6);
                self.bytes(subject.as_bytes());
                self.bytes(payload);
            }
        }
    }
}
