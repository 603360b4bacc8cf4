//! What a bargain is made of beside names and numbers: its documents (rules, mandates, conditions, agreements), each in canonical form.

use std::collections::{BTreeSet, VecDeque};

use schemas::bargain::{BargainSpec, Mandate, Predicate};
use schemas::delivery::Agreement;
use schemas::digest::canonical;
use schemas::policy::BargainRule;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Fault, Reader, Stored, Writer};
use crate::alternating_offers::pledge::{Pledge, Sealed};

macro_rules! documents {
    ($($type:ty),+ $(,)?) => {$(
        impl Stored for $type {
            fn write(&self, out: &mut Writer) {
                write_document(self, out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
                read_document(input)
            }
        }
    )+};
}

documents!(Agreement, BargainSpec, BargainRule, Mandate, Predicate);

fn write_document<T: Serialize>(document: &T, out: &mut Writer) {
    let document = canonical(document).expect("documents of a bargain are integers and texts");
    out.length(document.len());
    out.raw(&document);
}

fn read_document<T: DeserializeOwned>(input: &mut Reader<'_>) -> Result<T, Fault> {
    let document = input.text()?;
    serde_json::from_str(document).map_err(|_| input.fault("a document of a bargain cannot be read"))
}

impl Stored for Sealed<Pledge> {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Stored::read(input).map(Self)
    }
}

impl<T: Stored> Stored for VecDeque<T> {
    fn write(&self, out: &mut Writer) {
        out.length(self.len());
        for item in self {
            item.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Vec::read(input).map(Self::from)
    }
}

impl<T: Stored + Ord> Stored for BTreeSet<T> {
    fn write(&self, out: &mut Writer) {
        out.length(self.len());
        for item in self {
            item.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Vec::read(input).map(Self::from_iter)
    }
}
