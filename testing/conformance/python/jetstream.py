"""A client of Jetstream over PyPI `websockets`: with the socket's compression, and with the dictionary of the feed."""

import asyncio
import json
import os
import sys
import urllib.request

import zstandard
from websockets.asyncio.client import connect

URL = os.environ["ALLUVIUM_TEST_URL"]
DICTIONARY = os.environ["ALLUVIUM_TEST_DICTIONARY"]
COUNT = 100
SECONDS_MAX = 60


def archived():
    """The first events of the oldest feed, read over plain HTTP: without replacements of repositories, nor what comes with one."""
    events, replaced, offset = [], set(), "-1"
    while len(events) < COUNT:
        with urllib.request.urlopen(f"{URL}/streams/events?offset={offset}") as answer:
            page, offset = json.load(answer), answer.headers["stream-next-offset"]
        for event in page:
            if event["kind"] == "sync":
                replaced.add((event["did"], event["sync"]["rev"]))
            elif event["kind"] != "commit" or (event["did"], event["commit"]["rev"]) not in replaced:
                events.append(event)
    return events[:COUNT]


async def received(query, decode, compression):
    url = URL.replace("http", "ws") + "/subscribe?cursor=1" + query
    messages = []
    async with connect(url, compression=compression, max_size=4 << 20) as socket:
        extensions = [type(extension).__name__ for extension in socket.protocol.extensions]
        async for message in socket:
            messages.append(json.loads(decode(message)))
            if len(messages) == COUNT:
                return messages, extensions


async def check(name, query, decode, compression, agreed):
    print(f"CHECK {name}", flush=True)
    messages, extensions = await asyncio.wait_for(received(query, decode, compression), SECONDS_MAX)
    assert bool(extensions) == agreed, extensions
    for message, event in zip(messages, archived(), strict=True):
        assert message["cursor"] == event["seq"], (message, event)
        assert message["did"] == event["did"] and message["time_us"] == event["time_us"]
        if event["kind"] == "commit" and "record" in event["commit"]:
            assert message["commit"]["record"] == event["commit"]["record"]
    print("OK", flush=True)


async def main():
    with open(DICTIONARY, "rb") as file:
        dictionary = zstandard.ZstdCompressionDict(file.read())
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary)

    def text(message):
        assert isinstance(message, str)
        return message

    def packed(message):
        assert isinstance(message, bytes)
        return decompressor.decompress(message)

    await check("events as they are", "", text, None, False)
    await check("events that the socket deflates", "", text, "deflate", True)
    await check("events by the dictionary that clients have", "&compress=true", packed, None, False)
    await check("the dictionary wins over the socket's offer", "&compress=true", packed, "deflate", False)


asyncio.run(main())
sys.exit(0)
