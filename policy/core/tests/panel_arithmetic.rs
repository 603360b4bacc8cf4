//! Properties of the arithmetic of panels over random answers and random rounds (docs/spec/panel-answers.md).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use num_bigint::BigUint;
use num_integer::Integer;
use policy_core::panel::count::{AnswerTally, consensus, quorum};
use policy_core::panel::importance::{Importance, Layer, LayerNode, Shown, importance};
use policy_core::panel::key::{AnswerKey, agrees, key};
use proptest::collection::vec;
use proptest::prelude::*;
use schemas::panel::{AnswerKind, ElementKind};

const MEMBERS_MAX: usize = 6;

fn kinds() -> [AnswerKind; 8] {
    [
        AnswerKind::Exact { ignore_case: true },
        AnswerKind::Choice { options: ["A", "(b)"].map(str::to_owned).to_vec() },
        AnswerKind::Number,
        AnswerKind::Math,
        AnswerKind::Set { of: ElementKind::Number, separator: ",".to_owned() },
        AnswerKind::Set { of: ElementKind::Exact, separator: ";;".to_owned() },
        AnswerKind::Json,
        AnswerKind::Bleu { at_least_permille: 850 },
    ]
}

/// Texts of the letters that the kinds give a meaning to.
fn document() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -~]{0,6}",
        "[0-9,./%eE+-]{0,9}",
        proptest::sample::select(vec![
            "\\frac",
            "\\sqrt",
            "\\text{ ",
            "{",
            "}",
            "[",
            "]",
            "\"a\":",
            "=",
            "é",
            "\u{0}",
            "\u{1f600}",
            "\n",
            "&amp;",
            "<skipped>",
            "1/0",
            "(A)",
            "null",
            "\\u00e9",
            "\u{a0}",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// A round as drawn: who replies, what each says of whom.
#[derive(Debug, Clone)]
struct Round {
    replies: Vec<bool>,
    ratings: Vec<Vec<u32>>,
}

fn rounds() -> impl Strategy<Value = (usize, Vec<Round>)> {
    (1..=MEMBERS_MAX, 1..=4_usize).prop_flat_map(|(members, rounds)| {
        let round = (vec(any::<bool>(), members), vec(vec(1..=5_u32, members), members))
            .prop_map(|(replies, ratings)| Round { replies, ratings });
        (Just(members), vec(round, rounds))
    })
}

/// The layers of those rounds, in which somebody replies each time, and the supporters: all of the last.
fn layers(members: usize, rounds: &[Round]) -> (Vec<Layer>, Vec<usize>) {
    let replied = |round: &Round| -> Vec<usize> {
        let replied: Vec<usize> = (0..members).filter(|member| round.replies[*member]).collect();
        if replied.is_empty() { vec![0] } else { replied }
    };
    let mut before: Vec<usize> = Vec::new();
    let mut layers = Vec::new();
    for round in rounds {
        let now = replied(round);
        let node = |member: &usize| LayerNode {
            member: *member,
            own: before.contains(member).then_some(*member),
            shown: before
                .iter()
                .filter(|shown| *shown != member)
                .map(|shown| Shown { member: *shown, rating: round.ratings[*member][*shown] })
                .collect(),
        };
        layers.push(Layer { members, nodes: now.iter().map(node).collect() });
        before = now;
    }
    (layers, before)
}

/// A fraction of big integers, added and multiplied as at school.
type Exact = (BigUint, BigUint);

fn sum(one: &Exact, other: &Exact) -> Exact {
    (&one.0 * &other.1 + &other.0 * &one.1, &one.1 * &other.1)
}

fn written(exact: &Exact) -> String {
    let common = exact.0.gcd(&exact.1);
    let (numerator, denominator) = (&exact.0 / &common, &exact.1 / &common);
    if denominator == BigUint::from(1_u32) { numerator.to_string() } else { format!("{numerator}/{denominator}") }
}

/// Importance by its definition, edge by edge.
fn defined(layers: &[Layer], supporters: &[usize]) -> Vec<BTreeMap<usize, Exact>> {
    let number = |number: usize| BigUint::from(number);
    let last: BTreeMap<usize, Exact> =
        supporters.iter().map(|member| (*member, (number(1), number(supporters.len())))).collect();
    let mut shares = vec![last];
    for layer in layers.iter().skip(1).rev() {
        let mut before: BTreeMap<usize, Exact> = BTreeMap::new();
        for node in &layer.nodes {
            let Some(share) = shares.last().unwrap().get(&node.member) else { continue };
            let sum_of_ratings: u32 = node.shown.iter().map(|shown| shown.rating).sum();
            let seen = node.shown.len() + usize::from(node.own.is_some());
            let others = |shown: &Shown| match node.own {
                Some(_) => (number(seen - 1) * shown.rating, number(seen) * sum_of_ratings),
                None => (BigUint::from(shown.rating), BigUint::from(sum_of_ratings)),
            };
            let own = node.own.map(|own| (own, (number(1), number(seen))));
            for (member, weight) in own.into_iter().chain(node.shown.iter().map(|shown| (shown.member, others(shown))))
            {
                let part = (&share.0 * &weight.0, &share.1 * &weight.1);
                let so_far = before.entry(member).or_insert((BigUint::ZERO, number(1)));
                *so_far = sum(so_far, &part);
            }
        }
        shares.push(before);
    }
    shares.reverse();
    shares
}

fn of(members: usize, rounds: &[Round]) -> Importance {
    let (layers, supporters) = layers(members, rounds);
    importance(&layers, &supporters).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_text_makes_a_key_panic(text in document()) {
        for kind in kinds() {
            if let Ok(computed) = key(&kind, &text) {
                prop_assert_eq!(key(&kind, &text), Ok(computed));
            }
        }
    }

    #[test]
    fn agreement_is_mutual(one in document(), other in document()) {
        for kind in kinds() {
            if let (Ok(one), Ok(other)) = (key(&kind, &one), key(&kind, &other)) {
                prop_assert_eq!(agrees(&kind, &one, &other), agrees(&kind, &other, &one));
            }
        }
    }

    #[test]
    fn a_consensus_is_more_than_two_thirds_of_all_members(answers in vec(proptest::option::of(0..3_u8), 1..=32)) {
        let kind = AnswerKind::Exact { ignore_case: false };
        let keys: Vec<Option<AnswerKey>> = answers.iter().map(|answer| answer.map(|answer| key(&kind, &answer.to_string()).unwrap())).collect();
        let has_answer: Vec<bool> = keys.iter().map(Option::is_some).collect();
        let key = |place: usize| keys[place].as_ref().unwrap();
        let counted = AnswerTally::of(&has_answer, |one, other| agrees(&kind, key(one), key(other)));
        let most = (0..3).map(|answer| answers.iter().filter(|other| **other == Some(answer)).count()).max().unwrap();
        prop_assert_eq!(counted.most(), most);
        prop_assert_eq!(consensus(most, answers.len()), 3 * most > 2 * answers.len());
        prop_assert_eq!(consensus(most, answers.len()), most >= quorum(answers.len()));
    }

    #[test]
    fn layers_sum_to_one_and_every_share_is_that_of_the_definition((members, rounds) in rounds()) {
        let (layers, supporters) = layers(members, &rounds);
        let importance = importance(&layers, &supporters).unwrap();
        for (layer, shares) in defined(&layers, &supporters).into_iter().enumerate() {
            let nothing = (BigUint::ZERO, BigUint::from(1_u32));
            let whole = shares.values().fold(nothing.clone(), |whole, share| sum(&whole, share));
            prop_assert_eq!(written(&whole), "1");
            for member in 0..members {
                let share = written(shares.get(&member).unwrap_or(&nothing));
                prop_assert_eq!(importance.share(layer, member).to_string(), share, "{} in {}", member, layer);
            }
        }
    }

    #[test]
    fn other_names_permute_importance((members, rounds) in rounds(), shift in 0..MEMBERS_MAX) {
        let renamed = |member: usize| (member + shift) % members;
        let original = |member: usize| (member + members - shift % members) % members;
        let (mut moved, mut supporters) = layers(members, &rounds);
        supporters.iter_mut().for_each(|member| *member = renamed(*member));
        for node in moved.iter_mut().flat_map(|layer| &mut layer.nodes) {
            node.member = renamed(node.member);
            node.own = node.own.map(renamed);
            node.shown.iter_mut().for_each(|shown| shown.member = renamed(shown.member));
        }
        let (before, after) = (of(members, &rounds), importance(&moved, &supporters).unwrap());
        for member in 0..members {
            prop_assert_eq!(after.total(0..4, member).to_string(), before.total(0..4, original(member)).to_string());
        }
    }

    #[test]
    fn no_rating_moves_its_authors_own_share_one_layer_back(
        (members, rounds) in rounds(),
        author in 0..MEMBERS_MAX,
        ratings in vec(1..=5_u32, MEMBERS_MAX),
    ) {
        let (author, mut changed) = (author % members, rounds.clone());
        let last = changed.len() - 1;
        changed[last].ratings[author] = ratings;
        let (before, after) = (of(members, &rounds), of(members, &changed));
        let layer = last.saturating_sub(1);
        prop_assert_eq!(before.share(layer, author).to_string(), after.share(layer, author).to_string());
    }
}
