//! How a scripted panelist behaves, as a document says it.

use std::collections::BTreeMap;

use schemas::ids::DomainName;
use schemas::panel::{PANEL_ROUNDS_MAX, RATING_MAX, RATING_MIN};
use serde::Deserialize;

use crate::fault::DocumentFault;

/// How a scripted panelist behaves. Probabilities are 0 to 1.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StubProfile {
    /// How often it finds the right answer by itself, by domain.
    pub accuracy: BTreeMap<DomainName, f64>,
    /// How often it keeps its last answer, under [`AnswerStyle::Debate`].
    pub holds: f64,
    /// How often it takes a right answer for right and a wrong one for wrong.
    pub discernment: f64,
    /// How it rates.
    pub rates: Rating,
    /// How it finds its answers.
    pub answers: AnswerStyle,
    /// How often it says nothing to an ask.
    pub silent: f64,
    /// The name of the ring it belongs to, under [`Rating::Ring`].
    pub ring: Option<String>,
    /// What it says, under [`AnswerStyle::Script`]: an entry for each round, the last one from then on.
    pub script: Vec<AnswerScript>,
}

impl Default for StubProfile {
    fn default() -> Self {
        Self {
            accuracy: BTreeMap::new(),
            holds: 0.5,
            discernment: 0.5,
            rates: Rating::Honest,
            answers: AnswerStyle::Redraw,
            silent: 0.0,
            ring: None,
            script: Vec::new(),
        }
    }
}

/// How a scripted panelist rates peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Rating {
    /// What it takes for right 4 or 5, what it takes for wrong 1 or 2.
    Honest,
    /// Everybody else 1.
    #[serde(rename = "self")]
    #[strum(serialize = "self")]
    SelfOnly,
    /// The members of its ring 5, whom it knows by a mark in their texts; everybody else 1.
    Ring,
    /// What it takes for right 1 or 2, what it takes for wrong 4 or 5.
    Inverse,
}

/// How a scripted panelist finds its answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AnswerStyle {
    /// In every round by itself: right as often as its accuracy, otherwise a wrong one, each as likely.
    Redraw,
    /// At first by itself; then its own last answer, or a peer's, the better it rated that the likelier.
    Debate,
    /// The first wrong one, always.
    Liar,
    /// Its own name, with which nobody agrees.
    Dissent,
    /// As its script says.
    Script,
}

impl AnswerStyle {
    /// Whether it needs to know the options and which of them is right.
    #[must_use]
    pub fn needs_options(self) -> bool {
        match self {
            Self::Redraw | Self::Debate | Self::Liar => true,
            Self::Dissent | Self::Script => false,
        }
    }

    /// Whether it needs an accuracy.
    #[must_use]
    pub fn needs_accuracy(self) -> bool {
        match self {
            Self::Redraw | Self::Debate => true,
            Self::Liar | Self::Dissent | Self::Script => false,
        }
    }
}

/// What a scripted panelist says to the ask of one round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerScript {
    /// Its answer; none: no opinion.
    pub answer: Option<String>,
    /// How it came to it.
    pub text: Option<String>,
    /// How it rates peers, by their texts or their answers; 3 where neither is named. Empty: it rates nobody.
    pub ratings: BTreeMap<String, u32>,
    /// As the ranker, how it orders answers: by their texts or answers, the best first. The others follow as it saw them.
    pub order: Vec<String>,
    /// It says nothing.
    pub silent: bool,
    /// It leaves, with this reason.
    pub refuse: Option<String>,
}

impl StubProfile {
    /// # Errors
    /// A [`DocumentFault`], its pointer inside of the profile.
    pub fn check(&self) -> Result<(), DocumentFault> {
        let accuracies = self.accuracy.iter().map(|(domain, chance)| (format!("/accuracy/{domain}"), *chance));
        let chances = [("/holds", self.holds), ("/discernment", self.discernment), ("/silent", self.silent)];
        let chances = chances.map(|(pointer, chance)| (pointer.to_owned(), chance));
        if let Some((pointer, _)) = chances.into_iter().chain(accuracies).find(|(_, p)| !(0.0..=1.0).contains(p)) {
            return Err(DocumentFault::at(pointer, "a probability from 0 to 1"));
        }
        if (self.rates == Rating::Ring) != self.ring.is_some() {
            return Err(DocumentFault::at("/ring", "who rates a `ring` names it, and nobody else does"));
        }
        if (self.answers == AnswerStyle::Script) == self.script.is_empty() {
            return Err(DocumentFault::at("/script", "who answers by `script` has one, and nobody else does"));
        }
        if self.script.len() > PANEL_ROUNDS_MAX as usize {
            return Err(DocumentFault::at("/script", format!("at most {PANEL_ROUNDS_MAX} rounds")));
        }
        for (round, said) in self.script.iter().enumerate() {
            said.check().map_err(|fault| fault.under(&format!("/script/{round}")))?;
        }
        Ok(())
    }
}

impl AnswerScript {
    fn check(&self) -> Result<(), DocumentFault> {
        match self.ratings.iter().find(|(_, rating)| !(RATING_MIN..=RATING_MAX).contains(rating)) {
            Some((peer, _)) => {
                let pointer = format!("/ratings/{}", peer.replace('~', "~0").replace('/', "~1"));
                Err(DocumentFault::at(pointer, format!("{RATING_MIN} to {RATING_MAX}")))
            }
            None => Ok(()),
        }
    }
}
