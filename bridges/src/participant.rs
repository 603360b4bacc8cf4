//! One agent as a bridge has it: its connection to the exchange, what it has heard, how it speaks.
//!
//! Deliveries are acknowledged as they arrive, so that the exchange does not give a call up while a model thinks; awards,
//! results and ends of negotiations the agent called only once a client was told them. An award of the terms last offered here is
//! confirmed at once.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agents::Identity;
use agents::transport::{Accepted, SendReply, Transport, TransportError, Uplink, can_pass, is_of_token};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use retry::{Backoff, draw};
use schemas::delivery::{Award, Delivery, Disposition, Notification, Outcome, ProgressReport};
use schemas::{Code, NegotiationId, Refusal};
use serde_json::{Map, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ToolFault;
use crate::memory::{Item, Memory};
use crate::tools::message::{self, Limits, Message};

/// Calls of tools that wait for news, of one agent.
const WAITS_MAX: usize = 8;
/// How long a message may go unanswered by the gateways before its outcome is called unknown.
const SEND_MAX: Duration = Duration::from_secs(15);
/// Attempts to confirm an award, each of [`SEND_MAX`]: as long as the longest policy waits.
const CONFIRMS_MAX: u32 = 8;
/// How long an act waits for its receipt.
const RECEIPT_MAX: Duration = Duration::from_secs(2);
/// How long an end that a view shows is waited for.
const REDELIVERY_MAX: Duration = Duration::from_secs(2);
/// Pause before a message whose outcome is unknown is sent again.
const REPEAT_PAUSE: Duration = Duration::from_millis(200);
/// How often what is due is looked for.
const TICK: Duration = Duration::from_millis(500);
/// Pauses between attempts to connect.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(200), max: Duration::from_secs(5), jitter: 0.5 };

/// The state of the connection.
#[derive(Clone, Default)]
struct Link {
    up: Option<Arc<dyn Uplink>>,
    /// Why the last attempt to connect failed.
    fault: Option<Refusal>,
}

impl Link {
    fn is_refused(&self) -> bool {
        self.fault.as_ref().is_some_and(|refusal| is_of_token(refusal.code))
    }
}

/// One agent as a bridge has it.
pub struct Participant {
    identity: Identity,
    memory: Mutex<Memory>,
    /// Counts what was heard.
    heard: watch::Sender<u64>,
    link: watch::Sender<Link>,
    waits: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Participant {
    /// Connects as this agent, and goes on until it is closed. `total` counts what all participants of the process keep.
    pub fn open(identity: Identity, transport: Arc<dyn Transport>, total: Arc<AtomicUsize>) -> Arc<Self> {
        let tag = format!("{:08x}", RandomState::new().build_hasher().finish() as u32);
        let memory = Mutex::new(Memory::new(identity.agent.clone(), tag, total));
        let (heard, link) = (watch::Sender::new(0), watch::Sender::new(Link::default()));
        let waits = Arc::new(Semaphore::new(WAITS_MAX));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let participant = Arc::new(Self { identity, memory, heard, link, waits, stop, tasks });
        participant.tasks.spawn(Arc::clone(&participant).drive(transport));
        participant.tasks.close();
        participant
    }

    /// Who it is.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the gateways refuse its token.
    pub fn is_refused(&self) -> bool {
        self.link.borrow().is_refused()
    }

    /// Ends the connection. What was not handed to a client is not acknowledged, and comes again.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }

    /// What it has heard.
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    /// A place among the calls that wait.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when all are taken.
    pub fn wait_place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.waits).try_acquire_owned().map_err(|_| {
            let detail = format!("{WAITS_MAX} calls of this agent wait already");
            Refusal::new(Code::Overloaded, detail).retry_after_ms(1000)
        })
    }

    /// Waits until `is_there` finds something, or the deadline.
    pub async fn wait(&self, deadline: Instant, is_there: impl Fn(&Memory) -> bool) {
        let mut heard = self.heard.subscribe();
        let looking = async {
            while !is_there(&self.memory()) {
                if heard.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = looking => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// Waits once until the end of a negotiation is heard, and of so many awards, since a view shows this `outcome`: they are on
    /// their way, or come again, in no order, to whoever has just connected.
    pub async fn wait_for_end(&self, negotiation: &NegotiationId, outcome: Outcome, awards: usize) {
        let deadline = self.memory().end_by(negotiation, Instant::now() + REDELIVERY_MAX);
        let is_awarded =
            |item: &&Item| matches!(&item.delivery.payload, Notification::Inform(ProgressReport::Awarded(_)));
        let is_told = |memory: &Memory| {
            let has_ended = memory.known(negotiation).is_some_and(|known| known.outcome.is_some());
            has_ended && memory.news(negotiation, 0).filter(is_awarded).count() >= awards
        };
        self.wait(deadline, is_told).await;
        self.memory().ends(negotiation, outcome);
    }

    /// Whether the connection has been ended.
    pub fn is_closed(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Sends a message and waits for what becomes of it. Sent again with the same bytes, it counts once.
    ///
    /// # Errors
    /// What the gateway refuses, what the exchange does not follow, or [`Code::LogUnavailable`] where the outcome is unknown.
    pub async fn send(&self, tool: &str, message: Message) -> Result<Accepted, ToolFault> {
        let (negotiation, id) = (&message.negotiation, &message.id);
        let (because, was_told) = {
            let memory = self.memory();
            (memory.asks_for(negotiation, tool), memory.receipt(negotiation, id).is_some())
        };
        let document = Bytes::from(message.document.to_string());
        let accepted = self.deliver(document, Instant::now() + SEND_MAX).await?;
        self.wait(Instant::now() + RECEIPT_MAX, |memory| memory.receipt(negotiation, id).is_some()).await;
        let mut memory = self.memory();
        let Some((receipt, why)) = memory.receipt(negotiation, id).cloned() else { return Ok(accepted) };
        let disposition = receipt.first.unwrap_or(receipt.disposition);
        if !matches!(disposition, Disposition::Ok | Disposition::Committed | Disposition::Duplicate) {
            return Err(ToolFault::NotFollowed { disposition, why });
        }
        let is_repeat = was_told || receipt.disposition == Disposition::Duplicate;
        if let Some(because) = because.filter(|_| !(message.is_named && is_repeat)) {
            memory.answered(negotiation, because);
            self.heard.send_modify(|count| *count += 1);
        }
        Ok(accepted)
    }

    /// Hands a document to the gateways until one answers.
    async fn deliver(&self, document: Bytes, deadline: Instant) -> Result<Accepted, Refusal> {
        let mut is_unknown = false;
        loop {
            let link = self.connected(deadline).await;
            let link = link.map_err(|refusal| if is_unknown { unknown_outcome() } else { refusal })?;
            let pause = match link.send(document.clone()).await {
                SendReply::Accepted(accepted) => return Ok(accepted),
                SendReply::Refused(refusal) if matches!(refusal.code, Code::LogUnavailable | Code::Overloaded) => {
                    let pause = refusal.retry_after_ms.map_or(REPEAT_PAUSE, Duration::from_millis);
                    if Instant::now() + pause > deadline {
                        return Err(refusal);
                    }
                    pause
                }
                SendReply::Refused(refusal) => return Err(refusal),
                SendReply::Unknown(_) => {
                    is_unknown = true;
                    REPEAT_PAUSE
                }
            };
            if Instant::now() + pause > deadline {
                return Err(unknown_outcome());
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn connected(&self, deadline: Instant) -> Result<Arc<dyn Uplink>, Refusal> {
        let mut link = self.link.subscribe();
        let waiting = link.wait_for(|link| link.up.is_some() || link.is_refused());
        let state = tokio::select! {
            state = waiting => state.map_or_else(|_| Link::default(), |state| state.clone()),
            () = tokio::time::sleep_until(deadline) => self.link.borrow().clone(),
            () = self.stop.cancelled() => Link::default(),
        };
        let absent = || Refusal::new(Code::Unavailable, "no gateway answers; make the same call again");
        state.up.ok_or_else(|| state.fault.unwrap_or_else(absent))
    }

    async fn drive(self: Arc<Self>, transport: Arc<dyn Transport>) {
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let connecting = transport.connect(&self.identity);
            let connected = tokio::select! {
                connected = connecting => connected,
                () = self.stop.cancelled() => break,
            };
            match connected {
                Ok(connection) => {
                    failures = 0;
                    self.link.send_replace(Link { up: Some(Arc::clone(&connection.link)), fault: None });
                    self.listen(connection.link.as_ref(), connection.inbox).await;
                    self.link.send_replace(Link::default());
                }
                Err(error) => {
                    tracing::debug!(agent = %self.identity.agent, %error, "not connected");
                    let fault = match error {
                        TransportError::Refused(refusal) => refusal,
                        TransportError::Unreachable(why) | TransportError::Unusable(why) => {
                            Refusal::new(Code::Unavailable, why)
                        }
                    };
                    self.link.send_replace(Link { up: None, fault: Some(fault) });
                }
            }
            failures += 1;
            let pause = BACKOFF.delay(failures, draw(retry::hash(self.identity.agent.as_str(), u64::from(failures))));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => break,
            }
        }
    }

    /// Takes in what arrives until the connection ends.
    async fn listen(self: &Arc<Self>, link: &dyn Uplink, mut inbox: agents::transport::Inbox) {
        let mut tick = tokio::time::interval(TICK);
        loop {
            let deliveries = tokio::select! {
                message = inbox.next() => match message {
                    Some(message) => message.deliveries,
                    None => return,
                },
                _ = tick.tick() => Vec::new(),
                () = self.stop.cancelled() => return,
            };
            let acknowledged = self.hear(deliveries);
            if !acknowledged.is_empty()
                && let Err(error) = link.ack(acknowledged).await
            {
                tracing::debug!(agent = %self.identity.agent, %error, "an acknowledgement was not sent; the deliveries come again");
            }
        }
    }

    /// Takes deliveries in; those to be acknowledged now.
    fn hear(self: &Arc<Self>, deliveries: Vec<Delivery>) -> Vec<schemas::DeliveryId> {
        let (now, is_news) = (Instant::now(), !deliveries.is_empty());
        let mut memory = self.memory();
        let mut acknowledged = memory.due(now);
        for delivery in deliveries {
            let (id, negotiation) = (delivery.envelope.msg_id, delivery.envelope.negotiation.clone());
            let heard = memory.hear(delivery, now);
            acknowledged.extend(heard.is_acknowledged.then_some(id));
            if let Some(award) = heard.award {
                self.tasks.spawn(Arc::clone(self).confirm(negotiation, award));
            }
        }
        drop(memory);
        if is_news {
            self.heard.send_modify(|count| *count += 1);
        }
        acknowledged
    }

    /// Confirms an award of the terms that were offered here.
    async fn confirm(self: Arc<Self>, negotiation: NegotiationId, award: Award) {
        for _ in 0..CONFIRMS_MAX {
            let arguments = Map::from_iter([
                ("negotiation".to_owned(), json!(negotiation)),
                ("award_no".to_owned(), json!(award.award_no)),
            ]);
            let limits = Limits::default();
            let message = {
                let memory = self.memory();
                message::act(&self.identity.agent, "confirm", arguments, memory.known(&negotiation), &limits)
            };
            let Ok(message) = message else { return };
            let sent = tokio::select! {
                sent = self.send("confirm", message) => sent,
                () = self.stop.cancelled() => return,
            };
            let Err(fault) = sent else { return };
            tracing::warn!(negotiation = negotiation.as_str(), %fault, "an award is not confirmed yet");
            if !matches!(&fault, ToolFault::Refused(refusal) if can_pass(refusal.code)) {
                break;
            }
        }
        self.memory().asks_client(&negotiation);
        self.heard.send_modify(|count| *count += 1);
    }
}

fn unknown_outcome() -> Refusal {
    let detail = "no answer: the message may or may not be in the log; make the same call again, it counts once";
    Refusal::new(Code::LogUnavailable, detail).retry_after_ms(1000)
}
