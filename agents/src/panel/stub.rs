//! Scripted panelists: what they answer follows from a profile, from what they were shown, and from draws that depend on
//! seed, agent, panel and round only. The order in which peers are shown changes nothing but the order of their ratings.

mod profile;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use schemas::delivery::{Ask, Rated, ShownAnswer};
use schemas::ids::DomainName;
use schemas::panel::{PanelAnswer, RATING_MAX, RATING_MIN};
use schemas::{AgentId, Digest, NegotiationId};

use super::{AskReply, Panelist};

pub use profile::{AnswerScript, AnswerStyle, Rating, StubProfile};

/// A question whose answer scripted panelists know, more or less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubQuestion {
    /// What it is about.
    pub domain: DomainName,
    /// The right answer.
    pub right: String,
    /// The wrong ones.
    pub wrong: Vec<String>,
}

/// Questions by the task of their call.
pub type StubQuestions = BTreeMap<String, StubQuestion>;

/// See the module.
#[derive(Debug, Clone)]
pub struct StubPanelist {
    agent: AgentId,
    profile: StubProfile,
    questions: Arc<StubQuestions>,
    seed: u64,
}

/// The rating of what is neither good nor bad.
const RATING_MIDDLE: u32 = 3;

impl StubPanelist {
    /// A panelist that behaves like its profile. What it is asked beside these questions it refuses, unless it has a script.
    #[must_use]
    pub fn new(agent: AgentId, profile: StubProfile, questions: Arc<StubQuestions>, seed: u64) -> Self {
        Self { agent, profile, questions, seed }
    }

    fn round<'a>(&'a self, panel: &NegotiationId, ask: &Ask) -> StubRound<'a> {
        let question = ask.task.as_deref().and_then(|task| self.questions.get(task));
        let accuracy =
            question.and_then(|question| self.profile.accuracy.get(&question.domain)).copied().unwrap_or(0.0);
        let mut draws = RoundDraws::new(self.seed, &self.agent, panel, ask.round);
        let chances = Chances {
            is_silent: draws.happens(self.profile.silent),
            finds_it: draws.happens(accuracy),
            wrong: draws.below(question.map_or(0, |question| question.wrong.len())),
            holds: draws.happens(self.profile.holds),
            peer: draws.below(usize::MAX),
        };
        StubRound { stub: self, question, draws, chances }
    }

    fn scripted(&self, round: u32) -> Option<&AnswerScript> {
        let index = (round.max(1) as usize - 1).min(self.profile.script.len().saturating_sub(1));
        self.profile.script.get(index)
    }
}

impl Panelist for StubPanelist {
    fn answer(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply {
        if let Some(script) = self.scripted(ask.round) {
            return script.answer(ask);
        }
        self.round(panel, ask).answer(ask)
    }

    fn rank(&mut self, panel: &NegotiationId, ask: &Ask, keep: u32) -> AskReply {
        if let Some(script) = self.scripted(ask.round) {
            return script.rank(ask, keep);
        }
        self.round(panel, ask).rank(ask, keep)
    }

    fn review(&mut self, panel: &NegotiationId, ask: &Ask) -> AskReply {
        self.round(panel, ask).review(ask)
    }
}

/// The draws of one agent in one round of a panel, to be made in a fixed order.
pub struct RoundDraws(ChaCha12Rng);

impl RoundDraws {
    /// The same draws for the same seed, agent, panel and round.
    #[must_use]
    pub fn new(seed: u64, agent: &AgentId, panel: &NegotiationId, round: u32) -> Self {
        let digest = Digest::of_parts(&[
            &seed.to_be_bytes(),
            agent.as_str().as_bytes(),
            panel.as_str().as_bytes(),
            &round.to_be_bytes(),
        ]);
        Self(ChaCha12Rng::from_seed(digest.0))
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, chance: f64) -> bool {
        self.0.random::<f64>() < chance
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let drawn = self.0.random::<u64>();
        // Scaled rather than drawn within a range: a bound of 0 or 1 takes as many draws as any other.
        usize::try_from((u128::from(drawn) * bound as u128) >> 64).unwrap_or(0)
    }
}

/// What was drawn before anything was looked at: as many draws in every round.
struct Chances {
    is_silent: bool,
    finds_it: bool,
    wrong: usize,
    holds: bool,
    peer: usize,
}

/// One agent in one round.
struct StubRound<'a> {
    stub: &'a StubPanelist,
    question: Option<&'a StubQuestion>,
    draws: RoundDraws,
    chances: Chances,
}

impl StubRound<'_> {
    fn answer(mut self, ask: &Ask) -> AskReply {
        if self.chances.is_silent {
            return AskReply::Silence;
        }
        if self.question.is_none() && self.stub.profile.answers.needs_options() {
            return AskReply::Refuse("does not know the question".to_owned());
        }
        let peers = ask.peers.as_deref().unwrap_or_default();
        let rated = self.rate(peers);
        let answer = self.find(ask.own.as_ref(), peers, &rated);
        let ratings = match ask.rate {
            Some(Rated::Peers) => Some(rated),
            Some(Rated::Reviewers) => Some(self.rate_reviewers(peers)),
            None => None,
        };
        let text = self.stub.profile.ring.as_deref().map(mark);
        AskReply::of_round(ask, PanelAnswer { answer: Some(answer), text, ratings, ..PanelAnswer::default() })
    }

    fn rank(mut self, ask: &Ask, keep: u32) -> AskReply {
        if self.chances.is_silent {
            return AskReply::Silence;
        }
        let peers = ask.peers.as_deref().unwrap_or_default();
        let rated = self.rate(peers);
        let mut places: Vec<usize> = (0..peers.len()).collect();
        places.sort_by_key(|&place| (rated.get(place).map(|&rating| RATING_MAX.saturating_sub(rating)), place));
        order(ask, places, keep)
    }

    fn review(mut self, ask: &Ask) -> AskReply {
        if self.chances.is_silent {
            return AskReply::Silence;
        }
        let peers = ask.peers.as_deref().unwrap_or_default();
        let ratings = self.rate(peers);
        let verdict = |&rating: &u32| Some(if rating > RATING_MIDDLE { LOOKS_RIGHT } else { LOOKS_WRONG }.to_owned());
        let reviews = Some(ratings.iter().map(verdict).collect());
        AskReply::of_round(ask, PanelAnswer { reviews, ratings: Some(ratings), ..PanelAnswer::default() })
    }

    /// Its answer, once it has rated its peers.
    fn find(&self, own: Option<&ShownAnswer>, peers: &[ShownAnswer], rated: &[u32]) -> Option<String> {
        match self.stub.profile.answers {
            AnswerStyle::Debate => self.debated(own, peers, rated).or_else(|| self.drawn()),
            AnswerStyle::Redraw | AnswerStyle::Script => self.drawn(),
            AnswerStyle::Liar => self.question.and_then(|question| question.wrong.first().cloned()),
            AnswerStyle::Dissent => Some(self.stub.agent.to_string()),
        }
    }

    /// The right answer or one of the wrong ones.
    fn drawn(&self) -> Option<String> {
        let question = self.question?;
        let wrong = question.wrong.get(self.chances.wrong);
        if self.chances.finds_it { Some(question.right.clone()) } else { wrong.or(Some(&question.right)).cloned() }
    }

    /// Its own last answer or a peer's; none where nobody has given one.
    fn debated(&self, own: Option<&ShownAnswer>, peers: &[ShownAnswer], rated: &[u32]) -> Option<String> {
        let own = own.and_then(|own| own.answer.as_deref()).map(str::to_owned);
        if own.is_some() && self.chances.holds {
            return own;
        }
        let mut weighed: Vec<(&str, usize)> = peers
            .iter()
            .zip(rated)
            .filter_map(|(peer, &rating)| Some((peer.answer.as_deref()?, rating as usize)))
            .collect();
        weighed.sort();
        let total: usize = weighed.iter().map(|(_, weight)| weight).sum();
        let mut left = scaled(self.chances.peer, total);
        for (answer, weight) in weighed {
            if left < weight {
                return Some(answer.to_owned());
            }
            left -= weight;
        }
        own
    }

    /// A rating for each, in their order. Drawn in an order of their contents, so that it does not matter in which they stand.
    fn rate(&mut self, peers: &[ShownAnswer]) -> Vec<u32> {
        let mut places: Vec<usize> = (0..peers.len()).collect();
        places.sort_by_key(|&place| peers.get(place).map(|peer| (&peer.answer, &peer.text)));
        let mut ratings = vec![RATING_MIN; peers.len()];
        for place in places {
            let (Some(peer), Some(rating)) = (peers.get(place), ratings.get_mut(place)) else { continue };
            *rating = self.rate_one(peer);
        }
        ratings
    }

    fn rate_one(&mut self, peer: &ShownAnswer) -> u32 {
        let (is_discerned, is_extreme) = (self.draws.happens(self.stub.profile.discernment), self.draws.happens(0.5));
        let is_right =
            peer.answer.is_some() && peer.answer.as_deref() == self.question.map(|question| question.right.as_str());
        let looks_right = is_right == is_discerned;
        match self.stub.profile.rates {
            Rating::Honest => judged(looks_right, is_extreme),
            Rating::Inverse => judged(!looks_right, is_extreme),
            Rating::SelfOnly => RATING_MIN,
            Rating::Ring => {
                let own = self.stub.profile.ring.as_deref().map(mark);
                if own.is_some() && peer.text.as_deref() == own.as_deref() { RATING_MAX } else { RATING_MIN }
            }
        }
    }

    /// Rates each reviewer by how many of its reviews say what it thinks itself.
    fn rate_reviewers(&mut self, peers: &[ShownAnswer]) -> Vec<u32> {
        let reviewers = peers.iter().map(|peer| peer.reviews.len()).max().unwrap_or(0);
        let own: Vec<bool> = self.rate(peers).into_iter().map(|rating| rating > RATING_MIDDLE).collect();
        let rate = |reviewer: usize| {
            let of = |peer: &ShownAnswer| peer.reviews.get(reviewer).cloned().flatten();
            let said = peers.iter().zip(&own).filter_map(|(peer, &looks)| Some((of(peer)?, looks)));
            let (mut alike, mut all) = (0, 0);
            for (review, looks) in said {
                alike += u32::from((*review == *LOOKS_RIGHT) == looks);
                all += 1;
            }
            (alike * (RATING_MAX - RATING_MIN)).checked_div(all).map_or(RATING_MIDDLE, |above| RATING_MIN + above)
        };
        (0..reviewers).map(rate).collect()
    }
}

const LOOKS_RIGHT: &str = "looks right";
const LOOKS_WRONG: &str = "looks wrong";

/// The rating of an answer that looks right, or wrong: the better or the worse of two.
fn judged(looks_right: bool, is_extreme: bool) -> u32 {
    match (looks_right, is_extreme) {
        (true, true) => RATING_MAX,
        (true, false) => RATING_MAX - 1,
        (false, true) => RATING_MIN,
        (false, false) => RATING_MIN + 1,
    }
}

/// By what the members of a ring know each other.
fn mark(ring: &str) -> String {
    format!("ring {ring}")
}

/// A number drawn below `usize::MAX`, brought below `bound`.
fn scaled(drawn: usize, bound: usize) -> usize {
    usize::try_from((drawn as u128 * bound as u128) / usize::MAX as u128).unwrap_or(0)
}

/// The first places, counted from 1.
fn order(ask: &Ask, places: Vec<usize>, keep: u32) -> AskReply {
    let places = places.into_iter().take(keep as usize).filter_map(|place| u32::try_from(place + 1).ok());
    AskReply::of_round(ask, PanelAnswer { order: Some(places.collect()), ..PanelAnswer::default() })
}

impl AnswerScript {
    fn answer(&self, ask: &Ask) -> AskReply {
        self.instead().unwrap_or_else(|| {
            let rates = ask.rate == Some(Rated::Peers) && !self.ratings.is_empty();
            let peers = ask.peers.as_deref().unwrap_or_default();
            let ratings = rates.then(|| peers.iter().map(|peer| self.rating(peer)).collect());
            let (answer, text) = (Some(self.answer.clone()), self.text.clone());
            AskReply::of_round(ask, PanelAnswer { answer, text, ratings, ..PanelAnswer::default() })
        })
    }

    fn rank(&self, ask: &Ask, keep: u32) -> AskReply {
        self.instead().unwrap_or_else(|| {
            let peers = ask.peers.as_deref().unwrap_or_default();
            let rank = |peer: &ShownAnswer| self.order.iter().position(|wanted| is_named(wanted, peer));
            let mut places: Vec<usize> = (0..peers.len()).collect();
            places.sort_by_key(|&place| (peers.get(place).and_then(rank).unwrap_or(usize::MAX), place));
            order(ask, places, keep)
        })
    }

    /// What it does instead of answering.
    fn instead(&self) -> Option<AskReply> {
        match &self.refuse {
            Some(reason) => Some(AskReply::Refuse(reason.clone())),
            None => self.silent.then_some(AskReply::Silence),
        }
    }

    fn rating(&self, peer: &ShownAnswer) -> u32 {
        let by = |name: Option<&str>| self.ratings.get(name?).copied();
        by(peer.text.as_deref()).or_else(|| by(peer.answer.as_deref())).unwrap_or(RATING_MIDDLE)
    }
}

/// Whether a text is a peer's, or its answer.
fn is_named(text: &str, peer: &ShownAnswer) -> bool {
    peer.text.as_deref() == Some(text) || peer.answer.as_deref() == Some(text)
}

#[cfg(test)]
mod tests;
