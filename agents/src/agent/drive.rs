//! The agent's loop: one task owns strategy, session and schedule, and waits in one place for all that can wake it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use schemas::delivery::Delivery;
use schemas::{Code, DeliveryId, Refusal, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Alarm;
use super::clock::AgentClock;
use super::connect::Connector;
use super::delayed::{DelayedMessage, DelayedMessages};
use super::spans::Spans;
use super::{Agent, AgentError, AgentOptions, Command, Summary, WaitingAcks};
use crate::identity::Identity;
use crate::observer::Observed;
use crate::session::{AgentSession, Origin};
use crate::strategy::{Action, Outgoing, SendOutcome, Sent, Strategy};
use crate::transport::{Connection, InboxMessage, SendReply, TransportError, Uplink, can_pass};

/// A connection that is lost sooner counts as a failed attempt, so that one closed at once is not made in a hot loop.
const CONNECTION_LIFE_MIN: Duration = Duration::from_secs(5);
/// Between two lines of one agent about messages that are held back.
const WARNING_PERIOD: Duration = Duration::from_secs(5);

pub(super) struct Drive<S> {
    connector: Connector,
    identity: Identity,
    strategy: S,
    options: AgentOptions,
    session: AgentSession,
    schedule: DelayedMessages,
    acks: WaitingAcks,
    clock: AgentClock,
    alarm: Alarm,
    spans: Spans,
    commands: mpsc::Receiver<Command<S>>,
    has_commands: bool,
    is_connected: watch::Sender<bool>,
    cancel: CancellationToken,
    is_stopping: bool,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Messages there was no room for. They are told to the strategy in a turn of their own, so that one that sends
    /// again at once cannot keep the loop from everything else.
    no_room: Vec<Sent>,
    sends_in_flight: usize,
    acks_in_flight: usize,
    summary: Summary,
    warned_at: Option<Instant>,
}

/// Work that was under way and is done.
enum Done {
    Answered(u64, SendReply),
    Acked(Result<(), TransportError>),
}

/// Why a connection is left.
enum Left {
    Lost,
    Stopped,
}

impl<S: Strategy + 'static> Drive<S> {
    pub(super) fn new(
        agent: Agent<S>,
        commands: mpsc::Receiver<Command<S>>,
        is_connected: watch::Sender<bool>,
        cancel: CancellationToken,
    ) -> Self {
        let Agent { transport, identity, strategy, options } = agent;
        let clock = AgentClock::start();
        let instance = options.instance.unwrap_or(clock.now().0);
        Self {
            session: AgentSession::new(identity.agent.clone(), instance, options.limits.clone()),
            schedule: DelayedMessages::new(options.delayed_max),
            acks: WaitingAcks::default(),
            alarm: Alarm { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), is_set: false },
            spans: Spans::new(options.tracer.clone(), identity.agent.clone()),
            connector: Connector::new(transport, options.connect_attempts_max, cancel.clone()),
            identity,
            strategy,
            options,
            clock,
            commands,
            has_commands: true,
            is_connected,
            cancel,
            is_stopping: false,
            work: FuturesUnordered::new(),
            no_room: Vec::new(),
            sends_in_flight: 0,
            acks_in_flight: 0,
            summary: Summary::default(),
            warned_at: None,
        }
    }

    pub(super) async fn drive(mut self) -> Result<Summary, AgentError> {
        // Attempts in a row that gave no connection, or one that did not last.
        let mut failures = 0;
        while let Some(connection) = self.connector.connect(&self.identity, &mut failures).await? {
            let connected_at = Instant::now();
            self.summary.connections += 1;
            self.observe(Observed::Connected);
            self.is_connected.send_replace(true);
            self.session.handle_connected();
            let left = self.drive_connection(connection).await;
            self.is_connected.send_replace(false);
            self.handle_disconnected();
            self.observe(Observed::Disconnected);
            match left {
                Left::Lost if connected_at.elapsed() >= CONNECTION_LIFE_MIN => failures = 1,
                Left::Lost => failures += 1,
                Left::Stopped => break,
            }
        }
        Ok(self.summary)
    }

    async fn drive_connection(&mut self, connection: Connection) -> Left {
        let Connection { link, mut inbox } = connection;
        loop {
            self.transmit(&*link);
            if self.is_stopping {
                self.drain(&*link).await;
                return Left::Stopped;
            }
            self.alarm.set(self.next_deadline().and_then(|at| self.clock.instant(at)));
            tokio::select! {
                message = inbox.next() => match message {
                    Some(message) => self.handle_inbox(&message),
                    None => return Left::Lost,
                },
                Some(done) = self.work.next(), if !self.work.is_empty() => self.handle_done(done),
                () = std::future::ready(()), if !self.no_room.is_empty() => self.handle_no_room(),
                command = self.commands.recv(), if self.has_commands => match command {
                    Some(command) => {
                        let log_now = self.clock.log_time(self.clock.now());
                        let actions = command(&mut self.strategy, log_now);
                        self.perform(actions, None);
                    }
                    // Nobody holds a handle any more; the agent goes on.
                    None => self.has_commands = false,
                },
                () = &mut self.alarm.sleep, if self.alarm.is_set => self.handle_timers(),
                () = self.cancel.cancelled() => self.is_stopping = true,
            }
        }
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        let strategy = self.strategy.poll_timer().map(|at| self.clock.local_time(at));
        let acks = self.acks.poll_timeout();
        [self.schedule.poll_due(), self.session.poll_timeout(), strategy, acks].into_iter().flatten().min()
    }

    /// Waits for answers to what was sent, a bounded time; the inbox is not read any more.
    async fn drain(&mut self, link: &dyn Uplink) {
        let deadline = Instant::now() + self.options.drain;
        while self.session.unanswered_count() > 0 || !self.work.is_empty() {
            self.transmit(link);
            let retry_at = self.session.poll_timeout().and_then(|at| self.clock.instant(at)).unwrap_or(deadline);
            tokio::select! {
                Some(done) = self.work.next(), if !self.work.is_empty() => self.handle_done(done),
                () = tokio::time::sleep_until(retry_at.min(deadline)) => {}
            }
            if Instant::now() >= deadline {
                return;
            }
            self.session.handle_timeout(self.clock.now());
        }
    }

    /// Takes in what has come back, and gives up what has not: over the next connection it leaves again.
    fn handle_disconnected(&mut self) {
        for _ in 0..self.work.len() {
            let Some(Some(done)) = self.work.next().now_or_never() else { break };
            self.handle_done(done);
        }
        self.work.clear();
        self.summary.acks_lost += self.acks_in_flight as u64;
        (self.sends_in_flight, self.acks_in_flight) = (0, 0);
        let log_now = self.clock.log_time(self.clock.now());
        for sent in self.session.handle_disconnected() {
            self.handle_sent(log_now, &sent, None);
        }
    }

    fn handle_inbox(&mut self, message: &InboxMessage) {
        let (now, received_at) = (self.clock.now(), self.spans.received_at());
        self.summary.unreadable += u64::from(message.unreadable);
        if message.unreadable > 0 {
            let count = message.unreadable;
            tracing::warn!(agent = %self.identity.agent, count, "deliveries of a later version: update this agent");
        }
        for delivery in &message.deliveries {
            let (id, unanswered) = (delivery.envelope.msg_id, self.session.unanswered_count());
            let log_time = delivery.envelope.ts.0;
            self.clock.handle_log_time(now, log_time);
            let is_repeat = !self.session.handle_delivery(delivery.envelope.msg_id);
            self.observe(Observed::Delivered { delivery, is_repeat });
            if is_repeat {
                self.acks.handle_delivery(now, id);
                self.summary.repeats += 1;
                continue;
            }
            self.summary.deliveries += 1;
            for receipt in delivery.receipts_told() {
                if let Some(sent) = self.session.handle_receipt(&receipt.ack_of) {
                    self.handle_sent(log_time, &sent, Some(delivery));
                }
            }
            let actions = self.strategy.handle(log_time, delivery);
            self.perform(actions, Some(delivery));
            // Whoever acknowledges sooner than it answers is sent more than it can answer in time.
            if self.session.unanswered_count() > unanswered.max(SENDS_IN_FLIGHT_MAX) {
                self.acks.handle_late(now, id);
            } else {
                self.acks.handle_delivery(now, id);
            }
            self.spans.processed(delivery, received_at);
        }
    }

    fn handle_done(&mut self, done: Done) {
        let now = self.clock.now();
        match done {
            Done::Answered(number, answer) => {
                self.sends_in_flight -= 1;
                match &answer {
                    SendReply::Accepted(_) => {}
                    SendReply::Refused(refusal) => self.observe_deferral(refusal),
                    SendReply::Unknown(why) => self.observe_deferral(&Refusal::new(Code::LogUnavailable, why)),
                }
                if let Some(sent) = self.session.handle_answer(now, number, answer) {
                    self.handle_sent(self.clock.log_time(now), &sent, None);
                }
            }
            Done::Acked(result) => {
                self.acks_in_flight -= 1;
                self.summary.acks_lost += u64::from(result.is_err());
                if let Err(TransportError::Refused(refusal)) = &result {
                    self.observe_deferral(refusal);
                }
            }
        }
    }

    fn handle_no_room(&mut self) {
        let log_now = self.clock.log_time(self.clock.now());
        for sent in std::mem::take(&mut self.no_room) {
            self.handle_sent(log_now, &sent, None);
        }
    }

    /// Sending a message has ended, perhaps because a delivery told so.
    fn handle_sent(&mut self, log_now: Timestamp, sent: &Sent, cause: Option<&Delivery>) {
        match &sent.outcome {
            SendOutcome::Accepted { .. } => self.summary.accepted += 1,
            SendOutcome::Refused(refusal) => {
                self.summary.refused += 1;
                let Sent { negotiation, act, .. } = sent;
                tracing::debug!(agent = %self.identity.agent, %negotiation, %act, %refusal, "refused");
            }
            SendOutcome::Unanswered => self.summary.unanswered += 1,
        }
        let now = self.clock.now();
        self.spans.sent(sent, now);
        let took = Duration::from_micros(now.since_us(sent.way.written_at));
        self.observe(Observed::Settled { sent, took });
        let actions = self.strategy.handle_sent(log_now, sent);
        self.perform(actions, cause);
    }

    fn handle_timers(&mut self) {
        let now = self.clock.now();
        self.session.handle_timeout(now);
        while let Some(DelayedMessage { outgoing, origin }) = self.schedule.pop_due(now) {
            self.write(now, *outgoing, origin);
        }
        let log_now = self.clock.log_time(now);
        if self.strategy.poll_timer().is_some_and(|at| at <= log_now) {
            let actions = self.strategy.handle_timer(log_now);
            self.perform(actions, None);
        }
    }
}

/// Most messages under way to the gateways at a time, as many as one takes in on a connection of one agent; more wait in the
/// session.
const SENDS_IN_FLIGHT_MAX: usize = 256;
/// Most acknowledgements under way; beyond them none is sent, and the delivery comes again.
const ACKS_IN_FLIGHT_MAX: usize = 1024;

impl<S: Strategy + 'static> Drive<S> {
    /// Does what the strategy asks for; `cause` is the delivery that made it ask, if one did.
    fn perform(&mut self, actions: Vec<Action>, cause: Option<&Delivery>) {
        self.observe_decision(cause, &actions);
        for action in actions {
            match action {
                Action::Send(outgoing) => {
                    let origin = self.spans.origin(&outgoing, cause);
                    if outgoing.delay.is_zero() {
                        self.write(self.clock.now(), *outgoing, origin);
                    } else {
                        self.delay(DelayedMessage { outgoing, origin });
                    }
                }
                Action::Defer => {}
                Action::Unschedule(negotiation) => self.schedule.drop_negotiation(&negotiation),
                Action::Release(negotiation) => {
                    self.schedule.drop_negotiation(&negotiation);
                    self.session.release(&negotiation);
                }
                Action::Stop => self.is_stopping = true,
            }
        }
    }

    /// Tells the observer what was decided, unless nothing was and nothing was asked.
    fn observe_decision(&self, cause: Option<&Delivery>, actions: &[Action]) {
        if cause.is_some() || !actions.is_empty() {
            self.observe(Observed::Decided { cause, actions });
        }
    }

    fn delay(&mut self, planned: DelayedMessage) {
        let now = self.clock.now();
        let delay_us = u64::try_from(planned.outgoing.delay.as_micros()).unwrap_or(u64::MAX);
        let due = Timestamp(now.0.saturating_add(delay_us));
        if let Err(DelayedMessage { outgoing, origin }) = self.schedule.insert(due, planned) {
            let sent = self.session.refuse(now, &outgoing, origin);
            self.no_room.push(sent);
        }
    }

    fn write(&mut self, now: Timestamp, outgoing: Outgoing, origin: Option<Origin>) {
        if let Err(sent) = self.session.write(now, outgoing, origin) {
            self.no_room.push(*sent);
        }
    }

    /// Sends what is ready. Acknowledgements that wait leave with it where that costs nothing, and with the agent's end.
    fn transmit(&mut self, link: &dyn Uplink) {
        let has_sent = self.transmit_messages(link);
        let is_leaving = has_sent && link.acks_with_documents() || self.is_stopping;
        let now = self.clock.now();
        self.acks.release_late(now, self.is_stopping || self.session.unanswered_count() <= SENDS_IN_FLIGHT_MAX);
        while let Some(ids) = self.acks.poll(now, is_leaving) {
            self.acknowledge(link, ids);
        }
    }

    /// Whether there were any.
    fn transmit_messages(&mut self, link: &dyn Uplink) -> bool {
        let before = self.summary.transmitted;
        while self.sends_in_flight < SENDS_IN_FLIGHT_MAX {
            let Some(transmit) = self.session.poll_transmit() else { break };
            self.observe(Observed::Transmitted {
                negotiation: &transmit.negotiation,
                msg_id: &transmit.msg_id,
                act: transmit.act,
                attempt: transmit.attempt,
                document: &transmit.document,
            });
            self.summary.transmitted += 1;
            self.sends_in_flight += 1;
            let number = transmit.number;
            self.work.push(link.send(transmit.document).map(move |answer| Done::Answered(number, answer)).boxed());
        }
        self.summary.transmitted > before
    }

    fn acknowledge(&mut self, link: &dyn Uplink, ids: Vec<DeliveryId>) {
        if self.acks_in_flight >= ACKS_IN_FLIGHT_MAX {
            self.summary.acks_lost += 1;
            return;
        }
        self.acks_in_flight += 1;
        self.work.push(link.ack(ids).map(Done::Acked).boxed());
    }

    /// Shows the observer a refusal that is not final, or that nobody answered. Without an observer it is logged now and then.
    fn observe_deferral(&mut self, refusal: &Refusal) {
        if !can_pass(refusal.code) {
            return;
        }
        self.observe(Observed::Deferred { refusal });
        let is_due = self.warned_at.is_none_or(|warned_at| warned_at.elapsed() >= WARNING_PERIOD);
        if self.options.observer.is_none() && is_due {
            self.warned_at = Some(Instant::now());
            tracing::warn!(agent = %self.identity.agent, "held back or not answered, and sent again: {refusal}");
        }
    }

    fn observe(&self, event: Observed<'_>) {
        if let Some(observer) = &self.options.observer {
            observer.handle(&self.identity.agent, Instant::now(), event);
        }
    }
}
