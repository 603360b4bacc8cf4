//! Types that are written as one text: read and written without an intermediate `String`.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;

use data_encoding::HEXLOWER;
use serde::Deserializer;
use serde::de::{Error, Visitor};

/// Neither control nor format character, nor anything else that shows nothing or changes how its neighbours are shown.
#[must_use]
pub fn is_visible(character: char) -> bool {
    !character.is_control()
        && !matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}'
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{2800}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{16fe4}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
}

/// Whether the host of a URL is the machine that asks: no proxy that the environment names stands before it.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

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
/// Formats that nobody reads (snapshots) hold `$compact` in its place, where there is one.
macro_rules! text {
    ($ty:ident, $write:expr, $parse:expr $(, $compact:ty = $pack:expr, $unpack:expr)?) => {
        impl serde::Serialize for $ty {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $(if !serializer.is_human_readable() {
                    let compact: $compact = $pack(*self);
                    return compact.serialize(serializer);
                })?
                #[allow(clippy::redundant_closure_call, reason = "the macro's argument is the closure")]
                ($write)(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $ty {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $(if !deserializer.is_human_readable() {
                    return <$compact>::deserialize(deserializer).map($unpack);
                })?
                crate::text::read(deserializer, $parse)
            }
        }
    };
}

pub(crate) use text;

/// Implements `Display`: `shown!(Lane = |Self(lane)| "{lane}")`.
#[macro_export]
macro_rules! shown {
    ($ty:ident = |$value:pat_param| $($format:tt)+) => {
        impl std::fmt::Display for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $value = self;
                write!(f, $($format)+)
            }
        }
    };
}

/// Implements `Debug` as what is displayed, behind the name of the type.
#[macro_export]
macro_rules! debug_as_shown {
    ($ty:ident) => {
        impl std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($ty))
            }
        }
    };
}

/// Declares a closed set of words: each variant stands on the wire, in metrics and in what is shown in snake case.
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($variants:tt)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize, strum::IntoStaticStr, strum::VariantArray)]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        pub enum $name { $($variants)* }

        impl $name {
            /// Every word, in the order of declaration: `word as usize` is its place.
            pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

            /// The word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// The line above the PEM of a private key that signs records of awards, and no tokens. RFC 7468 lets any text stand there.
pub const RECORD_KEY_PURPOSE: &str = "Purpose: llmx records";

/// Bytes from lower-case hexadecimal digits of exactly their length; nothing from any other text.
#[must_use]
pub fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (text.len() == 2 * N && HEXLOWER.decode_mut(text.as_bytes(), &mut bytes).is_ok()).then_some(bytes)
}

/// A document as JSON text inside of a format that does not describe itself: `#[serde(with = "schemas::text::json")]`.
/// Tagged and untagged enums, and members that may be missing, can be read from JSON only.
pub mod json {
    use serde::ser::Error as _;
    use serde::{Deserializer, Serializer};

    /// Declares which types of this crate such documents are, and compiles here what reads and writes them: a generic function
    /// would be compiled again by every crate that keeps one.
    #[macro_export]
    macro_rules! json_texts {
        ($($document:ty),+) => {$(
            impl $crate::text::json::JsonText for $document {
                fn encode(&self) -> serde_json::Result<String> {
                    serde_json::to_string(self)
                }

                fn decode(text: &str) -> serde_json::Result<Self> {
                    serde_json::from_str(text)
                }
            }
        )+};
    }

    /// A document that can stand as JSON text.
    pub trait JsonText: Sized {
        /// Writes it.
        ///
        /// # Errors
        /// The encoding error: that of a map whose keys are no texts.
        fn encode(&self) -> serde_json::Result<String>;

        /// Reads it.
        ///
        /// # Errors
        /// The decoding error.
        fn decode(text: &str) -> serde_json::Result<Self>;
    }

    /// Writes the document. Equal documents give equal texts: members stand in the order of their declaration.
    ///
    /// # Errors
    /// Those of the serializer, and of a map whose keys are no texts.
    pub fn serialize<T: JsonText, S: Serializer>(document: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&document.encode().map_err(S::Error::custom)?)
    }

    /// Reads it again.
    ///
    /// # Errors
    /// Those of the deserializer, and of a text that is no such document.
    pub fn deserialize<'de, T: JsonText, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        super::read(deserializer, T::decode)
    }
}
