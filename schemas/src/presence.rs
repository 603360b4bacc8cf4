//! Presence: which registered agents are there.
//!
//! An agent is present while a gateway holds a stream of it, or heard it within the lease of its registration: an admitted
//! message, an acknowledgement through the gateway, a hello on the bus. Gateways report to each other whom they heard.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, GatewayId};

/// Between two reports of a gateway, in milliseconds. Half of the shortest lease, so that one lost report ends none.
pub const REPORT_PERIOD_MS: u64 = 5_000;
/// Most agents in one message of a report; a longer report is several messages. At most 67 bytes each: under 280 KiB, well
/// below NATS's default maximum payload of 1 MiB.
pub const REPORT_AGENTS_MAX: usize = 4096;
/// Hellos an agent on the bus says within one lease: two may be lost.
pub const HELLOS_PER_LEASE: u32 = 3;
/// Body of a hello that only renews the lease: engines send nothing again for it.
pub const RENEWAL: &[u8] = br#"{"renewal":true}"#;

/// What a hello says beyond that the agent was heard. `gateway` is the gateway it comes from; an agent on the bus names none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// The agent has connected, by a stream of that gateway or on the bus: what it has not acknowledged is sent again.
    Connected(Option<GatewayId>),
    /// The agent is still there.
    Renewal(Option<GatewayId>),
    /// The last stream the agent had at that gateway has ended.
    Closed(GatewayId),
}

/// As it stands in the body.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct HelloBody<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    renewal: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    closed: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    gateway: Option<Cow<'a, str>>,
}

impl Hello {
    /// Reads a body. Whatever says nothing else, also an empty one, says that the agent has just connected on the bus.
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        let HelloBody { renewal, closed, gateway } = serde_json::from_slice(body).unwrap_or_default();
        let gateway = gateway.and_then(|gateway| GatewayId::try_new(&gateway).ok());
        match (gateway, closed, renewal) {
            (Some(gateway), true, _) => Self::Closed(gateway),
            (gateway, false, true) => Self::Renewal(gateway),
            (Some(gateway), false, false) => Self::Connected(Some(gateway)),
            (None, _, _) => Self::Connected(None),
        }
    }

    /// The body that says so.
    ///
    /// # Errors
    /// The encoding error, which ids cannot cause.
    pub fn to_body(&self) -> Result<Vec<u8>, serde_json::Error> {
        let (gateway, closed, renewal) = match self {
            Self::Connected(None) => return Ok(Vec::new()),
            Self::Connected(gateway) => (gateway.as_ref(), false, false),
            Self::Renewal(gateway) => (gateway.as_ref(), false, true),
            Self::Closed(gateway) => (Some(gateway), true, false),
        };
        serde_json::to_vec(&HelloBody { renewal, closed, gateway: gateway.map(|id| id.as_str().into()) })
    }
}

/// One gateway's report as messages for [`crate::subject::presence`]; none when nobody was heard.
///
/// # Errors
/// The encoding error, which ids cannot cause.
pub fn encode_report(agents: &[AgentId]) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    agents.chunks(REPORT_AGENTS_MAX).map(serde_json::to_vec).collect()
}

/// The agents of one message of a report.
///
/// # Errors
/// The decoding error: no JSON array of ids. One with more than [`REPORT_AGENTS_MAX`] is none of ours.
pub fn decode_report(bytes: &[u8]) -> Result<Vec<AgentId>, serde_json::Error> {
    let agents: Vec<AgentId> = serde_json::from_slice(bytes)?;
    if agents.len() > REPORT_AGENTS_MAX {
        return Err(serde::de::Error::custom("more agents than one message of a report holds"));
    }
    Ok(agents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_split_and_read_back_whole() {
        let agents: Vec<_> = (0..REPORT_AGENTS_MAX + 1).map(|n| AgentId::try_new(&format!("a{n}")).unwrap()).collect();
        let messages = encode_report(&agents).unwrap();
        assert_eq!(messages.len(), 2);
        let read: Vec<_> = messages.iter().flat_map(|bytes| decode_report(bytes).unwrap()).collect();
        assert_eq!(read, agents);
        assert_eq!(encode_report(&[]).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn what_no_gateway_writes_is_no_report() {
        let too_many: Vec<_> = (0..=REPORT_AGENTS_MAX).map(|n| format!("a{n}")).collect();
        for bytes in [&b""[..], b"{}", b"[1]", br#"["a b"]"#, &serde_json::to_vec(&too_many).unwrap()] {
            assert!(decode_report(bytes).is_err());
        }
    }

    #[test]
    fn a_hello_is_read_back_and_whatever_says_nothing_is_an_agent_that_connects_on_the_bus() {
        let gateway = GatewayId::try_new("gateway-1").unwrap();
        for (hello, body) in [
            (Hello::Connected(None), &b""[..]),
            (Hello::Connected(Some(gateway.clone())), br#"{"gateway":"gateway-1"}"#),
            (Hello::Renewal(None), RENEWAL),
            (Hello::Renewal(Some(gateway.clone())), br#"{"renewal":true,"gateway":"gateway-1"}"#),
            (Hello::Closed(gateway), br#"{"closed":true,"gateway":"gateway-1"}"#),
        ] {
            assert_eq!((hello.to_body().unwrap().as_slice(), Hello::parse(body)), (body, hello));
        }
        assert_eq!(Hello::parse(br#"{ "renewal": true, "lease": 1 }"#), Hello::Renewal(None));
        let long = format!(r#"{{"gateway":"{}"}}"#, "g".repeat(65));
        for other in [
            &b"{}"[..],
            br#"{"renewal":false}"#,
            b"hello",
            br#"{"closed":true}"#,
            br#"{"gateway":"a.b"}"#,
            br#"{"gateway":"*","closed":true}"#,
            br#"{"gateway":7}"#,
            long.as_bytes(),
        ] {
            assert_eq!(Hello::parse(other), Hello::Connected(None), "{}", String::from_utf8_lossy(other));
        }
    }
}
