// The published npm client against a server that is restarted under it.
import assert from "node:assert/strict";
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";
import { check, fail, noWatchdog, restart } from "./harness.js";

const baseUrl = process.env.ALLUVIUM_TEST_URL;

const url = (name) => `${baseUrl}/v1/stream/npm/${name}`;
const range = (first, end) => Array.from({ length: end - first }, (_, i) => ({ id: first + i }));

async function append(handle, first, end) {
  for (const message of range(first, end)) await handle.append(JSON.stringify(message));
}

// A reader that keeps its place: whatever breaks, it opens the stream again from the last offset it was given.
class Tail {
  constructor(name, live) {
    this.seen = [];
    this.sessions = 0;
    this.offset = "-1";
    this.waiters = [];
    this.stopped = new AbortController();
    this.done = this.#follow(name, live);
    this.done.catch(fail);
  }

  async #follow(name, live) {
    while (!this.stopped.signal.aborted) {
      try {
        const response = await stream({
          url: url(name), offset: this.offset, live, json: true, signal: this.stopped.signal,
        });
        this.sessions += 1;
        response.subscribeJson((batch) => {
          this.seen.push(...batch.items.map((message) => message.id));
          this.offset = batch.offset;
          this.waiters = this.waiters.filter((waiter) => !waiter());
        });
        await response.closed;
      } catch (error) {
        if (this.stopped.signal.aborted) return;
        // The connection broke under the client; the next turn resumes. Anything else is a failure.
        if (error.code !== undefined && error.status >= 400 && error.status < 500) throw error;
      }
    }
  }

  reached(count) {
    return new Promise((resolve) => {
      const waiter = () => (this.seen.length >= count ? (resolve(), true) : false);
      if (!waiter()) this.waiters.push(waiter);
    });
  }

  async stop() {
    this.stopped.abort();
    await this.done;
  }
}

async function eachOnce(live) {
  const name = `tail-${live}`;
  const handle = await DurableStream.create({ url: url(name), contentType: "application/json" });
  await append(handle, 0, 20);
  const tail = new Tail(name, live);
  await tail.reached(20);
  await append(handle, 20, 40);
  await restart("graceful");
  await append(handle, 40, 60);
  await tail.reached(60);
  await restart("kill");
  await append(handle, 60, 80);
  await tail.reached(80);
  await tail.stop();
  assert.deepEqual(tail.seen, range(0, 80).map((message) => message.id));
}

async function readAll(name) {
  const response = await stream({ url: url(name), offset: "-1", live: false, json: true });
  return response.json();
}

// The producer leaves it to its caller to repeat requests that got no answer; that is safe, its batches are numbered.
async function repeatingFetch(...request) {
  for (;;) {
    try {
      return await fetch(...request);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
}

async function idempotentProducer() {
  const handle = await DurableStream.create({ url: url("producer"), contentType: "application/json" });
  const failures = [];
  const producer = new IdempotentProducer(handle, "npm-producer", {
    maxBatchBytes: 2_000, lingerMs: 1, fetch: repeatingFetch, onError: (error) => failures.push(error),
  });
  const messages = range(0, 2_000);
  for (const message of messages.slice(0, 500)) producer.append(JSON.stringify(message));
  // The restarts fall among unanswered batches: the producer's numbers have to carry them over.
  await restart("kill");
  for (const message of messages.slice(500, 1_000)) producer.append(JSON.stringify(message));
  await producer.flush();
  for (const message of messages.slice(1_000, 1_500)) producer.append(JSON.stringify(message));
  await restart("graceful");
  for (const message of messages.slice(1_500)) producer.append(JSON.stringify(message));
  await producer.flush();
  await producer.close();
  assert.deepEqual(failures, []);
  assert.deepEqual(await readAll("producer"), messages);
}

async function binary() {
  const handle = await DurableStream.create({ url: url("binary"), contentType: "application/octet-stream" });
  const parts = Array.from({ length: 50 }, (_, i) => new Uint8Array(1_000 + i).fill(i));
  for (const part of parts.slice(0, 25)) await handle.append(part);
  await restart("kill");
  for (const part of parts.slice(25)) await handle.append(part);
  const response = await stream({ url: url("binary"), offset: "-1", live: false });
  assert.deepEqual(Buffer.from(await response.body()), Buffer.concat(parts));
}

async function closed() {
  const handle = await DurableStream.create({ url: url("closed"), contentType: "application/json" });
  await append(handle, 0, 3);
  await handle.close();
  await restart("kill");
  await assert.rejects(handle.append(JSON.stringify({ id: 3 })));
  assert.deepEqual(await readAll("closed"), range(0, 3));
  assert.equal((await DurableStream.head({ url: url("closed") })).streamClosed, true);
}

try {
  await check("SSE shows each message once, over both kinds of restart", () => eachOnce("sse"));
  await check("long-poll shows each message once, over both kinds of restart", () => eachOnce("long-poll"));
  await check("an idempotent producer's messages are there once, over both kinds of restart", idempotentProducer);
  await check("binary content survives kill -9 byte for byte", binary);
  await check("a closed stream stays closed over kill -9", closed);
  noWatchdog();
  process.exit(0);
} catch (error) {
  fail(error);
}
