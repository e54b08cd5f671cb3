// A page in Chromium that tails twenty streams over one connection, and one that is cut off, driven over the DevTools protocol.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { X509Certificate, createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer, request } from "node:http";
import { createInterface } from "node:readline";
import WebSocket from "ws";

const STREAMS = 20;
const MESSAGES = 10;
const origin = process.env.ALLUVIUM_TEST_URL;
const profile = mkdtempSync(join(tmpdir(), "alluvium-browser-"));
const watchdog = setTimeout(() => fail(new Error("nothing happened for two minutes")), 120_000);
let chromium;

function fail(error) {
  console.error(error);
  chromium?.kill("SIGKILL");
  process.exit(1);
}

async function check(name, body) {
  console.log(`CHECK ${name}`);
  await body();
  console.log("OK");
}

// The one certificate that the browser is to trust, by its key.
function keyHash() {
  const certificate = new X509Certificate(readFileSync(process.env.ALLUVIUM_TEST_CERTIFICATE));
  const key = certificate.publicKey.export({ type: "spki", format: "der" });
  return createHash("sha256").update(key).digest("base64");
}

async function start() {
  chromium = spawn(
    process.env.ALLUVIUM_TEST_CHROMIUM,
    [
      "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
      `--user-data-dir=${profile}`, `--ignore-certificate-errors-spki-list=${keyHash()}`, "about:blank",
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  chromium.on("error", fail);
  for await (const line of createInterface({ input: chromium.stderr })) {
    const found = line.match(/DevTools listening on (ws:\S+)/);
    if (found) return found[1];
  }
  throw new Error("the browser ended before it was ready");
}

class Browser {
  constructor(socket) {
    this.socket = socket;
    this.calls = new Map();
    this.listeners = new Map();
    socket.on("message", (text) => this.receive(JSON.parse(text)));
    socket.on("error", fail);
  }

  static async open(url) {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    await new Promise((resolve) => socket.once("open", resolve));
    return new Browser(socket);
  }

  receive(message) {
    const call = this.calls.get(message.id);
    this.calls.delete(message.id);
    if (call) message.error ? call.reject(new Error(message.error.message)) : call.resolve(message.result);
    else this.listeners.get(message.method)?.(message.params);
  }

  call(method, params = {}, sessionId = this.sessionId) {
    const id = (this.last = (this.last ?? 0) + 1);
    this.socket.send(JSON.stringify({ id, method, params, sessionId }));
    return new Promise((resolve, reject) => this.calls.set(id, { resolve, reject }));
  }

  // Opens a page and waits until it is there.
  async page(url) {
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" }, undefined);
    const attached = await this.call("Target.attachToTarget", { targetId, flatten: true }, undefined);
    this.sessionId = attached.sessionId;
    await this.call("Page.enable");
    await this.call("Network.enable");
    const loaded = new Promise((resolve) => this.listeners.set("Page.loadEventFired", resolve));
    const { errorText } = await this.call("Page.navigate", { url });
    assert.equal(errorText, undefined);
    await loaded;
  }

  // Runs a function in the page.
  async run(work, ...args) {
    const expression = `(${work})(${args.map((arg) => JSON.stringify(arg)).join(",")})`;
    const { result, exceptionDetails } = await this.call("Runtime.evaluate", {
      expression, awaitPromise: true, returnByValue: true,
    });
    assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
    return result.value;
  }
}

// In the page: tails all streams, appends to each once all are open, and tells what came.
async function tail(streams, messages) {
  const url = (number) => `/v1/stream/browser/${number}`;
  const numbers = Array.from({ length: streams }, (_, number) => number);
  const seen = numbers.map(() => []);
  const made = numbers.map((number) =>
    fetch(url(number), { method: "PUT", headers: { "content-type": "application/json" } }));
  await Promise.all(made);
  const sources = numbers.map((number) => new EventSource(`${url(number)}?offset=-1&live=sse`));
  await Promise.all(sources.map((source) => new Promise((resolve, reject) => {
    source.onopen = resolve;
    source.onerror = () => reject(new Error("a tail broke"));
  })));
  const all = numbers.map((number) => new Promise((resolve) => {
    sources[number].addEventListener("data", ({ data }) => {
      seen[number].push(...JSON.parse(data));
      if (seen[number].length >= messages) resolve();
    });
  }));
  for (let message = 0; message < messages; message += 1) {
    const body = (number) => JSON.stringify({ number, message });
    const sent = await Promise.all(numbers.map((number) =>
      fetch(url(number), { method: "POST", headers: { "content-type": "application/json" }, body: body(number) })));
    if (!sent.every((answer) => answer.ok)) throw new Error("an append was refused");
  }
  await Promise.all(all);
  sources.forEach((source) => source.close());
  return seen;
}

// Stands between the page and the server, and cuts the answers off: each after what its pattern matches, and those without
// one never. `reached` is called with the number of each answer as it begins. A browser waits seconds before it comes back,
// unless it is told otherwise.
async function cutting(patterns, reached) {
  const ids = [];
  const proxy = createServer((asked, answer) => {
    const number = ids.push(asked.headers["last-event-id"]) - 1;
    const onwards = request(`${process.env.ALLUVIUM_TEST_PLAIN}${asked.url}`, { headers: asked.headers }, (sent) => {
      answer.writeHead(sent.statusCode, sent.headers);
      answer.write("retry:10\n");
      let text = "";
      sent.setEncoding("utf8").on("data", (part) => {
        const before = text.length;
        text += part;
        const cut = patterns[number]?.exec(text);
        if (!cut) return answer.write(part);
        const end = cut.index + cut[0].length;
        answer.write(text.slice(before, Math.max(before, end)), () => answer.destroy());
        sent.destroy();
      });
      sent.on("error", () => {}).on("end", () => answer.end());
      reached(number);
    });
    onwards.on("error", fail).end();
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return { proxy, ids, url: `http://127.0.0.1:${proxy.address().port}` };
}

// In the page: follows a stream until it has so many messages.
function follow(url, count) {
  return new Promise((resolve) => {
    const seen = [];
    const source = new EventSource(url);
    source.addEventListener("data", ({ data }) => {
      seen.push(...JSON.parse(data));
      if (seen.length >= count) resolve(seen);
    });
  });
}

// In the page: opens a WebSocket and says which of `open`, `error` came first.
function socket(url) {
  return new Promise((resolve) => {
    const opened = new WebSocket(url);
    opened.onopen = () => resolve("open");
    opened.onerror = () => resolve("error");
  });
}

try {
  const browser = await Browser.open(await start());
  await browser.page(`${origin}/v1/stream/browser/none`);
  const answers = [];
  browser.listeners.set("Network.responseReceived", ({ type, response }) => {
    if (response.url.includes("/v1/stream/browser/")) {
      answers.push({ type, protocol: response.protocol, connection: response.connectionId });
    }
  });
  await check(`a page tails ${STREAMS} streams over one connection and appends to them meanwhile`, async () => {
    const seen = await browser.run(tail, STREAMS, MESSAGES);
    const expected = (number) => Array.from({ length: MESSAGES }, (_, message) => ({ number, message }));
    assert.deepEqual(seen, Array.from({ length: STREAMS }, (_, number) => expected(number)));
    assert.equal(answers.filter(({ type }) => type === "EventSource").length, STREAMS);
    assert.equal(answers.length, STREAMS * (2 + MESSAGES));
    assert.deepEqual([...new Set(answers.map(({ protocol }) => protocol))], ["h2"]);
    assert.equal(new Set(answers.map(({ connection }) => connection)).size, 1);
  });
  await check("EventSource goes on by itself wherever it is cut off, from another origin too", async () => {
    const path = "/v1/stream/browser/cut";
    const headers = { "content-type": "application/json" };
    const send = (method, body) => fetch(`${process.env.ALLUVIUM_TEST_PLAIN}${path}`, { method, headers, body });
    const offsets = [(await send("PUT", "[0,1]")).headers.get("stream-next-offset")];
    // Between an event of data and that of control; within an event; behind both.
    const patterns = [/^event: data[^]*?\n\n/, /event: data\ndata:\[/, /event: control[^]*?\n\n/];
    const sent = [];
    const { proxy, ids, url } = await cutting(patterns, (number) => {
      if (number === 1 || number === 3) sent.push(send("POST", `[${number + 1},${number + 2}]`));
    });
    const seen = await browser.run(follow, `${url}${path}?offset=-1&live=sse`, 6);
    offsets.push((await sent[0]).headers.get("stream-next-offset"));
    assert.deepEqual(seen, [0, 1, 2, 3, 4, 5]);
    assert.deepEqual(ids, [undefined, offsets[0], offsets[0], offsets[1]]);
    proxy.closeAllConnections();
    proxy.close();
  });
  await check("a WebSocket of the same page takes a connection of HTTP/1.1 by itself", async () => {
    const url = `${origin.replace("https", "wss")}/feeds/v1/ws`;
    assert.equal(await browser.run(socket, url), "open");
  });
} catch (error) {
  fail(error);
}
clearTimeout(watchdog);
const ended = new Promise((resolve) => chromium.once("exit", resolve));
chromium.kill("SIGKILL");
await ended;
rmSync(profile, { recursive: true, force: true });
process.exit(0);
