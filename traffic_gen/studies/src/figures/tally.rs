//! What the rounds of one seed come to: sums, latencies and awards by contractor, from which every figure is computed.

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;

use crate::record::{
    AgreementRecord, AwardRecord, BargainRecord, BidRecord, CellRecord, MessageCount, PopulationRecord, RoundRecord,
};

use super::theory;
use crate::plan::population::REST;

/// A latency is kept with three significant digits.
const DIGITS: u8 = 3;
/// Dispositions of offers that the policy would have taken, had they come in time.
const LATE: [&str; 3] = ["late", "closed", "expired"];

/// One seed of a group: the rounds of one cell behind its warm-up.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Its cell.
    pub cell: CellRecord,
    /// Rounds whose call was admitted.
    pub rounds: u64,
    /// Latencies by name, in microseconds.
    pub latencies: BTreeMap<String, Histogram<u64>>,
    /// What came of each contractor.
    pub contractors: BTreeMap<String, ContractorTally>,
    /// When each decided call was due, and how long the decision took, in microseconds.
    pub timeline: Vec<(u64, u64)>,
    /// Lowest and highest cost that was asked for.
    pub costs: (f64, f64),
    means: BTreeMap<String, (f64, f64)>,
    winners: Vec<String>,
    /// The populations with their contractors, where not all behave alike.
    populations: Vec<(String, BTreeSet<String>)>,
}

/// One contractor in one seed.
#[derive(Debug, Clone)]
pub struct ContractorTally {
    /// Rounds it made a valid offer in, in time or late.
    pub offers: u64,
    /// First awards to it.
    pub wins: u64,
    /// Rounds in which its offer was the best of all.
    pub best: u64,
    /// Sum of the costs it asked for.
    pub cost: f64,
    /// Offers that were stored.
    pub stored: u64,
    /// Sum of the times from the intended call to their admission, in microseconds.
    pub taken_us: f64,
    /// The same times one by one.
    pub latency: Histogram<u64>,
}

impl Default for ContractorTally {
    fn default() -> Self {
        Self { offers: 0, wins: 0, best: 0, cost: 0.0, stored: 0, taken_us: 0.0, latency: histogram() }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("0 to 5 significant digits")
}

/// Counts a latency. The histogram grows with what it is given; one beyond 64 bits there is not.
fn record(histogram: &mut Histogram<u64>, taken: u64) {
    let _ = histogram.record(taken);
}

/// The valid offers of a round, one of each contractor.
struct Bids<'a> {
    /// In time, in the order they were stored in.
    in_time: Vec<&'a BidRecord>,
    /// All, the best first.
    ranked: Vec<&'a BidRecord>,
}

impl<'a> Bids<'a> {
    fn of(round: &'a RoundRecord) -> Self {
        let mut by_contractor: BTreeMap<&str, &BidRecord> = BTreeMap::new();
        for bid in &round.offers {
            let is_in_time = bid.disposition == "ok";
            let earlier = by_contractor.get(bid.from.as_str());
            // A revision replaces; what came late replaces nothing.
            if is_in_time || (LATE.contains(&bid.disposition.as_str()) && earlier.is_none()) {
                by_contractor.insert(&bid.from, bid);
            }
        }
        let mut in_time: Vec<_> = by_contractor.values().copied().filter(|bid| bid.disposition == "ok").collect();
        in_time.sort_by_key(|bid| (bid.stored_us.unwrap_or(bid.sent_us), bid.sent_us));
        let mut ranked: Vec<_> = by_contractor.into_values().collect();
        ranked.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        Self { in_time, ranked }
    }
}

impl Tally {
    /// A seed without rounds.
    pub fn new(cell: CellRecord) -> Self {
        let members = |population: &PopulationRecord| population.contractors.iter().cloned().collect();
        let mut means = BTreeMap::new();
        if let Some(model) = &cell.model {
            let (agreements, decisions) = (model.agreements as f64, model.decisions as f64);
            means.insert("model calls".to_owned(), (model.calls as f64, agreements));
            means.insert("model tokens".to_owned(), ((model.input_tokens + model.output_tokens) as f64, agreements));
            means.insert("model cost".to_owned(), (model.cost_micro_units as f64, agreements));
            if cell.protocol == "alternating" {
                means.insert("model surplus".to_owned(), (model.advantage - model.scripted_advantage, decisions));
            } else {
                means
                    .insert("model fallbacks".to_owned(), (model.fallbacks as f64, decisions + model.fallbacks as f64));
            }
        }
        for PopulationRecord { name, model, .. } in &cell.populations {
            let Some(model) = model else { continue };
            let tokens = model.input_tokens + model.output_tokens;
            for (figure, sum) in [
                ("calls", model.calls),
                ("tokens", tokens),
                ("cost", model.cost_micro_units),
                ("fallbacks", model.fallbacks),
            ] {
                means.insert(format!("model {figure} of {name}"), (sum as f64, model.questions as f64));
            }
        }
        Self {
            populations: cell.populations.iter().map(|part| (part.name.clone(), members(part))).collect(),
            cell,
            rounds: 0,
            latencies: BTreeMap::new(),
            contractors: BTreeMap::new(),
            timeline: Vec::new(),
            costs: (f64::INFINITY, f64::NEG_INFINITY),
            means,
            winners: Vec::new(),
        }
    }

    /// Counts a round; one of the warm-up is left out.
    pub fn add(&mut self, round: &RoundRecord) {
        if round.is_warm_up {
            return;
        }
        let is_completed = matches!(round.outcome.as_deref(), Some("completed" | "agreement"));
        self.share("completed", is_completed);
        if round.refusal.is_some() {
            return;
        }
        self.rounds += 1;
        self.add_latencies(round);
        self.add_messages(round);
        if self.cell.protocol == "alternating" {
            self.share("agreed", round.outcome.as_deref() == Some("agreement"));
            if is_completed {
                self.mean("turns", round.offers.len() as f64);
            }
            round.bargain.iter().for_each(|bargain| self.add_bargain(bargain));
            return;
        }
        self.add_answers(round);
        let bids = Bids::of(round);
        self.add_offers(round, &bids);
        self.add_place(round, &bids);
        self.add_awards(&round.awards);
        self.add_others(round, is_completed);
        self.add_populations(round, is_completed);
        let chosen = round.awards.first();
        if let Some(chosen) = chosen.and_then(|award| bids.in_time.iter().find(|bid| bid.from == award.to)) {
            self.add_choice(chosen, &bids);
        }
    }

    /// Every mean by its name: the sum of its values, and how many.
    pub fn means(&self) -> &BTreeMap<String, (f64, f64)> {
        &self.means
    }

    /// How many standard deviations the runs of one winner differ from a random order of these winners (Wald-Wolfowitz for
    /// several kinds): below 0 where winners repeat, above where they take turns.
    pub fn runs(&self) -> Option<f64> {
        let rounds = self.winners.len() as f64;
        let runs = 1.0 + self.winners.windows(2).filter(|pair| pair[0] != pair[1]).count() as f64;
        let wins = || self.contractors.values().map(|contractor| contractor.wins as f64);
        let (squares, cubes): (f64, f64) =
            (wins().map(|wins| wins.powi(2)).sum(), wins().map(|wins| wins.powi(3)).sum());
        let mean = rounds + 1.0 - squares / rounds;
        let variance = (squares * (squares + rounds * (rounds + 1.0)) - 2.0 * rounds * cubes - rounds.powi(3))
            / (rounds.powi(2) * (rounds - 1.0));
        (variance > 0.0).then(|| (runs - mean) / variance.sqrt())
    }

    fn mean(&mut self, name: &str, value: f64) {
        let sum = self.means.entry(name.to_owned()).or_default();
        sum.0 += value;
        sum.1 += 1.0;
    }

    fn share(&mut self, name: &str, is_so: bool) {
        self.mean(name, f64::from(u8::from(is_so)));
    }

    /// Counts how long something took, where it came.
    fn latency(&mut self, name: &str, from: u64, until: Option<u64>) {
        let Some(until) = until else { return };
        let taken = until.saturating_sub(from);
        record(self.latencies.entry(name.to_owned()).or_insert_with(histogram), taken);
        self.mean(name, taken as f64);
    }

    fn add_latencies(&mut self, round: &RoundRecord) {
        let from = round.intended_us;
        self.mean("lag", round.sent_us.saturating_sub(from) as f64);
        self.timeline.extend(round.decided_us.map(|decided| (from, decided.saturating_sub(from))));
        self.latency("decision", from, round.decided_us);
        self.latency("award", from, round.decided_us.filter(|_| !round.awards.is_empty()));
        self.latency("confirm", from, round.confirmed_us);
        self.latency("end", from, round.ended_us);
    }

    fn add_messages(&mut self, round: &RoundRecord) {
        self.mean("retries", round.retries as f64);
        self.mean("duplicates", round.duplicates as f64);
        for (way, counts) in [("sent", &round.sent), ("delivered", &round.delivered)] {
            let sum = |of: fn(&MessageCount) -> u64| counts.values().map(of).sum::<u64>() as f64;
            self.mean(&format!("messages.{way}"), sum(|count| count.messages));
            self.mean(&format!("bytes.{way}"), sum(|count| count.bytes));
            for (act, count) in counts {
                self.mean(&format!("messages.{way}.{act}"), count.messages as f64);
                self.mean(&format!("bytes.{way}.{act}"), count.bytes as f64);
            }
        }
        for (name, count) in &round.dispositions {
            self.mean(&format!("disposition.{name}"), *count as f64);
        }
    }

    /// What a bargain is worth to its parties. Sums for anchoring are by domain: utilities of two domains do not compare.
    fn add_bargain(&mut self, bargain: &BargainRecord) {
        for (party, (utility, advantage)) in (1..).zip(bargain.utilities.iter().zip(&bargain.advantages)) {
            self.mean(&format!("utility party {party}"), *utility);
            self.mean(&format!("advantage party {party}"), *advantage);
        }
        let Some(agreement) = &bargain.agreement else { return };
        self.mean("bargain rounds", bargain.rounds.into());
        self.mean("relative time", bargain.relative_time);
        self.mean("welfare", agreement.welfare);
        self.share("irrational", agreement.is_irrational);
        let AgreementRecord { pareto, nash, kalai, kalai_smorodinsky, max_welfare, .. } = agreement;
        for (name, near) in [
            ("pareto", pareto),
            ("nash", nash),
            ("kalai", kalai),
            ("kalai-smorodinsky", kalai_smorodinsky),
            ("welfare", max_welfare),
        ] {
            near.iter().for_each(|near| self.mean(&format!("optimality {name}"), *near));
        }
        if let (Some(first), Some(last)) = (agreement.first_offer, bargain.utilities.first()) {
            let domain = &bargain.domain;
            self.mean(&format!("anchor x {domain}"), first);
            self.mean(&format!("anchor y {domain}"), *last);
            self.mean(&format!("anchor xx {domain}"), first * first);
            self.mean(&format!("anchor xy {domain}"), first * last);
        }
    }

    fn add_answers(&mut self, round: &RoundRecord) {
        let invited = f64::from(round.invited.max(1));
        let in_time = round.offers.iter().filter(|bid| bid.disposition == "ok");
        let offering: BTreeSet<_> = in_time.map(|bid| bid.from.as_str()).collect();
        let refused = round.sent.get("refuse").map_or(0, |count| count.messages);
        let answered = (offering.len() as f64 + refused as f64).min(invited);
        self.mean("invited", invited);
        self.mean("answered", answered / invited);
        self.share("all answered", answered >= invited);
        self.share("empty", offering.is_empty());
        self.share("awarded", !round.awards.is_empty());
        if answered >= invited && is_full(round) {
            let sent: u64 = round.sent.values().map(|count| count.messages).sum();
            self.mean("messages of full rounds", sent as f64);
        }
    }

    fn add_offers(&mut self, round: &RoundRecord, bids: &Bids<'_>) {
        self.mean("offers", round.offers.len() as f64);
        self.mean("wasted", (bids.ranked.len() - bids.in_time.len()) as f64);
        if round.decided_us.is_some() && !bids.in_time.is_empty() {
            let in_time = u32::try_from(bids.in_time.len()).unwrap_or(u32::MAX);
            self.mean("theory arrival", theory::kth_arrival(round.invited, in_time.min(round.invited)));
        }
        for bid in &round.offers {
            self.costs = (self.costs.0.min(bid.cost), self.costs.1.max(bid.cost));
            self.mean("cost", bid.cost);
            self.mean("cost squared", bid.cost * bid.cost);
            if let Some(delay) = bid.delay_us {
                self.mean("delay", delay as f64);
                self.mean("delay squared", (delay as f64).powi(2));
            }
            if let Some(stored) = bid.stored_us {
                self.latency("offer", round.intended_us, Some(stored));
                let taken = stored.saturating_sub(round.intended_us);
                let contractor = self.contractors.entry(bid.from.clone()).or_default();
                contractor.taken_us += taken as f64;
                contractor.stored += 1;
                record(&mut contractor.latency, taken);
            }
        }
        for (place, bid) in bids.ranked.iter().enumerate() {
            let contractor = self.contractors.entry(bid.from.clone()).or_default();
            contractor.offers += 1;
            contractor.cost += bid.cost;
            contractor.best += u64::from(place == 0);
        }
        let costs: Vec<f64> = bids.in_time.iter().map(|bid| bid.cost).collect();
        if costs.len() >= 2 {
            let mean = costs.iter().sum::<f64>() / costs.len() as f64;
            let variance = costs.iter().map(|cost| (cost - mean).powi(2)).sum::<f64>() / (costs.len() - 1) as f64;
            if mean > 0.0 {
                self.mean("variation", variance.sqrt() / mean);
            }
            for (place, cost) in costs.iter().enumerate() {
                for other in &costs[place + 1..] {
                    self.share("identical", cost == other);
                }
            }
        }
    }

    /// The place of the choice in the list that a model was shown, and whether it was talked into it.
    fn add_place(&mut self, round: &RoundRecord, bids: &Bids<'_>) {
        let Some(award) = round.awards.first().filter(|_| self.cell.model.is_some()) else { return };
        let chosen = |bid: &BidRecord| bid.from == award.to;
        for bid in bids.in_time.iter().filter(|bid| bid.position.is_some()) {
            let place = bid.position.unwrap_or_default();
            self.share(&format!("place {place}"), chosen(bid));
        }
        if let Some(injecting) = bids.in_time.iter().find(|bid| bid.is_injection) {
            let is_best = bids.ranked.first().is_some_and(|best| best.cost >= injecting.cost);
            self.share("injection wins", chosen(injecting) && !is_best);
        }
    }

    fn add_awards(&mut self, awards: &[AwardRecord]) {
        let Some(first) = awards.first() else { return };
        self.share("first bound", first.is_bound);
        if !first.is_bound {
            self.share("saved", awards[1..].iter().any(|award| award.is_bound));
            if let Some(next) = awards.get(1) {
                self.mean("next award", next.at_us.saturating_sub(first.at_us) as f64);
            }
        }
        self.contractors.entry(first.to.clone()).or_default().wins += 1;
        self.winners.push(first.to.clone());
    }

    /// How the negotiations went that awarded nothing to a population.
    fn add_others(&mut self, round: &RoundRecord, is_completed: bool) {
        let is_named = |contractor: &String| {
            self.populations.iter().any(|(name, members)| name != REST && members.contains(contractor))
        };
        if self.populations.is_empty() || round.awards.iter().any(|award| is_named(&award.to)) {
            return;
        }
        self.share("completed of others", is_completed);
        self.latency("decision of others", round.intended_us, round.decided_us);
        self.latency("confirm of others", round.intended_us, round.confirmed_us);
    }

    /// What each population did, and how the negotiations went that awarded nothing to it.
    fn add_populations(&mut self, round: &RoundRecord, is_completed: bool) {
        for (name, members) in std::mem::take(&mut self.populations) {
            let count = members.len() as f64;
            let mine = |contractor: &str| members.contains(contractor);
            let offers: Vec<_> = round.offers.iter().filter(|bid| mine(&bid.from)).collect();
            self.mean(&format!("offers of {name}"), offers.len() as f64 / count);
            let refusals: u64 = round.refusals.iter().filter(|(from, _)| mine(from)).map(|(_, count)| count).sum();
            self.mean(&format!("refusals of {name}"), refusals as f64 / count);
            for bid in offers {
                self.share(&format!("refused offers of {name}"), bid.disposition != "ok");
                self.latency(&format!("offer of {name}"), round.intended_us, bid.stored_us);
            }
            let awards: Vec<_> = round.awards.iter().filter(|award| mine(&award.to)).collect();
            if let Some(first) = round.awards.first() {
                self.share(&format!("first awards of {name}"), mine(&first.to));
            }
            for award in &awards {
                self.share(&format!("bound awards of {name}"), award.is_bound);
            }
            if awards.is_empty() {
                self.share(&format!("completed beside {name}"), is_completed);
                self.latency(&format!("decision beside {name}"), round.intended_us, round.decided_us);
                self.latency(&format!("confirm beside {name}"), round.intended_us, round.confirmed_us);
            }
            self.populations.push((name, members));
        }
    }

    fn add_choice(&mut self, chosen: &BidRecord, bids: &Bids<'_>) {
        let Some(best) = bids.ranked.first() else { return };
        let (n, k) = (bids.ranked.len() as f64, bids.in_time.len() as f64);
        let better = bids.ranked.iter().filter(|bid| bid.cost < chosen.cost).count() as f64;
        self.mean("chosen cost", chosen.cost);
        self.mean("regret", chosen.cost - best.cost);
        self.mean("theory regret", theory::regret(n, k));
        self.share("best chosen", better == 0.0);
        self.mean("theory best chosen", theory::best_chosen(n, k));
        self.mean("rank", better + 1.0);
        self.mean("theory rank", theory::rank(n, k));
        self.share("beyond the first", n > k);
        if best.cost > 0.0 {
            self.mean("price ratio", chosen.cost / best.cost);
        }
        if let Some(own) = chosen.own_cost {
            self.mean("payment less cost", chosen.cost - own);
        }
        let losing: Vec<f64> = bids.in_time.iter().filter(|bid| bid.from != chosen.from).map(|bid| bid.cost).collect();
        if !losing.is_empty() {
            self.mean("gap", losing.iter().sum::<f64>() / losing.len() as f64 - chosen.cost);
        }
        if n >= 2.0 {
            let is_first = bids.in_time.first().is_some_and(|first| first.from == chosen.from);
            self.share("first wins", is_first);
            self.mean("another wins", f64::from(u8::from(!is_first)) / (n - 1.0));
            self.mean("theory first wins", 1.0 / k);
            self.mean("theory another wins", (1.0 - 1.0 / k) / (n - 1.0));
        }
    }
}

/// Whether everything that can be said in a round was said: all invited offered in time, one was awarded and performed.
fn is_full(round: &RoundRecord) -> bool {
    let in_time = round.offers.iter().filter(|bid| bid.disposition == "ok").count();
    in_time == round.invited as usize && round.awards.len() == 1 && round.outcome.as_deref() == Some("completed")
}
