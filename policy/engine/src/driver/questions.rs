//! Requests for views and journals, answered only from a state that is current.
//!
//! A process that was stopped wakes with requests in its subscription and a state of long ago, and so does one that folds
//! more slowly than the log grows. So the lane asks the log where it ends, once a request is there, and answers when it
//! has folded up to that record. By then it has also folded the claim of an engine that has taken the lane meanwhile, and
//! leaves the answer to that one.
//!
//! Holds no socket and reads no clock. One question for the log's end is outstanding at a time and serves every request
//! that came before it was asked.

use std::collections::VecDeque;

use bus::Received;

/// Most requests that wait; further ones are dropped, and their senders told by nobody. Far more than gateways ask at once.
const WAITING_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// The log has not been asked for its end since they came.
    fresh: Vec<Received>,
    /// The log is asked for its end on their behalf.
    asking: Vec<Received>,
    /// Wait until this record is folded.
    waiting: VecDeque<(u64, Vec<Received>)>,
    /// All of them.
    len: usize,
}

impl Questions {
    /// Takes a request in.
    pub(super) fn add(&mut self, request: Received) {
        if self.len < WAITING_MAX {
            self.len += 1;
            self.fresh.push(request);
        }
    }

    /// Whether the log is to be asked for its end now.
    pub(super) fn poll_end_wanted(&mut self) -> bool {
        if self.fresh.is_empty() || !self.asking.is_empty() {
            return false;
        }
        self.asking = std::mem::take(&mut self.fresh);
        true
    }

    /// The log has told its end, or nothing. Where it has not, nobody can say what is current: those who asked ask again.
    pub(super) fn handle_end(&mut self, end: Option<u64>) {
        let asking = std::mem::take(&mut self.asking);
        match end {
            Some(end) => self.waiting.push_back((end, asking)),
            None => self.len -= asking.len(),
        }
    }

    /// The next requests that can be answered from the state after a record.
    pub(super) fn poll_due(&mut self, position: u64) -> Option<Vec<Received>> {
        let (_, due) = self.waiting.pop_front_if(|(end, _)| *end <= position)?;
        self.len -= due.len();
        Some(due)
    }

    /// Forgets every request: the lane has no state, or another owner.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_request_is_answered_once_the_log_is_folded_up_to_its_end() {
        let mut questions = Questions::default();
        questions.add(request("first"));
        assert!(questions.poll_due(100).is_none(), "nobody knows yet where the log ends");
        assert!(questions.poll_end_wanted());
        questions.handle_end(Some(101));
        assert!(questions.poll_due(100).is_none(), "behind");
        assert_eq!(payloads(questions.poll_due(101)), ["first"]);
        assert!(questions.poll_due(101).is_none(), "once");
    }

    #[test]
    fn a_request_that_comes_while_the_log_is_asked_waits_for_the_next_answer() {
        let mut questions = Questions::default();
        questions.add(request("first"));
        assert!(questions.poll_end_wanted());
        questions.add(request("second"));
        assert!(!questions.poll_end_wanted(), "one question at a time");
        questions.handle_end(Some(1));
        assert_eq!(payloads(questions.poll_due(1)), ["first"]);
        assert!(questions.poll_end_wanted());
        questions.handle_end(Some(2));
        assert!(questions.poll_due(1).is_none());
        assert_eq!(payloads(questions.poll_due(2)), ["second"]);
        assert!(!questions.poll_end_wanted(), "nobody asks");
    }

    #[test]
    fn nothing_is_answered_where_the_log_does_not_say_its_end() {
        let mut questions = Questions::default();
        questions.add(request("first"));
        assert!(questions.poll_end_wanted());
        questions.handle_end(None);
        assert!(questions.poll_due(u64::MAX).is_none());
        assert_eq!(questions.len, 0);
    }

    #[test]
    fn requests_that_wait_are_bounded_and_forgotten_with_the_lane() {
        let mut questions = Questions::default();
        (0..2 * WAITING_MAX).for_each(|_| questions.add(request("many")));
        assert!(questions.poll_end_wanted());
        questions.handle_end(Some(1));
        questions.add(request("more"));
        assert_eq!(payloads(questions.poll_due(1)).len(), WAITING_MAX);
        questions.add(request("again"));
        assert_eq!(questions.len, 1);
        questions.clear();
        assert!(!questions.poll_end_wanted());
    }

    fn request(payload: &'static str) -> Received {
        Received { subject: String::new(), payload: Bytes::from_static(payload.as_bytes()), reply: None, token: None }
    }

    fn payloads(due: Option<Vec<Received>>) -> Vec<String> {
        let due = due.unwrap_or_default();
        due.iter().map(|request| String::from_utf8_lossy(&request.payload).into_owned()).collect()
    }
}
