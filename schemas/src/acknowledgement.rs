//! Acknowledgements as a gateway passes them on: those of many agents in one message, `[[agent, [id, …]], …]`.

use crate::ids::{AgentId, DeliveryId};

/// Most ids in one message. With an agent's name for each it stays below 112 KiB.
pub const COLLECTED_IDS_MAX: usize = 1024;

/// Deliveries and the agent that acknowledges them.
pub type AgentAcks = (AgentId, Vec<DeliveryId>);

/// A message for [`crate::subject::collected_acks`].
///
/// # Errors
/// The encoding error, which ids cannot cause.
pub fn encode_collected(acks: &[AgentAcks]) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(acks)
}

/// What a gateway collected.
///
/// # Errors
/// The decoding error. A message with more than [`COLLECTED_IDS_MAX`] ids or agents is none of ours.
pub fn decode_collected(bytes: &[u8]) -> Result<Vec<AgentAcks>, serde_json::Error> {
    let acks: Vec<AgentAcks> = serde_json::from_slice(bytes)?;
    let ids: usize = acks.iter().map(|(_, ids)| ids.len()).sum();
    if acks.len() > COLLECTED_IDS_MAX || ids > COLLECTED_IDS_MAX {
        return Err(serde::de::Error::custom("more acknowledgements than one message holds"));
    }
    Ok(acks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Lane;

    fn id(number: u8) -> DeliveryId {
        DeliveryId::new(Lane(number % 4), [number; 16])
    }

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    #[test]
    fn acknowledgements_of_several_agents_and_lanes_are_read_back_whole() {
        let acks = vec![(agent("alice"), vec![id(1)]), (agent("bob"), vec![id(2), id(3)])];
        let bytes = encode_collected(&acks).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            format!(r#"[["alice",["{}"]],["bob",["{}","{}"]]]"#, id(1), id(2), id(3))
        );
        assert_eq!(decode_collected(&bytes).unwrap(), acks);
    }

    #[test]
    fn what_no_gateway_writes_is_not_read() {
        let too_many = encode_collected(&[(agent("bob"), vec![id(1); COLLECTED_IDS_MAX + 1])]).unwrap();
        let too_many_agents = encode_collected(&vec![(agent("bob"), vec![]); COLLECTED_IDS_MAX + 1]).unwrap();
        for bytes in [
            &b""[..],
            b"{}",
            b"[1]",
            br#"[["bob"]]"#,
            br#"[["a b",[]]]"#,
            br#"[["bob",["x"]]]"#,
            &too_many,
            &too_many_agents,
        ] {
            assert!(decode_collected(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
