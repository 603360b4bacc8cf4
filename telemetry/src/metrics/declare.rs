//! Declares metrics: one list gives the struct, the registration, every series from the start, and the help text.
//!
//! ```
//! #[derive(Debug, Clone, Copy, PartialEq, strum::IntoStaticStr, strum::VariantArray)]
//! #[strum(serialize_all = "snake_case")]
//! enum Ending { Done, Lost }
//!
//! telemetry::metrics! {
//!     /// What became of parcels.
//!     struct ParcelMetrics {
//!         /// Parcels that are on their way.
//!         open: Gauge = "parcels_open";
//!         /// Parcels that arrived or not.
//!         ended: Counter[result: Ending] = "parcels_ended_total";
//!         /// Weight of parcels.
//!         weight: Histogram(&[1.0, 10.0]) = "parcel_weight_kilograms";
//!     }
//! }
//!
//! let registry = prometheus::Registry::new();
//! let metrics = ParcelMetrics::try_new(&registry)?;
//! metrics.ended.of(Ending::Lost).inc();
//! # Ok::<_, prometheus::Error>(())
//! ```
//!
//! The comment of a field is the help text; a field is as visible as the struct, and
//! private in one that is `pub`. Kinds are `Counter`, `Gauge`, `Ratio` (a gauge of what is no whole number) and
//! `Histogram(BUCKETS)`. In brackets stand the labels:
//!
//! | labels | type of the field | series from the start |
//! |---|---|---|
//! | none | the metric itself | one |
//! | `[a: A, b: B]` | [`Family`] | every combination; `A` is an enum with [`VariantArray`] |
//! | `[a: A = LIST, b: B]` | [`Family`] | the same, of `A` those in `LIST` |
//! | `[a: A, b: B; ROWS]` | [`Family`] | the combinations in `ROWS` |
//! | `[a, b; open]` | the metric's `…Vec` | none: values are not from a closed list |
//!
//! What lists and rows depend on is given to `try_new`, and declared behind the name: `struct RunMetrics(kind: Kind) { … }`.

use std::fmt::Debug;

use prometheus::core::Collector;
pub use prometheus::{Error, Gauge, Histogram, IntCounter, IntGauge, Registry};
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};
pub use strum::VariantArray;

/// A kind of metric, as [`metrics!`](crate::metrics!) makes it.
pub trait Metric: Clone + Collector + 'static {
    /// The same by labels.
    type Labelled: Clone + Collector + 'static;

    /// Makes it by labels; none of its series is there yet.
    ///
    /// # Errors
    /// A name that is none.
    fn labelled(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Result<Self::Labelled, Error>;

    /// The series with these values.
    fn series(labelled: &Self::Labelled, values: &[&str]) -> Self;
}

macro_rules! kinds {
    ($($metric:ident, $labelled:ident, |$name:ident, $help:ident, $buckets:pat_param| $options:expr;)*) => {$(
        impl Metric for $metric {
            type Labelled = $labelled;

            fn labelled($name: &str, $help: &str, labels: &[&str], $buckets: &[f64]) -> Result<$labelled, Error> {
                $labelled::new($options, labels)
            }

            fn series(labelled: &$labelled, values: &[&str]) -> Self {
                labelled.with_label_values(values)
            }
        }
    )*};
}

kinds! {
    IntCounter, IntCounterVec, |name, help, _| Opts::new(name, help);
    IntGauge, IntGaugeVec, |name, help, _| Opts::new(name, help);
    Gauge, GaugeVec, |name, help, _| Opts::new(name, help);
    Histogram, HistogramVec, |name, help, buckets| HistogramOpts::new(name, help).buckets(buckets.to_vec());
}

/// One value of a label that has a closed list of them.
pub trait LabelValue: Copy + PartialEq + Debug + Into<&'static str> {}

impl<T: Copy + PartialEq + Debug + Into<&'static str>> LabelValue for T {}

/// Values of every label of a series: a tuple.
pub trait Values: Copy + PartialEq + Debug {
    /// The lists from which each value is.
    type Lists: Clone + Debug;

    /// Every combination, the last label changing first.
    fn product(lists: &Self::Lists) -> Vec<Self>;

    /// Where [`Self::product`] has this combination.
    fn place(self, lists: &Self::Lists) -> Option<usize>;

    /// The values as label texts, in the order of the labels.
    fn texts(self) -> Vec<&'static str>;
}

fn place<T: PartialEq>(value: &T, list: &[T]) -> Option<usize> {
    list.iter().position(|known| known == value)
}

impl<A: LabelValue> Values for (A,) {
    type Lists = (Vec<A>,);

    fn product((list,): &Self::Lists) -> Vec<Self> {
        list.iter().map(|a| (*a,)).collect()
    }

    fn place(self, (list,): &Self::Lists) -> Option<usize> {
        place(&self.0, list)
    }

    fn texts(self) -> Vec<&'static str> {
        vec![self.0.into()]
    }
}

impl<A: LabelValue, B: LabelValue> Values for (A, B) {
    type Lists = (Vec<A>, Vec<B>);

    fn product((first, second): &Self::Lists) -> Vec<Self> {
        first.iter().flat_map(|a| second.iter().map(|b| (*a, *b))).collect()
    }

    fn place(self, (first, second): &Self::Lists) -> Option<usize> {
        Some(place(&self.0, first)? * second.len() + place(&self.1, second)?)
    }

    fn texts(self) -> Vec<&'static str> {
        vec![self.0.into(), self.1.into()]
    }
}

impl<A: LabelValue, B: LabelValue, C: LabelValue> Values for (A, B, C) {
    type Lists = (Vec<A>, Vec<B>, Vec<C>);

    fn product((first, second, third): &Self::Lists) -> Vec<Self> {
        let after = |a: A| second.iter().flat_map(move |b| third.iter().map(move |c| (a, *b, *c)));
        first.iter().flat_map(|a| after(*a)).collect()
    }

    fn place(self, (first, second, third): &Self::Lists) -> Option<usize> {
        let rows = place(&self.0, first)? * second.len() + place(&self.1, second)?;
        Some(rows * third.len() + place(&self.2, third)?)
    }

    fn texts(self) -> Vec<&'static str> {
        vec![self.0.into(), self.1.into(), self.2.into()]
    }
}

/// The combinations of values a family has.
#[derive(Debug, Clone)]
enum Rows<V: Values> {
    /// Every one of these lists.
    Product(V::Lists),
    /// These.
    Listed(Vec<V>),
}

/// The series of one metric with labels, each of them there from the start and found without a lock.
#[derive(Debug, Clone)]
pub struct Family<M, V: Values> {
    rows: Rows<V>,
    series: Vec<M>,
    /// Takes what has no series. Nobody reads it.
    unlisted: M,
}

impl<M: Metric, V: Values> Family<M, V> {
    /// Registers every combination of the lists.
    ///
    /// # Errors
    /// [`Error::AlreadyReg`], or a name that is none.
    pub fn product(make: &Declared<'_>, lists: V::Lists) -> Result<Self, Error> {
        let all = V::product(&lists);
        Self::register(make, Rows::Product(lists), &all)
    }

    /// Registers these combinations; others count nowhere.
    ///
    /// # Errors
    /// [`Error::AlreadyReg`], or a name that is none.
    pub fn listed(make: &Declared<'_>, rows: Vec<V>) -> Result<Self, Error> {
        Self::register(make, Rows::Listed(rows.clone()), &rows)
    }

    fn register(make: &Declared<'_>, rows: Rows<V>, all: &[V]) -> Result<Self, Error> {
        let labelled = make.labelled::<M>()?;
        let series = all.iter().map(|values| M::series(&labelled, &values.texts())).collect();
        let unlisted = M::series(&M::labelled(make.name, make.help, &[], make.buckets)?, &[]);
        Ok(Self { rows, series, unlisted })
    }

    /// Every series, in the order of its rows.
    pub fn iter(&self) -> std::slice::Iter<'_, M> {
        self.series.iter()
    }

    fn at(&self, values: V) -> &M {
        let place = match &self.rows {
            Rows::Product(lists) => values.place(lists),
            Rows::Listed(rows) => place(&values, rows),
        };
        place.and_then(|place| self.series.get(place)).unwrap_or(&self.unlisted)
    }
}

impl<M: Metric, A: LabelValue> Family<M, (A,)> {
    /// The series with this value.
    pub fn of(&self, a: A) -> &M {
        self.at((a,))
    }
}

impl<M: Metric, A: LabelValue, B: LabelValue> Family<M, (A, B)> {
    /// The series with these values.
    pub fn of(&self, a: A, b: B) -> &M {
        self.at((a, b))
    }
}

impl<M: Metric, A: LabelValue, B: LabelValue, C: LabelValue> Family<M, (A, B, C)> {
    /// The series with these values.
    pub fn of(&self, a: A, b: B, c: C) -> &M {
        self.at((a, b, c))
    }
}

/// A metric that is about to be registered.
#[derive(Debug, Clone, Copy)]
pub struct Declared<'a> {
    /// Where.
    pub registry: &'a Registry,
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub help: &'a str,
    /// Names of its labels.
    pub labels: &'a [&'a str],
    /// Bounds of a histogram; none otherwise.
    pub buckets: &'a [f64],
}

impl Declared<'_> {
    /// Registers it by labels.
    ///
    /// # Errors
    /// [`Error::AlreadyReg`], or a name that is none.
    pub fn labelled<M: Metric>(&self) -> Result<M::Labelled, Error> {
        let labelled = M::labelled(self.name, self.help, self.labels, self.buckets)?;
        self.registry.register(Box::new(labelled.clone()))?;
        Ok(labelled)
    }

    /// Registers it without labels.
    ///
    /// # Errors
    /// [`Error::AlreadyReg`], or a name that is none.
    pub fn single<M: Metric>(&self) -> Result<M, Error> {
        Ok(M::series(&self.labelled::<M>()?, &[]))
    }
}

/// Declares metrics; see [the module](crate::metrics::declare).
#[macro_export]
macro_rules! metrics {
    // What is public to other crates keeps its fields to itself.
    ($(#[$meta:meta])* pub struct $($declared:tt)+) => {
        $crate::metrics!(@declare [pub,] [,] $(#[$meta])* struct $($declared)+);
    };
    ($(#[$meta:meta])* $vis:vis struct $($declared:tt)+) => {
        $crate::metrics!(@declare [$vis,] [$vis,] $(#[$meta])* struct $($declared)+);
    };

    (@declare [$vis:vis,] [$field_vis:vis,] $(#[$meta:meta])* struct $Name:ident $(($($given:ident: $Given:ty),+))? {
        $($(#[doc = $help:literal])+ $field:ident: $Kind:ident $(($buckets:expr))? $([$($labels:tt)+])? = $name:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $Name {
            $($(#[doc = $help])+ $field_vis $field: $crate::metrics!(@type $Kind $([$($labels)+])?),)+
        }

        impl $Name {
            /// Registers them, every series at 0.
            ///
            /// # Errors
            /// [`prometheus::Error::AlreadyReg`] when the registry holds one of them already.
            $vis fn try_new(
                registry: &$crate::metrics::declare::Registry $($(, $given: $Given)+)?
            ) -> Result<Self, $crate::metrics::declare::Error> {
                Ok(Self {$(
                    $field: {
                        let declared = $crate::metrics::declare::Declared {
                            registry,
                            name: $name,
                            help: concat!($($help),+).trim_ascii_start(),
                            labels: $crate::metrics!(@names $($($labels)+)?),
                            buckets: $crate::metrics!(@buckets $($buckets)?),
                        };
                        $crate::metrics!(@make $Kind declared $($($labels)+)?)
                    },
                )+})
            }
        }
    };

    (@metric Counter) => { $crate::metrics::declare::IntCounter };
    (@metric Gauge) => { $crate::metrics::declare::IntGauge };
    (@metric Ratio) => { $crate::metrics::declare::Gauge };
    (@metric Histogram) => { $crate::metrics::declare::Histogram };

    (@type $Kind:ident) => { $crate::metrics!(@metric $Kind) };
    (@type $Kind:ident [$($label:ident),+; open]) => {
        <$crate::metrics!(@metric $Kind) as $crate::metrics::declare::Metric>::Labelled
    };
    (@type $Kind:ident [$($label:ident: $Value:ty $(= $list:expr)?),+ $(; $rows:expr)?]) => {
        $crate::metrics::declare::Family<$crate::metrics!(@metric $Kind), ($($Value,)+)>
    };

    (@names) => { &[] };
    (@names $($label:ident),+; open) => { &[$(stringify!($label)),+] };
    (@names $($label:ident: $Value:ty $(= $list:expr)?),+ $(; $rows:expr)?) => { &[$(stringify!($label)),+] };

    (@buckets) => { &[] };
    (@buckets $buckets:expr) => { &$buckets[..] };

    (@make $Kind:ident $declared:ident) => { $declared.single::<$crate::metrics!(@metric $Kind)>()? };
    (@make $Kind:ident $declared:ident $($label:ident),+; open) => {
        $declared.labelled::<$crate::metrics!(@metric $Kind)>()?
    };
    (@make $Kind:ident $declared:ident $($label:ident: $Value:ty),+; $rows:expr) => {
        $crate::metrics::declare::Family::listed(&$declared, $rows.to_vec())?
    };
    (@make $Kind:ident $declared:ident $($label:ident: $Value:ty $(= $list:expr)?),+) => {
        $crate::metrics::declare::Family::product(&$declared, ($($crate::metrics!(@list $Value $(= $list)?),)+))?
    };

    (@list $Value:ty) => { <$Value as $crate::metrics::declare::VariantArray>::VARIANTS.to_vec() };
    (@list $Value:ty = $list:expr) => { $list.to_vec() };
}
