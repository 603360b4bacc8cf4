//! `llmx-lab panel evidence`: what panels have shown about agents (docs/spec/panel.md#evidence).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use archive::audit;
use schemas::AgentId;
use schemas::evidence::{EvidenceCounts, EvidenceEntry, EvidenceSubject};
use schemas::ids::DomainName;
use serde::{Deserialize, Serialize};

use crate::access::AccessArgs;
use crate::audit::unreadable;
use crate::output::{Failure, Outcome, millionths, note, print, print_json, table};

/// Arguments of `llmx-lab panel evidence`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  llmx-lab panel evidence --domain algebra\n  llmx-lab panel evidence --domain algebra --as ann --json\n  \
    llmx demo --protocol panel --export run.jsonl && llmx-lab panel evidence --domain arithmetic run.jsonl\n\n\
    SHARE is the importance of an agent, where the mean of all seats, or of all reviewers, is 1. Evidence is of the panels\n\
    that came to a result, with ratings and three seats at least. An export is replayed first, and refused where it does not\n\
    lead to what it says. docs/panels.md\n\
    Exit codes: 1 when the gateway refuses or does not answer, or the export is at fault; nothing shown is no failure."
)]
pub struct PanelEvidenceArgs {
    #[command(flatten)]
    origin: EvidenceOriginArgs,
    /// Only about this agent
    #[arg(long, value_name = "AGENT", value_parser = AgentId::try_new)]
    agent: Option<AgentId>,
    /// Only from panels of this initiator
    #[arg(long, value_name = "AGENT", value_parser = AgentId::try_new)]
    initiator: Option<AgentId>,
    /// Ask as this agent, which sees what is about itself and what its own panels have shown (default: as an administrator)
    #[arg(long = "as", value_name = "AGENT", value_parser = AgentId::try_new)]
    caller: Option<AgentId>,
    /// Print the entries as JSON
    #[arg(long)]
    json: bool,
}

/// Where evidence comes from.
#[derive(Debug, clap::Args)]
pub(super) struct EvidenceOriginArgs {
    /// An export, as `llmx demo --export` writes it; without it, a gateway is asked
    #[arg(value_name = "FILE")]
    export: Option<PathBuf>,
    /// The domain of the panels
    #[arg(long, value_name = "NAME", value_parser = DomainName::try_new)]
    pub(super) domain: DomainName,
    #[command(flatten)]
    pub(super) access: AccessArgs,
}

/// The evidence of a domain, as `GET /v1/domains/{domain}/evidence` has it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DomainEvidence {
    domain: DomainName,
    pub(super) entries: Vec<EvidenceEntry>,
    /// Whether nothing was cut off.
    complete: bool,
    /// The domains an export has evidence of.
    #[serde(skip)]
    others: Option<BTreeSet<DomainName>>,
}

/// Prints the entries.
pub async fn run(args: &PanelEvidenceArgs) -> Outcome {
    let mut found = args.origin.read(args.caller.as_ref()).await?;
    let is_wanted = |wanted: &Option<AgentId>, found: &AgentId| wanted.as_ref().is_none_or(|wanted| wanted == found);
    found.entries.retain(|EvidenceEntry { subject, .. }| {
        is_wanted(&args.agent, &subject.agent) && is_wanted(&args.initiator, &subject.initiator)
    });
    if args.json {
        return print_json(&found);
    }
    let heading = ["AGENT", "ROLE", "INITIATOR", "PANELS", "ASKED", "REPLIED", "AGREED", "SHARE", "CALLS", "TOKENS"];
    let heading = heading.map(str::to_owned).to_vec();
    print(table(&std::iter::once(heading).chain(found.entries.iter().map(row)).collect::<Vec<_>>()));
    let plural = if found.entries.len() == 1 { "y" } else { "ies" };
    print(format_args!("{} entr{plural} of {}", found.entries.len(), found.domain));
    if found.entries.is_empty() {
        let others: Vec<&str> = found.others.iter().flatten().map(DomainName::as_str).collect();
        note("no panel of this domain came to a result that counts, or the name is another");
        if !others.is_empty() {
            note(format_args!("the export has evidence of: {}", others.join(", ")));
        }
    }
    Ok(())
}

fn row(EvidenceEntry { subject, counts }: &EvidenceEntry) -> Vec<String> {
    let EvidenceCounts { runs, asked, replied, agreed, layers: _, total_e12, fair_e12, usage } = counts;
    let role: &str = subject.role.into();
    let names = [subject.agent.as_str(), role, subject.initiator.as_str()].map(str::to_owned);
    let numbers = [runs, asked, replied, agreed].map(ToString::to_string);
    let share = u128::from(*total_e12) * 1_000_000;
    let share = share.checked_div(u128::from(*fair_e12)).map_or_else(|| "-".to_owned(), millionths);
    let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
    let rest = [share, usage.calls.to_string(), tokens.to_string()];
    names.into_iter().chain(numbers).chain(rest).collect()
}

impl EvidenceOriginArgs {
    /// What the export leads to, or the gateway shows `caller`, or else an administrator.
    ///
    /// # Errors
    /// What is wrong with the export, or what the gateway refuses.
    pub(super) async fn read(&self, caller: Option<&AgentId>) -> Result<DomainEvidence, Failure> {
        if let Some(export) = &self.export {
            return self.of_export(export);
        }
        let bearer = match caller {
            Some(caller) => self.access.bearer(caller)?,
            None => self.access.administrator(&AgentId::try_new("operator").map_err(Failure::failed)?)?,
        };
        let (token, path) = (bearer.token.current(), format!("/v1/domains/{}/evidence", self.domain));
        if caller.is_none() && !bearer.is_signed_here {
            let who = self.access.ask(async |gateway| gateway.whoami(&token).await).await?;
            if !who.admin {
                note(format_args!(
                    "the token is of {}, no administrator: what is about it and what its own panels have shown is all it sees",
                    who.agent
                ));
            }
        }
        let found: DomainEvidence = self.access.ask(async |gateway| gateway.read(&path, &token).await).await?;
        if !found.complete {
            note(format_args!("the gateway shows the first {} entries only", found.entries.len()));
        }
        Ok(found)
    }

    fn of_export(&self, export: &Path) -> Result<DomainEvidence, Failure> {
        let ledger = audit::read(export).map_err(|error| unreadable(export, &error))?;
        let report = audit::verify(&ledger, None);
        if let Some(fault) = ledger.fault.or(report.first_difference) {
            return Err(Failure::failed(anyhow::anyhow!("{}: {fault}", export.display())));
        }
        let mut sums: BTreeMap<EvidenceSubject, EvidenceCounts> = BTreeMap::new();
        let mut others = BTreeSet::new();
        for EvidenceEntry { subject, counts } in report.evidence.into_iter().flat_map(|lane| lane.entries) {
            if subject.domain == self.domain {
                sums.entry(subject).or_default().add(&counts);
            } else {
                others.insert(subject.domain);
            }
        }
        let entries = sums.into_iter().map(|(subject, counts)| EvidenceEntry { subject, counts }).collect();
        Ok(DomainEvidence { domain: self.domain.clone(), entries, complete: true, others: Some(others) })
    }
}
