"""Protocol documents: which there are, what carries awards out under them, and transactions of Agora."""

from .model import AGENTS, CHOSEN, GATEWAYS, GREEN, RED, YELLOW, Dashboard, Query, Row, gauge_sum, quantile, quantiles, rate, series, stat

RUNS = "exchange_routine_runs_total"
FAILED = rate(RUNS, "", 'result!="ok"')
TRANSACTIONS = "exchange_agora_transactions_total"

# Every gateway holds the same documents, and counts what it did itself.
HELD = f"max (exchange_protocol_documents{{{CHOSEN}}})"

ROUTINES = Row("Routines", (
    stat("Awards carried out per second", "Runs that gave the result of an award.", "ops", rate(RUNS, "", 'result="ok"'), decimals=2),
    stat("Runs that fail", "Share of the runs. One that fails is followed by a run of a weaker kind.", "percentunit",
         f"{FAILED} / ({rate(RUNS)} > 0)", thresholds=((None, GREEN), (0.05, YELLOW), (0.3, RED))),
    stat("Protocol documents", "Protocol documents that the exchange holds, 4096 at most.", "short", HELD, decimals=0),
    stat("Collisions of documents", "Texts that came under the hash of another: a SHA-1 collision, or a store that something else writes to.", "short",
         gauge_sum("exchange_protocol_document_collisions_total"), thresholds=((None, GREEN), (1, RED)), decimals=0),
    stat("Transactions per second", "Transactions of Agora answered, whatever the answer.", "reqps", rate(TRANSACTIONS), decimals=2),
    stat("Open conversations", "Conversations of Agora that gateways hold open.", "short", gauge_sum("exchange_agora_conversations"), decimals=0),
    series("Routine runs by kind", "What carried awards out, or tried to: code for a protocol document, a model, or natural language. One that fails is followed by a run of a weaker kind.",
           "ops", Query(rate(RUNS, "kind"), "{{kind}}"), stack=True),
    series("Routine runs by result", "How runs ended. All but `ok` are followed by a run of a weaker kind, where there is one.",
           "ops", Query(rate(RUNS, "result"), "{{result}}"), stack=True),
    series("Time of routine runs by kind, p95", "95 of 100 runs of the kind take no longer. Kinds that did not run have no line.",
           "s", Query(quantile(0.95, "exchange_routine_duration_seconds", "kind"), "{{kind}}")),
))

DOCUMENTS = Row("Documents", (
    series("Protocol documents held", "By gateway; all should agree.", "short", Query(gauge_sum("exchange_protocol_documents", "instance"), "{{instance}}")),
    series("Documents put by result", "`known`: it was there already; `refused`: no room, or the store did not answer; `collision`: another text stands under its hash.",
           "ops", Query(rate("exchange_protocol_document_puts_total", "result"), "{{result}}"), stack=True),
    series("Supports ended for want of room", "Supports of documents that ended because their agent held most of a full exchange, and another needed the room.",
           "ops", Query(rate("exchange_protocol_document_supports_ended_total", "instance"), "{{instance}}")),
    series("Documents fetched by result", "Documents that were asked for at an address, on hosts that the gateway lists. `mismatch`: what came has another hash.",
           "ops", Query(rate("exchange_document_fetches_total", "result"), "{{result}}"), stack=True, width=12),
    series("Operations on the store of documents", "On the bucket of documents, by operation.",
           "ops", Query(rate("exchange_kv_operations_total", "op", 'bucket="documents"'), "{{op}}"), stack=True, width=12),
))

AGORA = Row("Transactions of Agora", (
    series("Transactions by status", "Answers to transactions, by their status. `rejected`: the agent refuses, or does not follow the document.",
           "reqps", Query(rate(TRANSACTIONS, "status"), "{{status}}"), stack=True, width=12),
    series("Time of transactions", "From the request to its answer: the call, the offer, the award and the work.",
           "s", *quantiles("exchange_agora_transaction_duration_seconds"), width=12),
))

DASHBOARD = Dashboard("llmx-documents", "Protocol documents and routines",
                      "Which protocol documents the exchange holds, what carries awards out under them, and transactions of Agora.",
                      (GATEWAYS, AGENTS), (ROUTINES, DOCUMENTS, AGORA), open_rows=3)
