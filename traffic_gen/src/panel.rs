//! Panels of scripted agents on a running exchange.
//!
//! | module | question it answers |
//! |---|---|
//! | [`PlayedPanel`] | what came of one? |
//! | [`load`] | what comes of many on a running exchange? |
//! | [`population`] | who answers, and who calls, on a running exchange? |
//! | [`tally`] | what came of many? |

pub mod load;
pub mod population;
pub mod tally;

use std::collections::BTreeMap;
use std::fmt;

use agents::panel::StubQuestion;
use schemas::delivery::{Ask, Finding, PanelistReport, ReviewerReport};
use schemas::{AgentId, NegotiationId};
use serde::Serialize;

use population::PanelEnd;

/// The asks of one panel, as those counted them who were asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AsksCounted {
    /// By agent.
    pub by_agent: BTreeMap<AgentId, u32>,
    /// To seats.
    pub answers: u32,
    /// To the ranker.
    pub ranks: u32,
    /// To reviewers.
    pub reviews: u32,
    /// The last round anybody was asked in.
    pub rounds: u32,
}

impl AsksCounted {
    /// Counts an ask to an agent.
    pub fn count(&mut self, agent: &AgentId, ask: &Ask) {
        *self.by_agent.entry(agent.clone()).or_default() += 1;
        self.rounds = self.rounds.max(ask.round);
        let kind = match (ask.rank, ask.review) {
            (Some(_), _) => &mut self.ranks,
            (None, true) => &mut self.reviews,
            (None, false) => &mut self.answers,
        };
        *kind += 1;
    }

    /// All of them.
    pub fn total(&self) -> u32 {
        self.answers + self.ranks + self.reviews
    }

    /// Whether the exchange says it asked as often.
    pub fn are_those_of(&self, finding: &Finding) -> bool {
        let calls = &finding.calls;
        (self.answers, self.ranks, self.reviews) == (calls.answers, calls.ranks, calls.reviews)
    }
}

/// What came of one panel.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, Serialize)]
pub struct PlayedPanel {
    /// The panel.
    pub panel: NegotiationId,
    /// How it ended.
    pub outcome: &'static str,
    /// What ended it.
    pub detail: Option<String>,
    /// The asks, counted by the agents.
    pub asks: AsksCounted,
    /// The result, where there is one.
    pub finding: Option<Finding>,
    /// Whether the result is right, where the file says what is.
    pub is_right: Option<bool>,
}

impl PlayedPanel {
    /// What came of a panel, and whether that is right, where that is known.
    pub fn of(question: Option<&StubQuestion>, end: PanelEnd) -> Self {
        let PanelEnd { panel, finding, closing, asks } = end;
        let answer = finding.as_ref().map(|finding| &*finding.answer);
        let is_right = question.map(|question| answer == Some(question.right.as_str()));
        Self { panel, outcome: closing.outcome.as_str(), detail: closing.detail, asks, finding, is_right }
    }
}

impl fmt::Display for PlayedPanel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AsksCounted { answers, ranks, reviews, rounds, .. } = self.asks;
        let detail = self.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let (asks, plural) = (self.asks.total(), if rounds == 1 { "" } else { "s" });
        writeln!(f, "{}: {}{detail} after {asks} asks in {rounds} round{plural}", self.panel, self.outcome)?;
        writeln!(f, "asked   {answers} answers, {ranks} orders, {reviews} reviews")?;
        let Some(finding) = &self.finding else { return write!(f, "result  none") };
        let right = match self.is_right {
            Some(true) => ", which is right",
            Some(false) => ", which is wrong",
            None => "",
        };
        let Finding { answer, agreed, of, round, stopped, .. } = finding;
        writeln!(
            f,
            "result  {answer}{right}: {agreed} of {of} agree in round {round}; stopped by {}",
            stopped.as_str()
        )?;
        write!(
            f,
            "{:<16} {:>5}  {:<16} {:>6} {:>10} {:>6}",
            "panelist", "asked", "answer", "agrees", "importance", "share"
        )?;
        finding.panelists.iter().try_for_each(|panelist| self.write_panelist(f, panelist))?;
        if finding.reviewers.is_empty() {
            return Ok(());
        }
        write!(f, "\n{:<16} {:>5}  {:<16} {:>6} {:>10} {:>6}", "reviewer", "asked", "", "", "importance", "share")?;
        finding.reviewers.iter().try_for_each(|reviewer| self.write_reviewer(f, reviewer))
    }
}

impl PlayedPanel {
    fn asked(&self, agent: &AgentId) -> u32 {
        self.asks.by_agent.get(agent).copied().unwrap_or(0)
    }

    fn write_reviewer(&self, f: &mut fmt::Formatter<'_>, reviewer: &ReviewerReport) -> fmt::Result {
        let (agent, asked) = (reviewer.agent.as_str(), self.asked(&reviewer.agent));
        let (importance, share) = (as_unit(reviewer.total_e12, 1e12), as_unit(reviewer.relative_ppm, 1e6));
        write!(f, "\n{agent:<16} {asked:>5}  {:<16} {:>6} {importance:>10.6} {share:>6.2}", "", "")
    }

    fn write_panelist(&self, f: &mut fmt::Formatter<'_>, panelist: &PanelistReport) -> fmt::Result {
        let asked = self.asked(&panelist.agent);
        let answer: String = panelist.answer.as_deref().unwrap_or("-").chars().take(16).collect();
        let agrees = if panelist.agreed { "yes" } else { "no" };
        let (importance, share) = (as_unit(panelist.total_e12, 1e12), as_unit(panelist.relative_ppm, 1e6));
        write!(
            f,
            "\n{:<16} {asked:>5}  {answer:<16} {agrees:>6} {importance:>10.6} {share:>6.2}",
            panelist.agent.as_str()
        )
    }
}

/// A fixed-point number, to be shown.
fn as_unit(value: u64, unit: f64) -> f64 {
    value as f64 / unit
}
