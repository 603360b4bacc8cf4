//! Settings from four layers, member by member: flag, environment variable, configuration file, default.
//!
//! Flags and variables are read by clap, which also knows which of the two a value came from ([`Given`]); the file is TOML
//! ([`mod@file`]), one table per [`Section`]. A section's flags are a structure of options that is laid over the table, and the
//! whole is then read into the configuration's own type, which has the defaults. Libraries that merge layers know the
//! file a value came from, not the line.

pub mod file;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use toml::Table;

pub use file::File;

use crate::output::Failure;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A flag of the command line, as it is typed.
    Flag(String),
    /// An environment variable, by its name.
    Variable(String),
    /// A configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Where the member stands.
        key: Place,
        /// Where its value begins.
        value: Place,
    },
}

/// Line and column in a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) | Self::Variable(name) => f.write_str(name),
            Self::File { path, key, .. } => write!(f, "{}:{}", path.display(), key.line),
        }
    }
}

impl Source {
    fn to_json(&self) -> Value {
        match self {
            Self::Flag(flag) => json!({"flag": flag}),
            Self::Variable(variable) => json!({"variable": variable}),
            Self::File { path, key, .. } => json!({"file": path, "line": key.line, "column": key.column}),
        }
    }
}

/// A command's arguments, and where each that was given comes from.
#[derive(Debug, Clone)]
pub struct Given<T> {
    /// The arguments.
    pub args: T,
    /// By the argument's id.
    sources: BTreeMap<String, Source>,
}

impl<T: clap::Args> Given<T> {
    /// What an empty command line gives: environment variables.
    pub fn from_environment() -> Result<Self, clap::Error> {
        let command = T::augment_args(Command::new("llmx")).no_binary_name(true);
        clap::FromArgMatches::from_arg_matches(&command.try_get_matches_from(std::iter::empty::<&str>())?)
    }
}

impl<T> Given<T> {
    /// Where an argument comes from, by its id; nothing when it was not given.
    pub fn source(&self, id: &str) -> Option<&Source> {
        self.sources.get(id)
    }

    /// Whether an argument stands on the command line itself.
    pub fn is_typed(&self, id: &str) -> bool {
        matches!(self.source(id), Some(Source::Flag(_)))
    }
}

impl<T: clap::Args> clap::FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = T::augment_args(Command::new("llmx"));
        let source = |arg: &clap::Arg| {
            let given = matches.value_source(arg.get_id().as_str())?;
            if given == ValueSource::CommandLine {
                Some(Source::Flag(format!("--{}", arg.get_long()?)))
            } else if given == ValueSource::EnvVariable {
                Some(Source::Variable(arg.get_env()?.to_string_lossy().into_owned()))
            } else {
                None
            }
        };
        let sources =
            command.get_arguments().filter_map(|arg| Some((arg.get_id().to_string(), source(arg)?))).collect();
        Ok(Self { args: T::from_arg_matches(matches)?, sources })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: clap::Args> clap::Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

/// Members whose values are not repeated in a fault, and what is said instead.
const SECRETS: [(&str, &str); 2] = [
    ("auth.keys", "expected a table with one of `file`, `url`, `inline`, or with --jwks a file or URL"),
    ("auth.allow_hs256_dev_secret", "expected a text"),
];

/// A table of the configuration with flags and variables laid over the file's.
#[derive(Debug, Clone)]
pub struct Section {
    name: &'static str,
    table: Table,
    /// By the member's path in the section; of members that are given.
    sources: BTreeMap<String, Source>,
}

impl Section {
    /// Lays `flags` of a command over the table `name` of its file. Tables named by `groups` are merged; every other
    /// member is replaced as a whole. An argument's id is the name of its member.
    pub fn new<T>(
        name: &'static str,
        groups: &[&str],
        file: Option<&File>,
        given: &Given<T>,
        flags: &impl Serialize,
    ) -> Result<Self, Failure> {
        let (table, sources) = file.map(|file| file.table(name)).transpose()?.unwrap_or_default();
        let mut section = Self { name, table, sources };
        let Ok(flags) = Table::try_from(flags) else { return Ok(section) };
        for (member, value) in flags {
            let Some(group) = value.as_table().filter(|_| groups.contains(&member.as_str())) else {
                section.note(&member, given.sources.get(&member));
                section.table.insert(member, value);
                continue;
            };
            let of_group = section.table.entry(member.clone()).or_insert_with(|| Table::new().into());
            if let Some(of_group) = of_group.as_table_mut() {
                of_group.extend(group.clone());
            }
            for inner in group.keys() {
                section.note(&format!("{member}.{inner}"), given.sources.get(inner));
            }
        }
        Ok(section)
    }

    fn note(&mut self, path: &str, source: Option<&Source>) {
        if let Some(source) = source {
            self.sources.insert(path.to_owned(), source.clone());
        }
    }

    /// The same with a member of a group that nobody has given.
    pub fn with_default(&self, group: &str, member: &str, value: Value) -> Self {
        let mut table = self.table.clone();
        let of_group = table.entry(group).or_insert_with(|| Table::new().into());
        if let (Some(of_group), Ok(value)) = (of_group.as_table_mut(), toml::Value::try_from(value)) {
            of_group.insert(member.to_owned(), value);
        }
        Self { name: self.name, table, sources: self.sources.clone() }
    }

    /// Whether an environment variable gives a member.
    pub fn is_of_variable(&self, path: &str) -> bool {
        matches!(self.sources.get(path), Some(Source::Variable(_)))
    }

    /// Whether a member is given on some layer.
    pub fn has(&self, path: &str) -> bool {
        self.sources.contains_key(path)
    }

    /// Reads the section into a configuration.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_path_to_error::deserialize(toml::Value::Table(self.table.clone())).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            let secret = SECRETS.iter().find(|(member, _)| path == *member);
            self.fault(&path, secret.map_or(error.inner().message(), |(_, expected)| expected))
        })
    }

    /// A failure that names where a member was given, the member, and what is wrong with it.
    pub fn fault(&self, path: &str, wrong: &str) -> Failure {
        let unknown = wrong.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
        let path = match unknown {
            Some(member) if path.is_empty() => member.to_owned(),
            Some(member) if path != member && !path.ends_with(&format!(".{member}")) => format!("{path}.{member}"),
            Some(_) | None => path.to_owned(),
        };
        let place = match self.source_of(&path) {
            Some(Source::File { path, key, value }) => {
                let Place { line, column } = if unknown.is_some() { key } else { value };
                format!("{}:{line}:{column}: ", path.display())
            }
            Some(source) => format!("{source}: "),
            None => String::new(),
        };
        let member = [self.name, &path].join(".");
        Failure::configuration(format_args!("{place}`{}`: {wrong}", member.trim_end_matches('.')))
    }

    /// Where a member comes from, or what it is part of.
    fn source_of(&self, path: &str) -> Option<&Source> {
        let mut path = path;
        loop {
            if let Some(source) = self.sources.get(path) {
                return Some(source);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    /// Every member of a configuration that is in force, with where it comes from.
    pub fn entries(&self, groups: &[&str], in_force: Value) -> Vec<Entry> {
        let Value::Object(members) = in_force else { return Vec::new() };
        let mut entries = Vec::new();
        for (member, value) in members {
            match value.as_object().filter(|_| groups.contains(&member.as_str())) {
                Some(group) => entries
                    .extend(group.iter().map(|(inner, value)| self.entry(format!("{member}.{inner}"), value.clone()))),
                None => entries.push(self.entry(member, value)),
            }
        }
        entries
    }

    fn entry(&self, path: String, value: Value) -> Entry {
        Entry { source: self.sources.get(&path).cloned(), member: format!("{}.{path}", self.name), value }
    }
}

/// A member that is in force.
#[derive(Debug)]
pub struct Entry {
    /// Its path in the file.
    pub member: String,
    /// Its value; null where there is none.
    pub value: Value,
    /// Where it comes from; nothing for a default.
    pub source: Option<Source>,
}

impl Entry {
    /// As a member of a document.
    pub fn to_json(&self) -> (String, Value) {
        let source = self.source.as_ref().map_or_else(|| json!({"default": true}), Source::to_json);
        (self.member.clone(), json!({"value": self.value, "source": source}))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match &self.value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => self.value.to_string(),
        };
        let source = self.source.as_ref().map_or_else(|| "default".to_owned(), Source::to_string);
        write!(f, "{:<38} {value:<30} {source}", self.member)
    }
}
