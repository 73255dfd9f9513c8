"""pysher_client.py PORT KEY SECRET: the client `pysher`: subscribes, prints what it receives.

It prints `subscribed CHANNEL`, `event DATA` and `client DATA`, and ends with `ok`.
"""

import json
import sys
import threading

import pysher

port, key, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3]
client = pysher.Pusher(
    key,
    secure=False,
    secret=secret,
    custom_host="127.0.0.1",
    port=port,
    user_data={"user_id": "pysher", "user_info": {"name": "P"}},
)
received = threading.Event()


def say(*words):
    print(*words, flush=True)


def on_client(data):
    say("client", data)
    channel = client.channel("private-room")
    channel.trigger("client-answer", {"to": json.loads(data)["from"]})
    received.set()


def on_connect(_data):
    for name in ("news", "private-room", "presence-room"):
        channel = client.subscribe(name)
        channel.bind(
            "pusher_internal:subscription_succeeded",
            lambda data, name=name: say("subscribed", name, data),
        )
    client.channel("news").bind("greeting", lambda data: say("event", data))
    client.channel("private-room").bind("client-question", on_client)


client.connection.bind("pusher:connection_established", on_connect)
client.connect()
if not received.wait(60):
    raise SystemExit("nothing was received")
# The answer is on its way before the close frame is.
client.disconnect(5)
say("ok")
