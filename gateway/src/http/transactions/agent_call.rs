//! The call to one agent that a transaction becomes: admitted like every message, awaited for as long as it can last, and
//! cancelled when nobody waits for it any more.

use std::sync::Arc;
use std::time::Duration;

use agora::body::BODY_CONSTRAINT;
use agora::fetch::FetchFault;
use agora::transaction::{TransactionReply, TransactionStatus};
use agora::{DocumentHash, DocumentSource, Origin, ProtocolDocument, Selection};
use bytes::Bytes;
use schemas::delivery::Outcome;
use schemas::{AgentId, Code, NegotiationId, Refusal, Timestamp, WireTime};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::super::Site;
use super::kept_body::KeptBody;
use crate::Transport;
use crate::admission::{Accepted, Admission, Credentials, Ingress};
use crate::auth::{Identity, now_s};
use crate::transactions::{TransactionEnd, WatchedCall};

/// The policy of these calls: the first offer is awarded.
const POLICY: &str = "agora";
/// How long the agent may take to offer, in milliseconds.
const REPLY_WITHIN_MS: u64 = 10_000;
/// For so long a call is repeated that the exchange takes in later: clients of the published package repeat nothing.
const HELD_BACK_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the end of a call: its policy's hard deadline, and time for the engine to say so.
const END_WITHIN: Duration = Duration::from_secs(95);
/// In `constraints`: the conversation a call belongs to.
const CONVERSATION: &str = "agora_conversation";
/// In `constraints`: which message of its conversation the call is, counted from 1.
const MESSAGE: &str = "agora_message";
/// In `constraints`: 1 where what is asked is to agree on a document.
const NEGOTIATION: &str = "agora_negotiation";
/// Longest search for a document at its sources.
const SOURCES_WITHIN: Duration = Duration::from_secs(10);
/// How the code begins with which the exchange says that the agent declined its award.
const DECLINED: &str = "declined_by_";
/// The codes with which it says that the agent did not confirm, or report, in time.
const UNHEARD: [&str; 2] = ["confirm_timeout", "perform_timeout"];
/// What a document that cannot be had is refused with: the words of the package `agora-protocol`.
const NOT_HAD: &str = "Failed to download protocol";

/// What an answer that follows no document is under one.
const IN_WORDS: &str = "the agent answered in words: it did not follow the document";

/// A call to one agent.
pub(super) struct AgentCall {
    /// The agent.
    pub(super) agent: AgentId,
    /// The caller's own id of the negotiation.
    pub(super) own_id: String,
    /// The document it is under, if any.
    pub(super) selection: Selection,
    /// What is asked.
    pub(super) body: String,
    /// Where it stands in a conversation.
    pub(super) place: Option<MessagePlace>,
}

/// Where a message stands in its conversation.
pub(super) struct MessagePlace {
    /// The conversation.
    pub(super) conversation: String,
    /// Its number, counted from 1.
    pub(super) number: u32,
}

impl MessagePlace {
    /// The caller's own id of the message's negotiation.
    pub(super) fn own_id(&self) -> String {
        format!("{}-{}", self.conversation, self.number)
    }
}

impl AgentCall {
    /// Calls the agent and waits for the end of it. Dropped before, it cancels the call.
    ///
    /// # Errors
    /// [`Refusal`] where the call did not begin, or its end can be heard no longer.
    pub(super) async fn carry_out(self, site: &Arc<Site>, caller: &Identity) -> Result<TransactionReply, Refusal> {
        let negotiation = NegotiationId::form(&caller.agent, &self.own_id)
            .map_err(|_| Refusal::new(Code::Internal, "the call cannot be named"))?;
        let kept = KeptBody::of(site, (&caller.agent, &negotiation), &self.agent, &self.body).await?;
        // A further message brings no sources, and its agent has had the document with the first.
        if self.place.as_ref().is_none_or(|place| place.number == 1) {
            make_known(site, &self.selection).await?;
        }
        let call =
            WatchedCall { negotiation: negotiation.clone(), msg_id: self.own_id.clone(), agent: self.agent.clone() };
        let mut end = site.transactions.watch(&caller.agent, call).await?;
        let began = Instant::now();
        let mut begun = BegunCall {
            admission: site.admission.clone(),
            tasks: site.tasks.clone(),
            caller: caller.clone(),
            negotiation,
            is_over: false,
        };
        if let Err(refusal) = begun.say(&self.own_id, self.envelope(), self.payload(kept.as_ref())).await {
            // After anything but a log that did not answer there is no call.
            if refusal.code != Code::LogUnavailable {
                begun.is_over = true;
                site.transactions.forget(&caller.agent, &begun.negotiation);
            }
            // A pointer would lead into the call, which the client has not written.
            return Err(Refusal { pointer: None, ..refusal });
        }
        match tokio::time::timeout(END_WITHIN, end.come()).await {
            Ok(end) => {
                let end = end?;
                begun.is_over = true;
                Ok(self.reply(end, began.elapsed()))
            }
            Err(_) => Ok(late()),
        }
    }

    fn envelope(&self) -> Value {
        let to = [format!("agent://{}", self.agent)];
        json!({ "to": to, "scope": { "consent": "opt-in" }, "negotiation": self.own_id })
    }

    fn payload(&self, kept: Option<&KeptBody>) -> Value {
        let mut payload = json!({
            "act": "cfp", "policy": POLICY, "reply_within_ms": REPLY_WITHIN_MS, "constraints": {},
        });
        let constraints = &mut payload["constraints"];
        if let Some(MessagePlace { conversation, number }) = &self.place {
            constraints[CONVERSATION] = conversation.as_str().into();
            constraints[MESSAGE] = (*number).into();
        }
        if self.selection == Selection::Negotiation {
            constraints[NEGOTIATION] = 1.into();
        }
        match kept {
            Some(kept) => constraints[BODY_CONSTRAINT] = kept.digest.to_string().into(),
            None => payload["task"] = self.body.as_str().into(),
        }
        if let Selection::Document { hash, .. } = &self.selection {
            payload["documents"] = json!({ "hashes": [hash], "require": true });
        }
        payload
    }

    /// What the end of the call says to the client.
    fn reply(&self, end: TransactionEnd, after: Duration) -> TransactionReply {
        let outcome = match end {
            TransactionEnd::Answered(_, Some(routine)) if routine.hash.is_none() && self.is_under_document() => {
                return TransactionReply::unanswered(TransactionStatus::Error, IN_WORDS);
            }
            TransactionEnd::Answered(result, _) => return TransactionReply::success(result),
            // What the exchange says of an award that was lost (docs/spec/contract-net.md#cn-44).
            TransactionEnd::Failed(code) if code.starts_with(DECLINED) => return self.rejected(),
            TransactionEnd::Failed(code) if UNHEARD.contains(&code.as_str()) => return late(),
            TransactionEnd::Failed(code) => {
                return TransactionReply::unanswered(TransactionStatus::Error, format!("the agent failed: {code}"));
            }
            // The caller began the negotiation before: what became of that is no answer.
            TransactionEnd::NotTaken(disposition) => {
                let message = format!(
                    "the negotiation of this message had begun before ({}); open another conversation",
                    disposition.as_str()
                );
                return TransactionReply::unanswered(TransactionStatus::Error, message);
            }
            TransactionEnd::Ended(outcome) => outcome,
        };
        let has_no_taker = matches!(outcome, Outcome::NoOffers | Outcome::NoCandidate);
        // Before the time was up it was the agent's own word that ended the call.
        if has_no_taker && after < Duration::from_millis(REPLY_WITHIN_MS) {
            return self.rejected();
        }
        if has_no_taker || outcome == Outcome::Timeout {
            return late();
        }
        let message = format!("the call ended without an answer: {}", outcome.as_str());
        TransactionReply::unanswered(TransactionStatus::Error, message)
    }

    fn is_under_document(&self) -> bool {
        matches!(self.selection, Selection::Document { .. })
    }

    /// The agent does not take it. The words are those for which the package `agora-protocol` looks.
    fn rejected(&self) -> TransactionReply {
        let message = if self.is_under_document() { "Protocol rejected" } else { "Request rejected" };
        TransactionReply::unanswered(TransactionStatus::Rejected, message)
    }
}

fn late() -> TransactionReply {
    TransactionReply::unanswered(TransactionStatus::Error, "the agent did not answer in time")
}

/// A call that has begun, or may have. Dropped before it is over, it is cancelled.
struct BegunCall {
    admission: Admission,
    tasks: TaskTracker,
    caller: Identity,
    negotiation: NegotiationId,
    is_over: bool,
}

impl BegunCall {
    /// Admits a message of the caller, like any other.
    async fn say(&self, msg_id: &str, envelope: Value, payload: Value) -> Result<Accepted, Refusal> {
        let bytes = written(&self.caller.agent, msg_id, envelope, payload);
        admit(&self.admission, &self.caller, bytes).await
    }
}

impl Drop for BegunCall {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let envelope = json!({ "negotiation": self.negotiation });
        let payload = json!({ "act": "cancel", "reason": "nobody waits for the answer any more" });
        let bytes = written(&self.caller.agent, "cancel", envelope, payload);
        let (admission, caller) = (self.admission.clone(), self.caller.clone());
        self.tasks.spawn(async move {
            // Its deadlines end the call otherwise.
            let _ = admit(&admission, &caller, bytes).await;
        });
    }
}

fn written(from: &AgentId, msg_id: &str, mut envelope: Value, payload: Value) -> Bytes {
    envelope["msg_id"] = msg_id.into();
    envelope["ts"] = WireTime(Timestamp::from_ms(now_s().saturating_mul(1000))).to_string().into();
    envelope["from"] = format!("agent://{from}").into();
    json!({ "envelope": envelope, "payload": payload }).to_string().into()
}

async fn admit(admission: &Admission, caller: &Identity, bytes: Bytes) -> Result<Accepted, Refusal> {
    let credentials = Credentials::Verified(caller);
    let ingress = Ingress { transport: Transport::Http, credentials, named_sender: None, peer: None, bytes };
    let until = tokio::time::Instant::now() + HELD_BACK_MAX;
    loop {
        let refusal = match admission.admit(ingress.clone()).await {
            Err(refusal) if refusal.code == Code::Overloaded => refusal,
            outcome => return outcome,
        };
        let again_at = tokio::time::Instant::now() + Duration::from_millis(refusal.retry_after_ms.unwrap_or_default());
        if again_at > until {
            return Err(refusal);
        }
        tokio::time::sleep_until(again_at).await;
    }
}

/// Makes the document of a call known to the exchange, unless it is. Nobody supports it thereby: clients without a token share
/// one caller, and what a caller supports is limited.
async fn make_known(site: &Site, selection: &Selection) -> Result<(), Refusal> {
    let Selection::Document { hash, sources } = selection else { return Ok(()) };
    let known = site.documents.read().document(*hash).map(|document| document.sha256());
    let texts = sources.iter().filter(|source| known.is_none() || matches!(source, DocumentSource::Data(_)));
    let sources: Vec<DocumentSource> = texts.cloned().collect();
    // What is known is fetched from nowhere; a text that is at hand must be it.
    if known.is_some() && sources.is_empty() {
        return Ok(());
    }
    let document = had(site, *hash, &sources).await?;
    if known == Some(document.sha256()) {
        return Ok(());
    }
    site.documents.put_unsupported(&document).await.map(|_| ())
}

/// The document, from the first source that has it.
async fn had(site: &Site, hash: DocumentHash, sources: &[DocumentSource]) -> Result<ProtocolDocument, Refusal> {
    let until = Instant::now() + SOURCES_WITHIN;
    let mut last = None;
    // A text at hand is cheaper than any address.
    let (texts, addresses): (Vec<_>, Vec<_>) =
        sources.iter().partition(|source| matches!(source, DocumentSource::Data(_)));
    for source in texts.into_iter().chain(addresses) {
        let read = match source {
            DocumentSource::Data(text) => ProtocolDocument::verified(text, hash, Origin::Foreign),
            DocumentSource::Url(url) => {
                let fetching = tokio::time::timeout_at(until, site.fetcher.fetch(url)).await;
                let fetched = fetching.unwrap_or(Err(FetchFault::TimedOut));
                let read = fetched.map(|text| ProtocolDocument::verified(&text, hash, Origin::Foreign));
                site.metrics.transactions.fetched(read.as_ref().map(Result::is_ok).map_err(|fault| *fault));
                read.unwrap_or_else(|fault| Err(Refusal::new(Code::NotFound, fault.to_string())))
            }
        };
        match read {
            Ok(document) => return Ok(document),
            Err(refusal) => last = Some(refusal),
        }
    }
    let expected = match &last {
        Some(refusal) => format!("a source of the document; of the last one: {}", refusal.detail),
        None => "a data: source that holds the text".to_owned(),
    };
    let code = last.map_or(Code::NotFound, |refusal| refusal.code);
    Err(Refusal::new(code, NOT_HAD).at("/protocolSources").expecting(expected))
}
