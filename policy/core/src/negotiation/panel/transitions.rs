//! What follows from a message or a timer: waves are completed and asked, rounds close, a selection is made, reviewers are
//! asked (docs/spec/panel.md#states).

use schemas::AgentId;
use schemas::delivery::{Outcome, Stopped};
use schemas::evidence::Usage;
use schemas::panel::Ranker;
use schemas::payload::INTEGER_MAX;

use super::reply::SeatReply;
use super::review::{AskedReviewer, PanelReview, ReviewReply};
use super::round::{AskedSeat, MemberIndex, PanelRound};
use super::{MemberRole, Panel, Ranking, Selected, asks, finding};
use crate::effect::{AskKind, Event};
use crate::negotiation::InputContext;
use crate::negotiation::disposition::ProtocolRules;
use crate::panel::count::consensus;
use crate::panel::decision::SelectedBy;
use crate::panel::ranker::{Candidate, asking, completed, rank, received};
use schemas::protocols::Phase;

impl Panel {
    /// Begins a round of these members, `of` of them counting as all, and asks its first wave.
    pub(super) fn begin_round(&mut self, mut members: Vec<MemberIndex>, of: usize, context: &mut InputContext<'_>) {
        let number = u32::try_from(self.rounds.len()).unwrap_or(u32::MAX).saturating_add(1);
        members.sort_by_cached_key(|place| asking(&self.header.id, self.called_at, number, self.agent(*place)));
        // Most panels end within three rounds, and a vector's first growth is to four.
        self.rounds.reserve_exact(1);
        self.rounds.push(PanelRound::new(number, of, members));
        self.enter(Phase::Asking, context);
        self.ask_wave(context);
    }

    /// Asks the next wave of the round. Nobody, once all have been asked.
    fn ask_wave(&mut self, context: &mut InputContext<'_>) {
        let Self { members, rounds, rules, .. } = self;
        let is_gone = |place: MemberIndex| members.get(usize::from(place)).is_none_or(|member| member.has_left);
        let next = rounds.last_mut().map(|round| round.next_wave(rules.asking, is_gone));
        let wave = next.unwrap_or_default();
        let answer_by = context.clock.plus_ms(self.rules.answer_ms).min(self.header.ends_by);
        self.note_asked(AskKind::Answer, wave.len(), context);
        self.round_mut().asked.reserve_exact(wave.len());
        for deliver in asks::to_seats(self, &wave, answer_by, context) {
            let Some(member) = self.place_of(&deliver.to) else { continue };
            self.calls.answers = self.calls.answers.saturating_add(1);
            self.members[usize::from(member)].was_asked = true;
            self.round_mut().asked.push(AskedSeat::new(member, deliver.id, answer_by));
            context.deliver(deliver);
        }
    }

    fn place_of(&self, agent: &AgentId) -> Option<MemberIndex> {
        self.seats().find(|place| self.agent(*place) == agent)
    }

    /// Goes on as far as nobody is waited for.
    pub(super) fn advance(&mut self, context: &mut InputContext<'_>) {
        loop {
            if self.phase == Phase::Asking && self.round().is_complete() {
                self.complete_wave(context);
            } else if self.review().is_some_and(PanelReview::is_complete) {
                self.begin_next_round(context);
            } else {
                return;
            }
        }
    }

    /// Each of those the wave asked has replied, left, or run out of time.
    fn complete_wave(&mut self, context: &mut InputContext<'_>) {
        if self.ends_by_consensus(context) {
            return;
        }
        let asked = self.round().asked.len();
        self.ask_wave(context);
        if self.round().asked.len() == asked {
            self.close_round(context);
        }
    }

    /// Whether consensus in this round ends the panel.
    fn may_agree(&self) -> bool {
        (1..=self.round().number).contains(&self.rules.consensus_from)
    }

    /// Ends the panel if more than two thirds of the round's members have given one answer.
    pub(super) fn ends_by_consensus(&mut self, context: &mut InputContext<'_>) -> bool {
        if !self.may_agree() || !self.round().has_consensus() {
            return false;
        }
        self.round_mut().stop_waiting();
        self.round_mut().close(context.position);
        self.find_consensus(Stopped::Answers, context);
        true
    }

    fn find_consensus(&mut self, stopped: Stopped, context: &mut InputContext<'_>) {
        let last = self.rounds.len() - 1;
        if let Some(ending) = finding::ending(self, last, Outcome::Consensus, stopped, context) {
            self.end_with(ending, context);
        }
    }

    /// All members of the round have been asked, and did not agree.
    fn close_round(&mut self, context: &mut InputContext<'_>) {
        self.round_mut().close(context.position);
        let has_answer = self.round().has_answer();
        if let Some((_, before)) = self.rounds.split_last_mut() {
            before.iter_mut().for_each(|round| round.strip(has_answer));
        }
        self.reviews.iter_mut().for_each(PanelReview::strip);
        if self.round().replies().next().is_none() {
            self.end_by_plurality(Stopped::Silence, context);
        } else if self.round().number >= self.rules.rounds {
            self.end_by_plurality(Stopped::Rounds, context);
        } else if !self.begins_selection(context) {
            self.go_on(context);
        }
    }

    /// Goes on with those that are kept: their answers are reviewed, or the next round begins.
    fn go_on(&mut self, context: &mut InputContext<'_>) {
        if !self.begins_review(context) {
            self.begin_next_round(context);
        }
    }

    /// Asks the reviewers that have not left, if there are any.
    fn begins_review(&mut self, context: &mut InputContext<'_>) -> bool {
        let Some(review_ms) = self.rules.review.as_ref().map(|review| review.review_ms) else { return false };
        let there: Vec<MemberIndex> = self.reviewers().filter(|place| !self.member(*place).has_left).collect();
        if there.is_empty() {
            return false;
        }
        let review_by = context.clock.plus_ms(review_ms).min(self.header.ends_by);
        let kept = |place: &MemberIndex| !self.is_dropped(*place);
        let authors: Vec<MemberIndex> = self.round().replies().map(|(place, _)| place).filter(kept).collect();
        let mut asked = Vec::with_capacity(there.len());
        for member in there {
            let shown = asks::shown_to(self, member, authors.clone());
            let deliver = asks::to_reviewer(self, member, &shown, review_by, context);
            asked.push(AskedReviewer { member, ask: deliver.id, shown, is_waited: true, reply: None });
            self.calls.reviews = self.calls.reviews.saturating_add(1);
            self.members[usize::from(member)].was_asked = true;
            context.deliver(deliver);
        }
        self.note_asked(AskKind::Review, asked.len(), context);
        self.reviews.push(PanelReview { round: self.round().number, review_by, asked });
        self.enter(Phase::Reviewing, context);
        true
    }

    fn begin_next_round(&mut self, context: &mut InputContext<'_>) {
        let (members, of) = match &self.selection {
            Some(selection) => (selection.kept().to_vec(), selection.keep),
            None => (self.seats().collect(), self.seats().count()),
        };
        self.begin_round(members, of, context);
    }

    /// Whether seats are to be dropped after this round: then a ranker is asked, or has ranked already.
    fn begins_selection(&mut self, context: &mut InputContext<'_>) -> bool {
        let Some(select) = &self.rules.select else { return false };
        let candidates = self.candidates();
        let is_due = select.after_round == self.round().number
            && candidates.len() > usize::try_from(select.keep).unwrap_or(usize::MAX)
            && self.seats().count() > usize::try_from(select.if_more_than).unwrap_or(usize::MAX);
        if !is_due {
            return false;
        }
        let by = match &select.ranker {
            Ranker::Support => SelectedBy::Support,
            Ranker::Rating => SelectedBy::Rating,
            Ranker::Hash => SelectedBy::Hash,
            Ranker::Agent { rank_ms, .. } => {
                let rank_ms = *rank_ms;
                self.ask_ranker(candidates, rank_ms, context);
                return true;
            }
        };
        self.select(by, &[], context);
        true
    }

    /// Who may go on: whose answer in the round is an opinion.
    fn candidates(&self) -> Vec<MemberIndex> {
        let with_opinion = self.round().replies().filter(|(_, reply)| reply.answer.is_some());
        with_opinion.map(|(place, _)| place).collect()
    }

    /// Asks the ranker; one that has left does not rank.
    fn ask_ranker(&mut self, candidates: Vec<MemberIndex>, rank_ms: u64, context: &mut InputContext<'_>) {
        let ranker = self.ranker().filter(|ranker| !self.member(*ranker).has_left);
        let Some(ranker) = ranker else { return self.select(SelectedBy::Fallback, &[], context) };
        let rank_by = context.clock.plus_ms(rank_ms).min(self.header.ends_by);
        let candidates = asks::shown_to(self, ranker, candidates);
        let deliver = asks::to_ranker(self, ranker, &candidates, rank_by, context);
        self.calls.ranks = self.calls.ranks.saturating_add(1);
        self.members[usize::from(ranker)].was_asked = true;
        self.ranking = Some(Ranking { ask: deliver.id, rank_by, candidates });
        self.enter(Phase::Ranking, context);
        self.note_asked(AskKind::Rank, 1, context);
        context.deliver(deliver);
    }

    fn note_asked(&self, kind: AskKind, count: usize, context: &mut InputContext<'_>) {
        if count > 0 {
            let (negotiation, at) = (self.header.id.clone(), context.clock);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            context.event(Event::Asked { negotiation, kind, round: self.round().number, count, at });
        }
    }

    /// The ranker has ordered some candidates, by their places in what it was shown.
    pub(super) fn order(
        &mut self,
        place: MemberIndex,
        chosen: &[usize],
        usage: Option<Usage>,
        context: &mut InputContext<'_>,
    ) {
        self.note_answered(place, usage);
        let candidates = self.ranking.as_ref().map(|ranking| ranking.candidates.clone()).unwrap_or_default();
        let chosen: Vec<MemberIndex> = chosen.iter().filter_map(|place| candidates.get(*place).copied()).collect();
        self.select(SelectedBy::Agent, &chosen, context);
        // All of those it keeps may have left.
        self.advance(context);
    }

    /// Ranks the candidates, keeps the best, and goes on with them unless they agree.
    pub(super) fn select(&mut self, by: SelectedBy, chosen: &[MemberIndex], context: &mut InputContext<'_>) {
        let Some(select) = &self.rules.select else { return };
        let (keep, recheck) = (usize::try_from(select.keep).unwrap_or(usize::MAX), select.recheck);
        let candidates = self.candidates();
        let ranked = self.ranked(&select.ranker, &candidates);
        let numbers: Vec<usize> =
            chosen.iter().filter_map(|one| candidates.iter().position(|other| other == one)).collect();
        let ranked = completed(&numbers, &ranked).into_iter().filter_map(|number| candidates.get(number).copied());
        let ranked: Vec<MemberIndex> = ranked.collect();
        self.ranking = None;
        self.selection = Some(Selected { after_round: self.round().number, by, ranked, keep });
        let kept = |place: MemberIndex| !self.is_dropped(place);
        let is_agreed = || consensus(self.round().tally(kept).most(), keep);
        if recheck && self.may_agree() && is_agreed() {
            self.find_consensus(Stopped::Selection, context);
        } else {
            self.go_on(context);
        }
    }

    /// The candidates' numbers, the best first (docs/spec/panel-answers.md#pa-13).
    fn ranked(&self, ranker: &Ranker, candidates: &[MemberIndex]) -> Vec<usize> {
        let round = self.round();
        let tally = round.tally(|_| true);
        let number =
            |place: MemberIndex| round.asked.iter().position(|asked| asked.member == place).unwrap_or(usize::MAX);
        let given_to = |place: MemberIndex| -> Vec<u32> {
            let given = round.replies().flat_map(|(_, reply)| &reply.ratings);
            given.filter(|given| given.of == place && given.rating > 0).map(|given| u32::from(given.rating)).collect()
        };
        let candidates: Vec<Candidate> = candidates
            .iter()
            .map(|place| Candidate {
                support: tally.supporters(number(*place)).len(),
                received: received(&given_to(*place)),
                hash: asking(&self.header.id, self.called_at, round.number, self.agent(*place)),
            })
            .collect();
        rank(ranker, &candidates)
    }

    /// A seat replies.
    pub(super) fn reply(
        &mut self,
        place: MemberIndex,
        reply: Box<SeatReply>,
        usage: Option<Usage>,
        context: &mut InputContext<'_>,
    ) {
        self.note_answered(place, usage);
        if let Some(round) = self.rounds.last_mut() {
            round.note_reply(place, reply, &self.rules.answer);
        }
        self.advance(context);
    }

    /// A reviewer replies.
    pub(super) fn note_review(
        &mut self,
        place: MemberIndex,
        reply: ReviewReply,
        usage: Option<Usage>,
        context: &mut InputContext<'_>,
    ) {
        self.note_answered(place, usage);
        if let Some(asked) = self.review_mut().and_then(|review| review.asked_mut(place)) {
            (asked.reply, asked.is_waited) = (Some(reply), false);
        }
        self.advance(context);
    }

    fn note_answered(&mut self, place: MemberIndex, usage: Option<Usage>) {
        self.calls.answered = self.calls.answered.saturating_add(1);
        let Some(usage) = usage else { return };
        self.reported_by = self.reported_by.saturating_add(1);
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more).min(INTEGER_MAX.unsigned_abs());
        for sum in [&mut self.usage, &mut self.members[usize::from(place)].usage] {
            add(&mut sum.calls, usage.calls);
            add(&mut sum.prompt_tokens, usage.prompt_tokens);
            add(&mut sum.completion_tokens, usage.completion_tokens);
        }
    }

    /// A seat, the ranker, or a reviewer leaves for good.
    pub(super) fn leave(&mut self, place: MemberIndex, context: &mut InputContext<'_>) {
        self.members[usize::from(place)].has_left = true;
        self.stop_waiting_for(place, context);
    }

    /// Goes on without somebody who is waited for.
    pub(super) fn stop_waiting_for(&mut self, place: MemberIndex, context: &mut InputContext<'_>) {
        if self.phase == Phase::Ranking && self.ranker() == Some(place) {
            self.select(SelectedBy::Fallback, &[], context);
        } else if let Some(asked) = self.review_mut().and_then(|review| review.asked_mut(place)) {
            asked.is_waited = false;
        } else if let Some(asked) = self.round_mut().asked_mut(place) {
            asked.is_waited = false;
        }
        self.advance(context);
    }

    /// A strike; too many, and the member has left. What it replied in the open round, or the open review, falls.
    pub(super) fn strike(&mut self, place: MemberIndex, context: &mut InputContext<'_>) {
        let max = self.rules.max_strikes;
        let member = &mut self.members[usize::from(place)];
        member.strikes = member.strikes.saturating_add(1);
        if member.strikes < max || member.has_left {
            return;
        }
        let is_seat = member.role == MemberRole::Seat;
        if is_seat && self.phase == Phase::Asking {
            self.round_mut().take_back(place);
        }
        if let Some(asked) = self.review_mut().and_then(|review| review.asked_mut(place)) {
            asked.reply = None;
        }
        self.leave(place, context);
    }
}
