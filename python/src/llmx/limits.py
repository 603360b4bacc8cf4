"""The bounds of an agent, each with the reason for its value."""

from dataclasses import dataclass

ACKS_TOGETHER_MAX = 256
"""Most delivery ids in one acknowledgement: the gateway takes no more."""

ACKS_WAITING_MAX = 65_536
"""Most acknowledgements that wait for a connection. The oldest give way: their deliveries come again."""

ACK_WAIT_S = 0.060
"""Longest wait of an acknowledgement for a message it can leave with: an eighth of the gap before a repeat."""

HANDLER_ACK_S = 0.250
"""A delivery whose handler takes longer is acknowledged meanwhile: it would be repeated after half a second."""

BLOCKED_S = 0.5
"""A handler that held everything else up for so long is named in the log: deliveries come again by then."""

HELD_BACK_S = 3.0
"""A message that the exchange keeps waiting for so long is worth a line in the log."""

ANSWER_TIMEOUT_S = 5.0
"""How long an answer is awaited: some thirty times the slowest healthy append."""

CONNECT_TIMEOUT_S = 2.5
"""How long one gateway may take to let an agent in: a stopped process accepts connections and says nothing."""

TOKEN_TIMEOUT_S = 10.0
"""How long the function that gives a token may take: an identity provider far away answers within it."""

WAYS_TRIED_MAX = 3
"""Gateways tried in one attempt to connect; the next attempt goes on with the others."""

LEASE_S = 30.0
"""The lease of a registration that names none. Once in a lease an agent looks whether it is still registered."""

PING_EVERY_S = 10.0
"""Between two pings to the gateway."""

FRAME_BYTES_MAX = 4 * 1024 * 1024
"""Largest frame read: a delivery to an initiator with a thousand offers fits."""

SENDS_IN_FLIGHT_MAX = 1024
"""Most messages on their way to a gateway at a time; more wait in the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds that an agent may choose itself."""

    unanswered_max: int = 16_384
    """Most messages without an answer. An agent this far behind should slow down, not remember more."""

    deliveries_remembered: int = 65_536
    """Deliveries recognised when they come again: some 15 s of repeats at 4000 a second."""

    handlers_max: int = 1024
    """Handlers that run at a time. A delivery beyond them is left unacknowledged and comes again."""

    engagements_max: int = 65_536
    """Negotiations an agent takes part in at a time; it refuses further calls."""

    attempts_max: int = 20
    """Most times a message leaves. With the gaps below: two and a half minutes."""

    retry_base_s: float = 0.2
    """Longest gap after the first attempt; it doubles."""

    retry_max_s: float = 10.0
    """Longest gap between attempts."""

    connect_attempts_max: int = 8640
    """Most attempts to connect in a row: a day at the longest gap."""

    end_s: float = 10.0
    """How long the end waits for handlers that run, and for answers."""
