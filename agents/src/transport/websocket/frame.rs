//! The JSON frames of `GET /v1/ws`.

use schemas::DeliveryId;
use schemas::delivery::Delivery;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::transport::{Accepted, SendReply, read_problem};

pub(super) fn message_frame(reference: u64, document: &[u8]) -> Vec<u8> {
    let mut frame = format!("{{\"type\":\"message\",\"id\":\"{reference}\",\"message\":").into_bytes();
    frame.extend_from_slice(document);
    frame.push(b'}');
    frame
}

pub(super) fn ack_frame(ids: &[DeliveryId]) -> Vec<u8> {
    let ids = serde_json::to_string(ids).expect("delivery ids are texts");
    format!("{{\"type\":\"ack\",\"delivery_ids\":{ids}}}").into_bytes()
}

#[derive(Debug)]
pub(super) enum ServerFrame {
    Delivery(Option<Box<Delivery>>),
    Answer(u64, SendReply),
    /// `hello`, and whatever later versions add.
    Other,
}

pub(super) fn read_frame(text: &str) -> ServerFrame {
    #[derive(Deserialize)]
    struct RawServerFrame<'a> {
        r#type: String,
        id: Option<String>,
        #[serde(borrow)]
        delivery: Option<&'a RawValue>,
        #[serde(borrow)]
        problem: Option<&'a RawValue>,
    }
    let Ok(frame) = serde_json::from_str::<RawServerFrame<'_>>(text) else { return ServerFrame::Other };
    let reference = frame.id.and_then(|id| id.parse().ok());
    match (frame.r#type.as_str(), reference) {
        ("delivery", _) => {
            let delivery = frame.delivery.and_then(|delivery| serde_json::from_str(delivery.get()).ok());
            ServerFrame::Delivery(delivery.map(Box::new))
        }
        ("accepted", Some(reference)) => {
            let answer = serde_json::from_str::<Accepted>(text);
            ServerFrame::Answer(
                reference,
                answer.map_or_else(|e| SendReply::Unknown(e.to_string()), SendReply::Accepted),
            )
        }
        ("refused", Some(reference)) => {
            let problem = frame.problem.map_or("{}", RawValue::get);
            ServerFrame::Answer(reference, SendReply::Refused(read_problem(problem.as_bytes(), None)))
        }
        (_, _) => ServerFrame::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_and_unknown_ones_ignored() {
        let accepted = r#"{"type":"accepted","id":"4","seq":9,"msg_id":"m","negotiation":"alice~job"}"#;
        assert!(matches!(read_frame(accepted), ServerFrame::Answer(4, SendReply::Accepted(Accepted { seq: 9, .. }))));
        let refused = r#"{"type":"refused","id":"5","problem":{"code":"no_consent","detail":"nobody"}}"#;
        assert!(matches!(read_frame(refused), ServerFrame::Answer(5, SendReply::Refused(_))));
        assert!(matches!(read_frame(r#"{"type":"delivery","delivery":{}}"#), ServerFrame::Delivery(None)));
        assert!(matches!(read_frame(r#"{"type":"hello","agent":"alice"}"#), ServerFrame::Other));
        assert!(matches!(read_frame("no json"), ServerFrame::Other));
    }

    #[test]
    fn the_document_goes_into_the_frame_byte_for_byte() {
        assert_eq!(message_frame(3, br#"{"b":1, "a":2}"#), br#"{"type":"message","id":"3","message":{"b":1, "a":2}}"#);
        let id = DeliveryId::new(schemas::Lane(0), [1; 16]);
        assert_eq!(ack_frame(&[id]), format!(r#"{{"type":"ack","delivery_ids":["{id}"]}}"#).into_bytes());
    }
}
