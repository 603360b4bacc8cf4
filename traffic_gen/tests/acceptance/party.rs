//! One agent driven by hand: it sends documents over HTTP and hears its inbox, and every delivery it hears is kept.

use std::sync::Arc;

use agents::Identity;
use bus::{Bus, PubSub, Received};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::Client;
use schemas::delivery::{
    Award, AwardReport, Closing, Delivery, Disposition, Notification, ProgressReport, Receipt, Rejection,
};
use schemas::{Act, AwardNo, subject};
use serde_json::{Value, json};

use crate::rig::PATIENCE;

/// See the module.
pub(crate) struct Party {
    pub(crate) identity: Identity,
    /// Base address of the gateway it sends to.
    pub(crate) url: String,
    /// Whether it acknowledges what it hears.
    pub(crate) acknowledges: bool,
    /// Everything it has heard, repeats included, in the order of hearing.
    pub(crate) heard: Vec<Delivery>,
    http: Client,
    pub_sub: Arc<dyn PubSub>,
    inbox: BoxStream<'static, Received>,
    sent: u32,
}

impl Party {
    pub(crate) async fn connect(bus: &Bus, url: &str, http: Client, identity: Identity) -> Self {
        let pub_sub = Arc::clone(&bus.pub_sub);
        let inbox = pub_sub.subscribe(subject::inbox(&identity.agent), None).await.unwrap();
        Self { identity, url: url.to_owned(), acknowledges: true, heard: Vec::new(), http, pub_sub, inbox, sent: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        self.identity.agent.as_str()
    }

    /// A document of this agent's with a fresh `msg_id`; the test may change it before it posts it.
    pub(crate) fn document(&mut self, negotiation: &str, payload: Value) -> Value {
        self.sent += 1;
        json!({
            "envelope": {
                "msg_id": format!("{}-{}", self.name(), self.sent),
                "ts": "2026-11-20T20:00:00.000Z",
                "from": format!("agent://{}", self.name()),
                "negotiation": negotiation,
                "receipt": true,
            },
            "payload": payload,
        })
    }

    /// A call for proposals; `cfp` is merged into its payload.
    pub(crate) fn call_document(&mut self, own_id: &str, to: &[&str], cfp: &Value) -> Value {
        let mut payload = json!({ "act": "cfp", "reply_within_ms": 5_000 });
        for (name, value) in cfp.as_object().unwrap() {
            payload[name] = value.clone();
        }
        let mut document = self.document(own_id, payload);
        document["envelope"]["to"] = json!(to);
        document
    }

    /// Posts a document under this agent's token; status and body of the answer.
    pub(crate) async fn post(&self, document: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}/v1/messages", self.url)).bearer_auth(self.identity.token.current());
        let response = request.json(document).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// Posts a document that is admitted; its `msg_id`.
    pub(crate) async fn send(&self, document: &Value) -> String {
        let (status, body) = self.post(document).await;
        assert_eq!(status, 202, "{document} was refused: {body}");
        document["envelope"]["msg_id"].as_str().unwrap().to_owned()
    }

    /// Says something in a negotiation and waits for what became of it.
    pub(crate) async fn say(&mut self, negotiation: &str, payload: Value) -> Receipt {
        let document = self.document(negotiation, payload);
        let msg_id = self.send(&document).await;
        self.receipt(&msg_id).await
    }

    /// Offers a price, in whole units.
    pub(crate) async fn offer(&mut self, negotiation: &str, price: i64) -> Receipt {
        self.say(negotiation, offer(price)).await
    }

    /// Opens a call that is followed, and gives its negotiation.
    pub(crate) async fn call(&mut self, own_id: &str, to: &[&str], cfp: &Value) -> String {
        let document = self.call_document(own_id, to, cfp);
        let msg_id = self.send(&document).await;
        let receipt = self.receipt(&msg_id).await;
        assert_eq!(receipt.disposition, Disposition::Ok, "{document}");
        format!("{}~{own_id}", self.name())
    }

    /// The first receipt of a message.
    pub(crate) async fn receipt(&mut self, msg_id: &str) -> Receipt {
        self.nth_receipt(msg_id, 0).await
    }

    /// A later receipt of a message that was sent again.
    pub(crate) async fn nth_receipt(&mut self, msg_id: &str, nth: usize) -> Receipt {
        let mut found = Vec::new();
        self.hear(&format!("receipt {nth} of {msg_id}"), |delivery| {
            if let Notification::Ack(receipt) = &delivery.payload
                && receipt.ack_of.as_str() == msg_id
                && found.iter().all(|(id, _)| *id != delivery.envelope.msg_id)
            {
                found.push((delivery.envelope.msg_id, receipt.clone()));
            }
            found.get(nth).map(|(_, receipt)| receipt.clone())
        })
        .await
    }

    /// The ACCEPT of an award.
    pub(crate) async fn accept(&mut self, negotiation: &str) -> Award {
        self.told(negotiation, "ACCEPT", |told| {
            if let Notification::Accept(award) = told { Some(award.clone()) } else { None }
        })
        .await
    }

    /// The first REJECT.
    pub(crate) async fn reject(&mut self, negotiation: &str) -> Rejection {
        self.told(
            negotiation,
            "REJECT",
            |told| if let Notification::Reject(it) = told { Some(it.clone()) } else { None },
        )
        .await
    }

    /// The report of an award.
    pub(crate) async fn awarded(&mut self, negotiation: &str) -> AwardReport {
        let news = |told: &Notification| {
            if let Notification::Inform(ProgressReport::Awarded(it)) = told { Some(it.clone()) } else { None }
        };
        self.told(negotiation, "INFORM{awarded}", news).await
    }

    /// The end.
    pub(crate) async fn closed(&mut self, negotiation: &str) -> Closing {
        self.told(
            negotiation,
            "CLOSED",
            |told| if let Notification::Closed(it) = told { Some(it.clone()) } else { None },
        )
        .await
    }

    /// The reason of the NOT_UNDERSTOOD that answers a message.
    pub(crate) async fn misunderstood(&mut self, msg_id: &str) -> String {
        self.hear(&format!("NOT_UNDERSTOOD of {msg_id}"), |delivery| {
            let Notification::NotUnderstood(it) = &delivery.payload else { return None };
            let is_answer = delivery.envelope.in_reply_to.as_ref().is_some_and(|id| id.as_str() == msg_id);
            is_answer.then(|| it.reason.clone())
        })
        .await
    }

    /// Confirms an award and waits for the commitment.
    pub(crate) async fn confirm(&mut self, negotiation: &str, award_no: AwardNo) -> Receipt {
        self.say(negotiation, json!({ "act": "confirm", "award_no": award_no })).await
    }

    /// Confirms and performs the award that comes.
    pub(crate) async fn perform(&mut self, negotiation: &str) {
        let award = self.accept(negotiation).await;
        assert_eq!(self.confirm(negotiation, award.award_no).await.disposition, Disposition::Committed);
        let receipt = self.say(negotiation, json!({ "act": "inform", "kind": "done" })).await;
        assert_eq!(receipt.disposition, Disposition::Ok);
    }

    /// The first thing told in a negotiation that `pick` takes.
    pub(crate) async fn told<T>(
        &mut self,
        negotiation: &str,
        what: &str,
        pick: impl Fn(&Notification) -> Option<T>,
    ) -> T {
        self.hear(&format!("{what} in {negotiation}"), |delivery| {
            if delivery.envelope.negotiation.as_str() == negotiation { pick(&delivery.payload) } else { None }
        })
        .await
    }

    /// The first delivery that `pick` takes: of those heard already, then of those that come.
    pub(crate) async fn hear<T>(&mut self, what: &str, mut pick: impl FnMut(&Delivery) -> Option<T>) -> T {
        let mut next = 0;
        loop {
            while let Some(delivery) = self.heard.get(next) {
                next += 1;
                if let Some(found) = pick(delivery) {
                    return found;
                }
            }
            if !self.listen().await {
                let acts: Vec<_> = self.heard.iter().map(|delivery| delivery.payload.act()).collect();
                panic!("{} did not hear {what}; it heard {acts:?}", self.name());
            }
        }
    }

    /// Deliveries of an act heard so far.
    pub(crate) fn count(&self, act: Act) -> usize {
        self.heard.iter().filter(|delivery| delivery.payload.act() == act).count()
    }

    /// Hears the next message; false when none comes.
    async fn listen(&mut self) -> bool {
        let Ok(Some(received)) = tokio::time::timeout(PATIENCE, self.inbox.next()).await else { return false };
        let deliveries: Vec<Delivery> = serde_json::from_slice(&received.payload).unwrap();
        if self.acknowledges {
            for delivery in &deliveries {
                let subject = subject::ack(&self.identity.agent, delivery.envelope.msg_id);
                self.pub_sub.publish(subject, Bytes::new()).await.unwrap();
            }
        }
        self.heard.extend(deliveries);
        true
    }
}

/// Micro-units in one unit of money. The presets score on a range of a thousand units: below that, all prices are alike.
pub(crate) const UNIT: i64 = 1_000_000;

/// An offer's payload; the price in whole units.
pub(crate) fn offer(price: i64) -> Value {
    json!({ "act": "offer", "terms": { "price": price * UNIT, "delivery_ms": 1000 } })
}
