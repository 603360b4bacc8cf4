//! The ways a message comes in.

/// The way a message came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// `POST /v1/messages`.
    Http,
    /// A frame on `GET /v1/ws`.
    WebSocket,
    /// `gw.in.<agent>` on the bus.
    Nats,
    /// A call within the process.
    InProcess,
}

impl Transport {
    /// Every way in, in declaration order.
    pub(crate) const ALL: [Self; 4] = [Self::Http, Self::WebSocket, Self::Nats, Self::InProcess];

    /// As it stands in a label.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::WebSocket => "ws",
            Self::Nats => "nats",
            Self::InProcess => "in_process",
        }
    }
}
