"""The client of the package websockets against a Fanfare server: python websockets_client.py URL"""

import asyncio
import json
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError


async def ask(ws, command):
    await ws.send(json.dumps(command))
    return json.loads(await ws.recv())


async def main(url):
    async with connect(url, subprotocols=["graphql-ws", "fanfare"]) as ws, connect(url) as other:
        assert ws.subprotocol == "fanfare", ws.subprotocol
        assert other.subprotocol is None, other.subprotocol
        for one in (ws, other):
            assert (await ask(one, {"type": "join", "room": "python"}))["type"] == "joined"

        # A message of several frames, with characters of two to four bytes, to both members.
        payload = {"text": "Grüße, 東京, 🎺", "long": "x" * 50_000}
        text = json.dumps({"type": "message", "room": "python", "payload": payload}, ensure_ascii=False)
        await ws.send([text[i : i + 7000] for i in range(0, len(text), 7000)])
        for one in (ws, other):
            message = json.loads(await one.recv())
            assert message["type"] == "message" and message["payload"] == payload

        assert (await ask(ws, {"type": "echo", "payload": [1, None, "é"]}))["payload"] == [1, None, "é"]
        await asyncio.wait_for(await ws.ping(b"are you there?"), 5)
        await other.close(1000, "done")
        assert other.close_code == 1000, other.close_code

    async with connect(url, subprotocols=["graphql-ws"]) as ws:
        assert ws.subprotocol is None, ws.subprotocol
        await ws.send(b"binary")
        try:
            await ws.recv()
            raise AssertionError("binary was taken")
        except ConnectionClosedError as closed:
            assert closed.rcvd.code == 1003, closed


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 20))
print("ok")
