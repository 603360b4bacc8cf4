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
    /// A key, lane or subject that no bus takes: a fault of the caller, who should have checked it. Nothing happened.
    #[error("not a valid key, lane or subject: `{0}`")]
    Invalid(String),
    /// The bus was shut down.
    #[error("the bus is closed")]
    Closed,
}
