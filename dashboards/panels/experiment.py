"""Experiment: the figures of the LLM-X paper, live, by policy and by how many contractors were invited."""

from .model import (AGENTS, CHOSEN, ENGINES, GATEWAYS, GENERATORS, SERVERS, Dashboard, Query, Row, heatmap, quantile, quantiles, rate,
                    series, stat, table)

DECISION, OFFERS = "exchange_decision_duration_seconds", "exchange_offers_per_round"
GROUP, LEGEND = "policy, invited", "{{policy}}, at most {{invited}}"
ROUNDS = rate(f"{DECISION}_count")
ENDED = rate("exchange_negotiations_closed_total")
COMPLETED = rate("exchange_negotiations_closed_total", "", 'outcome="completed"')
ACCEPTED = rate("exchange_messages_total", "", 'outcome="accepted"')
DELIVERED = rate("exchange_deliveries_sent_total")
AWARDS = f"exchange_award_window_awards{{{CHOSEN}}}"


def mean(metric, by):
    """The mean of a histogram, of the groups in which something happened."""
    return f"{rate(f'{metric}_sum', by)} / ({rate(f'{metric}_count', by)} > 0)"


def of_awards(metric):
    """A gauge of each engine's awards, over all engines: each counts as much as it awarded."""
    return f"sum({metric}{{{CHOSEN}}} * on (instance) {AWARDS}) / (sum({AWARDS}) > 0)"


NOW = Row("Now", (
    stat("Rounds per second", "Rounds of collection that closed.", "ops", ROUNDS, decimals=1),
    stat("Completed", "Of the negotiations that ended, those whose work was done. The paper asks for 100 % under `high`.", "percentunit",
         f"{COMPLETED} / ({ENDED} > 0)", decimals=1),
    stat("Decision p95", "95 of 100 rounds are decided within this time after their call, all policies together.", "s", quantile(0.95, DECISION)),
    stat("Offers per round", "Valid offers when a round closes. Under `high` it is the number of contractors.", "short",
         f"{rate(f'{OFFERS}_sum')} / ({rate(f'{OFFERS}_count')} > 0)", decimals=1),
    stat("Messages per round", "Accepted messages for each negotiation that ended; linear in the number of contractors.", "short",
         f"{ACCEPTED} / ({ENDED} > 0)", decimals=1),
    stat("Deliveries per round", "Deliveries sent for each negotiation that ended, repeats left out.", "short", f"{DELIVERED} / ({ENDED} > 0)", decimals=1),
))

PAPER = Row("The paper's figures by policy and contractors", (
    series("Time to a decision by policy and contractors, p95", "The paper's figure 3: log time from the call to the close of its collection. 95 of 100 rounds take less.",
           "s", Query(quantile(0.95, DECISION, GROUP), LEGEND), width=12),
    series("Time to a decision by policy and contractors, p50", "The same, half of the rounds.",
           "s", Query(quantile(0.5, DECISION, GROUP), LEGEND), width=12),
    series("Offers per round by policy and contractors", "Valid offers when a round closes, on average: what waiting longer brings.",
           "short", Query(mean(OFFERS, GROUP), LEGEND)),
    series("Rounds by policy and contractors", "Rounds of collection that closed per second.",
           "ops", Query(f"{rate(f'{DECISION}_count', GROUP)} > 0", LEGEND), stack=True),
    series("Why rounds close", "`all_responded`: everybody answered. `deadline`: time was up. `window`, `k_valid`, `score_at_least`: the policy had enough.",
           "ops", Query(rate("exchange_collections_closed_total", "reason"), "{{reason}}"), stack=True),
    table("Offers by policy and contractors", "The trade-off between waiting and quality, with the table beside it: mean valid offers of the last five minutes' rounds.",
          "short", "offers", f"sum by ({GROUP}) (increase({OFFERS}_sum{{{CHOSEN}}}[5m])) / (sum by ({GROUP}) (increase({OFFERS}_count{{{CHOSEN}}}[5m])) > 0)"),
    table("Time to a decision by policy and contractors", "Mean time from call to decision of the last five minutes' rounds.",
          "s", "time", f"sum by ({GROUP}) (increase({DECISION}_sum{{{CHOSEN}}}[5m])) / (sum by ({GROUP}) (increase({DECISION}_count{{{CHOSEN}}}[5m])) > 0)"),
    heatmap("Time to a decision, distribution", "Rounds per second by the time to their decision.", "s", rate(f"{DECISION}_bucket", "le")),
))

VOLUME = Row("Message volume", (
    series("Messages by act", "Messages that gateways accepted, by act.",
           "mps", Query(rate("exchange_messages_total", "kind", 'outcome="accepted"'), "{{kind}}"), stack=True),
    series("Deliveries by kind", "Deliveries sent to agents, by what they say.",
           "mps", Query(rate("exchange_deliveries_sent_total", "kind"), "{{kind}}"), stack=True),
    series("Messages of NATS", "What gateways and engines send to the bus, and receive from it.",
           "mps", Query(rate("exchange_nats_messages_total", "direction"), "{{direction}}")),
))

CALLERS = Row("Response of the exchange to callers", (
    series("Time from due call to decision", "From when a call was due until the initiator knows the decision: with the way there and back, unlike the time above.",
           "s", *quantiles("trafficgen_response_duration_seconds")),
    series("Generator schedule lag, p99", "How late calls leave. What it comes to is in the time from due call to decision.",
           "s", Query("instance:trafficgen_schedule_lag:p99_1m", "{{instance}}")),
    series("Fairness of awards (Jain's index)", "1 when all who make offers win alike, 1/n when one of n wins all; beside what a fair draw of as many awards gives.",
           "percentunit", Query(of_awards("exchange_award_jain"), "Jain's index"), Query(of_awards("exchange_award_jain_null"), "of a fair draw"),
           low=0, high=1),
))

ENDURANCE = Row("Memory, storage and processor time of a soak", (
    series("Register entries", "Entries that the register holds. They expire behind archive and checkpoint (`--register-keep-s`), so it is level once that time is over.",
           "short", Query(f'max(jetstream_stream_total_messages{{{CHOSEN}, stream_name="LLMX_REGISTER", is_stream_leader="true"}})', "entries")),
    series("Register entries written and expired", "Per second. Where an archive runs the second follows the first, later by the time that entries are kept.",
           "ops", Query(rate("exchange_register_writes_total", "", 'result="written"'), "written"),
           Query(rate("exchange_register_expired_total"), "expired")),
    series("Bytes by stream", "Of the log, trimmed behind checkpoint and archive, of the register, and of the rest.",
           "bytes", Query(f'max by (stream_name) (jetstream_stream_total_bytes{{{CHOSEN}, is_stream_leader="true"}})', "{{stream_name}}"), stack=True),
    series("Memory by process", "Resident memory. It rises for some minutes after a start, until what is remembered of ended negotiations is as much as it may be.",
           "bytes", Query(f"process_resident_memory_bytes{{{CHOSEN}}}", "{{instance}}"), Query(f"gnatsd_varz_mem{{{CHOSEN}}}", "{{instance}}")),
    series("Processor time by process", "Cores used.", "short", Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}")),
    series("Open files by process", "File descriptors: connections, segments of the archive.", "short",
           Query(f"process_open_fds{{{CHOSEN}}}", "{{instance}}")),
))

DASHBOARD = Dashboard(
    "llmx-experiment", "Experiment", "The paper's figures live, by policy and contractors; message volume; what a soak watches.",
    (GATEWAYS, ENGINES, SERVERS, AGENTS, GENERATORS), (NOW, PAPER, VOLUME, CALLERS, ENDURANCE), open_rows=3)
