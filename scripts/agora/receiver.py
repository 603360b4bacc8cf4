"""The server of the package agora-protocol, with the scripted model: receiver.py PORT FOLDER. GET /asked beside it says what
the model was asked for since the last GET."""

import logging
import sys

from agora.common.storage import JSONStorage
from agora.receiver import Receiver, ReceiverServer
from flask import jsonify
from scripted import ScriptedModel

model = ScriptedModel()
receiver = Receiver.make_default(model, storage=JSONStorage(f"{sys.argv[2]}/receiver.json"))
server = ReceiverServer(receiver)
server.app.route("/asked")(lambda: jsonify(model.taken()))
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server.run(host="127.0.0.1", port=int(sys.argv[1]))
