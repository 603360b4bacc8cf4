//! Agents that say what a table of bad input wants them to, by any way in, and what becomes of it.

use std::sync::Arc;

use agents::transport::bus::BusTransport;
use agents::transport::http::HttpTransport;
use agents::transport::websocket::WebSocketTransport;
use agents::transport::{Inbox, SendReply, Transport, Uplink};
use bytes::Bytes;
use futures_util::StreamExt as _;
use schemas::delivery::{Delivery, Disposition, Notification};
use serde_json::{Value, json};

use crate::rig::{PATIENCE, Rig};

/// Who says it and what, of a numbered and named row, and the answer, as [`Speaker::say_document`] writes it.
pub(crate) type Row = (&'static str, &'static str, Value, &'static str);

/// A way in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    WebSocket,
    Nats,
    Http,
}

impl Way {
    pub(crate) fn into(self, rig: &Rig) -> Arc<dyn Transport> {
        match self {
            Self::WebSocket => Arc::new(WebSocketTransport::new(rig.exchange.url())),
            Self::Nats => Arc::new(BusTransport::new(&rig.exchange.bus)),
            Self::Http => Arc::new(HttpTransport::try_new(rig.exchange.url()).unwrap()),
        }
    }
}

/// A negotiation as alice, who called, sees it, but for her own messages.
pub(crate) async fn view(rig: &Rig, negotiation: &str) -> Value {
    let token = rig.identity("alice").token.current();
    let mut view: Value = rig.control.read(&format!("/v1/negotiations/{negotiation}"), &token).await.unwrap();
    view.as_object_mut().unwrap().remove("messages");
    view
}

/// A document with further members.
pub(crate) fn merged(mut document: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

/// An agent that says what a test wants it to.
pub(crate) struct Speaker {
    pub(crate) name: &'static str,
    link: Arc<dyn Uplink>,
    inbox: Inbox,
    sent: u32,
    /// What it was told.
    pub(crate) heard: Vec<Delivery>,
}

impl Speaker {
    /// Of an agent that is registered.
    pub(crate) async fn connect(rig: &Rig, transport: &dyn Transport, name: &'static str) -> Self {
        let connection = transport.connect(&rig.identity(name)).await.unwrap();
        Self { name, link: connection.link, inbox: connection.inbox, sent: 0, heard: Vec::new() }
    }

    /// A message of its own that it has not sent yet.
    pub(crate) fn document(&mut self, negotiation: &str, payload: Value) -> Value {
        self.sent += 1;
        let msg_id = format!("{}-{}", self.name, self.sent);
        json!({
            "envelope": { "msg_id": msg_id, "ts": "2026-11-20T20:00:00.000Z", "from": format!("agent://{}", self.name),
                "negotiation": negotiation, "receipt": true },
            "payload": payload,
        })
    }

    /// See [`Self::say_document`].
    pub(crate) async fn say(&mut self, negotiation: &str, payload: Value) -> String {
        let document = self.document(negotiation, payload);
        self.say_document(&document).await
    }

    /// What becomes of a document: `code pointer`, or `disposition reason pointer`; of one that a policy refuses its reason, or
    /// the gate.
    pub(crate) async fn say_document(&mut self, document: &Value) -> String {
        let heard_before = self.heard.len();
        let answer = match self.link.send(Bytes::from(document.to_string())).await {
            SendReply::Refused(refusal) => {
                return format!("{} {}", refusal.code, refusal.pointer.unwrap_or_default());
            }
            SendReply::Accepted(accepted) => accepted,
            SendReply::Unknown(why) => panic!("{}: {why}", self.name),
        };
        let msg_id = answer.msg_id;
        let told = |delivery: &Delivery| {
            let along = delivery.receipts.iter();
            let own = if let Notification::Ack(receipt) = &delivery.payload { Some(receipt) } else { None };
            along.chain(own).find(|receipt| receipt.ack_of == msg_id).map(|receipt| receipt.disposition)
        };
        let disposition = self.hear(heard_before, told).await;
        let explained = [Disposition::Malformed, Disposition::OutOfTurn, Disposition::PolicyReject];
        if !explained.contains(&disposition) {
            return disposition.as_str().to_owned();
        }
        let explains = |delivery: &Delivery| {
            if delivery.envelope.in_reply_to.as_ref() != Some(&msg_id) {
                return None;
            }
            if let Notification::Reject(rejection) = &delivery.payload {
                return rejection.code.clone().map(|code| (code, None));
            }
            let Notification::NotUnderstood(told) = &delivery.payload else { return None };
            Some((told.reason.clone(), told.pointer.clone()))
        };
        let (reason, pointer) = self.hear(heard_before, explains).await;
        let pointer = pointer.map(|pointer| format!(" {pointer}")).unwrap_or_default();
        format!("{} {reason}{pointer}", disposition.as_str())
    }

    /// Waits for a delivery since that many.
    pub(crate) async fn hear<T>(&mut self, since: usize, wanted: impl Fn(&Delivery) -> Option<T>) -> T {
        let name = self.name;
        let waits = async {
            loop {
                if let Some(found) = self.heard.iter().skip(since).find_map(&wanted) {
                    return found;
                }
                let message = self.inbox.next().await.expect("the connection stays open");
                let ids = message.deliveries.iter().map(|delivery| delivery.envelope.msg_id).collect();
                self.heard.extend(message.deliveries);
                self.link.ack(ids).await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, waits).await.unwrap_or_else(|_| panic!("{name} hears nothing more"))
    }
}
