//! Commands that `llmx` had and `llmx-lab` has: each answers with the line to type instead.

use std::ffi::OsString;

use crate::arguments::quoted;
use crate::output::Failure;

/// What a command line that has moved begins with.
const MOVED: [&str; 15] = [
    "agora demo",
    "bargain",
    "bench",
    "chaos",
    "experiment",
    "model-stub",
    "panel choose",
    "panel evidence",
    "panel parse",
    "panel play",
    "panel score",
    "report",
    "simulate",
    "soak",
    "team",
];

/// What is answered to the arguments of a command that has moved, or to a question for its help; nothing to any other.
pub fn answer(args: impl Iterator<Item = OsString>) -> Option<Failure> {
    let mut args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let help = args.first().is_some_and(|arg| arg == "help").then(|| args.remove(0));
    let begins =
        |old: &str| old.split(' ').enumerate().all(|(place, word)| args.get(place).is_some_and(|arg| arg == word));
    let old = MOVED.into_iter().find(|old| begins(old))?;
    let new = match old {
        "agora demo" if help.is_some() || args.iter().any(|arg| arg.starts_with("--seeds")) => "experiment agora",
        "agora demo" => "experiment agora --seeds 1",
        _ => old,
    };
    let rest = args.iter().skip(old.split(' ').count()).map(|arg| quoted(arg));
    let line: Vec<String> = help.into_iter().chain([new.to_owned()]).chain(rest).collect();
    Some(Failure::configuration(format_args!(
        "`llmx {old}` has moved; type: llmx-lab {} (built by: cargo build --release -p llmx -p llmx_lab)",
        line.join(" ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_has_moved_answers_with_the_line_to_type() {
        let answered = |line: &[&str]| answer(line.iter().map(OsString::from)).map(|failure| failure.to_string());
        for (line, types) in [
            (vec!["bench", "--quick"], "type: llmx-lab bench --quick ("),
            (vec!["panel", "play", "my file.json"], "type: llmx-lab panel play 'my file.json' ("),
            (vec!["agora", "demo", "--live"], "type: llmx-lab experiment agora --seeds 1 --live ("),
            (vec!["team", "goal", "it's"], "type: llmx-lab team goal 'it'\\''s' ("),
            (vec!["agora", "demo", "--seeds", "3"], "type: llmx-lab experiment agora --seeds 3 ("),
            (vec!["help", "soak"], "`llmx soak` has moved; type: llmx-lab help soak ("),
            (vec!["help", "agora", "demo"], "type: llmx-lab help experiment agora ("),
        ] {
            let told = answered(&line).unwrap();
            assert!(told.contains(types), "{line:?}: {told}");
        }
        for line in [
            vec![],
            vec!["demo"],
            vec!["help"],
            vec!["help", "demo"],
            vec!["panel"],
            vec!["panel", "ask", "score"],
            vec!["agora", "call"],
        ] {
            assert_eq!(answered(&line), None, "{line:?}");
        }
    }
}
