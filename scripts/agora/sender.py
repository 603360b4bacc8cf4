"""Drives the client of the package agora-protocol against a target. Prints one JSON document a line.

    sender.py schedule TARGET CALLS     the weather task, so many times: result and what the model was asked for
    sender.py errors TARGET             reads lines {"hash", "sources", "multiround", "bodies"}: what the client made of each
"""

import json
import sys
import tempfile

from agora.common.storage import JSONStorage
from agora.sender.components.transporter import SimpleSenderTransporter
from agora.sender.core import Sender
from scripted import ScriptedModel


def schedule(target, calls):
    model = ScriptedModel()
    with tempfile.TemporaryDirectory() as folder:
        sender = Sender.make_default(model, storage=JSONStorage(f"{folder}/sender.json"))

        @sender.task()
        def temperature(city: str) -> int:
            """
            The temperature of a city.

            Args:
                city: The city

            Returns:
                In degrees Celsius
            """

        for _ in range(calls):
            result = temperature("Oxford", target=target)
            if isinstance(result, dict):
                result = result["output"]
            print(json.dumps({"result": result, "model": model.taken()}), flush=True)


def errors(target):
    for line in sys.stdin:
        row = json.loads(line)
        try:
            told = []
            with SimpleSenderTransporter().new_conversation(
                row.get("target", target), row["multiround"], row["hash"], row["sources"]
            ) as conversation:
                for body in row["bodies"]:
                    told.append(conversation(body))
            print(json.dumps({"told": told}), flush=True)
        except Exception as error:  # what the client throws is what is looked for
            print(json.dumps({"exception": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "schedule":
        schedule(sys.argv[2], int(sys.argv[3]))
    else:
        errors(sys.argv[2])
