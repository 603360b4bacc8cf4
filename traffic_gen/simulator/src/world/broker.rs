//! The broker: what is stored, who listens, and what happens when a request arrives. Everything here takes effect at
//! once; that requests and answers take their time is none of its business.

use std::collections::{BTreeMap, BTreeSet};

use bus::{Bucket, BusError, Change, LogRecord, Received, Registered};
use bytes::Bytes;
use schemas::record::RECORD_BYTES_MAX;
use schemas::{Lane, RegisterKey, Timestamp};
use tokio::sync::mpsc::UnboundedSender;

use super::hearing::Hearing;
use super::watcher::Watcher;
use super::{LinkId, WorldState};
use crate::points::Point;

/// A record is stamped ahead of true time when it is by more than this.
const AHEAD_US: u64 = 1_000_000;

/// What stands under a key that another history has written.
const FOREIGN_ENTRY: &[u8] = b"{\"another\":\"history\"}";

/// How a checkpoint marks a refused key.
const REFUSED_TAG: u8 = b'r';

/// See the module.
pub(crate) struct Broker {
    pub(crate) lanes: Vec<LaneLog>,
    last_seq: u64,
    pub(crate) register: Vec<(RegisterKey, Bytes)>,
    places: BTreeMap<RegisterKey, usize>,
    /// Keys that hold an entry of another history.
    pub(crate) foreign: BTreeSet<RegisterKey>,
    /// True time of each write.
    pub(crate) registered_at: BTreeMap<RegisterKey, Timestamp>,
    buckets: [BTreeMap<String, Bytes>; Bucket::ALL.len()],
    pub(crate) blobs: BTreeMap<String, (u64, Bytes)>,
    pub(crate) subscriptions: Vec<Subscription>,
    log_feeds: Vec<LogFeed>,
    watch_feeds: Vec<WatchFeed>,
    feeds_made: u64,
    /// What the log's clock is off by.
    pub(crate) clock_offset_us: i64,
    /// Whether the log takes no more records.
    pub(crate) is_full: bool,
    /// Follows whom gateways hear.
    pub(crate) hearing: Hearing,
    /// Follows what the log says about engines.
    pub(crate) watcher: Watcher,
}

/// A lane: every record ever stored, and up to where they are gone.
#[derive(Default)]
pub(crate) struct LaneLog {
    pub(crate) records: Vec<LogRecord>,
    pub(crate) trimmed: u64,
}

/// A reader of a lane.
pub(crate) struct LogFeed {
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
pub(crate) struct WatchFeed {
    id: u64,
    link: LinkId,
    bucket: Bucket,
    sender: UnboundedSender<Change>,
    last_at_us: u64,
}

/// A subscriber of subjects.
pub(crate) struct Subscription {
    pub(crate) link: LinkId,
    pub(crate) pattern: String,
    pub(crate) queue: Option<String>,
    pub(crate) sender: UnboundedSender<Received>,
    /// The last message on its way arrives then, as far as is known.
    pub(crate) last_at_us: u64,
}

impl Broker {
    pub(super) fn new(lanes: u8) -> Self {
        Self {
            lanes: (0..lanes).map(|_| LaneLog::default()).collect(),
            last_seq: 0,
            register: Vec::new(),
            places: BTreeMap::new(),
            foreign: BTreeSet::new(),
            registered_at: BTreeMap::new(),
            buckets: Default::default(),
            blobs: BTreeMap::new(),
            subscriptions: Vec::new(),
            log_feeds: Vec::new(),
            watch_feeds: Vec::new(),
            feeds_made: 0,
            clock_offset_us: 0,
            is_full: false,
            hearing: Hearing::default(),
            watcher: Watcher::new(lanes),
        }
    }

    /// Drops the subscriptions of a process that is no more.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.subscriptions.retain(|subscription| subscription.link != link);
        self.log_feeds.retain(|feed| feed.link != link);
        self.watch_feeds.retain(|feed| feed.link != link);
    }

    /// A lane.
    pub(crate) fn lane(&mut self, lane: Lane) -> Result<&mut LaneLog, BusError> {
        self.lanes.get_mut(usize::from(lane.0)).ok_or_else(|| BusError::Invalid(format!("lane {lane}")))
    }

    /// Stores a record behind all others; nobody hears of it.
    fn store(&mut self, record: LogRecord) -> Result<(), BusError> {
        self.last_seq = record.seq;
        self.lane(record.lane)?.records.push(record);
        Ok(())
    }

    /// Stores what the log of every lane holds before the run.
    pub(crate) fn begin_lanes(&mut self, time: Timestamp, bytes: &Bytes) {
        for lane in (0..).map(Lane).take(self.lanes.len()) {
            let record = LogRecord { lane, seq: self.last_seq + 1, time, stamped: time, bytes: bytes.clone() };
            self.store(record).expect("the lane is there");
        }
    }

    /// Writes a value unless the key has one.
    pub(crate) fn register(&mut self, key: RegisterKey, value: Bytes, now: Timestamp) -> Registered {
        match self.places.get(&key) {
            Some(&place) if self.register[place].1 == value => Registered::Same,
            Some(&place) => Registered::Different(self.register[place].1.clone()),
            None => {
                self.places.insert(key.clone(), self.register.len());
                self.registered_at.insert(key.clone(), now);
                self.register.push((key, value));
                Registered::Written
            }
        }
    }

    /// Writes an entry of another history under the key of an award that has none.
    pub(crate) fn register_foreign(&mut self, key: &RegisterKey, now: Timestamp) {
        if !self.places.contains_key(key) {
            self.foreign.insert(key.clone());
            self.register(key.clone(), Bytes::from_static(FOREIGN_ENTRY), now);
        }
    }

    /// Whether a checkpoint names a key that holds an entry of another history as refused: in a frame of that kind, whose
    /// tag and length stand before it.
    pub(crate) fn names_refused(&self, checkpoint: &[u8]) -> bool {
        self.foreign.iter().any(|key| {
            let name = format!("\"{key}\"");
            let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes();
            let frame = [&[REFUSED_TAG], &length[..], name.as_bytes()].concat();
            checkpoint.windows(frame.len()).any(|window| window == frame)
        })
    }

    /// The value under a key.
    pub(crate) fn registered(&self, key: &RegisterKey) -> Option<Bytes> {
        self.places.get(key).map(|&place| self.register[place].1.clone())
    }

    /// A bucket.
    pub(crate) fn bucket(&mut self, bucket: Bucket) -> &mut BTreeMap<String, Bytes> {
        let [agents, groups, policies] = &mut self.buckets;
        match bucket {
            Bucket::Agents => agents,
            Bucket::Groups => groups,
            Bucket::Policies => policies,
        }
    }
}

impl LaneLog {
    /// The last sequence.
    pub(crate) fn last_seq(&self) -> u64 {
        self.records.last().map_or(0, |record| record.seq)
    }

    /// What is still there, from a sequence on.
    pub(crate) fn from(&self, seq: u64) -> &[LogRecord] {
        let begin = self.records.partition_point(|record| record.seq < seq.max(self.trimmed + 1));
        &self.records[begin..]
    }

    /// Removes what lies below a sequence, except the last record; whether anything went.
    pub(crate) fn trim(&mut self, below_seq: u64) -> bool {
        let up_to = below_seq.min(self.last_seq()).saturating_sub(1);
        let is_news = up_to > self.trimmed && self.records.iter().any(|r| r.seq > self.trimmed && r.seq <= up_to);
        self.trimmed = self.trimmed.max(up_to);
        is_news
    }
}

impl WorldState {
    /// Stores a record and sends it to the lane's readers.
    pub(crate) fn append(&mut self, link: LinkId, lane: Lane, bytes: Bytes) -> Result<u64, BusError> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: bytes.len(), limit: RECORD_BYTES_MAX });
        }
        if self.broker.is_full {
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
        self.broker.watcher.handle_record(&record, &mut self.points);
        self.judge_calls(link, &record);
        self.feed_log(&record);
        Ok(seq)
    }

    fn feed_log(&mut self, record: &LogRecord) {
        for index in 0..self.broker.log_feeds.len() {
            let at_us = self.now_us() + self.latency_us();
            let feed = &mut self.broker.log_feeds[index];
            if feed.lane != record.lane {
                continue;
            }
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
    pub(crate) fn read_log(
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
        if log.trimmed > 0 && self.link(link).role == super::ProcessRole::Engine {
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

    /// The last record of a lane that has arrived at a process.
    pub(crate) fn seen(&self, link: LinkId, lane: Lane) -> u64 {
        let feeds = self.broker.log_feeds.iter().filter(|feed| feed.link == link && feed.lane == lane);
        feeds.map(|feed| feed.seen).max().unwrap_or(0)
    }

    /// Begins to feed a watcher: what is there at once, then what comes.
    pub(crate) fn watch(&mut self, link: LinkId, bucket: Bucket, sender: UnboundedSender<Change>) {
        let entries = self.broker.bucket(bucket).iter();
        for (key, value) in entries {
            let _ = sender.send(Change::Put(key.clone(), value.clone()));
        }
        let _ = sender.send(Change::CaughtUp);
        self.broker.feeds_made += 1;
        let id = self.broker.feeds_made;
        self.broker.watch_feeds.push(WatchFeed { id, link, bucket, sender, last_at_us: 0 });
    }

    /// Stores a value, or removes it, and tells the watchers.
    pub(crate) fn put(&mut self, bucket: Bucket, key: &str, value: Option<Bytes>) {
        let change = match value {
            Some(value) => {
                self.broker.bucket(bucket).insert(key.to_owned(), value.clone());
                Change::Put(key.to_owned(), value)
            }
            None => {
                self.broker.bucket(bucket).remove(key);
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
}
