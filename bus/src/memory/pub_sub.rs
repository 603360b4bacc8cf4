//! Messages by subject: a hash lookup for literal subjects, a short list for patterns, a bounded queue per subscriber.

mod subscriptions;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::sync::{mpsc, oneshot};

use self::subscriptions::{Delivered, SubscriptionKey, Subscriptions};
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
    fn requests(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Bytes>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a message to everyone it is for, and returns whether there was anyone.
    fn deliver(&self, message: &Received) -> Result<bool, BusError> {
        check_subject(&message.subject)?;
        if message.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BusError::TooLarge { bytes: message.payload.len(), limit: PAYLOAD_BYTES_MAX });
        }
        if let Some(request) = message.subject.strip_prefix(REPLY_PREFIX) {
            let asker = request.parse().ok().and_then(|number: u64| self.requests().remove(&number));
            // The asker may have given up: its answer has nowhere to go.
            return Ok(asker.is_some_and(|asker| asker.send(message.payload.clone()).is_ok()));
        }
        let Delivered { reached, dropped } =
            self.subscriptions.read().unwrap_or_else(PoisonError::into_inner).deliver(message);
        if dropped > 0 {
            self.dropped.fetch_add(dropped, Ordering::Relaxed);
        }
        Ok(reached)
    }

    fn subscribe(self: &Arc<Self>, pattern: &str, queue: Option<String>) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        let (sender, receiver) = mpsc::channel(SUBSCRIBER_QUEUE_MAX);
        let mut subscriptions = self.subscriptions.write().unwrap_or_else(PoisonError::into_inner);
        if subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(BusError::Full(format!("the bus has {SUBSCRIPTIONS_MAX} subscriptions")));
        }
        let key = subscriptions.insert(pattern, queue, sender);
        Ok(Subscription { receiver, key, shared: Arc::clone(self) })
    }

    fn register_request(self: &Arc<Self>) -> Result<(PendingRequest, oneshot::Receiver<Bytes>), BusError> {
        let (sender, answer) = oneshot::channel();
        let number = self.last_request.fetch_add(1, Ordering::Relaxed);
        let mut requests = self.requests();
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
        self.shared.requests().remove(&self.number);
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
        self.shared.subscriptions.write().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl PubSub for MemoryPubSub {
    fn publish(&self, subject: String, payload: Bytes) -> BoxFuture<'_, Result<(), BusError>> {
        async move {
            tokio::task::consume_budget().await;
            self.shared.deliver(&Received { subject, reply: None, token: None, payload }).map(|_| ())
        }
        .boxed()
    }

    fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Received>, BusError>> {
        async move { Ok(self.shared.subscribe(&subject, queue)?.boxed()) }.boxed()
    }

    fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, BusError>> {
        async move {
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
        .boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BusError>> {
        async { Ok(()) }.boxed()
    }

    fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
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
        let subscriptions = pub_sub.shared.subscriptions.read().unwrap();
        assert!(subscriptions.is_empty(), "{subscriptions:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_timed_out_is_forgotten() {
        let pub_sub = MemoryPubSub::default();
        let mut silent = pub_sub.subscribe("a".to_owned(), None).await.unwrap();
        let timeout = Duration::from_secs(1);
        let outcome = pub_sub.request("a".to_owned(), None, Bytes::new(), timeout).await;
        assert!(matches!(outcome, Err(BusError::Unknown(_))), "{outcome:?}");
        assert!(pub_sub.shared.requests().is_empty());
        let late = silent.next().await.and_then(|message| message.reply).unwrap();
        pub_sub.publish(late, Bytes::new()).await.unwrap();
    }
}
