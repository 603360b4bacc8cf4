//! What a lane's owner counts for people who look: in all, by policy, by agent. Durations are kept for a minute, in
//! buckets, eight to each doubling, so that a figure is at most an eighth too high.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use ahash::HashMap;
use policy_core::{Decision, Event};
use schemas::delivery::{Disposition, Outcome};
use schemas::statistics::{EndedNegotiation, Histogram, NAMED_MAX, OTHER, POLICIES_MAX, PolicyActivity};
use schemas::{Act, AgentId, Timestamp};

use crate::lane::observer::{AgentTotals, Totals};
use crate::lane::{DeliveryEvent, DeliveryStep};

/// See the module. Survives the loss of the lane.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    /// Without what is looked up when somebody asks.
    totals: Totals,
    /// This process has owned the lane before.
    has_owned: bool,
    minute: Minute,
    policies: Policies,
    agents: Agents,
    /// The ends of the newest [`NAMED_MAX`], with the log time at which they were counted, oldest first.
    latest: VecDeque<(Timestamp, Event)>,
}

impl LaneCounters {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is not counted")]
    pub(crate) fn count(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::Started { negotiation, .. } => {
                self.totals.started += 1;
                if let Ok(initiator) = AgentId::try_new(negotiation.initiator()) {
                    self.agents.of(&initiator).opened += 1;
                }
            }
            Event::Disposed { from, act: Act::Offer, disposition: Disposition::Ok, .. } => {
                self.totals.offers += 1;
                self.agents.of(from).offers += 1;
            }
            Event::Decided(decision) => {
                self.totals.awards += decision.awards.len() as u64;
                self.agents.count_decision(decision);
            }
            Event::Committed { .. } => self.totals.binding += 1,
            Event::Ended { policy, outcome, offers, awards, elapsed_us, .. } => {
                self.totals.ended[*outcome as usize] += 1;
                let agreements = u64::from(*outcome == Outcome::Agreement);
                self.totals.awards += agreements;
                self.totals.binding += agreements;
                self.minute.add(at, *elapsed_us);
                self.policies.count_ended(policy, *awards, *offers, at, *elapsed_us);
                if self.latest.len() == NAMED_MAX {
                    self.latest.pop_front();
                }
                self.latest.push_back((at, event.clone()));
            }
            _ => {}
        }
    }

    /// The lane is owned from now on. `outlives`: whoever owned it before is gone, and with it what it counted; unless that
    /// was this process itself.
    pub(crate) fn handle_takeover(&mut self, outlives: bool) {
        self.totals.lower_bound |= outlives && !self.has_owned;
        self.has_owned = true;
    }

    /// Counts what became of a delivery.
    pub(crate) fn count_delivery(&mut self, event: &DeliveryEvent) {
        match event.step {
            DeliveryStep::Sent | DeliveryStep::SentOnce if event.act == Act::Cfp => {
                self.agents.of(&event.to).calls += 1
            }
            DeliveryStep::Acknowledged => {
                if let Some(waited) = event.waited {
                    let us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
                    add_duration(&mut self.agents.of(&event.to).acknowledged, us);
                }
            }
            DeliveryStep::Sent | DeliveryStep::SentOnce | DeliveryStep::GivenUp(_) => {}
        }
    }

    /// Everything counted, and what the minute before `now`, in log time, came to.
    pub(crate) fn counted(&mut self, now: Timestamp) -> Totals {
        Totals {
            round: self.minute.counts(now),
            recent: self.minute.recent(now),
            policies: self.policies.activities(now),
            agents: self.agents.busiest(),
            latest: self.latest.iter().rev().filter_map(|(at, event)| told(event, *at)).collect(),
            ..self.totals.clone()
        }
    }
}

/// The end of a negotiation, as it is told.
fn told(event: &Event, at: Timestamp) -> Option<EndedNegotiation> {
    let Event::Ended { negotiation, protocol, policy, outcome, awards, offers, elapsed_us, .. } = event else {
        return None;
    };
    Some(EndedNegotiation {
        negotiation: negotiation.clone(),
        protocol: protocol.as_str().to_owned(),
        policy: policy.to_string(),
        outcome: outcome.as_str().to_owned(),
        awards: *awards,
        offers: *offers,
        at,
        elapsed_us: *elapsed_us,
    })
}

/// What happened under each policy. At most [`POLICIES_MAX`] and [`OTHER`].
#[derive(Debug, Default)]
struct Policies(BTreeMap<String, PolicyTotals>);

#[derive(Debug, Default)]
struct PolicyTotals {
    ended: u64,
    awards: u64,
    offers: u64,
    minute: Minute,
}

impl Policies {
    /// Counts a negotiation that ended at `at`, in log time, after `took_us`.
    fn count_ended(&mut self, policy: &str, awards: u32, offers: u32, at: Timestamp, took_us: u64) {
        let is_apart = self.0.contains_key(policy) || self.0.len() < POLICIES_MAX;
        let counted = self.0.entry(if is_apart { policy } else { OTHER }.to_owned()).or_default();
        counted.ended += 1;
        counted.awards += u64::from(awards);
        counted.offers += u64::from(offers);
        counted.minute.add(at, took_us);
    }

    fn activities(&mut self, now: Timestamp) -> Vec<PolicyActivity> {
        let activity = |(policy, counted): (&String, &mut PolicyTotals)| PolicyActivity {
            policy: policy.clone(),
            ended: counted.ended,
            awards: counted.awards,
            offers: counted.offers,
            durations: counted.minute.counts(now),
        };
        self.0.iter_mut().map(activity).collect()
    }
}

/// Agents counted. When there are more, the half that did nothing for longest is forgotten: 1024 agents take a lane about
/// a megabyte.
const COUNTED_MAX: usize = 1024;
/// Agents a lane gives the figures of, four times what statistics do: the busiest of the engine are among those of its lanes.
const GIVEN_MAX: usize = 256;
const PPM: u64 = 1_000_000;

/// What agents did.
#[derive(Debug, Default)]
struct Agents {
    by_id: HashMap<AgentId, AgentTotals>,
    /// Rises with everything that is counted.
    clock: u64,
}

impl Agents {
    /// Counts who won, and what each would have won had lots been drawn among the offers.
    fn count_decision(&mut self, decision: &Decision) {
        let (awards, offers) = (decision.awards.len() as u64, decision.offers.len() as u64);
        if awards == 0 || offers == 0 {
            return;
        }
        for offer in &decision.offers {
            let is_winner = decision.awards.iter().any(|award| award.offer_id == offer.offer_id);
            let counted = self.of(&offer.contractor);
            counted.fair_ppm = counted.fair_ppm.saturating_add(awards * PPM / offers);
            counted.awards += u64::from(is_winner);
        }
    }

    /// The busiest, with what they did.
    fn busiest(&self) -> Vec<(AgentId, AgentTotals)> {
        let mut busiest: Vec<(&AgentId, &AgentTotals)> = self.by_id.iter().collect();
        busiest.sort_by_key(|(agent, counted)| (Reverse(counted.messages()), *agent));
        busiest.into_iter().take(GIVEN_MAX).map(|(agent, counted)| (agent.clone(), counted.clone())).collect()
    }

    fn of(&mut self, agent: &AgentId) -> &mut AgentTotals {
        self.clock += 1;
        if self.by_id.len() >= COUNTED_MAX && !self.by_id.contains_key(agent) {
            self.forget_half();
        }
        let counted = self.by_id.entry(agent.clone()).or_default();
        counted.last = self.clock;
        counted
    }

    fn forget_half(&mut self) {
        let mut last: Vec<u64> = self.by_id.values().map(|counted| counted.last).collect();
        let (_, median, _) = last.select_nth_unstable(COUNTED_MAX / 2);
        let median = *median;
        self.by_id.retain(|_, counted| counted.last >= median);
    }
}

/// How long a duration is remembered.
const SECONDS: u64 = 60;
/// What counts as recent.
const RECENT_SECONDS: u64 = 5;
const US_PER_S: u64 = 1_000_000;
/// Buckets to each doubling, as a power of two.
const STEP_BITS: u32 = 3;
const STEPS: u64 = 1 << STEP_BITS;

/// Durations by the second of their end; at most [`SECONDS`] histograms, of at most 496 buckets each.
#[derive(Debug, Default)]
struct Minute(VecDeque<(u64, Histogram)>);

impl Minute {
    /// Something that took so long ended at `at`, which never goes back.
    fn add(&mut self, at: Timestamp, took_us: u64) {
        let second = at.0 / US_PER_S;
        self.forget_before(second);
        if self.0.back().is_none_or(|(last, _)| *last < second) {
            self.0.push_back((second, Histogram::default()));
        }
        if let Some((_, counts)) = self.0.back_mut() {
            add_duration(counts, took_us);
        }
    }

    /// What ended in the minute before `now`.
    fn counts(&mut self, now: Timestamp) -> Histogram {
        self.forget_before(now.0 / US_PER_S);
        let mut all = Histogram::default();
        self.0.iter().for_each(|(_, counts)| all.merge(counts));
        all
    }

    /// What ended in the last few seconds before `now`.
    fn recent(&mut self, now: Timestamp) -> Histogram {
        let first = (now.0 / US_PER_S).saturating_sub(RECENT_SECONDS);
        let mut all = Histogram::default();
        self.0.iter().rev().take_while(|(second, _)| *second > first).for_each(|(_, counts)| all.merge(counts));
        all
    }

    fn forget_before(&mut self, second: u64) {
        while self.0.front().is_some_and(|(first, _)| first.saturating_add(SECONDS) <= second) {
            self.0.pop_front();
        }
    }
}

/// Adds a duration to the bucket that holds it.
fn add_duration(histogram: &mut Histogram, us: u64) {
    *histogram.0.entry(upper_end(bucket(us))).or_default() += 1;
}

fn bucket(us: u64) -> u64 {
    let Some(octave) = us.checked_ilog2().filter(|octave| *octave >= STEP_BITS) else { return us };
    let shift = octave - STEP_BITS;
    u64::from(shift + 1) * STEPS + (us >> shift) % STEPS
}

fn upper_end(bucket: u64) -> u64 {
    let Some(shift) = (bucket / STEPS).checked_sub(1) else { return bucket };
    (((STEPS + bucket % STEPS) << shift) - 1).saturating_add(1 << shift)
}

#[cfg(test)]
mod tests;
