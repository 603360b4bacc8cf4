//! The closed label sets of documents and of the control plane.

use schemas::Code;

labels!(
    /// What became of a document of the control plane that was followed from the bus.
    Reload {
        /// In force.
        Applied => "applied",
        /// Left out.
        Unreadable => "unreadable",
    }
);

labels!(
    /// What a search for agents came to.
    Discovery {
        /// At least one agent.
        Found => "found",
        /// None.
        Empty => "empty",
        /// The question was refused.
        Refused => "refused",
    }
);

labels!(
    /// Operations on the control plane's buckets.
    KvOperation {
        /// Stored.
        Put => "put",
        /// Stored unless something stands there.
        Create => "create",
        /// Read.
        Value => "value",
        /// Removed.
        Delete => "delete",
    }
);

labels!(
    /// What the gateway decided about an agent that a call addresses.
    Invited {
        /// It is invited.
        Allowed => "allow",
        /// Its rules do not consent.
        Denied => "deny",
        /// Its owner is to be asked.
        Asked => "escalate",
    }
);

labels!(
    /// What a document was checked against.
    Document {
        /// A message of any act.
        Message => "message",
        /// A registration.
        Registration => "registration",
        /// A group.
        Group => "group",
        /// A policy.
        Policy => "policy",
    }
);

labels!(
    /// Which kind of rule a document broke: the families of JSON Schema's keywords, and what no schema is needed for.
    Keyword {
        /// No JSON, a member twice, too deep.
        Syntax => "syntax",
        /// `required`.
        Required => "required",
        /// `additionalProperties`.
        AdditionalProperties => "additionalProperties",
        /// `type`.
        Type => "type",
        /// `minimum`, `maxLength` and their like.
        Range => "range",
        /// `pattern`, `format`.
        Format => "format",
        /// `enum`, `const`, `not`.
        Enum => "enum",
    }
);

impl Keyword {
    /// The family a code speaks of; none for codes that speak of no document's form.
    pub(crate) const fn of(code: Code) -> Option<Self> {
        match code {
            Code::MalformedJson | Code::DuplicateKey | Code::TooDeep => Some(Self::Syntax),
            Code::MissingField => Some(Self::Required),
            Code::UnknownField => Some(Self::AdditionalProperties),
            Code::WrongType => Some(Self::Type),
            Code::OutOfRange => Some(Self::Range),
            Code::BadFormat => Some(Self::Format),
            Code::NotAllowed => Some(Self::Enum),
            Code::TooLarge
            | Code::UnsupportedMediaType
            | Code::RequestTimeout
            | Code::MalformedRequest
            | Code::HeaderTooLarge
            | Code::UpgradeRequired
            | Code::Unauthenticated
            | Code::TokenExpired
            | Code::TokenNotYetValid
            | Code::Unauthorized
            | Code::RateLimited
            | Code::NoConsent
            | Code::NoRecipient
            | Code::Unresponsive
            | Code::BadDeadline
            | Code::UnknownPolicy
            | Code::InvalidPolicy
            | Code::NotFound
            | Code::MethodNotAllowed
            | Code::Conflict
            | Code::LogUnavailable
            | Code::Unavailable
            | Code::Overloaded
            | Code::Internal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_by_declaration_order() {
        assert!(Document::ALL.into_iter().enumerate().all(|(index, one)| one as usize == index));
        assert!(Keyword::ALL.into_iter().enumerate().all(|(index, one)| one as usize == index));
        assert!(KvOperation::ALL.into_iter().enumerate().all(|(index, one)| one as usize == index));
    }

    #[test]
    fn every_kind_of_rule_has_a_code_that_speaks_of_it() {
        for keyword in Keyword::ALL {
            assert!(Code::ALL.iter().any(|code| Keyword::of(*code) == Some(keyword)), "{keyword:?}");
        }
    }
}
