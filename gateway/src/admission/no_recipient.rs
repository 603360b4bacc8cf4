//! What a call that reaches nobody is told: whom it looked for, and the registered names nearest to those. It names nothing
//! that `GET /v1/agents` does not show to everybody.

use std::collections::BTreeSet;

use schemas::ids::Capability;
use schemas::{Address, Code, Refusal};

use super::invite::{AbsentCount, Call};
use crate::nearest::{AROUND_MAX, nearest};
use crate::registry::AgentTable;

/// Addressed agents whose capabilities are looked at.
const ADDRESSED_MAX: usize = 256;
/// How a call reaches who is absent.
const REMEDY_FOR_ABSENT: &str = "`scope.absent`: true to reach absent agents as well, or their agent:// addresses";
/// What `to` takes.
const ADDRESSES: &str = "agent://, topic:// or group:// of agents other than the sender";

/// Nobody registered is addressed.
pub(super) fn unknown(agents: &AgentTable, call: &Call<'_>) -> Refusal {
    let (detail, nearest) = match call.envelope.to.first() {
        None => ("the call names no address".to_owned(), None),
        Some(Address::Agent(agent)) if agent == call.from => ("the sender addresses only itself".to_owned(), None),
        Some(address @ Address::Agent(agent)) => {
            let ids = agents.ids_around(agent, AROUND_MAX).filter(|id| *id != call.from);
            let ids = nearest(agent.as_str(), ids.map(|id| id.as_str()));
            (format!("nobody is registered as {address}"), Some(("agents", ids)))
        }
        Some(address @ Address::Topic(topic)) => {
            let others = agents.topics_around(topic, AROUND_MAX);
            let others = others.filter(|(_, audience)| audience.reached.keys().any(|agent| agent != call.from));
            let topics = nearest(topic.as_str(), others.map(|(topic, _)| topic.as_str()));
            (format!("nobody but perhaps the sender is registered for {address}"), Some(("topics", topics)))
        }
        Some(address @ Address::Group(_)) => {
            (format!("{address} has no registered member other than the sender"), None)
        }
    };
    refusal(detail, ADDRESSES, nearest)
}

/// Registered agents are addressed, but none of them has the capabilities asked for.
pub(super) fn incapable(agents: &AgentTable, call: &Call<'_>) -> Refusal {
    let registered: BTreeSet<&Capability> = addressed(agents, call).flat_map(|of_one| of_one.iter()).collect();
    let is_missing = |wanted: &&Capability| !registered.contains(wanted);
    let asked = || call.requires.iter().chain(&call.envelope.capabilities);
    // Where each is there, but nobody has all of them, the first stands for them all.
    let Some(wanted) = asked().find(is_missing).or_else(|| asked().next()) else { return unknown(agents, call) };
    let others = registered.iter().filter(|other| **other != wanted).map(|other| other.as_str());
    let near = nearest(wanted.as_str(), others);
    let detail = format!("nobody addressed shares the capabilities asked for, such as `{wanted}`");
    let near = (!near.is_empty()).then_some(("capabilities", near));
    refusal(detail, "capabilities that an addressed agent has registered", near)
}

/// Capabilities of agents that are addressed by topic or id. Whom a group holds is not told.
fn addressed<'a>(agents: &'a AgentTable, call: &'a Call<'_>) -> impl Iterator<Item = &'a Vec<Capability>> {
    let ids = call.envelope.to.iter().flat_map(|address| match address {
        Address::Agent(agent) => vec![agent],
        Address::Topic(topic) => agents
            .audience(topic)
            .into_iter()
            .flat_map(|audience| audience.reached.keys())
            .take(ADDRESSED_MAX)
            .collect(),
        Address::Group(_) => Vec::new(),
    });
    let others = ids.take(ADDRESSED_MAX).filter(|id| *id != call.from);
    others.filter_map(|id| agents.registration(id)).map(|registration| &registration.capabilities)
}

fn refusal(detail: String, expected: &str, nearest: Option<(&str, Vec<&str>)>) -> Refusal {
    let nearest = match nearest {
        None => String::new(),
        Some((kind, names)) if names.is_empty() => format!("; no {kind} are registered"),
        Some((kind, names)) => format!("; registered {kind} nearest to that: {}", names.join(", ")),
    };
    Refusal::new(Code::NoRecipient, detail).at("/envelope/to").expecting(format!("{expected}{nearest}"))
}

/// Whom the addresses name is registered but absent.
pub(super) fn absent(count: AbsentCount) -> Refusal {
    let detail = format!("nobody addressed is present: {count} registered but absent");
    Refusal::new(Code::NoRecipient, detail).at("/envelope/to").expecting(REMEDY_FOR_ABSENT)
}

/// Whom the addresses name does not acknowledge.
pub(super) fn unresponsive(count: usize) -> Refusal {
    let detail =
        format!("nobody addressed can be invited now: {count} have too many deliveries they have not acknowledged");
    Refusal::new(Code::Unresponsive, detail)
        .at("/envelope/to")
        .expecting("agents that acknowledge what they receive; these are invited again once they do")
}

/// The same refusal, where further agents were left out because they are absent.
pub(super) fn or_absent(refusal: Refusal, count: AbsentCount) -> Refusal {
    if count.agents == 0 {
        return refusal;
    }
    let detail = format!("{}; {count} more registered but absent", refusal.detail);
    let expected = refusal.expected.iter().map(|expected| format!("{expected}; or ")).collect::<String>();
    Refusal { detail, expected: Some(format!("{expected}{REMEDY_FOR_ABSENT}")), ..refusal }
}
