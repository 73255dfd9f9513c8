"""The WebSocket client of aiohttp against a Fanfare server: python aiohttp_client.py URL"""

import asyncio
import json
import sys

from aiohttp import ClientSession, ClientTimeout, WSMsgType


async def ask(ws, command):
    await ws.send_json(command)
    return await ws.receive_json()


async def main(url):
    async with ClientSession(timeout=ClientTimeout(total=15)) as session:
        http = url.replace("ws://", "http://").replace("/ws", "/livez")
        for _ in range(3):  # over one kept connection
            async with session.get(http) as response:
                assert response.status == 200 and (await response.json())["status"] == "ok"

        # compress=15 offers permessage-deflate, which the server takes or not.
        async with session.ws_connect(url, protocols=("fanfare",), compress=15) as ws, session.ws_connect(url) as other:
            assert ws.protocol == "fanfare", ws.protocol
            assert other.protocol is None, other.protocol
            for one in (ws, other):
                assert (await ask(one, {"type": "join", "room": "python"}))["type"] == "joined"
            payload = {"text": "Grüße, 東京, 🎺", "long": "x" * 50_000}
            await ws.send_json({"type": "message", "room": "python", "payload": payload})
            for one in (ws, other):
                message = await one.receive_json()
                assert message["type"] == "message" and message["payload"] == payload
            assert (await ask(ws, {"type": "echo", "payload": [1, None, "é"]}))["payload"] == [1, None, "é"]
            await ws.ping(b"are you there?")
            assert (await ask(ws, {"type": "ping"}))["type"] == "pong"
            assert await other.close(code=1000) and other.close_code == 1000, other.close_code

        async with session.ws_connect(url, protocols=("graphql-ws",)) as ws:
            assert ws.protocol is None, ws.protocol
            await ws.send_bytes(b"binary")
            message = await ws.receive()
            assert message.type is WSMsgType.CLOSE and message.data == 1003, message


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 20))
print("ok")
