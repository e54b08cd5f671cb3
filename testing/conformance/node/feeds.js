// Feeds over WebSocket with published packages: `ws` and the browser's `WebSocket`, messages in CBOR by `cbor-x`. Claims
// and restarts as `harness.js` has them.
import assert from "node:assert/strict";
import { decode, encode } from "cbor-x";
import WebSocket from "ws";
import { check, fail, noWatchdog, restart } from "./harness.js";

const httpUrl = `${process.env.ALLUVIUM_TEST_URL}/feeds/v1`;
const socketUrl = httpUrl.replace("http:", "ws:");

const text = (data) => new TextEncoder().encode(data);
// A time, as JavaScript has it: above 32 bits, so `cbor-x` writes a float.
const timestamp = 1_750_000_000_000;
const block = (feedId, sequence, data) => ({
  feedId, actorId: "node", sequence, prevSequence: undefined, prevActorId: null, timestamp, data: text(data),
});

// One connection: answers by `requestId`, hints in a queue.
class Talk {
  constructor(socket, { encoded, decoded }) {
    this.socket = socket;
    this.encoded = encoded;
    this.open = new Map();
    this.hints = [];
    this.waiters = [];
    this.number = 0;
    this.closed = new Promise((resolve) => {
      socket.onclose = (event) => resolve(event.code);
    });
    socket.onmessage = (event) => this.#take(decoded(event.data));
  }

  static async over(Socket, url, protocols, codec) {
    const socket = new Socket(url, protocols);
    socket.binaryType = "arraybuffer";
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = (event) => reject(event.error ?? new Error("no connection"));
    });
    assert.equal(socket.protocol, protocols[0]);
    return new Talk(socket, codec);
  }

  static cbor(url) {
    const codec = { encoded: encode, decoded: (data) => decode(new Uint8Array(data)) };
    return Talk.over(WebSocket, url, ["feeds.v1.cbor"], codec);
  }

  #take(message) {
    if (message._tag === "FeedAdvanced") {
      this.hints.push(message);
      this.waiters.splice(0).forEach((waiter) => waiter());
      return;
    }
    const answer = this.open.get(message.requestId);
    assert.ok(answer, `an answer to nothing: ${JSON.stringify(message)}`);
    this.open.delete(message.requestId);
    answer(message);
  }

  ask(tag, fields) {
    this.number += 1;
    const requestId = `r${this.number}`;
    this.socket.send(this.encoded({ _tag: tag, requestId, ...fields }));
    return new Promise((resolve) => this.open.set(requestId, resolve));
  }

  async hint(position) {
    for (;;) {
      const hint = this.hints.find((candidate) => candidate.position >= position);
      if (hint) return hint;
      await new Promise((resolve) => this.waiters.push(resolve));
    }
  }
}

async function run() {
  let talk;
  let cursor = 0;
  let token;
  await check("the exchanges in CBOR, as cbor-x writes and reads them", async () => {
    talk = await Talk.cbor(`${socketUrl}/spaces/node/ws`);
    const welcome = await talk.ask("Hello", { protocol: 1, client: "node" });
    assert.equal(welcome._tag, "Welcome");
    assert.equal(welcome.limits.frameBytesMax, 1 << 20);
    assert.match(welcome.serverId, /^srv_/);
    const appended = await talk.ask("AppendRequest", {
      namespace: "notes", blocks: [block("f", 0, "one"), block("f", 1, "two"), block("g", 0, "three")],
    });
    assert.deepEqual(appended.positions, [1, 2, 3]);
    token = appended.serverToken;
    const subscribed = await talk.ask("SubscribeRequest", { feedIds: ["f"], push: "none" });
    const page = await talk.ask("QueryRequest", { subscriptionId: subscribed.subscriptionId, cursor: 0 });
    assert.deepEqual(page.blocks.map((b) => Buffer.from(b.data).toString()), ["one", "two"]);
    assert.ok(page.blocks[0].data instanceof Uint8Array);
    assert.equal(page.blocks[0].timestamp, timestamp);
    assert.deepEqual([page.nextCursor, page.hasMore], [3, false]);
    cursor = page.nextCursor;
    const listed = await talk.ask("ListFeedsRequest", { namespace: "notes" });
    assert.deepEqual(listed.feeds.map((feed) => [feed.feedId, feed.blockCount]), [["f", 2], ["g", 1]]);
    const refused = await talk.ask("QueryRequest", { subscriptionId: "no such" });
    assert.deepEqual([refused._tag, refused.code, refused.retryable], ["Error", "subscription_not_found", true]);
    const routed = await talk.ask("QueryRequest", { cursor: 2, senderPeerId: "peer-1", recipientPeerId: undefined });
    assert.deepEqual([routed.recipientPeerId, routed.blocks.length, routed.nextCursor], ["peer-1", 1, 3]);
    assert.ok(routed.blocks[0].data instanceof Uint8Array);
  });

  await check("the same in CBOR over HTTP", async () => {
    const response = await fetch(`${httpUrl}/spaces/node/query`, {
      method: "POST", headers: { "content-type": "application/cbor" }, body: encode({ requestId: "h", cursor: 0 }),
    });
    const page = decode(new Uint8Array(await response.arrayBuffer()));
    assert.deepEqual(page.blocks.map((b) => b.position), [1, 2, 3]);
    assert.equal(page.serverToken, token);
  });

  await check("the browser's WebSocket, JSON, several spaces on one connection, and hints", async () => {
    const codec = { encoded: JSON.stringify, decoded: JSON.parse };
    const page = await Talk.over(globalThis.WebSocket, `${socketUrl}/ws`, ["feeds.v1.json"], codec);
    for (const spaceId of ["node", "other"]) {
      const subscribed = await page.ask("SubscribeRequest", { spaceId, all: true, push: "hint" });
      assert.equal(subscribed.spaceId, spaceId);
    }
    await talk.ask("AppendRequest", { blocks: [block("f", 2, "four")] });
    const hint = await page.hint(4);
    assert.deepEqual([hint.spaceId, hint.feedIds], ["node", ["f"]]);
    const appended = await page.ask("AppendRequest", {
      spaceId: "other", blocks: [{ actorId: "a", sequence: 0, data: "AAEC/w==" }],
    });
    assert.deepEqual([appended.spaceId, appended.positions], ["other", [1]]);
    const read = await page.ask("QueryRequest", { spaceId: "other", cursor: 0 });
    assert.equal(read.blocks[0].data, "AAEC/w==");
    assert.equal((await page.ask("QueryRequest", { cursor: 0 })).code, "bad_request");
    page.socket.close(1000);
    assert.equal(await page.closed, 1000);
  });

  for (const how of ["graceful", "kill"]) {
    await check(`a restart (${how}) closes the socket, and the cursor goes on`, async () => {
      const sent = await talk.ask("AppendRequest", { blocks: [block("f", 10 + cursor, "before")] });
      await restart(how);
      assert.equal(await talk.closed, how === "graceful" ? 1001 : 1006);
      talk = await Talk.cbor(`${socketUrl}/spaces/node/ws`);
      const page = await talk.ask("QueryRequest", {
        cursor, expectedServerToken: token, expectedPosition: sent.maxPosition, expectedCheck: sent.check,
      });
      assert.ok(!page.reset);
      assert.equal(page.nextCursor, sent.positions[0]);
      cursor = page.nextCursor;
      // What was sent already has its position.
      const again = await talk.ask("AppendRequest", { blocks: [page.blocks.at(-1)] });
      assert.deepEqual(again.positions, sent.positions);
    });
  }
  talk.socket.close();
  await talk.closed;
  noWatchdog();
  process.exit(0);
}

run().catch(fail);
