//! What each member contributed, from the ratings of those that came after it (docs/spec/panel-answers.md#pa-14): exact
//! fractions with one denominator per layer, rounded where they are written.

use num_bigint::BigUint;
use num_integer::Integer;

use super::fraction::Fraction;

/// The members of one round of answers, or of reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layer {
    /// How many members it has, those without a reply included.
    pub members: usize,
    /// Those that replied, each once.
    pub nodes: Vec<LayerNode>,
}

/// A member that replied, and how it weighs those of the layer before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LayerNode {
    /// Its number in its layer, from 0.
    pub member: usize,
    /// Its own number in the layer before, if it replied there. What it contributes to itself is fixed.
    pub own: Option<usize>,
    /// The others it was shown. Nobody in the first layer.
    pub shown: Vec<Shown>,
}

/// One whom a member was shown, and how it rated it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Its number in the layer before.
    pub member: usize,
    /// The rating; equal ones where none was given. Ratings that are all 0 weigh like equal ones.
    pub rating: u32,
}

/// The importance of each member in each layer. Every layer sums to exactly 1.
#[derive(Debug, Clone)]
pub struct Importance {
    /// First layer first.
    layers: Vec<Shares>,
}

/// Numerators of one layer over a common denominator, which those of earlier layers are multiples of.
#[derive(Debug, Clone)]
struct Shares {
    numerators: Vec<BigUint>,
    denominator: BigUint,
}

/// Importance from the layers, the first one first, and the members of the last that support the result.
///
/// Nothing when there is no layer, nobody supports the result, a supporter or somebody shown did not reply, a member stands twice
/// where it stands once, or a member of a later layer was shown nobody.
#[must_use]
pub fn importance(layers: &[Layer], supporters: &[usize]) -> Option<Importance> {
    let (last, earlier) = layers.split_last()?;
    let mut numerators = vec![BigUint::ZERO; last.members];
    for supporter in supporters {
        let numerator = numerators.get_mut(*supporter).filter(|numerator| **numerator == BigUint::ZERO)?;
        *numerator = BigUint::from(1_u32);
    }
    if supporters.is_empty() || !all_within(&last.replied()?, supporters.iter().copied()) {
        return None;
    }
    let mut shares = vec![Shares { numerators, denominator: BigUint::from(supporters.len()) }];
    for (layer, before) in layers.iter().skip(1).zip(earlier).rev() {
        let before = shares.last()?.before(layer, &before.replied()?)?;
        shares.push(before);
    }
    shares.reverse();
    Some(Importance { layers: shares })
}

fn all_within(replied: &[bool], mut members: impl Iterator<Item = usize>) -> bool {
    members.all(|member| replied.get(member).is_some_and(|has_replied| *has_replied))
}

impl Layer {
    /// By member, whether it replied; nothing when one stands twice, or beyond the members.
    fn replied(&self) -> Option<Vec<bool>> {
        let mut replied = vec![false; self.members];
        for node in &self.nodes {
            let has_replied = replied.get_mut(node.member).filter(|has_replied| !**has_replied)?;
            *has_replied = true;
        }
        Some(replied)
    }
}

impl Importance {
    /// Layers.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// What a member has of a layer's 1; 0 where there is no such layer or member.
    #[must_use]
    pub fn share(&self, layer: usize, member: usize) -> Fraction {
        let share = |shares: &Shares| {
            shares.numerators.get(member).map(|numerator| Fraction::new(numerator.clone(), shares.denominator.clone()))
        };
        self.layers.get(layer).and_then(share).unwrap_or_else(Fraction::zero)
    }

    /// What a member has of the layers named, each once.
    #[must_use]
    pub fn total(&self, layers: impl IntoIterator<Item = usize>, member: usize) -> Fraction {
        // The first layer's denominator is a multiple of every other's.
        let Some(denominator) = self.layers.first().map(|shares| &shares.denominator) else { return Fraction::zero() };
        let numerator = |shares: &Shares| {
            shares.numerators.get(member).map(|numerator| numerator * (denominator / &shares.denominator))
        };
        let numerators = layers.into_iter().filter_map(|layer| self.layers.get(layer).and_then(numerator));
        Fraction::new(numerators.sum(), denominator.clone())
    }
}

impl Shares {
    /// The shares of the layer before, of which `replied` tells who replied.
    fn before(&self, layer: &Layer, replied: &[bool]) -> Option<Self> {
        let mut raters = Vec::with_capacity(layer.nodes.len());
        for node in &layer.nodes {
            raters.push((self.numerators.get(node.member)?, Weights::of(node, replied)?));
        }
        let held = |(numerator, _): &&(&BigUint, Weights)| **numerator != BigUint::ZERO;
        let multiple = raters.iter().filter(held).fold(BigUint::from(1_u32), |multiple, (_, weights)| {
            let common = (&multiple % weights.denominator).gcd(&BigUint::from(weights.denominator));
            multiple * (weights.denominator / common)
        });
        let mut numerators = vec![BigUint::ZERO; replied.len()];
        for (numerator, weights) in raters.iter().filter(held) {
            let part = *numerator * (&multiple / weights.denominator);
            for (member, weight) in &weights.numerators {
                *numerators.get_mut(*member)? += &part * *weight;
            }
        }
        Some(Self { numerators, denominator: &self.denominator * multiple })
    }
}

/// How a member divides what it has among those before it; the numerators sum to the denominator.
struct Weights {
    numerators: Vec<(usize, u64)>,
    denominator: u64,
}

impl Weights {
    /// Its own reply weighs 1/k of the k it was shown, its own included. The others have the rest in proportion to their ratings.
    fn of(node: &LayerNode, replied: &[bool]) -> Option<Self> {
        let all = node.own.into_iter().chain(node.shown.iter().map(|shown| shown.member));
        if !all_within(replied, all.clone()) {
            return None;
        }
        let mut met = vec![false; replied.len()];
        for member in all {
            let is_met = met.get_mut(member).filter(|is_met| !**is_met)?;
            *is_met = true;
        }
        let is_unrated = node.shown.iter().all(|shown| shown.rating == 0);
        let rating = |shown: &Shown| if is_unrated { 1 } else { u64::from(shown.rating) };
        let sum: u64 = node.shown.iter().map(rating).sum();
        let others = node.shown.len() as u64;
        let numerators: Vec<(usize, u64)> = match node.own {
            Some(own) if others == 0 => vec![(own, 1)],
            Some(own) => {
                let rated = node.shown.iter().map(|shown| (shown.member, others * rating(shown)));
                std::iter::once((own, sum)).chain(rated).collect()
            }
            None => node.shown.iter().map(|shown| (shown.member, rating(shown))).collect(),
        };
        let common = numerators.iter().fold(0, |common, (_, numerator)| numerator.gcd(&common));
        if common == 0 {
            return None;
        }
        let numerators: Vec<(usize, u64)> =
            numerators.into_iter().map(|(member, numerator)| (member, numerator / common)).collect();
        let denominator = numerators.iter().map(|(_, numerator)| numerator).sum();
        Some(Self { numerators, denominator })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_comes_out_exactly() {
        let layers = worked([[2, 5, 1], [5, 5, 1], [4, 1, 1]]);
        let importance = importance(&layers, &[0, 1, 2]).unwrap();
        assert_eq!(shares(&importance, 0), ["4/11", "3/16", "373/1056", "101/1056"]);
        assert_eq!(shares(&importance, 1), ["1/3", "1/3", "1/3", "0"]);
        let totals = [0, 1, 2, 3].map(|member| importance.total(0..2, member));
        assert_eq!(totals.each_ref().map(ToString::to_string), ["23/33", "25/48", "725/1056", "101/1056"]);
        assert_eq!(importance.share(0, 0).e12(), 363_636_363_636);
        assert_eq!((totals[0].e12(), totals[0].scaled(4, 2).ppm()), (696_969_696_970, 1_393_939));
        assert_eq!((importance.share(2, 0).e12(), importance.share(0, 4).e12()), (0, 0));
        assert_eq!(importance.layer_count(), 2);
    }

    #[test]
    fn equal_ratings_weigh_like_none_and_ones_own_reply_like_any_other() {
        let uniform = |rating| importance(&worked([[rating; 3]; 3]), &[0, 1, 2]).unwrap();
        for rating in [0, 1, 5, u32::MAX] {
            assert_eq!(shares(&uniform(rating), 0), ["1/4"; 4]);
        }
    }

    #[test]
    fn who_saw_only_its_own_reply_keeps_all_it_has() {
        let layers =
            [layer(2, vec![first(0), first(1)]), layer(2, vec![node(0, Some(0), &[]), node(1, None, &[(0, 3)])])];
        let importance = importance(&layers, &[1]).unwrap();
        assert_eq!(shares(&importance, 0), ["1", "0", "0", "0"]);
    }

    #[test]
    fn who_did_not_reply_before_divides_all_by_its_ratings() {
        let layers = [layer(3, vec![first(0), first(1)]), layer(3, vec![node(2, None, &[(0, 1), (1, 3)])])];
        let importance = importance(&layers, &[2]).unwrap();
        assert_eq!(shares(&importance, 0), ["1/4", "3/4", "0", "0"]);
    }

    #[test]
    fn layers_that_do_not_fit_have_no_importance() {
        let fit = || worked([[1; 3]; 3]);
        let faults: [fn(&mut [Layer; 2]); 7] = [
            |layers| layers[1].nodes[0].shown[0].member = 4,
            |layers| layers[1].nodes[0].shown[0].member = 0,
            |layers| layers[1].nodes[0].own = Some(9),
            |layers| layers[1].nodes[1].member = 0,
            |layers| layers[1].nodes[1].member = 7,
            |layers| layers[1].nodes[0] = first(0),
            |layers| drop(layers[0].nodes.remove(2)),
        ];
        assert!(importance(&fit(), &[0, 1]).is_some());
        for (number, fault) in faults.into_iter().enumerate() {
            let mut layers = fit();
            fault(&mut layers);
            assert!(importance(&layers, &[0, 1]).is_none(), "{number}");
        }
        for supporters in [&[][..], &[0, 0], &[3], &[4]] {
            assert!(importance(&fit(), supporters).is_none(), "{supporters:?}");
        }
        assert!(importance(&[], &[0]).is_none());
    }

    #[test]
    fn the_largest_panel_stays_below_2048_bits() {
        let mut layers = vec![layer(32, (0..32).map(first).collect())];
        // Different sums of ratings, as many as there are.
        let rating = |rater: u32, rated: u32| 1 + (rater * 7 + rated * rated + (rated > rater) as u32 * rater) % 5;
        for round in 1..8 {
            let shown = |rater: usize| {
                let rated = (0..32).filter(|rated| *rated != rater);
                rated.map(|rated| (rated, rating((rater + round) as u32, rated as u32))).collect::<Vec<_>>()
            };
            layers.push(layer(32, (0..32).map(|rater| node(rater, Some(rater), &shown(rater))).collect()));
        }
        let importance = importance(&layers, &(0..32).collect::<Vec<_>>()).unwrap();
        let bits = importance.layers.first().map(|shares| shares.denominator.bits()).unwrap();
        assert!((500..2048).contains(&bits), "{bits}");
    }

    fn worked(ratings: [[u32; 3]; 3]) -> [Layer; 2] {
        let shown = |rater: usize| (0..4).filter(move |rated| *rated != rater);
        let node = |(rater, ratings): (usize, [u32; 3])| {
            node(rater, Some(rater), &shown(rater).zip(ratings).collect::<Vec<_>>())
        };
        [layer(4, (0..4).map(first).collect()), layer(4, (0..3).zip(ratings).map(node).collect())]
    }

    fn layer(members: usize, nodes: Vec<LayerNode>) -> Layer {
        Layer { members, nodes }
    }

    fn first(member: usize) -> LayerNode {
        node(member, None, &[])
    }

    fn node(member: usize, own: Option<usize>, shown: &[(usize, u32)]) -> LayerNode {
        let shown = shown.iter().map(|(member, rating)| Shown { member: *member, rating: *rating }).collect();
        LayerNode { member, own, shown }
    }

    /// What the first four members have of a layer's 1, as it is written.
    fn shares(importance: &Importance, layer: usize) -> Vec<String> {
        (0..4).map(|member| importance.share(layer, member).to_string()).collect()
    }
}
