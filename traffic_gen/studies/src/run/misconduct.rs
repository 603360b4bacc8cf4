//! Contractors that misbehave on the wire: they send envelopes twice, send malformed ones, or far too many. What they negotiate
//! is as scripted; a [`MisconductTransport`] puts the rest beside it, and counts what came of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agents::Identity;
use agents::transport::{Connection, InboxMessage, SendReply, Transport, TransportError, Uplink};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::delivery::{Disposition, Receipt};
use schemas::{DeliveryId, MsgId};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::plan::Misconduct;
use crate::record::MisconductRecord;

/// Envelopes of one agent under way at a time besides its own; beyond them none leaves.
const EXTRA_MAX: usize = 1024;
/// Begins the ids of what is sent besides the agent's own.
const EXTRA: &str = "extra-";

/// What is sent besides an agent's own messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Extra {
    /// A message of its own again, under the same id.
    Duplicate,
    /// Half a document.
    NotJson,
    /// A member that the schema does not know.
    WrongSchema,
    /// A message in a negotiation that nobody opened.
    UnknownNegotiation,
    /// An act that only the exchange sends.
    WrongAct,
    /// Its latest message, under another id.
    Flood,
}

/// Malformed envelopes, in the order in which they are sent.
const MALFORMED: [Extra; 4] = [Extra::NotJson, Extra::WrongSchema, Extra::UnknownNegotiation, Extra::WrongAct];

/// What the members of one population sent besides their own messages, by kind.
#[derive(Clone, Default)]
pub struct MisconductCounts(Arc<Mutex<BTreeMap<&'static str, MisconductRecord>>>);

impl MisconductCounts {
    /// The counts so far, by kind.
    pub fn records(&self) -> BTreeMap<String, MisconductRecord> {
        self.0.lock().iter().map(|(kind, record)| ((*kind).to_owned(), record.clone())).collect()
    }

    fn sent(&self, extra: Extra) {
        self.0.lock().entry(extra.into()).or_default().sent += 1;
    }

    fn answered(&self, extra: Extra, reply: &SendReply) {
        let answer = match reply {
            SendReply::Accepted(_) => "accepted",
            SendReply::Refused(refusal) => refusal.code.as_str(),
            SendReply::Unknown(_) => "unanswered",
        };
        *self.0.lock().entry(extra.into()).or_default().answers.entry(answer.to_owned()).or_default() += 1;
    }

    fn disposed(&self, extra: Extra, disposition: Disposition) {
        let mut counts = self.0.lock();
        let dispositions = &mut counts.entry(extra.into()).or_default().dispositions;
        *dispositions.entry(disposition.as_str().to_owned()).or_default() += 1;
    }
}

/// When floods begin and end, for every contractor of a cell: while its calls arrive.
#[derive(Clone)]
pub struct FloodSpan {
    /// Cancelled when they begin.
    pub begins: CancellationToken,
    /// Cancelled when they end.
    pub ends: CancellationToken,
}

/// A transport beside whose messages others leave.
pub struct MisconductTransport<T> {
    inner: T,
    misconduct: Misconduct,
    /// Envelopes a second of the flood.
    flood_rate: f64,
    seed: u64,
    counts: MisconductCounts,
    span: FloodSpan,
    /// Numbers what is sent, over all connections.
    next: Arc<AtomicU64>,
}

impl<T: Transport> MisconductTransport<T> {
    /// Misbehaves over this transport; `rate` is how often those who do not send in a second.
    pub fn new(
        inner: T,
        misconduct: Misconduct,
        (rate, seed): (f64, u64),
        counts: MisconductCounts,
        span: FloodSpan,
    ) -> Self {
        let flood_rate = rate * misconduct.rate_factor;
        Self { inner, misconduct, flood_rate, seed, counts, span, next: Arc::default() }
    }
}

impl<T: Transport> Transport for MisconductTransport<T> {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let Connection { link, inbox } = self.inner.connect(identity).await?;
            let counts = self.counts.clone();
            let inbox = inbox.inspect(move |message| count_receipts(&counts, message)).boxed();
            let sender = ExtraSender {
                link: Arc::clone(&link),
                counts: self.counts.clone(),
                next: Arc::clone(&self.next),
                under_way: Arc::new(Semaphore::new(EXTRA_MAX)),
                latest: Arc::default(),
            };
            let ends = self.span.ends.child_token();
            if self.misconduct.rate_factor > 0.0 {
                let (sender, period) = (sender.clone(), Duration::from_secs_f64(1.0 / self.flood_rate));
                let begins = self.span.begins.clone();
                let flooding = async move {
                    begins.cancelled().await;
                    sender.flood(period).await;
                };
                tokio::spawn(ends.clone().run_until_cancelled_owned(flooding));
            }
            let draws = retry::hash(identity.agent.as_str(), self.seed);
            let link = MisconductUplink {
                inner: link,
                misconduct: self.misconduct,
                sender,
                draws: Mutex::new(ExtraDraws { random: ChaCha12Rng::seed_from_u64(draws), malformed: 0 }),
                _ends: ends.drop_guard(),
            };
            Ok(Connection { link: Arc::new(link), inbox })
        }
        .boxed()
    }
}

fn count_receipts(counts: &MisconductCounts, message: &InboxMessage) {
    for receipt in message.deliveries.iter().flat_map(|delivery| delivery.receipts_told()) {
        if let Some(extra) = extra_of(receipt) {
            counts.disposed(extra, receipt.disposition);
        }
    }
}

/// What a receipt is for, if it is for no message of the agent's own.
fn extra_of(receipt: &Receipt) -> Option<Extra> {
    if receipt.disposition == Disposition::Duplicate {
        return Some(Extra::Duplicate);
    }
    let kind = receipt.ack_of.as_str().strip_prefix(EXTRA)?.split('-').next()?;
    let mut kinds = MALFORMED.into_iter().chain([Extra::Flood]);
    kinds.find(|extra| <&str>::from(*extra).replace('_', "") == kind)
}

/// Sends what is sent besides an agent's own messages.
#[derive(Clone)]
struct ExtraSender {
    link: Arc<dyn Uplink>,
    counts: MisconductCounts,
    next: Arc<AtomicU64>,
    under_way: Arc<Semaphore>,
    /// The agent's latest message.
    latest: Arc<Mutex<Option<Bytes>>>,
}

impl ExtraSender {
    /// Sends a document beside everything else, unless too many are under way.
    fn send(&self, extra: Extra, document: Bytes) {
        let Ok(permit) = Arc::clone(&self.under_way).try_acquire_owned() else { return };
        self.counts.sent(extra);
        let (sending, counts) = (self.link.send(document), self.counts.clone());
        tokio::spawn(async move {
            counts.answered(extra, &sending.await);
            drop(permit);
        });
    }

    /// Sends what a message of the agent's own makes of this kind.
    fn send_of(&self, extra: Extra, own: &Bytes) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(document) = made_of(extra, own, number) {
            self.send(extra, document);
        }
    }

    /// Sends the latest message over and over, at a rate that does not wait for answers.
    async fn flood(self, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            ticks.tick().await;
            let latest = self.latest.lock().clone();
            if let Some(latest) = latest {
                self.send_of(Extra::Flood, &latest);
            }
        }
    }
}

/// A document of this kind; none where the agent's own is not what is expected of one.
fn made_of(extra: Extra, own: &Bytes, number: u64) -> Option<Bytes> {
    if extra == Extra::NotJson {
        return Some(own.slice(..own.len() / 2));
    }
    let mut document: Value = serde_json::from_slice(own).ok()?;
    let kind = <&str>::from(extra).replace('_', "");
    let id = MsgId::try_new(&format!("{EXTRA}{kind}-{number}")).ok()?;
    let envelope = document.get_mut("envelope")?.as_object_mut()?;
    envelope.insert("msg_id".into(), id.as_str().into());
    // One that is higher than that of the agent's next message would make that one stale. Without one these are.
    envelope.remove("seq");
    match extra {
        Extra::WrongSchema => {
            envelope.insert("urgent".into(), true.into());
        }
        Extra::UnknownNegotiation => {
            let initiator = envelope.get("negotiation")?.as_str()?.split_once('~')?.0.to_owned();
            envelope.insert("negotiation".into(), format!("{initiator}~nobody-opened-{number}").into());
        }
        Extra::WrongAct => {
            *document.get_mut("payload")? = json!({"act": "closed"});
        }
        Extra::Duplicate | Extra::NotJson | Extra::Flood => {}
    }
    serde_json::to_vec(&document).ok().map(Bytes::from)
}

struct MisconductUplink {
    inner: Arc<dyn Uplink>,
    misconduct: Misconduct,
    sender: ExtraSender,
    draws: Mutex<ExtraDraws>,
    /// Ends the flood with the connection.
    _ends: DropGuard,
}

struct ExtraDraws {
    random: ChaCha12Rng,
    malformed: usize,
}

impl ExtraDraws {
    /// What leaves beside a message. Every draw is made whether or not it matters.
    fn extras(&mut self, misconduct: Misconduct) -> impl Iterator<Item = Extra> + use<> {
        let is_duplicate = self.random.random::<f64>() < misconduct.duplicate;
        let is_malformed = self.random.random::<f64>() < misconduct.malformed;
        let malformed = is_malformed.then(|| MALFORMED[self.malformed % MALFORMED.len()]);
        self.malformed += usize::from(is_malformed);
        is_duplicate.then_some(Extra::Duplicate).into_iter().chain(malformed)
    }
}

impl Uplink for MisconductUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        *self.sender.latest.lock() = Some(document.clone());
        let own = self.inner.send(document.clone());
        let extras = self.draws.lock().extras(self.misconduct);
        for extra in extras {
            match extra {
                Extra::Duplicate => self.sender.send(extra, document.clone()),
                Extra::NotJson | Extra::WrongSchema | Extra::UnknownNegotiation | Extra::WrongAct | Extra::Flood => {
                    self.sender.send_of(extra, &document);
                }
            }
        }
        own
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        self.inner.ack(deliveries)
    }

    fn acks_with_documents(&self) -> bool {
        self.inner.acks_with_documents()
    }
}
