"""Exchange overview: is it well, and what does it do?"""

from .model import (AGENTS, ENGINES, EVERY_PROCESS, GATEWAYS, GENERATORS, GREEN, RED, SERVERS, YELLOW, Dashboard, Query, Row, gauge_sum,
                    quantile, quantiles, rate, series, stat, table, timeline)

UP = {0: ("down", RED), 1: ("up", GREEN)}

HEALTH = Row("Objectives", (
    stat("Messages answered without a fault of ours", "Of the messages of the last hour, those not refused at the stage `publish`, or only because there were too many. The objective is 99.9 %.",
         "percentunit", "1 - job:exchange_slo_errors:ratio_rate1h", decimals=3,
         thresholds=((None, RED), (0.999, YELLOW), (0.9995, GREEN))),
    stat("Error budget left", "Of the faults that 99.9 % allows over six hours, the share that is left. Below 0 the objective is missed.",
         "percentunit", "1 - job:exchange_slo_errors:ratio_rate6h / 0.001", decimals=1,
         thresholds=((None, RED), (0, YELLOW), (0.5, GREEN))),
    stat("Ingest p99", "Ninety-nine of a hundred messages are stored within this time after their arrival.",
         "s", "job:exchange_ingest:p99_5m", thresholds=((None, GREEN), (0.1, YELLOW), (0.25, RED))),
    stat("Share of negotiations that end in agreement", "Of the negotiations that ended in the last 15 minutes, those that ended with work done or an agreement.",
         "percentunit", "protocol:exchange_agreements:ratio_rate15m", decimals=1,
         thresholds=((None, RED), (0.5, YELLOW), (0.9, GREEN))),
    stat("Broken invariants", "Must be 0. Any other number pages at once (InvariantViolated).",
         "short", "sum(exchange_invariant_violations_total)", thresholds=((None, GREEN), (1, RED))),
    stat("Register conflicts", "Must be 0: keys that hold another value than the log leads to (RegisterConflict).",
         "short", "sum(exchange_register_conflicts_total)", thresholds=((None, GREEN), (1, RED))),
))

NOW = Row("Right now", (
    stat("Number of firing alerts", "Without Watchdog, which always does. The list is in the last row of this page.",
         "short", 'count(ALERTS{alertstate="firing", alertname!="Watchdog"}) or vector(0)', width=6, thresholds=((None, GREEN), (1, RED))),
    stat("Processes connected to NATS", "Share of the processes that have a connection to a server (NatsDisconnected).",
         "percentunit", "avg(exchange_nats_up)", width=6, thresholds=((None, RED), (1, GREEN))),
    stat("Log messages not read yet", "Messages of the log that an engine has not been given yet.",
         "short", 'max(stream:jetstream_consumer_pending:sum{stream_name="LLMX_LOG"})', width=6, thresholds=((None, GREEN), (1000, YELLOW), (10000, RED))),
    stat("Versions running", "Different builds of the program. Two are an upgrade that is under way; Runtime lists them.",
         "short", "count(count by (version, git_sha) (exchange_build_info))", width=6, thresholds=((None, GREEN), (2, YELLOW))),
))

FLOW = Row("Throughput and latency", (
    series("Messages by outcome", "Messages that gateways answered, by outcome. `rejected` includes refusals that senders caused.",
           "mps", Query(rate("exchange_messages_total", "outcome"), "{{outcome}}"), stack=True),
    series("Ingest latency", "From a message's arrival at a gateway until the log has acknowledged it.",
           "s", *quantiles("exchange_message_ingest_duration_seconds")),
    series("Rejections by stage", "The stage of admission that refused. `publish` is our fault, or more than the exchange brings to an end; the others are the senders'.",
           "mps", Query(rate("exchange_message_rejections_total", "stage"), "{{stage}}"), stack=True),
    series("Open negotiations by state", "Open negotiations by state, as the owners of the lanes count them.",
           "short", Query(gauge_sum("exchange_negotiations_open", "state"), "{{state}}"), stack=True),
    series("Ended negotiations by outcome", "Negotiations that ended, by outcome.",
           "ops", Query(rate("exchange_negotiations_closed_total", "outcome"), "{{outcome}}"), stack=True),
    series("Time to a decision", "From the call to the close of its collection, in log time. The policy's windows are part of it.",
           "s", *quantiles("exchange_decision_duration_seconds")),
    series("Time to a decision by policy, p95", "The same under each policy that decided anything. `other`: policies of your own.",
           "s", Query(quantile(0.95, "exchange_decision_duration_seconds", "policy"), "{{policy}}")),
    series("Time to a decision by agents invited, p95", "The same by how many agents the call invited at most.",
           "s", Query(quantile(0.95, "exchange_decision_duration_seconds", "invited"), "at most {{invited}}")),
))

PARTS = Row("Processes, engines and agents", (
    timeline("Processes that answer", "1 while Prometheus can scrape the process.",
             Query('up{job=~"$job", instance=~"$instance"}', "{{instance}}"), UP, width=12),
    timeline("Engines that own each lane", "Each lane has exactly one engine that emits for it. None: its negotiations stand still (LaneUnowned).",
             Query("lane:exchange_lane_owners:sum", "lane {{lane}}"), {0: ("none", RED), 1: ("one", GREEN), 2: ("two", YELLOW)}, width=12),
    series("Registered agents and open streams", "Registered agents, and open streams to agents over all gateways.",
           "short", Query('max(exchange_agents_registered{job=~"$job", instance=~"$instance"})', "registered"),
           Query(gauge_sum("exchange_stream_connections", "transport"), "streams: {{transport}}")),
    series("Live engines, as each engine sees them", "Live engines as each engine hears them, itself included. All should say the same.",
           "short", Query('llmx_engine_engines_alive{job=~"$job", instance=~"$instance"}', "{{instance}}")),
    table("Firing alerts", "Watchdog always does: it shows that alerting works. Its name links to its runbook.", "short", "fires",
          'sum by (alertname, severity, component, instance, lane) (ALERTS{alertstate="firing"})', width=16,
          links=(("alertname", "Runbook of ${__value.text}", "${runbooks}/${__value.text}.md"),)),
    table("Process start times", "When each process started.", "dateTimeFromNow", "started",
          f'1000 * process_start_time_seconds{{{EVERY_PROCESS}}}'),
))

DASHBOARD = Dashboard(
    "llmx-overview", "Exchange overview", "Whether the exchange is well, and what it does. Begin here.", (GATEWAYS, ENGINES, SERVERS, AGENTS, GENERATORS),
    (HEALTH, NOW, FLOW, PARTS), open_rows=3)
