//! `gw.in.<agent>`: the way in for agents that speak NATS. All gateways share the subject as one queue group.
//!
//! The token comes in a header; the answer, where one is asked for, is `{"accepted": {…}}` or `{"refused": {…}}`.

use std::sync::Arc;

use bus::{Bus, BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{FutureExt as _, StreamExt as _};
use schemas::{Code, Refusal, subject};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::Transport;
use crate::admission::{Accepted, Admission, Credentials, Ingress};
use crate::problem::Problem;

/// The bus as a way in.
pub(crate) struct BusIngress {
    pub_sub: Arc<dyn PubSub>,
    messages: BoxStream<'static, Received>,
    admission: Admission,
    in_flight_max: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum BusReply<'a> {
    Accepted(&'a Accepted),
    Refused(Problem<'a>),
}

impl BusIngress {
    /// Joins the gateways' queue group. `in_flight_max` messages are admitted at once; further ones wait on the bus.
    ///
    /// # Errors
    /// [`BusError`] when the bus cannot be reached.
    pub(crate) async fn subscribe(bus: &Bus, admission: Admission, in_flight_max: usize) -> Result<Self, BusError> {
        let queue = Some(subject::GATEWAY_QUEUE.to_owned());
        let messages = bus.pub_sub.subscribe(subject::ALL_GATEWAY_IN.to_owned(), queue).await?;
        Ok(Self { pub_sub: bus.pub_sub.clone(), messages, admission, in_flight_max })
    }

    /// Admits messages until the gateway stops; what is being admitted then is still answered.
    pub(crate) async fn drive(mut self, stop: CancellationToken) {
        let mut in_flight: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(()) = in_flight.next(), if !in_flight.is_empty() => {}
                received = self.messages.next(), if in_flight.len() < self.in_flight_max => {
                    let Some(received) = received else {
                        tracing::error!("the bus ended the subscription: no agent on the bus is heard any more");
                        break;
                    };
                    let mut answering =
                        answer(self.admission.clone(), self.pub_sub.clone(), received).boxed();
                    // Polled here first, so that an agent's messages reach the log in the order they came.
                    if (&mut answering).now_or_never().is_none() {
                        in_flight.push(answering);
                    }
                }
            }
        }
        while in_flight.next().await.is_some() {}
    }
}

async fn answer(admission: Admission, pub_sub: Arc<dyn PubSub>, received: Received) {
    let agent = subject::agent_of(&received.subject);
    let is_misled = |reply: &str| agent.as_ref().is_none_or(|agent| !subject::is_reply_to(reply, agent));
    if received.reply.as_deref().is_some_and(is_misled) {
        // Not even answered: the answer would be published with the gateway's rights where the agent may not.
        let refusal = Refusal::new(Code::Unauthorized, "the reply subject is not one of the agent's");
        return admission.refused_before(Transport::Nats, agent.as_ref(), None, &refusal);
    }
    let outcome = admit(&admission, &received).await;
    let Some(reply) = received.reply else { return };
    let document = match &outcome {
        Ok(accepted) => BusReply::Accepted(accepted),
        Err(refusal) => BusReply::Refused(Problem::from(refusal)),
    };
    let Ok(bytes) = serde_json::to_vec(&document) else { return };
    if let Err(error) = pub_sub.publish(reply, Bytes::from(bytes)).await {
        // The sender repeats what it got no answer for.
        tracing::warn!(%error, "an answer could not be published");
    }
}

async fn admit(admission: &Admission, received: &Received) -> Result<Accepted, Refusal> {
    let Some(named) = subject::agent_of(&received.subject) else {
        let refusal = Refusal::new(Code::Unauthorized, "the subject names no agent");
        admission.refused_before(Transport::Nats, None, None, &refusal);
        return Err(refusal);
    };
    let ingress = Ingress {
        transport: Transport::Nats,
        credentials: Credentials::Token(received.token.as_deref()),
        named_sender: Some(&named),
        peer: None,
        bytes: received.payload.clone(),
    };
    admission.admit(ingress).await
}
