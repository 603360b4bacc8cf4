//! What becomes of a message in an open panel (docs/spec/panel.md#what-is-legal). Judging changes nothing.

use schemas::delivery::Disposition;
use schemas::evidence::Usage;
use schemas::panel::{PanelAnswer, RATING_MAX, RATING_MIN};
use schemas::{Act, Payload};

use super::asks::SeenBySeat;
use super::reply::{GivenRating, Opinion, SeatReply};
use super::review::ReviewReply;
use super::round::MemberIndex;
use super::{MemberRole, Panel};
use crate::negotiation::misunderstanding::{ActSet, NotUnderstoodReason};
use crate::negotiation::{InputContext, Refusal};
use schemas::protocols::Phase;

/// What follows from a message.
#[derive(Debug, Default)]
pub(crate) enum PanelAction {
    #[default]
    Nothing,
    Strike,
    /// A seat has answered.
    Reply(Box<SeatReply>, Option<Usage>),
    /// The ranker has ordered candidates, by their numbers in what it was shown.
    Order(Vec<usize>, Option<Usage>),
    /// A reviewer has reviewed.
    Review(Box<ReviewReply>, Option<Usage>),
    /// For good.
    Leave,
    Cancel,
}

impl Panel {
    /// What the message meets in the table of acts and states.
    #[expect(clippy::wildcard_enum_match_arm, reason = "nothing else is said in a panel")]
    pub(super) fn judge_message(
        &self,
        speaker: MemberIndex,
        payload: &Payload,
        context: &InputContext<'_>,
    ) -> Result<PanelAction, Refusal> {
        let round = if let Payload::Answer(answer) = payload { Some(answer.round) } else { payload.round() };
        Refusal::check_round(round, self.round().number)?;
        if self.is_dropped_seat(speaker) && !matches!(payload, Payload::Cancel(_)) {
            return Err(Refusal::strike(NotUnderstoodReason::NotAsked));
        }
        match payload {
            Payload::Answer(answer) => match self.member(speaker).role {
                MemberRole::Seat => self.judge_reply(speaker, answer, context),
                MemberRole::Reviewer => self.judge_review(speaker, answer, context),
                MemberRole::Initiator | MemberRole::Ranker => self.judge_order(speaker, answer, context),
            },
            Payload::Refuse(_) | Payload::NotUnderstood(_) if self.may_leave(speaker) => Ok(PanelAction::Leave),
            Payload::Cancel(_) if speaker == 0 => Ok(PanelAction::Cancel),
            Payload::Cancel(_) => Err(Refusal::out_of_turn(NotUnderstoodReason::OutOfTurn)),
            _ => Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)),
        }
    }

    fn is_dropped_seat(&self, place: MemberIndex) -> bool {
        self.member(place).role == MemberRole::Seat && self.is_dropped(place)
    }

    /// Whether somebody has a part in the panel that it can leave.
    fn may_leave(&self, place: MemberIndex) -> bool {
        let is_asked = match self.member(place).role {
            MemberRole::Seat | MemberRole::Reviewer => true,
            MemberRole::Initiator | MemberRole::Ranker => self.ranker() == Some(place),
        };
        is_asked && !self.member(place).has_left
    }

    /// An answer of a seat in the running round.
    fn judge_reply(
        &self,
        seat: MemberIndex,
        said: &PanelAnswer,
        context: &InputContext<'_>,
    ) -> Result<PanelAction, Refusal> {
        let Some(answer) = &said.answer else { return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)) };
        let round = self.round();
        let asked = round.asked(seat).filter(|_| !self.member(seat).has_left);
        let Some(asked) = asked else { return Err(Refusal::strike(NotUnderstoodReason::NotAsked)) };
        if asked.reply.is_some() {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        if round.closed_at.is_some() || context.now > asked.answer_by {
            return Err(Refusal::silent(Disposition::Late));
        }
        if let Some(member) = said.oversized() {
            return Err(Refusal::malformed(NotUnderstoodReason::BadAnswer, format!("/payload{member}")));
        }
        let bad = |_| Refusal::malformed(NotUnderstoodReason::BadAnswer, "/payload/answer");
        let opinion = answer.as_deref().map(|text| Opinion::try_new(&self.rules.answer, text));
        let opinion = opinion.transpose().map_err(bad)?;
        let seen = SeenBySeat::of(self, seat);
        let ratings = self.judge_ratings(said, seen.rated().1, self.round().number > 1)?;
        let reply = Box::new(SeatReply::new(opinion, said.text.as_deref(), ratings));
        Ok(PanelAction::Reply(reply, said.usage))
    }

    /// One rating for each of those shown, or none at all.
    fn judge_ratings(
        &self,
        said: &PanelAnswer,
        rated: &[MemberIndex],
        may_rate: bool,
    ) -> Result<Vec<GivenRating>, Refusal> {
        let rated = rated.iter().copied();
        let Some(ratings) = &said.ratings else { return Ok(rated.map(|of| GivenRating { of, rating: 0 }).collect()) };
        let bad = || Refusal::malformed(NotUnderstoodReason::BadRatings, "/payload/ratings");
        if !self.rules.rate || !may_rate || ratings.len() != rated.len() {
            return Err(bad());
        }
        let given = rated.zip(ratings).map(|(of, rating)| match u8::try_from(*rating) {
            Ok(given) if (RATING_MIN..=RATING_MAX).contains(rating) => Ok(GivenRating { of, rating: given }),
            Ok(_) | Err(_) => Err(bad()),
        });
        given.collect()
    }

    /// What a reviewer says of the answers of the running round.
    fn judge_review(
        &self,
        reviewer: MemberIndex,
        said: &PanelAnswer,
        context: &InputContext<'_>,
    ) -> Result<PanelAction, Refusal> {
        let Some(texts) = &said.reviews else { return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn)) };
        let review = self.review().filter(|_| !self.member(reviewer).has_left);
        let asked = review.and_then(|review| Some((review, review.asked(reviewer)?)));
        let Some((review, asked)) = asked else { return Err(Refusal::strike(NotUnderstoodReason::NotAsked)) };
        if asked.reply.is_some() {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        }
        if context.now > review.review_by {
            return Err(Refusal::silent(Disposition::Late));
        }
        let bad = |member: &str| Refusal::malformed(NotUnderstoodReason::BadReviews, format!("/payload{member}"));
        if let Some(member) = said.oversized() {
            return Err(bad(member));
        }
        if texts.len() != asked.shown.len() {
            return Err(bad("/reviews"));
        }
        let ratings = self.judge_ratings(said, &asked.shown, true)?;
        Ok(PanelAction::Review(Box::new(ReviewReply::new(texts, ratings)), said.usage))
    }

    /// An order of the ranker. Anybody else who has no seat is not asked.
    fn judge_order(
        &self,
        speaker: MemberIndex,
        said: &PanelAnswer,
        context: &InputContext<'_>,
    ) -> Result<PanelAction, Refusal> {
        let is_ranker = self.ranker() == Some(speaker) && !self.member(speaker).has_left;
        let ranking = self.ranking.as_ref().filter(|_| is_ranker && self.phase == Phase::Ranking);
        let (Some(order), true) = (&said.order, is_ranker) else {
            return Err(Refusal::strike(NotUnderstoodReason::OutOfTurn));
        };
        let Some(ranking) = ranking else { return Err(Refusal::strike(NotUnderstoodReason::NotAsked)) };
        if context.now > ranking.rank_by {
            return Err(Refusal::silent(Disposition::Late));
        }
        let keep = self.rules.select.as_ref().map_or(0, |select| usize::try_from(select.keep).unwrap_or(usize::MAX));
        let bad = |place: &str| Refusal::malformed(NotUnderstoodReason::BadOrder, format!("/payload/order{place}"));
        if order.is_empty() {
            return Err(bad(""));
        }
        let mut chosen: Vec<usize> = Vec::with_capacity(order.len());
        for (index, place) in order.iter().enumerate() {
            let number = usize::try_from(*place).ok().and_then(|place| place.checked_sub(1));
            let number = number.filter(|number| *number < ranking.candidates.len() && index < keep);
            match number.filter(|number| !chosen.contains(number)) {
                Some(number) => chosen.push(number),
                None => return Err(bad(&format!("/{index}"))),
            }
        }
        Ok(PanelAction::Order(chosen, said.usage))
    }

    /// What somebody could legally have said: `expected` of a NOT_UNDERSTOOD.
    pub(super) fn legal_acts(&self, speaker: MemberIndex) -> ActSet {
        let is_asked = if self.phase == Phase::Ranking {
            self.ranker() == Some(speaker)
        } else if let Some(review) = self.review() {
            review.asked(speaker).is_some_and(|asked| asked.is_waited)
        } else {
            self.round().asked(speaker).is_some_and(|asked| asked.is_waited)
        };
        let mut acts = Vec::with_capacity(4);
        if is_asked {
            acts.push(Act::Answer);
        }
        if self.may_leave(speaker) && !self.is_dropped_seat(speaker) {
            acts.extend([Act::Refuse, Act::NotUnderstood]);
        }
        if speaker == 0 {
            acts.push(Act::Cancel);
        }
        ActSet::of(&acts)
    }
}
