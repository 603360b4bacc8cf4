//! Conversations of Agora: which further messages belong together, between whom, and until when. They live in the gateway
//! that opened them; the messages themselves are negotiations of the exchange, and the history is with those who talk.

use std::collections::BTreeSet;

use agora::Selection;
use ahash::HashMap;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use schemas::{AgentId, Code, Refusal};

/// How long a conversation lasts from its beginning, in seconds, as with the package `agora-protocol`.
pub(crate) const CONVERSATION_S: u64 = 300;
/// Conversations at once.
const CONVERSATIONS_MAX: usize = 16_384;
/// Conversations of one caller at once.
const CONVERSATIONS_PER_CALLER_MAX: usize = 1024;
/// Messages of one conversation: the package's negotiator gives up after 10.
const MESSAGES_MAX: u32 = 64;

/// The name of one transaction or conversation, drawn at random.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConversationId(String);

impl ConversationId {
    /// A new one.
    ///
    /// # Errors
    /// [`Code::Internal`] when the system gives no random bytes.
    pub(crate) fn draw() -> Result<Self, Refusal> {
        let mut bytes = [0; 16];
        let drawn = SystemRandom::new().fill(&mut bytes);
        drawn.map_err(|_| Refusal::new(Code::Internal, "the system gives no random numbers"))?;
        Ok(Self(format!("agora-{}", HEXLOWER.encode(&bytes))))
    }
}

schemas::shown!(ConversationId = |Self(id)| "{id}");

/// Whose conversation, and under what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// Who opened it.
    pub(crate) caller: AgentId,
    /// With whom.
    pub(crate) agent: AgentId,
    /// What its messages are under.
    pub(crate) selection: Selection,
}

/// The conversations of a gateway.
#[derive(Default)]
pub(crate) struct Conversations(Mutex<ConversationTable>);

#[derive(Default)]
struct ConversationTable {
    by_id: HashMap<ConversationId, OpenConversation>,
    by_expiry: BTreeSet<(u64, ConversationId)>,
    count_by_caller: HashMap<AgentId, usize>,
}

struct OpenConversation {
    conversation: Conversation,
    messages: u32,
    expires_s: u64,
}

impl Conversations {
    /// Opens a conversation; the number of its first message, which is 1.
    ///
    /// # Errors
    /// [`Code::Overloaded`] when there are as many as there may be.
    pub(crate) fn open(&self, id: &ConversationId, conversation: Conversation, now_s: u64) -> Result<u32, Refusal> {
        let mut table = self.0.lock();
        table.expire(now_s);
        let of_caller = table.count_by_caller.get(&conversation.caller).copied().unwrap_or(0);
        if table.by_id.len() >= CONVERSATIONS_MAX || of_caller >= CONVERSATIONS_PER_CALLER_MAX {
            return Err(Refusal::new(Code::Overloaded, "too many conversations are open")
                .expecting("conversations that are ended (DELETE) when they are over")
                .retry_after_ms(1000));
        }
        let expires_s = now_s.saturating_add(CONVERSATION_S);
        *table.count_by_caller.entry(conversation.caller.clone()).or_default() += 1;
        table.by_expiry.insert((expires_s, id.clone()));
        table.by_id.insert(id.clone(), OpenConversation { conversation, messages: 1, expires_s });
        Ok(1)
    }

    /// A further message, of the caller that opened the conversation to the agent it was opened with: what it is under, and
    /// its number.
    ///
    /// # Errors
    /// [`Code::NotFound`] for any other; [`Code::OutOfRange`] when it has had as many as it may.
    pub(crate) fn next(
        &self,
        id: &str,
        caller: &AgentId,
        agent: &AgentId,
        now_s: u64,
    ) -> Result<(Selection, u32), Refusal> {
        let mut table = self.0.lock();
        table.expire(now_s);
        let found = table.by_id.get_mut(&ConversationId(id.to_owned()));
        let is_theirs =
            |open: &&mut OpenConversation| open.conversation.caller == *caller && open.conversation.agent == *agent;
        // The words are the package's.
        let open = found.filter(is_theirs).ok_or_else(|| Refusal::new(Code::NotFound, "Conversation not found."))?;
        if open.messages >= MESSAGES_MAX {
            return Err(Refusal::new(Code::OutOfRange, "the conversation has had as many messages as it may")
                .expecting(format!("at most {MESSAGES_MAX}; open another")));
        }
        open.messages += 1;
        Ok((open.conversation.selection.clone(), open.messages))
    }

    /// Ends a conversation of this caller with this agent; anything else is as it was.
    pub(crate) fn end(&self, id: &str, caller: &AgentId, agent: &AgentId) {
        let mut table = self.0.lock();
        let id = ConversationId(id.to_owned());
        let open = table.by_id.get(&id).map(|open| &open.conversation);
        if open.is_some_and(|open| open.caller == *caller && open.agent == *agent) {
            table.remove(&id);
        }
    }

    /// How many are open, those included whose time has come since the last was opened.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().by_id.len()
    }
}

impl ConversationTable {
    /// Removes those whose time has come.
    fn expire(&mut self, now_s: u64) {
        while let Some((_, id)) = self.by_expiry.first().filter(|(expires_s, _)| *expires_s <= now_s).cloned() {
            self.remove(&id);
        }
    }

    fn remove(&mut self, id: &ConversationId) {
        let Some(open) = self.by_id.remove(id) else { return };
        self.by_expiry.remove(&(open.expires_s, id.clone()));
        if let Some(count) = self.count_by_caller.get_mut(&open.conversation.caller) {
            *count -= 1;
            if *count == 0 {
                self.count_by_caller.remove(&open.conversation.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_795_204_800;

    fn agent(name: &str) -> AgentId {
        AgentId::try_new(name).unwrap()
    }

    fn between(caller: &str, other: &str) -> Conversation {
        Conversation { caller: agent(caller), agent: agent(other), selection: Selection::Negotiation }
    }

    fn opened(conversations: &Conversations, caller: &str, now_s: u64) -> Result<ConversationId, Refusal> {
        let id = ConversationId::draw().unwrap();
        conversations.open(&id, between(caller, "bob"), now_s).map(|_| id)
    }

    #[test]
    fn a_conversation_numbers_its_messages_until_it_is_ended() {
        let conversations = Conversations::default();
        let id = ConversationId::draw().unwrap();
        let message = |number| (Selection::Negotiation, number);
        assert_eq!(conversations.open(&id, between("alice", "bob"), NOW_S), Ok(1));
        let next = |caller: &str, other: &str, now_s| {
            conversations.next(&id.to_string(), &agent(caller), &agent(other), now_s).map_err(|refusal| refusal.code)
        };
        assert_eq!(next("alice", "bob", NOW_S), Ok(message(2)));
        assert_eq!(next("eve", "bob", NOW_S), Err(Code::NotFound), "of another caller");
        assert_eq!(next("alice", "carol", NOW_S), Err(Code::NotFound), "with another agent");
        conversations.end(&id.to_string(), &agent("eve"), &agent("bob"));
        conversations.end(&id.to_string(), &agent("alice"), &agent("carol"));
        assert_eq!(next("alice", "bob", NOW_S), Ok(message(3)), "only its caller ends it, under the agent it is with");
        conversations.end(&id.to_string(), &agent("alice"), &agent("bob"));
        assert_eq!(next("alice", "bob", NOW_S), Err(Code::NotFound));
        conversations.end("unknown", &agent("alice"), &agent("bob"));
        assert_eq!(conversations.len(), 0);
    }

    #[test]
    fn a_conversation_ends_three_hundred_seconds_after_its_beginning_however_it_is_used() {
        let conversations = Conversations::default();
        let id = opened(&conversations, "alice", NOW_S).unwrap().to_string();
        let next = |now_s| conversations.next(&id, &agent("alice"), &agent("bob"), now_s).is_ok();
        assert!(next(NOW_S + 299));
        assert!(!next(NOW_S + 300));
        let table = conversations.0.lock();
        assert!(table.by_id.is_empty() && table.by_expiry.is_empty() && table.count_by_caller.is_empty());
    }

    #[test]
    fn a_conversation_has_sixty_four_messages_at_most() {
        let conversations = Conversations::default();
        let id = opened(&conversations, "alice", NOW_S).unwrap().to_string();
        let next = || conversations.next(&id, &agent("alice"), &agent("bob"), NOW_S).map_err(|refusal| refusal.code);
        for number in 2..=64 {
            assert_eq!(next().unwrap().1, number);
        }
        assert_eq!(next(), Err(Code::OutOfRange));
    }

    #[test]
    fn so_many_conversations_are_open_at_once_and_no_more() {
        let conversations = Conversations::default();
        let refused = |caller: &str, now_s| opened(&conversations, caller, now_s).unwrap_err().code;
        for number in 0..CONVERSATIONS_MAX / CONVERSATIONS_PER_CALLER_MAX {
            for _ in 0..CONVERSATIONS_PER_CALLER_MAX {
                opened(&conversations, &format!("caller-{number}"), NOW_S).unwrap();
            }
            assert_eq!(refused(&format!("caller-{number}"), NOW_S), Code::Overloaded, "of one caller");
        }
        assert_eq!(refused("another", NOW_S + 299), Code::Overloaded, "of all");
        opened(&conversations, "another", NOW_S + 300).unwrap();
        assert_eq!(conversations.len(), 1);
    }
}
