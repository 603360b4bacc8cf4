//! Checks that need nothing but the message and its sender, and the line every refusal leaves.

use schemas::validate::{BODY_BYTES_MAX, Checked};
use schemas::{Act, AgentId, Code, NegotiationId, Refusal};
use telemetry::TraceId;

use crate::transport::Transport;

pub(super) fn check_size(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() > BODY_BYTES_MAX {
        return Err(Refusal::new(Code::TooLarge, "the message is larger than this gateway reads")
            .expecting(format!("at most {BODY_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// The sender is the token's subject, and the negotiation has a well-formed id. (That the scope has time left the schema
/// has checked: its `ttl` is at least 1.)
pub(super) fn check_envelope(agent: &AgentId, checked: &Checked) -> Result<NegotiationId, Refusal> {
    let envelope = &checked.message.envelope;
    if envelope.sender() != Some(agent) {
        return Err(Refusal::new(Code::Unauthorized, "the envelope names another sender than the token")
            .at("/envelope/from")
            .expecting(format!("agent://{agent}, whose token this is")));
    }
    let malformed = |expected: &str| {
        Refusal::new(Code::BadFormat, "not a negotiation id").at("/envelope/negotiation").expecting(expected)
    };
    if checked.act == Act::Cfp {
        let own = envelope.negotiation.as_deref().unwrap_or(envelope.msg_id.as_str());
        return NegotiationId::form(agent, own)
            .map_err(|_| malformed("your own id: 1 to 64 characters of A-Z a-z 0-9 _ -"));
    }
    let full = envelope.negotiation.as_deref().ok_or_else(|| {
        Refusal::new(Code::MissingField, "the message does not say which negotiation it belongs to")
            .at("/envelope/negotiation")
            .expecting("<initiator>~<id>, as the exchange names it")
    })?;
    NegotiationId::try_new(full).map_err(|_| malformed("<initiator>~<id>, as the exchange names it"))
}

/// Where a mandate stands in a message.
const MANDATE: &str = "/payload/mandate";

/// A pointer as it may be recorded. One into a mandate ends there: mandates are sealed, and member names below may be the
/// sender's own.
fn sealed(pointer: &str) -> &str {
    let is_inside = pointer.strip_prefix(MANDATE).is_some_and(|rest| rest.starts_with('/'));
    if is_inside { MANDATE } else { pointer }
}

/// What is known of who was refused.
pub(crate) struct Audited<'a> {
    pub(crate) transport: Transport,
    pub(crate) agent: Option<&'a AgentId>,
    pub(crate) negotiation: Option<&'a NegotiationId>,
    /// The trace in which the refusal stands, where it has one.
    pub(crate) trace: Option<TraceId>,
}

/// One line for every refusal: the code, who, which way, about which negotiation. Never a token, never a value.
pub(crate) fn audit(audited: &Audited<'_>, refusal: &Refusal) {
    tracing::info!(
        target: "llmx::audit",
        code = refusal.code.as_str(),
        agent = audited.agent.map(AgentId::as_str),
        transport = audited.transport.as_str(),
        negotiation = audited.negotiation.map(NegotiationId::as_str),
        trace_id = audited.trace.map(tracing::field::display),
        pointer = refusal.pointer.as_deref().map(sealed),
        "refused"
    );
}
