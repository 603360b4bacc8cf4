//! Faults to order, on top of any transport: for tests, and for showing that the exchange stands them.
//!
//! Which message meets which fault depends only on the seed and the message's place among those of its connection's
//! agent, so a run with one agent repeats exactly.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::delivery::Delivery;
use schemas::{AgentId, DeliveryId};

use super::{Connection, InboxMessage, SendReply, Transport, TransportError, Uplink};
use crate::identity::Identity;

/// Deliveries whose dropped acknowledgements are counted; a longer run starts counting anew.
const DELIVERIES_COUNTED_MAX: usize = 1_000_000;
/// Repeated sends under way at a time; beyond them a message is not repeated.
const REPEATS_MAX: usize = 1024;
/// Direction of deliveries: its draws are its own.
const IN: u64 = 1;
/// Direction of messages.
const OUT: u64 = 2;

/// Which faults, how often. Chances are per message, 0 to 1.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Fixes every draw.
    pub seed: u64,
    /// The first so many acknowledgements of each delivery are dropped.
    pub drop_acks: u32,
    /// A message is sent a second time, later.
    pub duplicate_sends: f64,
    /// A message is held back, so that later ones of other negotiations overtake it.
    pub hold_sends: f64,
    /// A message arrives, but its answer is lost.
    pub lose_answers: f64,
    /// A delivery is heard twice.
    pub duplicate_deliveries: f64,
    /// The deliveries that arrive together are heard in another order.
    pub shuffle_deliveries: bool,
    /// Longest time a message is held back, or repeated after, in milliseconds.
    pub hold_ms_max: u64,
}

/// A transport with faults. Clones share their counters.
#[derive(Clone)]
pub struct FaultyTransport {
    inner: Arc<dyn Transport>,
    faults: Arc<Faults>,
    repeats: Arc<tokio::sync::Semaphore>,
}

impl FaultyTransport {
    /// Puts faults on a transport.
    #[must_use]
    pub fn new(inner: impl Transport + 'static, faults: Faults) -> Self {
        let repeats = Arc::new(tokio::sync::Semaphore::new(REPEATS_MAX));
        Self { inner: Arc::new(inner), faults: Arc::new(faults), repeats }
    }
}

impl Transport for FaultyTransport {
    fn connect<'a>(&'a self, identity: &'a Identity) -> BoxFuture<'a, Result<Connection, TransportError>> {
        async move {
            let Connection { link, inbox } = self.inner.connect(identity).await?;
            let faults = Arc::clone(&self.faults);
            let mut draws = rng(&faults, &identity.agent, IN);
            let inbox = inbox.map(move |message| disturb(&faults, &mut draws, message)).boxed();
            let link = FaultyUplink {
                inner: link,
                faults: Arc::clone(&self.faults),
                repeats: Arc::clone(&self.repeats),
                state: Mutex::new(LinkState {
                    draws: rng(&self.faults, &identity.agent, OUT),
                    dropped_by_delivery: HashMap::new(),
                }),
            };
            Ok(Connection { link: Arc::new(link), inbox })
        }
        .boxed()
    }
}

fn rng(faults: &Faults, agent: &AgentId, direction: u64) -> ChaCha12Rng {
    let name = retry::hash(agent.as_str(), direction);
    ChaCha12Rng::seed_from_u64(faults.seed ^ name)
}

/// Whether a chance comes true; chances outside 0..=1 are read as the nearest of the two.
fn comes_true(draws: &mut ChaCha12Rng, chance: f64) -> bool {
    draws.random::<f64>() < chance
}

fn disturb(faults: &Faults, draws: &mut ChaCha12Rng, mut message: InboxMessage) -> InboxMessage {
    let mut repeats: Vec<Delivery> =
        message.deliveries.iter().filter(|_| comes_true(draws, faults.duplicate_deliveries)).cloned().collect();
    message.deliveries.append(&mut repeats);
    if faults.shuffle_deliveries {
        // Fisher and Yates.
        for last in (1..message.deliveries.len()).rev() {
            message.deliveries.swap(last, draws.random_range(0..=last));
        }
    }
    message
}

struct FaultyUplink {
    inner: Arc<dyn Uplink>,
    faults: Arc<Faults>,
    repeats: Arc<tokio::sync::Semaphore>,
    state: Mutex<LinkState>,
}

struct LinkState {
    draws: ChaCha12Rng,
    dropped_by_delivery: HashMap<DeliveryId, u32>,
}

/// What happens to one message.
struct Fate {
    held: Duration,
    repeated_after: Option<Duration>,
    is_answer_lost: bool,
}

impl FaultyUplink {
    /// Every draw is made whether or not it matters, so that faults do not shift each other.
    fn fate(&self) -> Fate {
        let mut state = self.state.lock();
        let draws = &mut state.draws;
        let faults = &self.faults;
        let is_held = comes_true(draws, faults.hold_sends);
        let is_repeated = comes_true(draws, faults.duplicate_sends);
        let is_answer_lost = comes_true(draws, faults.lose_answers);
        let mut hold = || Duration::from_millis(draws.random_range(0..=faults.hold_ms_max));
        let (held, repeated_after) = (hold(), hold());
        Fate {
            held: if is_held { held } else { Duration::ZERO },
            repeated_after: is_repeated.then_some(repeated_after),
            is_answer_lost,
        }
    }

    /// Takes out the deliveries whose acknowledgement is to be lost this time.
    fn surviving(&self, mut deliveries: Vec<DeliveryId>) -> Vec<DeliveryId> {
        let mut state = self.state.lock();
        if state.dropped_by_delivery.len() >= DELIVERIES_COUNTED_MAX {
            state.dropped_by_delivery.clear();
        }
        deliveries.retain(|&id| {
            let dropped = state.dropped_by_delivery.entry(id).or_default();
            let survives = *dropped >= self.faults.drop_acks;
            *dropped = dropped.saturating_add(1);
            survives
        });
        deliveries
    }
}

impl Uplink for FaultyUplink {
    fn send(&self, document: Bytes) -> BoxFuture<'static, SendReply> {
        let Fate { held, repeated_after, is_answer_lost } = self.fate();
        let inner = Arc::clone(&self.inner);
        if let Some(after) = repeated_after
            && let Ok(permit) = Arc::clone(&self.repeats).try_acquire_owned()
        {
            let (inner, document) = (Arc::clone(&inner), document.clone());
            tokio::spawn(async move {
                tokio::time::sleep(held + after).await;
                inner.send(document).await;
                drop(permit);
            });
        }
        async move {
            if !held.is_zero() {
                tokio::time::sleep(held).await;
            }
            let answer = inner.send(document).await;
            if is_answer_lost { SendReply::Unknown("the answer was lost, as ordered".to_owned()) } else { answer }
        }
        .boxed()
    }

    fn ack(&self, deliveries: Vec<DeliveryId>) -> BoxFuture<'static, Result<(), TransportError>> {
        let surviving = self.surviving(deliveries);
        if surviving.is_empty() { std::future::ready(Ok(())).boxed() } else { self.inner.ack(surviving) }
    }

    fn acks_with_documents(&self) -> bool {
        self.inner.acks_with_documents()
    }
}
