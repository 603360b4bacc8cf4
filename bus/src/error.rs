/// What can go wrong between the exchange and its bus.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BusError {
    /// The log has no room; nothing was stored. Free space or raise the limit.
    #[error("the store is full: {0}")]
    Full(String),
    /// The record is larger than the bus takes; nothing was stored.
    #[error("the message has {bytes} bytes, the bus takes {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Nobody listens on the subject.
    #[error("nobody answers on `{0}`")]
    NoResponder(String),
    /// The outcome is unknown: it may or may not have happened. Safe to try again.
    #[error("no answer from the bus: {0}")]
    Unknown(String),
    /// The bus cannot be reached.
    #[error("the bus cannot be reached: {0}")]
    Unreachable(String),
    /// The bus is not what the exchange needs (version, stream settings). The text names each difference and the remedy.
    #[error("the bus does not fit: {0}")]
    Mismatch(String),
    /// It cannot be opened as it is configured: a URL that is none, credentials that cannot be read. Correct them.
    #[error("{0}")]
    Unusable(String),
    /// The log no longer holds what a reader has read from it: acknowledged records were lost, or another log stands in
    /// its place. Whoever folded them must start over.
    #[error("the log has lost what it acknowledged: {0}")]
    Diverged(String),
    /// The records asked for were trimmed: read a checkpoint, or the archive.
    #[error("the log begins behind sequence {0}: the records before it were trimmed")]
    Trimmed(u64),
    /// A key, lane or subject that no bus takes: a fault of the caller, who should have checked it. Nothing happened.
    #[error("not a valid key, lane or subject: `{0}`")]
    Invalid(String),
    /// The bus was shut down.
    #[error("the bus is closed")]
    Closed,
}

impl BusError {
    /// Whether what was asked for may have been done already, or may be when it is asked for again.
    #[must_use]
    pub fn is_worth_repeating(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Unreachable(_) | Self::NoResponder(_) => true,
            Self::Full(_)
            | Self::TooLarge { .. }
            | Self::Mismatch(_)
            | Self::Unusable(_)
            | Self::Invalid(_)
            | Self::Diverged(_)
            | Self::Trimmed(_)
            | Self::Closed => false,
        }
    }
}
