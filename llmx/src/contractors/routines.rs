//! What carries the awards of contractors out: `llmx contractors --routines FILE` (docs/agora.md#routines).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::agents::routine::metrics::RoutineMetrics;
use ::agents::routine::native::NATIVE_NAMES;
use ::agents::routine::{
    HttpRoutine, NativeRoutine, RESULT_CHARS_MAX, Routine, RoutineLimits, RoutineRunner, RoutineTable,
};
use agents::control::in_full;
use agora::{Origin, ProtocolDocument};
use schemas::AgentId;
use schemas::document::DocumentHash;
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;

use crate::arguments::read_text;
use crate::output::{Failure, print, tracer};
use crate::remote::Remote;

/// Bytes of a file of routines, and of a document.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Longest run that can be asked for: as long as a negotiation may last after its award.
const TIME_MS_MAX: u64 = 600_000;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutinesFile {
    time_ms: Option<u64>,
    sentence: Option<Spanned<String>>,
    /// A file as for `--model`, with a section `[routine]`.
    model: Option<PathBuf>,
    #[serde(default, rename = "routine")]
    routines: Vec<Spanned<RoutineEntry>>,
}

/// One routine: a document, and what follows it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoutineEntry {
    document: Option<PathBuf>,
    hash: Option<String>,
    native: Option<String>,
    url: Option<String>,
    wasm: Option<PathBuf>,
    #[serde(default)]
    model: bool,
}

/// What a file says where, and what to do about it.
struct EntryLine<'a> {
    path: &'a Path,
    line: usize,
}

impl EntryLine<'_> {
    fn fault(&self, what: impl std::fmt::Display) -> Failure {
        Failure::configuration(format_args!("{}:{}: {what}", self.path.display(), self.line))
    }
}

/// A document that a routine follows, with its text where the file names one.
struct RoutineDocument {
    hash: DocumentHash,
    text: Option<String>,
}

/// What a file of routines makes of contractors.
#[derive(Default)]
pub struct OpenedRoutines {
    /// The runner of every contractor; none without a file.
    pub runners: Vec<Arc<RoutineRunner>>,
    /// The documents whose text is known here.
    texts: Vec<String>,
}

impl OpenedRoutines {
    /// Opens the file that is given; nothing runs yet.
    ///
    /// # Errors
    /// [`Failure::configuration`] with the line at fault.
    pub fn open(path: Option<&Path>, metrics: RoutineMetrics) -> Result<Self, Failure> {
        path.map_or_else(|| Ok(Self::default()), |path| read(path, metrics))
    }

    /// Puts the documents into the exchange as ones that these agents support. Whatever cannot be put is warned of, because
    /// offers name documents in any case.
    pub async fn put(&self, remote: &Remote, agents: impl Iterator<Item = AgentId>) {
        let mut texts: Vec<&String> = self.texts.iter().collect();
        if texts.is_empty() {
            return;
        }
        for agent in agents {
            let token = remote.identity(&agent).token;
            let mut taken = Vec::new();
            for text in std::mem::take(&mut texts) {
                match remote.control.put("/v1/documents", &token.current(), &json!({ "document": text })).await {
                    Ok(()) => taken.push(text),
                    Err(error) => {
                        let document = DocumentHash::of_bytes(text.as_bytes());
                        tracing::warn!(
                            %agent, %document,
                            "the exchange lists a routine's document as supported by no agent from here on: {error}; \
                             correct this and start again, or use `llmx document put FILE --as AGENT`"
                        );
                    }
                }
            }
            texts = taken;
            if texts.is_empty() {
                return;
            }
        }
        print(format_args!("contractors: documents put into the exchange: {} of {}", texts.len(), self.texts.len()));
    }
}

/// Reads the file and makes what it names.
fn read(path: &Path, metrics: RoutineMetrics) -> Result<OpenedRoutines, Failure> {
    let text = read_text(path, FILE_BYTES_MAX)
        .map_err(|error| Failure::configuration(format_args!("cannot read {}: {error}", path.display())))?;
    let line = |byte: usize| text.get(..byte).unwrap_or(&text).matches('\n').count() + 1;
    let file: RoutinesFile = toml::from_str(&text).map_err(|error| {
        EntryLine { path, line: line(error.span().map_or(0, |span| span.start)) }.fault(error.message())
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut limits = RoutineLimits::default();
    if let Some(time_ms) = file.time_ms {
        if !(1..=TIME_MS_MAX).contains(&time_ms) {
            return Err(EntryLine { path, line: 1 }.fault(format_args!("`time_ms` is 1 to {TIME_MS_MAX}")));
        }
        limits.time = Duration::from_millis(time_ms);
    }
    if let Some(sentence) = &file.sentence
        && sentence.get_ref().chars().count() > RESULT_CHARS_MAX
    {
        let place = EntryLine { path, line: line(sentence.span().start) };
        return Err(place.fault(format_args!("`sentence` has at most {RESULT_CHARS_MAX} characters: shorten it")));
    }
    let entries: Vec<(usize, RoutineEntry)> =
        file.routines.into_iter().map(|entry| (line(entry.span().start), entry.into_inner())).collect();
    let mut documents = Vec::new();
    for (line, entry) in &entries {
        documents.push(read_document(&EntryLine { path, line: *line }, folder, entry)?);
    }
    let model = open_model(file.model.map(|model| folder.join(model)).as_deref(), &documents)?;
    let mut table = RoutineTable::default();
    for ((line, entry), document) in entries.iter().zip(&documents) {
        let place = EntryLine { path, line: *line };
        let routine = routine(&place, folder, entry, model.as_ref())?;
        table.add(document.hash, routine).map_err(|error| place.fault(error))?;
    }
    let mut runner = RoutineRunner::new(table, limits).counted(metrics).traced(tracer());
    if let Some(model) = model {
        runner = runner.with_model(model);
    }
    if let Some(sentence) = &file.sentence {
        runner = runner.saying(sentence.get_ref());
    }
    let texts = documents.into_iter().filter_map(|document| document.text).collect();
    Ok(OpenedRoutines { runners: vec![Arc::new(runner)], texts })
}

fn read_document(place: &EntryLine<'_>, folder: &Path, entry: &RoutineEntry) -> Result<RoutineDocument, Failure> {
    match (&entry.document, &entry.hash) {
        (Some(file), None) => {
            let file = folder.join(file);
            let shown = file.display();
            let text = read_text(&file, FILE_BYTES_MAX)
                .map_err(|error| place.fault(format_args!("`document`: cannot read {shown}: {error}")))?;
            let document = ProtocolDocument::try_new(&text, Origin::Foreign)
                .map_err(|refusal| place.fault(format_args!("`document`: {shown}: {}", in_full(&refusal))))?;
            Ok(RoutineDocument { hash: document.hash(), text: Some(text) })
        }
        (None, Some(hash)) => {
            let hash = DocumentHash::try_new(hash)
                .map_err(|refusal| place.fault(format_args!("`hash`: {}", in_full(&refusal))))?;
            Ok(RoutineDocument { hash, text: None })
        }
        (None, None) | (Some(_), Some(_)) => {
            Err(place.fault("a routine follows one document: name its file with `document`, or its name with `hash`"))
        }
    }
}

/// The one thing that an entry names.
fn routine(
    place: &EntryLine<'_>,
    folder: &Path,
    entry: &RoutineEntry,
    model: Option<&Arc<dyn Routine>>,
) -> Result<Arc<dyn Routine>, Failure> {
    match (&entry.native, &entry.url, &entry.wasm, entry.model) {
        (Some(name), None, None, false) => match NativeRoutine::named(name) {
            Some(routine) => Ok(Arc::new(routine)),
            None => {
                Err(place.fault(format_args!("`native`: no function `{name}`; there are: {}", NATIVE_NAMES.join(", "))))
            }
        },
        (None, Some(url), None, false) => match HttpRoutine::try_new(url) {
            Ok(routine) => Ok(Arc::new(routine)),
            Err(error) => Err(place.fault(format_args!("`url`: {error}"))),
        },
        (None, None, Some(file), false) => module(place, &folder.join(file)),
        (None, None, None, true) if entry.document.is_none() => Err(place.fault(
            "`model = true` needs `document = FILE` in place of `hash`: a model follows a text that it can read",
        )),
        (None, None, None, true) => model.cloned().ok_or_else(|| {
            place.fault("`model = true` needs a model: name its file with `model` before the first [[routine]]")
        }),
        (..) => Err(place.fault("a routine is one thing: either `native`, `url`, `wasm` or `model = true`")),
    }
}

#[cfg(feature = "wasm")]
fn module(place: &EntryLine<'_>, file: &Path) -> Result<Arc<dyn Routine>, Failure> {
    use routine_wasm::{MODULE_BYTES_MAX, WasmLimits, WasmRoutine};

    let shown = file.display();
    let fault = |error: &dyn std::fmt::Display| place.fault(format_args!("`wasm`: {shown}: {error}"));
    let length = std::fs::metadata(file).map_err(|error| fault(&error))?.len();
    if length > MODULE_BYTES_MAX as u64 {
        return Err(fault(&format_args!("{length} bytes, {MODULE_BYTES_MAX} at most are read")));
    }
    let module = std::fs::read(file).map_err(|error| fault(&error))?;
    let routine = WasmRoutine::try_new(&module, WasmLimits::default()).map_err(|error| fault(&error))?;
    Ok(Arc::new(routine))
}

#[cfg(not(feature = "wasm"))]
fn module(place: &EntryLine<'_>, _file: &Path) -> Result<Arc<dyn Routine>, Failure> {
    Err(place.fault("`wasm` is not part of this build: cargo build --release --features wasm"))
}

/// The model behind all routines, which has read those documents whose text the file names.
fn open_model(path: Option<&Path>, documents: &[RoutineDocument]) -> Result<Option<Arc<dyn Routine>>, Failure> {
    use ::agents::model::{ModelAgentConfig, ModelRoutine};

    use crate::model::{ModelUse, OpenedModel, open, unknown_seed};

    let Some(path) = path else { return Ok(None) };
    let OpenedModel { config, consultant } = open(path, ModelAgentConfig::check_instructed, ModelUse::default())?;
    let mut routine = ModelRoutine::new(consultant, &config.routine.instructions, unknown_seed());
    for document in documents {
        if let Some(text) = &document.text {
            routine = routine.reading(document.hash, text);
        }
    }
    Ok(Some(Arc::new(routine)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "---\nname: A\ndescription: B\nmultiround: false\n---\nC\n";

    fn read_text_of(text: &str) -> Result<OpenedRoutines, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.md"), DOCUMENT).unwrap();
        std::fs::write(folder.path().join("no.md"), "no front matter").unwrap();
        std::fs::write(folder.path().join("a.wasm"), "no module").unwrap();
        let path = folder.path().join("routines.toml");
        std::fs::write(&path, text).unwrap();
        let shown = folder.path().display().to_string();
        read(&path, RoutineMetrics::try_new(&prometheus::Registry::new()).unwrap())
            .map_err(|failure| failure.to_string().replace(&shown, "."))
    }

    #[test]
    fn a_file_makes_a_table_of_the_routines_it_names() {
        let hash = DocumentHash::of_bytes(DOCUMENT.as_bytes());
        let other = DocumentHash::of_bytes(b"another");
        let text = format!(
            "time_ms = 5\n[[routine]]\ndocument = \"a.md\"\nnative = \"parcel-price\"\n\n[[routine]]\nhash = \"{other}\"\nurl = \"http://127.0.0.1:9/\"\n"
        );
        let opened = read_text_of(&text).unwrap();
        let mut expected = [hash, other];
        expected.sort();
        assert_eq!(opened.runners[0].table().documents().collect::<Vec<_>>(), expected);
        assert_eq!(opened.texts, [DOCUMENT], "of a hash there is no text");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_its_line_and_a_remedy() {
        let too_long = format!("time_ms = 1\nsentence = \"{}\"", "é".repeat(4097));
        assert!(read_text_of(&too_long.replacen('é', "", 1)).is_ok());
        for (text, expected) in [
            ("time_ms = 0", "./routines.toml:1: `time_ms` is 1 to 600000"),
            (&too_long, "./routines.toml:2: `sentence` has at most 4096 characters"),
            ("sentense = \"x\"", "./routines.toml:1: unknown field `sentense`"),
            ("\n[[routine]]\nnative = \"parcel-price\"", "./routines.toml:2: a routine follows one document"),
            ("[[routine]]\ndocument = \"b.md\"\nnative = \"x\"", "./routines.toml:1: `document`: cannot read ./b.md"),
            ("[[routine]]\ndocument = \"no.md\"\nnative = \"x\"", "./routines.toml:1: `document`: ./no.md: "),
            ("[[routine]]\nhash = \"x\"\nnative = \"x\"", "./routines.toml:1: `hash`: "),
            ("[[routine]]\ndocument = \"a.md\"", "./routines.toml:1: a routine is one thing"),
            (
                "[[routine]]\ndocument = \"a.md\"\nnative = \"x\"\nmodel = true",
                "./routines.toml:1: a routine is one thing",
            ),
            ("[[routine]]\ndocument = \"a.md\"\nnative = \"x\"", "no function `x`; there are: parcel-price"),
            (
                "[[routine]]\ndocument = \"a.md\"\nurl = \"x\"",
                "./routines.toml:1: `url`: `x` is no address of a service",
            ),
            ("[[routine]]\ndocument = \"a.md\"\nwasm = \"a.wasm\"", "./routines.toml:1: `wasm`"),
            ("[[routine]]\ndocument = \"a.md\"\nmodel = true", "`model = true` needs a model"),
            (
                "\n[[routine]]\nhash = \"Kc42bNOrSX+s82LLvEs5X6XSK24=\"\nmodel = true",
                "./routines.toml:2: `model = true` needs `document = FILE`",
            ),
            (
                "[[routine]]\ndocument = \"a.md\"\nnative = \"parcel-price\"\n[[routine]]\ndocument = \"a.md\"\nnative = \"parcel-price\"",
                "./routines.toml:4: the document ",
            ),
        ] {
            let failure = read_text_of(text).map(drop).unwrap_err();
            assert!(failure.contains(expected), "{text}\n{failure}");
        }
    }
}
