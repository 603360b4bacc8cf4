//! A configuration file, and where in it each member stands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Table;
use toml::de::{DeTable, DeValue};

use super::{Place, Source};
use crate::arguments::read_text;
use crate::output::Failure;

/// Most bytes of a file: its policies are the longest part.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Tables a file may have.
const TABLES: [&str; 3] = ["nats", "gateway", "engine"];

/// A file that is TOML and has no unknown table.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    table: Table,
    /// By the member's path, the table's name first.
    sources: BTreeMap<String, Source>,
}

impl File {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path, FILE_BYTES_MAX)
            .map_err(|error| Failure::configuration(format_args!("cannot read {}: {error}", path.display())))?;
        let refused = |error: &toml::de::Error| {
            let Place { line, column } = place(&text, error.span().map_or(0, |span| span.start));
            Failure::configuration(format_args!("{}:{line}:{column}: {}", path.display(), error.message()))
        };
        let parsed = DeTable::parse(&text).map_err(|error| refused(&error))?;
        let mut walk = Walk { text: &text, path, sources: BTreeMap::new() };
        walk.table(parsed.get_ref(), "");
        // What is TOML and no value, such as an integer of twenty digits: only here is its member known.
        let table: Table = toml::from_str(&text).map_err(|error| {
            let at = place(&text, error.span().map_or(0, |span| span.start));
            let is_there = |source: &Source| matches!(source, Source::File { value, .. } if *value == at);
            let member = walk.sources.iter().find(|(_, source)| is_there(source));
            let member = member.map_or_else(String::new, |(member, _)| format!("`{member}`: "));
            let (path, Place { line, column }) = (path.display(), at);
            Failure::configuration(format_args!("{path}:{line}:{column}: {member}{}", error.message()))
        })?;
        let file = Self { path: path.to_owned(), table, sources: walk.sources };
        match file.table.keys().find(|name| !TABLES.contains(&name.as_str())) {
            None => Ok(file),
            Some(name) => Err(file.fault(name, &format!("unknown table, expected one of {}", TABLES.join(", ")))),
        }
    }

    /// One table, and where its members stand, by their paths in it; empty where the file has none.
    pub fn table(&self, name: &str) -> Result<(Table, BTreeMap<String, Source>), Failure> {
        let table = match self.table.get(name) {
            None => Table::new(),
            Some(toml::Value::Table(table)) => table.clone(),
            Some(other) => return Err(self.fault(name, &format!("expected a table, found {}", other.type_str()))),
        };
        let within = |(path, source): (&String, &Source)| {
            Some((path.strip_prefix(name)?.strip_prefix('.')?.to_owned(), source.clone()))
        };
        Ok((table, self.sources.iter().filter_map(within).collect()))
    }

    fn fault(&self, member: &str, wrong: &str) -> Failure {
        let place = match self.sources.get(member) {
            Some(Source::File { key, .. }) => *key,
            Some(Source::Flag(_) | Source::Variable(_)) | None => Place { line: 1, column: 1 },
        };
        let Place { line, column } = place;
        Failure::configuration(format_args!("{}:{line}:{column}: `{member}`: {wrong}", self.path.display()))
    }
}

/// Notes where every member stands.
struct Walk<'a> {
    text: &'a str,
    path: &'a Path,
    sources: BTreeMap<String, Source>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, above: &str) {
        for (key, value) in table {
            let dot = if above.is_empty() { "" } else { "." };
            let path = format!("{above}{dot}{}", key.get_ref());
            self.note(&path, key.span(), value.span());
            self.value(value.get_ref(), &path);
        }
    }

    fn value(&mut self, value: &DeValue<'_>, path: &str) {
        if let Some(table) = value.as_table() {
            self.table(table, path);
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let path = format!("{path}[{index}]");
            self.note(&path, item.span(), item.span());
            self.value(item.get_ref(), &path);
        }
    }

    fn note(&mut self, path: &str, key: Range<usize>, value: Range<usize>) {
        let (key, value) = (place(self.text, key.start), place(self.text, value.start));
        self.sources.insert(path.to_owned(), Source::File { path: self.path.to_owned(), key, value });
    }
}

/// Line and column of a byte.
fn place(text: &str, byte: usize) -> Place {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    Place { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
}
