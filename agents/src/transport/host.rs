//! Several agents of one process, whose deliveries and acknowledgements share messages on the bus.
//!
//! To engines a host is what a gateway is: they send deliveries for its agents, the first time, as one message to
//! `deliver.<host>` ([`schemas::routed`]); the host names its agents on `streams.<host>` and passes on what they acknowledge
//! on `acks.<host>`. Repeats come on each agent's own inbox. So a host needs the rights of a gateway on the bus, which no
//! single agent may have.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::bus::fanout::{AckCollector, Fanout, QUEUE_MAX, QueuePlace, RoutedResult};
use ::bus::{Bus, BusError, Received};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use schemas::delivery::Delivery;
use schemas::{AgentId, DeliveryId, GatewayId, subject};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::InboxMessage;

/// Most deliveries handed to an agent together: as many as one message of its inbox holds.
const TOGETHER_MAX: usize = 256;
/// Acknowledgements, of one agent each, that may wait for the host. What finds no room is delivered again.
const ACKS_MAX: usize = 4096;

/// See the module. Clones are handles to one host, which ends with the last of them.
#[derive(Clone)]
pub struct AgentHost {
    fanout: Arc<Fanout>,
    acks: Arc<AckCollector>,
    _end: Arc<DropGuard>,
}

/// What a host receives for one connection of an agent. Dropping it closes the connection.
pub struct HostedInbox {
    /// Before the queue: what arrives while it is dropped finds nobody, not a queue without room.
    _place: QueuePlace,
    queue: mpsc::Receiver<Bytes>,
    /// Behind the place: a host that ends with it still says that the agent has gone.
    _host: AgentHost,
}

impl AgentHost {
    /// Begins to receive under an id, which no gateway and no other host may have.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(bus: &Bus, id: GatewayId) -> Result<Self, BusError> {
        let deliveries = bus.pub_sub.subscribe(subject::gateway_deliveries(&id), None).await?;
        let acks_subject = subject::collected_acks(id.as_str());
        let acks = AckCollector::new(Arc::clone(&bus.pub_sub), acks_subject, |acks, _| acks <= ACKS_MAX);
        let (acks, fanout) = (Arc::new(acks), Fanout::new(id, Arc::clone(&bus.pub_sub)));
        let (end, named, collected) = (CancellationToken::new(), Arc::clone(&fanout), Arc::clone(&acks));
        let (ended, deaf) = (end.clone(), end.child_token());
        tokio::spawn(drive_deliveries(Arc::clone(&fanout), deliveries, deaf.clone()));
        tokio::spawn(async move { named.drive_announcements(&deaf, |_, error| unpublished(error)).await });
        tokio::spawn(async move { collected.drive(&ended, |passed, _| drop(passed.inspect_err(unpublished))).await });
        Ok(Self { fanout, acks, _end: Arc::new(end.drop_guard()) })
    }

    /// The id under which engines know it.
    #[must_use]
    pub fn id(&self) -> &GatewayId {
        self.fanout.id()
    }

    /// Opens a connection of an agent: it receives what arrives for the agent from here on.
    #[must_use]
    pub fn open(&self, agent: &AgentId) -> HostedInbox {
        let (sender, queue) = mpsc::channel(QUEUE_MAX);
        HostedInbox { _place: self.fanout.open(agent, sender), queue, _host: self.clone() }
    }

    /// Passes acknowledgements on; `false` where they found no room.
    #[must_use]
    pub fn acknowledge(&self, agent: &AgentId, deliveries: &[DeliveryId]) -> bool {
        self.acks.collect(agent, deliveries)
    }
}

impl Stream for HostedInbox {
    type Item = InboxMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<InboxMessage>> {
        let Some(first) = ready!(self.queue.poll_recv(context)) else { return Poll::Ready(None) };
        let mut message = InboxMessage::default();
        let mut next = Some(first);
        while let Some(document) = next {
            match Delivery::decode(&document) {
                Ok(delivery) => message.deliveries.push(delivery),
                Err(_) => message.unreadable += 1,
            }
            let is_full = message.deliveries.len() >= TOGETHER_MAX;
            next = if is_full { None } else { self.queue.try_recv().ok() };
        }
        Poll::Ready(Some(message))
    }
}

/// Hands out what engines send, until no handle of the host is left. A host without a subscription is deaf: it names its agents
/// no longer, so that engines send to their inboxes.
async fn drive_deliveries(fanout: Arc<Fanout>, mut deliveries: BoxStream<'static, Received>, deaf: CancellationToken) {
    while let Some(Some(received)) = deaf.run_until_cancelled(deliveries.next()).await {
        hand_out(&fanout, &received.payload);
    }
    if !deaf.is_cancelled() {
        tracing::error!("the bus ended the subscription: a host's agents hear on their inboxes only");
    }
    deaf.cancel();
}

fn hand_out(fanout: &Fanout, message: &Bytes) {
    fanout.hand_out(message, |result, agent| match result {
        RoutedResult::Unreadable => {
            tracing::warn!(host = %fanout.id(), "a line of a message to a host is not readable");
        }
        RoutedResult::Full => tracing::debug!(agent, "an agent does not keep up; the delivery comes again"),
        RoutedResult::Handed | RoutedResult::Nobody => {}
    });
}

/// Nothing depends on it: what is lost costs a repeat of a delivery.
fn unpublished(error: &BusError) {
    tracing::debug!(%error, "a host's message was not published");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::bus::fanout::COLLECT_FOR;
    use ::bus::memory::{MemoryOptions, open};
    use futures_util::FutureExt;
    use schemas::Lane;
    use schemas::acknowledgement::{COLLECTED_IDS_MAX, decode_collected};
    use schemas::presence::{Hello, REPORT_PERIOD_MS, decode_report};
    use schemas::routed;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::identity::Identity;
    use crate::transport::bus::BusTransport;
    use crate::transport::{Connection, Transport};

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn host_id() -> GatewayId {
        GatewayId::try_new("host-1").unwrap()
    }

    fn id(number: u8) -> DeliveryId {
        DeliveryId::new(Lane(0), [number; 16])
    }

    fn document(number: u8) -> Vec<u8> {
        format!(
            r#"{{"envelope":{{"msg_id":"{}","ts":"2026-11-20T00:00:00Z","from":"exchange://llmx","to":["agent://bob"],"negotiation":"alice~job"}},"payload":{{"act":"ack","ack_of":"m1","disposition":"ok"}}}}"#,
            id(number)
        )
        .into_bytes()
    }

    fn lines(of: &[(&str, Vec<u8>)]) -> Bytes {
        let mut message = Vec::new();
        for (name, document) in of {
            routed::push_line(&mut message, &agent(name), document);
        }
        message.into()
    }

    async fn connect(transport: &BusTransport, name: &str) -> Connection {
        let identity = Identity { agent: agent(name), token: "token".to_owned().into() };
        transport.connect(&identity).await.unwrap()
    }

    /// The delivery ids of the next message.
    async fn heard(connection: &mut Connection) -> Vec<String> {
        let message = connection.inbox.next().await.unwrap();
        message.deliveries.iter().map(|delivery| delivery.envelope.msg_id.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_a_host_hear_their_lines_of_its_messages_and_repeats_on_their_inboxes() {
        let bus = open(MemoryOptions::default());
        let transport = BusTransport::new(&bus).hosted_by(AgentHost::start(&bus, host_id()).await.unwrap());
        let (mut bob, mut carol) = (connect(&transport, "bob").await, connect(&transport, "carol").await);
        let of_both =
            lines(&[("bob", document(1)), ("carol", document(2)), ("bob", document(3)), ("dan", document(4))]);
        bus.pub_sub.publish(subject::gateway_deliveries(&host_id()), of_both).await.unwrap();
        assert_eq!(heard(&mut bob).await, [id(1), id(3)].map(|id| id.to_string()));
        assert_eq!(heard(&mut carol).await, [id(2).to_string()]);
        let repeat = [&b"["[..], &document(2), b"]"].concat();
        bus.pub_sub.publish(subject::inbox(&agent("carol")), repeat.into()).await.unwrap();
        assert_eq!(heard(&mut carol).await, [id(2).to_string()]);
        assert!(bob.inbox.next().now_or_never().is_none(), "what is another's reaches nobody else");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_names_itself_in_hellos_lists_its_agents_and_says_who_has_gone() {
        let bus = open(MemoryOptions::default());
        let mut hellos = bus.pub_sub.subscribe(subject::ALL_HELLOS.to_owned(), None).await.unwrap();
        let mut lists = bus.pub_sub.subscribe(subject::ALL_STREAMS.to_owned(), None).await.unwrap();
        let transport = BusTransport::new(&bus).hosted_by(AgentHost::start(&bus, host_id()).await.unwrap());
        let (bob, _carol) = (connect(&transport, "bob").await, connect(&transport, "carol").await);
        let again = connect(&transport, "bob").await;
        let mut said = Vec::new();
        for _ in 0..3 {
            let hello = hellos.next().await.unwrap();
            said.push((subject::agent_of(&hello.subject).unwrap(), Hello::parse(&hello.payload)));
        }
        let connected = || Hello::Connected(Some(host_id()));
        assert_eq!(
            said,
            [("bob", connected()), ("carol", connected()), ("bob", connected())].map(|(n, h)| (agent(n), h))
        );
        let list = lists.next().await.unwrap();
        assert_eq!(subject::streams_gateway_of(&list.subject), Some(host_id()));
        assert_eq!(decode_report(&list.payload).unwrap(), [agent("bob"), agent("carol")]);

        drop(bob);
        assert!(hellos.next().now_or_never().is_none(), "it has another connection");
        drop(again);
        let gone = timeout(2 * Duration::from_millis(REPORT_PERIOD_MS), hellos.next()).await.expect("that it has gone");
        let gone = gone.unwrap();
        assert_eq!((gone.subject.as_str(), Hello::parse(&gone.payload)), ("hello.bob", Hello::Closed(host_id())));
        assert_eq!(decode_report(&lists.next().await.unwrap().payload).unwrap(), [agent("carol")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_whose_subscription_has_ended_names_its_agents_no_longer() {
        let bus = open(MemoryOptions::default());
        let mut lists = bus.pub_sub.subscribe(subject::ALL_STREAMS.to_owned(), None).await.unwrap();
        let (fanout, deaf) = (Fanout::new(host_id(), Arc::clone(&bus.pub_sub)), CancellationToken::new());
        let _place = fanout.open(&agent("bob"), mpsc::channel(1).0);
        drive_deliveries(Arc::clone(&fanout), futures_util::stream::empty().boxed(), deaf.clone()).await;
        let announcing = fanout.drive_announcements(&deaf, |_, error| unpublished(error));
        let periods = 3 * Duration::from_millis(REPORT_PERIOD_MS);
        assert!(timeout(periods, announcing).await.is_err(), "it waits for the last agent to go");
        assert!(lists.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn acknowledgements_of_a_hosts_agents_leave_as_one_message_and_at_once_when_it_is_full() {
        let bus = open(MemoryOptions::default());
        let mut collected = bus.pub_sub.subscribe(subject::ALL_COLLECTED_ACKS.to_owned(), None).await.unwrap();
        let host = AgentHost::start(&bus, host_id()).await.unwrap();
        let transport = BusTransport::new(&bus).hosted_by(host.clone());
        let (bob, carol) = (connect(&transport, "bob").await, connect(&transport, "carol").await);
        let began = Instant::now();
        for (connection, number) in [(&bob, 1), (&carol, 2), (&bob, 3)] {
            connection.link.ack(vec![id(number)]).await.unwrap();
        }
        let message = collected.next().await.unwrap();
        assert_eq!(began.elapsed(), COLLECT_FOR);
        let expected = vec![(agent("bob"), vec![id(1), id(3)]), (agent("carol"), vec![id(2)])];
        assert_eq!(decode_collected(&message.payload).unwrap(), expected);

        let began = Instant::now();
        bob.link.ack(vec![id(4); COLLECTED_IDS_MAX]).await.unwrap();
        assert_eq!(decode_collected(&collected.next().await.unwrap().payload).unwrap().len(), 1);
        assert_eq!(began.elapsed(), Duration::ZERO);
        carol.link.ack(vec![id(5)]).await.unwrap();
        drop((bob, carol, transport, host));
        assert_eq!(
            decode_collected(&collected.next().await.unwrap().payload).unwrap(),
            [(agent("carol"), vec![id(5)])]
        );
        assert_eq!(began.elapsed(), Duration::ZERO, "a host that ends passes on what it has");
    }

    #[tokio::test]
    async fn deliveries_are_handed_out_while_acknowledgements_come_without_end() {
        let bus = open(MemoryOptions::default());
        let host = AgentHost::start(&bus, host_id()).await.unwrap();
        let mut inbox = host.open(&agent("bob"));
        let flooding = host.clone();
        let flood = tokio::spawn(async move {
            loop {
                while flooding.acknowledge(&agent("carol"), &[id(1)]) {}
                tokio::task::yield_now().await;
            }
        });
        tokio::task::yield_now().await;
        bus.pub_sub.publish(subject::gateway_deliveries(&host_id()), lines(&[("bob", document(1))])).await.unwrap();
        let heard = timeout(Duration::from_secs(10), inbox.next()).await;
        flood.abort();
        assert_eq!(heard.expect("the flood starves nobody").unwrap().deliveries.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_finds_no_room_at_a_host_is_refused_or_comes_again() {
        let bus = open(MemoryOptions::default());
        let host = AgentHost::start(&bus, host_id()).await.unwrap();
        let mut inbox = host.open(&agent("bob"));
        let message = lines(&vec![("bob", document(1)); QUEUE_MAX + 1]);
        hand_out(&host.fanout, &message);
        let mut received = 0;
        while let Some(Some(message)) = inbox.next().now_or_never() {
            assert!(message.deliveries.len() <= TOGETHER_MAX);
            received += message.deliveries.len();
        }
        assert_eq!(received, QUEUE_MAX);
        let taken = (0..=ACKS_MAX).filter(|_| host.acknowledge(&agent("bob"), &[id(1)])).count();
        assert_eq!(taken, ACKS_MAX);
    }
}
