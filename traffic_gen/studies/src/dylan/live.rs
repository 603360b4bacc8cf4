//! Panels whose seats a model takes, an endpoint's or a stub's: questions whose answers are known are put to them, and their messages
//! are folded as an engine folds them. Prompts are this repository's own, so that figures of the paper say what others have
//! reached, and no more.

use std::fmt;
use std::sync::Arc;

use agents::fault::{DocumentFault, read_json};
use agents::model::panelist::PanelQuestion;
use agents::model::{ModelAgentConfig, ModelTotals, Subject};
use schemas::delivery::Ask;
use schemas::panel::{OPTIONS_MAX, PanelAnswer};
use schemas::payload::TEXT_LEN_MAX;
use schemas::{AgentId, NegotiationId, Timestamp};
use serde::{Deserialize, Serialize};
use telemetry::TraceContext;

use super::folded::{FoldedPanels, rules};
use crate::model::blocking::BlockingConsultant;

/// What the paper reports of four agents on MMLU: accuracy of one alone, then accuracy and calls of the panel.
const PAPER: (f64, f64, f64) = (0.664, 0.705, 4.39);

/// A question whose answer is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveQuestion {
    /// The question.
    pub task: String,
    /// Its possible answers.
    pub options: Vec<String>,
    /// Which of them is right.
    pub right: String,
}

impl LiveQuestion {
    /// Reads questions, a JSON document on each line that is not blank.
    ///
    /// # Errors
    /// The number of the first line that is at fault, from 1, and what is wrong with it.
    pub fn read_all(text: &str) -> Result<Vec<Self>, (usize, DocumentFault)> {
        let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
        lines.map(|(number, line)| Self::read(line).map_err(|fault| (number, fault))).collect()
    }

    fn read(line: &str) -> Result<Self, DocumentFault> {
        let question: Self = read_json(line)?;
        if !(1..=TEXT_LEN_MAX).contains(&question.task.chars().count()) {
            return Err(DocumentFault::at("/task", format!("1 to {TEXT_LEN_MAX} characters")));
        }
        let is_once =
            |option: &String| question.options.iter().filter(|other| other.eq_ignore_ascii_case(option)).count() == 1;
        if !(2..=OPTIONS_MAX).contains(&question.options.len()) || !question.options.iter().all(is_once) {
            let expected = format!("2 to {OPTIONS_MAX} options that differ by more than the case of letters");
            return Err(DocumentFault::at("/options", expected));
        }
        if !question.options.contains(&question.right) {
            return Err(DocumentFault::at("/right", "one of the options"));
        }
        Ok(question)
    }
}

/// What is asked of a run.
#[derive(Debug, Clone)]
pub struct LivePlan {
    /// Seats of each panel.
    pub panelists: usize,
    /// The questions, each to a panel of its own.
    pub questions: Vec<LiveQuestion>,
    /// The file of the model.
    pub config: Arc<ModelAgentConfig>,
    /// Makes the markers around words of others.
    pub marker_seed: u64,
}

/// What one question came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LiveRow {
    /// The panel's answer; none where nobody gave one.
    pub answer: Option<String>,
    /// Whether it is right.
    pub is_right: bool,
    /// Asks.
    pub calls: u64,
    /// Answers of the first round, each of one agent alone.
    pub alone: u64,
    /// How many of these are right.
    pub alone_right: u64,
    /// Asks that the model gave no usable answer to.
    pub unanswered: u64,
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct LiveReport {
    /// `stub` where every answer was the stub's, otherwise `live`.
    pub label: &'static str,
    /// The model's name.
    pub model: String,
    /// Seats of each panel.
    pub panelists: usize,
    /// Of each question, in their order.
    pub rows: Vec<LiveRow>,
    /// What the model was asked, and what that cost.
    pub totals: ModelTotals,
}

/// Plays a panel for each question, one after another; `show` is told how many there were.
pub fn run(plan: &LivePlan, consultant: &BlockingConsultant, show: &dyn Fn(usize)) -> LiveReport {
    let mut panels = FoldedPanels::default();
    let agent = |name: &str| AgentId::try_new(name).expect("a word and a number are a name");
    let seats: Vec<AgentId> = (1..=plan.panelists).map(|number| agent(&format!("panelist-{number}"))).collect();
    let mut rows = Vec::new();
    for (number, question) in plan.questions.iter().enumerate() {
        let initiator = agent("initiator");
        let panel =
            NegotiationId::form(&initiator, &format!("question-{number}")).expect("a word and a number are an id");
        let mut row = LiveRow::default();
        let says = |agent: &AgentId, ask: &Ask| {
            let answer = plan.consulted(consultant, &panel, agent, ask);
            row.note(question, ask, answer.as_ref());
            // Without an answer of the model a seat has no opinion.
            let none = || PanelAnswer { round: ask.round, answer: Some(None), ..PanelAnswer::default() };
            Some(answer.unwrap_or_else(none))
        };
        let played = panels.ask(&initiator, (&rules("live", &question.options, None), &question.task), &seats, says);
        row.answer = played.answer.map(|answer| answer.to_string());
        row.is_right = row.answer.as_ref() == Some(&question.right);
        rows.push(row);
        show(number + 1);
    }
    let totals = consultant.totals();
    let label = if totals.answers == totals.stub_answers { "stub" } else { "live" };
    LiveReport { label, model: plan.config.model.name.clone(), panelists: plan.panelists, rows, totals }
}

impl LivePlan {
    /// What the model says to an ask, within the time that its file gives all attempts and repairs.
    fn consulted(
        &self,
        consultant: &BlockingConsultant,
        panel: &NegotiationId,
        agent: &AgentId,
        ask: &Ask,
    ) -> Option<PanelAnswer> {
        let model = &self.config.model;
        let patience_ms = model.timeout_ms.saturating_mul(u64::from(model.attempts + model.repairs));
        let subject = Subject {
            agent: agent.clone(),
            negotiation: panel.clone(),
            context: TraceContext::of(None, panel),
            asked_at: Timestamp(0),
            deadline: Timestamp(0).plus_ms(patience_ms),
        };
        let marker_seed = retry::hash(agent.as_str(), self.marker_seed);
        let question = PanelQuestion::new(panel, ask, None, &self.config.panel.instructions, marker_seed);
        consultant.consult(&subject, question).ok()
    }
}

impl LiveRow {
    fn note(&mut self, question: &LiveQuestion, ask: &Ask, answer: Option<&PanelAnswer>) {
        self.calls += 1;
        self.unanswered += u64::from(answer.is_none());
        if ask.round == 1 {
            let said = answer.and_then(|answer| answer.answer.as_ref()?.as_deref());
            self.alone += 1;
            self.alone_right += u64::from(said == Some(question.right.as_str()));
        }
    }
}

impl LiveReport {
    fn sum(&self, of: impl Fn(&LiveRow) -> u64) -> f64 {
        self.rows.iter().map(of).sum::<u64>() as f64
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (questions, (alone, panel, calls)) = (self.rows.len() as f64, PAPER);
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let ours_alone = share(self.sum(|row| row.alone_right), self.sum(|row| row.alone));
        let ours = share(self.sum(|row| row.is_right.into()), questions);
        let ours_calls = share(self.sum(|row| row.calls), questions);
        let Self { label, model, panelists, totals, .. } = self;
        writeln!(f, "model {model} ({label}), {panelists} panelists, {questions} questions")?;
        writeln!(f, "{:<26} {:>14} {:>10}", "", "paper (MMLU)", format!("ours ({label})"))?;
        writeln!(f, "{:<26} {alone:>14.3} {ours_alone:>10.3}", "accuracy of one alone")?;
        writeln!(f, "{:<26} {panel:>14.3} {ours:>10.3}", "accuracy of the panel")?;
        writeln!(f, "{:<26} {calls:>14.2} {ours_calls:>10.2}", "calls a question")?;
        let ModelTotals { calls, usage, cost, repairs, .. } = totals;
        let unanswered = self.sum(|row| row.unanswered);
        write!(
            f,
            "{calls} calls of the model, {} tokens in, {} out, {cost} micro-units; {repairs} repairs, {unanswered} asks without an answer",
            usage.input, usage.output
        )
    }
}

#[cfg(test)]
mod tests {
    use agents::model::StubModel;
    use agents::model::stub::{StubBehaviour, StubScript, StubValue};
    use serde_json::json;

    use super::*;
    use crate::model::blocking::VirtualStub;

    fn played(script: StubScript, count: usize, panelists: usize) -> LiveReport {
        let question = json!({"task": "Which is prime?", "options": ["A", "B", "C", "D"], "right": "B"}).to_string();
        let questions = LiveQuestion::read_all(&vec![question; count].join("\n\n")).unwrap();
        let mut config = ModelAgentConfig::default();
        (config.model.calls_per_negotiation, config.model.tokens_per_negotiation) = (100, 1_000_000);
        let stub =
            BlockingConsultant::Stub(Box::new(VirtualStub::new(StubModel::new(script, 1), config.model.clone())));
        let plan = LivePlan { panelists, questions, config: Arc::new(config), marker_seed: 7 };
        run(&plan, &stub, &|_| {})
    }

    #[test]
    fn a_model_that_is_always_right_is_asked_as_often_as_a_consensus_takes() {
        let answer = [("answer".to_owned(), StubValue::Text("B".to_owned()))].into();
        let report = played(StubScript { answer, ..StubScript::default() }, 3, 4);
        let row =
            LiveRow { answer: Some("B".to_owned()), is_right: true, calls: 3, alone: 3, alone_right: 3, unanswered: 0 };
        assert_eq!((report.label, report.rows.as_slice()), ("stub", &[row.clone(), row.clone(), row][..]));
        let shown = report.to_string();
        assert!(shown.contains("accuracy of the panel") && shown.contains("0.705      1.000"), "{shown}");
    }

    /// Three answers in ten are of no use as they are, in ways that are drawn.
    #[test]
    fn with_faulty_answers_every_panel_ends_and_nearly_all_with_a_result() {
        let shares = [
            (StubBehaviour::Good, 70),
            (StubBehaviour::Junk, 5),
            (StubBehaviour::Truncated, 5),
            (StubBehaviour::WrongType, 5),
            (StubBehaviour::OtherAct, 5),
            (StubBehaviour::Empty, 5),
            (StubBehaviour::Failed, 5),
        ];
        let report = played(StubScript { shares: shares.into(), ..StubScript::default() }, 100, 5);
        assert_eq!(report.rows.len(), 100);
        assert!(report.rows.iter().filter(|row| row.answer.is_some()).count() >= 99);
        // Five, five, and the two that are kept.
        assert!(report.rows.iter().all(|row| (4..=12).contains(&row.calls)), "{:?}", report.rows);
        assert!(report.sum(|row| row.unanswered) < 0.1 * report.sum(|row| row.calls), "repairs help: {report}");
        let silent = played(StubScript { shares: [(StubBehaviour::Junk, 1)].into(), ..StubScript::default() }, 2, 4);
        assert!(silent.rows.iter().all(|row| row.answer.is_none() && row.unanswered == row.calls));
    }

    #[test]
    fn questions_at_fault_are_named_by_line_and_place() {
        let good = r#"{"task": "x", "options": ["A", "B"], "right": "A"}"#;
        for (bad, pointer) in [
            (r#"{"task": "", "options": ["A", "B"], "right": "A"}"#, "/task"),
            (r#"{"task": "x", "options": ["A", "a"], "right": "A"}"#, "/options"),
            (r#"{"task": "x", "options": ["A"], "right": "A"}"#, "/options"),
            (r#"{"task": "x", "options": ["A", "B"], "right": "C"}"#, "/right"),
        ] {
            let (line, fault) = LiveQuestion::read_all(&format!("{good}\n\n{bad}")).unwrap_err();
            assert_eq!((line, fault.pointer.as_str()), (3, pointer));
        }
        assert_eq!(LiveQuestion::read_all("{").unwrap_err().0, 1);
    }
}
