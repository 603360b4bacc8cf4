//! Running a strategy: connect, hear, act, repeat, acknowledge.

mod clock;
mod connect;
mod delayed;
mod drive;
mod spans;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use schemas::{AgentId, DeliveryId, Refusal, Timestamp};
use telemetry::Tracer;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use crate::identity::{Identity, Token};
use crate::observer::Observer;
use crate::session::SessionLimits;
use crate::strategy::{Action, Strategy};
use crate::transport::{Transport, TransportError};
use drive::Drive;

/// Commands that wait for the agent's loop; a caller beyond them waits.
const COMMANDS_MAX: usize = 1024;

/// Runs a strategy until `cancel` is cancelled or the strategy stops, reconnecting as needed.
///
/// # Errors
/// [`AgentError`] when the exchange refuses the agent or stays out of reach.
pub async fn run(
    transport: impl Transport + 'static,
    agent_id: AgentId,
    token: impl Into<Token>,
    strategy: impl Strategy + 'static,
    cancel: CancellationToken,
) -> Result<Summary, AgentError> {
    let identity = Identity { agent: agent_id, token: token.into() };
    Agent::new(transport, identity, strategy).run(cancel).await
}

/// How an agent runs.
#[derive(Clone)]
pub struct AgentOptions {
    /// Bounds and gaps of the session.
    pub limits: SessionLimits,
    /// Number of this instance of the agent, rising from start to start (absent: the start time in microseconds).
    pub instance: Option<u64>,
    /// Sees everything that goes in and out.
    pub observer: Option<Arc<dyn Observer>>,
    /// Most attempts to connect in a row.
    pub connect_attempts_max: u32,
    /// Most messages waiting for their delay at a time.
    pub delayed_max: usize,
    /// How long the end waits for answers to what was sent.
    pub drain: Duration,
    /// Where spans go.
    pub tracer: Tracer,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            limits: SessionLimits::default(),
            instance: None,
            observer: None,
            // A day at the longest gap (10 s): who comes back later is started again by a person anyway.
            connect_attempts_max: 8640,
            // One waiting message for each of a quarter of a million open negotiations, about 150 MB.
            delayed_max: 262_144,
            // Longer than any healthy append, shorter than a supervisor's patience.
            drain: Duration::from_secs(2),
            tracer: Tracer::off(),
        }
    }
}

impl fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentOptions")
            .field("limits", &self.limits)
            .field("instance", &self.instance)
            .field("is_observed", &self.observer.is_some())
            .field("connect_attempts_max", &self.connect_attempts_max)
            .field("delayed_max", &self.delayed_max)
            .field("drain", &self.drain)
            .field("tracer", &self.tracer)
            .finish()
    }
}

/// What an agent did, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Connections made.
    pub connections: u64,
    /// Deliveries heard for the first time.
    pub deliveries: u64,
    /// Deliveries heard again; they were acknowledged again and not acted upon.
    pub repeats: u64,
    /// Documents in the inbox this build could not read.
    pub unreadable: u64,
    /// Times a message left, repeats included.
    pub transmitted: u64,
    /// Messages in the log.
    pub accepted: u64,
    /// Messages refused.
    pub refused: u64,
    /// Messages nobody answered.
    pub unanswered: u64,
    /// Acknowledgements not sent because too many were under way, or the link failed.
    pub acks_lost: u64,
}

/// Why an agent ended against its will.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    /// The exchange refuses it: get another token.
    #[error("the exchange refuses this agent: {0}")]
    Refused(#[from] Refusal),
    /// The address or token cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The exchange stayed out of reach.
    #[error("no connection after {attempts} attempts: {last}")]
    GaveUp {
        /// Attempts made in a row.
        attempts: u32,
        /// The last error.
        last: TransportError,
    },
    /// The agent's loop has ended (or panicked): it takes no more commands.
    #[error("the agent has ended")]
    Ended,
}

/// A strategy with all it needs to run.
pub struct Agent<S> {
    transport: Arc<dyn Transport>,
    identity: Identity,
    strategy: S,
    options: AgentOptions,
}

/// Runs inside the agent's loop.
type Command<S> = Box<dyn FnOnce(&mut S, Timestamp) -> Vec<Action> + Send>;

impl<S: Strategy + 'static> Agent<S> {
    /// An agent with default options.
    #[must_use]
    pub fn new(transport: impl Transport + 'static, identity: Identity, strategy: S) -> Self {
        Self { transport: Arc::new(transport), identity, strategy, options: AgentOptions::default() }
    }

    /// The same with other options.
    #[must_use]
    pub fn with_options(mut self, options: AgentOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs until `cancel` is cancelled or the strategy stops.
    ///
    /// # Errors
    /// [`AgentError`] when the exchange refuses the agent or stays out of reach.
    pub fn run(self, cancel: CancellationToken) -> BoxFuture<'static, Result<Summary, AgentError>> {
        let (_commands, receiver) = mpsc::channel(1);
        let (is_connected, _) = watch::channel(false);
        // On the heap: the loop's state is large, and callers would carry it in their own futures.
        Drive::new(self, receiver, is_connected, cancel).drive().boxed()
    }

    /// Runs in a task of its own and returns a handle to it.
    #[must_use]
    pub fn spawn(self, cancel: CancellationToken) -> AgentHandle<S> {
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (sender, is_connected) = watch::channel(false);
        let agent = self.identity.agent.clone();
        let drive = Drive::new(self, receiver, sender, cancel.clone());
        AgentHandle { agent, commands, is_connected, cancel, task: tokio::spawn(drive.drive()) }
    }
}

/// A running agent.
pub struct AgentHandle<S> {
    agent: AgentId,
    commands: mpsc::Sender<Command<S>>,
    is_connected: watch::Receiver<bool>,
    cancel: CancellationToken,
    task: JoinHandle<Result<Summary, AgentError>>,
}

impl<S: Strategy + 'static> AgentHandle<S> {
    /// The agent.
    #[must_use]
    pub fn agent(&self) -> &AgentId {
        &self.agent
    }

    /// Waits until the agent is connected and hears its inbox.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when it ends instead; [`AgentHandle::join`] says why.
    pub fn connected(&self) -> impl Future<Output = Result<(), AgentError>> + use<S> {
        let mut is_connected = self.is_connected.clone();
        async move { is_connected.wait_for(|&is_connected| is_connected).await.map(|_| ()).map_err(|_| AgentError::Ended) }
    }

    /// Whether its loop has ended, or panicked.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_connected.has_changed().is_err()
    }

    /// Runs a closure on the strategy, inside the agent's loop and between two deliveries; its actions are carried
    /// out. The time it is given is log time, as far as the agent can tell.
    ///
    /// # Errors
    /// [`AgentError::Ended`] when the loop has ended.
    pub async fn command(
        &self,
        command: impl FnOnce(&mut S, Timestamp) -> Vec<Action> + Send + 'static,
    ) -> Result<(), AgentError> {
        self.commander().command(command).await
    }

    /// Gives commands as this handle does, apart from it.
    #[must_use]
    pub fn commander(&self) -> AgentCommander<S> {
        AgentCommander { commands: self.commands.clone() }
    }

    /// Ends the agent, once what it has sent is answered or the drain time is over.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub async fn shutdown(self) -> Result<Summary, AgentError> {
        self.cancel.cancel();
        self.join().await
    }

    /// Waits until the agent ends by itself.
    ///
    /// # Errors
    /// As [`Agent::run`]; [`AgentError::Ended`] when its loop panicked.
    pub async fn join(self) -> Result<Summary, AgentError> {
        self.task.await.unwrap_or(Err(AgentError::Ended))
    }
}

/// Gives commands to a running agent.
pub struct AgentCommander<S> {
    commands: mpsc::Sender<Command<S>>,
}

impl<S: Strategy + 'static> AgentCommander<S> {
    /// As [`AgentHandle::command`].
    ///
    /// # Errors
    /// [`AgentError::Ended`] when the loop has ended.
    pub async fn command(
        &self,
        command: impl FnOnce(&mut S, Timestamp) -> Vec<Action> + Send + 'static,
    ) -> Result<(), AgentError> {
        self.commands.send(Box::new(command)).await.map_err(|_| AgentError::Ended)
    }

    /// Takes the agent's questions to something slow, `at_once` of them at a time, and hands each answer back, until either end is
    /// gone.
    pub async fn answer_all<Q, A, F: Future<Output = A>>(
        self,
        mut questions: mpsc::Receiver<Q>,
        at_once: usize,
        answer: impl Fn(Q) -> F,
        handle: impl Fn(&mut S, Timestamp, A) -> Vec<Action> + Clone + Send + 'static,
    ) where
        A: Send + 'static,
    {
        let mut asked = FuturesUnordered::new();
        loop {
            tokio::select! {
                question = questions.recv(), if asked.len() < at_once => match question {
                    Some(question) => asked.push(answer(question)),
                    None => return,
                },
                Some(answer) = asked.next(), if !asked.is_empty() => {
                    let handle = handle.clone();
                    if self.command(move |strategy, now| handle(strategy, now, answer)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// Questions of one agent at a time with whatever answers them: an endpoint serves few at once, and the rest would only wait
/// there.
pub const ASKED_MAX: usize = 64;
/// Questions of one agent that wait for one of these to end; further ones are given up at once.
pub const QUESTIONS_MAX: usize = 1024;

/// One timer, armed anew only when the deadline changes.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Alarm {
    fn set(&mut self, at: Option<Instant>) {
        self.is_set = at.is_some();
        if let Some(at) = at
            && (self.sleep.is_elapsed() || self.sleep.deadline() != at)
        {
            self.sleep.as_mut().reset(at);
        }
    }
}

/// Most deliveries acknowledged together: what a gateway takes.
const ACKS_TOGETHER_MAX: usize = 256;
/// Longest an acknowledgement waits for a message, in milliseconds: an eighth of the gap before a repeat.
const ACK_WAIT_MS: u64 = 60;
/// Longest it waits for the answer to its delivery to have room.
const LATE_ACK_WAIT_MS: u64 = 300;

/// Acknowledgements that wait: they leave with the next message, after a while, or when one is full. Fewer than
/// [`ACKS_TOGETHER_MAX`] stay behind [`WaitingAcks::poll`].
#[derive(Debug, Default)]
struct WaitingAcks {
    ids: Vec<DeliveryId>,
    due: Option<Timestamp>,
    /// Of deliveries whose answers wait for room.
    late: Vec<DeliveryId>,
    late_due: Option<Timestamp>,
}

impl WaitingAcks {
    /// A delivery was received, for the first time or again.
    fn handle_delivery(&mut self, now: Timestamp, id: DeliveryId) {
        self.ids.push(id);
        self.due.get_or_insert(now.plus_ms(ACK_WAIT_MS));
    }

    /// The same of one whose answer waits for room: it waits as well, but for less than the gap before a repeat.
    fn handle_late(&mut self, now: Timestamp, id: DeliveryId) {
        self.late.push(id);
        self.late_due.get_or_insert(now.plus_ms(LATE_ACK_WAIT_MS));
    }

    /// Lets those go that waited for answers, if there is room again or they have waited long enough.
    fn release_late(&mut self, now: Timestamp, has_room: bool) {
        if has_room || self.late_due.is_some_and(|due| due <= now) {
            self.due = self.due.or(self.late_due.take().map(|_| now));
            self.ids.append(&mut self.late);
        }
    }

    /// When [`WaitingAcks::release_late`] and [`WaitingAcks::poll`] want to be asked.
    fn poll_timeout(&self) -> Option<Timestamp> {
        self.due.into_iter().chain(self.late_due).min()
    }

    /// What leaves now, in the order it came: a full acknowledgement, and all when something else leaves or the time is
    /// over. Ask until there is none.
    fn poll(&mut self, now: Timestamp, is_leaving: bool) -> Option<Vec<DeliveryId>> {
        let is_due = is_leaving || self.due.is_some_and(|due| due <= now);
        if self.ids.is_empty() || !(is_due || self.ids.len() >= ACKS_TOGETHER_MAX) {
            return None;
        }
        let rest = self.ids.split_off(self.ids.len().min(ACKS_TOGETHER_MAX));
        if rest.is_empty() {
            self.due = None;
        }
        Some(std::mem::replace(&mut self.ids, rest))
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    fn id(number: u32) -> DeliveryId {
        DeliveryId::new(Lane(0), u128::from(number).to_be_bytes())
    }

    fn waiting(numbers: std::ops::Range<u32>, now: Timestamp) -> WaitingAcks {
        let mut acks = WaitingAcks::default();
        numbers.for_each(|number| acks.handle_delivery(now, id(number)));
        acks
    }

    #[test]
    fn an_acknowledgement_waits_60_ms_from_its_first_delivery_or_for_a_message() {
        let begin = Timestamp::from_ms(1000);
        let mut acks = waiting(0..2, begin);
        acks.handle_delivery(begin.plus_ms(15), id(2));
        assert_eq!((acks.poll_timeout(), acks.poll(begin.plus_ms(59), false)), (Some(begin.plus_ms(60)), None));
        assert_eq!(acks.poll(begin.plus_ms(60), false), Some(vec![id(0), id(1), id(2)]));
        assert_eq!((acks.poll_timeout(), acks.poll(begin.plus_ms(99), true)), (None, None));
        let mut acks = waiting(3..4, begin);
        assert_eq!(acks.poll(begin, true), Some(vec![id(3)]));
    }

    #[test]
    fn what_is_answered_late_is_acknowledged_once_there_is_room_or_after_300_ms() {
        let begin = Timestamp::from_ms(1000);
        let mut acks = waiting(0..1, begin);
        acks.handle_late(begin.plus_ms(1), id(1));
        acks.release_late(begin.plus_ms(60), false);
        assert_eq!(acks.poll(begin.plus_ms(60), true), Some(vec![id(0)]));
        assert_eq!(acks.poll_timeout(), Some(begin.plus_ms(301)));
        acks.release_late(begin.plus_ms(301), false);
        assert_eq!(acks.poll(begin.plus_ms(301), false), Some(vec![id(1)]));
        acks.handle_late(begin, id(2));
        acks.release_late(begin.plus_ms(2), true);
        assert_eq!((acks.poll(begin.plus_ms(2), false), acks.poll_timeout()), (Some(vec![id(2)]), None));
    }

    #[test]
    fn a_full_acknowledgement_leaves_at_once_and_what_is_left_when_it_is_due() {
        let begin = Timestamp::from_ms(1000);
        let mut acks = waiting(0..600, begin);
        for first in [0, 256] {
            assert_eq!(acks.poll(begin, false), Some((first..first + 256).map(id).collect()));
        }
        assert_eq!(acks.poll(begin, false), None);
        assert_eq!(acks.poll(begin.plus_ms(60), false), Some((512..600).map(id).collect()));
    }
}
