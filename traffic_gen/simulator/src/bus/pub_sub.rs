//! Messages by subject. Publishing waits for nothing but a process that stands still.

use std::time::Duration;

use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use std::future::pending;
use tokio::sync::{mpsc, oneshot};

use super::{CallKind, Handle, incoming};
use crate::points::Point;
use crate::world::{Departure, LinkId, Subscription, WorldState};

impl PubSub for Handle {
    fn publish(&self, subject: String, payload: Bytes) -> BoxFuture<'_, Result<(), BusError>> {
        let message = Received { subject, reply: None, token: None, payload };
        async move {
            let (handed_over, outcome) = oneshot::channel();
            let link = self.link;
            self.world.change(|state| match state.depart(link) {
                Departure::Never => {}
                Departure::Leaves | Departure::LeavesLast => state.post(link, message, handed_over),
            });
            match outcome.await {
                Ok(()) => Ok(()),
                Err(_) => pending().await,
            }
        }
        .boxed()
    }

    fn subscribe(
        &self,
        subject: String,
        queue: Option<String>,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Received>, BusError>> {
        async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            let subscribe = move |state: &mut WorldState, link| {
                let subscription = Subscription { link, pattern: subject, queue, sender, last_at_us: 0 };
                state.broker.subscriptions.push(subscription);
                Ok(())
            };
            self.call(CallKind::Other, subscribe).await?;
            Ok(incoming(receiver))
        }
        .boxed()
    }

    fn request(
        &self,
        subject: String,
        token: Option<String>,
        payload: Bytes,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Bytes, BusError>> {
        async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            let named = subject.clone();
            let ask = move |state: &mut WorldState, link| {
                state.requests += 1;
                let reply = format!("_INBOX.{}", state.requests);
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
                    Ok(()) | Err(_) => incoming(receiver)
                        .next()
                        .await
                        .map_or_else(|| Err(BusError::Closed), |answer| Ok(answer.payload)),
                }
            };
            match tokio::time::timeout(timeout, asking).await {
                Ok(outcome) => outcome,
                Err(_) => Err(BusError::Unknown(format!("no answer within {timeout:?}"))),
            }
        }
        .boxed()
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BusError>> {
        self.call(CallKind::Other, |_, _| Ok(()))
    }

    fn dropped(&self) -> u64 {
        0
    }
}

impl WorldState {
    /// A process hands a message over; it is routed when it reaches the broker, if it does.
    fn post(&mut self, link: LinkId, message: Received, handed_over: oneshot::Sender<()>) {
        let route = move |state: &mut Self| {
            if state.is_cut(link) {
                state.reached(Point::MessageLost);
            } else {
                state.route(link, &message);
            }
        };
        if self.is_stalled(link) {
            let leave = move |state: &mut Self| {
                let _ = handed_over.send(());
                route(state);
            };
            self.send(link, Box::new(leave));
        } else {
            let _ = handed_over.send(());
            self.send(link, Box::new(route));
        }
    }
}
