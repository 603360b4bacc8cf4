//! Strategies by name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{BargainStrategy, Micro, RandomOffers, TimeDependent, TitForTat};
use crate::bargain::utility::Preferences;

/// A strategy that needs preferences and a seed only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
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
#[error("there is no strategy `{0}`; there are {list}", list = StrategyKind::names())]
pub struct StrategyKindError(pub String);

impl StrategyKind {
    /// Every one.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// All names, separated by commas.
    fn names() -> String {
        Self::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
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
        Self::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or_else(|| StrategyKindError(text.to_owned()))
    }
}
