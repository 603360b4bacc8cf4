//! What an agent sends, from bytes to a typed message with its canonical body and digest.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::{BODY_BYTES_MAX, bundle, fault, parse};
use crate::bargain::Conditions;
use crate::code::{Code, Refusal};
use crate::digest::Digest;
use crate::document::{DOCUMENTS_MAX, DocumentHash};
use crate::envelope::{Address, CAPABILITIES_MAX, Envelope, TTL_S_MAX};
use crate::ids::{DEPTH_MAX as TEAM_DEPTH_MAX, NegotiationId};
use crate::payload::{ATTR_TEXT_LEN_MAX, Act, AttrValue, INTEGER_MAX, Offer, Payload, TERMS_MAX, TEXT_LEN_MAX};
use crate::record::Message;
use crate::time::WireTime;

/// The paper's name for the schema of a payload. Without an `act` it means a call for proposals.
const PAPER_SCHEMA: &str = "Negotiation.json";
/// The paper's name for the schema of an offer in a bargain. Without an `act` it means an offer.
const PAPER_OFFER_SCHEMA: &str = "AlternatingOffer.json";
/// The attribute that is an integer in every offer.
const PRICE: &str = "price";

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
    check_canonical_offer(bytes).map_or_else(|| check_document(bytes), Ok)
}

/// The same for offers that are written as the log will have them and have no member that needs a look at its schema, which
/// is how most messages are: a third of the work. Nothing of any other message, which says nothing about it.
///
/// What is written exactly as its typed form is holds no member that is unknown, named twice or out of order, and no number
/// written otherwise. tests/agreement.rs holds both ways together.
#[must_use]
pub fn check_canonical_offer(bytes: &[u8]) -> Option<Checked> {
    #[derive(Deserialize)]
    struct OfferDocument {
        envelope: Envelope,
        payload: Offer,
    }
    static PAYLOAD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#","payload":{"act":"offer","#));
    if bytes.len() > BODY_BYTES_MAX {
        return None;
    }
    PAYLOAD.find(bytes)?;
    let OfferDocument { envelope, payload } = serde_json::from_slice(bytes).ok()?;
    if !is_plain(&envelope) || !is_plain_offer(&payload) {
        return None;
    }
    let message = Message { envelope, payload: Payload::Offer(payload) };
    let body = to_raw_value(&message).ok().filter(|body| body.get().as_bytes() == bytes)?;
    let digest = Digest::of_bytes(bytes);
    Some(Checked { message, act: Act::Offer, body: body.into(), digest })
}

/// Whether types and values alone make an envelope one that the schema accepts.
fn is_plain(envelope: &Envelope) -> bool {
    let Envelope {
        capabilities,
        from,
        in_reply_to: _,
        msg_id: _,
        negotiation,
        receipt: _,
        scope,
        seq,
        to,
        traceparent,
        ts: _,
    } = envelope;
    matches!(from, Address::Agent(_))
        && capabilities.len() <= CAPABILITIES_MAX
        && to.is_empty()
        && scope.as_ref().and_then(|scope| scope.ttl).is_none_or(|ttl| (1..=TTL_S_MAX).contains(&ttl))
        && traceparent.is_none()
        && seq.is_none_or(is_exact)
        && negotiation.as_deref().is_some_and(|id| NegotiationId::try_new(id).is_ok())
}

/// The same of an offer.
fn is_plain_offer(offer: &Offer) -> bool {
    let Offer { conditions, currency, documents, round, terms, valid_for_ms, valid_from: _, valid_until: _ } = offer;
    let is_short = |text: &str| text.chars().count() <= TEXT_LEN_MAX;
    conditions.as_ref().is_none_or(|said| matches!(said, Conditions::Text(text) if is_short(text)))
        && currency.as_deref().is_none_or(is_currency)
        && documents.len() <= DOCUMENTS_MAX
        && documents.iter().collect::<BTreeSet<_>>().len() == documents.len()
        && *round != Some(0)
        && valid_for_ms.is_none_or(|ms| ms > 0 && is_exact(ms))
        && terms.len() <= TERMS_MAX
        && terms.iter().all(|(name, value)| match value {
            AttrValue::Int(value) => is_exact(value.unsigned_abs()),
            AttrValue::Text(text) => name.as_str() != PRICE && text.chars().count() <= ATTR_TEXT_LEN_MAX,
        })
}

fn is_currency(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// Whether every JSON implementation keeps an integer.
fn is_exact(value: u64) -> bool {
    value <= INTEGER_MAX.unsigned_abs()
}

/// A message of any act, written in any way.
fn check_document(bytes: &[u8]) -> Result<Checked, Refusal> {
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
/// as `terms.price`; the hashes of documents in the one spelling. A sub-team that says no depth gets the largest.
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
        let price = Map::from_iter([(PRICE.to_owned(), value)]);
        payload.insert("terms".to_owned(), price.into());
    }
    if act == Act::Cfp {
        inherit_depth(payload.get_mut("team"));
        respell_all(payload.get_mut("documents").and_then(|documents| documents.get_mut("hashes")));
    }
    if act == Act::Offer {
        respell_all(payload.get_mut("documents"));
    }
    if act == Act::Inform {
        respell(payload.get_mut("routine").and_then(|routine| routine.get_mut("hash")));
    }
}

/// A sub-team whose call says no depth has all that its parent has left, of which the fold takes no more.
fn inherit_depth(team: Option<&mut Value>) {
    if let Some(Value::Object(team)) = team
        && team.contains_key("of")
        && !team.contains_key("depth")
    {
        team.insert("depth".to_owned(), TEAM_DEPTH_MAX.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_as_the_sdks_write_it_is_read_without_a_document_and_as_from_one() {
        let offer = json(
            r#"{"envelope":{"from":"agent://bob","in_reply_to":"01d9059de841e131528392b2a218850b","msg_id":"1a-2",
            "negotiation":"alice~job","seq":281474976710658,"ts":"2026-11-20T22:00:00.001Z"},
            "payload":{"act":"offer","currency":"EUR","round":1,"terms":{"price":85000000,"time_ms":-1},"valid_for_ms":5}}"#,
        );
        let written = serde_json::to_vec(&check_document(&offer).unwrap().message).unwrap();
        assert_eq!(written, offer, "members of envelopes and offers stand in canonical order");
        let (read, checked) = (check_canonical_offer(&offer).unwrap(), check_document(&offer).unwrap());
        assert_eq!((&read.message, read.act, read.digest), (&checked.message, checked.act, checked.digest));
        assert_eq!(read.body.get(), checked.body.get());
    }

    #[test]
    fn an_offer_that_needs_a_look_at_its_schema_is_read_as_a_document() {
        let envelope =
            r#"{"from":"agent://bob","msg_id":"m","negotiation":"alice~job","ts":"2026-11-20T22:00:00.001Z"}"#;
        for payload in [
            r#"{"act":"offer","terms":{"price":1.0}}"#,
            r#"{"act":"offer", "terms":{"price":1}}"#,
            r#"{"act":"offer","terms":{"price":1,"price":1}}"#,
            r#"{"act":"offer","terms":{"price":1},"value":1}"#,
            r#"{"act":"offer","terms":{"price":9007199254740992}}"#,
            r#"{"act":"offer","terms":{"price":"red"}}"#,
            r#"{"act":"offer","round":0,"terms":{"price":1}}"#,
            r#"{"act":"offer","terms":{"price":1},"valid_for_ms":0}"#,
            r#"{"act":"offer","currency":"eur","terms":{"price":1}}"#,
            r#"{"act":"refuse","reason":",\"payload\":{\"act\":\"offer\","}"#,
        ] {
            let document = format!(r#"{{"envelope":{envelope},"payload":{payload}}}"#);
            assert!(check_canonical_offer(document.as_bytes()).is_none(), "{payload}");
        }
        let plain = format!(r#"{{"envelope":{envelope},"payload":{{"act":"offer","terms":{{"price":1}}}}}}"#);
        assert!(check_canonical_offer(plain.as_bytes()).is_some());
    }

    #[test]
    fn the_bounds_of_an_offer_in_canonical_form_are_those_of_its_schema() {
        let offer = |envelope: &str, payload: &str| {
            format!(
                r#"{{"envelope":{{{envelope}"from":"agent://bob","msg_id":"m","negotiation":"alice~job","ts":"2026-11-20T22:00:00.001Z"}},"payload":{{"act":"offer",{payload}}}}}"#
            )
        };
        let names = |count: usize| (10..10 + count).map(|n| format!(r#""a{n}""#)).collect::<Vec<_>>();
        let terms = |count: usize| format!(r#""terms":{{{}}}"#, names(count).join(":1,") + ":1");
        let said = |chars: usize| format!(r#""conditions":"{}","terms":{{}}"#, "é".repeat(chars));
        let coloured = |chars: usize| format!(r#""terms":{{"colour":"{}"}}"#, "é".repeat(chars));
        let hashes = |count: u8| (0..count).map(|n| DocumentHash::of_bytes(&[n])).collect::<Vec<_>>();
        let naming =
            |hashes: &[DocumentHash]| format!(r#""documents":{},"terms":{{}}"#, serde_json::to_string(hashes).unwrap());
        for (document, is_valid) in [
            (offer("", &terms(32)), true),
            (offer("", &terms(33)), false),
            (offer("", &said(4096)), true),
            (offer("", &said(4097)), false),
            (offer("", &coloured(256)), true),
            (offer("", &coloured(257)), false),
            (offer("", &naming(&hashes(8))), true),
            (offer("", &naming(&hashes(9))), false),
            (offer("", &naming(&[&hashes(1)[..], &hashes(1)[..]].concat())), false),
            (offer(&format!(r#""capabilities":[{}],"#, names(32).join(",")), r#""terms":{}"#), true),
            (offer(&format!(r#""capabilities":[{}],"#, names(33).join(",")), r#""terms":{}"#), false),
        ] {
            assert_eq!(check_canonical_offer(document.as_bytes()).is_some(), is_valid, "{document}");
            assert_eq!(check_document(document.as_bytes()).is_ok(), is_valid, "{document}");
        }
    }

    #[test]
    fn a_sub_team_that_says_no_depth_may_use_all_that_its_parent_has_left() {
        let of = r#""of":{"task":"alice~paper~t2","award_no":1}"#;
        for (id, team, depth) in [
            ("", of.to_owned(), 4),
            ("", format!(r#"{of},"depth":0"#), 0),
            (r#""negotiation":"job","#, String::new(), 0),
        ] {
            let document = format!(
                r#"{{"envelope":{{{id}"from":"agent://bob","msg_id":"m","to":["agent://carol"],"ts":"2026-11-20T22:00:00.001Z"}},"payload":{{"act":"cfp","task":"write","team":{{{team}}}}}}}"#
            );
            let checked = check_document(document.as_bytes()).unwrap();
            let Payload::Cfp(cfp) = checked.message.payload else { panic!("no call") };
            assert_eq!(cfp.team.unwrap().rules.depth, depth, "{team}");
            let again = check_document(checked.body.get().as_bytes()).unwrap();
            assert_eq!(again.body.get(), checked.body.get());
        }
    }

    fn json(text: &str) -> Vec<u8> {
        text.split_whitespace().collect::<String>().into()
    }
}
