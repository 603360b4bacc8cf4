//! Who a call reaches: addresses resolved to agents, then presence, capability, consent. No consent, no delivery.

use std::collections::{BTreeMap, BTreeSet};

use schemas::control::{ConsentEffect, Group, Registration};
use schemas::ids::Capability;
use schemas::protocols::Protocol;
use schemas::record::{Invitation, Qos};
use schemas::{Address, AgentId, Code, Envelope, Refusal, TopicName};

use crate::metrics::{GatewayMetrics, Invited, Rule};
use crate::problem::{AROUND_MAX, nearest};
use crate::registry::{AgentTable, Audience, Backlogs, Member, NotedCall, RequestNotes, Tables};

/// Agents considered for one call. A topic or group may have more subscribers than can be invited; this bounds the
/// work before consent is asked.
const CONSIDERED_MAX: usize = 16_384;

/// A call, as far as it decides who is reached.
struct Call<'a> {
    from: &'a AgentId,
    envelope: &'a Envelope,
    requires: &'a [Capability],
    /// What it opens.
    protocol: Protocol,
    /// The gateway's clock, for presence.
    now_ms: u64,
    /// Who acknowledges too little to be invited.
    backlogs: &'a Backlogs,
    /// Who has more to read than it keeps up with.
    behind: &'a Backlogs,
    /// Most agents that may be invited.
    invited_max: usize,
}

impl Call<'_> {
    /// Whether its caller finds another agent: refusals name what such agents have, and nothing else
    /// (docs/spec/search.md#se-18).
    fn may_name(&self, agent: &AgentId, member: &Member) -> bool {
        agent != self.from && member.registration.is_visible_to(self.from)
    }
}

/// What became of the addresses.
pub(super) struct Resolved {
    /// The invited, in the order of the agent id.
    invited: Result<Vec<Invitation>, Refusal>,
    /// Addressed agents that are not invited: absent, without a common capability, without consent, or with too much they
    /// have not acknowledged. An upper bound where the number of the absent is one.
    left_out: u32,
    /// Whose owners are to be asked.
    asks: Vec<Ask>,
    /// How many agents were addressed, by what was decided.
    counted: Counted,
    /// What the call opens.
    protocol: Protocol,
}

/// How many agents a call reaches or does not, besides those whose owners are to be asked.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    /// Consent, and can do what is asked for.
    invited: usize,
    /// Do not consent.
    denied: usize,
    /// Cannot do what is asked for.
    incapable: usize,
    /// Absent, and addressed by a topic or group that the call did not ask to reach them through.
    absent: AbsentCount,
    /// Would be invited, but have not acknowledged too much.
    unresponsive: usize,
    /// Would be invited, but have more to read than they keep up with.
    behind: usize,
}

/// An agent whose rules say that its owner is to be asked about this call.
struct Ask {
    agent: AgentId,
    topic: Option<TopicName>,
}

/// One addressed agent: allowed by any of the ways it is addressed, with the best quality of service among those.
struct InviteCandidate<'a> {
    registration: &'a Registration,
    allowed: Option<Qos>,
    ask: Option<Option<&'a TopicName>>,
}

/// Resolves the addresses of a call to a protocol that may invite `invited_max` agents.
pub(super) fn resolve(
    tables: &Tables,
    now_ms: u64,
    (from, envelope): (&AgentId, &Envelope),
    requires: &[Capability],
    (protocol, invited_max): (Protocol, usize),
) -> Resolved {
    let Tables { agents, groups, backlogs, behind, .. } = tables;
    let call = &Call { from, envelope, requires, protocol, now_ms, backlogs, behind, invited_max };
    let mut gathering = Gathering { agents, call, candidates: BTreeMap::new(), absent: Absent::default() };
    for address in &call.envelope.to {
        match address {
            Address::Agent(agent) => gathering.add_agent(agent),
            Address::Topic(topic) => gathering.add_topic(topic),
            Address::Group(group) => groups.get(group).into_iter().for_each(|group| gathering.add_group(group)),
        }
        if gathering.candidates.len() + gathering.absent.agents.len() > CONSIDERED_MAX {
            let invited = Err(too_many(CONSIDERED_MAX));
            return Resolved { invited, left_out: 0, asks: Vec::new(), counted: Counted::default(), protocol };
        }
    }
    let absent = gathering.absent.count(&gathering.candidates, call.from);
    select(agents, gathering.candidates, absent, call)
}

impl Resolved {
    /// Counts what was decided, notes whose owners are to be asked, and gives the invited and how many were left out.
    ///
    /// # Errors
    /// The refusal of a call that invites nobody, or too many.
    pub(super) fn settle(
        self,
        from: &AgentId,
        notes: &RequestNotes,
        metrics: &GatewayMetrics,
    ) -> Result<(Vec<Invitation>, u32), Refusal> {
        let Counted { invited, denied, incapable, absent, unresponsive, behind } = self.counted;
        for (rule, effect, count) in [
            (Rule::Consent, Invited::Allowed, invited),
            (Rule::Consent, Invited::Denied, denied),
            (Rule::Consent, Invited::Asked, self.asks.len()),
            (Rule::Capability, Invited::Denied, incapable),
            (Rule::Presence, Invited::Denied, absent.agents),
            (Rule::Backlog, Invited::Denied, unresponsive + behind),
        ] {
            metrics.control.addressed(rule, effect, count);
        }
        for ask in self.asks {
            let call = NotedCall { counterpart: from.clone(), topic: ask.topic, protocol: self.protocol };
            notes.note(ask.agent, call);
        }
        Ok((self.invited?, self.left_out))
    }
}

/// The addressed agents, while the addresses are gone through.
struct Gathering<'a, 'c> {
    agents: &'a AgentTable,
    call: &'c Call<'a>,
    candidates: BTreeMap<&'a AgentId, InviteCandidate<'a>>,
    absent: Absent<'a>,
}

impl<'a> Gathering<'a, '_> {
    /// An agent addressed by its id is reached, present or not.
    fn add_agent(&mut self, agent: &'a AgentId) {
        if let Some(member) = self.agents.member(agent) {
            self.consider(agent, member, None, Qos::AtLeastOnce);
        }
    }

    fn add_topic(&mut self, topic: &'a TopicName) {
        let Some(audience) = self.agents.audience(topic) else { return };
        if self.absent.audiences.contains_key(topic) {
            return;
        }
        for (agent, member) in &audience.reached {
            self.consider_if_reached(agent, member, Some(topic), Qos::AtLeastOnce);
        }
        if self.asks_for_absent() {
            for (agent, member) in &audience.absent {
                self.consider(agent, member, Some(topic), Qos::AtLeastOnce);
            }
        } else {
            self.absent.audiences.insert(topic, audience);
        }
    }

    fn add_group(&mut self, group: &'a Group) {
        for agent in &group.members {
            if let Some(member) = self.agents.member(agent) {
                self.consider_if_reached(agent, member, None, group.qos);
            }
        }
    }

    fn asks_for_absent(&self) -> bool {
        self.call.envelope.scope.as_ref().is_some_and(|scope| scope.absent)
    }

    fn consider_if_reached(&mut self, agent: &'a AgentId, member: &'a Member, topic: Option<&'a TopicName>, qos: Qos) {
        if self.asks_for_absent() || self.agents.is_reached(member, self.call.now_ms) {
            self.consider(agent, member, topic, qos);
        } else {
            self.absent.agents.insert(agent);
        }
    }

    /// Adds an agent, and how it consents to being reached this way.
    fn consider(&mut self, agent: &'a AgentId, member: &'a Member, topic: Option<&'a TopicName>, qos: Qos) {
        if agent == self.call.from {
            return;
        }
        let registration = &*member.registration;
        let absent = &mut self.absent;
        let candidate = self.candidates.entry(agent).or_insert_with(|| {
            absent.reached.extend(member.is_found_absent().then_some(agent));
            InviteCandidate { registration, allowed: None, ask: None }
        });
        match registration.consent.effect(topic, self.call.from, self.call.protocol) {
            ConsentEffect::Allow => {
                let is_better = !matches!(candidate.allowed, Some(Qos::AtLeastOnce));
                candidate.allowed = if is_better { Some(qos) } else { candidate.allowed };
            }
            ConsentEffect::Ask => candidate.ask = candidate.ask.or(Some(topic)),
            ConsentEffect::Deny => {}
        }
    }
}

fn select(
    agents: &AgentTable,
    candidates: BTreeMap<&AgentId, InviteCandidate<'_>>,
    absent: AbsentCount,
    call: &Call<'_>,
) -> Resolved {
    let considered = candidates.len();
    let (mut capable, mut unresponsive, mut behind) = (0_usize, 0_usize, 0_usize);
    let mut asks = Vec::new();
    let mut invited = Vec::new();
    for (agent, candidate) in candidates {
        if !is_capable(candidate.registration, call) {
            continue;
        }
        capable += 1;
        match (candidate.allowed, candidate.ask) {
            (Some(_), _) if call.backlogs.holds(agent, call.now_ms) => unresponsive += 1,
            (Some(_), _) if call.behind.holds(agent, call.now_ms) => behind += 1,
            (Some(qos), _) => invited.push(Invitation {
                agent: agent.clone(),
                qos,
                durable: candidate.registration.durable,
                reputation: None,
            }),
            (None, Some(topic)) => asks.push(Ask { agent: agent.clone(), topic: topic.cloned() }),
            (None, None) => {}
        }
    }
    let left_out = u32::try_from(considered - invited.len() + absent.agents).unwrap_or(u32::MAX);
    let counted = Counted {
        invited: invited.len(),
        denied: capable - invited.len() - asks.len() - unresponsive - behind,
        incapable: considered - capable,
        absent,
        unresponsive,
        behind,
    };
    let refuse = |refusal| Err(or_absent(refusal, absent));
    let invited = if considered == 0 && absent.agents > 0 {
        Err(nobody_present(absent))
    } else if considered == 0 {
        Err(nobody_known(agents, call))
    } else if capable == 0 {
        refuse(nobody_capable(agents, call))
    } else if invited.is_empty() && behind > 0 {
        refuse(everybody_behind(behind))
    } else if invited.is_empty() && unresponsive > 0 {
        refuse(nobody_responsive(unresponsive))
    } else if invited.is_empty() {
        let detail = "no agent addressed consents to this topic and counterpart";
        refuse(Refusal::new(Code::NoConsent, detail).at("/envelope/to"))
    } else if invited.len() > call.invited_max {
        Err(too_many(call.invited_max))
    } else {
        Ok(invited)
    };
    Resolved { invited, left_out, asks, counted, protocol: call.protocol }
}

/// At least one of the envelope's capabilities (when it names any), and all that the call requires.
fn is_capable(registration: &Registration, call: &Call<'_>) -> bool {
    let has = |capability: &Capability| registration.capabilities.contains(capability);
    let shared = &call.envelope.capabilities;
    (shared.is_empty() || shared.iter().any(has)) && call.requires.iter().all(has)
}

fn too_many(limit: usize) -> Refusal {
    Refusal::new(Code::OutOfRange, "the call reaches more agents than one negotiation holds")
        .at("/envelope/to")
        .expecting(format!("at most {limit} agents"))
}

/// Subscribers looked at so that one of several addressed topics counts once: some microseconds. Beyond it each topic counts
/// by itself.
const LOOKED_AT_MAX: usize = 64;

/// Those seen while the addresses of a call are gone through. Those on the lists of topics are not gone through.
#[derive(Default)]
struct Absent<'a> {
    /// Seen one by one: members of groups, and agents whose lease has just ended.
    agents: BTreeSet<&'a AgentId>,
    /// The addressed topics.
    audiences: BTreeMap<&'a TopicName, &'a Audience>,
    /// Agents found absent that the call considers all the same, without duplicates; subtracted from the count of those absent.
    reached: Vec<&'a AgentId>,
}

/// How many agents are absent.
#[derive(Debug, Clone, Copy, Default)]
struct AbsentCount {
    /// The number, or an upper bound.
    agents: usize,
    /// Whether it is an upper bound: those that subscribe to several addressed topics count for each.
    is_upper_bound: bool,
}

schemas::shown!(
    AbsentCount = |Self { agents, is_upper_bound }| "{}{agents}",
    if *is_upper_bound { "at most " } else { "" }
);

impl Absent<'_> {
    /// How many are left out: exact where at most [`LOOKED_AT_MAX`] subscribe to the addressed topics beside the one with the
    /// most, and otherwise an upper bound.
    fn count(&self, candidates: &BTreeMap<&AgentId, InviteCandidate<'_>>, from: &AgentId) -> AbsentCount {
        let mut lists: Vec<_> = self.audiences.values().map(|audience| &audience.absent).collect();
        lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
        let lists_of = |agent: &AgentId| lists.iter().filter(|list| list.contains_key(agent)).count();
        let is_alone = |agent: &AgentId| agent != from && !candidates.contains_key(agent) && lists_of(agent) == 0;
        let alone = self.agents.iter().filter(|agent| is_alone(agent)).count();
        let of_lists: usize = lists.iter().map(|list| list.len()).sum();
        let smaller = lists.get(1..).unwrap_or_default();
        let is_upper_bound = smaller.iter().map(|list| list.len()).sum::<usize>() > LOOKED_AT_MAX;
        let counted_times = |agent| if is_upper_bound { lists_of(agent) } else { lists_of(agent).min(1) };
        let not_left_out: usize = self.reached.iter().copied().chain([from]).map(counted_times).sum();
        let again = |(index, list): (usize, &&BTreeMap<AgentId, _>)| {
            let is_on_larger = |agent: &&AgentId| lists[..=index].iter().any(|larger| larger.contains_key(*agent));
            list.keys().filter(is_on_larger).count()
        };
        let repeated: usize = if is_upper_bound { 0 } else { smaller.iter().enumerate().map(again).sum() };
        AbsentCount { agents: alone + of_lists - repeated - not_left_out, is_upper_bound }
    }
}

/// Addressed agents whose capabilities are looked at.
const ADDRESSED_MAX: usize = 256;
/// Subscribers looked at to name a topic. Each may be asked its consent to every protocol, which for all the topics compared
/// comes to as much as for a call that reaches [`CONSIDERED_MAX`] agents.
const SUBSCRIBERS_MAX: usize = 16;
/// How a call reaches who is absent.
const REMEDY_FOR_ABSENT: &str = "`scope.absent`: true to reach absent agents as well, or their agent:// addresses";
/// What `to` takes.
const ADDRESSES: &str = "agent://, topic:// or group:// of agents other than the sender";

/// Nobody registered is addressed.
fn nobody_known(agents: &AgentTable, call: &Call<'_>) -> Refusal {
    let (detail, nearest) = match call.envelope.to.first() {
        None => ("the call names no address".to_owned(), None),
        Some(Address::Agent(agent)) if agent == call.from => ("the sender addresses only itself".to_owned(), None),
        Some(address @ Address::Agent(agent)) => {
            let others = agents.agents_around(agent, AROUND_MAX).filter(|(id, member)| call.may_name(id, member));
            let ids = nearest(agent.as_str(), others.map(|(id, _)| id.as_str()));
            (format!("nobody is registered as {address}; start that agent, or name one that is"), Some(("agents", ids)))
        }
        Some(address @ Address::Topic(topic)) => {
            let others = agents.topics_around(topic, AROUND_MAX).filter(|(_, audience)| {
                let mut looked_at = audience.reached.iter().take(SUBSCRIBERS_MAX);
                looked_at.any(|(id, member)| call.may_name(id, member))
            });
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
fn nobody_capable(agents: &AgentTable, call: &Call<'_>) -> Refusal {
    let registered: BTreeSet<&Capability> = addressed(agents, call).flat_map(|of_one| of_one.iter()).collect();
    let is_missing = |wanted: &&Capability| !registered.contains(wanted);
    let asked = || call.requires.iter().chain(&call.envelope.capabilities);
    // Where each is there, but nobody has all of them, the first stands for them all.
    let Some(wanted) = asked().find(is_missing).or_else(|| asked().next()) else { return nobody_known(agents, call) };
    let others = registered.iter().filter(|other| **other != wanted).map(|other| other.as_str());
    let near = nearest(wanted.as_str(), others);
    let detail = format!("nobody addressed shares the capabilities asked for, such as `{wanted}`");
    let near = (!near.is_empty()).then_some(("capabilities", near));
    refusal(detail, "capabilities that an addressed agent has registered", near)
}

/// Capabilities of agents that are addressed by topic or id and that the caller finds. Whom a group holds is not told.
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
    let others = ids.take(ADDRESSED_MAX).filter_map(|id| Some((id, agents.member(id)?)));
    others.filter(|(id, member)| call.may_name(id, member)).map(|(_, member)| &member.registration.capabilities)
}

fn refusal(detail: String, expected: &str, nearest: Option<(&str, Vec<&str>)>) -> Refusal {
    let nearest = match nearest {
        None => String::new(),
        Some((kind, names)) if names.is_empty() => format!("; no registered {kind} that you may find are near that"),
        Some((kind, names)) => format!("; registered {kind} nearest to that: {}", names.join(", ")),
    };
    Refusal::new(Code::NoRecipient, detail).at("/envelope/to").expecting(format!("{expected}{nearest}"))
}

/// Whom the addresses name is registered but absent.
fn nobody_present(count: AbsentCount) -> Refusal {
    let detail = format!("nobody addressed is present: {count} registered but absent");
    Refusal::new(Code::NoRecipient, detail).at("/envelope/to").expecting(REMEDY_FOR_ABSENT)
}

/// Whom the addresses name does not acknowledge.
fn nobody_responsive(count: usize) -> Refusal {
    let detail =
        format!("nobody addressed can be invited now: {count} have too many deliveries they have not acknowledged");
    Refusal::new(Code::Unresponsive, detail)
        .at("/envelope/to")
        .expecting("agents that acknowledge what they receive; these are invited again once they do")
}

/// When to call an agent that is behind again: its engine says so once a second.
const BEHIND_RETRY_MS: u64 = 1000;

fn everybody_behind(count: usize) -> Refusal {
    let detail = format!("nobody addressed can be invited now: {count} have more to read than they keep up with");
    Refusal::new(Code::Overloaded, detail)
        .at("/envelope/to")
        .expecting("fewer calls to these agents, or others; they are invited again once they have caught up")
        .retry_after_ms(BEHIND_RETRY_MS)
}

/// The same refusal, where further agents were left out because they are absent.
fn or_absent(refusal: Refusal, count: AbsentCount) -> Refusal {
    if count.agents == 0 {
        return refusal;
    }
    let detail = format!("{}; {count} more registered but absent", refusal.detail);
    let expected = refusal.expected.iter().map(|expected| format!("{expected}; or ")).collect::<String>();
    Refusal { detail, expected: Some(format!("{expected}{REMEDY_FOR_ABSENT}")), ..refusal }
}
