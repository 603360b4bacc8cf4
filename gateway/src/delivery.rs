//! From the bus to a stream: an agent's inbox, and its acknowledgements back.

use std::sync::Arc;

use bus::{BusError, PubSub, Received};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use schemas::{AgentId, Code, DeliveryId, Refusal, subject};

/// Deliveries one acknowledgement may name.
const ACKS_MAX: usize = 256;

/// Subscribes to an agent's inbox, then says hello for it, so that engines send at once what is unacknowledged.
///
/// # Errors
/// [`Code::Unavailable`] when the bus does not answer.
pub(crate) async fn open_inbox(
    pub_sub: &Arc<dyn PubSub>,
    agent: &AgentId,
) -> Result<BoxStream<'static, Received>, Refusal> {
    let deliveries = pub_sub.subscribe(subject::inbox(agent), None).await.map_err(|error| unavailable(&error))?;
    pub_sub.publish(subject::hello(agent), Bytes::new()).await.map_err(|error| unavailable(&error))?;
    Ok(deliveries)
}

/// Passes an agent's acknowledgements on: the first in the subject, the others in the body.
///
/// # Errors
/// [`Code::OutOfRange`] unless 1 to [`ACKS_MAX`] are named; [`Code::Unavailable`] when the bus does not answer.
pub(crate) async fn acknowledge(
    pub_sub: &Arc<dyn PubSub>,
    agent: &AgentId,
    deliveries: &[DeliveryId],
) -> Result<(), Refusal> {
    let (Some((first, others)), true) = (deliveries.split_first(), deliveries.len() <= ACKS_MAX) else {
        return Err(Refusal::new(Code::OutOfRange, "an acknowledgement names no delivery, or too many")
            .at("/delivery_ids")
            .expecting(format!("1 to {ACKS_MAX} delivery ids")));
    };
    let body = if others.is_empty() { Ok(Vec::new()) } else { serde_json::to_vec(others) };
    let body = body.map_err(|_| Refusal::new(Code::Internal, "the acknowledgement cannot be written"))?;
    let published = pub_sub.publish(subject::ack(agent, *first), Bytes::from(body)).await;
    published.map_err(|error| unavailable(&error))
}

pub(crate) fn unavailable(error: &BusError) -> Refusal {
    tracing::warn!(%error, "the bus does not take messages");
    Refusal::new(Code::Unavailable, "the bus did not answer; try again").retry_after_ms(1000)
}
