"""The package websocket-client, which sends the server's URL as its Origin, against a Fanfare server
with ALLOWED_ORIGINS: python websocket_client.py URL"""

import json
import sys

import websocket

url = sys.argv[1]
try:
    websocket.create_connection(url, timeout=5)
    raise AssertionError("admitted with its usual Origin")
except websocket.WebSocketBadStatusException as error:
    assert error.status_code == 403, error
ws = websocket.create_connection(url, timeout=5, suppress_origin=True)
ws.send(json.dumps({"type": "ping"}))
assert json.loads(ws.recv())["type"] == "pong"
ws.close()
print("ok")
