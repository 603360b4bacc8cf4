"""NATS and JetStream: the bus below the exchange."""

from .model import CHOSEN, GREEN, RED, SERVERS, YELLOW, Dashboard, Panel, Query, Row, rate, series, timeline

LEADER = f'{CHOSEN}, is_stream_leader="true"'
STORAGE = "gnatsd_varz_jetstream_stats_storage"
PUBLISH = "exchange_jetstream_publish_duration_seconds"
PUBLISHED = (f"histogram_quantile(0.99, sum by (stream, le) (rate({PUBLISH}_bucket[$__rate_interval]))) "
             f"and on (stream) (sum by (stream) (rate({PUBLISH}_count[$__rate_interval])) > 0)")
STORE_TIME = "exchange_kv_operation_duration_seconds"
STORED = f"sum by (bucket, op) ({STORE_TIME}_sum) / (sum by (bucket, op) ({STORE_TIME}_count) > 0)"
NEAR_FULL = ((None, GREEN), (0.6, YELLOW), (0.8, RED))


def each(metric, interval=""):
    """A metric of each server, as a rate where an interval is given."""
    chosen = f"{metric}{{{CHOSEN}}}"
    return Query(f"rate({chosen}[{interval}])" if interval else chosen, "{{instance}}")


def server(metric, name):
    """Events per second over all servers."""
    return Query(rate(metric), name)


SERVERS_ROW = Row("Servers", (
    timeline("Servers that answer", "1 while the monitoring port answers.", Query(f"up{{{CHOSEN}}}", "{{instance}}"),
             {0: ("down", RED), 1: ("up", GREEN)}, width=12),
    series("Slow consumers", "Clients cut off because they did not read, in five minutes.",
           "short", Query(f"increase(gnatsd_varz_slow_consumers{{{CHOSEN}}}[5m])", "{{instance}}"), width=12),
    series("Processor use by server", "Use of one core by each server.", "percent", each("gnatsd_varz_cpu")),
    series("Memory by server", "Resident memory of each server.", "bytes", each("gnatsd_varz_mem")),
    series("Connections and subscriptions", "Clients of each server, and what they subscribe to.",
           "short", Query(f"gnatsd_varz_connections{{{CHOSEN}}}", "connections: {{instance}}"),
           Query(f"gnatsd_varz_subscriptions{{{CHOSEN}}}", "subscriptions: {{instance}}")),
    series("Messages in and out", "Messages received and sent by all servers.",
           "mps", server("gnatsd_varz_in_msgs", "in"), server("gnatsd_varz_out_msgs", "out"), width=12),
    series("Bytes in and out", "Bytes received and sent by all servers.",
           "Bps", server("gnatsd_varz_in_bytes", "in"), server("gnatsd_varz_out_bytes", "out"), width=12),
))

STORE = Row("JetStream", (
    Panel("gauge", "Storage used", "Of `max_file_store`, or of what the disk gave when the server started. Full: gateways answer 503, deadlines wait.",
          "percentunit", (Query(f"{STORAGE}{{{CHOSEN}}} / (gnatsd_varz_jetstream_config_max_storage{{{CHOSEN}}} > 0)", "{{instance}}"),),
          thresholds=NEAR_FULL, color="thresholds", low=0, high=1),
    series("Bytes by stream", "`LLMX_LOG` is trimmed, and entries of `LLMX_REGISTER` expire, behind checkpoint and archive.",
           "bytes", Query(f"max by (stream_name) (jetstream_stream_total_bytes{{{LEADER}}})", "{{stream_name}}"), stack=True),
    series("Messages by stream", "Messages that are kept.",
           "short", Query(f"max by (stream_name) (jetstream_stream_total_messages{{{LEADER}}})", "{{stream_name}}")),
    series("Messages stored by stream", "Messages stored per second, by stream.",
           "mps", Query(f"sum by (stream_name) (rate(jetstream_stream_last_seq{{{LEADER}}}[$__rate_interval]))", "{{stream_name}}")),
    series("Records trimmed from the log", "Records removed from the beginning of a stream per second.",
           "mps", Query(f'sum by (stream_name) (rate(jetstream_stream_first_seq{{{LEADER}, stream_name="LLMX_LOG"}}[$__rate_interval]))', "{{stream_name}}")),
    series("Register entries written and expired", "Per second. Without an archive nothing expires; with one the second follows the first, later by `--register-keep-s`.",
           "ops", Query('sum(rate(exchange_register_writes_total{result="written"}[$__rate_interval]))', "written"),
           Query("sum(rate(exchange_register_expired_total[$__rate_interval]))", "expired")),
    series("JetStream API requests and errors", "Requests and refusals. Some refusals are normal: keys that are read before they exist.",
           "reqps", server("gnatsd_varz_jetstream_stats_api_total", "requests"), server("gnatsd_varz_jetstream_stats_api_errors", "refused")),
))

READERS = Row("Consumers of streams", (
    series("Pending messages by stream", "Messages not yet delivered to those who read the stream. Rising: a reader falls behind.",
           "short", Query("stream:jetstream_consumer_pending:sum", "{{stream_name}}")),
    series("Unacknowledged and redelivered messages", "Readers of the log need no acknowledgements, so this is 0 unless you added a consumer.",
           "short", Query(f"sum by (stream_name) (jetstream_consumer_num_ack_pending{{{CHOSEN}}})", "unacknowledged: {{stream_name}}"),
           Query(f"sum by (stream_name) (jetstream_consumer_num_redelivered{{{CHOSEN}}})", "delivered again: {{stream_name}}")),
    series("Consumers by stream", "Readers of each stream: one per lane and engine for the log, one per gateway and engine for documents.",
           "short", Query(f"count by (stream_name) (jetstream_consumer_num_pending{{{LEADER}}})", "{{stream_name}}")),
))

CONNECTIONS = Row("Connections of gateways and engines", (
    timeline("Processes connected to NATS", "1 while the process has a connection to a server (NatsDisconnected).", Query("exchange_nats_up", "{{instance}}"),
             {0: ("no", RED), 1: ("yes", GREEN)}, width=12),
    series("Connection events", "Events of connections in five minutes. Any but `connected` at the start is worth a look.",
           "short", Query("sum by (event) (increase(exchange_nats_events_total[5m]))", "{{event}}"), stack=True, width=12),
    series("Bytes by process", "What gateways and engines send and receive, by instance.",
           "Bps", Query("sum by (instance, direction) (rate(exchange_nats_bytes_total[$__rate_interval]))", "{{instance}} {{direction}}")),
    series("Messages by process", "Messages gateways and engines send and receive, by instance.",
           "mps", Query("sum by (instance, direction) (rate(exchange_nats_messages_total[$__rate_interval]))", "{{instance}} {{direction}}")),
    series("Publishes by result", "Appends to the log and writes to the register. Not `ack`: repeated under the same id.",
           "ops", Query("sum by (stream, result) (rate(exchange_jetstream_publish_total[$__rate_interval]))", "{{stream}} {{result}}")),
    series("Publish latency, p99", "Until the stream has acknowledged, as the client measures it.",
           "s", Query(PUBLISHED, "{{stream}}")),
    series("Publishes in flight", "Appends that are not acknowledged yet.",
           "short", Query("sum by (instance) (exchange_jetstream_publishes_in_flight)", "{{instance}}")),
    series("Key-value operations, mean time", "Mean time to read or write agents, policies and consents since the gateways started: they change too rarely for more.",
           "s", Query(STORED, "{{bucket}} {{op}}")),
))

CLIENTS = Row("Log, lanes and checkpoints", (
    series("Publish stage of gateways, p99", "Until the log has acknowledged a message, with the wait for others to share its record, as gateways measure it.",
           "s", Query("stage:exchange_stage:p99_5m{stage=\"publish\"}", "{{job}}")),
    series("Lag behind the log by engine, p99", "Log time between a record's stamp and its fold, p99, by engine.",
           "s", Query("instance:exchange_fold_lag:p99_5m", "{{instance}}")),
    series("Records behind the newest engine by lane", "How far each engine is behind the one that has folded most of the lane.",
           "short", Query("max by (lane) (exchange_lane_position) - on (lane) group_right () exchange_lane_position", "{{instance}} lane {{lane}}")),
    series("Openings taken in by lane, at most", "What gateways are told to take in of openings, per second. It falls while a queue stands.",
           "reqps", Query("max by (lane) (exchange_lane_admission_rate)", "lane {{lane}}")),
    series("Wait in the longer queue by lane", "Mean wait of records and of register entries beyond what it is at rest; above 10 ms the rate falls.",
           "s", Query("max by (lane) (exchange_lane_admission_wait_seconds)", "lane {{lane}}")),
    series("Records since the last checkpoint", "Records folded since the lane's last checkpoint: what a restart has to read.",
           "short", Query("max by (lane) (exchange_lane_position) - max by (lane) (exchange_lane_checkpoint_position)", "lane {{lane}}")),
    series("Checkpoints by result", "Checkpoints per minute by result. `outdated`: a later one was stored already.",
           "short", Query("60 * sum by (result) (rate(exchange_checkpoints_total[5m]))", "{{result}}"), stack=True),
    series("Lane take-overs and lost log ends", "Lanes taken, and times the log had lost what it had acknowledged (must be 0), in five minutes.",
           "short", Query("sum(increase(llmx_engine_takeovers_total[5m]))", "take-overs"),
           Query("sum(increase(llmx_engine_log_divergences_total[5m]))", "divergences")),
))

DASHBOARD = Dashboard(
    "llmx-nats", "NATS and JetStream", "Servers, streams, readers, and the log as gateways and engines see it.", (SERVERS,),
    (SERVERS_ROW, STORE, READERS, CONNECTIONS, CLIENTS))
