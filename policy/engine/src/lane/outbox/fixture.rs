//! Deliveries for tests.

use std::sync::Arc;

use policy_core::Deliver;
use schemas::delivery::{Closing, Notification, Outcome};
use schemas::record::Qos;
use schemas::{AgentId, DeliveryId, Digest, Lane, NegotiationId, Timestamp};

/// A delivery that differs from others by its number; expires far ahead.
pub(crate) fn deliver(number: u128, to: &str) -> Deliver {
    Deliver {
        id: id(number),
        to: AgentId::try_new(to).unwrap(),
        negotiation: NegotiationId::try_new("alice~job").unwrap(),
        from: None,
        in_reply_to: None,
        told: Arc::new(Notification::Closed(Closing {
            outcome: Outcome::NoOffers,
            digest: Digest([7; 32]),
            detail: None,
            agreement: None,
            conclusion: None,
            tasks: Vec::new(),
        })),
        receipts: Box::default(),
        at: Timestamp::from_ms(1_000),
        expires: Timestamp::from_ms(86_400_000),
        qos: Qos::AtLeastOnce,
        attempts_max: None,
        after: None,
        told_before: false,
        traceparent: None,
    }
}

pub(crate) fn id(number: u128) -> DeliveryId {
    DeliveryId::new(Lane(0), number.to_be_bytes())
}
