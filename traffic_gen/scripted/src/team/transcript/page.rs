//! A transcript as a person reads it.

use std::fmt;

use schemas::AgentId;
use schemas::delivery::Outcome;
use schemas::team::{TaskStatus, TeamTask};

use super::{ActKind, TeamAct, TeamStory, Transcript};

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for story in &self.teams {
            writeln!(f, "{story}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "transcript {digest}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TeamStory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.members.iter().map(AgentId::as_str).collect();
        writeln!(f, "team {}: {}", self.team, names.join(", "))?;
        for agent in &self.declined {
            writeln!(f, "       {agent} declined")?;
        }
        for TeamAct { turn, by, what, .. } in &self.acts {
            let by = by.as_ref().map_or("", |by| by.as_str());
            match what {
                ActKind::Formed | ActKind::Moved => {}
                ActKind::Said { text } => writeln!(f, "  {turn:>3}  {by}: {text}")?,
                ActKind::Repeated { step } => writeln!(f, "  {turn:>3}  {by} repeats step {step}")?,
                ActKind::Assigned { tasks } => writeln!(f, "  {turn:>3}  {by} assigns {}", self.named(tasks))?,
                ActKind::Paused { tasks } => writeln!(f, "  {turn:>3}  {by} waits for {}", self.named(tasks))?,
                ActKind::Proposed { text } => writeln!(f, "  {turn:>3}  {by} proposes: {text}")?,
                ActKind::Refused { disposition, reason } => {
                    let said = [disposition.as_ref().map(|disposition| disposition.as_str()), reason.as_deref()];
                    let said: Vec<&str> = said.into_iter().flatten().collect();
                    writeln!(f, "  {turn:>3}  {by} is refused: {}", said.join(", "))?;
                }
                ActKind::Ended { tasks } => {
                    for task in tasks.iter().filter_map(|number| self.tasks.get(number)) {
                        writeln!(f, "       {}", ended(task))?;
                    }
                }
            }
        }
        let outcome = self.outcome.map_or("open", Outcome::as_str);
        let detail = self.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        write!(f, "  {outcome}{detail}")?;
        if let (Some(by), Some(text)) = (&self.concluded_by, &self.conclusion) {
            let votes = self.votes.map(|(yes, no)| format!(", {yes} to {no}")).unwrap_or_default();
            write!(f, " by {by}{votes}: {text}")?;
        }
        writeln!(f)
    }
}

impl TeamStory {
    /// Tasks by number and title.
    fn named(&self, tasks: &[u32]) -> String {
        let name = |number: &u32| match self.tasks.get(number) {
            Some(TeamTask { title: Some(title), owner: Some(owner), .. }) => format!("{number} {title} ({owner})"),
            Some(TeamTask { title: Some(title), .. }) => format!("{number} {title}"),
            Some(_) | None => number.to_string(),
        };
        tasks.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// How a task ended.
fn ended(task: &TeamTask) -> String {
    let TeamTask { task: number, status, owner, result, code, .. } = task;
    let by = owner.as_ref().map(|owner| format!(" by {owner}")).unwrap_or_default();
    match status {
        TaskStatus::Done => format!("task {number} done{by}: {}", result.as_deref().unwrap_or("without a result")),
        TaskStatus::Failed => format!("task {number} failed{by}: {}", code.as_deref().unwrap_or("no code")),
        TaskStatus::Open | TaskStatus::Running => format!("task {number}{by}"),
    }
}
