//! The simulated bus: the five traits over the one [`World`], as one process reaches it.
//!
//! Every call takes its way to the broker, takes effect there, and its answer takes its way back. Each of the three can
//! fail to happen, and the caller cannot tell which did.

#[cfg(test)]
mod tests;

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bus::{
    Blobs, Bucket, Bus, BusError, Change, KeyValue, Log, LogRecord, LogStream, PubSub, Received, Register,
    RegisterSize, Registered, StandingEntry,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use schemas::acknowledgement::{AgentAcks, decode_collected};
use schemas::{AgentId, DeliveryId, Lane, RegisterKey, routed, subject};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;

use super::super::{LinkId, PacedPart, ProcessRole, World, WorldState, delivery_ids};
use super::{Subscription, matches};
use crate::points::Point;
use crate::trace::AckEventKind;

/// How names of checkpoints begin.
const CHECKPOINT: &str = "checkpoint-";

/// What a call is about, as far as the rare paths care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Append,
    Register,
    Other,
}

/// The answer to a call, on its way.
type AnswerSender<T> = oneshot::Sender<Result<T, BusError>>;

/// One process's handle. The world holds gateways, and through them their handles, so no handle keeps the world: it would never
/// end.
#[derive(Clone)]
struct Handle {
    world: Weak<World>,
    link: LinkId,
    lanes: u8,
}

impl World {
    /// Links a process to the broker, under a name that no incarnation shares, and gives it its bus.
    pub(crate) fn connect(self: &Arc<Self>, name: String, role: ProcessRole) -> (LinkId, Bus) {
        let (link, lanes) = {
            let mut state = self.state.lock();
            let (link, now_us) = (state.add_link(name, role), state.now_us());
            if role == ProcessRole::Gateway {
                state.presence.begin(link, now_us);
            }
            (link, u8::try_from(state.broker.lanes.len()).unwrap_or(u8::MAX))
        };
        let handle = Arc::new(Handle { world: Arc::downgrade(self), link, lanes });
        let bus = Bus {
            log: Arc::clone(&handle) as Arc<dyn Log>,
            register: Arc::clone(&handle) as Arc<dyn Register>,
            key_value: Arc::clone(&handle) as Arc<dyn KeyValue>,
            pub_sub: Arc::clone(&handle) as Arc<dyn PubSub>,
            blobs: handle,
        };
        (link, bus)
    }
}

impl Handle {
    /// Changes the world. Once it has ended, its processes are about to be dropped, and learn nothing any more.
    fn change(&self, change: impl FnOnce(&mut WorldState)) {
        if let Some(world) = self.world.upgrade() {
            world.change(change);
        }
    }

    /// Makes a call when the future is first polled; dropping it later takes nothing back.
    fn call<T: Send + 'static>(
        &self,
        call: CallKind,
        effect: impl FnOnce(&mut WorldState, LinkId) -> Result<T, BusError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, BusError>> {
        async move {
            let (answer, outcome) = oneshot::channel();
            let link = self.link;
            self.change(|state| {
                if state.depart(link) {
                    let arrive = Box::new(move |state: &mut WorldState| reach(state, link, call, effect, answer));
                    let leave = move |state: &mut WorldState| state.send(link, arrive);
                    match call {
                        CallKind::Register => state.once_worked_on(PacedPart::Register, Box::new(leave)),
                        CallKind::Append | CallKind::Other => leave(state),
                    }
                }
            });
            match outcome.await {
                Ok(outcome) => outcome,
                // Only a dead process's calls are forgotten: it never learns anything any more.
                Err(_) => pending().await,
            }
        }
        .boxed()
    }
}

#[bus::async_trait]
impl Log for Handle {
    fn lanes(&self) -> u8 {
        self.lanes
    }

    async fn append(&self, lane: Lane, record: Bytes) -> Result<u64, BusError> {
        self.call(CallKind::Append, move |state, link| {
            let seq = state.append(link, lane, record.clone())?;
            if state.happens(state.network.append_twice) {
                state.reached(Point::AppendDuplicated);
                // The client's own repetition of what it had no answer for: the second is the one that is answered.
                return state.append(link, lane, record);
            }
            Ok(seq)
        })
        .await
    }

    async fn read(&self, lane: Lane, from_seq: u64) -> Result<LogStream, BusError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.call(CallKind::Other, move |state, link| state.read_log(link, lane, from_seq, sender)).await?;
        Ok(until_error(incoming(receiver)))
    }

    async fn last_seq(&self, lane: Lane) -> Result<u64, BusError> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.lane(lane)?.last_seq())).await
    }

    async fn record(&self, lane: Lane, seq: u64) -> Result<Option<LogRecord>, BusError> {
        self.call(CallKind::Other, move |state, _| {
            let first = state.broker.lane(lane)?.from(seq).first().cloned();
            Ok(first.filter(|record| record.seq == seq))
        })
        .await
    }

    async fn trim(&self, lane: Lane, below_seq: u64) -> Result<(), BusError> {
        self.call(CallKind::Other, move |state, _| {
            if state.broker.lane(lane)?.trim(below_seq) {
                state.reached(Point::LogTrimmed);
            }
            Ok(())
        })
        .await
    }

    async fn trimmed(&self, lane: Lane) -> Result<u64, BusError> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.lane(lane)?.trimmed)).await
    }
}

#[bus::async_trait]
impl Register for Handle {
    async fn write(&self, key: RegisterKey, value: Bytes) -> Result<Registered, BusError> {
        self.call(CallKind::Register, move |state, _| {
            let now = state.now();
            let is_award = matches!(key, RegisterKey::Award(..) | RegisterKey::AwardEnd(..));
            if is_award && state.happens(state.network.register_foreign) {
                state.broker.register_foreign(&key, now);
            }
            let registered = state.broker.register(key, value, now);
            match registered {
                Registered::Written => {}
                Registered::Same => state.reached(Point::RegisterSame),
                Registered::Different(_) => state.reached(Point::RegisterRefused),
            }
            Ok(registered)
        })
        .await
    }

    async fn value(&self, key: RegisterKey) -> Result<Option<Bytes>, BusError> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.registered(&key))).await
    }

    async fn entries(&self) -> Result<Vec<(RegisterKey, Bytes)>, BusError> {
        self.call(CallKind::Other, |state, _| Ok(state.broker.standing().map(|(_, entry)| entry.clone()).collect()))
            .await
    }

    async fn entries_from(&self, seq: u64, max: usize) -> Result<Vec<StandingEntry>, BusError> {
        self.call(CallKind::Other, move |state, _| {
            let standing = state.broker.standing().filter(|(standing, _)| *standing >= seq).take(max);
            let entry = |(seq, (key, value)): (u64, &(RegisterKey, Bytes))| {
                let written_at = state.broker.written_at(seq);
                StandingEntry { key: key.clone(), value: value.clone(), seq, written_at }
            };
            Ok(standing.map(entry).collect())
        })
        .await
    }

    async fn remove(&self, key: RegisterKey, seq: u64) -> Result<(), BusError> {
        self.call(CallKind::Other, move |state, _| {
            if state.broker.remove(&key, seq) {
                state.reached(Point::RegisterExpired);
            }
            Ok(())
        })
        .await
    }

    async fn size(&self) -> Result<RegisterSize, BusError> {
        self.call(CallKind::Other, |state, _| {
            let bytes = state.broker.standing().map(|(_, (_, value))| value.len() as u64).sum();
            Ok(RegisterSize { entries: state.broker.standing().count() as u64, bytes })
        })
        .await
    }
}

#[bus::async_trait]
impl KeyValue for Handle {
    async fn put(&self, bucket: Bucket, key: String, value: Bytes) -> Result<(), BusError> {
        self.call(CallKind::Other, move |state, _| {
            state.put(bucket, &key, Some(value));
            Ok(())
        })
        .await
    }

    async fn create(&self, bucket: Bucket, key: String, value: Bytes) -> Result<bool, BusError> {
        self.call(CallKind::Other, move |state, _| {
            let is_new = !state.broker.bucket(bucket).contains_key(&key);
            if is_new {
                state.put(bucket, &key, Some(value));
            }
            Ok(is_new)
        })
        .await
    }

    async fn value(&self, bucket: Bucket, key: String) -> Result<Option<Bytes>, BusError> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.bucket(bucket).get(&key).cloned())).await
    }

    async fn delete(&self, bucket: Bucket, key: String) -> Result<bool, BusError> {
        self.call(CallKind::Other, move |state, _| {
            let has_value = state.broker.bucket(bucket).contains_key(&key);
            if has_value {
                state.put(bucket, &key, None);
            }
            Ok(has_value)
        })
        .await
    }

    async fn watch(&self, bucket: Bucket) -> Result<BoxStream<'static, Change>, BusError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let watch = move |state: &mut WorldState, link| {
            state.watch(link, bucket, sender);
            Ok(())
        };
        self.call(CallKind::Other, watch).await?;
        Ok(incoming(receiver))
    }
}

#[bus::async_trait]
impl Blobs for Handle {
    async fn put(&self, name: String, version: u64, value: Bytes) -> Result<bool, BusError> {
        self.call(CallKind::Other, move |state, _| {
            if state.broker.blobs.get(&name).is_some_and(|(standing, _)| *standing > version) {
                return Ok(false);
            }
            if name.starts_with(CHECKPOINT) {
                state.reached(Point::CheckpointStored);
            }
            if state.broker.store_blob(name, version, value) {
                state.reached(Point::LedgerStored);
            }
            Ok(true)
        })
        .await
    }

    async fn value(&self, name: String) -> Result<Option<Bytes>, BusError> {
        self.call(CallKind::Other, move |state, _| {
            let value = state.broker.blobs.get(&name).map(|(_, value)| value.clone());
            if name.starts_with(CHECKPOINT) && value.as_ref().is_some_and(|value| state.broker.names_refused(value)) {
                state.reached(Point::CheckpointRefused);
            }
            Ok(value)
        })
        .await
    }

    async fn version(&self, name: String) -> Result<Option<u64>, BusError> {
        self.call(CallKind::Other, move |state, _| Ok(state.broker.blobs.get(&name).map(|(version, _)| *version))).await
    }
}

#[bus::async_trait]
impl PubSub for Handle {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        let message = Received { subject, reply: None, token: None, payload };
        let (handed_over, outcome) = oneshot::channel();
        let link = self.link;
        self.change(|state| {
            if state.depart(link) {
                post(state, link, message, handed_over);
            }
        });
        match outcome.await {
            Ok(()) => Ok(()),
            Err(_) => pending().await,
        }
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let subscribe = move |state: &mut WorldState, link| {
            let subscription = Subscription { link, pattern: subject, queue, sender, last_at_us: 0 };
            state.broker.subscriptions.push(subscription);
            Ok(())
        };
        self.call(CallKind::Other, subscribe).await?;
        Ok(incoming(receiver))
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let named = subject.clone();
        let ask = move |state: &mut WorldState, link| {
            state.broker.requests += 1;
            let reply = format!("_INBOX.{}", state.broker.requests);
            let subscription = Subscription { link, pattern: reply.clone(), queue: None, sender, last_at_us: 0 };
            let message = Received { subject, reply: Some(reply), token, payload };
            if !state.route(link, &message) {
                return Err(BusError::NoResponder(named));
            }
            state.broker.subscriptions.push(subscription);
            Ok(())
        };
        let asking = async {
            // A request is published, not called: nobody says that it arrived.
            let asked = self.call(CallKind::Other, ask).await;
            match asked {
                Err(error @ BusError::NoResponder(_)) => Err(error),
                Ok(()) | Err(_) => {
                    incoming(receiver).next().await.map_or_else(|| Err(BusError::Closed), |answer| Ok(answer.payload))
                }
            }
        };
        match tokio::time::timeout(timeout, asking).await {
            Ok(outcome) => outcome,
            Err(_) => Err(BusError::Unknown(format!("no answer within {timeout:?}"))),
        }
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.call(CallKind::Other, |_, _| Ok(())).await
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// The request reaches the broker.
fn reach<T: Send + 'static>(
    state: &mut WorldState,
    link: LinkId,
    call: CallKind,
    effect: impl FnOnce(&mut WorldState, LinkId) -> Result<T, BusError>,
    answer: AnswerSender<T>,
) {
    if state.is_cut(link) || state.happens(state.network.request_lost) {
        state.reached(Point::RequestLost);
        return give_up(state, link, answer);
    }
    let outcome = effect(state, link);
    if state.is_dead(link) {
        match call {
            CallKind::Append if outcome.is_ok() => state.reached(Point::CrashAfterAppend),
            CallKind::Register if outcome.is_ok() => state.reached(Point::CrashAfterRegister),
            CallKind::Append | CallKind::Register | CallKind::Other => {}
        }
        return;
    }
    if state.broker_faults.is_mute || state.happens(state.network.answer_lost) {
        state.reached(Point::AnswerLost);
        if call == CallKind::Append && outcome.is_ok() {
            state.reached(Point::AppendStoredUnknown);
        }
        return give_up(state, link, answer);
    }
    let latency_us = state.latency_us();
    let come_back = move |state: &mut WorldState| {
        if state.is_cut(link) {
            return give_up(state, link, answer);
        }
        state.arrive(link, Box::new(move |_| drop(answer.send(outcome))));
    };
    state.after(latency_us, Box::new(come_back));
}

/// No answer comes; the caller learns it when its patience ends.
fn give_up<T: Send + 'static>(state: &mut WorldState, link: LinkId, answer: AnswerSender<T>) {
    let learn = move |_: &mut WorldState| drop(answer.send(Err(BusError::Unknown("no answer in time".to_owned()))));
    let timeout_us = state.network.timeout_us;
    state.after(timeout_us, Box::new(move |state| state.arrive(link, Box::new(learn))));
}

/// A stream of what arrives. A process that is dead never hears that its stream ended.
fn incoming<T: Send + 'static>(receiver: UnboundedReceiver<T>) -> BoxStream<'static, T> {
    let next = |mut receiver: UnboundedReceiver<T>| async move {
        match receiver.recv().await {
            Some(item) => Some((item, receiver)),
            None => pending().await,
        }
    };
    stream::unfold(receiver, next).boxed()
}

/// A process hands a message over, which waits for nothing but a process that stands still; it is routed when it reaches the broker, if it does.
fn post(state: &mut WorldState, link: LinkId, message: Received, handed_over: oneshot::Sender<()>) {
    observe_posted(state, link, &message);
    let route = move |state: &mut WorldState| {
        if state.is_cut(link) {
            state.reached(Point::MessageLost);
        } else {
            state.route(link, &message);
        }
    };
    if state.is_stalled(link) {
        let leave = move |state: &mut WorldState| {
            let _ = handed_over.send(());
            route(state);
        };
        state.send(link, Box::new(leave));
    } else {
        let leave = move |state: &mut WorldState| {
            let _ = handed_over.send(());
            state.send(link, Box::new(route));
        };
        match state.role(link) {
            ProcessRole::Engine => state.once_worked_on(PacedPart::Deliveries, Box::new(leave)),
            ProcessRole::Gateway | ProcessRole::Agent => leave(state),
        }
    }
}

/// Notes what a process hands to the bus, whether or not it arrives.
fn observe_posted(state: &mut WorldState, from: LinkId, message: &Received) {
    let Received { subject, payload, .. } = message;
    match state.role(from) {
        ProcessRole::Gateway if matches(subject::ALL_COLLECTED_ACKS, subject) => {
            let acks = decode_collected(payload).unwrap_or_default();
            if acks.len() > 1 {
                state.reached(Point::AcksTogether);
            }
            state.note_acks(from, AckEventKind::Passed(acks));
        }
        ProcessRole::Engine => {
            let owns = |id: &DeliveryId| state.watcher.owner(id.lane()) == Some(state.name(from));
            let sent: Vec<AgentAcks> = documents(subject, payload)
                .map(|(agent, documents)| (agent, delivery_ids(documents).filter(owns).collect()))
                .collect();
            sent.into_iter().for_each(|sent| state.note_acks(from, AckEventKind::Sent(sent)));
        }
        ProcessRole::Gateway | ProcessRole::Agent => {}
    }
}

/// The deliveries of a message by agent, whether they go to an inbox or to a gateway.
fn documents<'a>(subject: &str, payload: &'a [u8]) -> impl Iterator<Item = (AgentId, &'a [u8])> {
    let inbox = matches(subject::ALL_INBOXES, subject).then(|| subject::agent_of(subject)).flatten();
    let lines = subject::is_gateway_deliveries(subject).then(|| routed::lines(payload).flatten());
    let routed = lines.into_iter().flatten();
    let read = |(agent, document)| Some((AgentId::try_new(agent).ok()?, document));
    inbox.map(|agent| (agent, payload)).into_iter().chain(routed.filter_map(read))
}

/// Ends behind the first error.
fn until_error(records: BoxStream<'static, Result<LogRecord, BusError>>) -> LogStream {
    let next = |(mut records, is_over): (LogStream, bool)| async move {
        if is_over {
            return None;
        }
        let record = records.next().await?;
        let is_over = record.is_err();
        Some((record, (records, is_over)))
    };
    stream::unfold((records, false), next).boxed()
}
