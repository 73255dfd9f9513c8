"""What centrifuge-python does after each close: `python returns.py URL CODE...`.

Prints a JSON object of codes: true if the client returns, false if it stops.
"""

import asyncio
import json
import sys

from centrifuge import Client, ClientEventHandler


class Handler(ClientEventHandler):
    def __init__(self) -> None:
        self.was_connected = False
        self.returns: asyncio.Future = asyncio.get_running_loop().create_future()

    def _end(self, returns: bool) -> None:
        if self.was_connected and not self.returns.done():
            self.returns.set_result(returns)

    async def on_connected(self, ctx) -> None:
        self.was_connected = True

    async def on_connecting(self, ctx) -> None:
        self._end(True)

    async def on_disconnected(self, ctx) -> None:
        self._end(False)


async def outcome(url: str, code: str) -> bool:
    handler = Handler()
    client = Client(f"{url}/{code}", events=handler, min_reconnect_delay=5)
    await client.connect()
    returns = await asyncio.wait_for(handler.returns, 20)
    await client.disconnect()
    return returns


async def main(url: str, codes: list) -> None:
    outcomes = await asyncio.gather(*(outcome(url, code) for code in codes))
    print(json.dumps(dict(zip(codes, outcomes))))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
