"""Negotiation market: what is negotiated, how it ends, and what agents are told."""

from .model import CHOSEN, Dashboard, Query, Row, gauge_sum, heatmap, quantile, quantiles, rate, series, table

DURATION = "exchange_negotiation_duration_seconds"
CLOSES = rate("exchange_collections_closed_total", "protocol")
WITHOUT_EFFECT = rate("exchange_dispositions_total", "kind, disposition", 'disposition!~"ok|committed"')
LATE_CLOSES = rate("exchange_collections_closed_total", "protocol", 'reason="deadline"')

NEGOTIATIONS = Row("Negotiations", (
    series("Started and ended", "Negotiations that were opened, and that ended, by protocol.",
           "ops", Query(rate("exchange_negotiations_started_total", "protocol"), "started: {{protocol}}"),
           Query(rate("exchange_negotiations_closed_total", "protocol"), "ended: {{protocol}}")),
    series("Agreements", "Of the negotiations that ended, the share that ended with work done or an agreement.",
           "percentunit", Query("protocol:exchange_agreements:ratio_rate15m", "{{protocol}}"), low=0, high=1),
    series("Open by state", "Open negotiations by state.",
           "short", Query(gauge_sum("exchange_negotiations_open", "protocol, state"), "{{protocol}} {{state}}"), stack=True),
    series("Ended by outcome", "How negotiations ended.",
           "ops", Query(rate("exchange_negotiations_closed_total", "protocol, outcome"), "{{protocol}} {{outcome}}"), stack=True),
    series("Duration by outcome, p50", "Log time from the call to the end; half of the negotiations took less.",
           "s", Query(quantile(0.5, DURATION, "outcome"), "{{outcome}}")),
    series("Duration by outcome, p95", "Log time from the call to the end; 95 of 100 took less.",
           "s", Query(quantile(0.95, DURATION, "outcome"), "{{outcome}}")),
    heatmap("Rounds", "Negotiations per second by the rounds they took.", "short", rate("exchange_negotiation_rounds_bucket", "le")),
    heatmap("Duration", "Negotiations per second by their duration in log time.", "s", rate(f"{DURATION}_bucket", "le")),
    series("Time to a decision", "Log time from the call to the close of its collection, where the award is decided.",
           "s", *quantiles("exchange_decision_duration_seconds")),
))

STATES = Row("How they move", (
    series("Turn time, p95", "Log time from being told to act until the act is logged, by role. Windows of policies are no turns.",
           "s", Query(quantile(0.95, "exchange_negotiation_response_duration_seconds", "role"), "{{role}}")),
    series("Deadlines missed", "Deadlines that passed before what they waited for, by phase. Some are ordinary: a collection ends by time when somebody is silent.",
           "ops", Query(rate("exchange_deadline_misses_total", "protocol, phase"), "{{protocol}} {{phase}}"), stack=True),
    series("Nothing has happened", "Open negotiations in which nothing has happened for two minutes. They wait for a deadline, or stand still (NegotiationsStalled).",
           "short", Query(gauge_sum("exchange_negotiations_stalled"), "stalled")),
    table("Transitions", "Changes of state within the last five minutes.", "short", "changes",
          f"sort_desc(sum by (protocol, from, to) (increase(exchange_state_transitions_total{{{CHOSEN}}}[5m])) > 0)"),
    series("Why collections close", "`all_responded`: everybody answered. `deadline`: time was up. `window`, `k_valid`, `score_at_least`: the policy had enough.",
           "ops", Query(rate("exchange_collections_closed_total", "reason"), "{{reason}}"), stack=True),
    series("Closed by their deadline", "The share of collections that not everybody answered in time.",
           "percentunit", Query(f"{LATE_CLOSES} / ({CLOSES} > 0)", "{{protocol}}"), low=0, high=1),
    series("What became of messages", "Logged messages by their disposition. Anything but `ok` and `committed` was stored and had no effect.",
           "mps", Query(rate("exchange_dispositions_total", "disposition"), "{{disposition}}"), stack=True, width=12),
    series("Messages without effect", "The same without those that had one, by act.",
           "mps", Query(f"({WITHOUT_EFFECT} > 0) or on () vector(0)", "{{kind}} {{disposition}}"), width=12),
))

DELIVERIES = Row("What agents are told", (
    series("Deliveries", "Deliveries sent and acknowledged, repeats included.",
           "mps", Query(rate("exchange_deliveries_sent_total"), "sent"), Query(rate("exchange_deliveries_acked_total"), "acknowledged"),
           Query(rate("exchange_delivery_retries_total"), "repeats")),
    series("Deliveries by kind", "What deliveries say.",
           "mps", Query(rate("exchange_deliveries_sent_total", "kind"), "{{kind}}"), stack=True),
    series("Until acknowledged, p95", "From the fold that made a delivery until its recipient acknowledged it.",
           "s", Query(quantile(0.95, "exchange_message_delivery_duration_seconds", "kind"), "{{kind}}")),
    series("Waiting", "Deliveries that are not acknowledged yet, by lane.",
           "short", Query("lane:exchange_outbox_deliveries:sum", "lane {{lane}}"), stack=True),
    series("Given up", "Deliveries that will not be sent again, by reason.",
           "mps", Query(rate("exchange_dead_letters_total", "reason"), "{{reason}}"), stack=True),
    series("Inbox messages", "Messages published to agents' inboxes; one carries many deliveries. `failed`: the bus did not take it, it is sent again.",
           "mps", Query(rate("exchange_inbox_messages_total"), "published"), Query(rate("exchange_inbox_failures_total"), "failed")),
    series("Register writes", "Writes to the register by answer. `same` is a repeat; `different` is a conflict.",
           "ops", Query(rate("exchange_register_writes_total", "result"), "{{result}}"), stack=True),
    series("Register latency", "Until the register has answered a write.",
           "s", *quantiles("exchange_register_write_duration_seconds")),
    series("Ignored and lost signals", "Acknowledgements that could not be read, and those a busy lane lost; agents repeat them.",
           "ops", Query(rate("exchange_acks_ignored_total"), "unreadable"), Query(rate("exchange_signals_dropped_total"), "lost")),
))

DASHBOARD = Dashboard(
    "llmx-market", "Negotiation market", "Negotiations by state and outcome, decisions, deliveries, register.", "engine",
    (NEGOTIATIONS, STATES, DELIVERIES))
