use bus::fanout::RoutedResult;

telemetry::metrics! {
    /// Streams to agents.
    pub(crate) struct ServingMetrics {
        /// Open streams to agents.
        stream_connections: Gauge[transport: StreamKind] = "exchange_stream_connections";
        /// Streams ended, by reason.
        stream_closed: Counter[transport: StreamKind, reason: CloseReason] = "exchange_stream_closed_total";
        /// Deliveries handed to streams, by result; what was not sent comes again.
        stream_events: Counter[transport: StreamKind, result: StreamResult] = "exchange_stream_events_total";
        /// Acknowledged deliveries by what became of the acknowledgement; those not sent come again.
        acks: Counter[result: AckResult] = "exchange_acks_total";
        /// Messages in which acknowledgements of all agents went to the engines.
        ack_messages: Counter = "exchange_ack_messages_total";
        /// Deliveries engines sent to this gateway for its streams, by result; what was not handed to a stream comes again.
        routed: Counter[result: RoutedResult] = "exchange_routed_deliveries_total";
        /// Agents that have at least one stream open to this gateway.
        agents_connected: Gauge = "exchange_agents_connected";
        /// Bus messages lost so far by subscribers of this process that did not keep up.
        bus_dropped: Gauge = "exchange_bus_dropped_messages";
    }
}

impl ServingMetrics {
    /// A stream ended.
    pub(crate) fn stream_ended(&self, stream: StreamKind, reason: CloseReason) {
        self.stream_connections.of(stream).dec();
        self.stream_closed.of(stream, reason).inc();
    }

    /// Acknowledgements of so many deliveries were passed on in one message, or dropped.
    pub(crate) fn acknowledged(&self, result: AckResult, count: usize) {
        self.acks.of(result).inc_by(count as u64);
        if result == AckResult::Sent {
            self.ack_messages.inc();
        }
    }

    /// Deliveries were handed to a stream, or could not be.
    pub(crate) fn delivered(&self, stream: StreamKind, result: StreamResult, count: usize) {
        self.stream_events.of(stream, result).inc_by(count as u64);
    }
}

/// What became of an acknowledgement. None but the first reaches an engine: the delivery comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum AckResult {
    /// Passed on to the engines.
    Sent,
    /// Dropped: too many were waiting.
    Full,
    /// Dropped: the bus did not take it.
    Failed,
}

/// Streams to agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum StreamKind {
    /// WebSocket.
    #[strum(serialize = "ws")]
    WebSocket,
    /// Server-sent events.
    Sse,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum CloseReason {
    /// The client closed it.
    Client,
    /// The token ran out.
    Expired,
    /// The key that signed the token was taken out of the key set.
    KeyRemoved,
    /// An administrator ended the agent's streams.
    Ended,
    /// The client did not read.
    Slow,
    /// Nothing was heard of the client.
    Idle,
    /// The client broke the protocol.
    Protocol,
    /// The gateway stops.
    Shutdown,
    /// The bus ended the subscription.
    Bus,
}

/// What became of a delivery on a stream. None but the first is lost: it comes again until it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum StreamResult {
    /// Written.
    Sent,
    /// Not readable.
    Unreadable,
    /// The client did not read it in time.
    Timeout,
    /// The client was gone before it was written.
    Gone,
}
