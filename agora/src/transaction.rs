//! One transaction of Agora: what a client posts, and what it is answered. All dialects are read; what is written is what
//! the package `agora-protocol` reads, with what the paper asks for beside it.

use schemas::{Code, Refusal};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::Selection;

/// What a client posts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRequest {
    /// Which document it is under.
    pub selection: Selection,
    /// What is asked.
    pub body: String,
    /// Whether it opens a conversation, in which further messages follow.
    pub multiround: bool,
}

impl TransactionRequest {
    /// Reads a request. Members that are not named here are ignored: the paper's demo sends a `queryId`.
    ///
    /// # Errors
    /// [`Refusal`] with the pointer to the member at fault.
    pub fn try_new(document: &Value) -> Result<Self, Refusal> {
        let body = body_of(document)?;
        let selection = Selection::try_new(document.get("protocolHash"), document.get("protocolSources"))?;
        let multiround = match document.get("multiround") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(multiround)) => *multiround,
            Some(Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(Refusal::new(Code::WrongType, "whether the request opens a conversation is a boolean")
                    .at("/multiround")
                    .expecting("true, false, or nothing"));
            }
        };
        Ok(Self { selection, body, multiround })
    }

    /// Whether a request opens a conversation, even if the rest of it cannot be read: its sender relies on the id of one in
    /// every answer.
    #[must_use]
    pub fn is_multiround(document: &Value) -> bool {
        document.get("multiround") == Some(&Value::Bool(true))
    }

    /// The request as the package reads it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (hash, sources) = self.selection.members();
        let mut document = json!({ "protocolHash": hash, "protocolSources": sources, "body": self.body });
        if self.multiround
            && let Some(members) = document.as_object_mut()
        {
            members.insert("multiround".to_owned(), Value::Bool(true));
        }
        document
    }
}

/// What is asked: of a further message of a conversation it is all that is read.
///
/// # Errors
/// [`Code::WrongType`] where the document is no object; [`Code::MissingField`] or [`Code::WrongType`] at `/body`.
pub fn body_of(document: &Value) -> Result<String, Refusal> {
    let expected = r#"{"protocolHash": …, "protocolSources": […], "body": "…"}"#;
    if !document.is_object() {
        return Err(Refusal::new(Code::WrongType, "the request is no object").expecting(expected));
    }
    match document.get("body") {
        Some(Value::String(body)) => Ok(body.clone()),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Refusal::new(Code::WrongType, "the body is no text").at("/body").expecting("a text"))
        }
        None => Err(Refusal::new(Code::MissingField, "the request has no body").at("/body").expecting(expected)),
    }
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TransactionStatus {
    /// Answered.
    Success,
    /// Answered, with a fault that the document does not speak of (the paper's word).
    Failure,
    /// Not answered.
    Error,
    /// The responder does not take it, or not under this document.
    Rejected,
}

impl TransactionStatus {
    /// As it stands on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn of_text(text: &str) -> Option<Self> {
        <Self as strum::VariantArray>::VARIANTS.iter().copied().find(|status| status.as_str() == text)
    }
}

/// The conversation that a reply belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationTicket {
    /// Its id: `<target>/conversations/<id>` takes further messages.
    pub id: String,
    /// When it ends, in seconds since the epoch, where the responder says so.
    pub expires_s: Option<u64>,
}

/// What a client is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionReply {
    /// How it ended.
    pub status: TransactionStatus,
    /// The answer; empty where there is none.
    pub body: String,
    /// Why there is none.
    pub message: Option<String>,
    /// The fault at which the request was refused: its code and the pointer to it.
    pub fault: Option<(Code, Option<String>)>,
    /// The conversation, where the request asked for one.
    pub conversation: Option<ConversationTicket>,
}

impl TransactionReply {
    /// An answer.
    #[must_use]
    pub fn success(body: String) -> Self {
        Self { status: TransactionStatus::Success, body, message: None, fault: None, conversation: None }
    }

    /// No answer, and why.
    #[must_use]
    pub fn unanswered(status: TransactionStatus, message: impl Into<String>) -> Self {
        Self { status, body: String::new(), message: Some(message.into()), fault: None, conversation: None }
    }

    /// A request that was not followed.
    #[must_use]
    pub fn refused(refusal: &Refusal) -> Self {
        let message = match &refusal.expected {
            Some(expected) => format!("{}; expected: {expected}", refusal.detail),
            None => refusal.detail.clone(),
        };
        let fault = Some((refusal.code, refusal.pointer.clone()));
        Self { fault, ..Self::unanswered(TransactionStatus::Error, message) }
    }

    /// The reply for clients of every dialect: `status` and `body` always, `message` where there is no answer.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let (fault, ticket) = (self.fault.as_ref(), self.conversation.as_ref());
        let members: [(&str, Option<Value>); 7] = [
            ("status", Some(self.status.as_str().into())),
            ("body", Some(self.body.as_str().into())),
            ("message", self.message.as_deref().map(Value::from)),
            ("code", fault.map(|(code, _)| code.as_str().into())),
            ("pointer", fault.and_then(|(_, pointer)| pointer.as_deref()).map(Value::from)),
            ("conversationId", ticket.map(|ticket| ticket.id.as_str().into())),
            ("conversationExpires", ticket.and_then(|ticket| ticket.expires_s).map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Reads the reply of any responder. What is said beyond the members named here is ignored; a body that is no text is
    /// taken as its JSON text.
    ///
    /// # Errors
    /// [`Refusal`] at `/status`, `/conversationId` or `/conversationExpires`, or of a document that is no object.
    pub fn try_new(document: &Value) -> Result<Self, Refusal> {
        let fault = |code, detail: &str, pointer: &str, expected: &str| {
            Refusal::new(code, detail).at(pointer).expecting(expected.to_owned())
        };
        let status = match document.get("status") {
            Some(Value::String(text)) => TransactionStatus::of_text(text),
            None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => None,
        };
        let known = "success, failure, error or rejected";
        let status = status.ok_or_else(|| fault(Code::BadFormat, "the reply has no known status", "/status", known))?;
        let body = match document.get("body") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(body)) => body.clone(),
            Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => other.to_string(),
        };
        let message = document.get("message").and_then(Value::as_str).map(str::to_owned);
        let conversation = match document.get("conversationId") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if is_conversation_id(id) => {
                Some(ConversationTicket { id: id.clone(), expires_s: expiry(document)? })
            }
            Some(_) => {
                let expected = "1 to 128 characters of A-Z a-z 0-9 . _ ~ -";
                return Err(fault(Code::BadFormat, "this names no conversation", "/conversationId", expected));
            }
        };
        // Codes of others are nobody's to know.
        let code = document.get("code").and_then(|code| Code::deserialize(code).ok());
        let pointer = document.get("pointer").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { status, body, message, fault: code.map(|code| (code, pointer)), conversation })
    }
}

/// Whether a text can stand in a path as the id of a conversation.
#[must_use]
pub fn is_conversation_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'-');
    (1..=CONVERSATION_ID_LEN_MAX).contains(&text.len()) && text.bytes().all(is_plain) && !matches!(text, "." | "..")
}

/// Longest id of a conversation, in characters: those in use have 36.
const CONVERSATION_ID_LEN_MAX: usize = 128;

/// When a conversation ends. Fractions of a second, as Python's `time.time()` has them, are dropped.
fn expiry(document: &Value) -> Result<Option<u64>, Refusal> {
    let expires = match document.get("conversationExpires") {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value.as_u64().or_else(|| value.to_string().split_once('.')?.0.parse().ok()),
    };
    expires.map(Some).ok_or_else(|| {
        Refusal::new(Code::WrongType, "this is no time")
            .at("/conversationExpires")
            .expecting("seconds since 1970-01-01T00:00:00Z")
    })
}
