// Node's HTTP/2 client: many tails over one session, in plain text and over TLS.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:http2";
import { check, fail, noWatchdog } from "./harness.js";

const STREAMS = 100;

function ask(session, headers, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers);
    let status;
    const chunks = [];
    stream.on("response", (answer) => { status = answer[":status"]; });
    stream.on("data", (chunk) => chunks.push(chunk));
    stream.on("end", () => resolve({ status, body: Buffer.concat(chunks) }));
    stream.on("error", reject);
    stream.end(body);
  });
}

// A tail that tells once it has begun, and once it has had a line.
function tail(session, path) {
  const stream = session.request({ ":path": `${path}?offset=-1&live=sse` });
  let text = "";
  let seen;
  const has = new Promise((resolve) => { seen = resolve; });
  const begun = new Promise((resolve, reject) => {
    stream.on("response", resolve);
    stream.on("error", reject);
  });
  stream.setEncoding("utf8");
  stream.on("data", (more) => {
    text += more;
    if (text.includes("data:tailed") || text.includes("data: tailed")) seen();
  });
  return { stream, begun, has };
}

async function talk(url, options) {
  const session = connect(url, options);
  session.on("error", fail);
  const path = (number) => `/v1/stream/node-${url.startsWith("https") ? "tls" : "plain"}/${number}`;
  const numbers = Array.from({ length: STREAMS }, (_, number) => number);
  const made = await Promise.all(numbers.map((number) =>
    ask(session, { ":method": "PUT", ":path": path(number), "content-type": "text/plain" })));
  assert.ok(made.every(({ status }) => status === 201), JSON.stringify(made.map(({ status }) => status)));
  const tails = numbers.map((number) => tail(session, path(number)));
  await Promise.all(tails.map(({ begun }) => begun));
  const appended = await Promise.all(numbers.map((number) =>
    ask(session, { ":method": "POST", ":path": path(number), "content-type": "text/plain" }, "tailed\n")));
  assert.ok(appended.every(({ status }) => status === 204));
  await Promise.all(tails.map(({ has }) => has));
  const missing = await ask(session, { ":method": "HEAD", ":path": path("none") });
  assert.deepEqual([missing.status, missing.body.length], [404, 0]);
  // More than any window, so that it is read in many goes.
  const large = Buffer.alloc(8 * 1024 * 1024, "0123456789abcdef");
  const type = "application/octet-stream";
  assert.equal((await ask(session, { ":method": "PUT", ":path": path("large"), "content-type": type }, large)).status, 201);
  const read = await ask(session, { ":path": `${path("large")}?offset=-1` });
  assert.ok(read.body.equals(large));
  tails.forEach(({ stream }) => stream.close());
  await new Promise((resolve) => session.close(resolve));
}

try {
  await check(`${STREAMS} tails over one session in plain text`, () => talk(process.env.ALLUVIUM_TEST_PLAIN));
  const ca = readFileSync(process.env.ALLUVIUM_TEST_ROOT);
  await check(`${STREAMS} tails over one session with TLS`, () => talk(process.env.ALLUVIUM_TEST_URL, { ca }));
} catch (error) {
  fail(error);
}
noWatchdog();
