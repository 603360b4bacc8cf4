//! Registered agents: by id, by topic, and which of them are present, which is to say within their lease.
//!
//! A topic's subscribers stand in two lists: those a call reaches (present or durable), and the absent. The lists change
//! when an agent comes or goes, so a call costs as much as it reaches, however many absent agents are registered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ahash::{HashMap, HashMapExt as _};
use bus::Bucket;
use bytes::Bytes;
use schemas::control::Registration;
use schemas::presence::REPORT_PERIOD_MS;
use schemas::{AgentId, Code, Refusal, TopicName};

use super::consent_requests::{ConsentRequest, owner_of_requests};
use super::{Registry, Tables};
use crate::metrics::ShedReason;

/// Members looked at by one [`AgentTable::sweep`]: some milliseconds for which nothing else reads the table.
const SWEPT_MAX: usize = 4096;

impl Registry {
    /// An agent was heard. As cheap as a look-up, except when it was absent.
    pub(crate) fn note_presence(&self, agent: &AgentId, signal: PresenceSignal) {
        let was_absent = self.read().agents.note_presence(agent, self.now_ms(), signal);
        if was_absent {
            self.tables.write().agents.handle_return(agent);
        }
    }

    /// The bus answered: this gateway hears whoever speaks.
    pub(super) fn handle_answer(&self) {
        self.tables.write().agents.handle_answer(self.now_ms());
    }

    /// Finds agents absent whose lease has ended; true when more are due.
    pub(super) fn sweep(&self) -> bool {
        self.tables.write().agents.sweep(self.now_ms())
    }

    /// Stores a registration; true when the agent had none.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when no further agent is taken; otherwise as [`Registry::put`].
    pub(crate) async fn register(
        &self,
        agent: &AgentId,
        registration: &Registration,
        agents_max: usize,
    ) -> Result<bool, Refusal> {
        let is_new = self.read().agents.registration(agent).is_none();
        // An agent that is registered already takes no room; a new one keeps its own until it is in the tables.
        let room = if is_new { self.room_for_agent(agents_max) } else { None };
        if is_new && room.is_none() {
            self.metrics.messages.shed.of(ShedReason::Agents).inc();
            return Err(Refusal::new(Code::Overloaded, "no further agent is registered now").retry_after_ms(60_000));
        }
        let is_seen = |tables: &Tables| tables.agents.registration(agent).is_some_and(|seen| **seen == *registration);
        self.put(Bucket::Agents, agent.to_string(), registration, is_seen).await?;
        let tables = self.read();
        self.metrics.access.agents(tables.agents.len(), tables.agents.present_len());
        Ok(is_new)
    }

    /// Room for one agent more, unless as many as allowed are registered or being registered.
    fn room_for_agent(&self, agents_max: usize) -> Option<Arrival<'_>> {
        let before = self.arriving.fetch_add(1, Ordering::Relaxed);
        let arrival = Arrival(&self.arriving);
        (self.read().agents.len() + before < agents_max).then_some(arrival)
    }
}

/// An agent that is being registered; gives its room back when dropped.
struct Arrival<'r>(&'r AtomicUsize);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The agents.
pub(crate) struct AgentTable {
    by_id: BTreeMap<AgentId, Arc<Member>>,
    audience_by_topic: BTreeMap<TopicName, Audience>,
    requests_by_agent: HashMap<AgentId, Arc<Vec<ConsentRequest>>>,
    listening: Listening,
    /// Every agent not found absent, by when its lease may end. At most one entry each.
    due: BTreeSet<(u64, AgentId)>,
}

/// The subscribers of one topic, in the order of the agent id.
#[derive(Default)]
pub(crate) struct Audience {
    /// Present or durable, unless a lease has ended since the last sweep.
    pub(crate) reached: BTreeMap<AgentId, Arc<Member>>,
    /// Neither.
    pub(crate) absent: BTreeMap<AgentId, Arc<Member>>,
}

impl AgentTable {
    /// No agents; the gateway listens from now on.
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            by_id: BTreeMap::new(),
            audience_by_topic: BTreeMap::new(),
            requests_by_agent: HashMap::new(),
            listening: Listening::from(now_ms),
            due: BTreeSet::new(),
        }
    }

    /// An agent's registration.
    pub(crate) fn registration(&self, agent: &AgentId) -> Option<&Arc<Registration>> {
        self.by_id.get(agent).map(|member| &member.registration)
    }

    /// An agent.
    pub(crate) fn member(&self, agent: &AgentId) -> Option<&Arc<Member>> {
        self.by_id.get(agent)
    }

    /// Every agent, in the order of the agent id.
    pub(super) fn members(&self) -> Vec<(AgentId, Arc<Member>)> {
        self.by_id.iter().map(|(agent, member)| (agent.clone(), member.clone())).collect()
    }

    /// Who subscribes to a topic; none when nobody does.
    pub(crate) fn audience(&self, topic: &TopicName) -> Option<&Audience> {
        self.audience_by_topic.get(topic)
    }

    /// Everybody after `after`, in the order of the agent id.
    pub(crate) fn following<'a>(
        &'a self,
        after: Option<&'a AgentId>,
    ) -> impl Iterator<Item = (&'a AgentId, &'a Arc<Member>)> {
        use std::ops::Bound;
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range::<AgentId, _>((begin, Bound::Unbounded))
    }

    /// The agents whose ids stand around `id` in alphabetical order, at most `each` on either side.
    pub(crate) fn agents_around(&self, id: &AgentId, each: usize) -> impl Iterator<Item = (&AgentId, &Arc<Member>)> {
        around(&self.by_id, id, each)
    }

    /// The topics around `topic` in alphabetical order with their subscribers, at most `each_max` on either side.
    pub(crate) fn topics_around(
        &self,
        topic: &TopicName,
        each_max: usize,
    ) -> impl Iterator<Item = (&TopicName, &Audience)> {
        around(&self.audience_by_topic, topic, each_max)
    }

    /// Calls an agent's owner was to be asked about, oldest first.
    pub(crate) fn requests(&self, agent: &AgentId) -> Option<&Arc<Vec<ConsentRequest>>> {
        self.requests_by_agent.get(agent)
    }

    /// Whether `caller` is told of an agent where agents are named: of itself, of those it finds, and of those that are not
    /// registered, which have not said who may find them.
    pub(crate) fn shows(&self, agent: &AgentId, caller: &AgentId) -> bool {
        agent == caller || self.registration(agent).is_none_or(|known| known.is_visible_to(caller))
    }

    /// How many agents are registered.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many agents were present at the last sweep, or came since.
    pub(crate) fn present_len(&self) -> usize {
        self.due.len()
    }

    /// Whether an agent is present.
    pub(crate) fn is_present(&self, member: &Member, now_ms: u64) -> bool {
        self.presence(now_ms).is_present(member)
    }

    /// Presence as it is now, for whoever looks at many agents without the table.
    pub(crate) fn presence(&self, now_ms: u64) -> PresenceView {
        PresenceView { listening: self.listening, now_ms }
    }

    /// Whether a call to a topic or group reaches an agent without asking for absent ones.
    pub(crate) fn is_reached(&self, member: &Member, now_ms: u64) -> bool {
        member.registration.durable || self.is_present(member, now_ms)
    }

    /// An agent was heard; one that is not registered is nobody. True when it was absent: [`AgentTable::handle_return`]
    /// then puts it on its lists.
    fn note_presence(&self, agent: &AgentId, now_ms: u64, signal: PresenceSignal) -> bool {
        let Some(member) = self.by_id.get(agent) else { return false };
        member.note_presence(now_ms, signal);
        member.is_found_absent()
    }

    /// An agent that was absent has been heard.
    fn handle_return(&mut self, agent: &AgentId) {
        if let Some((agent, member)) = self.by_id.get_key_value(agent).map(|(id, member)| (id.clone(), member.clone()))
            && member.is_absent.swap(false, Ordering::Relaxed)
        {
            self.list(&agent, &member);
        }
    }

    /// The bus answered. After a time in which it did not, everybody may have been heard elsewhere: nobody is absent.
    fn handle_answer(&mut self, now_ms: u64) {
        if !self.listening.handle_answer(now_ms) {
            return;
        }
        let absent = |member: &Arc<Member>| member.is_found_absent();
        let returning: Vec<AgentId> =
            self.by_id.iter().filter(|(_, member)| absent(member)).map(|(agent, _)| agent.clone()).collect();
        for agent in returning {
            self.handle_return(&agent);
        }
    }

    /// Moves agents whose lease has ended to the absent; true when more may be due at once.
    fn sweep(&mut self, now_ms: u64) -> bool {
        let until_ms = self.listening.heard_until_ms(now_ms);
        for _ in 0..SWEPT_MAX {
            if self.due.first().is_none_or(|(due_ms, _)| *due_ms > until_ms) {
                return false;
            }
            let Some((_, agent)) = self.due.pop_first() else { return false };
            let Some(member) = self.by_id.get(&agent).cloned() else { continue };
            if self.lease_end_ms(&member) > until_ms {
                self.await_lease_end(&agent, &member);
            } else {
                member.is_absent.store(true, Ordering::Relaxed);
                self.place(&agent, &member);
            }
        }
        true
    }

    /// Whom this gateway itself heard at `since_ms` or later, in the order of the agent id.
    pub(super) fn heard_here(&self, since_ms: u64) -> Vec<AgentId> {
        let heard = self.by_id.iter().filter(|(_, member)| member.is_heard_here(since_ms));
        heard.map(|(agent, _)| agent.clone()).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
        self.audience_by_topic.clear();
        self.requests_by_agent.clear();
        self.due.clear();
    }

    /// Follows a change of the bucket. A registration that is new, or another than before, counts as heard.
    pub(super) fn apply(&mut self, key: &str, value: Option<&Bytes>, now_ms: u64) -> Result<(), serde_json::Error> {
        if let Some(owner) = owner_of_requests(key) {
            match value {
                Some(value) => self.requests_by_agent.insert(owner, Arc::new(serde_json::from_slice(value)?)),
                None => self.requests_by_agent.remove(&owner),
            };
            return Ok(());
        }
        let Ok(agent) = AgentId::try_new(key) else { return Ok(()) };
        let registration = value.map(|value| serde_json::from_slice::<Registration>(value)).transpose()?;
        if let (Some(member), Some(registration)) = (self.by_id.get(&agent), &registration)
            && *member.registration == *registration
        {
            // A watch that resumes repeats what it has reported: that says nothing about the agent.
            return Ok(());
        }
        if let Some(old) = self.by_id.remove(&agent) {
            self.remove(&agent, &old);
        }
        if let Some(registration) = registration {
            let member = Member::new(registration, now_ms);
            self.by_id.insert(agent.clone(), member.clone());
            self.list(&agent, &member);
        }
        Ok(())
    }

    fn lease_end_ms(&self, member: &Member) -> u64 {
        self.listening.lease_end_ms(member.heard_ms(), member.registration.lease_ms)
    }

    /// Lists an agent that is not absent.
    fn list(&mut self, agent: &AgentId, member: &Arc<Member>) {
        self.place(agent, member);
        self.await_lease_end(agent, member);
    }

    /// Puts an agent on the right list of each of its topics, and takes it off the other.
    fn place(&mut self, agent: &AgentId, member: &Arc<Member>) {
        let is_reached = member.registration.durable || !member.is_found_absent();
        for topic in &member.registration.topics {
            let Audience { reached, absent } = self.audience_by_topic.entry(topic.clone()).or_default();
            let (to, from) = if is_reached { (reached, absent) } else { (absent, reached) };
            from.remove(agent);
            to.insert(agent.clone(), member.clone());
        }
    }

    fn await_lease_end(&mut self, agent: &AgentId, member: &Member) {
        let due_ms = self.lease_end_ms(member);
        let before_ms = member.due_ms.swap(due_ms, Ordering::Relaxed);
        let mut entry = (before_ms, agent.clone());
        self.due.remove(&entry);
        entry.0 = due_ms;
        self.due.insert(entry);
    }

    fn remove(&mut self, agent: &AgentId, member: &Member) {
        self.due.remove(&(member.due_ms.load(Ordering::Relaxed), agent.clone()));
        for topic in &member.registration.topics {
            if let Some(audience) = self.audience_by_topic.get_mut(topic) {
                audience.reached.remove(agent);
                audience.absent.remove(agent);
                if audience.reached.is_empty() && audience.absent.is_empty() {
                    self.audience_by_topic.remove(topic);
                }
            }
        }
    }
}

fn around<'a, K: Ord, V>(map: &'a BTreeMap<K, V>, key: &K, each_max: usize) -> impl Iterator<Item = (&'a K, &'a V)> {
    use std::ops::Bound::{Excluded, Unbounded};
    let before = map.range((Unbounded, Excluded(key))).rev().take(each_max);
    before.chain(map.range((Excluded(key), Unbounded)).take(each_max))
}

/// Silence of the bus after which the gateway counts as cut off, in milliseconds: two of its questions, and some time to
/// answer.
const CUT_OFF_MS: u64 = 2_500;

/// A registered agent, and when it was heard. Shared by every place of a table that lists it.
pub(crate) struct Member {
    pub(crate) registration: Arc<Registration>,
    heard_ms: AtomicU64,
    heard_here_ms: AtomicU64,
    /// When it is to be looked at next; changed with the table's queue alone.
    due_ms: AtomicU64,
    /// Found absent; changed with the table's lists alone.
    is_absent: AtomicBool,
}

impl Member {
    fn new(registration: Registration, heard_ms: u64) -> Arc<Self> {
        Arc::new(Self {
            registration: Arc::new(registration),
            heard_ms: AtomicU64::new(heard_ms),
            heard_here_ms: AtomicU64::new(0),
            due_ms: AtomicU64::new(0),
            is_absent: AtomicBool::new(false),
        })
    }

    /// Whether its lease had ended when the table last looked.
    pub(crate) fn is_found_absent(&self) -> bool {
        self.is_absent.load(Ordering::Relaxed)
    }

    /// Notes that the agent was heard.
    fn note_presence(&self, now_ms: u64, signal: PresenceSignal) {
        let age_ms = match signal {
            PresenceSignal::Here | PresenceSignal::Hello => 0,
            PresenceSignal::Reported => report_age_ms(self.registration.lease_ms),
        };
        self.heard_ms.fetch_max(now_ms.saturating_sub(age_ms), Ordering::Relaxed);
        if signal == PresenceSignal::Here {
            self.heard_here_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
    }

    /// When it was last heard.
    fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Ordering::Relaxed)
    }

    /// Whether this gateway itself heard it at `since_ms` or later.
    fn is_heard_here(&self, since_ms: u64) -> bool {
        self.heard_here_ms.load(Ordering::Relaxed) >= since_ms
    }
}

/// Who is present at one time, by this gateway's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PresenceView {
    listening: Listening,
    now_ms: u64,
}

impl PresenceView {
    /// Whether an agent is present.
    pub(crate) fn is_present(&self, member: &Member) -> bool {
        let lease_end_ms = self.listening.lease_end_ms(member.heard_ms(), member.registration.lease_ms);
        !member.is_found_absent() && lease_end_ms > self.listening.heard_until_ms(self.now_ms)
    }
}

/// How an agent was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PresenceSignal {
    /// By this gateway, which reports it to the others: a message, an acknowledgement, a stream.
    Here,
    /// By its hello, which every gateway hears.
    Hello,
    /// By a gateway's report: at some time since the report before.
    Reported,
}

/// How long ago a reported agent counts as heard: a whole period, so that no report makes a lease longer, unless the lease
/// is so short that one lost report would then end it.
fn report_age_ms(lease_ms: u32) -> u64 {
    u64::from(lease_ms).saturating_sub(2 * REPORT_PERIOD_MS).min(REPORT_PERIOD_MS)
}

/// For how long the gateway has listened without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listening {
    since_ms: u64,
    until_ms: u64,
}

impl Listening {
    /// Listens from now on.
    fn from(now_ms: u64) -> Self {
        Self { since_ms: now_ms, until_ms: now_ms }
    }

    /// The bus answered: the gateway listens. True when it begins anew, because it was cut off.
    fn handle_answer(&mut self, now_ms: u64) -> bool {
        let was_cut_off = now_ms.saturating_sub(self.until_ms) > CUT_OFF_MS;
        if was_cut_off {
            self.since_ms = now_ms;
        }
        self.until_ms = self.until_ms.max(now_ms);
        was_cut_off
    }

    /// When an agent's lease ends, if nothing more is heard of it.
    fn lease_end_ms(&self, heard_ms: u64, lease_ms: u32) -> u64 {
        heard_ms.max(self.since_ms).saturating_add(u64::from(lease_ms))
    }

    /// Up to when the gateway would have heard whoever spoke.
    fn heard_until_ms(&self, now_ms: u64) -> u64 {
        now_ms.min(self.until_ms.saturating_add(CUT_OFF_MS))
    }
}

#[cfg(test)]
mod tests;
