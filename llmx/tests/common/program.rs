//! The programs under test.

/// The path of the program that has a command: `llmx-lab` or `llmx`, both built beside these tests.
pub(crate) fn program(args: &[&str]) -> String {
    let has_moved = llmx::moved::answer(args.iter().map(Into::into)).is_some();
    let path =
        std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(if has_moved { "llmx-lab" } else { "llmx" });
    assert!(path.is_file(), "{} is not built: cargo build -p llmx -p llmx_lab", path.display());
    path.to_str().unwrap().to_owned()
}
