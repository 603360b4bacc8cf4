//! Who subscribes to what.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::Received;

/// Every subscription.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    by_subject: HashMap<String, Targets>,
    /// Subscriptions with wildcards. A process has a handful (one per role), so a list beats a tree.
    by_pattern: Vec<(String, Targets)>,
    len: usize,
    last_id: u64,
}

/// Where a subscription stands, to remove it.
#[derive(Debug, Clone)]
pub(super) struct SubscriptionKey {
    pattern: String,
    queue: Option<String>,
    id: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivered {
    /// Whether anyone subscribes to its subject.
    pub(super) reached: bool,
    /// Subscribers that lost it because their queue is full.
    pub(super) dropped: u64,
}

#[derive(Debug, Default)]
struct Targets {
    each: Vec<Target>,
    queues: Vec<Queue>,
}

/// Members that share messages, in turn.
#[derive(Debug)]
struct Queue {
    name: String,
    members: Vec<Target>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Target {
    id: u64,
    sender: mpsc::Sender<Received>,
}

impl Subscriptions {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.by_subject.is_empty() && self.by_pattern.is_empty()
    }

    pub(super) fn insert(
        &mut self,
        pattern: &str,
        queue: Option<String>,
        sender: mpsc::Sender<Received>,
    ) -> SubscriptionKey {
        self.last_id += 1;
        self.len += 1;
        let key = SubscriptionKey { pattern: pattern.to_owned(), queue, id: self.last_id };
        let target = Target { id: key.id, sender };
        let targets = if !has_wildcard(pattern) {
            self.by_subject.entry(pattern.to_owned()).or_default()
        } else if let Some(index) = self.by_pattern.iter().position(|(known, _)| known == pattern) {
            &mut self.by_pattern[index].1
        } else {
            &mut self.by_pattern.push_mut((pattern.to_owned(), Targets::default())).1
        };
        targets.insert(key.queue.as_deref(), target);
        key
    }

    pub(super) fn remove(&mut self, key: &SubscriptionKey) {
        self.len -= 1;
        if has_wildcard(&key.pattern) {
            self.by_pattern.retain_mut(|(pattern, targets)| *pattern != key.pattern || !targets.remove(key));
        } else if self.by_subject.get_mut(&key.pattern).is_some_and(|targets| targets.remove(key)) {
            self.by_subject.remove(&key.pattern);
        }
    }

    pub(super) fn deliver(&self, message: &Received) -> Delivered {
        let mut delivered = Delivered::default();
        if let Some(targets) = self.by_subject.get(&message.subject) {
            targets.deliver(message, &mut delivered);
        }
        for (pattern, targets) in &self.by_pattern {
            if matches(pattern, &message.subject) {
                targets.deliver(message, &mut delivered);
            }
        }
        delivered
    }
}

impl Targets {
    fn insert(&mut self, queue: Option<&str>, target: Target) {
        let Some(name) = queue else {
            self.each.push(target);
            return;
        };
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.name == name) {
            queue.members.push(target);
        } else {
            self.queues.push(Queue { name: name.to_owned(), members: vec![target], turn: AtomicUsize::new(0) });
        }
    }

    /// Removes a target and returns whether none is left.
    fn remove(&mut self, key: &SubscriptionKey) -> bool {
        if key.queue.is_none() {
            self.each.retain(|target| target.id != key.id);
        }
        for queue in &mut self.queues {
            queue.members.retain(|target| target.id != key.id);
        }
        self.queues.retain(|queue| !queue.members.is_empty());
        self.each.is_empty() && self.queues.is_empty()
    }

    fn deliver(&self, message: &Received, delivered: &mut Delivered) {
        for target in &self.each {
            target.deliver(message, delivered);
        }
        for queue in &self.queues {
            let turn = queue.turn.fetch_add(1, Ordering::Relaxed);
            if let Some(target) = queue.members.get(turn % queue.members.len().max(1)) {
                target.deliver(message, delivered);
            }
        }
    }
}

impl Target {
    fn deliver(&self, message: &Received, delivered: &mut Delivered) {
        match self.sender.try_send(message.clone()) {
            Ok(()) => delivered.reached = true,
            Err(TrySendError::Full(_)) => {
                delivered.reached = true;
                delivered.dropped += 1;
            }
            // Its subscription is being dropped and will leave the table in a moment.
            Err(TrySendError::Closed(_)) => {}
        }
    }
}

fn has_wildcard(pattern: &str) -> bool {
    pattern.bytes().any(|byte| matches!(byte, b'*' | b'>'))
}

/// Whether a subject matches a pattern: `*` stands for one token, `>` for one or more at the end.
fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            (_, Some(_) | None) => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_tokens() {
        for (pattern, subject, is_match) in [
            ("agent.*.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.b.inbox", false),
            ("agent.*.inbox", "agent.inbox", false),
            ("ack.*.*", "ack.a", false),
            ("ack.*.*", "ack.a.1", true),
            ("ack.*.*", "ack.a.1.2", false),
            ("award.>", "award.n.0.1", true),
            ("award.>", "award", false),
            (">", "a", true),
            ("hello.*", "hell.a", false),
            ("*.b", "a.b", true),
            ("*.b", "a.c", false),
        ] {
            assert_eq!(matches(pattern, subject), is_match, "{pattern} and {subject}");
        }
    }
}
