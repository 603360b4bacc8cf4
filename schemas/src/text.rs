//! Types that are written as one text: read and written without an intermediate `String`.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserializer;
use serde::de::{Error, Visitor};

struct TextVisitor<T, E, F>(F, PhantomData<fn() -> Result<T, E>>);

impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for TextVisitor<T, E, F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<D: Error>(self, text: &str) -> Result<T, D> {
        (self.0)(text).map_err(D::custom)
    }
}

/// Reads a text and parses it.
pub(crate) fn read<'de, D, T, E>(deserializer: D, parse: impl FnOnce(&str) -> Result<T, E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    E: fmt::Display,
{
    deserializer.deserialize_str(TextVisitor(parse, PhantomData))
}

/// Implements `Serialize` through a method that gives the text, and `Deserialize` through a constructor that takes it.
macro_rules! text {
    ($ty:ident, $write:expr, $parse:expr) => {
        impl serde::Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                #[allow(clippy::redundant_closure_call, reason = "the macro's argument is the closure")]
                ($write)(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::read(deserializer, $parse)
            }
        }
    };
}

pub(crate) use text;
