"""The published Python client against a server that is restarted under it.

Each claim is announced with `CHECK` and confirmed with `OK`; `RESTART` asks the harness for a restart and waits
until it is done.
"""

import os
import sys
import threading
from pathlib import PurePosixPath

import httpx
from durable_streams import DurableStream, stream

BASE_URL = os.environ["ALLUVIUM_TEST_URL"]
# A client that waits for ever would hang the run; this is far more than any step takes.
STEP_SECONDS_MAX = 60


def url(name):
    return f"{BASE_URL}/v1/stream/{PurePosixPath('pypi') / name}"


def restart(how):
    print(f"RESTART {how}", flush=True)
    assert sys.stdin.readline().strip() == "done", "the harness went away"


def check(name, body, *args):
    print(f"CHECK {name}", flush=True)
    body(*args)
    print("OK", flush=True)


def append(handle, first, end):
    for number in range(first, end):
        handle.append({"id": number})


class Tail:
    """A reader that keeps its place: whatever breaks, it opens the stream again from its last offset."""

    def __init__(self, name, live):
        self.seen = []
        self.sessions = 0
        self.changed = threading.Condition()
        self.stopped = False
        threading.Thread(target=self._follow, args=(name, live), daemon=True).start()

    def _follow(self, name, live):
        offset = "-1"
        while not self.stopped:
            try:
                with stream(url(name), offset=offset, live=live) as response:
                    self.sessions += 1
                    for event in response.iter_events("json"):
                        with self.changed:
                            self.seen.extend(message["id"] for message in event.data)
                            offset = event.next_offset
                            self.changed.notify_all()
            except httpx.TransportError:
                # The connection broke, or nothing listens yet; the next turn resumes.
                pass

    def wait_for(self, count):
        with self.changed:
            reached = self.changed.wait_for(lambda: len(self.seen) >= count, STEP_SECONDS_MAX)
        assert reached, f"{len(self.seen)} of {count} messages seen"

    def stop(self):
        self.stopped = True


def each_once(live):
    name = f"tail-{live}"
    with DurableStream.create(url(name), content_type="application/json") as handle:
        append(handle, 0, 20)
        tail = Tail(name, live)
        tail.wait_for(20)
        append(handle, 20, 40)
        tail.wait_for(40)
        restart("graceful")
    with DurableStream.connect(url(name)) as handle:
        append(handle, 40, 60)
        tail.wait_for(60)
        restart("kill")
    with DurableStream.connect(url(name)) as handle:
        append(handle, 60, 80)
        tail.wait_for(80)
    tail.stop()
    assert tail.seen == list(range(80)), tail.seen
    assert tail.sessions >= 1


def catch_up():
    with DurableStream.create(url("catch-up"), content_type="application/json") as handle:
        append(handle, 0, 100)
    restart("kill")
    with stream(url("catch-up"), offset="-1", live=False) as response:
        assert response.read_json() == [{"id": number} for number in range(100)]


def deleted():
    with DurableStream.create(url("deleted"), content_type="text/plain", body=b"gone soon") as handle:
        handle.delete()
    restart("kill")
    response = httpx.get(url("deleted"))
    assert response.status_code == 404, response.status_code


def main():
    check("SSE shows each message once, over both kinds of restart", each_once, "sse")
    check("long-poll shows each message once, over both kinds of restart", each_once, "long-poll")
    check("a catch-up read returns everything after kill -9", catch_up)
    check("a deleted stream stays deleted over kill -9", deleted)


main()
