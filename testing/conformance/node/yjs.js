// A document of Yjs that several editors keep on one stream. Compactors publish snapshots while they edit, joiners come
// late and begin with a bootstrap, and the server is killed in the middle. At the end all hold the same document.
//
// One message of the stream is one frame: four bytes of length and a Yjs update. Event streams join messages, so the
// frames are cut again from what arrives; a bootstrap keeps them apart by itself.
import assert from "node:assert/strict";
import busboy from "@fastify/busboy";
import * as Y from "yjs";
import { check, fail, noWatchdog, restart } from "./harness.js";

const base = process.env.ALLUVIUM_TEST_URL;
const bucket = `${base}/ds/yjs-docs`;
const BYTES = "application/octet-stream";
const EDITORS = 4;
const EDITS = 120;

// Numbers that are the same in every run (mulberry32).
function random(seed) {
  let state = seed;
  return (end) => {
    state = (state + 0x6d2b79f5) | 0;
    let bits = Math.imul(state ^ (state >>> 15), 1 | state);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) % end;
  };
}

// Sends until there is an answer: what is sent here may be sent again.
async function request(url, options = {}) {
  for (;;) {
    try {
      const response = await fetch(url, { redirect: "manual", ...options });
      return { status: response.status, headers: response.headers, body: Buffer.from(await response.arrayBuffer()) };
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
}

function frame(update) {
  const framed = Buffer.alloc(4 + update.length);
  framed.writeUInt32BE(update.length);
  framed.set(update, 4);
  return framed;
}

function* frames(bytes) {
  for (let at = 0; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    assert.ok(at + 4 + length <= bytes.length, "a frame is cut: an event does not end at a message");
    yield bytes.subarray(at + 4, at + 4 + length);
    at += 4 + length;
  }
}

async function collect(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

function parts(response) {
  const boundary = /boundary=(\S+)/.exec(response.headers.get("content-type"))[1];
  const parser = new busboy.Dicer({ boundary });
  const found = [];
  parser.on("part", (stream) => found.push(collect(stream)));
  return new Promise((resolve, reject) => {
    parser.on("finish", () => resolve(Promise.all(found)));
    parser.on("error", reject);
    parser.end(response.body);
  });
}

// Someone who holds the document as the stream has it, and nothing else.
class Follower {
  constructor(url, doc = new Y.Doc()) {
    this.url = url;
    this.doc = doc;
    this.offset = null;
    this.bootstraps = 0;
    this.stopped = new AbortController();
    this.listeners = [];
  }

  start() {
    this.done = this.#follow();
    this.done.catch(fail);
    return this;
  }

  async bootstrap() {
    const response = await request(`${this.url}/bootstrap`);
    assert.equal(response.status, 200);
    const [snapshot, ...messages] = await parts(response);
    if (snapshot.length > 0) Y.applyUpdate(this.doc, snapshot, this);
    for (const message of messages) {
      const updates = [...frames(message)];
      assert.equal(updates.length, 1, "a part is one message");
      Y.applyUpdate(this.doc, updates[0], this);
    }
    this.offset = response.headers.get("stream-next-offset");
    this.bootstraps += 1;
  }

  async #follow() {
    while (!this.stopped.signal.aborted) {
      if (this.offset === null) await this.bootstrap();
      try {
        const response = await fetch(`${this.url}?offset=${this.offset}&live=sse`, { signal: this.stopped.signal });
        if (response.status === 410) {
          // The floor has passed us by while nobody listened.
          assert.equal((await response.json()).error.code, "retained");
          this.offset = null;
          continue;
        }
        assert.equal(response.status, 200);
        assert.equal(response.headers.get("stream-sse-data-encoding"), "base64");
        await this.#events(response.body);
      } catch (error) {
        if (this.stopped.signal.aborted) return;
        if (!(error instanceof TypeError)) throw error;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    }
  }

  async #events(body) {
    const decoder = new TextDecoder();
    let text = "";
    let updates = [];
    for await (const piece of body) {
      text += decoder.decode(piece, { stream: true });
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
        const lines = text.slice(0, end).split("\n");
        const value = (name) =>
          lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).trim()).join("");
        if (value("event") === "data") updates = [...frames(Buffer.from(value("data"), "base64"))];
        if (value("event") === "control") {
          // Data counts once its control event is here: a broken connection is resumed at the offset before.
          for (const update of updates) Y.applyUpdate(this.doc, update, this);
          updates = [];
          this.offset = JSON.parse(value("data")).streamNextOffset;
          this.listeners = this.listeners.filter((listener) => !listener());
        }
      }
    }
  }

  reached(offset) {
    return new Promise((resolve) => {
      const listener = () => (this.offset !== null && this.offset >= offset ? (resolve(), true) : false);
      if (!listener()) this.listeners.push(listener);
    });
  }

  async stop() {
    this.stopped.abort();
    await this.done;
  }
}

// Edits its own copy and sends each edit once, whatever happens to the server.
class Editor {
  constructor(url, number) {
    this.url = url;
    this.number = number;
    this.random = random(number + 1);
    this.follower = new Follower(url);
    this.outbox = [];
    this.seq = 0;
    this.follower.doc.on("update", (update, origin) => {
      if (origin !== this.follower) this.outbox.push(update);
    });
    this.follower.start();
  }

  edit(index) {
    const doc = this.follower.doc;
    const text = doc.getText("text");
    doc.transact(() => {
      if (text.length > 40 && this.random(3) === 0) {
        text.delete(this.random(text.length - 4), 1 + this.random(4));
      } else {
        text.insert(this.random(text.length + 1), `<${this.number}.${index}>`.slice(this.random(3)));
      }
      doc.getMap("map").set(`key-${this.random(8)}`, `${this.number}.${index}`);
      doc.getArray("log").push([`${this.number}.${index}`]);
    });
  }

  async send() {
    while (this.outbox.length > 0) {
      const update = this.outbox.shift();
      const response = await request(this.url, {
        method: "POST",
        headers: {
          "Content-Type": BYTES, "Producer-Id": `editor-${this.number}`, "Producer-Epoch": "0",
          "Producer-Seq": `${this.seq}`,
        },
        body: frame(update),
      });
      assert.ok(response.status === 200 || response.status === 204, `append: ${response.status} ${response.body}`);
      this.seq += 1;
    }
  }
}

// Publishes what it holds, again and again; being overtaken by another compactor is no failure.
async function compact(follower, counts) {
  const offset = follower.offset;
  if (offset === null) return;
  const state = Y.encodeStateAsUpdate(follower.doc);
  const response = await request(`${follower.url}/snapshot/${offset}`, {
    method: "PUT", headers: { "Content-Type": BYTES }, body: state,
  });
  if (response.status === 410) counts.overtaken += 1;
  else assert.equal(response.status, 204, `${response.body}`);
  counts.published += 1;
}

function same(a, b, what) {
  assert.equal(a.getText("text").toString(), b.getText("text").toString(), `${what}: text`);
  assert.deepEqual(a.getMap("map").toJSON(), b.getMap("map").toJSON(), `${what}: map`);
  assert.deepEqual(a.getArray("log").toJSON(), b.getArray("log").toJSON(), `${what}: log`);
  assert.deepEqual(Y.encodeStateVector(a), Y.encodeStateVector(b), `${what}: state vector`);
}

async function documents() {
  const url = `${bucket}/document`;
  assert.equal((await request(url, { method: "PUT", headers: { "Content-Type": BYTES } })).status, 201);
  const editors = Array.from({ length: EDITORS }, (_, number) => new Editor(url, number));
  const compactors = [new Follower(url).start(), new Follower(url).start()];
  const joiners = [];
  const counts = { published: 0, overtaken: 0 };
  for (let index = 0; index < EDITS; index += 1) {
    for (const editor of editors) editor.edit(index);
    const sending = editors.map((editor) => editor.send());
    if (index % 5 === 4) sending.push(...compactors.map((compactor) => compact(compactor, counts)));
    // The kills fall among appends and publications that have no answer yet.
    if (index === EDITS / 3 || index === (2 * EDITS) / 3) await restart("kill");
    if (index === EDITS / 2) await restart("graceful");
    await Promise.all(sending);
    if (index % 30 === 29) joiners.push(new Follower(url).start());
  }
  const tail = (await request(url, { method: "HEAD" })).headers.get("stream-next-offset");
  joiners.push(new Follower(url).start());
  const followers = [...editors.map((editor) => editor.follower), ...compactors, ...joiners];
  await Promise.all(followers.map((follower) => follower.reached(tail)));
  await Promise.all(followers.map((follower) => follower.stop()));
  await compact(compactors[0], counts);
  const last = new Follower(url);
  await last.bootstrap();
  followers.push(last);

  const log = followers[0].doc.getArray("log").toJSON();
  const expected = editors.flatMap(({ number }) => Array.from({ length: EDITS }, (_, index) => `${number}.${index}`));
  assert.deepEqual([...log].sort(), expected.sort(), "every edit is there once");
  followers.forEach((follower, index) => same(followers[0].doc, follower.doc, `follower ${index}`));
  assert.ok(counts.published - counts.overtaken > 5, `only ${counts.published - counts.overtaken} snapshots`);
  const start = await request(`${url}?offset=-1`);
  assert.equal(start.status, 410, "the history is gone");
}

try {
  assert.equal((await request(bucket, { method: "PUT" })).status, 201);
  await check("Yjs editors, compactors and late joiners end with one document, over kills", documents);
  noWatchdog();
  process.exit(0);
} catch (error) {
  fail(error);
}
