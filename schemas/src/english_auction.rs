//! What the English auction adds to the contract (docs/spec/english-auction.md): its rules, and how it is told to stand.
//! Prices are integers in micro-units of the call's currency.

use serde::{Deserialize, Serialize};

use crate::terms::INTEGER_MAX;
use crate::time::WireTime;

crate::json_texts!(AuctionRules);

/// Most bidders of one auction: every bid is told to all of them.
pub const BIDDERS_MAX: usize = 256;
/// Largest step, in thousandths of the standing price.
pub const STEP_PERMILLE_MAX: u32 = 1000;

/// Which way the standing price moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceDirection {
    /// Up: the initiator sells.
    Ascending,
    /// Down: the initiator buys.
    Descending,
}

/// By how much a bid must beat the standing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Micro-units, from 1.
    #[serde(rename = "step")]
    Fixed(i64),
    /// Thousandths of the standing price, rounded up, 1 to [`STEP_PERMILLE_MAX`]; at least one micro-unit.
    #[serde(rename = "step_permille")]
    Permille(u32),
}

/// Moves the end of bidding, so that nobody gains by bidding at the last moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extension {
    /// A bid less than this before the end moves the end to this after the bid, in milliseconds.
    pub ms: u64,
    /// Bidding ends this long after the call at the latest, in milliseconds.
    pub latest_within_ms: u64,
}

/// The rules that bidders are told.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuctionRules {
    /// Which way the standing price moves.
    pub direction: PriceDirection,
    /// The first bid is at least this where prices rise, at most this where they fall; micro-units.
    pub start: i64,
    /// By how much a bid must beat the standing one.
    #[serde(flatten)]
    pub step: Step,
    /// Bidding ends when nobody has bid for so long after a bid, in milliseconds.
    pub quiet_ms: Option<u64>,
    /// Bids that move the end; absent: none does.
    pub extend: Option<Extension>,
}

/// The rules of an auction, in the call that opens it.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuctionSpec {
    /// What bidders are told.
    #[serde(flatten)]
    pub rules: AuctionRules,
    /// The least the initiator sells for, or the most it buys for; micro-units. Told to nobody.
    pub reserve: Option<i64>,
}

impl AuctionRules {
    /// The price that a bid must reach now: the lowest where prices rise, the highest where they fall. Absent where no price
    /// from 0 to [`INTEGER_MAX`] does.
    #[must_use]
    pub fn next_price(&self, standing: Option<i64>) -> Option<i64> {
        let next = match (standing.map(i128::from), self.direction) {
            (None, _) => i128::from(self.start),
            (Some(standing), PriceDirection::Ascending) => standing + self.step_from(standing),
            (Some(standing), PriceDirection::Descending) => standing - self.step_from(standing),
        };
        i64::try_from(next).ok().filter(|next| (0..=INTEGER_MAX).contains(next))
    }

    fn step_from(&self, standing: i128) -> i128 {
        let step = match self.step {
            Step::Fixed(step) => i128::from(step),
            Step::Permille(permille) => (standing * i128::from(permille) + 999).div_euclid(1000),
        };
        step.max(1)
    }

    /// Whether a price is at least as good, for the initiator, as a bound.
    #[must_use]
    pub const fn reaches(&self, price: i64, bound: i64) -> bool {
        match self.direction {
            PriceDirection::Ascending => price >= bound,
            PriceDirection::Descending => price <= bound,
        }
    }

    /// Whether a price is a bid that counts now.
    #[must_use]
    pub fn is_bid(&self, price: i64, standing: Option<i64>) -> bool {
        let is_price = (0..=INTEGER_MAX).contains(&price);
        is_price && self.next_price(standing).is_some_and(|next| self.reaches(price, next))
    }
}

/// An auction as bidders are called to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuctionCall {
    /// The rules.
    pub rules: AuctionRules,
    /// Bidding ends then at the latest.
    pub latest_by: WireTime,
}

/// How an auction stands after a bid. Told to the initiator and to everybody who has not left.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StandingBid {
    /// The bid, counted from 1: a higher number is later.
    pub bid_no: u32,
    /// The standing price, in micro-units.
    pub price: i64,
    /// Whether the bid is the recipient's own.
    pub leads: bool,
    /// Bidders that have not left.
    pub bidders: u32,
    /// The price that the next bid must reach; absent where none can.
    pub next_price: Option<i64>,
    /// Bidding ends then; a bid at exactly this time is on time.
    pub reply_by: WireTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(direction: PriceDirection, step: Step) -> AuctionRules {
        AuctionRules { direction, start: 1_000, step, quiet_ms: None, extend: None }
    }

    #[test]
    fn the_next_price_is_one_step_from_the_standing_one() {
        use PriceDirection::{Ascending, Descending};
        let cases = [
            (Ascending, Step::Fixed(50), None, Some(1_000)),
            (Ascending, Step::Fixed(50), Some(1_000), Some(1_050)),
            (Descending, Step::Fixed(50), None, Some(1_000)),
            (Descending, Step::Fixed(50), Some(1_000), Some(950)),
            (Descending, Step::Fixed(50), Some(50), Some(0)),
            (Descending, Step::Fixed(50), Some(49), None),
            (Ascending, Step::Permille(25), Some(1_001), Some(1_027)),
            (Descending, Step::Permille(25), Some(1_001), Some(975)),
            (Ascending, Step::Permille(1), Some(0), Some(1)),
            (Ascending, Step::Permille(1000), Some(INTEGER_MAX), None),
            (Ascending, Step::Fixed(1), Some(INTEGER_MAX), None),
            (Ascending, Step::Fixed(0), Some(7), Some(8)),
            (Descending, Step::Fixed(i64::MIN), Some(7), Some(6)),
        ];
        for (direction, step, standing, next) in cases {
            assert_eq!(rules(direction, step).next_price(standing), next, "{direction:?} {step:?} {standing:?}");
        }
    }

    #[test]
    fn a_bid_reaches_the_next_price_or_goes_beyond_it() {
        let rising = rules(PriceDirection::Ascending, Step::Fixed(50));
        assert!(rising.is_bid(1_050, Some(1_000)) && rising.is_bid(9_000, Some(1_000)));
        assert!(!rising.is_bid(1_049, Some(1_000)) && !rising.is_bid(INTEGER_MAX + 1, Some(1_000)));
        let falling = rules(PriceDirection::Descending, Step::Fixed(50));
        assert!(falling.is_bid(950, Some(1_000)) && falling.is_bid(0, Some(1_000)));
        assert!(!falling.is_bid(951, Some(1_000)) && !falling.is_bid(-1, Some(1_000)));
    }

    #[test]
    fn the_rules_that_are_told_have_no_reserve() {
        let written = r#"{"direction":"ascending","start":5,"step":2,"quiet_ms":100,"reserve":9}"#;
        let spec: AuctionSpec = serde_json::from_str(written).unwrap();
        assert_eq!(spec.reserve, Some(9));
        assert_eq!(serde_json::to_string(&spec).unwrap(), written);
        let told = serde_json::to_string(&spec.rules).unwrap();
        assert_eq!(told, r#"{"direction":"ascending","start":5,"step":2,"quiet_ms":100}"#);
        assert_eq!(serde_json::from_str::<AuctionSpec>(r#"{"direction":"ascending","start":5}"#).ok(), None);
    }
}
