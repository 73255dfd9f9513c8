"""sdk.py PORT KEY SECRET WEBHOOK: the package `pusher`: every request, and a webhook.

WEBHOOK is a file with the headers and the body of a webhook, as JSON. The last line is `ok`.
"""

import json
import sys

import pusher

port, key, secret, webhook = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
client = pusher.Pusher(
    app_id="1234",
    key=key,
    secret=secret,
    ssl=False,
    host="127.0.0.1",
    port=port,
    encryption_master_key_base64="QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
)

assert client.trigger("news", "greeting", {"text": "über+a&b c=d %20"}) == {}
assert client.trigger(["news", "sport"], "to both", "plain") == {}
assert client.trigger("private-encrypted-news", "secret", {"a": 1}) == {}
assert client.trigger_batch([
    {"channel": "news", "name": "first", "data": {"n": 1}},
    {"channel": "news", "name": "second", "data": "2"},
]) == {}

channels = client.channels_info()["channels"]
assert "news" in channels and "presence-room" in channels, channels
counted = client.channels_info(prefix_filter="presence-", attributes=["user_count"])
assert counted == {"channels": {"presence-room": {"user_count": 1}}}, counted
one = client.channel_info("presence-room", ["user_count"])
assert one["occupied"] is True and one["user_count"] == 1, one
assert client.channel_info("nobody")["occupied"] is False
assert client.users_info("presence-room") == {"users": [{"id": "ann"}]}

try:
    client.users_info("news")
    raise SystemExit("users of a public channel")
except pusher.errors.PusherBadRequest:
    pass
try:
    pusher.Pusher("1234", key, "wrong", ssl=False, host="127.0.0.1", port=port).channels_info()
    raise SystemExit("a wrong secret")
except pusher.errors.PusherBadAuth:
    pass

assert client.terminate_user_connections("ann") == {}

with open(webhook, encoding="utf-8") as file:
    received = json.load(file)
event = client.validate_webhook(
    received["headers"]["x-pusher-key"],
    received["headers"]["x-pusher-signature"],
    received["body"],
)
assert event is not None and event["events"], event
changed = client.validate_webhook(
    received["headers"]["x-pusher-key"],
    received["headers"]["x-pusher-signature"],
    received["body"].replace("presence-room", "presence-other"),
)
assert changed is None, changed
print("ok")
