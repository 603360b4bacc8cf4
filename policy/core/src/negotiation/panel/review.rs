//! The review of one round's answers: who is asked for it, and what they say (docs/spec/panel.md#reviews).

use std::sync::Arc;

use schemas::{DeliveryId, Timestamp};
use serde::{Deserialize, Serialize};

use super::reply::GivenRating;
use super::round::MemberIndex;

/// The review of the answers of one round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PanelReview {
    /// The round whose answers are reviewed.
    pub(super) round: u32,
    /// Exactly then is on time.
    pub(super) review_by: Timestamp,
    /// In the order of the call.
    pub(super) asked: Vec<AskedReviewer>,
}

/// A reviewer that was asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AskedReviewer {
    pub(super) member: MemberIndex,
    /// The delivery that asked it.
    pub(super) ask: DeliveryId,
    /// Whose answers it was shown, in the order in which it sees them.
    pub(super) shown: Vec<MemberIndex>,
    /// Whether the panel goes on only once it has replied or left, or the time is over.
    pub(super) is_waited: bool,
    pub(super) reply: Option<ReviewReply>,
}

/// What a reviewer replied.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReviewReply {
    /// What it says of each answer it was shown, in their order. Kept until the next round has closed.
    texts: Vec<Option<Arc<str>>>,
    /// Whom it was shown, and how it rated them.
    pub(super) ratings: Vec<GivenRating>,
}

impl ReviewReply {
    pub(super) fn new(texts: &[Option<String>], ratings: Vec<GivenRating>) -> Self {
        Self { texts: texts.iter().map(|text| text.as_deref().map(Arc::from)).collect(), ratings }
    }

    /// What it says of a member's answer.
    pub(super) fn text_of(&self, author: MemberIndex) -> Option<Arc<str>> {
        let place = self.ratings.iter().position(|given| given.of == author)?;
        self.texts.get(place)?.clone()
    }
}

impl PanelReview {
    pub(super) fn asked(&self, member: MemberIndex) -> Option<&AskedReviewer> {
        self.asked.iter().find(|asked| asked.member == member)
    }

    pub(super) fn asked_mut(&mut self, member: MemberIndex) -> Option<&mut AskedReviewer> {
        self.asked.iter_mut().find(|asked| asked.member == member)
    }

    /// Those that replied, in the order of the call.
    pub(super) fn replies(&self) -> impl Iterator<Item = (MemberIndex, &ReviewReply)> {
        self.asked.iter().filter_map(|asked| Some((asked.member, asked.reply.as_ref()?)))
    }

    /// Whether nobody is waited for.
    pub(super) fn is_complete(&self) -> bool {
        self.asked.iter().all(|asked| !asked.is_waited)
    }

    /// The time to review is over.
    pub(super) fn stop_waiting(&mut self) {
        self.asked.iter_mut().for_each(|asked| asked.is_waited = false);
    }

    /// Drops what is shown to nobody any more.
    pub(super) fn strip(&mut self) {
        self.asked.iter_mut().filter_map(|asked| asked.reply.as_mut()).for_each(|reply| reply.texts.clear());
    }

    /// What is relied on between the fields, and a snapshot might not keep.
    pub(super) fn is_sound(
        &self,
        is_reviewer: impl Fn(MemberIndex) -> bool,
        is_seat: impl Fn(MemberIndex) -> bool,
    ) -> bool {
        let is_of_shown = |asked: &AskedReviewer| {
            let rated = asked.reply.as_ref().map(|reply| reply.ratings.iter().map(|given| given.of));
            rated.is_none_or(|rated| rated.eq(asked.shown.iter().copied()))
        };
        self.asked.iter().all(|asked| {
            is_reviewer(asked.member) && asked.shown.iter().all(|place| is_seat(*place)) && is_of_shown(asked)
        })
    }
}
