//! `llmx-lab panel choose`: the agents that evidence recommends, as `choose` of a call would (docs/spec/panel.md#choice).

use std::collections::{BTreeMap, BTreeSet};

use policy_core::panel::reputation::{PRIOR_RUNS, RecommendedSeats, ReputationBasis, choose, reputation};
use schemas::control::Group;
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceRole, EvidenceSource, RUNS_MAX};
use schemas::ids::{DomainName, GroupId};
use schemas::panel::{ChooseSpec, SEATS_MAX, SeatChoice};
use schemas::record::Qos;
use schemas::{AgentId, NegotiationId};
use serde::Serialize;

use super::evidence::EvidenceOriginArgs;
use crate::output::{Failure, Outcome, agents, millionths, note, print, print_json, table};

/// Most seats, as a number of the command line.
const SEATS: i64 = SEATS_MAX as i64;

/// Arguments of `llmx-lab panel choose`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  llmx-lab panel choose --domain algebra --keep 4 --initiator alice\n  \
    llmx-lab panel choose --domain algebra --keep 4 --from all --group algebraists\n  \
    llmx-lab panel choose --domain arithmetic --keep 3 --initiator alice --json run.jsonl\n\n\
    Chooses as a call with `choose` does: the --keep of highest reputation, and --newcomers of those without one; everybody,\n\
    a trial, where fewer than --keep have a reputation. Equals and newcomers are drawn by the id of a negotiation. A call\n\
    chooses among those of its addresses that consent when it is made; this chooses among those named here. docs/panels.md\n\
    Exit codes: 1 when the gateway refuses or does not answer, the export is at fault, or there is nobody to choose.")]
pub struct PanelChooseArgs {
    #[command(flatten)]
    origin: EvidenceOriginArgs,
    /// How many of the highest reputation, 1 to 32
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=SEATS))]
    keep: u32,
    /// How many without enough evidence, 0 to 32
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=SEATS))]
    newcomers: u32,
    /// Whose panels count: own, those of --initiator; all, the lower median over initiators, of which it takes three; or initiators, separated by
    /// commas
    #[arg(long, value_name = "own|all|AGENTS", default_value = "own", value_parser = evidence_source)]
    from: EvidenceSource,
    /// Who will call: its panels are its own
    #[arg(long, value_name = "AGENT", value_parser = AgentId::try_new)]
    initiator: Option<AgentId>,
    /// Panels it takes to have a reputation
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(RUNS_MAX)))]
    min_runs: u32,
    /// Choose among these, separated by commas (default: all that have sat on a panel of the domain)
    #[arg(long, value_name = "AGENTS", value_delimiter = ',', value_parser = AgentId::try_new)]
    among: Vec<AgentId>,
    /// Draw as the call with this id would (default: one of its own)
    #[arg(long, value_name = "ID", value_parser = NegotiationId::try_new)]
    negotiation: Option<NegotiationId>,
    /// Store the agents as this group at the gateway
    #[arg(long, value_name = "NAME", value_parser = GroupId::try_new)]
    group: Option<GroupId>,
    /// Print the choice as JSON
    #[arg(long)]
    json: bool,
}

/// The choice, as it is printed.
#[derive(Serialize)]
struct PrintedChoice<'a> {
    domain: &'a DomainName,
    seats: SeatChoice,
    agents: &'a [AgentId],
    candidates: Vec<PrintedCandidate<'a>>,
}

#[derive(Serialize)]
struct PrintedCandidate<'a> {
    agent: &'a AgentId,
    /// In parts per million; none without enough evidence.
    reputation: Option<u64>,
}

/// Chooses, prints, and stores the group.
pub async fn run(args: &PanelChooseArgs) -> Outcome {
    if args.from == EvidenceSource::Own && args.initiator.is_none() {
        return Err(Failure::configuration(
            "whose own panels count? name the initiator: --initiator AGENT, or --from all",
        ));
    }
    let entries = args.origin.read(None).await?.entries;
    let operator = AgentId::try_new("operator").map_err(Failure::failed)?;
    let initiator = args.initiator.as_ref().unwrap_or(&operator);
    let candidates = args.candidates(&entries, initiator);
    if candidates.is_empty() {
        let domain = &args.origin.domain;
        let nobody = anyhow::anyhow!("nobody has sat on a panel of {domain} that counts as evidence");
        return Err(Failure::failed(nobody).or("name candidates: --among AGENTS"));
    }
    let negotiation = match &args.negotiation {
        Some(negotiation) => negotiation.clone(),
        None => NegotiationId::try_new(&format!("{initiator}~choice")).map_err(Failure::configuration)?,
    };
    let rule =
        ChooseSpec { keep: args.keep, from: args.from.clone(), min_runs: args.min_runs, newcomers: args.newcomers };
    let RecommendedSeats { seats, choice } = choose(&negotiation, &rule, &candidates);
    if let Some(id) = &args.group {
        let group = Group { id: id.clone(), members: seats.clone(), qos: Qos::default() };
        let token = args.origin.access.administrator(&operator)?.token.current();
        args.origin.access.ask(async |gateway| gateway.put_group(&token, &group).await).await?;
        note(format_args!("group {id} now has {}", agents(seats.len())));
    }
    if args.json {
        let candidates =
            candidates.iter().map(|(agent, reputation)| PrintedCandidate { agent, reputation: *reputation }).collect();
        let domain = &args.origin.domain;
        return print_json(&PrintedChoice { domain, seats: choice, agents: &seats, candidates });
    }
    let heading = ["AGENT", "REPUTATION", "SEAT"].map(str::to_owned).to_vec();
    let row = |(agent, reputation): &(AgentId, Option<u64>)| {
        let seat = if seats.contains(agent) { "yes" } else { "no" };
        let reputation = reputation.map_or_else(|| "-".to_owned(), |ppm| millionths(ppm.into()));
        vec![agent.to_string(), reputation, seat.to_owned()]
    };
    print(table(&std::iter::once(heading).chain(candidates.iter().map(row)).collect::<Vec<_>>()));
    print(match choice {
        SeatChoice::Chosen => format!("{} chosen", agents(seats.len())),
        SeatChoice::Trial => format!("a trial of {}: fewer than {} have a reputation", agents(seats.len()), args.keep),
    });
    if choice == SeatChoice::Trial {
        let initiators: BTreeSet<&str> = entries.iter().map(|entry| entry.subject.initiator.as_str()).collect();
        let initiators: Vec<&str> = initiators.into_iter().collect();
        note(format_args!("the evidence is from panels of: {}", initiators.join(", ")));
    }
    Ok(())
}

impl PanelChooseArgs {
    /// Those to choose among, in the order of their ids, with the reputation of each.
    fn candidates(&self, entries: &[EvidenceEntry], initiator: &AgentId) -> Vec<(AgentId, Option<u64>)> {
        let mut shown: BTreeMap<&AgentId, Vec<(&AgentId, EvidenceCounts)>> = BTreeMap::new();
        for EvidenceEntry { subject, counts } in entries.iter().filter(|one| one.subject.role == EvidenceRole::Panelist)
        {
            shown.entry(&subject.agent).or_default().push((&subject.initiator, *counts));
        }
        let among: BTreeSet<&AgentId> =
            if self.among.is_empty() { shown.keys().copied().collect() } else { self.among.iter().collect() };
        let basis =
            ReputationBasis { from: &self.from, own: initiator, min_runs: self.min_runs, prior_runs: PRIOR_RUNS };
        let known = |agent: &AgentId| {
            let of_agent = shown.get(agent).into_iter().flatten();
            reputation(of_agent.map(|(initiator, counts)| (*initiator, *counts)), basis)
        };
        among.into_iter().map(|agent| (agent.clone(), known(agent))).collect()
    }
}

fn evidence_source(text: &str) -> Result<EvidenceSource, String> {
    match text {
        "own" => Ok(EvidenceSource::Own),
        "all" => Ok(EvidenceSource::All),
        agents => {
            let named: Result<Vec<AgentId>, _> = agents.split(',').map(AgentId::try_new).collect();
            named.map(EvidenceSource::Agents).map_err(|error| format!("own, all or agents' ids are expected: {error}"))
        }
    }
}
