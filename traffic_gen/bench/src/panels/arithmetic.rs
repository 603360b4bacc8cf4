//! What the result of a panel takes to compute: importance, and whether two texts are alike by BLEU.

use std::hint::black_box;
use std::time::Instant;

use policy_core::panel::bleu::TOKENS_MAX;
use policy_core::panel::importance::{Layer, LayerNode, Shown, importance};
use policy_core::panel::key::{AnswerKey, agrees, key};
use schemas::panel::{AnswerKind, BLEU_SEATS_MAX};

use crate::overhead::median;
use crate::rounds::{BenchError, stuck};

/// Ratings go from 1 to this.
const RATINGS: usize = 5;
/// Tokens of each text compared by BLEU.
const TOKENS: usize = 512;
/// Every so many tokens of one text the other has another word.
const CHANGED: usize = 64;

/// Microseconds to compute what each of `members` has contributed to a panel of so many rounds, in which everybody answered and
/// rated all others: every share and every sum, rounded. The median of `times`.
///
/// # Errors
/// [`BenchError::Stuck`] when there is no result.
pub fn importance_us(members: usize, rounds: usize, times: usize) -> Result<f64, BenchError> {
    let layers: Vec<Layer> = (0..rounds).map(|round| layer(members, round)).collect();
    let supporters: Vec<usize> = (0..2 * members / 3 + 1).collect();
    let compute = || {
        let result = importance(&layers, &supporters)?;
        let of = |member: usize| {
            let shares: Vec<u64> = (0..rounds).map(|round| result.share(round, member).e12()).collect();
            let total = result.total(0..rounds, member);
            (shares, total.e12(), total.scaled(members as u64, rounds as u64).ppm())
        };
        Some((0..members).map(of).collect::<Vec<_>>())
    };
    let sum: u64 = compute().into_iter().flatten().flat_map(|(shares, ..)| shares).sum();
    // Each of some thousand shares is rounded by half a unit at most.
    if sum.abs_diff(rounds as u64 * 1_000_000_000_000) > (members * rounds) as u64 {
        return Err(stuck(format!("the shares of {members} members sum to {sum}")));
    }
    Ok(median_us(times, || _ = black_box(compute())))
}

/// A round in which everybody answers; no two rate the others alike.
fn layer(members: usize, round: usize) -> Layer {
    let rating = |member: usize, other: usize| (member * member + other * (round + member + 1) + round) % RATINGS + 1;
    let node = |member: usize| {
        let others = (0..members).filter(|other| round > 0 && *other != member);
        let shown = |other| Shown { member: other, rating: rating(member, other) as u32 };
        LayerNode { member, own: (round > 0).then_some(member), shown: others.map(shown).collect() }
    };
    Layer { members, nodes: (0..members).map(node).collect() }
}

/// What a comparison by BLEU takes.
#[derive(Debug, Clone, Copy)]
pub struct BleuCost {
    /// Microseconds to count the n-grams of one text.
    pub key_us: f64,
    /// Microseconds to compare two whose n-grams are counted.
    pub pair_us: f64,
    /// Microseconds for the last answer of a full round of the longest texts, the first after a restart: the n-grams of all are
    /// counted, and its own compared with the others'.
    pub restarted_us: f64,
}

/// Compares two texts of 512 tokens that are hardly different. Medians of `times`.
///
/// # Errors
/// [`BenchError::Stuck`] when the texts are no answers, or are not alike.
pub fn bleu(times: usize) -> Result<BleuCost, BenchError> {
    let kind = AnswerKind::Bleu { at_least_permille: 900 };
    let text = |tokens: usize, other: &str| -> String {
        let word =
            |number: usize| if number % CHANGED == CHANGED - 1 { other.to_owned() } else { format!("{number:x}") };
        (0..tokens).map(word).collect::<Vec<_>>().join(" ")
    };
    let (one, other) = (text(TOKENS, "x"), text(TOKENS, "y"));
    let longest: Vec<String> = (0..BLEU_SEATS_MAX).map(|seat| text(TOKENS_MAX, &format!("s{seat}"))).collect();
    let read = |text: &str| key(&kind, text).map_err(stuck);
    let keys = (read(&one)?, read(&other)?);
    if !agrees(&kind, &keys.0, &keys.1) {
        return Err(stuck("texts that are hardly different are not alike"));
    }
    Ok(BleuCost {
        key_us: median_us(times, || _ = black_box(key(&kind, &one).is_ok())),
        pair_us: median_us(times, || _ = black_box(agrees(&kind, &keys.0, &keys.1))),
        restarted_us: median_us(times, || {
            let keys: Vec<_> = longest.iter().filter_map(|text| key(&kind, text).ok()).collect();
            let last = keys.last();
            let is_agreeing = |other: &&AnswerKey| last.is_some_and(|last| agrees(&kind, last, other));
            _ = black_box(keys.iter().rev().skip(1).filter(is_agreeing).count());
        }),
    })
}

fn median_us(times: usize, mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64() * 1e6
    };
    median(&(0..times).map(once).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn importance_is_computed_for_small_and_for_the_largest_panels() {
        assert!(importance_us(4, 3, 3).unwrap() > 0.0);
        assert!(importance_us(32, 8, 1).unwrap() > 0.0);
        let ratings = |member: usize| layer(32, 1).nodes[member].shown.iter().map(|one| one.rating).collect::<Vec<_>>();
        assert!((1..32).all(|member| ratings(member) != ratings(member - 1)), "no two rate alike");
    }

    #[test]
    fn texts_are_compared_that_are_alike_but_not_equal() {
        let cost = bleu(3).unwrap();
        assert!(cost.key_us > 0.0 && cost.pair_us > 0.0, "{cost:?}");
    }
}
