"""Policy and security: who is let in, and what is refused."""

from .model import CHOSEN, GATEWAYS, GREEN, RED, YELLOW, Dashboard, Query, Row, gauge_sum, quantiles, rate, series, stat, table

REJECTED = "exchange_message_rejections_total"
VALIDATED = rate("exchange_schema_validations_total", "schema")
INVALID = rate("exchange_schema_validations_total", "schema", 'result="invalid"')
ALL_TIME = rate("exchange_message_stage_duration_seconds_sum")
CHECK_TIME = rate("exchange_message_stage_duration_seconds_sum", "stage", 'stage!="publish"')

TOKENS = Row("Tokens and keys", (
    series("Tokens by result", "Tokens presented with requests and streams. A verified token is remembered, and each request with it counts.",
           "ops", Query(rate("exchange_auth_decisions_total", "result, reason"), "{{result}} {{reason}}"), stack=True),
    series("Token verification time", "For tokens that are not remembered. Drawn only while such tokens come.",
           "s", *quantiles("exchange_auth_duration_seconds")),
    stat("Verification keys", "Keys in force; 0 means that no token can be verified.", "short",
         f"min(exchange_jwks_keys{{{CHOSEN}}})", thresholds=((None, RED), (1, GREEN)), height=8),
    stat("Age of the keys", "Since the key set was last read successfully, at the gateway where that is longest ago (JwksStale at 15 minutes).", "s",
         f"time() - min(exchange_jwks_last_success_timestamp_seconds{{{CHOSEN}}})",
         thresholds=((None, GREEN), (300, YELLOW), (900, RED)), height=8),
    series("Key set renewals by result", "Renewals of the key set by result, per minute.",
           "short", Query(f"60 * {rate('exchange_jwks_refresh_total', 'result')}", "{{result}}"), stack=True),
))

LIMITS = Row("Rate limits", (
    series("Requests allowed by limit", "Requests charged to a limit and allowed.", "reqps", Query(rate("exchange_rate_limit_decisions_total", "limiter", 'decision="allow"'), "{{limiter}}")),
    series("Requests denied by limit", "Requests charged to a limit and denied.", "reqps", Query(rate("exchange_rate_limit_decisions_total", "limiter", 'decision="deny"'), "{{limiter}}")),
    series("Agents and peers under rate limits", "Agents and peers whose rate is tracked. The cap is `rate_keys_max`, 100 000 by default (RateLimiterKeysNearCap).",
           "short", Query(gauge_sum("exchange_rate_limit_keys", "instance, limiter"), "{{instance}} {{limiter}}"),
           Query(gauge_sum("exchange_rate_limit_key_cap_hits_total", "limiter"), "refused at the cap: {{limiter}}")),
    series("Agents and peers dropped from rate limits", "Keys no longer tracked, because they are back at their full quota.",
           "ops", Query(rate("exchange_rate_limit_keys_evicted_total", "limiter"), "{{limiter}}"), width=24),
))

REFUSALS = Row("Refusals", (
    series("Share of messages refused by stage", "Share of all messages that the stage refused.",
           "percentunit", Query("stage:exchange_rejections:ratio_rate5m", "{{stage}}"), stack=True),
    series("Schema refusals by code", "Refusals of the stage `schema`, by code.", "mps", Query(rate(REJECTED, "reason", 'stage="schema"'), "{{reason}}"), stack=True),
    series("Documents that fail their schema", "Share of the messages, registrations and policies that do not fit their schema.",
           "percentunit", Query(f"{INVALID} / on (schema) ({VALIDATED} > 0)", "{{schema}}")),
    series("Schema keywords not met", "The keyword of the schema that was not met: the member to look at in the sender's code.",
           "mps", Query(rate("exchange_schema_errors_total", "keyword"), "{{keyword}}"), stack=True),
    series("Policy refusals by code", "Refusals of the stage `policy`, by code.",
           "mps", Query(rate(REJECTED, "reason", 'stage="policy"'), "{{reason}}"), stack=True),
    table("Most frequent refusal codes of the last hour", "All codes of the last hour that occurred, and the ten most frequent.", "short", "messages",
          f"topk(10, sum by (stage, reason) (increase({REJECTED}{{{CHOSEN}}}[1h])))", width=12),
    series("Share of ingest time spent in checks", "Time spent in the checks (size, token, rate, schema, policy, duplicate), as a share of the whole way to the log.",
           "percentunit", Query(f"{CHECK_TIME} / on () group_left () ({ALL_TIME} > 0)", "{{stage}}"),
           stack=True, width=12),
))

POLICIES = Row("Policies and schemas in force", (
    series("Admission decisions by rule", "What rules of admission said: may this agent do this, and does the other side hear of it?",
           "ops", Query(rate("exchange_policy_decisions_total", "rule, effect"), "{{rule}} {{effect}}"), stack=True),
    series("Policy reloads by result", "Changes of stored policies and of the default that gateways followed, in ten minutes. `unreadable`: stored, and of no use (PolicyUnreadable).",
           "short", Query(f"sum by (result) (increase(exchange_policy_reloads_total{{{CHOSEN}}}[10m]))", "{{result}}"), stack=True),
    table("Policies in force", "The revision of all stored policies and the default. All gateways have the same within a second of a switch (GatewaysDisagree).",
          "short", "is", f"max by (instance, revision) (exchange_policy_bundle_info{{{CHOSEN}}})"),
    table("Message schemas in force", "What messages are held against: two digests of one schema at once are an upgrade that is under way.", "short", "gateways",
          f"count by (schema, version, digest) (exchange_schema_info{{{CHOSEN}}})", width=16),
    series("Key-value operations by result", "Reads and writes of registered agents, policies and consents, by bucket and result.",
           "ops", Query(rate("exchange_kv_operations_total", "bucket, op, result"), "{{bucket}} {{op}} {{result}}")),
))

INVARIANTS = Row("Invariants and conflicts (must be 0)", (
    series("Broken invariants", "By name; must be 0. ARCHITECTURE.md says what each means.",
           "short", Query("sum by (invariant) (exchange_invariant_violations_total)", "{{invariant}}"), thresholds=((None, GREEN), (1, RED))),
    series("Register conflicts, digest mismatches, lost records", "Register conflicts, engines of different state, logs that lost records; must be 0.",
           "short", Query("sum(exchange_register_conflicts_total)", "register conflicts"), Query("sum(llmx_engine_digest_mismatches_total)", "digest mismatches"),
           Query("sum(llmx_engine_log_divergences_total)", "lost records")),
    series("Unreadable records, heartbeats, acknowledgements", "Records of the log, heartbeats and acknowledgements that could not be read, since the engines started.",
           "short", Query("sum(exchange_records_skipped_total)", "records"), Query("sum(llmx_engine_beats_ignored_total)", "heartbeats"),
           Query("sum(exchange_acks_ignored_total)", "acknowledgements")),
))

DASHBOARD = Dashboard(
    "llmx-policy", "Policy and security", "Tokens, keys, rate limits, refusals by code, invariants.", (GATEWAYS,),
    (TOKENS, LIMITS, REFUSALS, POLICIES, INVARIANTS))
