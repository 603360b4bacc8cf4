//! Strategies by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{BargainStrategy, Micro, RandomOffers, TimeDependent, TitForTat};
use crate::bargain::utility::Preferences;

/// A strategy that needs preferences and a seed only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StrategyKind {
    /// [`TimeDependent::boulware`].
    Boulware,
    /// [`TimeDependent::linear`].
    Linear,
    /// [`TimeDependent::conceder`].
    Conceder,
    /// [`TitForTat`].
    TitForTat,
    /// [`Micro`].
    Micro,
    /// [`RandomOffers`].
    Random,
}

/// A name that is no strategy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no strategy `{0}`; there are {list}", list = StrategyKind::ALL.map(StrategyKind::as_str).join(", "))]
pub struct StrategyKindError(pub String);

impl StrategyKind {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Boulware, Self::Linear, Self::Conceder, Self::TitForTat, Self::Micro, Self::Random];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Boulware => "boulware",
            Self::Linear => "linear",
            Self::Conceder => "conceder",
            Self::TitForTat => "tit-for-tat",
            Self::Micro => "micro",
            Self::Random => "random",
        }
    }

    /// The strategy for a party. The seed matters to those that draw.
    #[must_use]
    pub fn build(self, preferences: Arc<Preferences>, seed: u64) -> Box<dyn BargainStrategy> {
        match self {
            Self::Boulware => Box::new(TimeDependent::boulware(preferences)),
            Self::Linear => Box::new(TimeDependent::linear(preferences)),
            Self::Conceder => Box::new(TimeDependent::conceder(preferences)),
            Self::TitForTat => Box::new(TitForTat::new(preferences)),
            Self::Micro => Box::new(Micro::new(preferences, seed)),
            Self::Random => Box::new(RandomOffers::new(preferences, seed)),
        }
    }
}

impl fmt::Display for StrategyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for StrategyKind {
    type Err = StrategyKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| StrategyKindError(text.to_owned()))
    }
}
