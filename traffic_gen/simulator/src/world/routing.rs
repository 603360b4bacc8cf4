//! Messages by subject: who gets one, when, how often, if at all.

use bus::Received;
use rand::RngExt;

use super::{LinkId, WorldState};
use crate::points::Point;

impl WorldState {
    /// Sends a message to whoever listens on its subject; whether anybody does.
    pub(crate) fn route(&mut self, from: LinkId, message: &Received) -> bool {
        self.broker.subscriptions.retain(|subscription| !subscription.sender.is_closed());
        self.observe_message(from, message);
        let targets = self.targets(&message.subject);
        for &target in &targets {
            if self.happens(self.weather.message_lost) || self.is_cut(self.broker.subscriptions[target].link) {
                self.reached(Point::MessageLost);
                continue;
            }
            self.deliver(target, message.clone());
            if self.happens(self.weather.message_twice) {
                self.reached(Point::MessageDuplicated);
                self.deliver(target, message.clone());
            }
        }
        !targets.is_empty()
    }

    fn deliver(&mut self, target: usize, message: Received) {
        let at_us = self.now_us() + self.latency_us();
        let subscription = &mut self.broker.subscriptions[target];
        let (link, sender) = (subscription.link, subscription.sender.clone());
        let is_overtaking = at_us < subscription.last_at_us;
        subscription.last_at_us = subscription.last_at_us.max(at_us);
        if is_overtaking {
            self.reached(Point::MessageReordered);
        }
        let receive = move |state: &mut Self| {
            state.observe_arrival(link, &message);
            // A subscriber that has gone meanwhile hears nothing.
            let _ = sender.send(message);
        };
        self.at(at_us, Box::new(move |state| state.arrive(link, Box::new(receive))));
    }

    /// The subscriptions a message goes to: each that stands alone, and one of each queue group.
    fn targets(&mut self, subject: &str) -> Vec<usize> {
        let mut targets = Vec::new();
        let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
        for (index, subscription) in self.broker.subscriptions.iter().enumerate() {
            if !matches(&subscription.pattern, subject) {
                continue;
            }
            match &subscription.queue {
                None => targets.push(index),
                Some(queue) => match groups.iter_mut().find(|(known, _)| known == queue) {
                    Some((_, members)) => members.push(index),
                    None => groups.push((queue, vec![index])),
                },
            }
        }
        for (_, members) in groups {
            targets.push(members[self.rng.random_range(0..members.len())]);
        }
        targets
    }
}

/// Whether a subject fits a pattern: `*` stands for one token, `>` for the rest.
fn matches(pattern: &str, subject: &str) -> bool {
    let Some(wild) = pattern.find(['*', '>']) else { return pattern == subject };
    if !subject.starts_with(&pattern[..wild]) {
        return false;
    }
    let (mut wanted, mut found) = (pattern[wild..].split('.'), subject[wild..].split('.'));
    loop {
        match (wanted.next(), found.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if !token.is_empty() => {}
            (Some(literal), Some(token)) if literal == token => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_token_and_an_angle_for_the_rest() {
        for (pattern, subject, fits) in [
            ("agent.a.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.inbox", true),
            ("agent.*.inbox", "agent.a.b.inbox", false),
            ("agent.*.inbox", "agent.a.outbox", false),
            ("ack.*.*", "ack.a.0", true),
            ("ack.*.*", "ack.a", false),
            ("award.>", "award.x.0.1", true),
            ("award.>", "award", false),
            ("hello.*", "hello.", false),
        ] {
            assert_eq!(matches(pattern, subject), fits, "{pattern} {subject}");
        }
    }
}
