//! One round of answers: who is asked in which order, who has replied, and what the replies come to.

use schemas::ids::Position;
use schemas::panel::{AnswerKind, Asking};
use schemas::{DeliveryId, Timestamp};
use serde::{Deserialize, Serialize};

use super::MEMBERS_MAX;
use super::reply::SeatReply;
use crate::panel::count::{AnswerTally, consensus, quorum};

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
}

impl AskedSeat {
    /// A seat that is waited for.
    pub(super) fn new(member: MemberIndex, ask: DeliveryId, answer_by: Timestamp) -> Self {
        Self { member, ask, answer_by, is_waited: true, reply: None }
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

    /// A member replies. Where texts are compared by BLEU, its answer is compared with those there are.
    pub(super) fn note_reply(&mut self, member: MemberIndex, mut reply: Box<SeatReply>, kind: &AnswerKind) {
        let Some(number) = self.number_of(member) else { return };
        if let AnswerKind::Bleu { at_least_permille } = kind {
            for (other, asked) in self.asked.iter_mut().enumerate().filter(|(other, _)| *other != number) {
                if let Some(theirs) = &mut asked.reply {
                    SeatReply::compare((number, &mut reply), (other, theirs), *at_least_permille);
                }
            }
        }
        if let Some(asked) = self.asked.get_mut(number) {
            (asked.reply, asked.is_waited) = (Some(reply), false);
        }
    }

    /// What a member replied falls.
    pub(super) fn take_back(&mut self, member: MemberIndex) {
        let Some(number) = self.number_of(member) else { return };
        for (other, asked) in self.asked.iter_mut().enumerate() {
            match &mut asked.reply {
                reply if other == number => *reply = None,
                Some(theirs) => theirs.forget(number),
                None => {}
            }
        }
    }

    /// The number of a member among those asked.
    fn number_of(&self, member: MemberIndex) -> Option<usize> {
        self.asked.iter().position(|asked| asked.member == member)
    }

    /// The round is over.
    pub(super) fn close(&mut self, at: Position) {
        self.closed_at = Some(at);
        self.asked.iter_mut().filter_map(|asked| asked.reply.as_mut()).for_each(|reply| reply.close());
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

    /// Which answers agree, by their numbers in [`PanelRound::asked`]; only those of members that `counts`. No text is compared
    /// for it.
    pub(super) fn tally(&self, counts: impl Fn(MemberIndex) -> bool) -> AnswerTally {
        let reply = |number: usize| self.asked.get(number)?.reply.as_deref();
        let has_answer = |asked: &AskedSeat| {
            counts(asked.member) && asked.reply.as_ref().is_some_and(|reply| reply.answer.is_some())
        };
        let has_answer: Vec<bool> = self.asked.iter().map(has_answer).collect();
        AnswerTally::of(&has_answer, |one, other| {
            reply(one).zip(reply(other)).is_some_and(|(reply, theirs)| reply.agrees(theirs, other))
        })
    }

    /// Whether so far more than two thirds of its members have given one answer.
    pub(super) fn has_consensus(&self) -> bool {
        consensus(self.tally(|_| true).most(), self.of)
    }

    /// The next wave: whom to ask now (docs/spec/panel.md#pn-18). Those `is_gone` are passed over. Nobody, once all have been
    /// asked.
    pub(super) fn next_wave(&mut self, asking: Asking, is_gone: impl Fn(MemberIndex) -> bool) -> Vec<MemberIndex> {
        let size = match asking {
            Asking::All => self.order.len(),
            Asking::QuorumFirst if self.asked.is_empty() => quorum(self.of),
            Asking::QuorumFirst => quorum(self.of).saturating_sub(self.tally(|_| true).most()).max(1),
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
        self.asked.iter_mut().filter_map(|asked| asked.reply.as_mut()).for_each(|reply| reply.strip(decides));
    }

    /// What is relied on between the fields, and a snapshot might not keep.
    pub(super) fn is_sound(
        &self,
        kind: &AnswerKind,
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
            && is_each_once(self.order.iter().copied())
            && is_each_once(self.asked.iter().map(|asked| asked.member))
            && self.asked.iter().all(|asked| self.order.contains(&asked.member))
            && self.replies().all(|(_, reply)| reply.is_sound(kind))
            && self.is_agreement_mutual()
            && self.replies().all(|(_, reply)| rates(reply, &is_seat) || rates(reply, &is_reviewer))
    }

    /// Whether answers agree only with others, which agree with them; only answers compared by BLEU say with whom.
    fn is_agreement_mutual(&self) -> bool {
        let agreeing: Vec<u32> =
            self.asked.iter().map(|asked| asked.reply.as_ref().map_or(0, |reply| reply.agreeing())).collect();
        let agrees = |one: u32, other: u32| {
            let agreeing = usize::try_from(one).ok().and_then(|one| agreeing.get(one).copied());
            agreeing.is_some_and(|agreeing| agreeing >> other & 1 != 0)
        };
        (0..u32::BITS).zip(&agreeing).all(|(number, agreeing)| {
            let others = (0..u32::BITS).filter(|other| agreeing >> other & 1 != 0);
            others.into_iter().all(|other| other != number && agrees(other, number))
        })
    }
}

/// Whether no member is named twice. Of a number beyond the most members there may be it is not said.
fn is_each_once(members: impl Iterator<Item = MemberIndex>) -> bool {
    let mut named = [false; MEMBERS_MAX];
    members
        .into_iter()
        .all(|member| named.get_mut(usize::from(member)).is_none_or(|is_named| !std::mem::replace(is_named, true)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use schemas::Lane;

    use super::super::reply::Opinion;
    use super::*;
    use crate::panel::bleu;

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
                while !round.has_consensus() {
                    let wave = round.next_wave(Asking::QuorumFirst, |_| false);
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
        assert_eq!(round.next_wave(Asking::QuorumFirst, |member| member == 1), [3, 0, 2]);
        for member in [3, 0] {
            round.asked.push(asked(member, "a"));
        }
        assert!(!round.has_consensus(), "two of four are not more than two thirds");
        assert!(round.next_wave(Asking::QuorumFirst, |member| member == 1).is_empty());
        let mut all = PanelRound::new(1, 4, vec![3, 1, 0, 2]);
        assert_eq!(all.next_wave(Asking::All, |_| false), [3, 1, 0, 2]);
    }

    #[test]
    fn texts_agree_alike_in_whatever_order_they_come_and_after_a_restart() {
        let words: Vec<String> = (0..60).map(|word| format!("w{word}")).collect();
        // Each is alike with its neighbours only; the last has no opinion.
        let mut texts: Vec<Option<String>> =
            [&words[..56], &words[..50], &words[..44]].map(|words| Some(words.join(" "))).into();
        texts.push(None);
        for order in [[0, 1, 2, 3], [3, 2, 0, 1], [1, 3, 2, 0]] {
            let mut round = round_of(4);
            for number in order {
                round.note_reply(number, reply(&BLEU, texts[usize::from(number)].as_deref()), &BLEU);
            }
            let supporters = |round: &PanelRound, without: Option<MemberIndex>| {
                let tally = round.tally(|member| Some(member) != without);
                [0, 1, 2, 3].map(|number| tally.supporters(number).to_vec())
            };
            let all = [vec![0, 1], vec![0, 1, 2], vec![1, 2], vec![]];
            let others = [vec![0], vec![], vec![2], vec![]];
            for round in [&round, &restored(&round)] {
                assert!(is_sound(round, &BLEU));
                assert_eq!(supporters(round, None), all, "{order:?}");
                assert_eq!(supporters(round, Some(1)), others, "{order:?}");
            }
        }
    }

    #[test]
    fn an_answer_after_a_restart_is_compared_with_each_before_it_once_and_no_others_are() {
        const SEATS: MemberIndex = 16;
        let texts: Vec<String> = (0..SEATS).map(longest).collect();
        let mut steady = round_of(SEATS);
        for member in 0..SEATS - 1 {
            steady.note_reply(member, reply(&BLEU, Some(&texts[usize::from(member)])), &BLEU);
        }
        let mut restored = restored(&steady);
        bleu::counted(|| assert!(!restored.has_consensus()), (0, 0));
        let last = || reply(&BLEU, Some(&texts[15]));
        let (here, there) = (last(), last());
        bleu::counted(|| restored.note_reply(15, here, &BLEU), (15, 15));
        bleu::counted(|| steady.note_reply(15, there, &BLEU), (0, 15));
        let kept = |member: MemberIndex| member < 4;
        bleu::counted(|| assert_eq!((restored.tally(|_| true).most(), restored.tally(kept).most()), (8, 2)), (0, 0));
        assert_eq!(restored.tally(|_| true), steady.tally(|_| true));
        assert_eq!(super::tests::restored(&restored).tally(|_| true), steady.tally(|_| true));
    }

    #[test]
    fn texts_of_other_kinds_are_not_compared_after_a_restart() {
        let mut round = round_of(32);
        for member in 0..32 {
            round.note_reply(member, reply(&KIND, Some(["a", " b "][usize::from(member % 2)])), &KIND);
        }
        let restored = restored(&round);
        assert!(is_sound(&restored, &KIND) && !is_sound(&restored, &BLEU));
        assert_eq!(restored.tally(|_| true), round.tally(|_| true));
        assert_eq!(restored.tally(|_| true).most(), 16);
        assert_eq!(restored.tally(|member| member % 4 == 0).most(), 8);
    }

    #[test]
    fn what_falls_agrees_with_nothing_and_leaves_the_round_sound() {
        let mut round = round_of(3);
        for member in 0..3 {
            round.note_reply(member, reply(&BLEU, Some("one and the same answer")), &BLEU);
        }
        round.take_back(1);
        assert!(is_sound(&restored(&round), &BLEU));
        assert_eq!(round.tally(|_| true).supporters(0), [0, 2]);
        assert_eq!(round.tally(|_| true).supporters(1), [0_usize; 0]);
        round.strip(true);
        assert!(is_sound(&restored(&round), &BLEU) && !round.has_answer());
    }

    #[test]
    fn a_snapshot_that_contradicts_itself_about_who_agrees_is_refused() {
        let mut round = round_of(4);
        for (member, text) in (0..3).zip(["one answer for all of us", "one answer for all of us", "another"]) {
            round.note_reply(member, reply(&BLEU, Some(text)), &BLEU);
        }
        let whole = serde_json::to_value(&round).unwrap();
        let agreeing = |number: usize, bits: u32| {
            let mut changed = whole.clone();
            changed["asked"][number]["reply"]["compared"]["agreeing"] = bits.into();
            serde_json::from_value::<PanelRound>(changed).unwrap()
        };
        assert!(is_sound(&agreeing(0, 0b10), &BLEU), "as it was");
        for (number, bits) in
            [(0, 0b0), (0, 0b11), (0, 0b110), (0, 0b1010), (2, 0b100), (2, 0b1000), (0, 1 << 31 | 0b10)]
        {
            assert!(!is_sound(&agreeing(number, bits), &BLEU), "{bits:b} of {number}");
        }
        let without = |member: &str| {
            let mut changed = whole.clone();
            changed["asked"][2]["reply"][member] = serde_json::Value::Null;
            serde_json::from_value::<PanelRound>(changed).unwrap()
        };
        for member in ["compared", "answer", "key_digest"] {
            assert!(!is_sound(&without(member), &BLEU), "{member}");
        }
        for list in ["asked", "order"] {
            let mut changed = whole.clone();
            changed[list][3] = changed[list][2].clone();
            assert!(!is_sound(&serde_json::from_value(changed).unwrap(), &BLEU), "{list}");
        }
    }

    const BLEU: AnswerKind = AnswerKind::Bleu { at_least_permille: 850 };

    /// A round that has asked so many.
    fn round_of(seats: MemberIndex) -> PanelRound {
        let mut round = PanelRound::new(1, usize::from(seats), (0..seats).collect());
        round.next_wave(Asking::All, |_| false);
        let ask = |member| AskedSeat::new(member, DeliveryId::new(Lane(0), [member; 16]), Timestamp(0));
        round.asked = (0..seats).map(ask).collect();
        round
    }

    /// As many tokens as an answer has room for. Every second text is alike.
    fn longest(member: MemberIndex) -> String {
        let word = |number: usize| {
            let number =
                if number < 8 { 40 * usize::from(member) + number } else { 4000 * usize::from(member % 2) + number };
            [number / 676 % 26, number / 26 % 26, number % 26].map(|letter| char::from(b'a' + letter as u8))
        };
        let words: Vec<String> = (0..2047).map(|number| word(number).iter().collect()).collect();
        assert!(words.iter().collect::<BTreeSet<_>>().len() > 1900, "n-grams are counted one by one");
        words.join(" ")
    }

    fn reply(kind: &AnswerKind, answer: Option<&str>) -> Box<SeatReply> {
        let opinion = answer.map(|answer| Opinion::try_new(kind, answer).unwrap());
        Box::new(SeatReply::new(opinion, None, Vec::new()))
    }

    fn restored(round: &PanelRound) -> PanelRound {
        postcard::from_bytes(&postcard::to_extend(round, Vec::new()).unwrap()).unwrap()
    }

    fn is_sound(round: &PanelRound, kind: &AnswerKind) -> bool {
        round.is_sound(kind, |_| true, |_| false)
    }

    fn asked(member: MemberIndex, answer: &str) -> AskedSeat {
        let ask = DeliveryId::new(Lane(0), [member; 16]);
        let reply = Some(reply(&KIND, Some(answer)));
        AskedSeat { is_waited: false, reply, ..AskedSeat::new(member, ask, Timestamp(0)) }
    }
}
