//! What one message on [`crate::subject::gateway_deliveries`] carries: a line for each delivery, `<agent> <document>`.
//!
//! A document is compact JSON, in which a line feed cannot stand: a gateway cuts the lines apart and hands each document on
//! as the engine wrote it, without reading it.

use std::ops::Range;

use crate::delivery::Delivery;
use crate::ids::AgentId;
use crate::subject;

/// Bytes of a line beside the agent and the document.
pub const LINE_EXTRA: usize = 2;

/// Appends a line, and says where its document stands.
pub fn push_line(lines: &mut Vec<u8>, agent: &AgentId, document: &[u8]) -> Range<usize> {
    debug_assert!(memchr::memchr(b'\n', document).is_none(), "compact JSON is one line");
    lines.extend_from_slice(agent.as_str().as_bytes());
    lines.push(b' ');
    let start = lines.len();
    lines.extend_from_slice(document);
    lines.push(b'\n');
    start..lines.len() - 1
}

/// The lines of a message in their order: agent and document, or nothing for a line that is none.
pub fn lines(message: &[u8]) -> impl Iterator<Item = Option<(&str, &[u8])>> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', message).chain(unended(message)).map(move |end| {
        let line = &message[start..end];
        start = end + 1;
        let space = memchr::memchr(b' ', line)?;
        Some((std::str::from_utf8(&line[..space]).ok()?, &line[space + 1..]))
    })
}

/// The deliveries of a message to an inbox or to a gateway with their recipients, for whoever reads along; what is not
/// readable is left out.
#[must_use]
pub fn read_deliveries(subject: &str, message: &[u8]) -> Vec<(AgentId, Delivery)> {
    if subject::is_gateway_deliveries(subject) {
        let read =
            |(agent, document): (&str, &[u8])| Some((AgentId::try_new(agent).ok()?, Delivery::decode(document).ok()?));
        return lines(message).flatten().filter_map(read).collect();
    }
    let Some(agent) = subject::agent_of(subject) else { return Vec::new() };
    let deliveries = Delivery::decode_all(message).unwrap_or_default();
    deliveries.into_iter().map(|delivery| (agent.clone(), delivery)).collect()
}

/// The end of a message whose last line has none of its own.
fn unended(message: &[u8]) -> Option<usize> {
    message.last().filter(|last| **last != b'\n').map(|_| message.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back_with_their_agents_and_documents() {
        let (ann, bob) = (AgentId::try_new("ann").unwrap(), AgentId::try_new("bob").unwrap());
        let documents = [(&ann, &br#"{"a":"x y"}"#[..]), (&bob, b"{}"), (&ann, br#"{"b":"\\n"}"#)];
        let mut message = Vec::new();
        for (agent, document) in documents {
            let range = push_line(&mut message, agent, document);
            assert_eq!(&message[range], document);
            let extra =
                message.len() - lines(&message).flatten().map(|(to, text)| to.len() + text.len()).sum::<usize>();
            assert_eq!(extra % LINE_EXTRA, 0);
        }
        let read: Vec<_> = lines(&message).map(Option::unwrap).collect();
        assert_eq!(read, documents.map(|(agent, document)| (agent.as_str(), document)));
        assert_eq!(lines(b"").count(), 0);
    }

    #[test]
    fn a_line_that_is_none_costs_no_other() {
        let read: Vec<_> = lines(b"bob {}\n\n{}\n\xff {}\nann {}").collect();
        assert_eq!(read.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, false, false, true]);
    }
}
