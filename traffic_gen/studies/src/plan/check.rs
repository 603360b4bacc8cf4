//! Checks a plan, and makes its cells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;

use agents::bargain::StrategyKind;
use schemas::{Digest, Policy};
use toml::Spanned;
use traffic_gen::arrivals::{Load, RATE_MAX};
use traffic_gen::bargain::load::Bargains;
use traffic_gen::load::ProtocolLoad;

use super::domain::{self, DomainFile, catalog};
use super::fault::{FaultList, PlanFaults, nearest};
use super::file::{GridFile, PlanFile, ValueList};
use super::hypothesis::HypothesisTest;
use super::population::Populations;
use super::{ALTERNATING, CONTRACT_NET, CellSpec, Hypothesis, Plan, PopulationSpec};
use crate::record::WARM_UP;

/// Longest duration of a cell: a month.
const DURATION_MAX_S: f64 = 30.0 * 86_400.0;
/// Most contractors of a cell.
const CONTRACTORS_MAX: i64 = 10_000;
/// Most seeds of a cell.
const SEEDS_MAX: u64 = 10_000;
/// Most cells of a plan.
const CELLS_MAX: usize = 10_000;
/// Most calls of a warm-up.
const WARM_UP_MAX: u32 = 1_000;
/// Calls of a warm-up unless said otherwise.
const WARM_UP_DEFAULT: u32 = 3;
/// Time to offer unless said otherwise, in milliseconds, and the most a call may give.
const REPLY_WITHIN_DEFAULT_MS: u64 = 2_000;
const REPLY_WITHIN_MAX_S: f64 = 3_600.0;
/// What is usual where a population asks a model: models take long.
const PATIENT: &str = "patient";
const PATIENT_RATE: f64 = 0.1;
const PATIENT_REPLY_WITHIN_MS: u64 = 60_000;
/// Fastest time.
const TIME_SCALE_MAX: f64 = 1e6;
/// What stands for every strategy, and what joins several.
const ALL: &str = "all";
const AND: char = '+';
/// What begins the policies that take the best of the first offers.
const FIRST: &str = "first-";
/// Longest name.
const NAME_LEN_MAX: usize = 64;

/// What the command line asks of a plan, over what stands in it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Asked {
    /// The first seed.
    pub seed: Option<u64>,
    /// How many seeds.
    pub seeds: Option<u64>,
    /// How many times faster.
    pub time_scale: Option<f64>,
}

/// Reads a plan, and checks it whole. `name` names the file in what is said of it.
///
/// # Errors
/// [`PlanFaults`]: every fault, with line, column and remedy.
pub fn read(name: &str, text: &str, asked: Asked) -> Result<Plan, PlanFaults> {
    let mut faults = FaultList::new(text);
    let plan = match toml::from_str::<PlanFile>(text) {
        Ok(file) => Checker { faults: &mut faults, asked }.plan(&file),
        Err(error) => {
            faults.add_unreadable(&error);
            None
        }
    };
    let checked = faults.finish(name);
    match plan {
        Some(plan) => checked.map(|()| plan),
        None => Err(checked.err().unwrap_or_else(|| PlanFaults { name: name.to_owned(), faults: Vec::new() })),
    }
}

struct Checker<'a, 't> {
    faults: &'a mut FaultList<'t>,
    asked: Asked,
}

/// The cells of a plan so far.
#[derive(Default)]
struct KnownCells {
    ids: BTreeSet<String>,
    /// Ids by what is in a cell besides its id.
    contents: BTreeMap<Digest, String>,
}

/// The lists of a grid.
struct Axes {
    contractors: Vec<u32>,
    policies: Vec<Policy>,
    rates: Vec<f64>,
    loads: Vec<Load>,
    durations: Vec<f64>,
    /// Of bargains, each with its name; one without strategies where the grid plays the contract net.
    strategies: Vec<Strategies>,
    seed: u64,
    seeds: u64,
}

/// Strategies as a plan names them.
#[derive(Default)]
struct Strategies {
    name: String,
    kinds: Vec<String>,
}

impl Axes {
    fn product(&self) -> u64 {
        let Self { contractors, policies, rates, loads, durations, strategies, seed: _, seeds } = self;
        let lengths = [contractors.len(), policies.len(), rates.len(), loads.len(), durations.len(), strategies.len()];
        lengths.iter().fold(*seeds, |product, length| product.saturating_mul(*length as u64))
    }

    /// The product of the lists; seeds change fastest.
    fn cells(&self, name: Option<&str>, parts: &GridParts) -> Vec<CellSpec> {
        self.strategies.iter().flat_map(|strategies| self.cells_of(strategies, name, parts)).collect()
    }

    fn cells_of(&self, strategies: &Strategies, name: Option<&str>, parts: &GridParts) -> Vec<CellSpec> {
        let Self { contractors, policies, rates, loads, durations, seed, seeds, .. } = self;
        let begins = name.map(|name| format!("{name}-")).unwrap_or_default();
        let varying = |name: &str, length: usize, value: String| match length {
            0 | 1 => String::new(),
            _ => format!("-{name}{value}"),
        };
        let mut cells = Vec::new();
        let pairs = policies.iter().flat_map(|policy| contractors.iter().map(move |count| (policy, *count)));
        for (policy, contractors) in pairs {
            let populations = parts.by_contractors.get(&contractors).cloned().unwrap_or_default();
            let mut labels = if strategies.kinds.is_empty() {
                parts.populations.labels(&populations)
            } else {
                BTreeMap::from([("strategies".to_owned(), strategies.name.clone())])
            };
            labels.extend(parts.labels.clone());
            if parts.warm_up_rounds == 0 {
                // What is measured cold is of another kind.
                labels.insert(WARM_UP.to_owned(), "none".to_owned());
            }
            let strategies_part = varying("", self.strategies.len(), folder_name(&strategies.name));
            let loads = rates.iter().flat_map(|rate| loads.iter().map(move |load| (*rate, load)));
            for (rate, load) in loads {
                let rate_part = varying("r", rates.len(), rate.to_string());
                labels.insert("load".to_owned(), load.to_string());
                let load_part = varying("", self.loads.len(), folder_name(&load.to_string()));
                let times = durations.iter().flat_map(|duration| (0..*seeds).map(move |number| (*duration, number)));
                for (duration_s, number) in times {
                    let seed = seed.wrapping_add(number);
                    let duration_part = varying("d", durations.len(), duration_s.to_string());
                    let policy_name = policy.name();
                    cells.push(CellSpec {
                        id: format!(
                            "{begins}{policy_name}-n{contractors}{rate_part}{load_part}{duration_part}{strategies_part}-s{seed}"
                        ),
                        contractors,
                        policy: policy.clone(),
                        rate,
                        load: load.clone(),
                        duration_s,
                        seed,
                        contractor: parts.populations.rest().contractor.clone(),
                        misconduct: parts.populations.rest().misconduct,
                        populations: populations.clone(),
                        markup: parts.populations.rest().markup,
                        warm_up_rounds: parts.warm_up_rounds,
                        reply_within_ms: parts.reply_within_ms,
                        strategies: strategies.kinds.clone(),
                        domains: parts.domains.clone(),
                        requests_per_s: parts.requests_per_s,
                        labels: labels.clone(),
                    });
                }
            }
        }
        cells
    }
}

/// What all cells of a grid have in common.
struct GridParts {
    populations: Populations,
    /// The populations of each cell, by its number of contractors.
    by_contractors: BTreeMap<u32, Vec<PopulationSpec>>,
    warm_up_rounds: u32,
    reply_within_ms: u64,
    requests_per_s: Option<u32>,
    domains: Vec<DomainFile>,
    /// What is true of all its rounds besides, where it is not usual.
    labels: BTreeMap<String, String>,
}

impl Checker<'_, '_> {
    fn plan(mut self, file: &PlanFile) -> Option<Plan> {
        self.name(&file.name);
        if file.text.get_ref().trim().is_empty() {
            self.faults.add(&file.text.span(), "the text is empty", "say what the experiment is to show");
        }
        let seed = self.asked.seed.or(file.seed.as_ref().map(|seed| *seed.get_ref())).unwrap_or(1);
        if let Some(scale) = &file.time_scale {
            let is_fine = *scale.get_ref() > 0.0 && *scale.get_ref() <= TIME_SCALE_MAX;
            self.faults.check("time_scale", scale, is_fine, "give a number above 0, up to 1000000");
        }
        let hypotheses = file.hypothesis.iter().filter_map(|claim| self.hypothesis(claim)).collect();
        if file.grid.get_ref().is_empty() {
            self.faults.add(
                &file.grid.span(),
                "there is no grid",
                "add [[grid]] with contractors, policy, rate, duration",
            );
        }
        let (mut cells, mut known) = (Vec::new(), KnownCells::default());
        for grid in file.grid.get_ref() {
            let seeds = grid.get_ref().seeds.as_ref().or(file.seeds.as_ref());
            let count = self.seeds(seeds);
            let of_grid = self.grid(grid, seed, count);
            if cells.len() + of_grid.len() > CELLS_MAX {
                self.too_many(&grid.span());
                break;
            }
            for cell in of_grid {
                self.add_cell(&mut known, &mut cells, cell, &grid.span());
            }
        }
        if !cells.is_empty() && cells.iter().all(|cell| cell.protocol() == ALTERNATING) {
            self.check_bargain_bounds(&file.hypothesis);
        }
        // A machine that gets busier, or quieter, meanwhile meets all groups alike.
        cells.sort_by_key(|cell| cell.seed.wrapping_sub(seed));
        let planned = file.time_scale.as_ref().map(|scale| *scale.get_ref());
        let time_scale = self.asked.time_scale.or(planned).unwrap_or(1.0);
        let (name, text) = (file.name.get_ref().clone(), file.text.get_ref().clone());
        Some(Plan { name, text, time_scale, hypotheses, cells })
    }

    fn name(&mut self, name: &Spanned<String>) {
        let is_name = |name: &str| {
            (1..=NAME_LEN_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        if !is_name(name.get_ref()) {
            let found = format!("`{}` is no name", name.get_ref());
            self.faults.add(&name.span(), found, "use 1 to 64 letters, digits, - and _");
        }
    }

    fn hypothesis(&mut self, claim: &super::file::HypothesisFile) -> Option<Hypothesis> {
        match claim.test.get_ref().parse() {
            Ok(test) => Some(Hypothesis { text: claim.text.get_ref().clone(), test }),
            Err(error) => {
                let found = format!("`{}` is no test: {error}", claim.test.get_ref());
                self.faults.add(&claim.test.span(), found, super::hypothesis::EXPECTED);
                None
            }
        }
    }

    /// Bounds of what bargains do not have could never be judged.
    fn check_bargain_bounds(&mut self, claims: &[super::file::HypothesisFile]) {
        for claim in claims {
            let test = claim.test.get_ref().parse();
            if let Ok(HypothesisTest::Bound { figure, .. }) = test
                && figure.is_of_contract_nets()
            {
                let found = format!("`{}` is of {CONTRACT_NET}, and every grid bargains", claim.test.get_ref());
                let remedy = format!("take the hypothesis out, or add a grid without protocol = [\"{ALTERNATING}\"]");
                self.faults.add(&claim.test.span(), found, remedy);
            }
        }
    }

    fn seeds(&mut self, seeds: Option<&Spanned<u64>>) -> u64 {
        if let Some(seeds) = seeds
            && !(1..=SEEDS_MAX).contains(seeds.get_ref())
        {
            self.faults.add(&seeds.span(), format!("{} seeds", seeds.get_ref()), "give 1 to 10000");
        }
        self.asked.seeds.or(seeds.map(|seeds| *seeds.get_ref())).unwrap_or(1)
    }

    /// Adds a cell, unless it is there: under its name, or under another.
    fn add_cell(&mut self, known: &mut KnownCells, cells: &mut Vec<CellSpec>, cell: CellSpec, span: &Range<usize>) {
        let content = content(&cell);
        let same = known.contents.get(&content).cloned().or_else(|| known.ids.get(&cell.id).cloned());
        if let Some(same) = same {
            let found = format!("the cell {} is there already, as {same}", cell.id);
            let remedy = "take a value out that is there twice, or give one grid another name and content";
            self.faults.add(span, found, remedy);
            return;
        }
        known.contents.insert(content, cell.id.clone());
        known.ids.insert(cell.id.clone());
        cells.push(cell);
    }

    fn too_many(&mut self, span: &Range<usize>) {
        let found = format!("there are more than {CELLS_MAX} cells");
        self.faults.add(span, found, "shorten a list, or ask for fewer seeds");
    }

    fn grid(&mut self, grid: &Spanned<GridFile>, seed: u64, seeds: u64) -> Vec<CellSpec> {
        let (span, grid) = (grid.span(), grid.get_ref());
        if let Some(name) = &grid.name {
            self.name(name);
        }
        let is_bargain = self.is_bargain(grid);
        let strategies = self.strategies(grid, is_bargain);
        let (domains, parties) = self.domains(grid, is_bargain);
        let least = if is_bargain { i64::from(Bargains::AGENTS_MIN).max(parties) } else { 1 };
        let contractors = self.each(&grid.contractors, "contractors", |count| match u32::try_from(*count) {
            Ok(number) if (least..=CONTRACTORS_MAX).contains(count) => Ok(number),
            _ => Err(format!("give {least} to {CONTRACTORS_MAX}")),
        });
        let known = if is_bargain { bargain_policy } else { policy };
        let asks_model = grid.asks_model();
        let policies =
            self.usual(&grid.policy, ("policy", &span), asks_model.then(|| known(PATIENT)), |name| known(name));
        let rates = self.usual(&grid.rate, ("rate", &span), asks_model.then_some(Ok(PATIENT_RATE)), |rate| {
            let is_rate = *rate > 0.0 && *rate <= RATE_MAX;
            if is_rate { Ok(*rate) } else { Err(format!("give calls per second, above 0, up to {RATE_MAX}")) }
        });
        let durations = self.each(&grid.duration, "duration", |text| seconds(text, DURATION_MAX_S));
        let loads = grid.load.as_ref().map_or(vec![Load::Poisson], |loads| {
            self.each(loads, "load", |text| {
                let load: Load = text.parse().map_err(|error: traffic_gen::arrivals::LoadError| error.to_string())?;
                let arrivals = load.arrivals(1.0, Duration::from_secs(1), seed);
                arrivals.map(|_| load).map_err(|error| format!("{error}; name a file that is there"))
            })
        });
        let parts = self.parts(grid, &contractors, domains);
        let seeds = seeds.min(SEEDS_MAX);
        let axes = Axes { contractors, policies, rates, loads, durations, strategies, seed, seeds };
        if axes.product() > CELLS_MAX as u64 {
            self.too_many(&span);
            return Vec::new();
        }
        axes.cells(grid.name.as_ref().map(|name| name.get_ref().as_str()), &parts)
    }

    /// Whether the cells of a grid are bargains. Policies and behaviour differ, so a grid has one protocol.
    fn is_bargain(&mut self, grid: &GridFile) -> bool {
        let Some(protocols) = &grid.protocol else { return false };
        let is_known = |protocol: &String| match protocol.as_str() {
            CONTRACT_NET => Ok(false),
            ALTERNATING => Ok(true),
            _ => Err(format!("give {CONTRACT_NET} or {ALTERNATING}")),
        };
        let are_bargains = self.each(protocols, "protocol", is_known);
        if are_bargains.windows(2).any(|pair| pair[0] != pair[1]) {
            let found = "the grid has two protocols, whose policies differ";
            self.faults.add(&protocols.span(), found, "give each a [[grid]] of its own");
        }
        let is_bargain = !are_bargains.is_empty() && are_bargains.iter().all(|is_bargain| *is_bargain);
        if is_bargain && let Some((name, place)) = grid.for_contract_nets() {
            let found = format!("{name} is for {CONTRACT_NET}");
            self.faults.add(&place, found, "take it out: agents that bargain answer at once, by their strategies");
        }
        is_bargain
    }

    fn strategies(&mut self, grid: &GridFile, is_bargain: bool) -> Vec<Strategies> {
        let kinds = |name: &str| -> Result<Vec<String>, String> {
            if name == ALL {
                return Ok(StrategyKind::ALL.iter().map(|kind| kind.as_str().to_owned()).collect());
            }
            let parts = name.split(AND).map(|part| part.parse::<StrategyKind>().map(|kind| kind.as_str().to_owned()));
            parts.collect::<Result<_, _>>().map_err(|error| format!("{error}; join several with {AND}, or give {ALL}"))
        };
        let read = |name: &String| kinds(name).map(|kinds| Strategies { name: name.clone(), kinds });
        match (&grid.strategies, is_bargain) {
            (None, false) => vec![Strategies::default()],
            (None, true) => read(&ALL.to_owned()).into_iter().collect(),
            (Some(strategies), true) => self.each(strategies, "strategies", read),
            (Some(strategies), false) => {
                self.for_bargains("strategies", strategies);
                Vec::new()
            }
        }
    }

    /// The files of domains, and the most parties of any.
    fn domains(&mut self, grid: &GridFile, is_bargain: bool) -> (Vec<DomainFile>, i64) {
        let Some(listed) = &grid.domains else { return Default::default() };
        if !is_bargain {
            self.for_bargains("domains", listed);
            return Default::default();
        }
        let files = self.each(listed, "domains", |path| {
            DomainFile::read(path).map_err(|fault| format!("give the file of a domain: {fault}"))
        });
        match catalog(&files) {
            Ok(catalog) => {
                let places = 0..catalog.len();
                (files, places.map(|place| catalog.parties(place) as i64).max().unwrap_or(0))
            }
            Err(fault) => {
                self.faults.add(&listed.span(), fault, "give each domain once, with issues of its own");
                Default::default()
            }
        }
    }

    fn for_bargains(&mut self, name: &str, listed: &ValueList<String>) {
        let remedy = format!("take them out, or add protocol = [\"{ALTERNATING}\"]");
        self.faults.add(&listed.span(), format!("{name} are for bargains"), remedy);
    }

    /// The values of a list, or what is usual without it; a fault where nothing is.
    fn usual<T: Display, V>(
        &mut self,
        axis: &Option<ValueList<T>>,
        (name, place): (&str, &Range<usize>),
        usual: Option<Result<V, String>>,
        read: impl Fn(&T) -> Result<V, String>,
    ) -> Vec<V> {
        match (axis, usual) {
            (Some(axis), _) => self.each(axis, name, read),
            (None, Some(usual)) => usual.into_iter().collect(),
            (None, None) => {
                let remedy = "add it; `llmx-lab experiment show policies` is an example";
                self.faults.add(place, format!("missing field `{name}`"), remedy);
                Vec::new()
            }
        }
    }

    /// The values of a list, each as `read` takes it; a fault for every other one, and for an empty list.
    fn each<T: Display, V>(
        &mut self,
        axis: &ValueList<T>,
        name: &str,
        read: impl Fn(&T) -> Result<V, String>,
    ) -> Vec<V> {
        if axis.get_ref().is_empty() {
            self.faults.add(
                &axis.span(),
                format!("{name} is an empty list: nothing would run"),
                "give one value at least",
            );
        }
        let mut values = Vec::new();
        for value in axis.get_ref() {
            match read(value.get_ref()) {
                Ok(read) => values.push(read),
                Err(remedy) => {
                    self.faults.add(&value.span(), format!("{name} `{}` cannot be", value.get_ref()), remedy)
                }
            }
        }
        values
    }

    fn parts(&mut self, grid: &GridFile, contractors: &[u32], domains: Vec<DomainFile>) -> GridParts {
        let warm_up = grid.warm_up.as_ref().and_then(|calls| {
            self.faults.number("warm_up", calls, 0..=WARM_UP_MAX, format!("give calls, 0 to {WARM_UP_MAX}"))
        });
        let usual_ms = if grid.asks_model() { PATIENT_REPLY_WITHIN_MS } else { REPLY_WITHIN_DEFAULT_MS };
        let reply_within_ms =
            grid.reply_within.as_ref().map(|text| match seconds(text.get_ref(), REPLY_WITHIN_MAX_S) {
                Ok(seconds) => (seconds * 1e3) as u64,
                Err(remedy) => {
                    self.faults.add(&text.span(), format!("reply_within `{}` cannot be", text.get_ref()), remedy);
                    usual_ms
                }
            });
        grid.population.iter().for_each(|population| self.name(&population.get_ref().name));
        let populations = Populations::read(&grid.population, &grid.contractor, self.faults);
        let by_contractors = contractors.iter().map(|count| (*count, populations.of(*count, self.faults)));
        let by_contractors = by_contractors.collect();
        let reply_within_ms = reply_within_ms.unwrap_or(usual_ms);
        let requests_per_s = grid.requests_per_s.as_ref().and_then(|rate| self.requests_per_s(rate));
        let unusual = [
            ("domains", (!domains.is_empty()).then(|| domain::label(&domains))),
            ("markup", (populations.rest().markup != 0.0).then(|| populations.rest().markup.to_string())),
            ("reply_within_ms", (reply_within_ms != REPLY_WITHIN_DEFAULT_MS).then(|| reply_within_ms.to_string())),
            ("requests_per_s", requests_per_s.map(|rate| rate.to_string())),
        ];
        let labels = unusual.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        GridParts {
            by_contractors,
            populations,
            warm_up_rounds: warm_up.unwrap_or(WARM_UP_DEFAULT),
            reply_within_ms,
            requests_per_s,
            domains,
            labels,
        }
    }

    fn requests_per_s(&mut self, rate: &Spanned<i64>) -> Option<u32> {
        let remedy = "give requests per second of one agent, 1 at least; its calls and their repeats count";
        self.faults.number("requests_per_s", rate, 1..=u32::MAX, remedy)
    }
}

fn folder_name(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' }).collect()
}

/// A preset, or the best of the first offers.
fn policy(name: &str) -> Result<Policy, String> {
    if let Some(count) = name.strip_prefix(FIRST) {
        let count: u32 =
            count.parse().ok().filter(|count| (1..=1_000).contains(count)).ok_or("give first-1 to first-1000")?;
        let mut policy = policy_core::preset("low").ok_or("give a preset")?;
        policy.id = format!("{FIRST}{count}@1");
        policy.close.k_valid = Some(count);
        // Refusals may leave fewer.
        policy.close.all_responded = true;
        return Ok(policy);
    }
    let presets = policy_core::presets();
    let names = || presets.iter().filter(|policy| !policy.weights.is_empty()).map(Policy::name);
    if let Some(policy) = presets.iter().find(|policy| policy.name() == name && !policy.weights.is_empty()) {
        return Ok(policy.clone());
    }
    let meant = nearest(name, names()).map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
    Err(format!("{meant}give {} or first-K", names().collect::<Vec<_>>().join(", ")))
}

/// A preset that accepts for a party.
fn bargain_policy(name: &str) -> Result<Policy, String> {
    let presets = policy_core::presets();
    let bargaining = || presets.iter().filter(|policy| policy.bargain.is_some() && policy.weights.is_empty());
    if let Some(policy) = bargaining().find(|policy| policy.name() == name) {
        return Ok(policy.clone());
    }
    Err(format!("give {}", bargaining().map(Policy::name).collect::<Vec<_>>().join(", ")))
}

/// A length of time such as `90s`, `2m` or `12h`, in seconds.
fn seconds(text: &str, most: f64) -> Result<f64, String> {
    let expected = || format!("give a length such as 30s, 2m or 12h, above 0, up to {most} s");
    let length: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    let seconds = length.as_secs_f64();
    if seconds > 0.0 && seconds <= most { Ok(seconds) } else { Err(expected()) }
}

/// What makes a cell another than its neighbours.
fn content(cell: &CellSpec) -> Digest {
    let CellSpec { id: _, contractors, policy, rate, load, duration_s, seed, contractor, markup, .. } = cell;
    let CellSpec {
        warm_up_rounds, reply_within_ms, populations, misconduct, requests_per_s, strategies, domains, ..
    } = cell;
    let others = format!("{contractor:?} {populations:?} {misconduct:?} {requests_per_s:?} {strategies:?} {domains:?}");
    let numbers =
        format!("{contractors} {rate} {duration_s} {seed} {markup} {warm_up_rounds} {reply_within_ms} {load}");
    Digest::of_parts(&[policy.id.as_bytes(), numbers.as_bytes(), others.as_bytes()])
}
