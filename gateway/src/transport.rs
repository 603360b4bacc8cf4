//! The ways a message comes in.

/// The way a message came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Transport {
    /// `POST /v1/messages`.
    Http,
    /// A frame on `GET /v1/ws`.
    #[strum(serialize = "ws")]
    WebSocket,
    /// `gw.in.<agent>` on the bus.
    Nats,
    /// A call within the process.
    InProcess,
}

impl Transport {
    /// As it stands in a label.
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}
