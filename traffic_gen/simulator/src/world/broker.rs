//! The broker: what is stored, who listens, who gets what when a request arrives. Everything here takes effect at once;
//! that requests and answers take their time is none of its business.

mod bus;

use std::collections::BTreeMap;

use ::bus::{Bucket, BusError, Change, LogRecord, Received, Registered};
use bytes::Bytes;
use rand::RngExt;
use schemas::record::{EngineEvent, Entry, RECORD_BYTES_MAX, Record};
use schemas::{Lane, RegisterKey, Timestamp, subject};
use serde::Deserialize;
use tokio::sync::mpsc::UnboundedSender;

use super::{LinkId, PacedPart, ProcessRole, WorldState};
use crate::points::Point;
use crate::trace::{AckEventKind, ExpiredEntry, StoredLedger, Trace};

/// A record is stamped ahead of true time when it is by more than this.
const AHEAD_US: u64 = 1_000_000;

/// What stands under a key that another history has written.
const FOREIGN_ENTRY: &[u8] = b"{\"another\":\"history\"}";

/// See the module.
#[derive(Default)]
pub(super) struct Broker {
    lanes: Vec<LaneLog>,
    last_seq: u64,
    /// What the run leaves behind, but for what is made at its end.
    pub(super) trace: Trace,
    /// True time of each entry of the register.
    written_at: Vec<Timestamp>,
    places: BTreeMap<RegisterKey, usize>,
    buckets: [BTreeMap<String, Bytes>; Bucket::ALL.len()],
    blobs: BTreeMap<String, (u64, Bytes)>,
    subscriptions: Vec<Subscription>,
    log_feeds: Vec<LogFeed>,
    watch_feeds: Vec<WatchFeed>,
    feeds_made: u64,
    /// Requests made, to name their answers' subjects.
    requests: u64,
}

/// A lane: every record ever stored, and up to where they are gone.
#[derive(Default)]
struct LaneLog {
    records: Vec<LogRecord>,
    trimmed: u64,
}

/// How far the archive has come, as engines are told.
#[derive(Deserialize)]
struct Archived {
    registered: u64,
}

/// A reader of a lane.
struct LogFeed {
    id: u64,
    link: LinkId,
    lane: Lane,
    sender: UnboundedSender<Result<LogRecord, BusError>>,
    /// The last record on its way arrives then; a later one not before.
    last_at_us: u64,
    /// The last record that arrived.
    seen: u64,
}

/// A watcher of a bucket.
struct WatchFeed {
    id: u64,
    link: LinkId,
    bucket: Bucket,
    sender: UnboundedSender<Change>,
    last_at_us: u64,
}

/// A subscriber of subjects.
struct Subscription {
    link: LinkId,
    pattern: String,
    queue: Option<String>,
    sender: UnboundedSender<Received>,
    /// The last message on its way arrives then, as far as is known.
    last_at_us: u64,
}

impl Broker {
    pub(super) fn new(lanes: u8) -> Self {
        Self { lanes: (0..lanes).map(|_| LaneLog::default()).collect(), ..Self::default() }
    }

    /// Drops the subscriptions of a process that is no more.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.subscriptions.retain(|subscription| subscription.link != link);
        self.log_feeds.retain(|feed| feed.link != link);
        self.watch_feeds.retain(|feed| feed.link != link);
    }

    /// A lane.
    fn lane(&mut self, lane: Lane) -> Result<&mut LaneLog, BusError> {
        self.lanes.get_mut(usize::from(lane.0)).ok_or_else(|| BusError::Invalid(format!("lane {lane}")))
    }

    /// Stores a record behind all others; nobody hears of it.
    fn store(&mut self, record: LogRecord) -> Result<(), BusError> {
        self.last_seq = record.seq;
        self.lane(record.lane)?.records.push(record);
        Ok(())
    }

    /// Stores what the log of every lane holds before the run.
    pub(super) fn begin_lanes(&mut self, time: Timestamp, bytes: &Bytes) {
        for lane in (0..).map(Lane).take(self.lanes.len()) {
            let record = LogRecord { lane, seq: self.last_seq + 1, time, stamped: time, bytes: bytes.clone() };
            self.store(record).expect("the lane is there");
        }
    }

    /// Writes a value unless the key has one.
    fn register(&mut self, key: RegisterKey, value: Bytes, now: Timestamp) -> Registered {
        match self.places.get(&key) {
            Some(&place) if self.trace.register[place].1 == value => Registered::Same,
            Some(&place) => Registered::Different(self.trace.register[place].1.clone()),
            None => {
                self.places.insert(key.clone(), self.trace.register.len());
                self.trace.registered_at.entry(key.clone()).or_insert(now);
                self.trace.register.push((key, value));
                self.written_at.push(now);
                Registered::Written
            }
        }
    }

    /// Writes an entry of another history under the key of an award that never had one.
    fn register_foreign(&mut self, key: &RegisterKey, now: Timestamp) {
        if !self.trace.registered_at.contains_key(key) {
            self.trace.foreign.insert(key.clone());
            self.register(key.clone(), Bytes::from_static(FOREIGN_ENTRY), now);
        }
    }

    /// Whether a checkpoint names a key that holds an entry of another history as refused.
    fn names_refused(&self, checkpoint: &Bytes) -> bool {
        let is_foreign = |keys: Vec<RegisterKey>| keys.iter().any(|key| self.trace.foreign.contains(key));
        !self.trace.foreign.is_empty() && policy_engine::refused_keys(checkpoint).is_ok_and(is_foreign)
    }

    /// The value under a key.
    fn registered(&self, key: &RegisterKey) -> Option<Bytes> {
        self.places.get(key).map(|&place| self.trace.register[place].1.clone())
    }

    /// True time of the entry with this sequence.
    fn written_at(&self, seq: u64) -> Timestamp {
        let place = usize::try_from(seq).ok().and_then(|seq| seq.checked_sub(1));
        place.and_then(|place| self.written_at.get(place)).copied().unwrap_or_default()
    }

    /// What stands in the register, in the order it was written, with its sequence.
    fn standing(&self) -> impl Iterator<Item = (u64, &(RegisterKey, Bytes))> {
        let is_standing = |(place, (key, _)): &(usize, &(RegisterKey, Bytes))| self.places.get(key) == Some(place);
        (self.trace.register.iter().enumerate()).filter(is_standing).map(|(place, entry)| (place as u64 + 1, entry))
    }

    /// Removes the entry of a key unless it was written again behind a sequence; whether it was there.
    fn remove(&mut self, key: &RegisterKey, seq: u64) -> bool {
        let is_it = self.places.get(key).is_some_and(|&place| (place as u64) < seq);
        if is_it {
            self.places.remove(key);
            let lane = key.negotiation().lane(u8::try_from(self.lanes.len()).unwrap_or(u8::MAX));
            let blob = |name: &str| self.blobs.get(&format!("{name}-{lane}"));
            let archived = blob("archived").and_then(|(_, value)| serde_json::from_slice::<Archived>(value).ok());
            let archived = archived.map_or(0, |archived| archived.registered);
            let checkpoint = blob("checkpoint").map_or(0, |(version, _)| *version);
            self.trace.expired.push(ExpiredEntry { key: key.clone(), archived, checkpoint });
        }
        is_it
    }

    /// A bucket.
    pub(super) fn bucket(&self, bucket: Bucket) -> &BTreeMap<String, Bytes> {
        &self.buckets[bucket as usize]
    }

    fn bucket_mut(&mut self, bucket: Bucket) -> &mut BTreeMap<String, Bytes> {
        &mut self.buckets[bucket as usize]
    }

    /// The last record of each lane; 0 before the first.
    pub(super) fn last_seqs(&self) -> Vec<u64> {
        self.lanes.iter().map(LaneLog::last_seq).collect()
    }

    /// The last record of a lane that has arrived at a process.
    pub(super) fn seen(&self, link: LinkId, lane: Lane) -> u64 {
        let feeds = self.log_feeds.iter().filter(|feed| feed.link == link && feed.lane == lane);
        feeds.map(|feed| feed.seen).max().unwrap_or(0)
    }

    /// The archive has everything that is in the log now.
    pub(super) fn archive(&mut self) {
        for (index, position) in self.last_seqs().into_iter().enumerate() {
            let registered = self.lanes[index].answered();
            let value = Bytes::from(format!("{{\"position\":{position},\"registered\":{registered}}}"));
            self.blobs.insert(format!("archived-{index}"), (position, value));
        }
    }

    /// Stores a document; whether it says what panels have shown.
    fn store_blob(&mut self, name: String, version: u64, value: Bytes) -> bool {
        let lane = (0..).map(Lane).take(self.lanes.len()).find(|lane| subject::evidence_document(*lane) == name);
        let is_ledger = lane.is_some();
        if let (Some(lane), Ok(evidence)) = (lane, serde_json::from_slice(&value)) {
            self.trace.ledgers.push(StoredLedger { lane, last_seq: self.last_seq, evidence });
        }
        self.blobs.insert(name, (version, value));
        is_ledger
    }

    /// Says what is stored at the end of a run.
    pub(super) fn trace(&self) -> Trace {
        let mut records: Vec<LogRecord> = self.lanes.iter().flat_map(|lane| lane.records.iter().cloned()).collect();
        records.sort_by_key(|record| record.seq);
        let trimmed = self.lanes.iter().zip(0..).map(|(lane, index)| (Lane(index), lane.trimmed)).collect();
        Trace { records, trimmed, ..self.trace.clone() }
    }
}

impl LaneLog {
    /// Up to this record the log says that the register is answered: an archiver has asked it by then, and writes down what
    /// it holds.
    fn answered(&self) -> u64 {
        let records = self.records.iter().filter_map(|record| Record::decode(&record.bytes).ok());
        let said = records.flat_map(|record| record.entries).filter_map(|entry| match entry {
            Entry::Engine { event: EngineEvent::Delivered { registered, .. }, .. } => Some(registered),
            Entry::Engine { .. } | Entry::Message(_) | Entry::Tick => None,
        });
        said.max().unwrap_or(0)
    }

    /// The last sequence.
    fn last_seq(&self) -> u64 {
        self.records.last().map_or(0, |record| record.seq)
    }

    /// What is still there, from a sequence on.
    fn from(&self, seq: u64) -> &[LogRecord] {
        let begin = self.records.partition_point(|record| record.seq < seq.max(self.trimmed + 1));
        &self.records[begin..]
    }

    /// Removes what lies below a sequence, except the last record; whether anything went.
    fn trim(&mut self, below_seq: u64) -> bool {
        let up_to = below_seq.min(self.last_seq()).saturating_sub(1);
        let is_news = up_to > self.trimmed && self.records.iter().any(|r| r.seq > self.trimmed && r.seq <= up_to);
        self.trimmed = self.trimmed.max(up_to);
        is_news
    }
}

impl WorldState {
    /// Stores a record and sends it to the lane's readers.
    fn append(&mut self, link: LinkId, lane: Lane, bytes: Bytes) -> Result<u64, BusError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: bytes.len(), limit: RECORD_BYTES_MAX });
        }
        if self.broker_faults.is_full {
            self.reached(Point::LogFull);
            return Err(BusError::Full("the simulated disk is full".to_owned()));
        }
        let (stamped, now) = (self.log_now(), self.now());
        let seq = self.broker.last_seq + 1;
        let last = self.broker.lane(lane)?.records.last().map(|last| (last.time, last.stamped));
        let time = last.map_or(stamped, |(time, _)| time.max(stamped));
        if last.is_some_and(|(_, last)| stamped < last) {
            self.reached(Point::ClockBack);
        }
        if stamped > Timestamp(now.0 + AHEAD_US) {
            self.reached(Point::ClockAhead);
        }
        let record = LogRecord { lane, seq, time, stamped, bytes };
        self.broker.store(record.clone())?;
        self.watcher.handle_record(&record, &mut self.points);
        if self.role(link) == ProcessRole::Gateway {
            let (now_us, is_spared) = (self.now_us(), self.network.are_gateways_spared);
            self.presence.handle_record(link, &record, now_us, is_spared, &self.broker, &mut self.points);
        }
        self.feed_log(&record);
        Ok(seq)
    }

    fn feed_log(&mut self, record: &LogRecord) {
        for index in 0..self.broker.log_feeds.len() {
            let at_us = self.now_us() + self.latency_us();
            if self.broker.log_feeds[index].lane != record.lane {
                continue;
            }
            let at_us = at_us + self.queue_work_us(PacedPart::Records);
            let feed = &mut self.broker.log_feeds[index];
            feed.last_at_us = feed.last_at_us.max(at_us);
            let (id, link, at_us, record) = (feed.id, feed.link, feed.last_at_us, record.clone());
            self.at(at_us, Box::new(move |state| state.owe(link, Box::new(move |state| state.hand_over(id, record)))));
        }
    }

    /// A record arrives at a reader: too late, when it was trimmed meanwhile and the broker could not send it any more.
    fn hand_over(&mut self, feed: u64, record: LogRecord) {
        let trimmed = self.broker.lane(record.lane).map_or(0, |lane| lane.trimmed);
        let Some(place) = self.broker.log_feeds.iter().position(|known| known.id == feed) else { return };
        let known = &mut self.broker.log_feeds[place];
        let is_gone = record.seq <= trimmed;
        known.seen = known.seen.max(record.seq);
        let item = if is_gone { Err(BusError::Trimmed(trimmed)) } else { Ok(record) };
        if known.sender.send(item).is_err() || is_gone {
            self.broker.log_feeds.swap_remove(place);
        }
        if is_gone {
            self.reached(Point::ReadTrimmed);
        }
    }

    /// Begins to feed a reader: what is there at once, then what comes.
    fn read_log(
        &mut self,
        link: LinkId,
        lane: Lane,
        from_seq: u64,
        sender: UnboundedSender<Result<LogRecord, BusError>>,
    ) -> Result<(), BusError> {
        let log = self.broker.lane(lane)?;
        if from_seq <= log.trimmed {
            let trimmed = log.trimmed;
            self.reached(Point::ReadTrimmed);
            return Err(BusError::Trimmed(trimmed));
        }
        if self.role(link) == ProcessRole::Engine {
            self.note_acks(link, AckEventKind::Read(lane));
        }
        let log = self.broker.lane(lane)?;
        if log.trimmed > 0 && self.role(link) == ProcessRole::Engine {
            self.reached(Point::CheckpointRestored);
        }
        let present = self.broker.lane(lane)?.from(from_seq).to_vec();
        let seen = present.last().map_or(0, |record| record.seq);
        for record in present {
            // The receiver waits in the answer to this very call.
            let _ = sender.send(Ok(record));
        }
        self.broker.feeds_made += 1;
        let id = self.broker.feeds_made;
        self.broker.log_feeds.push(LogFeed { id, link, lane, sender, last_at_us: 0, seen });
        Ok(())
    }

    /// Begins to feed a watcher: what is there at once, then what comes.
    fn watch(&mut self, link: LinkId, bucket: Bucket, sender: UnboundedSender<Change>) {
        let entries = self.broker.bucket(bucket).iter();
        for (key, value) in entries {
            let _ = sender.send(Change::Put(key.clone(), value.clone()));
        }
        let _ = sender.send(Change::CaughtUp);
        self.broker.feeds_made += 1;
        let id = self.broker.feeds_made;
        self.broker.watch_feeds.push(WatchFeed { id, link, bucket, sender, last_at_us: 0 });
    }

    /// Stores a value, or removes it, and sends the change to watchers.
    pub(super) fn put(&mut self, bucket: Bucket, key: &str, value: Option<Bytes>) {
        let change = match value {
            Some(value) => {
                self.broker.bucket_mut(bucket).insert(key.to_owned(), value.clone());
                Change::Put(key.to_owned(), value)
            }
            None => {
                self.broker.bucket_mut(bucket).remove(key);
                Change::Deleted(key.to_owned())
            }
        };
        for index in 0..self.broker.watch_feeds.len() {
            let at_us = self.now_us() + self.latency_us();
            let feed = &mut self.broker.watch_feeds[index];
            if feed.bucket != bucket {
                continue;
            }
            feed.last_at_us = feed.last_at_us.max(at_us);
            let (id, link, at_us, change) = (feed.id, feed.link, feed.last_at_us, change.clone());
            let hand_over = move |state: &mut Self| {
                if let Some(feed) = state.broker.watch_feeds.iter().find(|feed| feed.id == id) {
                    let _ = feed.sender.send(change);
                }
            };
            self.at(at_us, Box::new(move |state| state.owe(link, Box::new(hand_over))));
        }
    }

    /// Sends a message to whoever listens on its subject; whether anybody does.
    fn route(&mut self, from: LinkId, message: &Received) -> bool {
        self.broker.subscriptions.retain(|subscription| !subscription.sender.is_closed());
        self.observe_published(from, message);
        let targets = self.targets(&message.subject);
        for &target in &targets {
            if self.happens(self.network.message_lost) || self.is_cut(self.broker.subscriptions[target].link) {
                self.reached(Point::MessageLost);
                continue;
            }
            self.deliver(target, message.clone());
            if self.happens(self.network.message_twice) {
                self.reached(Point::MessageDuplicated);
                self.deliver(target, message.clone());
            }
        }
        !targets.is_empty()
    }

    fn deliver(&mut self, target: usize, message: Received) {
        let at_us = self.now_us() + self.latency_us();
        let subscription = &mut self.broker.subscriptions[target];
        let (link, sender) = (subscription.link, subscription.sender.clone());
        let is_overtaking = at_us < subscription.last_at_us;
        subscription.last_at_us = subscription.last_at_us.max(at_us);
        if is_overtaking {
            self.reached(Point::MessageReordered);
        }
        let receive = move |state: &mut Self| {
            state.observe_arrival(link, &message);
            // A subscriber that has gone meanwhile hears nothing.
            let _ = sender.send(message);
        };
        self.at(at_us, Box::new(move |state| state.arrive(link, Box::new(receive))));
    }

    /// The subscriptions a message goes to: each that stands alone, and one of each queue group.
    fn targets(&mut self, subject: &str) -> Vec<usize> {
        let mut targets = Vec::new();
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, subscription) in self.broker.subscriptions.iter().enumerate() {
            if !matches(&subscription.pattern, subject) {
                continue;
            }
            match &subscription.queue {
                None => targets.push(index),
                Some(queue) => match groups.iter_mut().find(|(known, _)| known == queue) {
                    Some((_, members)) => members.push(index),
                    None => groups.push((queue, vec![index])),
                },
            }
        }
        for (_, members) in groups {
            targets.push(members[self.rng.random_range(0..members.len())]);
        }
        targets
    }

    /// Shows an engine's message to who counts rare paths.
    fn observe_published(&mut self, from: LinkId, message: &Received) {
        if self.role(from) == ProcessRole::Engine {
            let name = self.name(from).to_owned();
            self.watcher.handle_published(from, &name, message, &self.broker, &mut self.points);
        }
    }

    fn observe_arrival(&mut self, at: LinkId, message: &Received) {
        match self.role(at) {
            ProcessRole::Engine => {
                let name = self.name(at).to_owned();
                let heard = self.watcher.handle_arrival(at, &name, message, &self.broker, &mut self.points);
                heard.into_iter().for_each(|acks| self.note_acks(at, AckEventKind::Heard(acks)));
            }
            ProcessRole::Gateway => {
                let now_us = self.now_us();
                if self.presence.is_routed_wrong(at, message) {
                    self.reached(Point::RoutedWrong);
                }
                self.presence.handle_arrival(at, message, now_us);
            }
            ProcessRole::Agent => {}
        }
    }
}

/// Whether a subject fits a pattern: `*` stands for one token, `>` for the rest.
pub(super) fn matches(pattern: &str, subject: &str) -> bool {
    let Some(wild) = pattern.find(['*', '>']) else { return pattern == subject };
    if !subject.starts_with(&pattern[..wild]) {
        return false;
    }
    let (mut wanted, mut found) = (pattern[wild..].split('.'), subject[wild..].split('.'));
    loop {
        match (wanted.next(), found.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if !token.is_empty() => {}
            (Some(literal), Some(token)) if literal == token => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_token_and_an_angle_for_the_rest() {
        for (pattern, subject, fits) in [
            ("agent.a.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.b.inbox", false),
            ("agent.*.inbox", "agent.a.outbox", false),
            ("ack.*.*", "ack.a.0", true),
            ("ack.*.*", "ack.a", false),
            ("award.>", "award.x.0.1", true),
            ("award.>", "award", false),
            ("hello.*", "hello.", false),
        ] {
            assert_eq!(matches(pattern, subject), fits, "{pattern} {subject}");
        }
    }
}
