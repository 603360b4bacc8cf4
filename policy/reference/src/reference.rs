//! The lane: its records in, the facts of each out.

use std::collections::{BTreeMap, BTreeSet};

use policy_core::panel::evidence::{EVIDENCE_ENTRIES_MAX, EVIDENCE_SHARE_MAX};
use policy_core::{Deliver, Effect, Limits};
use schemas::delivery::{Disposition, Notification, Outcome, Receipt};
use schemas::evidence::{EvidenceCounts, EvidenceSubject};
use schemas::ids::FamilyPlace;
use schemas::record::{AdmittedMessage, EngineEvent, Entry, Message, Qos, Record};
use schemas::team::FAMILY_OPEN_MAX;
use schemas::{Act, AgentId, DeliveryId, Digest, MsgId, NegotiationId, Payload, Position, Timestamp};

use serde_json::Value;

use crate::contract_net::opening::NotUnderstood;
use crate::contract_net::task;
use crate::evidence::EvidenceList;
use crate::fact;
use crate::negotiation::{AnyTimer, Negotiation};
use crate::team::tasks::TaskOrder;

/// Where each contractor last won.
pub(crate) type Wins = BTreeMap<AgentId, Position>;

/// The instant and place of one input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// What it is evaluated at.
    pub(crate) now: Timestamp,
    /// The record's time.
    pub(crate) clock: Timestamp,
    pub(crate) position: Position,
    /// The lane's rules.
    pub(crate) rules: u32,
}

/// The naive lane.
#[derive(Debug)]
pub struct Reference {
    limits: Limits,
    now: Timestamp,
    epoch: u64,
    rules: u32,
    /// In the order in which the lane's state fires timers that are due together: by the hash of the id.
    negotiations: BTreeMap<[u8; 16], Negotiation>,
    /// Those that have been, and are no longer recognised.
    forgotten: BTreeSet<[u8; 16]>,
    wins: Wins,
    evidence: EvidenceList,
    waiting: BTreeMap<[u8; 16], UntoldReceipts>,
    /// The calls, ACCEPTs and asks the lane's state delivered: their failure is logged by delivery id.
    deliveries: BTreeMap<DeliveryId, Deliver>,
}

impl Reference {
    /// An empty lane.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            now: Timestamp(0),
            epoch: 0,
            rules: 1,
            negotiations: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            wins: BTreeMap::new(),
            evidence: EvidenceList::new(EVIDENCE_ENTRIES_MAX, EVIDENCE_SHARE_MAX),
            waiting: BTreeMap::new(),
            deliveries: BTreeMap::new(),
        }
    }

    /// The facts of one record, sorted. Records come in the order of the log; `time` may go back, the lane's does not.
    pub fn fold(&mut self, seq: u64, time: Timestamp, record: &Record) -> Vec<String> {
        self.now = self.now.max(time);
        let mut facts = Vec::new();
        self.fire_timers(seq, &mut facts);
        let now = self.now;
        let grace_ms = self.limits.tombstone_grace_ms;
        self.negotiations.retain(|key, one| {
            let is_recognised = !one.has_ended() || one.ends_by().plus_ms(grace_ms) >= now;
            if !is_recognised {
                self.waiting.remove(key);
                self.forgotten.insert(*key);
            }
            is_recognised
        });
        for (index, entry) in (0..).zip(&record.entries) {
            let moment = Moment { now, clock: now, position: Position { seq, index }, rules: self.rules };
            self.take(entry, moment, &mut facts);
        }
        facts.sort();
        facts
    }

    /// Learns the ids of the fold's deliveries, which it cannot compute: their failure is logged by id. To be called
    /// with the effects of each record, after [`Reference::fold`].
    pub fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Deliver(deliver) = effect
                && matches!(*deliver.told, Notification::Cfp(_) | Notification::Accept(_) | Notification::Ask(_))
            {
                self.deliveries.insert(deliver.id, deliver.clone());
            }
        }
    }

    /// When time alone will change something.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.next_timer().map(|(at, _, _)| at)
    }

    /// Negotiations that are open, and that have ended but are still recognised.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let open = self.negotiations.values().filter(|one| !one.has_ended()).count();
        (open, self.negotiations.len() - open)
    }

    /// What panels have shown, in the order of the subjects.
    #[must_use]
    pub fn evidence(&self) -> Vec<(&EvidenceSubject, &EvidenceCounts)> {
        self.evidence.sorted()
    }

    fn next_timer(&self) -> Option<(Timestamp, AnyTimer, [u8; 16])> {
        let timers = self
            .negotiations
            .iter()
            .flat_map(|(key, one)| one.timers().into_iter().map(|(at, timer)| (at, timer, *key)));
        timers.min()
    }

    fn fire_timers(&mut self, seq: u64, facts: &mut Vec<String>) {
        let mut index = u32::MAX;
        while let Some((at, timer, key)) = self.next_timer().filter(|(at, _, _)| *at < self.now) {
            let moment = Moment { now: at, clock: self.now, position: Position { seq, index }, rules: self.rules };
            let one = self.negotiations.get_mut(&key).expect("it has a timer");
            one.fire(timer, moment, &mut self.wins);
            self.spread(key, moment, facts);
            index -= 1;
        }
    }

    fn take(&mut self, entry: &Entry, moment: Moment, facts: &mut Vec<String>) {
        match entry {
            Entry::Message(message) => self.hear(message, moment, facts),
            Entry::Tick => {}
            Entry::Engine { epoch, event } => self.take_engine_event(*epoch, event, moment, facts),
        }
    }

    fn take_engine_event(&mut self, epoch: u64, event: &EngineEvent, moment: Moment, facts: &mut Vec<String>) {
        if let EngineEvent::Claim { .. } = event {
            self.epoch = self.epoch.max(epoch);
        }
        if epoch < self.epoch {
            return;
        }
        if let EngineEvent::Rules { version } = event {
            self.rules = *version;
        }
        let negotiation = match event {
            EngineEvent::DeliveryFailed { negotiation, .. } | EngineEvent::Abort { negotiation, .. } => negotiation,
            EngineEvent::Claim { .. } | EngineEvent::Delivered { .. } | EngineEvent::Rules { .. } => return,
        };
        let key = key(negotiation);
        let Some(one) = self.negotiations.get_mut(&key).filter(|one| !one.has_ended()) else {
            return;
        };
        match event {
            EngineEvent::DeliveryFailed { id, may_answer, .. } => {
                if let Some(deliver) = self.deliveries.get(id) {
                    one.delivery_failed(deliver, *may_answer, moment, &mut self.wins);
                }
            }
            EngineEvent::Abort { .. } => one.abort(moment),
            EngineEvent::Claim { .. } | EngineEvent::Delivered { .. } | EngineEvent::Rules { .. } => {}
        }
        self.spread(key, moment, facts);
    }

    /// What one input of a negotiation led to. Who is told anything is told with it what waits; what waits at the end, and
    /// goes with nothing, nobody is told (docs/spec/messages.md#ms-56).
    fn tell(&mut self, key: [u8; 16], facts: &mut Vec<String>) {
        let one = self.negotiations.get_mut(&key).expect("it had an input");
        if let Negotiation::Panel(panel) = one {
            for (subject, shown) in panel.take_shown() {
                self.evidence.add(subject, &shown);
            }
        }
        let waiting = self.waiting.get_mut(&key).expect("it was opened");
        let mut told = std::mem::take(one.facts());
        let once = &waiting.called_once;
        let (leaving, staying): (Vec<_>, Vec<_>) = std::mem::take(&mut waiting.receipts)
            .into_iter()
            .partition(|(to, receipt)| told.iter().any(|fact| goes_along(fact, receipt, once.contains(to))));
        waiting.receipts = if one.has_ended() { Vec::new() } else { staying };
        told.extend(leaving.into_iter().map(|(_, receipt)| format!("{receipt} along")));
        facts.append(&mut told);
    }

    /// What one input of a negotiation leads to in its family: its team hears how a task stands, its tasks what they are to do.
    fn spread(&mut self, key: [u8; 16], moment: Moment, facts: &mut Vec<String>) {
        self.tell(key, facts);
        let one = &self.negotiations[&key];
        let task =
            if let Negotiation::ContractNet(net) = one { Some((net.id().clone(), task::standing(net))) } else { None };
        if let Some((id, standing)) = task
            && let Some(above) = id.parent().map(|above| self::key(&above))
            && let Some(Negotiation::Team(team)) = self.negotiations.get_mut(&above)
        {
            team.task_stands(&id, standing, moment);
            self.spread(above, moment, facts);
        }
        self.raise(key, moment, facts);
        let orders = match self.negotiations.get_mut(&key) {
            Some(Negotiation::Team(team)) => team.take_orders(),
            Some(_) | None => Vec::new(),
        };
        for order in orders {
            self.apply_order(order, moment, facts);
        }
    }

    /// A sub-team that has concluded gives its task a result; one whose award is committed no longer ends.
    fn raise(&mut self, key: [u8; 16], moment: Moment, facts: &mut Vec<String>) {
        let raised = match self.negotiations.get_mut(&key) {
            Some(Negotiation::Team(team)) => team.take_raised().map(|text| (team.id().clone(), text)),
            Some(_) | None => None,
        };
        if let Some((id, text)) = raised
            && let FamilyPlace::SubTeam { award_no, .. } = id.place()
        {
            let above = self::key(&id.parent().expect("a sub-team's task"));
            if let Some(Negotiation::ContractNet(net)) = self.negotiations.get_mut(&above) {
                task::take_conclusion(net, award_no, &text, moment);
                self.spread(above, moment, facts);
            }
        }
        let Some(Negotiation::ContractNet(net)) = self.negotiations.get(&key) else { return };
        let is_aborted = net.outcome == Some(Outcome::Aborted);
        let is_orphan = |one: &Negotiation| {
            let Negotiation::Team(team) = one else { return false };
            let FamilyPlace::SubTeam { award_no, .. } = team.id().place() else { return false };
            let is_below = team.id().parent().as_ref() == Some(net.id());
            team.outcome.is_none() && is_below && !task::is_committed(net, award_no)
        };
        let orphans: Vec<_> = self.negotiations.iter().filter(|(_, one)| is_orphan(one)).map(|(key, _)| *key).collect();
        for orphan in orphans {
            if let Some(Negotiation::Team(team)) = self.negotiations.get_mut(&orphan) {
                if is_aborted {
                    team.abort(moment);
                } else {
                    team.handle_parent_ended(moment);
                }
            }
            self.spread(orphan, moment, facts);
        }
    }

    /// What a sub-team may be called with, or what its caller is answered (docs/spec/team.md#tm-64).
    fn sub_team_above(
        &self,
        message: &AdmittedMessage,
        decoded: &Message,
    ) -> Result<(Timestamp, u32), (Disposition, Option<NotUnderstood>)> {
        let stranger = (Disposition::Unauthorized, None);
        let Payload::Cfp(cfp) = &decoded.payload else { return Err(stranger) };
        let Some(of) = cfp.team.as_ref().and_then(|team| team.of.as_ref()) else { return Err(stranger) };
        if of.task.sub_team(of.award_no).as_ref() != Some(&message.negotiation) {
            return Err(stranger);
        }
        let team = of.task.parent().and_then(|team| self.negotiations.get(&self::key(&team)));
        if matches!(team, Some(Negotiation::Team(team)) if team.has_left(&message.from)) {
            return Err(stranger);
        }
        let Some(Negotiation::ContractNet(net)) = self.negotiations.get(&self::key(&of.task)) else {
            return Err(stranger);
        };
        let pointed = |reason| NotUnderstood { reason, pointer: Some("/payload/team/of".to_owned()) };
        let above = task::sub_team(net, &message.from, of.award_no).map_err(|(disposition, reason)| {
            let misread = reason.map(|reason| if reason == "depth" { pointed(reason) } else { reason.into() });
            (disposition, misread)
        })?;
        if self.family_open(&message.negotiation) >= FAMILY_OPEN_MAX {
            return Err((Disposition::Malformed, Some(pointed("too_many_tasks"))));
        }
        Ok(above)
    }

    /// How many of a family are open.
    fn family_open(&self, negotiation: &NegotiationId) -> usize {
        let family = self.negotiations.values().filter(|one| !one.has_ended());
        let is_in = |one: &&Negotiation| match one {
            Negotiation::Team(team) => team.id().root() == negotiation.root(),
            Negotiation::ContractNet(net) => net.id().root() == negotiation.root(),
            Negotiation::Bargain(_) | Negotiation::Panel(_) => false,
        };
        family.filter(is_in).count()
    }

    fn apply_order(&mut self, order: TaskOrder, moment: Moment, facts: &mut Vec<String>) {
        let below = key(order.id());
        if let TaskOrder::Open(call) = order {
            let net = task::of_task(*call, moment, &mut self.wins);
            self.negotiations.insert(below, Negotiation::ContractNet(Box::new(net)));
            self.waiting.insert(below, UntoldReceipts { receipts: Vec::new(), called_once: BTreeSet::new() });
            return self.spread(below, moment, facts);
        }
        let Some(Negotiation::ContractNet(net)) = self.negotiations.get_mut(&below) else { return };
        match order {
            TaskOrder::Open(_) => {}
            TaskOrder::CallOff(_) => net.call_task_off(moment),
            TaskOrder::Abort(_) if net.outcome.is_none() => net.abort(moment),
            TaskOrder::Abort(_) => {}
            TaskOrder::DetachFromTeam(_, lead) if net.outcome.is_none() => net.detach_from_team(lead),
            TaskOrder::DetachFromTeam(..) => {}
            TaskOrder::MemberLeft(_, agent) => task::handle_member_left(net, &agent, moment, &mut self.wins),
        }
        self.spread(below, moment, facts);
    }

    /// Whoever leads a team may call its tasks off, a party of them or not.
    fn admit_lead(&mut self, key: [u8; 16], message: &AdmittedMessage) {
        let above = message.negotiation.parent().and_then(|above| self.negotiations.get(&self::key(&above)));
        let Some(Negotiation::Team(team)) = above else { return };
        let lead = team.leader();
        if let Some(Negotiation::ContractNet(net)) = self.negotiations.get_mut(&key) {
            net.note_lead(lead);
            if message.act == Act::Cancel && net.is_led_by(&message.from) {
                net.admit(&message.from);
            }
        }
    }

    /// Whoever has left a team is a stranger to its tasks (docs/spec/team.md#tm-63).
    fn has_left_above(&self, message: &AdmittedMessage) -> bool {
        let FamilyPlace::Task(_) = message.negotiation.place() else { return false };
        let above = message.negotiation.parent().and_then(|above| self.negotiations.get(&self::key(&above)));
        matches!(above, Some(Negotiation::Team(team)) if team.has_left(&message.from))
    }

    /// Nobody asked for the receipt of this message: if it says no more than `ok`, it waits.
    fn hold_receipt(&mut self, key: [u8; 16], message: &AdmittedMessage, id: &MsgId) {
        let one = self.negotiations.get_mut(&key).expect("it had an input");
        let is_bare = |fact: &String| {
            let words: Vec<&str> = fact.split(' ').collect();
            words.starts_with(&[message.negotiation.as_str(), message.from.as_str(), "ack", id.as_str(), "Ok"])
                && words[5] != "first"
                && words.ends_with(&["None"])
        };
        let (bare, others): (Vec<String>, Vec<String>) = std::mem::take(one.facts()).into_iter().partition(is_bare);
        *one.facts() = others;
        let waiting = self.waiting.get_mut(&key).expect("it was opened");
        waiting.receipts.extend(bare.into_iter().map(|receipt| (message.from.clone(), receipt)));
    }

    fn hear(&mut self, message: &AdmittedMessage, moment: Moment, facts: &mut Vec<String>) {
        let stranger = |msg_id: MsgId, disposition| {
            let receipt = Receipt::new(msg_id, disposition);
            fact::ack(&message.negotiation, &message.from, &receipt)
        };
        let not_understood = |NotUnderstood { reason, pointer }| {
            fact::not_understood(&message.negotiation, &message.from, reason, pointer.as_deref())
        };
        let Ok(decoded) = message.message() else {
            // Without even an id there is nobody to answer.
            facts.extend(msg_id(message).map(|id| stranger(id, Disposition::Malformed)));
            return;
        };
        let msg_id = decoded.envelope.msg_id.clone();
        if decoded.envelope.sender() != Some(&message.from) {
            facts.push(stranger(msg_id, Disposition::Unauthorized));
            return;
        }
        let key = key(&message.negotiation);
        let is_full = message.pinned.is_some() && self.counts().0 >= self.limits.open_max;
        let is_call = message.act == Act::Cfp && message.pinned.is_some();
        let is_sub_call = is_call && matches!(message.negotiation.place(), FamilyPlace::SubTeam { .. });
        let above = if is_sub_call { Some(self.sub_team_above(message, &decoded)) } else { None };
        let has_of =
            matches!(&decoded.payload, Payload::Cfp(cfp) if cfp.team.as_ref().is_some_and(|team| team.of.is_some()));
        let is_own_call = if is_sub_call { true } else { is_own_call(message) && !has_of };
        if message.act == Act::Assign {
            let room = FAMILY_OPEN_MAX - self.family_open(&message.negotiation);
            let room = room.min(self.limits.open_max.saturating_sub(self.counts().0));
            if let Some(Negotiation::Team(team)) = self.negotiations.get_mut(&key) {
                team.family_room = room;
            }
        }
        self.admit_lead(key, message);
        let has_left = self.has_left_above(message);
        match self.negotiations.get_mut(&key) {
            Some(one) if one.is_party(&message.from) && !has_left => {
                let is_asked = message.receipts_all || decoded.envelope.receipt;
                one.hear(message, decoded, moment, &mut self.wins, &self.limits);
                if !is_asked && !one.answered_at_once() {
                    self.hold_receipt(key, message, &msg_id);
                }
                self.spread(key, moment, facts);
            }
            // A call that pins nothing is none, whoever says it (docs/spec/contract-net.md#cn-6).
            None if message.act == Act::Cfp && message.pinned.is_none() => {
                facts.push(stranger(msg_id, Disposition::Malformed));
            }
            None if matches!(&above, Some(Err(_))) => {
                let Some(Err((disposition, misread))) = above else { return };
                facts.push(stranger(msg_id, disposition));
                facts.extend(misread.map(not_understood));
            }
            None if is_own_call && self.forgotten.contains(&key) => {
                facts.push(stranger(msg_id, Disposition::Closed));
            }
            None if is_own_call && is_full => facts.push(stranger(msg_id, Disposition::RateLimited)),
            None if is_own_call => match Negotiation::open(message, &decoded, above.and_then(Result::ok), moment) {
                Ok(one) => {
                    self.negotiations.insert(key, one);
                    self.waiting.insert(key, UntoldReceipts::of(message));
                    self.tell(key, facts);
                }
                Err(misread) => {
                    facts.push(stranger(msg_id, Disposition::Malformed));
                    facts.extend(misread.map(not_understood));
                }
            },
            Some(_) | None => facts.push(stranger(msg_id, Disposition::Unauthorized)),
        }
    }
}

/// The receipts of one negotiation that nobody has been told yet.
#[derive(Debug)]
struct UntoldReceipts {
    receipts: Vec<(AgentId, String)>,
    /// Who is called once only: nothing goes along with what may be lost.
    called_once: BTreeSet<AgentId>,
}

impl UntoldReceipts {
    fn of(call: &AdmittedMessage) -> Self {
        let invited = call.pinned.iter().flat_map(|pinned| &pinned.invited);
        let once = invited.filter(|invitation| invitation.qos == Qos::BestEffort);
        Self { receipts: Vec::new(), called_once: once.map(|invitation| invitation.agent.clone()).collect() }
    }
}

/// Whether a fact is something told in the same negotiation to the one a receipt is for.
fn goes_along(fact: &str, receipt: &str, is_called_once: bool) -> bool {
    let (mut said, mut waits) = (fact.split(' '), receipt.split(' '));
    let is_for_both = (said.next(), said.next()) == (waits.next(), waits.next());
    let is_told = match said.next().unwrap_or_default() {
        "ack" | "accept" | "reject" | "cancel" | "offers" | "inform" | "failure" => true,
        "not_understood" | "closed" | "Turn" | "Finding" | "Floor" | "StandingBid" => true,
        "cfp" | "Ask" => !is_called_once,
        _ => false,
    };
    is_for_both && is_told
}

/// The id of a message that cannot be read otherwise.
fn msg_id(message: &AdmittedMessage) -> Option<MsgId> {
    let document: Value = serde_json::from_str(message.body.get()).ok()?;
    serde_json::from_value(document.get("envelope")?.get("msg_id")?.clone()).ok()
}

fn key(negotiation: &NegotiationId) -> [u8; 16] {
    Digest::of_bytes(negotiation.as_str().as_bytes()).short()
}

/// Only its initiator can open a negotiation: its name is part of the id.
fn is_own_call(message: &AdmittedMessage) -> bool {
    let is_root = message.negotiation.place() == FamilyPlace::Root;
    message.act == Act::Cfp && is_root && message.negotiation.initiator() == message.from.as_str()
}
