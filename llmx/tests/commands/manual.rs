//! `llmx completions` and `llmx man`.

use std::process::{Command, Output};

fn llmx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_llmx")).args(args).output().unwrap()
}

#[test]
fn every_shell_is_told_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = llmx(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        for word in ["contractors", "listen", "max-price", "healthcheck"] {
            assert!(script.contains(word), "{shell} is not told {word}");
        }
    }
    assert_eq!(llmx(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn bash_takes_the_script_and_completes_a_command_and_a_flag() {
    let script = r#"source <("$0" completions bash); COMP_WORDS=(llmx "$1" "$2"); COMP_CWORD=2; [ -n "$2" ] || COMP_CWORD=1
        _llmx llmx "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; printf '%s\n' "${COMPREPLY[@]}""#;
    let complete = |first: &str, second: &str| {
        let output =
            Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_llmx"), first, second]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("contr", ""), "contractors\n");
    assert_eq!(complete("call", "--max"), "--max-price\n");
}

#[test]
fn manual_pages_are_written_for_commands_and_their_subcommands() {
    let folder = tempfile::tempdir().unwrap();
    let output = llmx(&["man", folder.path().join("man1").to_str().unwrap(), "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let pages: Vec<&str> = document["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for page in ["llmx.1", "llmx-call.1", "llmx-agent-list.1", "llmx-policy-put.1"] {
        assert!(pages.contains(&page), "{pages:?}");
    }
    let call = std::fs::read_to_string(folder.path().join("man1/llmx-call.1")).unwrap();
    assert!(call.contains(".TH") && call.contains("max\\-price") && call.contains("Examples:"), "{call}");

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = llmx(&["man", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write manual pages to"));
}
