"""Negotiation market: what is negotiated, how it ends, who gets the awards, and what is delivered."""

from .model import CHOSEN, ENGINES, Dashboard, Query, Row, gauge_sum, heatmap, quantile, quantiles, rate, series, stat, table

DURATION = "exchange_negotiation_duration_seconds"
CLOSES = rate("exchange_collections_closed_total", "protocol")
WITHOUT_EFFECT = rate("exchange_dispositions_total", "kind, disposition", 'disposition!~"ok|committed"')
LATE_CLOSES = rate("exchange_collections_closed_total", "protocol", 'reason="deadline"')

NEGOTIATIONS = Row("Negotiations", (
    series("Negotiations started and ended", "Negotiations that were opened, and that ended, by protocol.",
           "ops", Query(rate("exchange_negotiations_started_total", "protocol"), "started: {{protocol}}"),
           Query(rate("exchange_negotiations_closed_total", "protocol"), "ended: {{protocol}}")),
    series("Share of negotiations that end in agreement", "Of the negotiations that ended, the share that ended with work done or an agreement.",
           "percentunit", Query("protocol:exchange_agreements:ratio_rate15m", "{{protocol}}"), low=0, high=1),
    series("Open negotiations by state", "Open negotiations by state.",
           "short", Query(gauge_sum("exchange_negotiations_open", "protocol, state"), "{{protocol}} {{state}}"), stack=True),
    series("Ended negotiations by outcome", "How negotiations ended.",
           "ops", Query(rate("exchange_negotiations_closed_total", "protocol, outcome"), "{{protocol}} {{outcome}}"), stack=True),
    series("Negotiation duration by outcome, p50", "Log time from the call to the end; half of the negotiations took less.",
           "s", Query(quantile(0.5, DURATION, "outcome"), "{{outcome}}")),
    series("Negotiation duration by outcome, p95", "Log time from the call to the end; 95 of 100 took less.",
           "s", Query(quantile(0.95, DURATION, "outcome"), "{{outcome}}")),
    heatmap("Rounds per negotiation", "Negotiations per second by the rounds they took.", "short", rate("exchange_negotiation_rounds_bucket", "le")),
    heatmap("Negotiation duration", "Negotiations per second by their duration in log time.", "s", rate(f"{DURATION}_bucket", "le")),
    series("Time to a decision", "Log time from the call to the close of its collection, where the award is decided.",
           "s", *quantiles("exchange_decision_duration_seconds")),
))

DECISION, OFFERS = "exchange_decision_duration_seconds", "exchange_offers_per_round"
AWARDS = f"exchange_award_window_awards{{{CHOSEN}}}"


def weighed(metric, by=""):
    """A gauge of each engine's awards, over all engines: each counts as much as it awarded."""
    grouping = f" by ({by})" if by else ""
    return (f"sum{grouping} ({metric}{{{CHOSEN}}} * on (instance) group_left () {AWARDS}) / "
            f"on () group_left () (sum({AWARDS}) > 0)")


POLICIES = Row("Latency and offers by policy and by agents invited", (
    series("Time to a decision by policy, p50", "Log time from the call to the close of its collection, under each policy that decided anything. `other`: policies of your own, and calls older than the engine.",
           "s", Query(quantile(0.5, DECISION, "policy"), "{{policy}}")),
    series("Time to a decision by policy, p95", "95 of 100 decisions under the policy take less.",
           "s", Query(quantile(0.95, DECISION, "policy"), "{{policy}}")),
    series("Decisions by policy", "Collections that closed per second, by policy.",
           "ops", Query(f"{rate(f'{DECISION}_count', 'policy')} > 0", "{{policy}}"), stack=True),
    series("Time to a decision by agents invited, p50", "By how many agents the call invited at most: 5, 9, 12, 50, 200, or more.",
           "s", Query(quantile(0.5, DECISION, "invited"), "at most {{invited}}")),
    series("Time to a decision by agents invited, p95", "95 of 100 decisions of calls to so many agents take less.",
           "s", Query(quantile(0.95, DECISION, "invited"), "at most {{invited}}")),
    series("Decisions by agents invited", "Collections that closed per second, by how many agents were invited at most.",
           "ops", Query(f"{rate(f'{DECISION}_count', 'invited')} > 0", "at most {{invited}}"), stack=True),
    heatmap("Offers per round", "Rounds per second by the valid offers they had when they closed.", "short", rate(f"{OFFERS}_bucket", "le")),
    series("Mean offers per round by policy", "Valid offers when a round closes. A policy that takes the first one that is good enough has few.",
           "short", Query(f"{rate(f'{OFFERS}_sum', 'policy')} / ({rate(f'{OFFERS}_count', 'policy')} > 0)", "{{policy}}")),
    series("Mean offers per round by agents invited", "Valid offers when a round closes, by how many agents were invited at most.",
           "short", Query(f"{rate(f'{OFFERS}_sum', 'invited')} / ({rate(f'{OFFERS}_count', 'invited')} > 0)", "at most {{invited}}")),
))

AWARDED = Row("Distribution of awards among contractors", (
    series("Share of awards by rank of contractor", "Of the awards of the last five minutes, the share of the contractor with the most (rank 1), the second most and so on, in each engine's lanes. `rest`: all below the twelfth.",
           "percentunit", Query(weighed("exchange_award_share", "rank"), "rank {{rank}}"), stack=True, low=0, high=1, width=12),
    series("Fairness of awards (Jain's index)", "1 when all who make offers win alike, 1/n when one of n wins all. Compare with what a fair draw of as many awards gives, never with 1.",
           "percentunit", Query(weighed("exchange_award_jain"), "Jain's index"), Query(weighed("exchange_award_jain_null"), "of a fair draw"),
           low=0, high=1),
    stat("Awards looked at", "Binding awards of the last five minutes: few of them say little.", "short", f"sum({AWARDS})", height=8),
))

STATES = Row("States, turns and deadlines", (
    series("Agents' response time by role, p95", "Log time from being asked to act until the act is logged, by role. Windows of policies are no turns.",
           "s", Query(quantile(0.95, "exchange_negotiation_response_duration_seconds", "role"), "{{role}}")),
    series("Missed deadlines by phase", "Deadlines that passed before what they waited for, by phase. Some are ordinary: a collection ends by time when somebody is silent.",
           "ops", Query(rate("exchange_deadline_misses_total", "protocol, phase"), "{{protocol}} {{phase}}"), stack=True),
    series("Stalled negotiations", "Open negotiations in which nothing has happened for two minutes. They wait for a deadline, or stand still (NegotiationsStalled).",
           "short", Query(gauge_sum("exchange_negotiations_stalled"), "stalled")),
    table("State transitions", "Changes of state within the last five minutes.", "short", "changes",
          f"sort_desc(sum by (protocol, from, to) (increase(exchange_state_transitions_total{{{CHOSEN}}}[5m])) > 0)"),
    series("Why rounds of offers close", "`all_responded`: everybody answered. `deadline`: time was up. `window`, `k_valid`, `score_at_least`: the policy had enough.",
           "ops", Query(rate("exchange_collections_closed_total", "reason"), "{{reason}}"), stack=True),
    series("Share of rounds closed by their deadline", "The share of collections that not everybody answered in time.",
           "percentunit", Query(f"{LATE_CLOSES} / ({CLOSES} > 0)", "{{protocol}}"), low=0, high=1),
    series("Messages by disposition", "Logged messages by their disposition. Anything but `ok` and `committed` was stored and had no effect.",
           "mps", Query(rate("exchange_dispositions_total", "disposition"), "{{disposition}}"), stack=True, width=12),
    series("Messages without effect", "The same without those that had one, by act.",
           "mps", Query(f"({WITHOUT_EFFECT} > 0) or on () vector(0)", "{{kind}} {{disposition}}"), width=12),
))

TURNS = rate("exchange_team_turns_total")
SILENT = rate("exchange_team_turns_total", matchers='kind="silence"')

TEAMS = Row("Teams and panels", (
    series("Turns of teams by kind", "How turns of teams are taken. `silence`: whoever held the floor said nothing in time. `repeat`: a say told by reference.",
           "ops", Query(rate("exchange_team_turns_total", "kind"), "{{kind}}"), stack=True),
    series("Share of silent turns", "Of the turns of teams, those in which whoever held the floor said nothing in time (TeamsSilent). 0 without turns.",
           "percentunit", Query(f"({SILENT} / ({TURNS} > 0)) or on () vector(0)", "silent"), low=0, high=1),
    series("Tasks of teams by outcome", "Tasks that ended, by whether the team waited for them, by how their owner was found, and by how they ended (TeamTasksFailing).",
           "ops", Query(rate("exchange_team_tasks_total", "mode, by, outcome"), "{{mode}} {{by}} {{outcome}}"), stack=True),
    heatmap("Members of teams", "Teams formed per second by their members, the lead among them.", "short", rate("exchange_team_members_bucket", "le")),
    series("Teams formed by level", "Teams formed per second with at most so many teams above them: 0 at the root.",
           "ops", Query(rate("exchange_team_depth_bucket", "le"), "at most {{le}}")),
    series("Asks of panels", "Members of panels that were asked, by what for.",
           "ops", Query(rate("exchange_panel_calls_total", "kind"), "{{kind}}"), stack=True),
    series("Findings of panels by reason", "Panels that came to a finding, by what stopped them.",
           "ops", Query(rate("exchange_panel_stops_total", "by"), "{{by}}"), stack=True),
    series("Time of a panel's round", "Log time from the first ask of a round to the first of the next, or to the end of the panel.",
           "s", *quantiles("exchange_panel_round_duration_seconds")),
    series("Evidence by lane", "Entries that panels have left: an agent, in a domain, in a role, with an initiator. At 65,536 the one that was added to longest ago is dropped.",
           "short", Query("max by (lane) (exchange_lane_evidence_entries)", "lane {{lane}}")),
    series("Time deadlines are overdue by lane", "Log time since the earliest deadline of a lane that nobody has acted on. Above a tick's time, negotiations and teams outlive their end (DeadlinesOverdue).",
           "s", Query("max by (lane) (exchange_lane_overdue_seconds)", "lane {{lane}}"), width=24),
))

DELIVERIES = Row("Deliveries to agents, and the register", (
    series("Deliveries sent and acknowledged", "Deliveries sent and acknowledged, repeats included.",
           "mps", Query(rate("exchange_deliveries_sent_total"), "sent"), Query(rate("exchange_deliveries_acked_total"), "acknowledged"),
           Query(rate("exchange_delivery_retries_total"), "repeats")),
    series("Deliveries by kind", "What deliveries say.",
           "mps", Query(rate("exchange_deliveries_sent_total", "kind"), "{{kind}}"), stack=True),
    series("Time until a delivery is acknowledged, p95", "From the fold that made a delivery until its recipient acknowledged it.",
           "s", Query(quantile(0.95, "exchange_message_delivery_duration_seconds", "kind"), "{{kind}}")),
    series("Unacknowledged deliveries by lane", "Deliveries that are not acknowledged yet, by lane.",
           "short", Query("lane:exchange_outbox_deliveries:sum", "lane {{lane}}"), stack=True),
    series("Dead letters by reason", "Deliveries that will not be sent again, by reason.",
           "mps", Query(rate("exchange_dead_letters_total", "reason"), "{{reason}}"), stack=True),
    series("Messages published to inboxes", "Messages published to agents' inboxes; one carries many deliveries. `failed`: the bus did not take it, it is sent again.",
           "mps", Query(rate("exchange_inbox_messages_total"), "published"), Query(rate("exchange_inbox_failures_total"), "failed")),
    series("Register writes", "Writes to the register by answer. `same` is a repeat; `different` is a conflict.",
           "ops", Query(rate("exchange_register_writes_total", "result"), "{{result}}"), stack=True),
    series("Register write latency", "Until the register has answered a write.",
           "s", *quantiles("exchange_register_write_duration_seconds")),
    series("Unreadable and lost acknowledgements", "Acknowledgements that could not be read, and those a busy lane lost; agents repeat them.",
           "ops", Query(rate("exchange_acks_ignored_total"), "unreadable"), Query(rate("exchange_signals_dropped_total"), "lost")),
))

DASHBOARD = Dashboard(
    "llmx-market", "Negotiation market", "Negotiations by state and outcome, decisions, deliveries, register.", (ENGINES,),
    (NEGOTIATIONS, POLICIES, AWARDED, STATES, TEAMS, DELIVERIES))
