//! The parts of the state that are one of several things, each behind a byte that says which.

use schemas::ids::AttrName;
use schemas::payload::{AttrValue, Terms};
use schemas::{DeliveryId, Lane, NegotiationId, RegisterKey};

use super::codec::{Fault, Reader, Stored, Writer};
use crate::acceptance::gate::GateFault;
use crate::alternating_offers::Bargain;
use crate::contract_net::ContractNet;
use crate::lane::table::TableEntry;
use crate::negotiation::Negotiation;
use crate::negotiation::party::FollowUp;
use crate::negotiation::tombstone::Tombstone;

impl Stored for TableEntry {
    fn write(&self, out: &mut Writer) {
        out.numbered.begin_negotiation();
        match self {
            // Its timer follows from it.
            Self::Open(Negotiation::ContractNet(negotiation), _) => {
                out.byte(0);
                negotiation.write(out);
            }
            Self::Open(Negotiation::Bargain(bargain), _) => {
                out.byte(2);
                bargain.write(out);
            }
            Self::Ended(tombstone) => {
                out.byte(if tombstone.bargain.is_some() { 3 } else { 1 });
                tombstone.write(out);
                if let Some(bargain) = &tombstone.bargain {
                    bargain.write(out);
                }
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        input.given.begin_negotiation();
        match input.byte()? {
            0 => {
                ContractNet::read(input).map(|negotiation| Self::open(Negotiation::ContractNet(Box::new(negotiation))))
            }
            1 => Tombstone::read(input).map(|tombstone| Self::Ended(Box::new(tombstone))),
            3 => {
                let (tombstone, bargain) = Stored::read(input)?;
                Ok(Self::Ended(Box::new(Tombstone { bargain: Some(bargain), ..tombstone })))
            }
            2 => Bargain::read(input).map(|bargain| Self::open(Negotiation::Bargain(Box::new(bargain)))),
            _ => Err(input.fault("the byte before is neither an open negotiation nor a tombstone")),
        }
    }
}

impl Stored for FollowUp {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::None => out.byte(0),
            Self::Late => out.byte(1),
            Self::Policy(fault) => {
                out.byte(2);
                fault.write(out);
            }
            Self::NotUnderstood(reason, expected) => {
                out.byte(3);
                reason.write(out);
                expected.write(out);
            }
            Self::Closed => out.byte(4),
            Self::Revoked(award_no) => {
                out.byte(5);
                award_no.write(out);
            }
            Self::Pointed(pointed) => {
                out.byte(6);
                pointed.write(out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match input.byte()? {
            0 => Self::None,
            1 => Self::Late,
            2 => Self::Policy(Stored::read(input)?),
            3 => Self::NotUnderstood(Stored::read(input)?, Stored::read(input)?),
            4 => Self::Closed,
            5 => Self::Revoked(Stored::read(input)?),
            6 => Self::Pointed(Stored::read(input)?),
            _ => return Err(input.fault("the byte before is no Reply")),
        })
    }
}

impl Stored for GateFault {
    fn write(&self, out: &mut Writer) {
        let (word, gate) = match *self {
            Self::Min(gate) => (0, gate),
            Self::Max(gate) => (1, gate),
            Self::Enum(gate) => (2, gate),
            Self::Required(gate) => (3, gate),
            Self::Currency => (4, 0),
            Self::Validity => (5, 0),
        };
        out.byte(word);
        gate.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let (word, gate) = (input.byte()?, u16::read(input)?);
        Ok(match word {
            0 => Self::Min(gate),
            1 => Self::Max(gate),
            2 => Self::Enum(gate),
            3 => Self::Required(gate),
            4 => Self::Currency,
            5 => Self::Validity,
            _ => return Err(input.fault("the bytes before are no GateFault")),
        })
    }
}

impl Stored for RegisterKey {
    fn write(&self, out: &mut Writer) {
        self.negotiation().write(out);
        match self {
            Self::Award(_, lot, award_no) => {
                out.byte(0);
                lot.write(out);
                award_no.write(out);
            }
            Self::AwardEnd(_, lot, award_no) => {
                out.byte(1);
                lot.write(out);
                award_no.write(out);
            }
            Self::Closed(_) => out.byte(2),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let negotiation = NegotiationId::read(input)?;
        Ok(match input.byte()? {
            0 => Self::Award(negotiation, Stored::read(input)?, Stored::read(input)?),
            1 => Self::AwardEnd(negotiation, Stored::read(input)?, Stored::read(input)?),
            2 => Self::Closed(negotiation),
            _ => return Err(input.fault("the byte before is no RegisterKey")),
        })
    }
}

impl Stored for DeliveryId {
    fn write(&self, out: &mut Writer) {
        out.raw(&self.to_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let bytes = input.raw::<16>()?;
        Ok(Self::new(Lane(bytes[0]), bytes))
    }
}

impl Stored for Terms {
    fn write(&self, out: &mut Writer) {
        out.length(self.len());
        for (name, value) in self {
            name.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        let count = input.count()?;
        (0..count).map(|_| <(AttrName, AttrValue)>::read(input)).collect()
    }
}

impl Stored for AttrValue {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Int(value) => {
                out.byte(0);
                value.write(out);
            }
            Self::Text(text) => {
                out.byte(1);
                out.text(text);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Fault> {
        match input.byte()? {
            0 => Stored::read(input).map(Self::Int),
            1 => Stored::read(input).map(Self::Text),
            _ => Err(input.fault("the byte before is no AttrValue")),
        }
    }
}
