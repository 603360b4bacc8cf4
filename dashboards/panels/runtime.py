"""Runtime: the processes themselves, their traces, and Prometheus."""

from .model import AGENTS, CHOSEN, ENGINES, GATEWAYS, GENERATORS, GREEN, RED, YELLOW, Dashboard, Query, Row, quantile, rate, series, stat, table

SPANS = "exchange_trace_spans_total"


def each(expression):
    """One line per process."""
    return Query(expression, "{{instance}}")


PROCESSES = Row("Processes", (
    series("Processor cores in use", "Cores in use.", "short", each(f"rate(process_cpu_seconds_total{{{CHOSEN}}}[$__rate_interval])"), stack=True),
    series("Resident memory", "Resident memory.", "bytes", each(f"process_resident_memory_bytes{{{CHOSEN}}}")),
    series("Memory growth per day", "Change of resident memory per day, over six hours or what there is of them (MemoryLeakSuspected at a gigabyte).",
           "bytes", each(f"86400 * deriv(process_resident_memory_bytes{{{CHOSEN}}}[6h])")),
    series("Open files, share of the limit", "Open files and sockets as a share of the limit.", "percentunit",
           each(f"process_open_fds{{{CHOSEN}}} / process_max_fds{{{CHOSEN}}}"), thresholds=((None, GREEN), (0.8, RED))),
    series("Operating system threads", "Threads of the operating system.", "short", each(f"process_threads{{{CHOSEN}}}")),
    series("Process uptime", "Since the process started.", "s", each(f"time() - process_start_time_seconds{{{CHOSEN}}}")),
))

TASKS = Row("Tokio runtime", (
    series("Tokio workers busy", "Share of the workers' time that tasks used in the last second. Near 1 for long: more work than processor.",
           "percentunit", each(f"exchange_tokio_busy_ratio{{{CHOSEN}}}"), low=0, high=1),
    series("Event loop lag, p99", "How late a timer of 100 ms fires: what everything else waits for as well (EventLoopLagHigh at a quarter of a second).",
           "s", Query(quantile(0.99, "exchange_event_loop_lag_seconds", "instance"), "{{instance}}"), thresholds=((None, GREEN), (0.25, RED))),
    series("Tasks ready and not running", "Tasks that are ready and that no worker has taken.", "short", each(f"exchange_tokio_global_queue_depth{{{CHOSEN}}}")),
    series("Tasks alive", "Tasks that have not ended. Level, whatever the load of the past.", "short", each(f"exchange_tokio_alive_tasks{{{CHOSEN}}}")),
    series("Tokio worker threads", "Threads that run tasks.", "short", each(f"exchange_tokio_workers{{{CHOSEN}}}")),
    table("Builds running", "What runs: one line per process. Two versions at once are an upgrade that is under way.", "short", "processes",
          f"sum by (instance, version, git_sha, rustc) (exchange_build_info{{{CHOSEN}}})", width=12),
    table("Configurations in force", "Processes that should be configured alike have one digest per job; what must differ, such as their names, is left out of it.",
          "short", "processes", f"count by (job, digest) (exchange_config_info{{{CHOSEN}}})", width=12),
))

SPANS_ROW = Row("Traces", (
    series("Trace spans by result", "Spans of negotiations that are traced, by what became of them. `dropped`: the queue was full; `failed`: the collector did not take them.",
           "ops", Query(rate(SPANS, "result"), "{{result}}"), stack=True),
    series("Trace spans in the export queue", "Spans in the queue to the collector. 0 where nothing is traced.", "short", each(f"exchange_trace_queue_spans{{{CHOSEN}}}")),
    stat("Trace spans lost in the last hour", "Dropped or refused in the last hour (TraceSpansDropped). Traces have gaps; nothing else is affected.", "short",
         f'sum(increase({SPANS}{{{CHOSEN}, result!="exported"}}[1h]))', width=8, height=8, thresholds=((None, GREEN), (1, YELLOW))),
))

SCRAPES = Row("Monitoring", (
    series("Metric series by process", "Series each process exposes. A gateway's labels are closed sets: at most 3 000.", "short", each(f"scrape_samples_scraped{{{CHOSEN}}}")),
    series("Scrape duration", "What one scrape takes.", "s", each(f"scrape_duration_seconds{{{CHOSEN}}}")),
    series("Series in Prometheus", "Series in its head block.", "short", Query("prometheus_tsdb_head_series", "series")),
    stat("Failed rule evaluations", "Evaluations that failed in the last hour.", "short", "sum(increase(prometheus_rule_evaluation_failures_total[1h]))",
         width=8, height=8, thresholds=((None, GREEN), (1, RED))),
    series("Rule evaluation time by group", "Time Prometheus takes to evaluate each group.", "s", Query("prometheus_rule_group_last_duration_seconds", "{{rule_group}}"), width=16),
))

DASHBOARD = Dashboard("llmx-runtime", "Runtime", "Processor, memory, files and tasks of each process; traces; the monitoring itself.",
                      (GATEWAYS, ENGINES, AGENTS, GENERATORS, "prometheus"), (PROCESSES, TASKS, SPANS_ROW, SCRAPES))
