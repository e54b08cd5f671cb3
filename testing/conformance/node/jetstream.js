// Published clients of Jetstream and a browser's way of reading, against a server that follows a network.
import assert from "node:assert/strict";
import { JetstreamSubscription } from "@atcute/jetstream";
import { Jetstream } from "@skyware/jetstream";
import { EventSource } from "eventsource";
import WebSocket from "ws";
import { check, noWatchdog, restart } from "./harness.js";

globalThis.WebSocket ??= WebSocket;

const url = process.env.ALLUVIUM_TEST_URL;
const socketUrl = url.replace("http", "ws");
const COUNT = 150;

// What the archive has, read over plain HTTP.
async function archived() {
  const events = [];
  for (let offset = "-1"; ; ) {
    const answer = await fetch(`${url}/streams/events?offset=${offset}`);
    assert.equal(answer.status, 200);
    events.push(...(await answer.json()));
    offset = answer.headers.get("stream-next-offset");
    if (answer.headers.get("stream-up-to-date")) return events;
  }
}

// The oldest feed has neither replacements of repositories nor the records that come with one.
function shown(events) {
  const replaced = new Set();
  return events.filter((event) => {
    if (event.kind === "sync") replaced.add(`${event.did} ${event.sync.rev}`);
    return event.kind !== "sync" && !(event.commit && replaced.has(`${event.did} ${event.commit.rev}`));
  });
}

// The first `COUNT` changes of records that the oldest feed has of some collections; the network goes on meanwhile.
async function expected(prefix) {
  for (;;) {
    const events = shown(await archived()).filter((event) => event.commit?.collection.startsWith(prefix));
    if (events.length >= COUNT) return events.slice(0, COUNT);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function sameAs(events, truth) {
  assert.deepEqual(
    events.map((event) => event.cursor),
    truth.map((event) => event.seq),
  );
  for (const [at, event] of events.entries()) {
    assert.equal(event.did, truth[at].did);
    assert.equal(event.time_us, truth[at].time_us);
    assert.deepEqual(event.commit?.record, truth[at].commit?.record);
  }
}

await check("@skyware/jetstream gets every event of a collection once and in order", async () => {
  const truth = await expected("app.bsky.feed.");
  const client = new Jetstream({
    endpoint: `${socketUrl}/subscribe`,
    wantedCollections: ["app.bsky.feed.*"],
    cursor: 1,
    ws: WebSocket,
  });
  const events = await new Promise((resolve, reject) => {
    const commits = [];
    client.on("commit", (event) => {
      commits.push(event);
      if (commits.length === truth.length) resolve(commits);
    });
    client.on("error", reject);
    client.start();
  });
  client.close();
  sameAs(events, truth);
});

await check("@atcute/jetstream goes on where it was when the server is killed", async () => {
  const truth = await expected("app.bsky.feed.like");
  const client = new JetstreamSubscription({
    url: socketUrl,
    wantedCollections: ["app.bsky.feed.like"],
    cursor: 1,
  });
  const events = [];
  for await (const event of client) {
    if (event.kind !== "commit" || events.some((known) => known.cursor === event.cursor)) continue;
    events.push(event);
    if (events.length === Math.floor(COUNT / 2)) await restart("kill");
    if (events.length === truth.length) break;
  }
  sameAs(events, truth);
});

await check("EventSource follows the network by itself, over a graceful restart", async () => {
  const truth = await expected("");
  const source = new EventSource(`${url}/streams/events?live=sse&offset=-1&kinds=commit`);
  const seen = [];
  let next, opened = 0, restarted;
  await new Promise((resolve, reject) => {
    source.addEventListener("open", () => (opened += 1));
    source.addEventListener("control", (message) => (next = JSON.parse(message.data)));
    source.addEventListener("data", (message) => {
      seen.push(...JSON.parse(message.data));
      restarted ??= restart("graceful");
      if (opened > 1 && seen.length > truth.length) setImmediate(resolve);
    });
    setTimeout(() => reject(new Error(`${seen.length} events`)), 60_000).unref();
  });
  source.close();
  await restarted;
  for (const event of truth) assert.deepEqual(seen.find(({ seq }) => seq === event.seq), event);
  assert.match(next.streamNextOffset, /^[0-9a-f]{16}_0{16}$/);
  const commits = (await archived()).filter((event) => event.kind === "commit");
  assert.deepEqual(seen.map(({ seq }) => seq), commits.slice(0, seen.length).map(({ seq }) => seq));
});

// Some clients (the WebSocket of Node 22 itself, undici) tell 1006 when a connection ends while they still inflate. The
// frame is there: behind everything that was sent before it, and before the end of the connection.
await check("a close is answered by a close frame, whatever was negotiated and however much was on its way", async () => {
  for (const path of ["/subscribe", "/subscribe-v2", "/xrpc/network.bsky.jetstream.subscribeEvents"]) {
    for (const perMessageDeflate of [true, false]) {
      for (const query of ["", "?cursor=1"]) {
        const socket = new WebSocket(`${socketUrl}${path}${query}`, { perMessageDeflate });
        const [code] = await new Promise((resolve, reject) => {
          socket.once("message", () => socket.close(1000));
          socket.once("close", (...ended) => resolve(ended));
          socket.once("error", reject);
        });
        assert.equal(code, 1000, `${path}${query}, deflate ${perMessageDeflate}`);
        assert.equal(socket.extensions, path === "/subscribe" && perMessageDeflate ? "permessage-deflate" : "");
      }
    }
  }
});

noWatchdog();
process.exit(0);
