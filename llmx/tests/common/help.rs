//! The help of a program, command by command.

/// Most lines of what `--help` of a command prints: a screen.
const SCREEN_LINES: usize = 50;

/// Each command and subcommand has examples of itself, a short help that fits a screen, and shows nothing that only its source needs.
pub(crate) fn assert_examples(mut program: clap::Command, commands_min: usize) {
    program.build();
    let seen = walk(&mut program);
    assert!(seen >= commands_min, "{seen} commands");
}

fn walk(command: &mut clap::Command) -> usize {
    let path = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let short = command.render_help().to_string();
    assert!(short.lines().count() <= SCREEN_LINES, "{path}: {} lines: {short}", short.lines().count());
    let help = command.render_long_help().to_string();
    let examples = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{path} has no examples: {help}")).1;
    assert!(examples.contains(&path), "none is of {path}: {examples}");
    assert!(!help.contains('\\'), "{path} shows what only its source needs: {help}");
    let inner = command.get_subcommands_mut().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
    1 + inner.map(walk).sum::<usize>()
}
