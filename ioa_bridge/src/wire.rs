//! What clients of the published code send and read: JSON over HTTP, and [`ChatFrame`] over a WebSocket. Enums are integers.

use schemas::control::AgentKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// Largest frame or body read, in bytes. A team's text has 4096 characters; a frame repeats goal, members and plan besides.
pub const FRAME_BYTES_MAX: usize = 256 * 1024;
/// Longest name, in characters.
pub const NAME_LEN_MAX: usize = 256;
/// Longest description, in characters.
pub const DESCRIPTION_LEN_MAX: usize = 2048;
/// Most names in one list, and most members or triggers of a frame.
pub const LIST_LEN_MAX: usize = 256;

/// How the published code spells an [`AgentKind`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "AgentKind")]
enum ClientKind {
    /// It speaks for a person.
    #[serde(rename = "Human Assistant")]
    Human,
    /// Any other.
    #[serde(rename = "Thing Assistant")]
    Thing,
}

/// A client as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// Its name.
    pub name: String,
    /// What it is.
    #[serde(rename = "type", with = "ClientKind")]
    pub kind: AgentKind,
    /// What it says of itself.
    pub desc: String,
}

/// One name, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::One(String::new())
    }
}

impl OneOrMany {
    /// The names, without empty ones.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        };
        names.iter().map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// The first characters of a text.
pub fn cut(text: &str, len_max: usize) -> String {
    text.chars().take(len_max).collect()
}

/// A question for agents: `POST /retrieve_assistant`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RetrieveQuestion {
    /// Who asks.
    pub sender: String,
    /// What is searched for.
    pub capabilities: Vec<String>,
}

/// A question for names: `POST /query_assistant`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NameQuestion {
    /// Whose registrations are wanted.
    pub name: OneOrMany,
}

/// A wish for a team: `POST /teamup`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TeamUp {
    /// Who leads.
    pub sender: String,
    /// Who is called.
    pub agent_names: Vec<String>,
    /// What the chat is called; clients ignore it in the answer.
    pub team_name: Option<String>,
}

/// A team that has formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormedTeam {
    /// The chat: 32 hexadecimal digits.
    pub comm_id: String,
    /// Its members, the lead last.
    pub agent_names: Vec<String>,
    /// As it was asked for.
    pub team_name: Option<String>,
}

/// A question for what was said: `POST /fetch_chat_record`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordQuestion {
    /// In which chats; absent: in all.
    pub comm_id: Option<OneOrMany>,
}

/// What was said in a chat.
#[derive(Debug, Clone, Serialize)]
pub struct ChatRecord {
    /// The chat.
    pub comm_id: String,
    /// Its members.
    pub agent_names: Vec<String>,
    /// What it is called.
    pub team_name: Option<String>,
    /// The latest frames, oldest first, as they were sent.
    pub chat_record: Vec<Box<RawValue>>,
}

/// `state` of every frame of a chat: the published code knows others, and uses none.
pub const STATE_DISCUSSION: u8 = 1;

/// What a frame is, as `type` says by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::FromRepr)]
#[repr(u8)]
pub enum FrameKind {
    /// A word in the discussion.
    Discussion = 4,
    /// Tasks for those in `next_speaker`; the chat waits for them.
    SyncAssignment = 5,
    /// The same; the chat goes on.
    AsyncAssignment = 6,
    /// A task is done.
    TaskResult = 7,
    /// A task is begun.
    TaskProgress = 8,
    /// The chat waits for the tasks in `triggers`.
    Pause = 9,
    /// The sender is about to conclude, and says so to itself.
    Concluding = 10,
    /// The conclusion.
    Conclusion = 11,
}

/// One message of a chat. Members stand in the order in which the published code writes them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChatFrame {
    /// What is said.
    pub content: String,
    /// Who says it.
    pub sender: String,
    /// The chat.
    pub comm_id: String,
    /// Who is to act next.
    pub next_speaker: OneOrMany,
    /// [`STATE_DISCUSSION`].
    pub state: u8,
    /// A [`FrameKind`].
    #[serde(rename = "type")]
    pub kind: u8,
    /// Unused.
    pub proposal_id: String,
    /// The goal of the chat.
    pub goal: Option<String>,
    /// Its members as their clients describe them.
    pub team_members: Option<Vec<Value>>,
    /// Levels of teams allowed below.
    pub team_up_depth: Option<i64>,
    /// The task that a progress or result is about: an id that its owner has made.
    pub task_id: String,
    /// What the task is, in the owner's words.
    pub task_desc: String,
    /// Its result.
    pub task_conclusion: String,
    /// What it is in short.
    pub task_abstract: String,
    /// The tasks that a pause waits for.
    pub triggers: Vec<String>,
    /// A matter of the clients.
    pub updated_plan: String,
    /// A matter of the clients.
    pub is_collaborative_planning_enabled: bool,
    /// A matter of the clients.
    pub max_turns: Option<i64>,
}

impl ChatFrame {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`FrameFault::Unreadable`], [`FrameFault::Kind`].
    pub fn read(text: &str) -> Result<(FrameKind, Self), FrameFault> {
        let frame: Self = serde_json::from_str(text).map_err(|_| FrameFault::Unreadable)?;
        let is_long = |names: usize| names > LIST_LEN_MAX;
        let speakers = match &frame.next_speaker {
            OneOrMany::One(_) => 1,
            OneOrMany::Many(names) => names.len(),
        };
        let members = frame.team_members.as_ref().map_or(0, Vec::len);
        if is_long(speakers) || is_long(members) || is_long(frame.triggers.len()) {
            return Err(FrameFault::Unreadable);
        }
        let kind = FrameKind::from_repr(frame.kind).filter(|_| frame.state == STATE_DISCUSSION);
        kind.map(|kind| (kind, frame)).ok_or(FrameFault::Kind)
    }

    /// As it is sent.
    pub fn write(&self) -> String {
        // Texts, integers and values read from JSON can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Why a frame was dropped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum FrameFault {
    /// It is no JSON of this form, or a list in it is too long.
    #[error("no frame of a chat")]
    Unreadable,
    /// Its `type` is not one that members send, or its `state` is not 1.
    #[error("no type that members send in a discussion")]
    Kind,
    /// There is no such chat that the sender is in.
    #[error("no such chat")]
    Chat,
    /// `sender` is another name than the socket's.
    #[error("another sender than the socket's")]
    Name,
    /// It is not the sender's turn, or it has said what it says in this turn.
    #[error("not the sender's turn")]
    Turn,
    /// It is about a task that the sender does not own, or that has ended, or it waits for no task that is known.
    #[error("no open task of the sender's, or none to wait for")]
    Task,
    /// It is a word, an assignment or a conclusion without text.
    #[error("nothing is said")]
    Empty,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_frame_is_read_as_the_published_client_writes_it_and_written_in_its_order() {
        let written = r#"{"content":"hello","sender":"Weather Man","comm_id":"c0","next_speaker":["Cook"],"state":1,"type":4,"proposal_id":"","goal":"dinner","team_members":[{"desc":"cooks","name":"Cook","type":"Thing Assistant"}],"team_up_depth":null,"task_id":"","task_desc":"","task_conclusion":"","task_abstract":"","triggers":[],"updated_plan":"","is_collaborative_planning_enabled":false,"max_turns":null}"#;
        let (kind, frame) = ChatFrame::read(written).unwrap();
        assert_eq!((kind, frame.next_speaker.iter().collect::<Vec<_>>()), (FrameKind::Discussion, vec!["Cook"]));
        assert_eq!(frame.write(), written);
        // What is left out has the client's defaults, and what nobody knows is passed over.
        let (kind, frame) = ChatFrame::read(r#"{"state":1,"type":10,"next_speaker":"me","emoji":1}"#).unwrap();
        assert_eq!((kind, frame.next_speaker.iter().next()), (FrameKind::Concluding, Some("me")));
        assert_eq!(ChatFrame::default().next_speaker.iter().count(), 0);
    }

    #[test]
    fn what_is_no_frame_is_told_apart_by_why() {
        let long = vec!["x"; LIST_LEN_MAX + 1];
        for (document, fault) in [
            (json!("text"), FrameFault::Unreadable),
            (json!({"content": 1}), FrameFault::Unreadable),
            (json!({"state": 300}), FrameFault::Unreadable),
            (json!({"state": 1, "type": 4, "triggers": long}), FrameFault::Unreadable),
            (json!({"state": 1, "type": 4, "next_speaker": long}), FrameFault::Unreadable),
            (json!({"state": 1, "type": 4, "team_members": long}), FrameFault::Unreadable),
            (json!({"state": 1, "type": 3}), FrameFault::Kind),
            (json!({"state": 1, "type": 12}), FrameFault::Kind),
            (json!({"state": 0, "type": 4}), FrameFault::Kind),
            (json!({}), FrameFault::Kind),
        ] {
            assert_eq!(ChatFrame::read(&document.to_string()).unwrap_err(), fault, "{document}");
        }
        assert_eq!(ChatFrame::read(&"[".repeat(1000)).unwrap_err(), FrameFault::Unreadable);
    }
}
