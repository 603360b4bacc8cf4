//! One round of answers: who is asked in which order, who has replied, and what the replies come to.

use std::borrow::Cow;
use std::sync::Arc;

use schemas::ids::Position;
use schemas::panel::{AnswerKind, Asking, SEATS_MAX};
use schemas::{DeliveryId, Digest, Timestamp};
use serde::{Deserialize, Serialize};

use crate::panel::count::{AnswerTally, consensus, quorum};
use crate::panel::key::{AnswerKey, agrees, key};

/// A member of a panel by its place among all who take part. [`super::MEMBERS_MAX`] fit.
pub(crate) type MemberIndex = u8;

/// One round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PanelRound {
    /// Counted from 1.
    pub(super) number: u32,
    /// How many count as all: its members, those that left included.
    pub(super) of: usize,
    /// Its members, in the order in which they are asked.
    pub(super) order: Vec<MemberIndex>,
    /// How many of `order` have had their turn to be asked.
    reached: usize,
    /// Whom it asked, in that order.
    pub(super) asked: Vec<AskedSeat>,
    /// Where the input stands that ended it.
    pub(super) closed_at: Option<Position>,
}

/// A seat that was asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AskedSeat {
    pub(super) member: MemberIndex,
    /// The delivery that asked it.
    pub(super) ask: DeliveryId,
    pub(super) answer_by: Timestamp,
    /// Whether the wave goes on until it replies, leaves or runs out of time.
    pub(super) is_waited: bool,
    pub(super) reply: Option<Box<SeatReply>>,
    /// With which of the others' answers its own was compared when it came; with none after a restart.
    #[serde(skip)]
    compared: Compared,
}

/// Those whose answers an answer was compared with, by their numbers in [`PanelRound::asked`]: a bit for each.
#[derive(Debug, Clone, Copy, Default)]
struct Compared {
    with: u32,
    /// Of those, the ones it agrees with.
    agreeing: u32,
}

const _: () = assert!(SEATS_MAX <= u32::BITS as usize);

impl Compared {
    fn note(&mut self, other: usize, is_agreeing: bool) {
        let bit = u32::try_from(other).ok().and_then(|other| 1_u32.checked_shl(other)).unwrap_or_default();
        self.with |= bit;
        self.agreeing = if is_agreeing { self.agreeing | bit } else { self.agreeing & !bit };
    }

    /// Whether it agrees with the other; absent where they were not compared.
    fn agrees(self, other: usize) -> Option<bool> {
        let bit = u32::try_from(other).ok().and_then(|other| 1_u32.checked_shl(other))?;
        (self.with & bit != 0).then_some(self.agreeing & bit != 0)
    }
}

impl AskedSeat {
    /// A seat that is waited for.
    pub(super) fn new(member: MemberIndex, ask: DeliveryId, answer_by: Timestamp) -> Self {
        Self { member, ask, answer_by, is_waited: true, reply: None, compared: Compared::default() }
    }
}

/// What a seat replied.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SeatReply {
    /// None where it has no opinion, and once a later round can decide.
    pub(super) answer: Option<Arc<str>>,
    /// Kept until the next round has closed.
    pub(super) text: Option<Arc<str>>,
    /// The key of the answer, which shares its text where the two are equal; computed again after a restart.
    #[serde(skip)]
    key: Option<AnswerKey>,
    /// Digest of the key.
    pub(super) key_digest: Option<Digest>,
    /// Whom it was shown, and how it rated them.
    pub(super) ratings: Vec<GivenRating>,
}

/// A rating of somebody shown; 0 where none was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GivenRating {
    pub(super) of: MemberIndex,
    pub(super) rating: u8,
}

impl SeatReply {
    pub(super) fn new(opinion: Option<(&str, AnswerKey)>, text: Option<&str>, ratings: Vec<GivenRating>) -> Self {
        let answer = |(answer, key): &(&str, AnswerKey)| match key {
            AnswerKey::Text(key) if **key == **answer => Arc::clone(key),
            AnswerKey::Text(_) | AnswerKey::Tokens(_) => Arc::from(*answer),
        };
        Self {
            answer: opinion.as_ref().map(answer),
            text: text.map(Arc::from),
            key_digest: opinion.as_ref().map(|(_, key)| Digest::of_bytes(key.text().as_bytes())),
            key: opinion.map(|(_, key)| key),
            ratings,
        }
    }

    /// Computes the key again after a restart.
    fn recall(&mut self, kind: &AnswerKind) {
        if let (None, Some(answer)) = (&self.key, &self.answer) {
            self.key = key(kind, answer).ok();
        }
    }

    /// The key of its answer.
    pub(super) fn key(&self, kind: &AnswerKind) -> Option<Cow<'_, AnswerKey>> {
        match (&self.key, &self.answer) {
            (Some(known), _) => Some(Cow::Borrowed(known)),
            (None, Some(answer)) => key(kind, answer).ok().map(Cow::Owned),
            (None, None) => None,
        }
    }
}

impl PanelRound {
    pub(super) fn new(number: u32, of: usize, order: Vec<MemberIndex>) -> Self {
        Self { number, of, order, reached: 0, asked: Vec::new(), closed_at: None }
    }

    pub(super) fn asked(&self, member: MemberIndex) -> Option<&AskedSeat> {
        self.asked.iter().find(|asked| asked.member == member)
    }

    pub(super) fn asked_mut(&mut self, member: MemberIndex) -> Option<&mut AskedSeat> {
        self.asked.iter_mut().find(|asked| asked.member == member)
    }

    /// A member replies. Its answer is compared with those there are, each pair once: texts compared by BLEU take long, and who
    /// replies last would pay for all of them (docs/spec/panel-answers.md#pa-9).
    pub(super) fn note_reply(&mut self, member: MemberIndex, mut reply: Box<SeatReply>, kind: &AnswerKind) {
        let Some(number) = self.asked.iter().position(|asked| asked.member == member) else { return };
        let mut compared = Compared::default();
        reply.recall(kind);
        for (other, asked) in self.asked.iter_mut().enumerate().filter(|(other, _)| *other != number) {
            let Some(theirs) = &mut asked.reply else { continue };
            theirs.recall(kind);
            let (Some(one), Some(another)) = (&reply.key, &theirs.key) else { continue };
            let is_agreeing = agrees(kind, one, another);
            compared.note(other, is_agreeing);
            asked.compared.note(number, is_agreeing);
        }
        if let Some(asked) = self.asked.get_mut(number) {
            (asked.reply, asked.is_waited, asked.compared) = (Some(reply), false, compared);
        }
    }

    /// Those that replied, in the order of asking.
    pub(super) fn replies(&self) -> impl Iterator<Item = (MemberIndex, &SeatReply)> {
        self.asked.iter().filter_map(|asked| Some((asked.member, asked.reply.as_deref()?)))
    }

    /// The reply of a member.
    pub(super) fn reply_of(&self, member: MemberIndex) -> Option<&SeatReply> {
        self.asked(member)?.reply.as_deref()
    }

    /// Whether somebody has given an answer that can still decide.
    pub(super) fn has_answer(&self) -> bool {
        self.replies().any(|(_, reply)| reply.answer.is_some())
    }

    /// Whether nobody is waited for.
    pub(super) fn is_complete(&self) -> bool {
        self.asked.iter().all(|asked| !asked.is_waited)
    }

    /// When the running wave is over.
    pub(super) fn answer_by(&self) -> Option<Timestamp> {
        self.asked.iter().filter(|asked| asked.is_waited).map(|asked| asked.answer_by).max()
    }

    /// Which answers agree, by their numbers in [`PanelRound::asked`]; only those of members that `counts`.
    pub(super) fn tally(&self, kind: &AnswerKind, counts: impl Fn(MemberIndex) -> bool) -> AnswerTally {
        let reply = |asked: &&AskedSeat| counts(asked.member);
        let keys: Vec<Option<Cow<'_, AnswerKey>>> = self
            .asked
            .iter()
            .map(|asked| Some(asked).filter(reply).and_then(|asked| asked.reply.as_ref()?.key(kind)))
            .collect();
        let keys: Vec<Option<&AnswerKey>> = keys.iter().map(Option::as_deref).collect();
        let known = |one: usize, other: usize| self.asked.get(one)?.compared.agrees(other);
        AnswerTally::of(&keys, |(one, key), (other, theirs)| {
            known(one, other).unwrap_or_else(|| agrees(kind, key, theirs))
        })
    }

    /// Whether so far more than two thirds of its members have given one answer.
    pub(super) fn has_consensus(&self, kind: &AnswerKind) -> bool {
        consensus(self.tally(kind, |_| true).most(), self.of)
    }

    /// The next wave: whom to ask now (docs/spec/panel.md#pn-18). Those `is_gone` are passed over. Nobody, once all have been
    /// asked.
    pub(super) fn next_wave(
        &mut self,
        asking: Asking,
        kind: &AnswerKind,
        is_gone: impl Fn(MemberIndex) -> bool,
    ) -> Vec<MemberIndex> {
        let size = match asking {
            Asking::All => self.order.len(),
            Asking::QuorumFirst if self.asked.is_empty() => quorum(self.of),
            Asking::QuorumFirst => quorum(self.of).saturating_sub(self.tally(kind, |_| true).most()).max(1),
        };
        let rest = self.order.get(self.reached..).unwrap_or_default();
        let there = rest.iter().enumerate().filter(|(_, member)| !is_gone(**member)).take(size);
        let there: Vec<(usize, MemberIndex)> = there.map(|(index, member)| (index, *member)).collect();
        let is_last = there.len() < size;
        self.reached += there.last().filter(|_| !is_last).map_or(rest.len(), |(index, _)| index + 1);
        there.into_iter().map(|(_, member)| member).collect()
    }

    /// The time of the running wave is over.
    pub(super) fn stop_waiting(&mut self) {
        self.asked.iter_mut().for_each(|asked| asked.is_waited = false);
    }

    /// Drops what is shown to nobody any more; the answers, too, once a later round `decides`.
    pub(super) fn strip(&mut self, decides: bool) {
        for reply in self.asked.iter_mut().filter_map(|asked| asked.reply.as_mut()) {
            reply.text = None;
            if decides {
                (reply.answer, reply.key) = (None, None);
            }
        }
    }

    /// What is relied on between the fields, and a snapshot might not keep.
    pub(super) fn is_sound(
        &self,
        is_seat: impl Fn(MemberIndex) -> bool,
        is_reviewer: impl Fn(MemberIndex) -> bool,
    ) -> bool {
        // A reply rates peers, or reviewers.
        let rates = |reply: &SeatReply, is_one: &dyn Fn(MemberIndex) -> bool| {
            reply.ratings.iter().all(|given| is_one(given.of))
        };
        self.order.iter().all(|member| is_seat(*member))
            && self.reached <= self.order.len()
            && self.asked.len() <= self.reached
            && self.asked.iter().all(|asked| self.order.contains(&asked.member))
            && self.replies().all(|(_, reply)| rates(reply, &is_seat) || rates(reply, &is_reviewer))
    }
}

#[cfg(test)]
mod tests {
    use schemas::Lane;

    use super::*;

    const KIND: AnswerKind = AnswerKind::Exact { ignore_case: false };

    #[test]
    fn asking_a_quorum_first_costs_as_many_asks_as_asking_one_by_one() {
        // By members, the asks of a panel that agrees, of one that never does, and of one whose first two differ.
        for (members, unanimous, never, two) in
            [(1, 1, 1, 1), (3, 3, 3, 3), (4, 3, 4, 4), (7, 5, 7, 6), (12, 9, 12, 10)]
        {
            let answers: [fn(usize) -> String; 3] =
                [|_| "a".into(), |asked| asked.to_string(), |asked| (asked == 1).to_string()];
            for (asks, answer) in [unanimous, never, two].into_iter().zip(answers) {
                let mut round = PanelRound::new(1, members, (0..members as u8).collect());
                while !round.has_consensus(&KIND) {
                    let wave = round.next_wave(Asking::QuorumFirst, &KIND, |_| false);
                    if wave.is_empty() {
                        break;
                    }
                    for member in wave {
                        let number = round.asked.len();
                        round.asked.push(asked(member, &answer(number)));
                    }
                }
                assert_eq!(round.asked.len(), asks, "{members}");
            }
        }
    }

    #[test]
    fn those_that_left_are_passed_over_and_lower_no_quorum() {
        let mut round = PanelRound::new(1, 4, vec![3, 1, 0, 2]);
        assert_eq!(round.next_wave(Asking::QuorumFirst, &KIND, |member| member == 1), [3, 0, 2]);
        for member in [3, 0] {
            round.asked.push(asked(member, "a"));
        }
        assert!(!round.has_consensus(&KIND), "two of four are not more than two thirds");
        assert!(round.next_wave(Asking::QuorumFirst, &KIND, |member| member == 1).is_empty());
        let mut all = PanelRound::new(1, 4, vec![3, 1, 0, 2]);
        assert_eq!(all.next_wave(Asking::All, &KIND, |_| false), [3, 1, 0, 2]);
    }

    #[test]
    fn what_was_compared_as_it_came_counts_like_what_is_compared_at_the_end() {
        let kind = AnswerKind::Bleu { at_least_permille: 850 };
        let words: Vec<String> = (0..60).map(|word| format!("w{word}")).collect();
        // Each is alike with its neighbours only; the last has no opinion.
        let mut texts: Vec<Option<String>> =
            [&words[..56], &words[..50], &words[..44]].map(|words| Some(words.join(" "))).into();
        texts.push(None);
        let reply = |text: &Option<String>| {
            let opinion = text.as_deref().map(|text| (text, key(&kind, text).unwrap()));
            Box::new(SeatReply::new(opinion, None, Vec::new()))
        };
        for order in [[0, 1, 2, 3], [3, 2, 0, 1], [1, 3, 2, 0]] {
            let mut round = PanelRound::new(1, 4, (0..4).collect());
            let ask = |member| AskedSeat::new(member, DeliveryId::new(Lane(0), [member; 16]), Timestamp(0));
            round.asked = (0..4).map(ask).collect();
            for number in order {
                round.note_reply(number, reply(&texts[usize::from(number)]), &kind);
            }
            let compared = |one: usize| [0, 1, 2, 3].map(|other| round.asked[one].compared.agrees(other));
            assert_eq!(compared(0), [None, Some(true), Some(false), None], "{order:?}");
            assert_eq!(compared(1), [Some(true), None, Some(true), None], "{order:?}");
            assert_eq!(compared(3), [None; 4], "{order:?}");
            let restored: PanelRound = serde_json::from_str(&serde_json::to_string(&round).unwrap()).unwrap();
            assert_eq!(restored.asked[0].compared.agrees(1), None);
            assert_eq!(round.tally(&kind, |_| true), restored.tally(&kind, |_| true));
            assert_eq!(round.tally(&kind, |member| member != 1), restored.tally(&kind, |member| member != 1));
            assert_eq!(round.tally(&kind, |_| true).most(), 3);
        }
    }

    #[test]
    fn a_reply_after_a_restart_is_compared_with_those_before_it() {
        let mut round = PanelRound::new(1, 3, (0..3).collect());
        round.asked = vec![asked(0, "a"), asked(1, "b"), asked(2, "c")];
        let mut restored: PanelRound = serde_json::from_str(&serde_json::to_string(&round).unwrap()).unwrap();
        let again = SeatReply::new(Some(("b", key(&KIND, "b").unwrap())), None, Vec::new());
        restored.note_reply(2, Box::new(again), &KIND);
        assert_eq!([0, 1].map(|other| restored.asked[2].compared.agrees(other)), [Some(false), Some(true)]);
        assert_eq!(restored.tally(&KIND, |_| true).supporters(1), [1, 2]);
    }

    fn asked(member: MemberIndex, answer: &str) -> AskedSeat {
        let reply = SeatReply::new(Some((answer, key(&KIND, answer).unwrap())), None, Vec::new());
        let ask = DeliveryId::new(Lane(0), [member; 16]);
        AskedSeat { is_waited: false, reply: Some(Box::new(reply)), ..AskedSeat::new(member, ask, Timestamp(0)) }
    }
}
