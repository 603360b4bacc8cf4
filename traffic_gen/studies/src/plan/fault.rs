//! What is wrong with a plan.

use std::fmt;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub remedy: String,
}

/// Everything that is wrong with a plan, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PlanFaults {
    /// The file, as it is to be named.
    pub name: String,
    /// One at least.
    pub faults: Vec<PlanFault>,
}

impl fmt::Display for PlanFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, PlanFault { line, column, what, remedy }) in self.faults.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{line}:{column}: {what}; {remedy}", self.name)?;
        }
        Ok(())
    }
}

/// Collects faults with their places in a text.
pub struct FaultList<'a> {
    text: &'a str,
    found: Vec<PlanFault>,
}

impl<'a> FaultList<'a> {
    /// None yet.
    pub fn new(text: &'a str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// One more, at the beginning of a span.
    pub fn add(&mut self, span: &Range<usize>, what: impl Into<String>, remedy: impl Into<String>) {
        let (what, remedy) = (what.into(), remedy.into());
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
        self.found.push(PlanFault { line, column, what, remedy });
    }

    /// One more, unless a value is fine.
    pub fn check<T: fmt::Display>(&mut self, name: &str, value: &Spanned<T>, is_fine: bool, remedy: impl Into<String>) {
        if !is_fine {
            self.add(&value.span(), format!("{name} is {}", value.get_ref()), remedy);
        }
    }

    /// A number, unless it is out of range: that is one more.
    pub fn number(
        &mut self,
        name: &str,
        value: &Spanned<i64>,
        range: RangeInclusive<u32>,
        remedy: impl Into<String>,
    ) -> Option<u32> {
        let number = u32::try_from(*value.get_ref()).ok().filter(|number| range.contains(number));
        self.check(name, value, number.is_some(), remedy);
        number
    }

    /// What the parser says of a text that is no plan at all.
    pub fn add_unreadable(&mut self, error: &toml::de::Error) {
        let message = error.message();
        let remedy = if message.starts_with("missing field") {
            "add it; `llmx-lab experiment show policies` is an example"
        } else if message.starts_with("unknown field") {
            &nearest_in(message).map_or("take it out".to_owned(), |name| format!("did you mean `{name}`?"))
        } else if message.starts_with("invalid type") || message.starts_with("invalid value") {
            "write it as docs/experiments.md says"
        } else {
            "write TOML, as in `llmx-lab experiment show policies`"
        };
        self.add(&error.span().unwrap_or(0..0), message, remedy);
    }

    /// What was found, in the order of the text.
    ///
    /// # Errors
    /// [`PlanFaults`] where anything was.
    pub fn finish(mut self, name: &str) -> Result<(), PlanFaults> {
        self.found.sort_by_key(|fault| (fault.line, fault.column));
        // A value that stands for several populations or sizes is looked at once for each.
        self.found.dedup();
        if self.found.is_empty() { Ok(()) } else { Err(PlanFaults { name: name.to_owned(), faults: self.found }) }
    }
}

/// The name that is nearest to what was written, if any is near.
pub fn nearest<'n>(found: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const NEAR: f64 = 0.7;
    let near = names.map(|name| (strsim::jaro_winkler(found, name), name)).filter(|(likeness, _)| *likeness >= NEAR);
    near.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// The expected name nearest to the unknown one, from the words of the parser: names stand between backquotes.
fn nearest_in(message: &str) -> Option<&str> {
    let mut names = message.split('`').skip(1).step_by(2);
    let found = names.next()?;
    nearest(found, names)
}
