"""Traffic: what comes in, what it leads to, and what that costs. Seen from the exchange; the generator has no metrics of its own."""

from .model import CHOSEN, Dashboard, Query, Row, heatmap, quantile, quantiles, rate, series, stat

CPU = "process_cpu_seconds_total"
CALLS = rate("exchange_messages_total", "", 'kind="cfp", outcome="accepted"')
OFFERS = rate("exchange_messages_total", "", 'kind="offer", outcome="accepted"')
ENDED = rate("exchange_negotiations_closed_total")
ACCEPTED = rate("exchange_messages_total", "", 'outcome="accepted"')
LOG = 'stream_name="LLMX_LOG", is_stream_leader="true"'
REGISTER = 'stream_name="LLMX_REGISTER", is_stream_leader="true"'

ARRIVALS = Row("What comes in", (
    stat("Calls", "Calls for proposals that gateways accepted.", "ops", CALLS, decimals=1),
    stat("Offers per call", "How many offers a call gets.", "short", f"{OFFERS} / ({CALLS} > 0)", decimals=1),
    stat("Rounds", "Negotiations that ended.", "ops", ENDED, decimals=1),
    stat("Messages per round", "Accepted messages for each negotiation that ended.", "short",
         f"{ACCEPTED} / ({ENDED} > 0)", decimals=1),
    stat("Deliveries per round", "Deliveries sent for each negotiation that ended.", "short",
         f"{rate('exchange_deliveries_sent_total')} / ({ENDED} > 0)", decimals=1),
    stat("Messages per record", "Messages that shared one record of the log: group commit at work. 1 when idle.", "short",
         f"{ACCEPTED} / (sum(rate(jetstream_stream_last_seq{{{LOG}}}[$__rate_interval])) > 0)", decimals=2),
    series("Calls and rounds", "Calls that came in and negotiations that ended. A growing gap is a backlog.",
           "ops", Query(CALLS, "calls"), Query(ENDED, "ended")),
    series("Open negotiations", "The backlog itself.", "short", Query(f"sum(exchange_negotiations_open{{{CHOSEN}}})", "open")),
    series("Messages by way in", "How messages reach gateways.", "mps", Query(rate("exchange_messages_total", "transport"), "{{transport}}"), stack=True),
))

LATENCY = Row("What it waits for", (
    series("Stored", "From arrival at a gateway to the log's acknowledgement.", "s", *quantiles("exchange_message_ingest_duration_seconds")),
    series("Folded", "From the record's stamp until an engine has folded it.", "s", *quantiles("exchange_fold_lag_seconds")),
    series("Told", "From the fold until the recipient has acknowledged the delivery, p95 by kind.",
           "s", Query(quantile(0.95, "exchange_message_delivery_duration_seconds", "kind"), "{{kind}}")),
    series("Decided", "From the call to the close of its collection.", "s", *quantiles("exchange_decision_duration_seconds")),
    series("Ended", "From the call to the end.", "s", *quantiles("exchange_negotiation_duration_seconds")),
    heatmap("Time to a decision", "Calls per second by the time to their decision.", "s", rate("exchange_decision_duration_seconds_bucket", "le")),
))

COST = Row("What it costs", (
    series("Rounds per second of processor time", "Negotiations ended for each processor second of all gateways and engines.",
           "short", Query(f"{ENDED} / ({rate(CPU)} > 0)", "rounds")),
    series("Processor time per message", "Of gateways and engines, for each accepted message.",
           "s", Query(f"{rate(CPU, 'job')} / on () group_left () ({ACCEPTED} > 0)", "{{job}}")),
    series("Fold", "Time to fold one record; runs of records that are caught up included.", "s", *quantiles("exchange_fold_duration_seconds")),
    series("Records", "Records folded by all engines, and ticks among them: deadlines that passed while nothing else moved time.",
           "ops", Query(rate("exchange_records_folded_total", "instance"), "{{instance}}"), Query(rate("exchange_ticks_total"), "ticks")),
    series("Memory slope", "Change of resident memory per hour, over the last half hour. Level in a soak test.",
           "bytes", Query(f'3600 * deriv(process_resident_memory_bytes{{{CHOSEN}}}[30m])', "{{instance}}")),
    series("Bytes of the register per round", "Growth of the register, which never shrinks, for each negotiation that ended.",
           "bytes", Query(f"sum(deriv(jetstream_stream_total_bytes{{{REGISTER}}}[5m])) / "
                          f"(sum(rate(exchange_negotiations_closed_total{{{CHOSEN}}}[5m])) > 0)", "bytes")),
))

DASHBOARD = Dashboard(
    "llmx-traffic", "Traffic", "Load as the exchange sees it: arrivals, waits, costs.", "gateway|engine", (ARRIVALS, LATENCY, COST))
