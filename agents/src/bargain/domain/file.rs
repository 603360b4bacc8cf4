//! The file as it is written: every member typed, none unknown.

use schemas::AgentId;
use schemas::bargain::{self, Concession, Issue, IssueValues, IssueWorth, PPM, Predicate, Worth};
use schemas::ids::AttrName;
use schemas::payload::AttrValue;
use schemas::payload::is_integer;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{BargainRules, Domain, PartyProfile};
use crate::bargain::DocumentFault;
use crate::bargain::space::Space;
use crate::bargain::utility::{Contribution, Utility, ValueWorth};
use crate::fault::read_json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainFile {
    name: String,
    description: Option<String>,
    issues: Vec<IssueFile>,
    parties: Vec<PartyFile>,
    #[serde(default)]
    rules: BargainRules,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IssueFile {
    name: AttrName,
    values: Option<Vec<AttrValue>>,
    min: Option<i64>,
    max: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartyFile {
    name: AgentId,
    utility: UtilityFile,
    reservation: Option<Box<RawValue>>,
    #[serde(default)]
    limits: Vec<Predicate>,
    policy: Option<String>,
    concession: Option<Concession>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum UtilityFile {
    Linear(Vec<WorthFile<u32>>),
    Table(Vec<u32>),
    LinearReal(Vec<WorthFile<f64>>),
    TableReal(Vec<f64>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorthFile<T> {
    issue: AttrName,
    weight: T,
    worth: Option<Vec<T>>,
    at_min: Option<T>,
    at_max: Option<T>,
}

pub(super) fn parse(json: &str) -> Result<Domain, DocumentFault> {
    let file: DomainFile = read_json(json)?;
    let issues = each("/issues", file.issues, issue)?;
    let parties = each("/parties", file.parties, party)?;
    let space = Space::try_new(issues)?;
    let domain = Domain { name: file.name, description: file.description, space, parties, rules: file.rules };
    domain.check()?;
    Ok(domain)
}

fn issue(file: IssueFile) -> Result<Issue, DocumentFault> {
    let values = match (file.values, file.min, file.max) {
        (Some(values), None, None) => IssueValues::Discrete { values },
        (None, Some(min), Some(max)) => IssueValues::Range { min, max },
        _ => return Err(DocumentFault::at("", "an issue has either `values`, or `min` and `max`")),
    };
    Ok(Issue { name: file.name, values })
}

fn party(file: PartyFile) -> Result<PartyProfile, DocumentFault> {
    let PartyFile { name, utility, reservation, limits, policy, concession } = file;
    let (utility, scale) = match utility {
        UtilityFile::Linear(worths) => {
            let ends = |at_min, at_max| Worth::Linear { at_min, at_max };
            let worths = each("/utility/linear", worths, |one| {
                let (issue, weight, worth) = one.written(|worth| Worth::Listed { worth }, ends)?;
                Ok(IssueWorth { issue, weight, worth })
            })?;
            (Utility::Ppm(bargain::Utility::Linear(worths)), f64::from(PPM))
        }
        UtilityFile::Table(table) => (Utility::Ppm(bargain::Utility::Table(table)), f64::from(PPM)),
        UtilityFile::LinearReal(worths) => {
            let ends = |at_min, at_max| ValueWorth::Linear { at_min, at_max };
            let worths = each("/utility/linear_real", worths, |one| {
                let (issue, weight, worth) = one.written(ValueWorth::Listed, ends)?;
                Ok(Contribution { issue, weight, worth })
            })?;
            (Utility::Linear(worths), 1.0)
        }
        UtilityFile::TableReal(table) => (Utility::Table(table), 1.0),
    };
    let reservation = reservation.as_deref().map_or("0", RawValue::get);
    // By its digits: the double beside `160000.00000000000000001` is an integer.
    if scale > 1.0 && !is_integer(reservation) {
        return Err(DocumentFault::at(
            "/reservation",
            "in parts per million, like the utility: an integer from 0 to 1000000",
        ));
    }
    let reservation: f64 =
        serde_json::from_str(reservation).map_err(|_| DocumentFault::at("/reservation", "a number"))?;
    Ok(PartyProfile { name, utility, reservation: reservation / scale, limits, policy, concession })
}

impl<T> WorthFile<T> {
    /// Issue and weight, and the worth of its values: of those listed, or between two ends.
    fn written<W>(
        self,
        listed: impl Fn(Vec<T>) -> W,
        ends: impl Fn(T, T) -> W,
    ) -> Result<(AttrName, T, W), DocumentFault> {
        let worth = match (self.worth, self.at_min, self.at_max) {
            (Some(worth), None, None) => listed(worth),
            (None, Some(at_min), Some(at_max)) => ends(at_min, at_max),
            _ => return Err(DocumentFault::at("", "either `worth`, or `at_min` and `at_max`")),
        };
        Ok((self.issue, self.weight, worth))
    }
}

fn each<F, T>(
    pointer: &str,
    files: Vec<F>,
    read: impl Fn(F) -> Result<T, DocumentFault>,
) -> Result<Vec<T>, DocumentFault> {
    let read = |(index, file)| read(file).map_err(|fault: DocumentFault| fault.under(&format!("{pointer}/{index}")));
    files.into_iter().enumerate().map(read).collect()
}
