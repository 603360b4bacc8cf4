//! What panels add to the contract (docs/spec/panel.md): the rules of a panel, how its answers are compared, and what an
//! answer holds. Integers only.

use serde::{Deserialize, Deserializer, Serialize};

use crate::envelope::Address;
use crate::evidence::{EvidenceSource, RUNS_MAX, Usage};
use crate::ids::{AgentId, DomainName};
use crate::policy::{STRIKES_MAX, TIMER_MS_MAX};
use crate::terms::number;

crate::json_texts!(Box<PanelSpec>);

/// Most seats of a panel.
pub const SEATS_MAX: usize = 32;
/// Most seats of a panel whose answers are compared by BLEU: every pair of texts is compared.
pub const BLEU_SEATS_MAX: usize = 16;
/// Most rounds of answers.
pub const PANEL_ROUNDS_MAX: u32 = 8;
/// Most seats a selection keeps.
pub const KEEP_MAX: u32 = 16;
/// Most reviewers.
pub const REVIEWERS_MAX: usize = 8;
/// Most options of a choice; fewest are two.
pub const OPTIONS_MAX: usize = 64;
/// Most agents among whom seats are chosen: who they are, and what evidence said of them, stays with the panel.
pub const CANDIDATES_MAX: usize = 256;
/// Evidence of panels whose call names no domain, and is not addressed to one topic alone.
pub const DOMAIN_GENERAL: &str = "general";
/// Longest option, in characters.
pub const OPTION_LEN_MAX: usize = 256;
/// Longest separator of a set's elements, in characters.
pub const SEPARATOR_LEN_MAX: usize = 8;
/// Lowest BLEU bound, in thousandths. Below it the smoothing of sentence BLEU could reach the bound.
pub const BLEU_PERMILLE_MIN: u32 = 850;
/// The whole, in thousandths.
pub const PERMILLE: u32 = 1000;
/// Most bytes of `answer`, `text` and `reviews` of one answer together, as canonical JSON.
pub const ANSWER_BYTES_MAX: usize = 8192;
/// Lowest rating of a peer.
pub const RATING_MIN: u32 = 1;
/// Highest rating of a peer.
pub const RATING_MAX: u32 = 5;

/// The rules of one panel.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PanelSpec {
    /// Evidence is kept under this name. Absent: the name of the topic, if the call is addressed to one topic alone, else
    /// `general`.
    pub domain: Option<DomainName>,
    /// How answers are compared.
    pub answer: AnswerKind,
    /// Rounds of answers, 1 to [`PANEL_ROUNDS_MAX`].
    pub rounds: u32,
    /// Time to answer one ask, in milliseconds, 1 to a day.
    pub answer_ms: u64,
    /// How many seats are asked at once.
    pub asking: Asking,
    /// First round whose consensus ends the panel, at most `rounds`; 0: none does.
    pub consensus_from: u32,
    /// Whether peers are rated. Without ratings importance is uniform over peers, and no evidence is kept.
    pub rate: bool,
    /// Fewer seats go on after some round.
    pub select: Option<PanelSelection>,
    /// Reviewers read the answers between rounds.
    pub review: Option<ReviewSpec>,
    /// Whom the gateway invites of those addressed.
    pub choose: Option<ChooseSpec>,
    /// Fewest seats, 1 to [`SEATS_MAX`].
    pub min_seats: u32,
    /// Whether evidence is kept.
    pub evidence: bool,
    /// Messages out of turn after which a seat has left, 1 to [`crate::policy::STRIKES_MAX`].
    pub max_strikes: u32,
}

impl Default for PanelSpec {
    fn default() -> Self {
        Self {
            domain: None,
            answer: AnswerKind::default(),
            rounds: 3,
            answer_ms: 10_000,
            asking: Asking::default(),
            consensus_from: 1,
            rate: true,
            select: None,
            review: None,
            choose: None,
            min_seats: 1,
            evidence: true,
            max_strikes: 3,
        }
    }
}

/// When two answers are the same one (docs/spec/panel.md#answers).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum AnswerKind {
    /// Equal texts but for white space.
    Exact {
        /// Whether ASCII letters are equal in both cases.
        #[serde(default)]
        ignore_case: bool,
    },
    /// One of a list.
    Choice {
        /// 2 to [`OPTIONS_MAX`] texts that differ by more than the case of ASCII letters.
        options: Vec<String>,
    },
    /// Equal numbers.
    Number,
    /// Equal in the normal form of the MATH data set.
    Math,
    /// Equal sets of elements.
    Set {
        /// How elements are compared.
        of: ElementKind,
        /// What stands between elements, 1 to [`SEPARATOR_LEN_MAX`] characters.
        #[serde(default = "comma")]
        separator: String,
    },
    /// Equal documents (RFC 8785).
    Json,
    /// Texts alike: BLEU reaches a bound in both directions.
    Bleu {
        /// The bound in thousandths, [`BLEU_PERMILLE_MIN`] to [`PERMILLE`].
        #[serde(default = "number::<_, 900>")]
        at_least_permille: u32,
    },
}

impl Default for AnswerKind {
    fn default() -> Self {
        Self::Exact { ignore_case: false }
    }
}

/// How the elements of a set are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElementKind {
    /// As [`AnswerKind::Exact`].
    Exact,
    /// As [`AnswerKind::Number`].
    Number,
}

/// How many seats are asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asking {
    /// As many as a consensus takes, then as many as it still lacks.
    #[default]
    QuorumFirst,
    /// All.
    All,
}

/// Fewer seats go on after one round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanelSelection {
    /// After which round, 1 to `rounds` - 1.
    pub after_round: u32,
    /// How many go on, 1 to [`KEEP_MAX`].
    pub keep: u32,
    /// Only in panels of more seats than this, 0 to [`SEATS_MAX`].
    #[serde(default = "number::<_, 3>")]
    pub if_more_than: u32,
    /// Whether a consensus among the kept ends the panel.
    #[serde(default = "yes")]
    pub recheck: bool,
    /// Who ranks.
    #[serde(default)]
    pub ranker: Ranker,
}

/// Who ranks the answers of a round, the best first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ranker {
    /// How many agree with it; then the rating received; then the hash.
    #[default]
    Support,
    /// The rating received; then how many agree with it; then the hash.
    Rating,
    /// A hash nobody can compute before the call is logged: a control.
    Hash,
    /// An agent, which may be the initiator; where it does not answer, [`Ranker::Support`].
    Agent {
        /// The agent.
        agent: AgentId,
        /// Time to rank, in milliseconds, 1 to a day.
        #[serde(default = "number::<_, 10_000>")]
        rank_ms: u64,
    },
}

/// Reviewers read the answers of every round that did not end the panel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewSpec {
    /// 1 to [`REVIEWERS_MAX`] agents, each once, none of them a seat, the ranker or the initiator.
    pub by: Vec<AgentId>,
    /// Time to review, in milliseconds, 1 to a day.
    #[serde(default = "number::<_, 10_000>")]
    pub review_ms: u64,
}

/// Whom the gateway invites of those addressed: the best by evidence, and newcomers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChooseSpec {
    /// How many of the highest reputation, 1 to [`SEATS_MAX`].
    pub keep: u32,
    /// Whose panels count.
    #[serde(default)]
    pub from: EvidenceSource,
    /// Panels an agent needs to have a reputation, 1 to [`RUNS_MAX`].
    #[serde(default = "number::<_, 10>")]
    pub min_runs: u32,
    /// How many without enough evidence, 0 to [`SEATS_MAX`].
    #[serde(default = "number::<_, 1>")]
    pub newcomers: u32,
}

/// What `choose` came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeatChoice {
    /// The best by evidence, and newcomers.
    Chosen,
    /// Everybody: too few have a reputation yet.
    Trial,
}

/// What a seat, the ranker or a reviewer answers to an ask: exactly one of `answer`, `order` and `reviews`.
#[serde_with_macros::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PanelAnswer {
    /// The round of the ask.
    pub round: u32,
    /// Of a seat: its answer; none where it has no opinion.
    #[serde(default, deserialize_with = "present")]
    pub answer: Option<Option<String>>,
    /// Of the ranker: places in the ask's `peers`, counted from 1, the best first.
    pub order: Option<Vec<u32>>,
    /// Of a reviewer: what it says of each of the ask's `peers`.
    pub reviews: Option<Vec<Option<String>>>,
    /// How it came to the answer; shown to the others in the next round.
    pub text: Option<String>,
    /// One rating for each of those to be rated, [`RATING_MIN`] to [`RATING_MAX`]; absent: all alike.
    pub ratings: Option<Vec<u32>>,
    /// What the answer cost its sender, as it says. Decides nothing.
    pub usage: Option<Usage>,
}

/// What is wrong with the rules of a panel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {expected}")]
pub struct PanelFault {
    /// JSON pointer into the rules.
    pub pointer: String,
    /// What would have been accepted.
    pub expected: &'static str,
}

/// Checks that rules do not contradict themselves and are within their ranges.
///
/// # Errors
/// The first fault, in the order of the members of [`PanelSpec`].
pub fn check_panel(spec: &PanelSpec) -> Result<(), PanelFault> {
    check_answer_kind(&spec.answer)?;
    within((1..=PANEL_ROUNDS_MAX).contains(&spec.rounds), "/rounds", "1 to 8 rounds")?;
    within(is_timer(spec.answer_ms), "/answer_ms", "1 ms to a day")?;
    within(spec.consensus_from <= spec.rounds, "/consensus_from", "at most `rounds`")?;
    if let Some(select) = &spec.select {
        let is_before_last = select.after_round >= 1 && select.after_round < spec.rounds;
        within(is_before_last, "/select/after_round", "1 to `rounds` - 1")?;
        within((1..=KEEP_MAX).contains(&select.keep), "/select/keep", "1 to 16 seats")?;
        if let Ranker::Agent { rank_ms, .. } = &select.ranker {
            within(is_timer(*rank_ms), "/select/ranker/rank_ms", "1 ms to a day")?;
        }
    }
    if let Some(review) = &spec.review {
        within(spec.rounds > 1, "/review", "at least 2 rounds: the last is not reviewed")?;
        within((1..=REVIEWERS_MAX).contains(&review.by.len()), "/review/by", "1 to 8 reviewers")?;
        for (index, reviewer) in review.by.iter().enumerate() {
            let is_first = !review.by.iter().take(index).any(|other| other == reviewer);
            within(is_first, &format!("/review/by/{index}"), "each reviewer once")?;
        }
        within(is_timer(review.review_ms), "/review/review_ms", "1 ms to a day")?;
    }
    let seats_max = u32::try_from(SEATS_MAX).unwrap_or(u32::MAX);
    if let Some(choose) = &spec.choose {
        within((1..=seats_max).contains(&choose.keep), "/choose/keep", "1 to 32 seats")?;
        within(choose.newcomers <= seats_max, "/choose/newcomers", "at most 32 seats")?;
        within((1..=RUNS_MAX).contains(&choose.min_runs), "/choose/min_runs", "1 to 1 000 000 panels")?;
    }
    within((1..=seats_max).contains(&spec.min_seats), "/min_seats", "1 to 32 seats")?;
    within((1..=STRIKES_MAX).contains(&spec.max_strikes), "/max_strikes", "1 to 100 strikes")
}

fn check_answer_kind(kind: &AnswerKind) -> Result<(), PanelFault> {
    match kind {
        AnswerKind::Choice { options } => {
            within((2..=OPTIONS_MAX).contains(&options.len()), "/answer/options", "2 to 64 options")?;
            let earlier = |index: usize, option: &String| {
                options.iter().take(index).any(|other| other.eq_ignore_ascii_case(option))
            };
            let twice = options.iter().enumerate().find(|(index, option)| earlier(*index, option));
            let pointer = twice.map(|(index, _)| format!("/answer/options/{index}")).unwrap_or_default();
            within(twice.is_none(), &pointer, "options that differ by more than the case of letters")
        }
        AnswerKind::Set { separator, .. } => {
            let is_separator = (1..=SEPARATOR_LEN_MAX).contains(&separator.chars().count());
            within(is_separator, "/answer/separator", "1 to 8 characters")
        }
        AnswerKind::Bleu { at_least_permille } => {
            let is_bound = (BLEU_PERMILLE_MIN..=PERMILLE).contains(at_least_permille);
            within(is_bound, "/answer/at_least_permille", "850 to 1000 thousandths")
        }
        AnswerKind::Exact { .. } | AnswerKind::Number | AnswerKind::Math | AnswerKind::Json => Ok(()),
    }
}

fn is_timer(ms: u64) -> bool {
    (1..=TIMER_MS_MAX).contains(&ms)
}

fn within(holds: bool, pointer: &str, expected: &'static str) -> Result<(), PanelFault> {
    if holds { Ok(()) } else { Err(PanelFault { pointer: pointer.to_owned(), expected }) }
}

impl PanelSpec {
    /// Under which name evidence of a panel of these rules is kept, whose call is addressed to these.
    #[must_use]
    pub fn domain_of(&self, to: &[Address]) -> DomainName {
        let of_topic = if let [Address::Topic(topic)] = to { DomainName::try_new(topic.as_str()).ok() } else { None };
        let general = || DomainName::try_new(DOMAIN_GENERAL).expect("a name");
        self.domain.clone().or(of_topic).unwrap_or_else(general)
    }

    /// Most seats a panel of these rules has.
    #[must_use]
    pub const fn seats_max(&self) -> usize {
        if matches!(self.answer, AnswerKind::Bleu { .. }) { BLEU_SEATS_MAX } else { SEATS_MAX }
    }
}

impl AnswerKind {
    /// The answers there are, of a kind that lists them.
    #[must_use]
    pub fn options(&self) -> Option<&[String]> {
        if let Self::Choice { options } = self { Some(options) } else { None }
    }
}

impl PanelAnswer {
    /// The longest of `answer`, `text` and `reviews`, where all three take more than [`ANSWER_BYTES_MAX`] bytes of canonical
    /// JSON together: a JSON pointer into the payload.
    #[must_use]
    pub fn oversized(&self) -> Option<&'static str> {
        let answer = self.answer.as_ref().map_or(0, |answer| json_len(answer.as_deref()));
        let text = self.text.as_deref().map_or(0, |text| json_len(Some(text)));
        // With each the comma, or the bracket, behind it.
        let listed =
            |reviews: &Vec<Option<String>>| reviews.iter().map(|one| json_len(one.as_deref()) + 1).sum::<usize>();
        let reviews = self.reviews.as_ref().map_or(0, |reviews| (listed(reviews) + 1).max("[]".len()));
        let members = [(answer, "/answer"), (text, "/text"), (reviews, "/reviews")];
        let longest = members.into_iter().max_by_key(|(bytes, _)| *bytes);
        longest.filter(|_| answer + text + reviews > ANSWER_BYTES_MAX).map(|(_, pointer)| pointer)
    }
}

/// Bytes of a text, or of `null`, as compact JSON, which is its canonical form.
fn json_len(text: Option<&str>) -> usize {
    let Some(text) = text else { return "null".len() };
    let count = |is_meant: fn(&u8) -> bool| text.as_bytes().iter().filter(|byte| is_meant(byte)).count();
    let quoted = count(|byte| matches!(byte, b'"' | b'\\'));
    let named = count(|byte| matches!(byte, 0x08 | b'\t' | b'\n' | 0x0c | b'\r'));
    let numbered = count(|byte| *byte < 0x20) - named;
    // `\"`, `\n` and `\u0000` in the place of one byte.
    "\"\"".len() + text.len() + quoted + named + 5 * numbered
}

/// A member that is there, `null` included.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(source: D) -> Result<Option<T>, D::Error> {
    T::deserialize(source).map(Some)
}

const fn yes() -> bool {
    true
}
fn comma() -> String {
    ",".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_object_is_a_panel_of_the_defaults() {
        let spec: PanelSpec = serde_json::from_value(json!({})).unwrap();
        assert_eq!(spec.answer, AnswerKind::Exact { ignore_case: false });
        assert_eq!((spec.rounds, spec.answer_ms, spec.consensus_from, spec.min_seats), (3, 10_000, 1, 1));
        assert_eq!((spec.asking, spec.rate, spec.evidence, spec.max_strikes), (Asking::QuorumFirst, true, true, 3));
        let select: PanelSelection = serde_json::from_value(json!({"after_round": 2, "keep": 2})).unwrap();
        assert_eq!((select.if_more_than, select.recheck, select.ranker), (3, true, Ranker::Support));
    }

    #[test]
    fn rules_that_contradict_themselves_are_faulted_where_they_do() {
        let faulted = |rules: serde_json::Value| check_panel(&serde_json::from_value(rules).unwrap()).err();
        assert_eq!(faulted(json!({})), None);
        assert_eq!(faulted(json!({"rounds": 2, "review": {"by": ["ann"]}})), None);
        assert_eq!(faulted(json!({"select": {"after_round": 2, "keep": 2}, "consensus_from": 3})), None);
        for (rules, pointer) in [
            (json!({"select": {"after_round": 3, "keep": 2}}), "/select/after_round"),
            (json!({"select": {"after_round": 0, "keep": 2}}), "/select/after_round"),
            (json!({"consensus_from": 4}), "/consensus_from"),
            (json!({"answer": {"kind": "choice", "options": ["a", "b", "A"]}}), "/answer/options/2"),
            (json!({"answer": {"kind": "bleu", "at_least_permille": 849}}), "/answer/at_least_permille"),
            (json!({"answer": {"kind": "set", "of": "exact", "separator": ""}}), "/answer/separator"),
            (json!({"review": {"by": ["ann", "bob", "ann"]}}), "/review/by/2"),
            (json!({"rounds": 1, "review": {"by": ["ann"]}}), "/review"),
            (json!({"rounds": 9}), "/rounds"),
            (json!({"min_seats": 33}), "/min_seats"),
            (json!({"max_strikes": 0}), "/max_strikes"),
        ] {
            assert_eq!(faulted(rules.clone()).map(|fault| fault.pointer).as_deref(), Some(pointer), "{rules}");
        }
    }

    #[test]
    fn an_answer_is_measured_as_it_is_escaped_and_the_longest_member_is_at_fault() {
        let said = |answer: usize, text: usize| PanelAnswer {
            answer: Some(Some("a".repeat(answer))),
            text: Some("\u{1}".repeat(text)),
            ..PanelAnswer::default()
        };
        assert_eq!(said(8188, 0).oversized(), None);
        assert_eq!(said(8189, 0).oversized(), Some("/answer"));
        assert_eq!(said(2000, 1031).oversized(), None);
        assert_eq!(said(2000, 1032).oversized(), Some("/text"));
    }

    #[test]
    fn texts_are_measured_as_they_would_be_written() {
        let letters: String = (0..=0x7f_u8).map(char::from).chain(['\u{80}', 'é', '\u{2028}', '😀']).collect();
        let texts = letters.chars().map(String::from).chain([String::new(), letters.clone()]);
        for text in texts {
            assert_eq!(json_len(Some(&text)), serde_json::to_string(&text).unwrap().len(), "{text:?}");
        }
        let review = |letters: usize| Some("r".repeat(letters));
        // `[` and `]`, a comma between two, and `null` for none.
        for (reviews, room) in [(vec![], 8190), (vec![None], 8186), (vec![review(3), None, review(0)], 8177)] {
            let said = |letters| PanelAnswer {
                text: Some("t".repeat(letters)),
                reviews: Some(reviews.clone()),
                ..PanelAnswer::default()
            };
            assert_eq!(
                [said(room - 2), said(room - 1)].map(|said| said.oversized()),
                [None, Some("/text")],
                "{reviews:?}"
            );
        }
    }

    #[test]
    fn no_opinion_is_an_answer_and_a_missing_answer_is_none() {
        let said: PanelAnswer = serde_json::from_value(json!({"round": 1, "answer": null})).unwrap();
        assert_eq!(said.answer, Some(None));
        assert_eq!(serde_json::to_value(&said).unwrap(), json!({"round": 1, "answer": null}));
        let silent: PanelAnswer = serde_json::from_value(json!({"round": 1, "order": [1]})).unwrap();
        assert_eq!((silent.answer, silent.order), (None, Some(vec![1])));
    }
}
