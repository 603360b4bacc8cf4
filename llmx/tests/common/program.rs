//! The programs under test.

/// First words of the commands that `llmx-lab` has.
const LABORATORY: [&str; 14] = [
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

/// The path of the program that has a command: `llmx-lab` or `llmx`, both built beside these tests.
pub(crate) fn program(args: &[&str]) -> String {
    let line = args.iter().take(2).copied().collect::<Vec<_>>().join(" ");
    let is_laboratory = LABORATORY.iter().any(|words| line == *words || line.starts_with(&format!("{words} ")));
    let tests = std::env::current_exe().unwrap();
    let name = if is_laboratory { "llmx-lab" } else { "llmx" };
    let path = tests.ancestors().nth(2).unwrap().join(name);
    assert!(path.is_file(), "{} is not built: cargo build -p llmx -p llmx_lab", path.display());
    path.to_str().unwrap().to_owned()
}
