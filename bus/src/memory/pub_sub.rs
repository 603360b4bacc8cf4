//! Messages by subject: a hash lookup for literal subjects, a short list for patterns, a bounded queue per subscriber.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ahash::HashMap;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use parking_lot::{Mutex, RwLock};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::name::{check_pattern, check_subject};
use crate::{BusError, PubSub, Received};

/// Messages a subscriber may be behind before it loses some; the NATS client's own default, so that both backends
/// drop at the same point. Memory is taken as messages wait, not in advance.
const SUBSCRIBER_QUEUE_MAX: usize = 65_536;
/// Most subscriptions; several per agent at ten times the agents one process is measured with.
const SUBSCRIPTIONS_MAX: usize = 1_000_000;
/// Most requests waiting for an answer; each also ends at its timeout.
const REQUESTS_MAX: usize = 65_536;
/// Largest payload, nats-server's default, so that what fits here fits there.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Subjects on which answers come back; followed by the request's number.
const REPLY_PREFIX: &str = "_INBOX.";

#[derive(Default)]
pub(super) struct MemoryPubSub {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    subscriptions: RwLock<Subscriptions>,
    requests: Mutex<HashMap<u64, oneshot::Sender<Bytes>>>,
    last_request: AtomicU64,
    dropped: AtomicU64,
}

impl Shared {
    /// Hands a message to everyone it is for, and returns whether there was anyone.
    fn deliver(&self, message: &Received) -> Result<bool, BusError> {
        check_subject(&message.subject)?;
        if message.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: message.payload.len(), limit: PAYLOAD_BYTES_MAX });
        }
        if let Some(request) = message.subject.strip_prefix(REPLY_PREFIX) {
            let asker = request.parse().ok().and_then(|number: u64| self.requests.lock().remove(&number));
            // The asker may have given up: its answer has nowhere to go.
            return Ok(asker.is_some_and(|asker| asker.send(message.payload.clone()).is_ok()));
        }
        let Delivered { reached, dropped } = self.subscriptions.read().deliver(message);
        if dropped > 0 {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
        Ok(reached)
    }

    fn subscribe(self: &Arc<Self>, pattern: &str, queue: Option<String>) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        let (sender, receiver) = mpsc::channel(SUBSCRIBER_QUEUE_MAX);
        let mut subscriptions = self.subscriptions.write();
        if subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(BusError::Full(format!("the bus has {SUBSCRIPTIONS_MAX} subscriptions")));
        }
        let key = subscriptions.insert(pattern, queue, sender);
        Ok(Subscription { receiver, key, shared: Arc::clone(self) })
    }

    fn register_request(self: &Arc<Self>) -> Result<(PendingRequest, oneshot::Receiver<Bytes>), BusError> {
        let (sender, answer) = oneshot::channel();
        let number = self.last_request.fetch_add(1, Ordering::Relaxed);
        let mut requests = self.requests.lock();
        if requests.len() >= REQUESTS_MAX {
            return Err(BusError::Full(format!("{REQUESTS_MAX} requests wait for answers")));
        }
        requests.insert(number, sender);
        Ok((PendingRequest { number, shared: Arc::clone(self) }, answer))
    }
}

/// A request that waits; forgotten when dropped.
struct PendingRequest {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.shared.requests.lock().remove(&self.number);
    }
}

/// A subscriber's queue; unsubscribes when dropped.
struct Subscription {
    receiver: mpsc::Receiver<Received>,
    key: SubscriptionKey,
    shared: Arc<Shared>,
}

impl Stream for Subscription {
    type Item = Received;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received>> {
        self.receiver.poll_recv(context)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.subscriptions.write().remove(&self.key);
    }
}

#[async_trait]
impl PubSub for MemoryPubSub {
    async fn publish(&self, subject: String, payload: Bytes) -> Result<(), BusError> {
        tokio::task::consume_budget().await;
        self.shared.deliver(&Received { subject, reply: None, token: None, payload }).map(|_| ())
    }

    async fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> Result<BoxStream<'static, Received>, BusError> {
        Ok(self.shared.subscribe(&subject, queue)?.boxed())
    }

    async fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, BusError> {
        let (pending, answer) = self.shared.register_request()?;
        let reply = Some(format!("{REPLY_PREFIX}{}", pending.number));
        let message = Received { subject, reply, token, payload };
        if !self.shared.deliver(&message)? {
            return Err(BusError::NoResponder(message.subject));
        }
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => Err(BusError::Unknown(format!("no answer on `{}`", message.subject))),
        }
    }

    async fn flush(&self) -> Result<(), BusError> {
        Ok(())
    }

    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

/// Every subscription.
#[derive(Debug, Default)]
struct Subscriptions {
    by_subject: HashMap<String, Targets>,
    /// Subscriptions with wildcards. A process has a handful (one per role), so a list beats a tree.
    by_pattern: Vec<(String, Targets)>,
    len: usize,
    last_id: u64,
}

/// Where a subscription stands, to remove it.
#[derive(Debug, Clone)]
struct SubscriptionKey {
    pattern: String,
    queue: Option<String>,
    id: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, Default)]
struct Delivered {
    /// Whether anyone subscribes to its subject.
    reached: bool,
    /// Subscribers that lost it because their queue is full.
    dropped: u64,
}

#[derive(Debug, Default)]
struct Targets {
    each: Vec<Target>,
    queues: Vec<Queue>,
}

/// Members that share messages, in turn.
#[derive(Debug)]
struct Queue {
    name: String,
    members: Vec<Target>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Target {
    id: u64,
    sender: mpsc::Sender<Received>,
}

impl Subscriptions {
    fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.len == 0 && self.by_subject.is_empty() && self.by_pattern.is_empty()
    }

    fn insert(&mut self, pattern: &str, queue: Option<String>, sender: mpsc::Sender<Received>) -> SubscriptionKey {
        self.last_id += 1;
        self.len += 1;
        let key = SubscriptionKey { pattern: pattern.to_owned(), queue, id: self.last_id };
        let target = Target { id: key.id, sender };
        let targets = if !has_wildcard(pattern) {
            self.by_subject.entry(pattern.to_owned()).or_default()
        } else if let Some(index) = self.by_pattern.iter().position(|(known, _)| known == pattern) {
            &mut self.by_pattern[index].1
        } else {
            &mut self.by_pattern.push_mut((pattern.to_owned(), Targets::default())).1
        };
        targets.insert(key.queue.as_deref(), target);
        key
    }

    fn remove(&mut self, key: &SubscriptionKey) {
        self.len -= 1;
        if has_wildcard(&key.pattern) {
            self.by_pattern.retain_mut(|(pattern, targets)| *pattern != key.pattern || !targets.remove(key));
        } else if self.by_subject.get_mut(&key.pattern).is_some_and(|targets| targets.remove(key)) {
            self.by_subject.remove(&key.pattern);
        }
    }

    fn deliver(&self, message: &Received) -> Delivered {
        let mut delivered = Delivered::default();
        if let Some(targets) = self.by_subject.get(&message.subject) {
            targets.deliver(message, &mut delivered);
        }
        for (pattern, targets) in &self.by_pattern {
            if matches(pattern, &message.subject) {
                targets.deliver(message, &mut delivered);
            }
        }
        delivered
    }
}

impl Targets {
    fn insert(&mut self, queue: Option<&str>, target: Target) {
        let Some(name) = queue else {
            self.each.push(target);
            return;
        };
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.name == name) {
            queue.members.push(target);
        } else {
            self.queues.push(Queue { name: name.to_owned(), members: vec![target], turn: AtomicUsize::new(0) });
        }
    }

    /// Removes a target and returns whether none is left.
    fn remove(&mut self, key: &SubscriptionKey) -> bool {
        if key.queue.is_none() {
            self.each.retain(|target| target.id != key.id);
        }
        for queue in &mut self.queues {
            queue.members.retain(|target| target.id != key.id);
        }
        self.queues.retain(|queue| !queue.members.is_empty());
        self.each.is_empty() && self.queues.is_empty()
    }

    fn deliver(&self, message: &Received, delivered: &mut Delivered) {
        for target in &self.each {
            target.deliver(message, delivered);
        }
        for queue in &self.queues {
            let turn = queue.turn.fetch_add(1, Ordering::Relaxed);
            if let Some(target) = queue.members.get(turn % queue.members.len().max(1)) {
                target.deliver(message, delivered);
            }
        }
    }
}

impl Target {
    fn deliver(&self, message: &Received, delivered: &mut Delivered) {
        match self.sender.try_send(message.clone()) {
            Ok(()) => delivered.reached = true,
            Err(TrySendError::Full(_)) => {
                delivered.reached = true;
                delivered.dropped += 1;
            }
            // Its subscription is being dropped and will leave the table in a moment.
            Err(TrySendError::Closed(_)) => {}
        }
    }
}

fn has_wildcard(pattern: &str) -> bool {
    pattern.bytes().any(|byte| matches!(byte, b'*' | b'>'))
}

/// Whether a subject matches a pattern: `*` stands for one token, `>` for one or more at the end.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            (_, Some(_) | None) => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscriber_that_does_not_keep_up_loses_the_newest_messages_and_they_are_counted() {
        let pub_sub = MemoryPubSub::default();
        let mut slow = pub_sub.subscribe("a".to_owned(), None).await.unwrap();
        for _ in 0..SUBSCRIBER_QUEUE_MAX + 3 {
            pub_sub.publish("a".to_owned(), Bytes::from_static(b"x")).await.unwrap();
        }
        assert_eq!(pub_sub.dropped(), 3);
        for _ in 0..SUBSCRIBER_QUEUE_MAX {
            assert_eq!(slow.next().await.unwrap().payload, "x");
        }
        pub_sub.publish("a".to_owned(), Bytes::from_static(b"next")).await.unwrap();
        assert_eq!(slow.next().await.unwrap().payload, "next");
    }

    #[tokio::test]
    async fn a_dropped_subscription_leaves_nothing_behind() {
        let pub_sub = MemoryPubSub::default();
        for pattern in ["a.b", "a.*", "a.>"] {
            let plain = pub_sub.subscribe(pattern.to_owned(), None).await.unwrap();
            let queued = pub_sub.subscribe(pattern.to_owned(), Some("q".to_owned())).await.unwrap();
            drop((plain, queued));
        }
        let subscriptions = pub_sub.shared.subscriptions.read();
        assert!(subscriptions.is_empty(), "{subscriptions:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_timed_out_is_forgotten() {
        let pub_sub = MemoryPubSub::default();
        let mut silent = pub_sub.subscribe("a".to_owned(), None).await.unwrap();
        let timeout = Duration::from_secs(1);
        let outcome = pub_sub.request("a".to_owned(), None, Bytes::new(), timeout).await;
        assert!(matches!(outcome, Err(BusError::Unknown(_))), "{outcome:?}");
        assert!(pub_sub.shared.requests.lock().is_empty());
        let late = silent.next().await.and_then(|message| message.reply).unwrap();
        pub_sub.publish(late, Bytes::new()).await.unwrap();
    }
}

#[cfg(test)]
mod subscriptions_tests {
    use super::*;

    #[test]
    fn patterns_match_whole_tokens() {
        for (pattern, subject, is_match) in [
            ("agent.*.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.b.inbox", false),
            ("agent.*.inbox", "agent.inbox", false),
            ("ack.*.*", "ack.a", false),
            ("ack.*.*", "ack.a.1", true),
            ("ack.*.*", "ack.a.1.2", false),
            ("award.>", "award.n.0.1", true),
            ("award.>", "award", false),
            (">", "a", true),
            ("hello.*", "hell.a", false),
            ("*.b", "a.b", true),
            ("*.b", "a.c", false),
        ] {
            assert_eq!(matches(pattern, subject), is_match, "{pattern} and {subject}");
        }
    }
}
