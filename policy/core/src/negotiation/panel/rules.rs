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
use crate::negotiation::disposition::Incoming;
use crate::negotiation::phase::{ActSet, NotUnderstoodReason};
use crate::negotiation::{FollowUp, InputContext, Pointed, Ruling};
use crate::protocol::Phase;

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

/// Why a message is not followed.
struct Unfollowed {
    disposition: Disposition,
    reason: Option<NotUnderstoodReason>,
    pointer: Option<String>,
    is_strike: bool,
}

impl Unfollowed {
    /// An act that is not its sender's now: a strike.
    fn strike(reason: NotUnderstoodReason) -> Self {
        Self { disposition: Disposition::OutOfTurn, reason: Some(reason), pointer: None, is_strike: true }
    }

    /// An act that is not its sender's now.
    fn out_of_turn(reason: NotUnderstoodReason) -> Self {
        Self { is_strike: false, ..Self::strike(reason) }
    }

    /// Too late.
    fn after(disposition: Disposition) -> Self {
        Self { disposition, reason: None, pointer: None, is_strike: false }
    }

    /// An answer that may be sent again, corrected.
    fn malformed(reason: NotUnderstoodReason, pointer: impl Into<String>) -> Self {
        let disposition = Disposition::Malformed;
        Self { disposition, reason: Some(reason), pointer: Some(pointer.into()), is_strike: false }
    }
}

impl Panel {
    /// What the message meets in the table of acts and states.
    pub(super) fn judge_message(
        &self,
        speaker: MemberIndex,
        incoming: &Incoming,
        context: &InputContext<'_>,
    ) -> Ruling<PanelAction> {
        self.followed(speaker, &incoming.payload, context).map_or_else(|why| self.refused(speaker, why), Ruling::ok)
    }

    fn followed(
        &self,
        speaker: MemberIndex,
        payload: &Payload,
        context: &InputContext<'_>,
    ) -> Result<PanelAction, Unfollowed> {
        let round = if let Payload::Answer(answer) = payload { Some(answer.round) } else { payload.round() };
        match round.map(|round| round.cmp(&self.round().number)) {
            Some(std::cmp::Ordering::Less) => return Err(Unfollowed::after(Disposition::StaleRound)),
            Some(std::cmp::Ordering::Greater) => return Err(Unfollowed::out_of_turn(NotUnderstoodReason::BadRound)),
            Some(std::cmp::Ordering::Equal) | None => {}
        }
        if self.is_dropped_seat(speaker) && !matches!(payload, Payload::Cancel(_)) {
            return Err(Unfollowed::strike(NotUnderstoodReason::NotAsked));
        }
        match payload {
            Payload::Answer(answer) => match self.member(speaker).role {
                MemberRole::Seat => self.judge_reply(speaker, answer, context),
                MemberRole::Reviewer => self.judge_review(speaker, answer, context),
                MemberRole::Initiator | MemberRole::Ranker => self.judge_order(speaker, answer, context),
            },
            Payload::Refuse(_) | Payload::NotUnderstood(_) if self.may_leave(speaker) => Ok(PanelAction::Leave),
            Payload::Cancel(_) if speaker == 0 => Ok(PanelAction::Cancel),
            Payload::Cancel(_) => Err(Unfollowed::out_of_turn(NotUnderstoodReason::OutOfTurn)),
            Payload::Cfp(_)
            | Payload::Offer(_)
            | Payload::Refuse(_)
            | Payload::NotUnderstood(_)
            | Payload::Withdraw(_)
            | Payload::Accept(_)
            | Payload::Confirm(_)
            | Payload::Inform(_)
            | Payload::Failure(_)
            | Payload::Join(_)
            | Payload::End(_)
            | Payload::Say(_)
            | Payload::Assign(_)
            | Payload::Pause(_)
            | Payload::Conclude(_) => Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn)),
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
    ) -> Result<PanelAction, Unfollowed> {
        let Some(answer) = &said.answer else { return Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn)) };
        let round = self.round();
        let asked = round.asked(seat).filter(|_| !self.member(seat).has_left);
        let Some(asked) = asked else { return Err(Unfollowed::strike(NotUnderstoodReason::NotAsked)) };
        if asked.reply.is_some() {
            return Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn));
        }
        if round.closed_at.is_some() || context.now > asked.answer_by {
            return Err(Unfollowed::after(Disposition::Late));
        }
        if let Some(member) = said.oversized() {
            return Err(Unfollowed::malformed(NotUnderstoodReason::BadAnswer, format!("/payload{member}")));
        }
        let bad = |_| Unfollowed::malformed(NotUnderstoodReason::BadAnswer, "/payload/answer");
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
    ) -> Result<Vec<GivenRating>, Unfollowed> {
        let rated = rated.iter().copied();
        let Some(ratings) = &said.ratings else { return Ok(rated.map(|of| GivenRating { of, rating: 0 }).collect()) };
        let bad = || Unfollowed::malformed(NotUnderstoodReason::BadRatings, "/payload/ratings");
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
    ) -> Result<PanelAction, Unfollowed> {
        let Some(texts) = &said.reviews else { return Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn)) };
        let review = self.review().filter(|_| !self.member(reviewer).has_left);
        let asked = review.and_then(|review| Some((review, review.asked(reviewer)?)));
        let Some((review, asked)) = asked else { return Err(Unfollowed::strike(NotUnderstoodReason::NotAsked)) };
        if asked.reply.is_some() {
            return Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn));
        }
        if context.now > review.review_by {
            return Err(Unfollowed::after(Disposition::Late));
        }
        let bad = |member: &str| Unfollowed::malformed(NotUnderstoodReason::BadReviews, format!("/payload{member}"));
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
    ) -> Result<PanelAction, Unfollowed> {
        let is_ranker = self.ranker() == Some(speaker) && !self.member(speaker).has_left;
        let ranking = self.ranking.as_ref().filter(|_| is_ranker && self.phase == Phase::Ranking);
        let (Some(order), true) = (&said.order, is_ranker) else {
            return Err(Unfollowed::strike(NotUnderstoodReason::OutOfTurn));
        };
        let Some(ranking) = ranking else { return Err(Unfollowed::strike(NotUnderstoodReason::NotAsked)) };
        if context.now > ranking.rank_by {
            return Err(Unfollowed::after(Disposition::Late));
        }
        let keep = self.rules.select.as_ref().map_or(0, |select| usize::try_from(select.keep).unwrap_or(usize::MAX));
        let bad = |place: &str| Unfollowed::malformed(NotUnderstoodReason::BadOrder, format!("/payload/order{place}"));
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

    fn refused(&self, speaker: MemberIndex, why: Unfollowed) -> Ruling<PanelAction> {
        let Unfollowed { disposition, reason, pointer, is_strike } = why;
        let expected = self.expected_acts(speaker);
        let reply = match (reason, pointer) {
            (Some(reason), Some(pointer)) => {
                FollowUp::Pointed(Box::new(Pointed { reason, expected, pointer: pointer.into_boxed_str() }))
            }
            (Some(reason), None) => FollowUp::NotUnderstood(reason, expected),
            (None, _) => FollowUp::None,
        };
        let refused = Ruling::refused(disposition, reply);
        if is_strike { Ruling { action: PanelAction::Strike, ..refused } } else { refused }
    }

    /// What somebody could legally have said: `expected` of a NOT_UNDERSTOOD.
    fn expected_acts(&self, speaker: MemberIndex) -> ActSet {
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
