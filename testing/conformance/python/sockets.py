"""PyPI `websockets` against this project's WebSockets: `client` talks to the echo server of the harness, `server` is one."""

import asyncio
import os
import random
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed, ConnectionClosedError
from websockets.extensions.permessage_deflate import (
    ClientPerMessageDeflateFactory,
    ServerPerMessageDeflateFactory,
)

SIZE_MAX = 4 << 20
SECONDS_MAX = 60
SIZES = [0, 1, 125, 126, 127, 1000, 65535, 65536, 300000]


def messages():
    """Empty and large, text and bytes, what compresses well and what does not."""
    noise = random.Random(1)
    for number in range(135):
        size = SIZES[number % len(SIZES)]
        kind = number // len(SIZES) % 3
        if kind == 0:
            yield ('{"kind":"commit","é":1}' * (size // 20 + 1))[:size]
        else:
            yield noise.randbytes(size) if kind == 1 else bytes(size)


def clients():
    yield "no compression", []
    yield "each message by itself", [
        ClientPerMessageDeflateFactory(
            server_no_context_takeover=True, client_no_context_takeover=True
        )
    ]
    yield "with context", [ClientPerMessageDeflateFactory(client_max_window_bits=True)]
    yield "small windows", [
        ClientPerMessageDeflateFactory(server_max_window_bits=9, client_max_window_bits=9)
    ]


async def talk(path, extensions):
    url = os.environ["ALLUVIUM_TEST_URL"] + path
    options = {"compression": None, "extensions": extensions, "max_size": SIZE_MAX}
    async with connect(url, subprotocols=["echo"], **options) as socket:
        assert socket.subprotocol == "echo"

        async def send():
            for number, message in enumerate(messages()):
                if number % 5 == 0 and len(message) > 2:
                    await socket.send([message[: len(message) // 2], message[len(message) // 2 :]])
                else:
                    await socket.send(message)

        async def receive():
            for number, message in enumerate(messages()):
                assert await socket.recv() == message, f"message {number}"

        await asyncio.gather(send(), receive())
        await (await socket.ping())
        await socket.close(4001, "bye")
        assert socket.close_code == 4001, socket.close_code


async def bomb():
    url = os.environ["ALLUVIUM_TEST_URL"] + "/context"
    async with connect(url, max_size=SIZE_MAX) as socket:
        await socket.send(bytes(32 << 20))
        try:
            await socket.recv()
        except ConnectionClosedError as closed:
            assert closed.rcvd.code == 1009, closed
        else:
            raise AssertionError("a bomb was taken")


async def check(name, body):
    print(f"CHECK {name}", flush=True)
    await asyncio.wait_for(body, SECONDS_MAX)
    print("OK", flush=True)


async def client():
    for path in ["/plain", "/alone", "/context", "/small", "/shared", "/mixed"]:
        for kind, extensions in clients():
            await check(f"{path}, {kind}", talk(path, extensions))
    await check("a bomb is refused with its code", bomb())


async def echo(socket):
    number = 0
    try:
        async for message in socket:
            number += 1
            if number % 7 == 0 and len(message) > 2:
                await socket.send([message[: len(message) // 2], message[len(message) // 2 :]])
            else:
                await socket.send(message)
    except ConnectionClosed:
        pass  # With a code that the package takes for an error.


async def server():
    kinds = {
        "no compression": [],
        "each message by itself": [
            ServerPerMessageDeflateFactory(
                server_no_context_takeover=True, client_no_context_takeover=True
            )
        ],
        "with context": [ServerPerMessageDeflateFactory()],
        "small windows": [ServerPerMessageDeflateFactory(server_max_window_bits=9)],
    }
    for kind, extensions in kinds.items():
        listening = await serve(
            echo,
            "127.0.0.1",
            0,
            subprotocols=["echo"],
            compression=None,
            extensions=extensions,
            max_size=SIZE_MAX,
        )
        port = listening.sockets[0].getsockname()[1]
        print(f"SERVER {kind} ws://127.0.0.1:{port}/", flush=True)
    print("READY", flush=True)
    await asyncio.Future()


asyncio.run(client() if sys.argv[1] == "client" else server())
