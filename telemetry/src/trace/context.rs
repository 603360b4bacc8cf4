//! Which trace, and which span in it.

use data_encoding::HEXLOWER;
use schemas::text::hexadecimal;
use schemas::{AgentId, DeliveryId, MsgId, NegotiationId};
use sha2::{Digest, Sha256};

/// The one version of `traceparent` that is written; any but `ff` is read.
const VERSION: &str = "00";
/// Bit of the flags that says that the caller keeps the trace.
const SAMPLED: u8 = 1;

/// The id of a trace; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// The id of a span in its trace; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Where in a trace something happens: what a W3C `traceparent` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that caused it.
    pub parent: SpanId,
}

impl TraceId {
    /// The trace of a negotiation whose call carried no `traceparent`: of a team the same as of all its tasks and sub-teams.
    pub fn of(negotiation: &NegotiationId) -> Self {
        Self(hash("trace", &[negotiation.root()]))
    }

    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Its last seven bytes as a number: what W3C trace ids must be random in, and what sampling goes by.
    pub(crate) const fn random_part(self) -> u64 {
        let [_, _, _, _, _, _, _, _, _, a, b, c, d, e, f, g] = self.0;
        u64::from_be_bytes([0, a, b, c, d, e, f, g])
    }
}

/// Declares steps of a negotiation: for each the function that gives its span's id, from what tells it apart.
macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident($($part:ident: $ty:ty),+) = $kind:literal, [$($text:expr),+];)+) => {
        impl SpanId {$(
            $(#[$doc])*
            pub fn $name($($part: $ty),+) -> Self {
                Self(hash($kind, &[$($text),+]))
            }
        )+}
    };
}

steps! {
    /// The negotiation as a whole.
    of(negotiation: &NegotiationId) = "negotiation", [negotiation.as_str()];
    /// An agent sends a message.
    sent(sender: &AgentId, message: &MsgId) = "send", [sender.as_str(), message.as_str()];
    /// A gateway admits it.
    admitted(sender: &AgentId, message: &MsgId) = "admit", [sender.as_str(), message.as_str()];
    /// It is appended to the log.
    published(sender: &AgentId, message: &MsgId) = "publish", [sender.as_str(), message.as_str()];
    /// An engine folds it.
    folded(sender: &AgentId, message: &MsgId) = "fold", [sender.as_str(), message.as_str()];
    /// An engine writes a key of the register.
    registered(key: &str) = "register", [key];
    /// An engine delivers something to an agent.
    delivered(delivery: DeliveryId) = "deliver", [&delivery.to_string()];
    /// The agent takes the delivery.
    processed(delivery: DeliveryId) = "process", [&delivery.to_string()];
    /// An agent asks a model about a negotiation; `call` tells its calls apart.
    asked(agent: &AgentId, negotiation: &NegotiationId, call: &str) = "ask", [agent.as_str(), negotiation.as_str(), call];
}

impl SpanId {
    /// Its bytes.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

impl TraceContext {
    /// Reads a `traceparent`; nothing when it is not one.
    pub fn parse(traceparent: &str) -> Option<Self> {
        let (version, rest) = traceparent.split_once('-')?;
        let (trace, rest) = rest.split_once('-')?;
        let (parent, rest) = rest.split_once('-')?;
        let (flags, more) = rest.split_once('-').map_or((rest, None), |(flags, more)| (flags, Some(more)));
        let is_known = version == VERSION;
        let is_version = hexadecimal::<1>(version).is_some() && version != "ff";
        if !is_version || hexadecimal::<1>(flags).is_none() || (is_known && more.is_some()) {
            return None;
        }
        let (trace, parent) = (hexadecimal::<16>(trace)?, hexadecimal::<8>(parent)?);
        (trace != [0; 16] && parent != [0; 8]).then_some(Self { trace: TraceId(trace), parent: SpanId(parent) })
    }

    /// The context of a message: its own `traceparent` where it carries one that can be read, otherwise the negotiation's.
    pub fn of(traceparent: Option<&str>, negotiation: &NegotiationId) -> Self {
        let whole = || Self { trace: TraceId::of(negotiation), parent: SpanId::of(negotiation) };
        traceparent.and_then(Self::parse).unwrap_or_else(whole)
    }

    /// Where the span of the negotiation as a whole hangs, seen from here: of a task and of a sub-team at what it is part of.
    pub fn around(self, negotiation: &NegotiationId) -> Self {
        negotiation.parent().map_or(self, |above| self.under(SpanId::of(&above)))
    }

    /// The same trace, seen from another span.
    pub const fn under(self, parent: SpanId) -> Self {
        Self { trace: self.trace, parent }
    }

    /// As it stands in an envelope; `is_kept` tells others whether this trace is kept.
    pub fn to_traceparent(self, is_kept: bool) -> String {
        format!("{VERSION}-{}-{}-{:02x}", self.trace, self.parent, if is_kept { SAMPLED } else { 0 })
    }
}

/// The first bytes of a hash that tells kinds of steps apart; not all zero.
fn hash<const N: usize>(kind: &str, parts: &[&str]) -> [u8; N] {
    let mut hasher = Sha256::new();
    hasher.update(kind);
    for part in parts {
        hasher.update([0]);
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut id = [0; N];
    id.copy_from_slice(&digest[..N]);
    if id.iter().all(|byte| *byte == 0) {
        id[N - 1] = 1;
    }
    id
}

schemas::shown!(TraceId = |Self(bytes)| "{}", HEXLOWER.encode(bytes));
schemas::debug_as_shown!(TraceId);

schemas::shown!(SpanId = |Self(bytes)| "{}", HEXLOWER.encode(bytes));
schemas::debug_as_shown!(SpanId);

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_as_w3c_says() {
        let context = TraceContext::parse(PARENT).unwrap();
        assert_eq!(context.to_traceparent(true), PARENT);
        let later = PARENT.replacen("00", "cc", 1) + "-what-comes-later";
        assert_eq!(TraceContext::parse(&later), Some(context));
    }

    #[test]
    fn what_is_no_traceparent_is_not_read() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let more = format!("{PARENT}-more");
        let version = PARENT.replacen("00", "ff", 1);
        let upper = PARENT.to_uppercase();
        let short = &PARENT[..54];
        let multibyte = PARENT.replacen("0a", "é", 1);
        for text in ["", "-", "---", "\"", &zero_trace, &zero_span, &more, &version, &upper, short, &multibyte] {
            assert_eq!(TraceContext::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_message_without_a_traceparent_belongs_to_the_trace_of_its_negotiation() {
        let [one, other] = ["alice~1", "alice~2"].map(|id| NegotiationId::try_new(id).unwrap());
        let context = TraceContext::of(None, &one);
        assert_eq!((context.trace, context.parent), (TraceId::of(&one), SpanId::of(&one)));
        assert_eq!(TraceContext::of(Some("nonsense"), &one), context);
        assert_ne!(TraceContext::of(None, &other).trace, context.trace);
        assert_eq!(TraceContext::of(Some(PARENT), &one), TraceContext::parse(PARENT).unwrap());
    }

    #[test]
    fn a_team_its_tasks_and_its_sub_teams_are_one_trace_and_each_hangs_at_what_it_is_part_of() {
        let [team, task, sub_team, other] =
            ["alice~1", "alice~1~t2", "alice~1~s2-1", "alice~10"].map(|id| NegotiationId::try_new(id).unwrap());
        let context = TraceContext::of(None, &team);
        for part in [&task, &sub_team] {
            assert_eq!(TraceContext::of(None, part).trace, context.trace, "{part}");
        }
        assert_ne!(TraceContext::of(None, &other).trace, context.trace);
        assert_eq!(context.around(&team), context, "a root stays where it is");
        for (part, above) in [(&task, &team), (&sub_team, &task)] {
            let whole = TraceContext::of(Some(PARENT), part).around(part);
            let trace = TraceContext::parse(PARENT).unwrap().trace;
            assert_eq!(whole, TraceContext { trace, parent: SpanId::of(above) }, "{part}");
        }
    }

    #[test]
    fn the_steps_of_one_message_have_spans_of_their_own() {
        let (sender, message) = (AgentId::try_new("alice").unwrap(), MsgId::try_new("m1").unwrap());
        let spans = [
            SpanId::sent(&sender, &message),
            SpanId::admitted(&sender, &message),
            SpanId::published(&sender, &message),
            SpanId::folded(&sender, &message),
        ];
        assert!(spans.iter().enumerate().all(|(index, span)| !spans[..index].contains(span)));
    }
}
