//! The closed label sets.

use std::sync::LazyLock;

use schemas::{Act, Code};

/// Acts agents send, and `unknown` for what was refused before its act was read.
pub(super) static KINDS: LazyLock<[&str; Act::FROM_AGENTS.len() + 1]> = LazyLock::new(|| {
    let mut kinds = ["unknown"; Act::FROM_AGENTS.len() + 1];
    kinds.iter_mut().zip(Act::FROM_AGENTS).for_each(|(kind, act)| *kind = act.as_str());
    kinds
});

/// The place of an act in [`KINDS`].
pub(super) fn kind_index(act: Option<Act>) -> usize {
    let known = act.and_then(|act| Act::FROM_AGENTS.iter().position(|known| *known == act));
    known.unwrap_or(KINDS.len() - 1)
}

macro_rules! labels {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// Every value, in declaration order.
            pub(crate) const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// As it stands in a label.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

mod control;

pub(crate) use control::{Discovery, Document, Invited, Keyword, KvOperation, Reload};

labels!(
    /// Stages of admission, in order.
    Stage {
        /// Size of the body.
        Size => "size",
        /// Token and subject.
        Auth => "auth",
        /// Rate of the agent.
        Rate => "rate",
        /// Parse, schema, typed decode, digest.
        Schema => "schema",
        /// Sender, scope, recipients, consent, policy.
        Policy => "policy",
        /// Another body under a known id.
        Duplicate => "duplicate",
        /// The log.
        Publish => "publish",
    }
);

labels!(
    /// Rate limiters.
    Limiter {
        /// By agent.
        Agent => "agent",
        /// By peer address, for tokens to verify.
        Peer => "peer",
    }
);

labels!(
    /// What a renewal of the keys came to.
    RefreshResult {
        /// New keys are in force.
        Changed => "changed",
        /// Nothing new.
        Unchanged => "unchanged",
        /// Not readable or not usable; the old keys stay.
        Failed => "failed",
    }
);

labels!(
    /// Streams to agents.
    StreamKind {
        /// WebSocket.
        WebSocket => "ws",
        /// Server-sent events.
        Sse => "sse",
    }
);

labels!(
    /// Why a stream ended.
    CloseReason {
        /// The client closed it.
        Client => "client",
        /// The token ran out.
        Expired => "expired",
        /// The key that signed the token was taken out of the key set.
        KeyRemoved => "key_removed",
        /// An administrator ended the agent's streams.
        Ended => "ended",
        /// The client did not read.
        Slow => "slow",
        /// Nothing was heard of the client.
        Idle => "idle",
        /// The client broke the protocol.
        Protocol => "protocol",
        /// The gateway stops.
        Shutdown => "shutdown",
        /// The bus ended the subscription.
        Bus => "bus",
    }
);

labels!(
    /// What became of a delivery on a stream. None but the first is lost: it comes again until it is acknowledged.
    StreamResult {
        /// Written.
        Sent => "sent",
        /// Not readable.
        Unreadable => "unreadable",
        /// The client did not read it in time.
        Timeout => "timeout",
        /// The client was gone before it was written.
        Gone => "gone",
    }
);

labels!(
    /// What was turned away for want of room.
    Shed {
        /// Too many messages wait for the log.
        Queue => "queue",
        /// No further sender's rate is tracked.
        Senders => "senders",
        /// The agent has too many streams open.
        Streams => "streams",
        /// No further agent is registered.
        Agents => "agents",
        /// The store is full.
        Store => "store",
    }
);

/// The stage a code belongs to.
pub(super) const fn stage_of(code: Code) -> Stage {
    match code {
        Code::TooLarge
        | Code::UnsupportedMediaType
        | Code::RequestTimeout
        | Code::MalformedRequest
        | Code::HeaderTooLarge
        | Code::UpgradeRequired => Stage::Size,
        Code::Unauthenticated | Code::TokenExpired | Code::TokenNotYetValid | Code::Unauthorized => Stage::Auth,
        Code::RateLimited => Stage::Rate,
        Code::MalformedJson
        | Code::DuplicateKey
        | Code::TooDeep
        | Code::MissingField
        | Code::UnknownField
        | Code::WrongType
        | Code::OutOfRange
        | Code::BadFormat
        | Code::NotAllowed => Stage::Schema,
        Code::NoConsent
        | Code::NoRecipient
        | Code::Unresponsive
        | Code::BadDeadline
        | Code::UnknownPolicy
        | Code::InvalidPolicy
        | Code::NotFound
        | Code::MethodNotAllowed => Stage::Policy,
        Code::Conflict => Stage::Duplicate,
        Code::LogUnavailable | Code::Unavailable | Code::Overloaded | Code::Internal => Stage::Publish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Transport;

    #[test]
    fn every_act_agents_send_has_its_own_kind() {
        for (index, act) in Act::FROM_AGENTS.into_iter().enumerate() {
            assert_eq!(KINDS[index], act.as_str());
            assert_eq!(kind_index(Some(act)), index);
        }
        assert_eq!(KINDS[kind_index(None)], "unknown");
    }

    #[test]
    fn handles_are_found_by_declaration_order() {
        assert!(Stage::ALL.into_iter().enumerate().all(|(index, stage)| stage as usize == index));
        assert!(Transport::ALL.into_iter().enumerate().all(|(index, way)| way as usize == index));
        assert!(Code::ALL.iter().enumerate().all(|(index, code)| *code as usize == index));
    }
}
