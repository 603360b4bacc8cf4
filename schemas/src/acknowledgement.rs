//! Acknowledgements as a gateway passes them on: those of many agents in one message, `[[agent, [id, …]], …]`.

use std::collections::BTreeMap;

use crate::ids::{AgentId, DeliveryId};

/// Most ids in one message. With an agent's name for each it stays below 112 KiB.
pub const COLLECTED_IDS_MAX: usize = 1024;

/// Deliveries and the agent that acknowledges them.
pub type AgentAcks = (AgentId, Vec<DeliveryId>);

/// One message for [`crate::subject::collected_acks`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectedMessage {
    /// Its body.
    pub body: Vec<u8>,
    /// How many ids are in it.
    pub ids: usize,
}

/// Acknowledgements as messages of at most [`COLLECTED_IDS_MAX`] ids; none where there are none.
///
/// # Errors
/// The encoding error, which ids cannot cause.
pub fn encode_collected(
    ids_by_agent: BTreeMap<AgentId, Vec<DeliveryId>>,
) -> Result<Vec<CollectedMessage>, serde_json::Error> {
    let mut messages: Vec<Vec<AgentAcks>> = Vec::new();
    let mut room = 0;
    for (agent, mut ids) in ids_by_agent {
        while !ids.is_empty() {
            if room == 0 {
                messages.push(Vec::new());
                room = COLLECTED_IDS_MAX;
            }
            let rest = ids.split_off(ids.len().min(room));
            room -= ids.len();
            if let Some(message) = messages.last_mut() {
                message.push((agent.clone(), ids));
            }
            ids = rest;
        }
    }
    let encode = |acks: Vec<AgentAcks>| {
        let ids = acks.iter().map(|(_, ids)| ids.len()).sum();
        Ok(CollectedMessage { body: serde_json::to_vec(&acks)?, ids })
    };
    messages.into_iter().map(encode).collect()
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
        let messages = encode_collected(acks.iter().cloned().collect()).unwrap();
        let body = format!(r#"[["alice",["{}"]],["bob",["{}","{}"]]]"#, id(1), id(2), id(3)).into_bytes();
        assert_eq!(messages, [CollectedMessage { body: body.clone(), ids: 3 }]);
        assert_eq!(decode_collected(&body).unwrap(), acks);
    }

    #[test]
    fn acknowledgements_are_split_into_messages_that_are_read() {
        let (alice, bob) = (agent("alice"), agent("bob"));
        let ids_by_agent = [(alice.clone(), vec![id(1); 600]), (bob.clone(), vec![id(2); 2000])].into();
        let messages = encode_collected(ids_by_agent).unwrap();
        assert_eq!(messages.iter().map(|message| message.ids).collect::<Vec<_>>(), [1024, 1024, 552]);
        let read: Vec<_> = messages.iter().map(|message| decode_collected(&message.body).unwrap()).collect();
        let counts: Vec<Vec<_>> =
            read.into_iter().map(|acks| acks.into_iter().map(|(agent, ids)| (agent, ids.len())).collect()).collect();
        assert_eq!(counts, [vec![(alice, 600), (bob.clone(), 424)], vec![(bob.clone(), 1024)], vec![(bob, 552)]]);
        assert_eq!(encode_collected(BTreeMap::new()).unwrap(), []);
    }

    #[test]
    fn what_no_gateway_writes_is_not_read() {
        let too_many = serde_json::to_vec(&[(agent("bob"), vec![id(1); COLLECTED_IDS_MAX + 1])]).unwrap();
        let too_many_agents = serde_json::to_vec(&vec![("bob", [""; 0]); COLLECTED_IDS_MAX + 1]).unwrap();
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
