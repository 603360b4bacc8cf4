//! What an agent sends, from bytes to a typed message with its canonical body and digest.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::{bundle, fault, parse};
use crate::code::{Code, Refusal};
use crate::digest::Digest;
use crate::document::DocumentHash;
use crate::envelope::Envelope;
use crate::payload::{Act, Payload};
use crate::record::Message;
use crate::time::WireTime;

/// The paper's name for the schema of a payload. Without an `act` it means a call for proposals.
const PAPER_SCHEMA: &str = "Negotiation.json";
/// The paper's name for the schema of an offer in a bargain. Without an `act` it means an offer.
const PAPER_OFFER_SCHEMA: &str = "AlternatingOffer.json";

/// A message that passed every check that needs no state.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Envelope and payload.
    pub message: Message,
    /// The act, repeated for the log entry.
    pub act: Act,
    /// The document in RFC 8785 canonical form, the paper's spellings normalised: what the log stores.
    pub body: Arc<RawValue>,
    /// SHA-256 of `body`.
    pub digest: Digest,
}

/// Everything between bytes and a typed message: parse, schema of envelope and act, normalisation, typed decode,
/// canonical body and digest.
///
/// # Errors
/// As [`parse`], or where the document departs from `message.json`.
pub fn check_message(bytes: &[u8]) -> Result<Checked, Refusal> {
    let mut document = parse(bytes)?;
    let act = act_of(&document);
    bundle::check_message(act, &document)?;
    let (Some(act), Some(root)) = (act, document.as_object_mut()) else {
        return Err(Refusal::new(Code::Internal, "the schema accepts a message without an act"));
    };
    normalise(act, root);
    let message = decode(act, root)?;
    // The schema leaves only members named in ASCII and integers within 2^53-1. For these the compact form of a
    // sorted map is the RFC 8785 form; tests/agreement.rs compares it with the crate that knows every case.
    let body: Arc<RawValue> =
        to_raw_value(&document).map_err(|_| Refusal::new(Code::Internal, "the message cannot be written"))?.into();
    let digest = Digest::of_bytes(body.get().as_bytes());
    Ok(Checked { message, act, body, digest })
}

/// The act an agent may send that the payload names, if it does. The paper's payloads name none: there `$schema` says
/// whether it is a call or an offer.
fn act_of(document: &Value) -> Option<Act> {
    let payload = document.get("payload")?.as_object()?;
    match payload.get("act") {
        Some(name) => {
            let name = name.as_str()?;
            Act::FROM_AGENTS.into_iter().find(|act| act.as_str() == name)
        }
        None => match payload.get("$schema")?.as_str()? {
            PAPER_SCHEMA => Some(Act::Cfp),
            PAPER_OFFER_SCHEMA => Some(Act::Offer),
            _ => None,
        },
    }
}

/// Rewrites the paper's spellings (LLM-X paper, appendix A) into ours, so that the log and every reader of it know one:
/// `ts` as RFC 3339 with milliseconds, the `act`, a call's `deadline` as `reply_by`, an offer's as `valid_until`, its `value`
/// as `terms.price`; the hashes of documents in the one spelling.
/// Applied to its own result it changes nothing.
fn normalise(act: Act, root: &mut Map<String, Value>) {
    if let Some(Value::String(ts)) = root.get_mut("envelope").and_then(|envelope| envelope.get_mut("ts"))
        && let Ok(time) = WireTime::try_new(ts)
    {
        *ts = time.to_string();
    }
    let Some(Value::Object(payload)) = root.get_mut("payload") else { return };
    if !payload.contains_key("act") {
        payload.insert("act".to_owned(), act.as_str().into());
    }
    if act == Act::Cfp
        && let Some(deadline) = payload.remove("deadline")
    {
        payload.insert("reply_by".to_owned(), deadline);
    }
    if act == Act::Offer
        && let Some(deadline) = payload.remove("deadline")
    {
        let valid_until = earlier(payload.remove("valid_until"), deadline);
        payload.insert("valid_until".to_owned(), valid_until);
    }
    if act == Act::Offer
        && let Some(value) = payload.remove("value")
    {
        let price = Map::from_iter([("price".to_owned(), value)]);
        payload.insert("terms".to_owned(), price.into());
    }
    if act == Act::Cfp {
        respell_all(payload.get_mut("documents").and_then(|documents| documents.get_mut("hashes")));
    }
    if act == Act::Offer {
        respell_all(payload.get_mut("documents"));
    }
    if act == Act::Inform {
        respell(payload.get_mut("routine").and_then(|routine| routine.get_mut("hash")));
    }
}

/// Writes the hash of a document as the log has it.
fn respell(hash: Option<&mut Value>) {
    if let Some(Value::String(text)) = hash
        && let Ok(hash) = DocumentHash::try_new(text)
    {
        *text = hash.to_string();
    }
}

/// The same for a list of them, where each counts once.
fn respell_all(hashes: Option<&mut Value>) {
    let Some(Value::Array(hashes)) = hashes else { return };
    let mut seen = BTreeSet::new();
    hashes.iter_mut().for_each(|hash| respell(Some(hash)));
    hashes.retain(|hash| hash.as_str().is_none_or(|hash| seen.insert(hash.to_owned())));
}

/// Of two times the earlier one, as it was written.
fn earlier(one: Option<Value>, other: Value) -> Value {
    let time = |value: &Value| value.as_str().and_then(|text| WireTime::try_new(text).ok());
    match one {
        Some(one) if time(&one) < time(&other) => one,
        Some(_) | None => other,
    }
}

fn decode(act: Act, root: &Map<String, Value>) -> Result<Message, Refusal> {
    let part = |name: &str| root.get(name).unwrap_or(&Value::Null);
    Ok(Message {
        envelope: Envelope::deserialize(part("envelope")).map_err(|_| fault::disagreement("/envelope"))?,
        payload: Payload::read(act, part("payload")).map_err(|_| fault::disagreement("/payload"))?,
    })
}
