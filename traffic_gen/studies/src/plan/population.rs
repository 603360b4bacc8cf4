//! Populations of a cell: so many of its contractors behave otherwise than the rest.

use std::collections::BTreeMap;

use agents::ContractorConfig;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::behaviour::{Behaviour, Misconduct};
use super::fault::FaultList;
use super::file::{ContractorFile, PopulationFile, read_text};

/// What the file of a model says, without its key.
pub type PopulationModel = agents::model::ModelAgentConfig;

/// What those are called that are in no population, where there are any.
pub const REST: &str = "rest";
/// Most populations of a grid: as many as a table of a report can show.
const POPULATIONS_MAX: usize = 16;

/// Contractors of a cell that behave alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PopulationSpec {
    /// Their name.
    pub name: String,
    /// How many.
    pub count: u32,
    /// How each behaves.
    pub contractor: ContractorConfig,
    /// What each sends besides.
    #[serde(default, skip_serializing_if = "Misconduct::is_none")]
    pub misconduct: Misconduct,
    /// What they add to their own cost, as a share of it.
    pub markup: f64,
    /// What they ask for their terms, instead of a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PopulationModel>,
}

/// A population of a grid, whatever its number of contractors.
struct Part {
    name: String,
    size: PartSize,
    behaviour: Behaviour,
    model: Option<PopulationModel>,
    /// What sets it apart from the rest, in words.
    words: String,
    place: std::ops::Range<usize>,
}

#[derive(Clone, Copy)]
enum PartSize {
    Count(u32),
    Share(f64),
}

/// The populations of a grid.
pub struct Populations {
    parts: Vec<Part>,
    rest: Behaviour,
}

impl Populations {
    /// Reads the populations of a grid; what they do not say is as in `rest`, which is everybody else. Every fault is noted.
    pub fn read(files: &[Spanned<PopulationFile>], rest: &ContractorFile, faults: &mut FaultList<'_>) -> Self {
        let behaviour = Behaviour::read(rest, faults);
        if let Some(beyond) = files.get(POPULATIONS_MAX) {
            let found = format!("there are {} populations", files.len());
            faults.add(&beyond.span(), found, format!("give {POPULATIONS_MAX} at most"));
        }
        let mut parts: Vec<Part> = Vec::new();
        for file in files.iter().take(POPULATIONS_MAX) {
            let (place, file) = (file.span(), file.get_ref());
            let name = file.name.get_ref();
            if name == REST || parts.iter().any(|part| part.name == *name) {
                let remedy = format!("give each its own name; `{REST}` are those in no population");
                faults.add(&file.name.span(), format!("there is a population `{name}` already"), remedy);
                continue;
            }
            let Some(size) = PartSize::read(file, &place, faults) else { continue };
            let (own, model, words) = match &file.model {
                Some(asked) => {
                    if let Some((_, given)) = file.contractor.first() {
                        let found = format!("{name} asks a model, and has a script");
                        faults.add(
                            &given,
                            found,
                            "give one of the two: what a model offers, and when, it decides itself",
                        );
                    }
                    let model = read_model(asked, faults);
                    let words = format!("model {}", asked.get_ref());
                    (Behaviour::read(&ContractorFile::default(), faults), model, words)
                }
                None => {
                    let own = Behaviour::read(&file.contractor.clone().over(rest.clone()), faults);
                    let words = own.beside(&behaviour);
                    (own, None, words)
                }
            };
            parts.push(Part { name: name.clone(), size, behaviour: own, model, words, place });
        }
        Self { parts, rest: behaviour }
    }

    /// How those behave that are in no population.
    pub const fn rest(&self) -> &Behaviour {
        &self.rest
    }

    /// The populations of a cell with so many contractors, without the rest. A population without contractors and
    /// populations of more than all are faults.
    pub fn of(&self, contractors: u32, faults: &mut FaultList<'_>) -> Vec<PopulationSpec> {
        let mut left = contractors;
        let mut specs = Vec::new();
        for Part { name, size, behaviour, model, place, .. } in &self.parts {
            let count = size.among(contractors);
            if count == 0 || count > left {
                let found =
                    format!("{name} would be {count} of {contractors} contractors, with {left} in no population");
                faults.add(
                    place,
                    found,
                    "give counts and shares that leave one contractor to each, and no more than all",
                );
                continue;
            }
            left -= count;
            let Behaviour { contractor, misconduct, markup, .. } = behaviour.clone();
            let model = model.clone();
            specs.push(PopulationSpec { name: name.clone(), count, contractor, misconduct, markup, model });
        }
        specs
    }

    /// What is true of every round of a cell with these populations and is no column of its own.
    pub fn labels(&self, specs: &[PopulationSpec]) -> BTreeMap<String, String> {
        let Behaviour { delay, cost, wrongs, .. } = &self.rest;
        let mut labels = BTreeMap::from([("delay_ms".to_owned(), delay.clone()), ("cost".to_owned(), cost.clone())]);
        if !wrongs.is_empty() {
            labels.insert("faults".to_owned(), wrongs.join(", "));
        }
        let words = |spec: &PopulationSpec| {
            let part = self.parts.iter().find(|part| part.name == spec.name);
            format!("{} {} ({})", spec.count, spec.name, part.map_or("", |part| &part.words))
        };
        if !specs.is_empty() {
            labels.insert("populations".to_owned(), specs.iter().map(words).collect::<Vec<_>>().join("; "));
        }
        labels
    }
}

impl PartSize {
    fn read(file: &PopulationFile, place: &std::ops::Range<usize>, faults: &mut FaultList<'_>) -> Option<Self> {
        match (&file.count, &file.share) {
            (Some(count), None) => {
                faults.number("count", count, 1..=u32::MAX, "give contractors, 1 at least").map(Self::Count)
            }
            (None, Some(share)) => {
                let is_share = *share.get_ref() > 0.0 && *share.get_ref() <= 1.0;
                faults.check("share", share, is_share, "give a share of the contractors, above 0, up to 1");
                is_share.then_some(Self::Share(*share.get_ref()))
            }
            (given, _) => {
                let found = if given.is_some() { "both count and share" } else { "neither count nor share" };
                let name = file.name.get_ref();
                faults.add(place, format!("the population {name} has {found}"), "give one of the two");
                None
            }
        }
    }

    fn among(self, contractors: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Share(share) => (f64::from(contractors) * share).round() as u32,
        }
    }
}

/// Reads the file of a model, which is asked nothing yet. Every fault of it, and a key that is not set, is noted.
fn read_model(file: &Spanned<String>, faults: &mut FaultList<'_>) -> Option<PopulationModel> {
    read_model_file(file.get_ref())
        .map_err(|fault| faults.add(&file.span(), format!("model {}: {fault}", file.get_ref()), "see docs/models.md"))
        .ok()
}

fn read_model_file(path: &str) -> Result<PopulationModel, String> {
    let model: PopulationModel =
        toml::from_str(&read_text(path)?).map_err(|error| error.to_string().replace('\n', " "))?;
    model.check().map_err(|error| error.to_string())?;
    model.model.key().map_err(|error| error.to_string())?;
    Ok(model)
}
