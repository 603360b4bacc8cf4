"""A scripted model for the package agora-protocol: it knows the weather task, and counts what it is asked for, by category."""

import json
import re

from agora.common.core import Conversation
from agora.common.toolformers.base import Toolformer

DOCUMENT = """---
name: Weather by city
description: Answers the temperature of a city.
multiround: false
---

The request is a JSON object with `city`. The answer is a JSON object with `temperature`, in degrees Celsius."""

SENDER_ROUTINE = """<IMPLEMENTATION>
import json

def send_query(task_data):
    answer = send_to_server(json.dumps({"city": task_data["city"]}))
    return json.loads(answer)["temperature"]
</IMPLEMENTATION>"""

RECEIVER_ROUTINE = """<IMPLEMENTATION>
import json

def reply(query):
    json.loads(query)["city"]
    return json.dumps({"temperature": 25})
</IMPLEMENTATION>"""


class ScriptedModel(Toolformer):
    def __init__(self):
        self.asked = []

    def new_conversation(self, prompt, tools, category=None):
        return ScriptedConversation(self, prompt, list(tools), category)

    def taken(self):
        """What it was asked for since it was last looked at."""
        asked, self.asked = self.asked, []
        return asked


class ScriptedConversation(Conversation):
    def __init__(self, model, prompt, tools, category):
        self.model, self.prompt, self.category = model, prompt, category
        self.tools = {tool.name: tool for tool in tools}
        self.rounds = 0

    def __call__(self, message, print_output=True):
        self.model.asked.append(self.category)
        self.rounds += 1
        return getattr(self, f"_{self.category}")(message)

    def _negotiation(self, message):
        if "on behalf of a web service" in self.prompt:
            return "Agreed."
        if self.rounds == 1:
            return "I send a JSON object with `city`, you answer with `temperature`. Agreed?"
        return f"<FINALPROTOCOL>\n{DOCUMENT}\n</FINALPROTOCOL>"

    def _programming(self, _message):
        return SENDER_ROUTINE if "send_query" in self.prompt else RECEIVER_ROUTINE

    def _protocolChecking(self, message):
        return "NO" if "unsuitable" in message else "It can be done. YES"

    def _conversation(self, message):
        has_document = "Weather by city" in message + self.prompt
        if "deliverStructuredOutput" not in self.tools:  # a responder
            return json.dumps({"temperature": 25}) if has_document else "It is 25 degrees."
        asked = json.dumps({"city": "Oxford"}) if has_document else "How warm is it in Oxford?"
        answer = self.tools["send_query"].func(query=asked)
        found = re.search(r"-?\d+", answer)
        if found is None:
            raise RuntimeError(f"the answer has no temperature: {answer}")
        self.tools["deliverStructuredOutput"].func(output=int(found[0]))
        return "Done."
