//! What a document says of itself: YAML between the first two `---` of its text.
//!
//! The reader builds no general YAML value. It keeps texts, lists and mappings within limits, and refuses anchors and
//! aliases, which could make a small text large.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use schemas::{Code, Refusal};

use crate::reference::{REFERENCES_MAX, Reference};
use crate::source::DocumentSource;
use crate::{DocumentHash, Origin};

/// The line that begins and ends the front matter.
const MARK: &str = "---";
/// Bytes of front matter: a name, a description and a few references take a tenth of it.
pub const FRONT_MATTER_BYTES_MAX: usize = 8 * 1024;
/// Nodes of the YAML tree.
const NODES_MAX: usize = 512;
/// Levels of the YAML tree; references need four.
const DEPTH_MAX: usize = 8;
/// Characters of a name.
pub const NAME_CHARS_MAX: usize = 256;
/// Characters of a description.
pub const DESCRIPTION_CHARS_MAX: usize = 2048;

/// What a foreign document without a name is called, as the package `agora-protocol` does.
const NAME_DEFAULT: &str = "Unnamed protocol";
/// What a foreign document without a description is described as.
const DESCRIPTION_DEFAULT: &str = "No description provided";

/// What a document says of itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FrontMatter {
    /// Its name; two documents may bear the same.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Whether a transaction under it may take more than one message of either side.
    pub multiround: bool,
    /// The documents it rests on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

impl FrontMatter {
    /// Reads the front matter of a document's text. What stands in front of the first mark is ignored, as the package
    /// `agora-protocol` ignores it.
    ///
    /// # Errors
    /// [`Refusal`] at `/document`: no front matter, YAML that is not readable, a member that is missing from a document of
    /// ours, or of the wrong kind.
    pub fn of_text(text: &str, origin: Origin) -> Result<Self, Refusal> {
        let yaml = between_marks(text)?;
        if yaml.len() > FRONT_MATTER_BYTES_MAX {
            return Err(fault(Code::TooLarge, "the front matter is too long")
                .expecting(format!("at most {FRONT_MATTER_BYTES_MAX} bytes between the first two `{MARK}`")));
        }
        let reader = YamlReader { parser: Parser::new_from_str(yaml), open: Vec::new(), nodes: 0 };
        let members = Members(reader.document()?);
        let required = |name: &str, default: &str, chars_max: usize| match members.text(name)? {
            Some(text) => within(name, text, chars_max),
            None if origin == Origin::Foreign => Ok(default.to_owned()),
            None => Err(missing(name)),
        };
        let name = required("name", NAME_DEFAULT, NAME_CHARS_MAX)?;
        let description = required("description", DESCRIPTION_DEFAULT, DESCRIPTION_CHARS_MAX)?;
        let multiround = match members.boolean("multiround")? {
            Some(multiround) => multiround,
            None if origin == Origin::Foreign => false,
            None => return Err(missing("multiround")),
        };
        Ok(Self { name, description, multiround, references: members.references()? })
    }
}

/// The text between the first two marks, wherever in a line they stand.
fn between_marks(text: &str) -> Result<&str, Refusal> {
    let inner = text.split_once(MARK).and_then(|(_, behind)| behind.split_once(MARK)).map(|(inner, _)| inner.trim());
    inner.ok_or_else(|| {
        fault(Code::MissingField, "the document has no front matter")
            .expecting("YAML between two lines `---` at the top, with name, description and multiround")
    })
}

fn within(name: &str, text: &str, chars_max: usize) -> Result<String, Refusal> {
    let chars = text.chars().count();
    if (1..=chars_max).contains(&chars) {
        return Ok(text.to_owned());
    }
    Err(fault(Code::OutOfRange, format!("`{name}` of the front matter is empty or too long"))
        .expecting(format!("1 to {chars_max} characters")))
}

fn missing(name: &str) -> Refusal {
    fault(Code::MissingField, format!("the front matter has no `{name}`"))
        .expecting("name, description and multiround between the first two `---`")
}

fn fault(code: Code, detail: impl Into<String>) -> Refusal {
    Refusal::new(code, detail).at("/document")
}

/// A node of the YAML tree. What is null or empty is [`Node::Null`].
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Null,
    Text { text: String, is_plain: bool },
    List(Vec<Node>),
    Mapping(Vec<(String, Node)>),
}

impl Node {
    fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        match self {
            Self::Null => Ok(None),
            Self::Text { text, .. } => Ok(Some(text)),
            Self::List(_) | Self::Mapping(_) => Err(wrong_type(name, "a text")),
        }
    }

    fn list(&self, name: &str) -> Result<&[Self], Refusal> {
        match self {
            Self::Null => Ok(&[]),
            Self::List(items) => Ok(items),
            Self::Text { .. } | Self::Mapping(_) => Err(wrong_type(name, "a list")),
        }
    }
}

fn wrong_type(name: &str, expected: &str) -> Refusal {
    fault(Code::WrongType, format!("`{name}` of the front matter is of another type")).expecting(expected)
}

/// The members of one mapping.
struct Members(Vec<(String, Node)>);

impl Members {
    fn node(&self, name: &str) -> Option<&Node> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, node)| node)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.node(name).map_or(Ok(None), |node| node.text(name))
    }

    /// The booleans of YAML 1.1, which the package's reader knows: yes and no, on and off as well.
    fn boolean(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.node(name) {
            None | Some(Node::Null) => Ok(None),
            Some(Node::Text { text, is_plain: true }) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(Some(true)),
                "false" | "no" | "off" => Ok(Some(false)),
                _ => Err(wrong_type(name, "true or false")),
            },
            Some(Node::Text { .. } | Node::List(_) | Node::Mapping(_)) => Err(wrong_type(name, "true or false")),
        }
    }

    fn references(&self) -> Result<Vec<Reference>, Refusal> {
        let listed = self.node("references").map_or(Ok(&[][..]), |node| node.list("references"))?;
        if listed.len() > REFERENCES_MAX {
            return Err(fault(Code::OutOfRange, "the front matter names too many references")
                .expecting(format!("at most {REFERENCES_MAX}")));
        }
        listed.iter().map(reference).collect()
    }
}

/// `{hash: …, sources: […]}`.
fn reference(node: &Node) -> Result<Reference, Refusal> {
    const MEMBER: &str = "references";
    let Node::Mapping(members) = node else { return Err(wrong_type(MEMBER, "a list of {hash, sources}")) };
    let (mut hash, mut sources) = (None, Vec::new());
    for (key, value) in members {
        match key.as_str() {
            "hash" => hash = value.text(MEMBER)?.map(DocumentHash::try_new).transpose().map_err(at_document)?,
            "sources" => {
                for source in value.list(MEMBER)? {
                    let text = source.text(MEMBER)?.ok_or_else(|| wrong_type(MEMBER, "texts as sources"))?;
                    sources.push(DocumentSource::try_new(text).map_err(at_document)?);
                }
            }
            _ => {
                return Err(fault(Code::UnknownField, "a reference has a member that is not known")
                    .expecting("hash and sources"));
            }
        }
    }
    let hash = hash.ok_or_else(|| fault(Code::MissingField, "a reference of the front matter names no hash"))?;
    Ok(Reference { hash, sources })
}

fn at_document(refusal: Refusal) -> Refusal {
    refusal.at("/document")
}

/// Builds the tree from the parser's events. Containers that are open stand on a stack, so that nesting costs no recursion.
struct YamlReader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    open: Vec<Container>,
    nodes: usize,
}

enum Container {
    List(Vec<Node>),
    /// The entries, and the key whose value comes next.
    Mapping(Vec<(String, Node)>, Option<String>),
}

impl YamlReader<'_> {
    /// The members of the one document there is.
    fn document(mut self) -> Result<Vec<(String, Node)>, Refusal> {
        while let Some(event) = self.parser.next_event() {
            let (event, _) = event.map_err(|_| {
                fault(Code::BadFormat, "the front matter is not readable as YAML").expecting("`name: value` lines")
            })?;
            if let Some(root) = self.handle_event(event)? {
                return match root {
                    Node::Mapping(members) => Ok(members),
                    Node::Null | Node::Text { .. } | Node::List(_) => {
                        Err(fault(Code::WrongType, "the front matter is no mapping").expecting("`name: value` lines"))
                    }
                };
            }
        }
        Err(fault(Code::MissingField, "the front matter is empty").expecting("name, description and multiround"))
    }

    /// Takes an event; answers the root once it is complete.
    fn handle_event(&mut self, event: Event<'_>) -> Result<Option<Node>, Refusal> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                Ok(None)
            }
            Event::Alias(_) => Err(anchored()),
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                Err(anchored())
            }
            Event::Scalar(text, style, ..) => self.place(scalar(&text, style)),
            Event::SequenceStart(..) => self.begin(Container::List(Vec::new())),
            Event::MappingStart(..) => self.begin(Container::Mapping(Vec::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Container::List(items)) => self.place(Node::List(items)),
                Some(Container::Mapping(entries, _)) => self.place(Node::Mapping(entries)),
                None => Ok(None),
            },
        }
    }

    fn begin(&mut self, container: Container) -> Result<Option<Node>, Refusal> {
        if self.open.len() >= DEPTH_MAX {
            return Err(fault(Code::TooDeep, "the front matter is nested too deep")
                .expecting(format!("at most {DEPTH_MAX} levels")));
        }
        self.open.push(container);
        Ok(None)
    }

    /// Puts a complete node where it belongs; the root belongs to the caller.
    fn place(&mut self, node: Node) -> Result<Option<Node>, Refusal> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(fault(Code::OutOfRange, "the front matter holds too much")
                .expecting(format!("at most {NODES_MAX} nodes")));
        }
        match self.open.last_mut() {
            None => return Ok(Some(node)),
            Some(Container::List(items)) => items.push(node),
            Some(Container::Mapping(entries, pending)) => match (pending.take(), node) {
                (Some(key), value) => entries.push((key, value)),
                (None, Node::Text { text, .. }) if entries.iter().any(|(key, _)| *key == text) => {
                    return Err(fault(Code::DuplicateKey, "a member of the front matter stands twice"));
                }
                (None, Node::Text { text, .. }) => *pending = Some(text),
                (None, Node::Null | Node::List(_) | Node::Mapping(_)) => {
                    return Err(fault(Code::WrongType, "a key of the front matter is no text"));
                }
            },
        }
        Ok(None)
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Node {
    let is_plain = style == ScalarStyle::Plain;
    match text {
        "" | "~" | "null" | "Null" | "NULL" if is_plain => Node::Null,
        _ => Node::Text { text: text.to_owned(), is_plain },
    }
}

fn anchored() -> Refusal {
    fault(Code::NotAllowed, "the front matter uses anchors or aliases").expecting("every value written out")
}
