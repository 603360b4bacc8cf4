"""Runtime: the processes themselves, and Prometheus."""

from .model import CHOSEN, GREEN, RED, Dashboard, Query, Row, series, stat


def each(expression):
    """One line per process."""
    return Query(expression, "{{instance}}")


PROCESSES = Row("Processes", (
    series("Processor", "Cores in use.", "short", each(f"rate(process_cpu_seconds_total{{{CHOSEN}}}[$__rate_interval])"), stack=True),
    series("Memory", "Resident memory.", "bytes", each(f"process_resident_memory_bytes{{{CHOSEN}}}")),
    series("Memory slope", "Change of resident memory per day, over six hours or what there is of them (MemoryLeakSuspected at a gigabyte).",
           "bytes", each(f"86400 * deriv(process_resident_memory_bytes{{{CHOSEN}}}[6h])")),
    series("Open files", "Open files and sockets as a share of the limit.", "percentunit",
           each(f"process_open_fds{{{CHOSEN}}} / process_max_fds{{{CHOSEN}}}"), thresholds=((None, GREEN), (0.8, RED))),
    series("Threads", "Threads of the operating system.", "short", each(f"process_threads{{{CHOSEN}}}")),
    series("Uptime", "Since the process started.", "s", each(f"time() - process_start_time_seconds{{{CHOSEN}}}")),
))

SCRAPES = Row("Monitoring", (
    series("Series", "Series each process exposes. A gateway's labels are closed sets: at most 3 000.", "short", each(f"scrape_samples_scraped{{{CHOSEN}}}")),
    series("Scrape duration", "What one scrape takes.", "s", each(f"scrape_duration_seconds{{{CHOSEN}}}")),
    series("Series in Prometheus", "Series in its head block.", "short", Query("prometheus_tsdb_head_series", "series")),
    stat("Rules that fail", "Evaluations that failed in the last hour.", "short", "sum(increase(prometheus_rule_evaluation_failures_total[1h]))",
         width=8, height=8, thresholds=((None, GREEN), (1, RED))),
    series("Rule evaluation", "Time Prometheus takes to evaluate each group.", "s", Query("prometheus_rule_group_last_duration_seconds", "{{rule_group}}"), width=16),
))

DASHBOARD = Dashboard("llmx-runtime", "Runtime", "Processor, memory, files of each process; the monitoring itself.", "gateway|engine|prometheus", (PROCESSES, SCRAPES))
