"""Traffic: what generators ask for, what comes in, what it leads to, and what that costs."""

from .model import AGENTS, CHOSEN, ENGINES, GATEWAYS, GENERATORS, GREEN, RED, Dashboard, Query, Row, gauge_sum, heatmap, quantile, quantiles, rate, series, stat, table

CPU = "process_cpu_seconds_total"
EXCHANGE = f'job=~"{GATEWAYS}|{ENGINES}"'
RESPONSE, SERVICE = "trafficgen_response_duration_seconds", "trafficgen_service_duration_seconds"
SENT_AGAIN = rate("agent_transmissions_total", "", 'attempt="repeated"')
RECEIVED_AGAIN = rate("agent_deliveries_total", "", 'result="repeated"')
# Arrivals in the ten seconds before, without what rate() makes up at the ends.
COUNTED = f"(trafficgen_arrivals_total{{{CHOSEN}}} - trafficgen_arrivals_total{{{CHOSEN}}} offset 10s)[5m:10s]"
CALLS = rate("exchange_messages_total", "", 'kind="cfp", outcome="accepted"')
OFFERS = rate("exchange_messages_total", "", 'kind="offer", outcome="accepted"')
ENDED = rate("exchange_negotiations_closed_total")
ACCEPTED = rate("exchange_messages_total", "", 'outcome="accepted"')
LOG = 'stream_name="LLMX_LOG", is_stream_leader="true"'
REGISTER = 'stream_name="LLMX_REGISTER", is_stream_leader="true"'

CALLERS = Row("Traffic generators", (
    series("Target and actual call rate", "Calls per second that were asked for, and those that were begun. Below the target for long: the generator does not keep up.",
           "ops", Query(f"trafficgen_target_rate{{{CHOSEN}}}", "target: {{instance}}"),
           Query(rate("trafficgen_arrivals_total", "instance"), "begun: {{instance}}")),
    series("Response and service time, p99", "From when a call was due, and from when it really left, until its decision is known. Where they part, waiting in the generator hides from the second.",
           "s", Query(quantile(0.99, RESPONSE), "from its due time"), Query(quantile(0.99, SERVICE), "from its start")),
    series("Response time", "From when a call was due until its decision is known to the initiator.", "s", *quantiles(RESPONSE, shares=(0.5, 0.99, 0.999))),
    series("Time from call to end of negotiation", "From when a call was due until its negotiation had ended: work and acknowledgements included.",
           "s", *quantiles("trafficgen_round_duration_seconds")),
    series("Generator schedule lag, p99", "How late calls leave (TrafficGeneratorBehindSchedule at a tenth of a second).",
           "s", Query("instance:trafficgen_schedule_lag:p99_1m", "{{instance}}"), thresholds=((None, GREEN), (0.1, RED))),
    series("Calls in flight", "Calls that have not ended.", "short", Query(f"trafficgen_in_flight{{{CHOSEN}}}", "{{instance}}")),
    series("Calls by result", "How calls ended for their generator.", "ops", Query(rate("trafficgen_requests_total", "result"), "{{result}}"), stack=True),
    series("Calls dropped by reason", "Arrivals the generator could not begin, by reason.", "ops", Query(rate("trafficgen_dropped_total", "reason"), "{{reason}}"), stack=True),
    series("Poisson check of arrivals (variance / mean)", "Variance of the arrivals in ten seconds, divided by their mean, over five minutes. Poisson arrivals have 1, a metronome 0.",
           "short", Query(f"stdvar_over_time({COUNTED}) / (avg_over_time({COUNTED}) > 0)", "{{instance}}")),
    table("Generator seeds and scenarios", "Seed and scenario of each generator: the same seed gives the same arrivals.", "short", "is",
          f"max by (instance, seed, scenario) (trafficgen_run_info{{{CHOSEN}}})"),
))

AGENTS_ROW = Row("Agents", (
    series("Agents connected", "Agents that are connected, by process and kind.",
           "short", Query(f"{gauge_sum('agent_connected', 'instance, strategy')} > 0", "{{instance}} {{strategy}}"), stack=True),
    series("Agent connections opened and closed", "Per minute, by kind of agent. Many at once: a gateway has gone.",
           "short", Query(f"60 * {rate('agent_connects_total', 'strategy')}", "made: {{strategy}}"),
           Query(f"60 * {rate('agent_disconnects_total', 'strategy')}", "ended: {{strategy}}")),
    series("Agent actions by kind of agent", "What agents chose to say, by kind of agent. `silence`: a call or an award that gets no answer.",
           "ops", Query(f"{rate('agent_decisions_total', 'strategy, action')} > 0", "{{strategy}} {{action}}"), stack=True),
    series("Agent messages by outcome", "Messages of agents by how sending them ended. `unanswered`: given up after all repeats.",
           "mps", Query(rate("agent_messages_total", "outcome"), "{{outcome}}"), stack=True),
    series("Message round trip measured by agents", "From writing a message until the gateway says that it is in the log, repeats included.",
           "s", *quantiles("agent_message_duration_seconds", 'outcome="accepted"')),
    series("Share of repeated transmissions and deliveries", "Share of transmissions that repeat a message, and of deliveries that had come before. Both are dropped by their id.",
           "percentunit", Query(f"{SENT_AGAIN} / ({rate('agent_transmissions_total')} > 0)", "sent again"),
           Query(f"{RECEIVED_AGAIN} / ({rate('agent_deliveries_total')} > 0)", "received again")),
    table("Refusal codes agents received", "Codes agents were refused with in the last quarter of an hour.", "short", "messages",
          f"topk(10, sum by (instance, code) (increase(agent_refusals_total{{{CHOSEN}}}[15m])))"),
))

ARRIVALS = Row("Load on the exchange", (
    stat("Calls per second", "Calls for proposals that gateways accepted.", "ops", CALLS, decimals=1),
    stat("Offers per call", "How many offers a call gets.", "short", f"{OFFERS} / ({CALLS} > 0)", decimals=1),
    stat("Negotiations ended per second", "Negotiations that ended.", "ops", ENDED, decimals=1),
    stat("Messages per negotiation", "Accepted messages for each negotiation that ended.", "short",
         f"{ACCEPTED} / ({ENDED} > 0)", decimals=1),
    stat("Deliveries per negotiation", "Deliveries sent for each negotiation that ended.", "short",
         f"{rate('exchange_deliveries_sent_total')} / ({ENDED} > 0)", decimals=1),
    stat("Messages per log record", "Messages that shared one record of the log: group commit at work. 1 when idle.", "short",
         f"{ACCEPTED} / (sum(rate(jetstream_stream_last_seq{{{LOG}}}[$__rate_interval])) > 0)", decimals=2),
    series("Calls and ended negotiations", "Calls that came in and negotiations that ended. A growing gap is a backlog.",
           "ops", Query(CALLS, "calls"), Query(ENDED, "ended")),
    series("Open negotiations", "The backlog itself.", "short", Query(f"sum(exchange_negotiations_open{{{CHOSEN}}})", "open")),
    series("Messages by transport", "How messages reach gateways.", "mps", Query(rate("exchange_messages_total", "transport"), "{{transport}}"), stack=True),
))

LATENCY = Row("Where the latency comes from", (
    series("Message arrival to log acknowledgement", "From arrival at a gateway to the log's acknowledgement.", "s", *quantiles("exchange_message_ingest_duration_seconds")),
    series("Log record to engine", "From the record's stamp until an engine has folded it.", "s", *quantiles("exchange_fold_lag_seconds")),
    series("Engine to acknowledged delivery, p95", "From the fold until the recipient has acknowledged the delivery, p95 by kind.",
           "s", Query(quantile(0.95, "exchange_message_delivery_duration_seconds", "kind"), "{{kind}}")),
    series("Call to decision", "From the call to the close of its collection.", "s", *quantiles("exchange_decision_duration_seconds")),
    series("Call to end of negotiation", "From the call to the end.", "s", *quantiles("exchange_negotiation_duration_seconds")),
    heatmap("Call to decision, distribution", "Calls per second by the time to their decision.", "s", rate("exchange_decision_duration_seconds_bucket", "le")),
))

COST = Row("Processor, memory and storage cost", (
    series("Negotiations per processor second", "Negotiations ended for each processor second of all gateways and engines.",
           "short", Query(f"{ENDED} / ({rate(CPU, '', EXCHANGE)} > 0)", "rounds")),
    series("Processor time per message", "Of gateways and engines, for each accepted message.",
           "s", Query(f"{rate(CPU, 'job', EXCHANGE)} / on () group_left () ({ACCEPTED} > 0)", "{{job}}")),
    series("Time to process a log record", "Time to fold one record; runs of records that are caught up included.", "s", *quantiles("exchange_fold_duration_seconds")),
    series("Log records processed", "Records folded by all engines, and ticks among them: deadlines that passed while nothing else moved time.",
           "ops", Query(rate("exchange_records_folded_total", "instance"), "{{instance}}"), Query(rate("exchange_ticks_total"), "ticks")),
    series("Memory growth per hour", "Change of resident memory per hour, over the last half hour. Level in a soak test.",
           "bytes", Query(f'3600 * deriv(process_resident_memory_bytes{{{CHOSEN}}}[30m])', "{{instance}}")),
    series("Register bytes per negotiation", "Growth of the register for each negotiation that ended; 0 where entries expire as fast as they are written.",
           "bytes", Query(f"sum(deriv(jetstream_stream_total_bytes{{{REGISTER}}}[5m])) / "
                          f"(sum(rate(exchange_negotiations_closed_total{{{CHOSEN}}}[5m])) > 0)", "bytes")),
))

DASHBOARD = Dashboard(
    "llmx-traffic", "Traffic", "Load: what generators ask for, what arrives, what it waits for, what it costs.",
    (GATEWAYS, ENGINES, AGENTS, GENERATORS), (CALLERS, ARRIVALS, LATENCY, AGENTS_ROW, COST))
