//! Presence: which registered agents are there.
//!
//! An agent is present while a gateway holds a stream of it, or heard it within the lease of its registration: an admitted
//! message, an acknowledgement through the gateway, a hello on the bus. Gateways report to each other whom they heard.

use serde::Deserialize;

use crate::ids::AgentId;

/// Between two reports of a gateway, in milliseconds. Half of the shortest lease, so that one lost report ends none.
pub const REPORT_PERIOD_MS: u64 = 5_000;
/// Most agents in one message of a report; a longer report is several messages. At most 67 bytes each: under 280 KiB, well
/// below NATS's default maximum payload of 1 MiB.
pub const REPORT_AGENTS_MAX: usize = 4096;
/// Hellos an agent on the bus says within one lease: two may be lost.
pub const HELLOS_PER_LEASE: u32 = 3;
/// Body of a hello that only renews the lease: engines send nothing again for it.
pub const RENEWAL: &[u8] = br#"{"renewal":true}"#;

/// Whether a hello only renews a lease. Every other body, also an empty one, says that the agent has just connected.
#[must_use]
pub fn is_renewal(hello: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Hello {
        renewal: bool,
    }
    serde_json::from_slice(hello).is_ok_and(|hello: Hello| hello.renewal)
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
    fn a_hello_is_a_renewal_only_when_it_says_so() {
        for renewal in [RENEWAL, br#"{ "renewal": true, "lease": 1 }"#] {
            assert!(is_renewal(renewal));
        }
        for other in [&b""[..], b"{}", br#"{"renewal":false}"#, b"hello"] {
            assert!(!is_renewal(other));
        }
    }
}
