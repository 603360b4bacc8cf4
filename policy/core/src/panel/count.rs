//! How many agree, and whether that ends a panel (docs/spec/panel-answers.md#pa-10).

use schemas::Digest;

/// Fewest equal answers that are a consensus among `members`, whether those replied or not: more than two thirds.
#[must_use]
pub const fn quorum(members: usize) -> usize {
    2 * members / 3 + 1
}

/// Whether so many equal answers are more than two thirds of `members`.
#[must_use]
pub const fn consensus(count: usize, members: usize) -> bool {
    3 * count > 2 * members
}

/// Which answers of a round agree with which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerTally {
    /// By answer: those that agree with it, itself among them, ascending; none for no answer.
    supporters: Vec<Vec<usize>>,
}

impl AnswerTally {
    /// Counts the answers of a round of which `has_answer` says where there are any: a member without one, silent or without
    /// opinion, agrees with nothing. `agrees` says of two places whether their answers do, and is asked once of each pair that
    /// has answers.
    pub fn of(has_answer: &[bool], agrees: impl Fn(usize, usize) -> bool) -> Self {
        let mut supporters = vec![Vec::new(); has_answer.len()];
        let with_answer = || has_answer.iter().enumerate().filter(|(_, has)| **has).map(|(place, _)| place);
        for place in with_answer() {
            // Agreement is mutual: those before are asked, and told.
            for earlier in with_answer().take_while(|earlier| *earlier < place) {
                if agrees(place, earlier) {
                    supporters[earlier].push(place);
                    supporters[place].push(earlier);
                }
            }
            supporters[place].push(place);
        }
        Self { supporters }
    }

    /// The answers that agree with this one, itself among them, ascending; none where there is no answer.
    #[must_use]
    pub fn supporters(&self, answer: usize) -> &[usize] {
        self.supporters.get(answer).map_or(&[], Vec::as_slice)
    }

    /// The most answers that agree with one.
    #[must_use]
    pub fn most(&self) -> usize {
        self.supporters.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// The answer with the most supporters; none where nobody answered. Among equals that whose best supporter stands first
    /// in `ranked`; then that with the least `hash`.
    pub fn leader(&self, ranked: &[usize], hash: impl Fn(usize) -> Digest) -> Option<usize> {
        let most = self.most();
        let place = |supporter: &usize| ranked.iter().position(|ranked| ranked == supporter).unwrap_or(ranked.len());
        let best = |answer: usize| self.supporters(answer).iter().map(place).min();
        let mut leaders: Vec<usize> =
            (0..self.supporters.len()).filter(|answer| most > 0 && self.supporters(*answer).len() == most).collect();
        // Members of one group, and there is only one: no hash is needed.
        if leaders.len() > 1 && self.supporters(leaders[0]) != leaders.as_slice() {
            leaders.sort_by_cached_key(|answer| (best(*answer), hash(*answer)));
        }
        leaders.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use schemas::panel::AnswerKind;

    use super::*;
    use crate::panel::key::{AnswerKey, agrees, key};

    const EXACT: AnswerKind = AnswerKind::Exact { ignore_case: false };

    #[test]
    fn a_quorum_is_the_least_count_that_is_a_consensus() {
        let quorums: Vec<usize> = (1..=12).map(quorum).collect();
        assert_eq!(quorums, [1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9]);
        for members in 1..=32_usize {
            for count in 0..=members {
                assert_eq!(consensus(count, members), count >= quorum(members), "{count} of {members}");
                assert_eq!(consensus(count, members), 3 * count > 2 * members);
            }
        }
    }

    #[test]
    fn those_without_an_answer_agree_with_nothing_and_lower_no_quorum() {
        for members in 1..=32_usize {
            for equal in 0..=members {
                let answers: Vec<Option<&str>> = (0..members).map(|seat| (seat < equal).then_some("a")).collect();
                let counted = of(&answers);
                assert_eq!(counted.most(), equal);
                assert_eq!(consensus(counted.most(), members), 3 * equal > 2 * members);
                assert_eq!(counted.leader(&[], hash).is_some(), equal > 0);
            }
        }
    }

    #[test]
    fn supporters_of_an_answer_are_those_with_its_key() {
        let counted = of(&[Some("a"), Some("b"), None, Some("a"), Some("c")]);
        assert_eq!(counted.supporters(0), [0, 3]);
        assert_eq!(counted.supporters(3), [0, 3]);
        assert_eq!(counted.supporters(1), [1]);
        assert!(counted.supporters(2).is_empty() && counted.supporters(9).is_empty());
        assert_eq!(counted.most(), 2);
    }

    #[test]
    fn a_tie_goes_to_the_best_ranked_supporter_else_to_the_least_hash() {
        let answers = [Some("a"), Some("b"), Some("c"), Some("b"), Some("a")];
        let counted = of(&answers);
        assert_eq!(counted.leader(&[2, 3, 0], hash), Some(1));
        assert_eq!(counted.leader(&[4, 1, 0, 3, 2], hash), Some(0));
        let by_hash = counted.leader(&[], hash).unwrap();
        assert_eq!(hash(by_hash), hash(0).min(hash(1)));
        let against = |answer: usize| Digest(hash(answer).0.map(|byte| !byte));
        assert_ne!(answers[counted.leader(&[], against).unwrap()], answers[by_hash]);

        fn hash(answer: usize) -> Digest {
            Digest::of_bytes(["a", "b", "c", "b", "a"][answer].as_bytes())
        }
    }

    #[test]
    fn answers_compared_by_bleu_are_counted_around_each_of_them() {
        let kind = AnswerKind::Bleu { at_least_permille: 850 };
        // Each is alike with its neighbours only.
        let words: Vec<String> = (0..60).map(|word| format!("w{word}")).collect();
        let texts = [&words[..56], &words[..50], &words[..44]].map(|words| words.join(" "));
        let keys = texts.map(|text| key(&kind, &text).unwrap());
        let counted = tally(&kind, &keys.map(Some));
        assert_eq!(
            [0, 1, 2].map(|answer| counted.supporters(answer).to_vec()),
            [vec![0, 1], vec![0, 1, 2], vec![1, 2]]
        );
        assert_eq!(counted.leader(&[], hash), Some(1));
        let nothing = key(&kind, "").unwrap();
        assert_eq!(tally(&kind, &[Some(nothing.clone()), Some(nothing)]).most(), 1);
    }

    fn hash(answer: usize) -> Digest {
        Digest::of_bytes(&[u8::try_from(answer).unwrap()])
    }

    fn of(answers: &[Option<&str>]) -> AnswerTally {
        let keys: Vec<Option<AnswerKey>> =
            answers.iter().map(|answer| answer.map(|text| key(&EXACT, text).unwrap())).collect();
        tally(&EXACT, &keys)
    }

    fn tally(kind: &AnswerKind, answers: &[Option<AnswerKey>]) -> AnswerTally {
        let has_answer: Vec<bool> = answers.iter().map(Option::is_some).collect();
        let answer = |place: usize| answers[place].as_ref().unwrap();
        AnswerTally::of(&has_answer, |one, other| agrees(kind, answer(one), answer(other)))
    }
}
