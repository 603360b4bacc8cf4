"""Agents and language models: what models are asked, what they answer, and what that costs."""

from .model import AGENTS, CHOSEN, GENERATORS, GREEN, RED, YELLOW, Dashboard, Query, Row, quantiles, rate, series, stat

CALLS = "gen_ai_client_operation_duration_seconds"
TOKENS = "gen_ai_client_token_usage_sum"
QUESTIONS = "agent_model_consultations_total"
COST = "agent_model_cost_micro_units_total"
ASKED = rate(QUESTIONS)
UNANSWERED = rate(QUESTIONS, "", 'result!="answered"')
FAILED = rate(f"{CALLS}_count", "", 'error_type!="none"')

MODELS = Row("Language models", (
    stat("Questions per second", "Questions agents put to a model. Each takes one call or more.", "ops", ASKED, decimals=1),
    stat("Calls per question", "1 where every answer fits at once; repairs, repeats and steps down to a weaker form of answer add to it.", "short",
         f"{rate(f'{CALLS}_count')} / ({ASKED} > 0)", decimals=2),
    stat("Questions without an answer", "Share of the questions that were given up: the agent refused, or did what its script says.", "percentunit",
         f"{UNANSWERED} / ({ASKED} > 0)", thresholds=((None, GREEN), (0.05, YELLOW), (0.3, RED))),
    stat("Calls that fail", "Share of the calls that brought no answer.", "percentunit",
         f"{FAILED} / ({rate(f'{CALLS}_count')} > 0)", thresholds=((None, GREEN), (0.05, YELLOW), (0.3, RED))),
    stat("Cost per question", "Micro-units of whatever the prices in the model's file are in.", "short", f"{rate(COST)} / ({ASKED} > 0)", decimals=0),
    stat("Tokens per question", "Of conversations and answers together.", "short", f"{rate(TOKENS)} / ({ASKED} > 0)", decimals=0),
    series("Model calls by result", "Calls of models by how they ended. `none`: an answer came; all others brought none.",
           "ops", Query(rate(f"{CALLS}_count", "error_type"), "{{error_type}}"), stack=True),
    series("Model call time", "Of calls that brought an answer. The deadline of a call for proposals ends calls as well.",
           "s", *quantiles(CALLS, 'error_type="none"', shares=(0.5, 0.95))),
    series("Answers that came too late", "Answers per second that nobody waited for any more: they are not used. A policy that waits longer, or fewer questions at once, makes them fewer; "
           "`agent_model_late_seconds` says how late they are.", "ops", Query(rate("agent_model_late_seconds_count"), "late")),
    series("Questions by result", "How questions ended, with all their repairs and repeats. `model_output`: no answer fits; `model_deadline`: none in time; `model_budget`: a limit of calls, tokens or "
           "cost; `model_unavailable`: the endpoint does not answer.", "ops", Query(rate(QUESTIONS, "result"), "{{result}}"), stack=True),
    series("Unusable answers by reason", "Answers that did not fit, by why; each is sent back to be repaired while repairs are left.",
           "ops", Query(rate("agent_invalid_outputs_total", "reason"), "{{reason}}"), stack=True),
    series("Tokens per second", "Tokens of what is sent and of what is answered, as the endpoint counts them or by estimate.",
           "short", Query(rate(TOKENS, "gen_ai_token_type"), "{{gen_ai_token_type}}"), stack=True),
    series("Share of estimated calls", "Calls whose tokens were estimated, because the endpoint did not count them or the call was cut short.",
           "percentunit", Query(f"{rate('agent_model_estimated_calls_total')} / ({rate(f'{CALLS}_count')} > 0)", "estimated")),
    series("Model cost per minute", "Micro-units spent per minute, by process. The budget of a day is the process's.",
           "short", Query(f"60 * {rate(COST, 'instance')}", "{{instance}}"), stack=True),
    series("Model cost", "Micro-units spent since the start of each process.", "short", Query(f"sum by (instance) ({COST}{{{CHOSEN}}})", "{{instance}}")),
))

AGENTS_ROW = Row("Decisions of agents", (
    series("Decisions per second by kind and act", "What agents decided, with a model or without. `silence`: a call or an award that gets no answer; a question that is put to a model counts when its answer comes.",
           "ops", Query(f"{rate('agent_decisions_total', 'strategy, action')} > 0", "{{strategy}} {{action}}"), stack=True, width=12),
    series("Refusals of calls per second", "Calls agents refused; without a usable answer of its model an agent refuses as well.",
           "ops", Query(rate("agent_decisions_total", "instance", 'action="refuse"'), "{{instance}}"), stack=True, width=12),
))

DASHBOARD = Dashboard("llmx-models", "Agents and language models",
                      "What agents ask language models, what comes back, and what it costs. Empty while no process runs with a model (`llmx contractors --model`). A negotiation's calls stand in its trace "
                      "as spans `chat NAME`: type the negotiation into the link to the traces.",
                      (AGENTS, GENERATORS), (MODELS, AGENTS_ROW), open_rows=2)
