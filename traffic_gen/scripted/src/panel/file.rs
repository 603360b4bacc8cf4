//! A panel to be played, as a file says it: the question, the rules, and the scripted agents that take part.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agents::fault::{DocumentFault, check_ranges, check_text, read_json};
use agents::panel::{StubPanelist, StubProfile, StubQuestion, StubQuestions};
use schemas::AgentId;
use schemas::ids::DomainName;
use schemas::panel::{
    AnswerKind, BLEU_SEATS_MAX, KEEP_MAX, OPTIONS_MAX, PANEL_ROUNDS_MAX, PanelSpec, REVIEWERS_MAX, Ranker, SEATS_MAX,
};
use schemas::payload::TEXT_LEN_MAX;
use schemas::policy::{STRIKES_MAX, TIMER_MS_MAX};
use serde::Deserialize;

/// Longest name, in characters.
const NAME_LEN_MAX: usize = 128;

/// A panel and who takes part in it.
#[derive(Debug, Clone, PartialEq)]
pub struct PanelFile {
    /// Its name.
    pub name: String,
    /// The question.
    pub task: String,
    /// Its answers, the right one and the wrong ones; none where no agent needs to know them.
    pub question: Option<StubQuestion>,
    /// The rules.
    pub panel: PanelSpec,
    /// Who calls.
    pub initiator: AgentId,
    /// The seats, in the order of ids.
    pub seats: Vec<StubAgent>,
    /// The ranker, where it is an agent. It may be the initiator.
    pub ranker: Option<StubAgent>,
    /// The reviewers, in the order of the rules.
    pub reviewers: Vec<StubAgent>,
}

/// A scripted agent.
#[derive(Debug, Clone, PartialEq)]
pub struct StubAgent {
    /// Its name.
    pub name: AgentId,
    /// How it behaves.
    pub profile: StubProfile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[allow(dead_code, reason = "for those who read the file")]
    description: Option<String>,
    task: String,
    /// Possible answers; absent: those of a choice.
    options: Option<Vec<String>>,
    right: Option<String>,
    panel: PanelSpec,
    #[serde(default = "usual_initiator")]
    initiator: AgentId,
    agents: Vec<WrittenAgent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAgent {
    name: AgentId,
    /// So many agents alike, `name-1` and on.
    count: Option<u32>,
    #[serde(default)]
    profile: StubProfile,
}

fn usual_initiator() -> AgentId {
    AgentId::try_new("initiator").expect("letters make a name")
}

impl PanelFile {
    /// Reads a file.
    ///
    /// # Errors
    /// A [`DocumentFault`] at the first member that does not fit.
    pub fn parse(json: &str) -> Result<Self, DocumentFault> {
        let written: Written = read_json(json)?;
        check_text(&written.name, 1..=NAME_LEN_MAX).map_err(|fault| fault.under("/name"))?;
        check_text(&written.task, 1..=TEXT_LEN_MAX).map_err(|fault| fault.under("/task"))?;
        check_rules(&written.panel).map_err(|fault| fault.under("/panel"))?;
        let question = written.question()?;
        let agents = written.agents(question.as_ref())?;
        let Written { name, task, panel, initiator, .. } = written;
        Cast::new(agents).fill(PanelFile {
            name,
            task,
            question,
            panel,
            initiator,
            seats: Vec::new(),
            ranker: None,
            reviewers: Vec::new(),
        })
    }

    /// The domain that agents' accuracies are of.
    pub fn domain(&self) -> DomainName {
        domain_of(&self.panel)
    }

    /// Every agent that is asked, once.
    pub fn asked(&self) -> impl Iterator<Item = &StubAgent> {
        self.seats.iter().chain(&self.ranker).chain(&self.reviewers)
    }

    /// A panelist that behaves like this agent.
    pub fn panelist(&self, agent: &StubAgent, seed: u64) -> StubPanelist {
        let questions: StubQuestions =
            self.question.iter().map(|question| (self.task.clone(), question.clone())).collect();
        StubPanelist::new(agent.name.clone(), agent.profile.clone(), Arc::new(questions), seed)
    }
}

fn domain_of(rules: &PanelSpec) -> DomainName {
    rules.domain.clone().unwrap_or_else(general)
}

fn general() -> DomainName {
    DomainName::try_new("general").expect("letters make a name")
}

impl Written {
    fn question(&self) -> Result<Option<StubQuestion>, DocumentFault> {
        let Some(right) = &self.right else {
            return match &self.options {
                Some(_) => Err(DocumentFault::at("/right", "which of the `options` is right?")),
                None => Ok(None),
            };
        };
        let options = self.options.as_deref().or_else(|| self.panel.answer.options());
        let options =
            options.ok_or_else(|| DocumentFault::at("/options", "which answers are there beside `right`?"))?;
        if !(2..=OPTIONS_MAX).contains(&options.len()) {
            return Err(DocumentFault::at("/options", format!("2 to {OPTIONS_MAX} options")));
        }
        if !options.contains(right) {
            return Err(DocumentFault::at("/right", "none of the options"));
        }
        let wrong: Vec<String> = options.iter().filter(|option| *option != right).cloned().collect();
        if wrong.iter().collect::<BTreeSet<_>>().len() + 1 != options.len() {
            return Err(DocumentFault::at("/options", "an option stands there twice"));
        }
        Ok(Some(StubQuestion { domain: domain_of(&self.panel), right: right.clone(), wrong }))
    }

    /// The agents, each with the pointer of its entry.
    fn agents(&self, question: Option<&StubQuestion>) -> Result<Vec<(String, StubAgent)>, DocumentFault> {
        let mut agents: Vec<(String, StubAgent)> = Vec::new();
        for (index, written) in self.agents.iter().enumerate() {
            let pointer = format!("/agents/{index}");
            written.check(question).map_err(|fault| fault.under(&pointer))?;
            for name in written.names().map_err(|fault| fault.under(&pointer))? {
                if agents.iter().any(|(_, earlier)| earlier.name == name) {
                    return Err(DocumentFault::at(pointer + "/name", format!("another agent is named `{name}`")));
                }
                agents.push((pointer.clone(), StubAgent { name, profile: written.profile.clone() }));
            }
        }
        Ok(agents)
    }
}

impl WrittenAgent {
    fn check(&self, question: Option<&StubQuestion>) -> Result<(), DocumentFault> {
        self.profile.check().map_err(|fault| fault.under("/profile"))?;
        let answers = self.profile.answers;
        let kind: &str = answers.into();
        let Some(question) = question else {
            let needed = format!("who answers by `{kind}` needs `right` and `options` of the file");
            return if answers.needs_options() { Err(DocumentFault::at("/profile/answers", needed)) } else { Ok(()) };
        };
        if answers.needs_accuracy() && !self.profile.accuracy.contains_key(&question.domain) {
            let needed = format!("who answers by `{kind}` needs an accuracy in `{}`", question.domain);
            return Err(DocumentFault::at("/profile/accuracy", needed));
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<AgentId>, DocumentFault> {
        let Some(count) = self.count else { return Ok(vec![self.name.clone()]) };
        if !(1..=SEATS_MAX as u32).contains(&count) {
            return Err(DocumentFault::at("/count", format!("1 to {SEATS_MAX}")));
        }
        let name = |number: u32| AgentId::try_new(&format!("{}-{number}", self.name));
        let names: Result<Vec<AgentId>, _> = (1..=count).map(name).collect();
        names.map_err(|error| DocumentFault::at("/name", error.to_string()))
    }
}

/// The agents of a file on their way to their parts.
struct Cast {
    agents: BTreeMap<AgentId, (String, StubAgent)>,
}

impl Cast {
    fn new(agents: Vec<(String, StubAgent)>) -> Self {
        Self { agents: agents.into_iter().map(|(pointer, agent)| (agent.name.clone(), (pointer, agent))).collect() }
    }

    /// Gives every agent its part: ranker and reviewers by the rules, the rest have the seats.
    fn fill(mut self, mut file: PanelFile) -> Result<PanelFile, DocumentFault> {
        if let Some(Ranker::Agent { agent, .. }) = file.panel.select.as_ref().map(|select| &select.ranker) {
            file.ranker = Some(self.take(agent, "/panel/select/ranker/agent")?);
        }
        for (index, agent) in file.panel.review.iter().flat_map(|review| &review.by).enumerate() {
            file.reviewers.push(self.take(agent, &format!("/panel/review/by/{index}"))?);
        }
        if let Some((pointer, _)) = self.agents.get(&file.initiator) {
            return Err(DocumentFault::at(pointer.clone() + "/name", "the initiator has no seat"));
        }
        file.seats = self.agents.into_values().map(|(_, agent)| agent).collect();
        let is_bleu = matches!(file.panel.answer, AnswerKind::Bleu { .. });
        let seats_max = if is_bleu { BLEU_SEATS_MAX } else { SEATS_MAX };
        if !(1..=seats_max).contains(&file.seats.len()) {
            return Err(DocumentFault::at("/agents", format!("1 to {seats_max} of them have seats")));
        }
        if file.seats.len() < file.panel.min_seats as usize {
            return Err(DocumentFault::at("/panel/min_seats", format!("there are {} seats", file.seats.len())));
        }
        Ok(file)
    }

    fn take(&mut self, agent: &AgentId, pointer: &str) -> Result<StubAgent, DocumentFault> {
        let taken = self.agents.remove(agent).map(|(_, agent)| agent);
        taken.ok_or_else(|| DocumentFault::at(pointer, format!("no agent `{agent}` in `agents` that is still free")))
    }
}

/// Whether the rules are within their ranges.
fn check_rules(rules: &PanelSpec) -> Result<(), DocumentFault> {
    let (select, review) = (rules.select.as_ref(), rules.review.as_ref());
    let rank_ms = match select.map(|select| &select.ranker) {
        Some(Ranker::Agent { rank_ms, .. }) => Some(*rank_ms),
        Some(Ranker::Support | Ranker::Rating | Ranker::Hash) | None => None,
    };
    let rounds = u64::from(rules.rounds);
    check_ranges([
        ("/rounds", Some(rounds), 1, u64::from(PANEL_ROUNDS_MAX)),
        ("/answer_ms", Some(rules.answer_ms), 1, TIMER_MS_MAX),
        ("/consensus_from", Some(u64::from(rules.consensus_from)), 0, rounds),
        ("/min_seats", Some(u64::from(rules.min_seats)), 1, SEATS_MAX as u64),
        ("/max_strikes", Some(u64::from(rules.max_strikes)), 1, u64::from(STRIKES_MAX)),
        ("/select/after_round", select.map(|select| u64::from(select.after_round)), 1, rounds.saturating_sub(1)),
        ("/select/keep", select.map(|select| u64::from(select.keep)), 1, u64::from(KEEP_MAX)),
        ("/select/if_more_than", select.map(|select| u64::from(select.if_more_than)), 0, SEATS_MAX as u64),
        ("/select/ranker/rank_ms", rank_ms, 1, TIMER_MS_MAX),
        ("/review/by", review.map(|review| review.by.len() as u64), 1, REVIEWERS_MAX as u64),
        ("/review/review_ms", review.map(|review| review.review_ms), 1, TIMER_MS_MAX),
    ])?;
    if rules.choose.is_some() {
        return Err(DocumentFault::at("/choose", "a file names its seats: nobody is chosen"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
