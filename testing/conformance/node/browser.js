// A page in Chromium that tails twenty streams over one connection, driven over the DevTools protocol.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { X509Certificate, createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
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
