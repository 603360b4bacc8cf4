"""Gateway pipeline: where a message's time goes, and where messages end."""

from .model import CHOSEN, GATEWAYS, GREEN, RED, Dashboard, Query, Row, gauge_sum, heatmap, quantile, quantiles, rate, series, stat, table

HTTP = "http_server_request_duration_seconds"
STAGE = "exchange_message_stage_duration_seconds"
ANSWERS = rate(f"{HTTP}_count")
FAULTS = rate(f"{HTTP}_count", "", 'http_response_status_code=~"5.."')
STAGE_TIME = rate(f"{STAGE}_sum", "stage")
STAGE_COUNT = rate(f"{STAGE}_count", "stage")

REQUESTS = Row("Requests", (
    series("Requests by route", "HTTP requests answered. A WebSocket counts once, when it is opened.",
           "reqps", Query(rate(f"{HTTP}_count", "http_route"), "{{http_route}}")),
    series("Requests that failed", "HTTP answers of 500 and above, as a share of all.",
           "percentunit", Query(f"({FAULTS} or vector(0)) / ({ANSWERS} > 0)", "5xx")),
    series("Request latency by route", "95 of 100 requests of the route are answered within this time.",
           "s", Query(quantile(0.95, HTTP, "http_route"), "{{http_route}}")),
    series("Answers by status", "HTTP answers by their status. 503 carries the advice to repeat with the same `msg_id`.",
           "reqps", Query(f"{rate('exchange_http_responses_total', 'http_response_status_code')} > 0", "{{http_response_status_code}}"), stack=True),
    series("Requests turned away under load", "Requests turned away before any work was done, by what was full. Agents come again; for long it is too much load (AdmissionShedding).",
           "reqps", Query(rate("exchange_admission_shed_total", "reason"), "{{reason}}"), stack=True),
    series("Searches for agents by result", "Queries for agents, by what they found.",
           "reqps", Query(rate("exchange_discovery_queries_total", "result"), "{{result}}"), stack=True),
    series("Search for agents, mean time", "Mean time of a search for agents since the gateway started: they are too rare for more.",
           "s", Query(f"exchange_discovery_duration_seconds_sum{{{CHOSEN}}} / (exchange_discovery_duration_seconds_count{{{CHOSEN}}} > 0)", "{{instance}}")),
))

PIPELINE = Row("Admission", (
    heatmap("Ingest latency", "Messages per second by the time until the log had acknowledged them.",
            "s", rate("exchange_message_ingest_duration_seconds_bucket", "le"), width=12),
    series("Mean time in each stage of admission", "Mean time a message spends in each stage. `publish` is the wait for the log.",
           "s", Query(f"{STAGE_TIME} / ({STAGE_COUNT} > 0)", "{{stage}}"), stack=True, width=12),
    series("Time in each stage of admission, p99", "99 of 100 messages pass the stage within this time.",
           "s", Query(quantile(0.99, STAGE, "stage"), "{{stage}}")),
    series("Ingest latency by transport, p95", "95 of 100 messages are stored within this time, by how they came.",
           "s", Query(quantile(0.95, "exchange_message_ingest_duration_seconds", "transport"), "{{transport}}")),
    series("Accepted messages by act", "Messages that were accepted, by act.",
           "mps", Query(rate("exchange_messages_total", "kind", 'outcome="accepted"'), "{{kind}}"), stack=True),
    heatmap("Message size", "Messages per second by size.", "bytes", rate("exchange_message_size_bytes_bucket", "le")),
    series("Message size by act, p95", "95 of 100 messages of the act are no larger.",
           "bytes", Query(quantile(0.95, "exchange_message_size_bytes", "kind"), "{{kind}}")),
    series("Messages and requests in flight", "Messages that wait for the log, and HTTP requests being answered (open WebSockets included).",
           "short", Query(gauge_sum("exchange_admission_queue_depth", "instance"), "queue: {{instance}}"),
           Query(gauge_sum("exchange_http_requests_in_flight", "instance"), "requests: {{instance}}")),
    table("Most frequent rejection codes", "The codes messages were refused with most often in the last quarter of an hour.", "short", "messages",
          'topk(10, sum by (stage, reason) (increase(exchange_message_rejections_total{job=~"$job", instance=~"$instance"}[15m])))', width=12),
    stat("NATS messages lost by this gateway", "Messages of NATS that this gateway's subscriptions lost because they were not read in time. Each is sent again.",
         "short", gauge_sum("exchange_bus_dropped_messages"), width=12, height=8, thresholds=((None, GREEN), (1, RED))),
))

STREAMS = Row("Streams to agents", (
    series("Open streams by gateway and transport", "Open streams by gateway and kind.",
           "short", Query(gauge_sum("exchange_stream_connections", "instance, transport"), "{{instance}} {{transport}}"), stack=True),
    series("Deliveries written to streams", "Deliveries written to streams, by result.",
           "mps", Query(rate("exchange_stream_events_total", "transport, result"), "{{transport}} {{result}}")),
    series("Closed streams by reason", "Why streams ended. `slow`: the agent did not read; `protocol`: it broke the protocol.",
           "ops", Query(rate("exchange_stream_closed_total", "reason"), "{{reason}}"), stack=True),
    series("Repeated messages (idempotent retries)", "Messages that came again and were answered like the first time, by way in; and those refused because their id stands for another body.",
           "mps", Query(rate("exchange_message_repeats_total", "transport"), "answered: {{transport}}"),
           Query(rate("exchange_message_rejections_total", "reason", 'stage="duplicate"'), "refused: {{reason}}")),
    series("Agents with a stream", "Agents that have a stream at a gateway. The others fetch, or are gone.",
           "short", Query(gauge_sum("exchange_agents_connected", "instance"), "{{instance}}"), stack=True),
    series("Ingest latency, p50 to p99.9", "Quantiles over all gateways that are chosen.",
           "s", *quantiles("exchange_message_ingest_duration_seconds", shares=(0.5, 0.9, 0.99, 0.999))),
))

DASHBOARD = Dashboard(
    "llmx-gateway", "Gateway pipeline", "From a request to the log: rates, time by stage, streams, refusals.", (GATEWAYS,),
    (REQUESTS, PIPELINE, STREAMS))
