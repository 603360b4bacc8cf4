//! The review of a round's answers (docs/spec/panel.md#reviews).

use std::collections::{BTreeMap, BTreeSet};

use schemas::delivery::{Ask, Rated, ShownAnswer};
use schemas::evidence::Usage;
use schemas::panel::PanelAnswer;
use schemas::{AgentId, Timestamp};

use super::{Panel, PanelVerdict, Then, shown};
use crate::{Moment, fact};

#[derive(Debug)]
pub(super) struct Review {
    /// The round whose answers are reviewed.
    round: u32,
    pub(super) review_by: Timestamp,
    /// By reviewer: whose answers it was shown, in the order in which it sees them.
    shown: BTreeMap<AgentId, Vec<AgentId>>,
    waits_for: BTreeSet<AgentId>,
    pub(super) replies: BTreeMap<AgentId, ReviewSaid>,
    is_over: bool,
}

/// What a reviewer said of those it was shown.
#[derive(Debug)]
pub(super) struct ReviewSaid {
    pub(super) shown: Vec<AgentId>,
    texts: Vec<Option<String>>,
    pub(super) ratings: Option<Vec<u32>>,
}

impl Review {
    pub(super) fn asked(&self, reviewer: &AgentId) -> bool {
        self.shown.contains_key(reviewer)
    }

    pub(super) fn is_running(&self) -> bool {
        !self.is_over
    }
}

impl Panel {
    pub(super) fn reviewers(&self) -> &[AgentId] {
        self.rules.review.as_ref().map_or(&[], |review| &review.by)
    }

    /// The review that goes on.
    pub(super) fn running_review(&mut self) -> Option<&mut Review> {
        self.reviews.last_mut().filter(|review| !review.is_over)
    }

    /// The review of a round, if anybody replied.
    pub(super) fn review_of(&self, round: u32) -> Option<&Review> {
        self.reviews.iter().find(|review| review.round == round && !review.replies.is_empty())
    }

    /// The reviewers that replied to the round before, as a seat sees them.
    pub(super) fn reviewers_shown_to(&self, seat: &AgentId) -> Vec<AgentId> {
        let Some(review) = self.number().checked_sub(1).and_then(|before| self.review_of(before)) else {
            return Vec::new();
        };
        let before = &self.rounds[self.rounds.len() - 2];
        self.shown_to(seat, review.replies.keys().cloned().collect(), before)
    }

    /// An answer of the round before, as a seat sees it.
    pub(super) fn reviewed(&self, author: &AgentId, seat: &AgentId) -> Option<ShownAnswer> {
        let before = self.rounds.len().checked_sub(2).map(|before| &self.rounds[before])?;
        let of_author = shown(before.replies.get(author)?);
        let review = self.review_of(self.number() - 1);
        let text = |reviewer: &AgentId| {
            let said = &review.expect("somebody reviewed").replies[reviewer];
            let place = said.shown.iter().position(|shown| shown == author).expect("all kept are reviewed");
            said.texts[place].as_deref().map(Into::into)
        };
        Some(ShownAnswer { reviews: self.reviewers_shown_to(seat).iter().map(text).collect(), ..of_author })
    }

    /// A round is over, and who goes on is known.
    pub(super) fn review_or_go_on(&mut self, moment: Moment) {
        let there: Vec<AgentId> =
            self.reviewers().iter().filter(|agent| !self.people[*agent].has_left).cloned().collect();
        let Some(rules) = self.rules.review.as_ref().filter(|_| !there.is_empty()) else {
            return self.begin_next_round(moment);
        };
        let review_by = moment.clock.plus_ms(rules.review_ms).min(self.ends_by);
        let replied = self.round().replied().map(|(agent, _)| agent.clone());
        let kept: Vec<AgentId> = replied.filter(|agent| !self.is_dropped(agent)).collect();
        let mut seen = BTreeMap::new();
        for reviewer in &there {
            let authors = self.shown_to(reviewer, kept.clone(), self.round());
            let peers = authors.iter().map(|author| shown(&self.round().replies[author])).collect();
            let rate = self.rules.rate.then_some(Rated::Peers);
            let ask = Ask { peers: Some(peers), rate, review: true, ..self.plain_ask(review_by) };
            self.facts.push(fact::whole(&self.id, reviewer, &ask));
            self.calls.reviews += 1;
            self.people.get_mut(reviewer).expect("it is pinned").was_asked = true;
            seen.insert(reviewer.clone(), authors);
        }
        let waits_for = there.into_iter().collect();
        let round = self.number();
        let replies = BTreeMap::new();
        self.reviews.push(Review { round, review_by, shown: seen, waits_for, replies, is_over: false });
    }

    /// Nobody waits for a reviewer any more.
    pub(super) fn review_without(&mut self, agent: &AgentId, moment: Moment) {
        let Some(review) = self.running_review() else { return };
        review.waits_for.remove(agent);
        review.is_over = review.waits_for.is_empty();
        if review.is_over {
            self.begin_next_round(moment);
        }
    }

    pub(super) fn end_review(&mut self, moment: Moment) {
        if let Some(review) = self.running_review() {
            review.is_over = true;
            self.begin_next_round(moment);
        }
    }

    pub(super) fn waits_for_review(&mut self, of: &AgentId) -> bool {
        self.running_review().is_some_and(|review| review.waits_for.contains(of))
    }

    pub(super) fn judge_review(&self, from: &AgentId, said: &PanelAnswer, moment: Moment) -> PanelVerdict {
        let Some(texts) = &said.reviews else { return self.strike(from, "out_of_turn") };
        let review = self.reviews.last().filter(|review| !review.is_over && !self.people[from].has_left);
        let asked = review.and_then(|review| Some((review, review.shown.get(from)?)));
        let Some((review, shown)) = asked else { return self.strike(from, "not_asked") };
        if review.replies.contains_key(from) {
            return self.strike(from, "out_of_turn");
        }
        if moment.now > review.review_by {
            return PanelVerdict::of(schemas::delivery::Disposition::Late);
        }
        if let Some(member) = said.oversized() {
            return self.malformed(from, "bad_reviews", &format!("/payload{member}"));
        }
        if texts.len() != shown.len() {
            return self.malformed(from, "bad_reviews", "/payload/reviews");
        }
        if said.ratings.as_ref().is_some_and(|ratings| !self.rules.rate || !is_one_each(ratings, shown)) {
            return self.malformed(from, "bad_ratings", "/payload/ratings");
        }
        let said_of = ReviewSaid { shown: shown.clone(), texts: texts.clone(), ratings: said.ratings.clone() };
        PanelVerdict::ok(Then::Review(Box::new(said_of), said.usage))
    }

    pub(super) fn note_review(&mut self, from: &AgentId, said: ReviewSaid, usage: Option<Usage>, moment: Moment) {
        self.note_answered(from, usage);
        self.running_review().expect("it goes on").replies.insert(from.clone(), said);
        self.review_without(from, moment);
    }
}

/// One rating, 1 to 5, for each.
pub(super) fn is_one_each(ratings: &[u32], rated: &[AgentId]) -> bool {
    ratings.len() == rated.len() && ratings.iter().all(|rating| (1..=5).contains(rating))
}
