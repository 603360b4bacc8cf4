//! A naive panel (docs/spec/panel.md): every round is kept whole, with each wave and each reply, and everything is asked of that
//! anew.

mod evidence;
mod finding;
mod hearing;
mod opening;
mod reviewing;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use policy_core::Deliver;
use policy_core::panel::key::{AnswerKey, agrees};
use schemas::delivery::{Ask, Finding, Notification, Outcome, PanelCalls, RankAsk, Rated, ShownAnswer, Stopped};
use schemas::evidence::Usage;
use schemas::evidence::{EvidenceCounts, EvidenceSubject};
use schemas::panel::{AnswerKind, Asking, PanelSpec, Ranker};
use schemas::payload::Cfp;
use schemas::record::{AdmittedMessage, Message, Pinned};
use schemas::{AgentId, Digest, NegotiationId, Position, RegisterKey, Timestamp, WireTime};

use self::reviewing::{Review, ReviewSaid};
use crate::contract_net::opening::NotUnderstood;
use crate::contract_net::{Party, Verdict, count};
use crate::{Moment, fact};

/// Timers that are due together fire in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PanelTimer {
    Hard,
    Answer,
    Rank,
    Review,
}

#[derive(Debug)]
pub(crate) struct Panel {
    id: NegotiationId,
    rules: PanelSpec,
    rules_digest: Digest,
    task: Option<Arc<str>>,
    called_at: Position,
    initiator: AgentId,
    /// In the order of their ids.
    seats: Vec<AgentId>,
    people: BTreeMap<AgentId, Panelist>,
    is_public: bool,
    pub(crate) ends_by: Timestamp,
    rounds: Vec<Round>,
    ranking: Option<Ranking>,
    selection: Option<SelectedSeats>,
    reviews: Vec<Review>,
    calls: PanelCalls,
    usage: Usage,
    reported_by: u32,
    pub(crate) outcome: Option<Outcome>,
    detail: Option<&'static str>,
    pub(crate) facts: Vec<String>,
    /// What it has shown, until somebody takes note of it.
    shown: Vec<(EvidenceSubject, EvidenceCounts)>,
}

/// Who takes part: initiator, seat, ranker or reviewer.
#[derive(Debug, Default)]
struct Panelist {
    party: Party,
    strikes: u32,
    has_left: bool,
    was_asked: bool,
    /// What its answers cost.
    usage: Usage,
}

/// One round.
#[derive(Debug)]
struct Round {
    /// Members that count, whether they are there or not.
    of: usize,
    /// In the order of asking.
    members: Vec<AgentId>,
    /// Whom each wave asked, the first wave first.
    waves: Vec<Wave>,
    replies: BTreeMap<AgentId, Reply>,
    closed_at: Option<Position>,
}

#[derive(Debug)]
struct Wave {
    asked: Vec<AgentId>,
    answer_by: Timestamp,
    /// Those it waits for.
    waits_for: BTreeSet<AgentId>,
}

#[derive(Debug, Clone)]
struct Reply {
    answer: Option<(String, AnswerKey)>,
    text: Option<String>,
    /// Whom it is to rate, and the ratings; none where it gave none.
    shown: Vec<AgentId>,
    ratings: Option<Vec<u32>>,
}

#[derive(Debug)]
struct Ranking {
    rank_by: Timestamp,
    /// In the order in which the ranker sees them.
    candidates: Vec<AgentId>,
}

#[derive(Debug)]
struct SelectedSeats {
    /// All candidates, the best first.
    ranked: Vec<AgentId>,
    keep: usize,
}

impl SelectedSeats {
    fn kept(&self) -> &[AgentId] {
        &self.ranked[..self.keep.min(self.ranked.len())]
    }
}

impl Round {
    fn asked(&self) -> impl Iterator<Item = &AgentId> {
        self.waves.iter().flat_map(|wave| &wave.asked)
    }

    /// Those that replied, in the order of asking.
    fn replied(&self) -> impl Iterator<Item = (&AgentId, &Reply)> {
        self.asked().filter_map(|agent| Some((agent, self.replies.get(agent)?)))
    }

    /// Those with an opinion, in the order of asking.
    fn opinions(&self) -> Vec<(&AgentId, &AnswerKey)> {
        self.replied().filter_map(|(agent, reply)| Some((agent, &reply.answer.as_ref()?.1))).collect()
    }
}

/// Who agrees with one, itself included.
fn supporters(kind: &AnswerKind, opinions: &[(&AgentId, &AnswerKey)], of: &AnswerKey) -> Vec<AgentId> {
    let others = opinions.iter().filter(|(_, key)| std::ptr::eq(*key, of) || agrees(kind, of, key));
    others.map(|(agent, _)| (*agent).clone()).collect()
}

/// The most that agree with one.
fn most(kind: &AnswerKind, opinions: &[(&AgentId, &AnswerKey)]) -> usize {
    opinions.iter().map(|(_, key)| supporters(kind, opinions, key).len()).max().unwrap_or(0)
}

/// Parts, each preceded by its length.
fn hash(parts: &[&[u8]]) -> Digest {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(*part);
    }
    Digest::of_bytes(&bytes)
}

impl Panel {
    /// The panel of a call, or what its initiator is told.
    pub(crate) fn open(
        message: &AdmittedMessage,
        decoded: &Message,
        cfp: &Cfp,
        pinned: &Pinned,
        moment: Moment,
    ) -> Result<Self, NotUnderstood> {
        opening::open(message, decoded, cfp, pinned, moment)
    }

    pub(crate) fn is_party(&self, agent: &AgentId) -> bool {
        self.people.contains_key(agent)
    }

    /// Every timer that is armed while it goes on.
    pub(crate) fn timers(&self) -> Vec<(Timestamp, PanelTimer)> {
        let rank = self.ranking.as_ref().map(|ranking| (ranking.rank_by, PanelTimer::Rank));
        let wave = self.round().waves.last().filter(|wave| !wave.waits_for.is_empty());
        let answer = wave.map(|wave| (wave.answer_by, PanelTimer::Answer));
        let review = self.reviews.last().filter(|review| review.is_running());
        let review = review.map(|review| (review.review_by, PanelTimer::Review));
        [Some((self.ends_by, PanelTimer::Hard)), rank, answer, review].into_iter().flatten().collect()
    }

    pub(crate) fn fire(&mut self, timer: PanelTimer, moment: Moment) {
        match timer {
            PanelTimer::Answer => {
                self.wait_for_nobody();
                self.go_on(moment);
            }
            PanelTimer::Rank => self.select(None, moment),
            PanelTimer::Review => self.end_review(moment),
            PanelTimer::Hard => {
                let is_asking = self.ranking.is_none() && self.running_review().is_none();
                self.wait_for_nobody();
                if !(is_asking && self.has_consensus()) {
                    return self.end_without_consensus(Stopped::Timeout, moment);
                }
                self.round_mut().closed_at = Some(moment.position);
                self.find(self.rounds.len() - 1, Outcome::Consensus, Stopped::Answers, moment);
            }
        }
    }

    pub(crate) fn take_shown(&mut self) -> Vec<(EvidenceSubject, EvidenceCounts)> {
        std::mem::take(&mut self.shown)
    }

    pub(crate) fn abort(&mut self, moment: Moment) {
        self.end(Outcome::Aborted, None, 0, moment);
    }

    /// An ask could not be delivered (docs/spec/panel.md#pn-19).
    pub(crate) fn delivery_failed(&mut self, deliver: &Deliver, moment: Moment) {
        let Notification::Ask(ask) = &*deliver.told else { return };
        if usize::try_from(ask.round).expect("eight at most") != self.rounds.len() {
            return;
        }
        if ask.rank.is_some() {
            if self.ranking.is_some() {
                self.select(None, moment);
            }
        } else if ask.review {
            if self.waits_for_review(&deliver.to) {
                self.wait_no_more_for(&deliver.to.clone(), moment);
            }
        } else if self.round().waves.iter().any(|wave| wave.waits_for.contains(&deliver.to)) {
            self.wait_no_more_for(&deliver.to.clone(), moment);
        }
    }

    fn round(&self) -> &Round {
        self.rounds.last().expect("a panel has a round")
    }

    fn round_mut(&mut self) -> &mut Round {
        self.rounds.last_mut().expect("a panel has a round")
    }

    fn number(&self) -> u32 {
        count(self.rounds.len())
    }

    fn is_dropped(&self, agent: &AgentId) -> bool {
        self.seats.contains(agent) && self.selection.as_ref().is_some_and(|selection| !selection.kept().contains(agent))
    }

    fn ranker(&self) -> Option<&AgentId> {
        match &self.rules.select.as_ref()?.ranker {
            Ranker::Agent { agent, .. } => Some(agent),
            Ranker::Support | Ranker::Rating | Ranker::Hash => None,
        }
    }

    fn wait_for_nobody(&mut self) {
        self.round_mut().waves.iter_mut().for_each(|wave| wave.waits_for.clear());
    }

    fn wait_no_more_for(&mut self, agent: &AgentId, moment: Moment) {
        if self.ranking.is_some() {
            if self.ranker() == Some(agent) {
                self.select(None, moment);
            }
            return;
        }
        if self.running_review().is_some() {
            return self.review_without(agent, moment);
        }
        for wave in &mut self.round_mut().waves {
            wave.waits_for.remove(agent);
        }
        self.go_on(moment);
    }

    /// Where a round's members stand in the order of asking (docs/spec/panel-answers.md#pa-12).
    fn asking(&self, round: u32, agent: &AgentId) -> Digest {
        let at = self.called_at.to_string();
        hash(&[self.id.as_str().as_bytes(), at.as_bytes(), &u64::from(round).to_be_bytes(), agent.as_str().as_bytes()])
    }

    /// In the order in which somebody is shown them.
    fn shown_to(&self, recipient: &AgentId, mut shown: Vec<AgentId>, round: &Round) -> Vec<AgentId> {
        let ended = round.closed_at.expect("others see closed rounds").to_string();
        let (id, to) = (self.id.as_str().as_bytes(), recipient.as_str().as_bytes());
        shown.sort_by_key(|agent| hash(&[id, ended.as_bytes(), to, agent.as_str().as_bytes()]));
        shown
    }

    /// The peers that a seat sees in the round that runs.
    fn peers_of(&self, seat: &AgentId) -> Vec<AgentId> {
        let Some(before) = self.rounds.len().checked_sub(2).map(|before| &self.rounds[before]) else {
            return Vec::new();
        };
        let others = before.replied().map(|(agent, _)| agent.clone());
        let others = others.filter(|agent| agent != seat && !self.is_dropped(agent)).collect();
        self.shown_to(seat, others, before)
    }

    /// Whom a seat rates: the reviewers that replied, or else its peers.
    fn rated_by(&self, seat: &AgentId) -> (Rated, Vec<AgentId>) {
        let reviewers = self.reviewers_shown_to(seat);
        if reviewers.is_empty() { (Rated::Peers, self.peers_of(seat)) } else { (Rated::Reviewers, reviewers) }
    }

    fn begin_round(&mut self, mut members: Vec<AgentId>, of: usize, moment: Moment) {
        let number = self.number() + 1;
        members.sort_by_key(|agent| self.asking(number, agent));
        self.rounds.push(Round { of, members, waves: Vec::new(), replies: BTreeMap::new(), closed_at: None });
        self.go_on(moment);
    }

    /// As far as nobody is waited for: consensus, the next wave, or the end of the round.
    fn go_on(&mut self, moment: Moment) {
        let is_waiting = self.round().waves.iter().any(|wave| !wave.waits_for.is_empty());
        if self.outcome.is_some() || self.ranking.is_some() || is_waiting || self.round().closed_at.is_some() {
            return;
        }
        if self.has_consensus() {
            self.round_mut().closed_at = Some(moment.position);
            return self.find(self.rounds.len() - 1, Outcome::Consensus, Stopped::Answers, moment);
        }
        let wave = self.next_wave();
        if wave.is_empty() {
            return self.close_round(moment);
        }
        self.ask(wave, moment);
    }

    fn may_agree(&self) -> bool {
        self.rules.consensus_from > 0 && self.number() >= self.rules.consensus_from
    }

    fn has_consensus(&self) -> bool {
        let round = self.round();
        self.may_agree() && 3 * most(&self.rules.answer, &round.opinions()) > 2 * round.of
    }

    /// Whom the next wave asks (docs/spec/panel.md#pn-18).
    fn next_wave(&self) -> Vec<AgentId> {
        let round = self.round();
        let quorum = 2 * round.of / 3 + 1;
        let size = match self.rules.asking {
            Asking::All => round.of,
            Asking::QuorumFirst if round.waves.is_empty() => quorum,
            Asking::QuorumFirst => quorum.saturating_sub(most(&self.rules.answer, &round.opinions())).max(1),
        };
        let asked: Vec<&AgentId> = round.asked().collect();
        // Who comes before the last one asked has had its turn.
        let reached = round.members.iter().rposition(|agent| asked.contains(&agent)).map_or(0, |last| last + 1);
        let rest = round.members[reached..].iter().filter(|agent| !self.people[*agent].has_left);
        rest.take(size).cloned().collect()
    }

    fn ask(&mut self, wave: Vec<AgentId>, moment: Moment) {
        let answer_by = moment.clock.plus_ms(self.rules.answer_ms).min(self.ends_by);
        let mut facts = Vec::new();
        for agent in &wave {
            let peers = self.peers_of(agent).iter().filter_map(|peer| self.reviewed(peer, agent)).collect();
            let (rated, whom) = self.rated_by(agent);
            let is_rated = self.rules.rate && !whom.is_empty();
            let ask = Ask {
                rounds: Some(self.rules.rounds),
                answer: Some(Arc::new(self.rules.answer.clone())),
                rules_digest: Some(self.rules_digest),
                own: self.reviewed(agent, agent),
                peers: (self.rounds.len() > 1).then_some(peers),
                rate: is_rated.then_some(rated),
                ..self.plain_ask(answer_by)
            };
            facts.push(fact::whole(&self.id, agent, &ask));
        }
        self.facts.extend(facts);
        self.calls.answers += count(wave.len());
        for agent in &wave {
            self.people.get_mut(agent).expect("a seat").was_asked = true;
        }
        let waits_for = wave.iter().cloned().collect();
        self.round_mut().waves.push(Wave { asked: wave, answer_by, waits_for });
    }

    fn plain_ask(&self, answer_by: Timestamp) -> Ask {
        Ask {
            round: self.number(),
            rounds: None,
            task: self.task.clone(),
            answer: None,
            answer_by: WireTime(answer_by),
            ends_by: WireTime(self.ends_by),
            rules_digest: None,
            own: None,
            peers: None,
            rate: None,
            rank: None,
            review: false,
        }
    }

    /// All have been asked, and there is no consensus (docs/spec/panel.md#pn-23).
    fn close_round(&mut self, moment: Moment) {
        self.round_mut().closed_at = Some(moment.position);
        if self.round().replies.is_empty() {
            return self.end_without_consensus(Stopped::Silence, moment);
        }
        if self.number() >= self.rules.rounds {
            return self.end_without_consensus(Stopped::Rounds, moment);
        }
        let candidates = self.round().opinions().len();
        let is_due = self.rules.select.as_ref().is_some_and(|select| {
            select.after_round == self.number()
                && candidates > usize::try_from(select.keep).expect("sixteen at most")
                && self.seats.len() > usize::try_from(select.if_more_than).expect("32 at most")
        });
        if !is_due {
            return self.review_or_go_on(moment);
        }
        let select = self.rules.select.clone().expect("it is due");
        let Ranker::Agent { agent, rank_ms } = select.ranker else { return self.select(None, moment) };
        if self.people[&agent].has_left {
            return self.select(None, moment);
        }
        let candidates: Vec<AgentId> = self.round().opinions().into_iter().map(|(agent, _)| agent.clone()).collect();
        let candidates = self.shown_to(&agent, candidates, self.round());
        let rank_by = moment.clock.plus_ms(rank_ms).min(self.ends_by);
        let peers = candidates.iter().map(|candidate| shown(&self.round().replies[candidate])).collect();
        let ask = Ask { peers: Some(peers), rank: Some(RankAsk { keep: select.keep }), ..self.plain_ask(rank_by) };
        self.facts.push(fact::whole(&self.id, &agent, &ask));
        self.calls.ranks += 1;
        self.people.get_mut(&agent).expect("it is pinned").was_asked = true;
        self.ranking = Some(Ranking { rank_by, candidates });
    }

    fn begin_next_round(&mut self, moment: Moment) {
        match &self.selection {
            Some(selection) => self.begin_round(selection.kept().to_vec(), selection.keep, moment),
            None => self.begin_round(self.seats.clone(), self.seats.len(), moment),
        }
    }

    /// Who goes on, by what an agent chose, or without it (docs/spec/panel.md#pn-25).
    fn select(&mut self, chosen: Option<Vec<AgentId>>, moment: Moment) {
        let select = self.rules.select.clone().expect("a selection is made");
        let mut ranked = chosen.unwrap_or_default();
        for agent in self.ranked(&select.ranker) {
            if !ranked.contains(&agent) {
                ranked.push(agent);
            }
        }
        self.ranking = None;
        let keep = usize::try_from(select.keep).expect("sixteen at most");
        self.selection = Some(SelectedSeats { ranked, keep });
        let opinions = self.round().opinions();
        let kept: Vec<_> = opinions.into_iter().filter(|(agent, _)| !self.is_dropped(agent)).collect();
        if select.recheck && self.may_agree() && 3 * most(&self.rules.answer, &kept) > 2 * keep {
            return self.find(self.rounds.len() - 1, Outcome::Consensus, Stopped::Selection, moment);
        }
        self.review_or_go_on(moment);
    }

    /// The candidates, the best first (docs/spec/panel-answers.md#pa-13).
    fn ranked(&self, ranker: &Ranker) -> Vec<AgentId> {
        let (round, opinions) = (self.round(), self.round().opinions());
        let key = |(agent, key): &(&AgentId, &AnswerKey)| {
            let support = supporters(&self.rules.answer, &opinions, key).len();
            let mut given: Vec<u32> = Vec::new();
            for (_, reply) in round.replied() {
                for (rated, rating) in reply.shown.iter().zip(reply.ratings.iter().flatten()) {
                    if rated == *agent {
                        given.push(*rating);
                    }
                }
            }
            given.sort_unstable();
            let half = given.len() / 2;
            let received = match given.len() {
                0 => 6,
                odd if odd % 2 == 1 => 2 * given[half],
                _ => given[half - 1] + given[half],
            };
            let (support, received) = (-i64::try_from(support).expect("few"), -i64::from(received));
            let order = self.asking(self.number(), agent);
            match ranker {
                Ranker::Support | Ranker::Agent { .. } => (support, received, order),
                Ranker::Rating => (received, support, order),
                Ranker::Hash => (0, 0, order),
            }
        };
        let mut ranked = opinions.clone();
        ranked.sort_by_key(key);
        ranked.into_iter().map(|(agent, _)| agent.clone()).collect()
    }

    /// The last closed round with an opinion decides, failing that the open one (docs/spec/panel.md#pn-28).
    fn end_without_consensus(&mut self, stopped: Stopped, moment: Moment) {
        let has_opinion = |round: &Round| !round.opinions().is_empty();
        let closed = self.rounds.iter().rposition(|round| round.closed_at.is_some() && has_opinion(round));
        let open = Some(self.rounds.len() - 1).filter(|last| has_opinion(&self.rounds[*last]));
        self.round_mut().closed_at.get_or_insert(moment.position);
        match closed.or(open) {
            Some(deciding) => self.find(deciding, Outcome::Plurality, stopped, moment),
            None => self.end(Outcome::NoAnswer, Some(stopped.as_str()), 0, moment),
        }
    }

    fn find(&mut self, deciding: usize, outcome: Outcome, stopped: Stopped, moment: Moment) {
        let finding: Finding = finding::of(self, deciding, outcome, stopped);
        self.shown = evidence::of(self, deciding, &finding);
        self.facts.push(fact::found(&self.id, &self.initiator, &finding));
        let key = RegisterKey::Award(self.id.clone(), schemas::Lot(0), schemas::AwardNo(1));
        self.facts.push(fact::found_entry(&key.to_string()));
        self.end(outcome, Some(stopped.as_str()), 1, moment);
    }

    fn end(&mut self, outcome: Outcome, detail: Option<&'static str>, awards: u32, moment: Moment) {
        (self.outcome, self.detail) = (Some(outcome), detail);
        let told = self.people.iter().filter(|(agent, one)| one.was_asked || **agent == self.initiator);
        let closed: Vec<String> = told.map(|(agent, _)| self.closed(agent)).collect();
        self.facts.extend(closed);
        let counts = [self.number(), self.calls.answered, awards];
        self.facts.extend(fact::end(&self.id, outcome, self.is_public, counts, moment.now));
    }

    fn closed(&self, to: &AgentId) -> String {
        fact::bargain_closed(&self.id, to, self.outcome.expect("it has ended"), self.detail, None)
    }

    /// An answer was taken.
    fn note_answered(&mut self, from: &AgentId, usage: Option<Usage>) {
        self.calls.answered += 1;
        if let Some(usage) = usage {
            let own = &mut self.people.get_mut(from).expect("it was asked").usage;
            for sum in [&mut self.usage, own] {
                sum.calls += usage.calls;
                sum.prompt_tokens += usage.prompt_tokens;
                sum.completion_tokens += usage.completion_tokens;
            }
            self.reported_by += 1;
        }
    }
}

/// An answer as others see it.
fn shown(reply: &Reply) -> ShownAnswer {
    ShownAnswer {
        answer: reply.answer.as_ref().map(|(answer, _)| answer.as_str().into()),
        text: reply.text.as_deref().map(Into::into),
        reviews: Vec::new(),
    }
}

type PanelVerdict = Verdict<Then>;

/// What follows from a message.
#[derive(Debug, Default)]
enum Then {
    #[default]
    Nothing,
    Strike,
    Reply(Box<Reply>, Option<Usage>),
    Order(Vec<AgentId>, Option<Usage>),
    Review(Box<ReviewSaid>, Option<Usage>),
    Leave,
    Cancel,
}
