//! Tells the program what it is made from: the compiler, and the commit where it is known.
//!
//! The commit is that of `LLMX_GIT_SHA`, otherwise the one checked out. A build for tests does not ask: it would be made
//! anew for every commit.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

use std::path::Path;
use std::process::Command;

/// Digits of a commit's name.
const SHA_DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=LLMX_GIT_SHA");
    println!("cargo::rerun-if-changed=build.rs");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let given = std::env::var("LLMX_GIT_SHA").ok().filter(|sha| !sha.trim().is_empty());
    let sha = given.or_else(|| is_release.then(checked_out).flatten());
    let sha: String = sha.as_deref().unwrap_or("unknown").trim().chars().take(SHA_DIGITS).collect();
    println!("cargo::rustc-env=LLMX_BUILT_FROM={sha}");
    println!("cargo::rustc-env=LLMX_BUILT_BY={}", compiler().unwrap_or_else(|| "unknown".to_owned()));
}

/// The commit that is checked out beside this package, if there is one. Paths are relative to the package, where cargo runs this:
/// another clone that shares the target folder has the same.
fn checked_out() -> Option<String> {
    let git = Path::new("../.git");
    let head = git.join("HEAD");
    let text = std::fs::read_to_string(&head).ok()?;
    println!("cargo::rerun-if-changed={}", head.display());
    let Some(branch) = text.trim().strip_prefix("ref: ") else { return Some(text) };
    // A branch that is packed has no file: the commit is unknown until the next one.
    let branch = git.join(branch);
    let sha = std::fs::read_to_string(&branch).ok()?;
    println!("cargo::rerun-if-changed={}", branch.display());
    Some(sha)
}

/// The compiler's version, such as `1.95.0`.
fn compiler() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1).map(str::to_owned)
}
