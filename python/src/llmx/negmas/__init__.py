"""NegMAS at the exchange: its negotiators bargain, and its scenarios become domain files and back.

| module | question it answers |
|---|---|
| `scenarios` | which domain file is this scenario, and which scenario is this domain file? |
| `party` | what does a negotiator do in its turn? |
| `competitor` | what does it do in a tournament of `llmx-lab`? |

Needs NegMAS 0.16: `pip install 'llmx[negmas]'`. Two parties bargain; between more, a negotiator cannot be told what each said.
"""

import importlib.util

if importlib.util.find_spec("negmas") is None:
    raise ImportError("llmx.negmas needs NegMAS: pip install 'llmx[negmas]'")

from llmx.negmas.party import NegmasParty
from llmx.negmas.scenarios import ScenarioError, Translation, from_domain, from_scenario, load

__all__ = ["NegmasParty", "ScenarioError", "Translation", "from_domain", "from_scenario", "load"]
