//! Documents: those on the command line are read as a gateway reads them, and the pages of the repository are well formed.

use std::path::{Path, PathBuf};
use std::time::Duration;

const OFFER: &str = r#"{"envelope":{"msg_id":"m1","ts":"2026-11-20T21:00:00.000Z","from":"agent://bob","negotiation":"alice~job"},"payload":{"act":"offer","terms":{"price":PRICE}}}"#;
const POLICY: &str = r#"{"id":"mine@1","weights":[{"attr":"price","dir":"lower","lo":0,"hi":PRICE,"w":1000}],"close":{"all_responded":true}}"#;

#[test]
fn a_number_that_is_no_integer_is_rounded_by_no_command() {
    for (args, document) in [(["schema", "check"], OFFER), (["policy", "check"], POLICY)] {
        for written in ["99999999.999999999999", "1.0000000000000000000001"] {
            let (status, stderr) = checked(args, &document.replace("PRICE", written));
            assert_eq!(status, Some(1), "{args:?} {written}: {stderr}");
            assert!(stderr.contains("wrong_type") || stderr.contains("another type"), "{args:?} {written}: {stderr}");
        }
        for written in ["85000000.0", "8.5e7"] {
            let (status, stderr) = checked(args, &document.replace("PRICE", written));
            assert_eq!(status, Some(0), "{args:?} {written}: {stderr}");
        }
    }
}

#[test]
fn every_row_of_a_page_stands_in_a_table_of_as_many_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = Vec::new();
    let docs = ["", "docs", "docs/alerts", "docs/contributing", "docs/start"];
    let examples = ["examples", "examples/python", "examples/rust", "examples/shell"];
    for folder in docs.into_iter().chain(examples) {
        pages.extend(pages_in(&root.join(folder)));
    }
    assert!(pages.len() > 20, "{pages:?}");
    let faults: Vec<String> = pages.iter().flat_map(|page| stray_rows(page)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Rows that no table holds, which are shown as text with pipes, or that have other columns than their table.
fn stray_rows(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (mut columns, mut is_code, mut faults) = (None, false, Vec::new());
    for (index, line) in lines.iter().enumerate() {
        is_code ^= line.starts_with("```");
        if is_code || !line.starts_with('|') {
            columns = None;
            continue;
        }
        let is_first = columns.is_none();
        let expected = *columns.get_or_insert(cells(line));
        let has_rule = lines.get(index + 1).is_some_and(|next| next.starts_with("|--"));
        let is_behind_text = index > 0 && !lines[index - 1].is_empty() && !lines[index - 1].ends_with("-->");
        if is_first && (!has_rule || is_behind_text) || cells(line) != expected {
            faults.push(format!("{}:{}: {line}", page.display(), index + 1));
        }
    }
    faults
}

/// Bars that are not escaped.
fn cells(line: &str) -> usize {
    line.replace("\\|", "").matches('|').count()
}

/// Exit code and standard error of a command that reads a document from a file.
fn checked(args: [&str; 2], document: &str) -> (Option<i32>, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), document).unwrap();
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_llmx"));
    let output = command.args(args).arg(file.path()).timeout(Duration::from_secs(60)).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
