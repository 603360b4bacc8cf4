//! Writes deliveries as the documents agents read (`schemas::delivery::Delivery`).
//!
//! The hottest code of the shell: a call to N contractors is N documents with one payload and one time. Both are
//! written once, and the document is put together from texts; a test holds it to what `Delivery` reads and writes.

use std::sync::Arc;

use policy_core::Deliver;
use schemas::delivery::{EXCHANGE, Notification};
use schemas::{Timestamp, WireTime};

/// Writes documents; remembers the last payload and the last time.
#[derive(Default)]
pub struct DocumentWriter {
    payload: Option<(Arc<Notification>, String)>,
    time: Option<(Timestamp, String)>,
}

impl DocumentWriter {
    /// Appends the document of a delivery to `out`.
    ///
    /// # Errors
    /// The encoding error, which a delivery of the core cannot cause; `out` may then end in part of a document.
    pub fn write(&mut self, deliver: &Deliver, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let (_, payload) = match self.payload.take() {
            Some(known) if Arc::ptr_eq(&known.0, &deliver.told) => self.payload.insert(known),
            Some(_) | None => {
                let written = deliver.told.encode()?;
                self.payload.insert((Arc::clone(&deliver.told), written))
            }
        };
        let (_, ts) = match self.time.take() {
            Some(known) if known.0 == deliver.at => self.time.insert(known),
            Some(_) | None => self.time.insert((deliver.at, WireTime(deliver.at).to_string())),
        };
        out.extend_from_slice(br#"{"envelope":{"msg_id":""#);
        deliver.id.with_text(|id| out.extend_from_slice(id.as_bytes()));
        push(out, r#"","ts":""#, ts);
        match &deliver.from {
            None => push(out, r#"","from":""#, EXCHANGE),
            Some(agent) => push(out, r#"","from":"agent://"#, agent.as_str()),
        }
        push(out, r#"","to":["agent://"#, deliver.to.as_str());
        push(out, r#""],"negotiation":""#, deliver.negotiation.as_str());
        if let Some(msg_id) = &deliver.in_reply_to {
            push(out, r#"","in_reply_to":""#, msg_id.as_str());
        }
        out.push(b'"');
        if let Some(traceparent) = &deliver.traceparent {
            out.extend_from_slice(br#","traceparent":"#);
            serde_json::to_writer(&mut *out, &**traceparent)?;
        }
        push(out, r#"},"payload":"#, payload);
        if !deliver.receipts.is_empty() {
            out.extend_from_slice(br#","receipts":"#);
            serde_json::to_writer(&mut *out, &*deliver.receipts)?;
        }
        out.push(b'}');
        Ok(())
    }
}

/// Appends what stands before a text, and the text: an id, a time or a name, none of which JSON would escape.
fn push(out: &mut Vec<u8>, before: &str, text: &str) {
    debug_assert!(before.ends_with(':') || !text.contains(['"', '\\']), "`{text}` would have to be escaped");
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use schemas::delivery::{Delivery, DeliveryEnvelope, Disposition, Receipt};
    use schemas::{AgentId, MsgId, WireTime};

    use super::*;
    use crate::lane::outbox::fixture;

    #[test]
    fn a_document_reads_back_as_the_delivery_it_was_written_from() {
        let told = Arc::new(Notification::Ack(Receipt {
            invited: Some(2),
            left_out: Some(0),
            ..Receipt::new(MsgId::try_new("m-1").unwrap(), Disposition::Ok)
        }));
        let mut writer = DocumentWriter::default();
        for (number, from) in [(1, None), (2, Some("alice")), (3, Some("alice"))] {
            let mut deliver = fixture::deliver(number, "bob");
            deliver.told = if number == 3 { Arc::clone(&deliver.told) } else { Arc::clone(&told) };
            deliver.from = from.map(|name| AgentId::try_new(name).unwrap());
            deliver.in_reply_to = from.map(|_| MsgId::try_new("m-1").unwrap());
            deliver.traceparent = from.map(|_| Arc::from("00-\"quoted\"-01"));
            deliver.receipts = from.map(|_| receipt_along()).into_iter().collect();
            let mut out = Vec::new();
            writer.write(&deliver, &mut out).unwrap();
            let read: Delivery = serde_json::from_slice(&out).unwrap();
            assert_eq!(read, expected(&deliver));
            assert_eq!(serde_json::to_vec(&read).unwrap(), out);
        }
    }

    fn receipt_along() -> Receipt {
        let (ack_of, disposition) = (MsgId::try_new("m-2").unwrap(), Disposition::Ok);
        Receipt::new(ack_of, disposition)
    }

    fn expected(deliver: &Deliver) -> Delivery {
        Delivery {
            envelope: DeliveryEnvelope {
                msg_id: deliver.id,
                ts: WireTime(deliver.at),
                from: deliver.from.as_ref().map_or(EXCHANGE.to_owned(), |agent| format!("agent://{agent}")),
                to: [format!("agent://{}", deliver.to)],
                negotiation: deliver.negotiation.clone(),
                in_reply_to: deliver.in_reply_to.clone(),
                traceparent: deliver.traceparent.as_deref().map(str::to_owned),
            },
            payload: (*deliver.told).clone(),
            receipts: deliver.receipts.to_vec(),
        }
    }
}
