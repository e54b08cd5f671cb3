// npm `ws` against this project's WebSockets: `client` talks to the echo server of the harness, `server` is one.
import assert from "node:assert/strict";
import { once } from "node:events";
import WebSocket, { WebSocketServer } from "ws";
import { check, fail, noWatchdog } from "./harness.js";

// What either side may agree to.
const COMPRESSION = {
  "no compression": false,
  "each message by itself": { serverNoContextTakeover: true, clientNoContextTakeover: true, threshold: 0 },
  "with context": { threshold: 0 },
  "small windows": { serverMaxWindowBits: 9, clientMaxWindowBits: 9, threshold: 0 },
};

// Empty and large, what compresses well and what does not, whole and in fragments.
function* messages() {
  let noise = 1;
  const random = () => {
    noise ^= noise << 13;
    noise ^= noise >>> 17;
    noise ^= noise << 5;
    return noise & 0xff;
  };
  const sizes = [0, 1, 125, 126, 127, 1000, 65535, 65536, 300000];
  for (let number = 0; number < 135; number += 1) {
    const size = sizes[number % sizes.length];
    const kind = Math.floor(number / sizes.length) % 3;
    if (kind === 0) yield '{"kind":"commit","é":1}'.repeat(size / 20 + 1).slice(0, size);
    else yield Buffer.from({ length: size }, kind === 1 ? random : () => 7);
  }
}

function sendInParts(socket, message) {
  const cut = Math.floor(message.length / 3);
  const binary = typeof message !== "string";
  socket.send(message.slice(0, cut), { fin: false, binary });
  socket.ping("between");
  socket.send(message.slice(cut), { fin: true, binary });
}

async function talk(path, perMessageDeflate) {
  const socket = new WebSocket(process.env.ALLUVIUM_TEST_URL + path, ["echo"], {
    perMessageDeflate,
    maxPayload: 4 << 20,
  });
  await once(socket, "open");
  assert.equal(socket.protocol, "echo");
  const offered = perMessageDeflate !== false && path !== "/plain";
  assert.equal(socket.extensions.includes("permessage-deflate"), offered);
  const sent = [...messages()];
  const came = [];
  const all = new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("closed early")));
    socket.on("message", (data, isBinary) => {
      came.push(isBinary ? data : data.toString());
      if (came.length === sent.length) resolve();
    });
  });
  sent.forEach((message, number) => {
    if (number % 5 === 0) sendInParts(socket, message);
    else socket.send(message);
  });
  await all;
  sent.forEach((message, number) => assert.deepEqual(came[number], message, `message ${number}`));
  socket.ping("are you there");
  const [pong] = await once(socket, "pong");
  assert.ok(["between", "are you there"].includes(pong.toString()));
  socket.removeAllListeners("close");
  socket.close(4001, "bye");
  const [code] = await once(socket, "close");
  assert.equal(code, 4001);
}

async function refusals() {
  const socket = new WebSocket(`${process.env.ALLUVIUM_TEST_URL}/plain`);
  await once(socket, "open");
  // A frame that no client may send: not masked.
  socket._socket.write(Buffer.from([0x81, 0x01, 0x41]));
  const [code] = await once(socket, "close");
  assert.equal(code, 1002);
  const text = new WebSocket(`${process.env.ALLUVIUM_TEST_URL}/plain`);
  await once(text, "open");
  text.send(Buffer.from([0xc3, 0x28]), { binary: false });
  assert.equal((await once(text, "close"))[0], 1007);
  const large = new WebSocket(`${process.env.ALLUVIUM_TEST_URL}/alone`, { perMessageDeflate: true });
  await once(large, "open");
  // A few kilobytes on the wire, and far too much behind them.
  large.send(Buffer.alloc(32 << 20));
  assert.equal((await once(large, "close"))[0], 1009);
}

async function client() {
  for (const path of ["/plain", "/alone", "/context", "/small", "/shared", "/mixed"]) {
    for (const [kind, options] of Object.entries(COMPRESSION)) {
      await check(`${path}, ${kind}`, () => talk(path, options));
    }
  }
  await check("broken frames, broken text and bombs are refused with their codes", refusals);
}

async function server() {
  for (const [kind, perMessageDeflate] of Object.entries(COMPRESSION)) {
    const listening = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate, maxPayload: 4 << 20 });
    listening.on("connection", (socket) => {
      let number = 0;
      socket.on("message", (data, isBinary) => {
        number += 1;
        const message = isBinary ? data : data.toString();
        if (number % 7 === 0) sendInParts(socket, message);
        else socket.send(message);
      });
    });
    await once(listening, "listening");
    console.log(`SERVER ${kind} ws://127.0.0.1:${listening.address().port}/`);
  }
  console.log("READY");
}

if (process.argv[2] === "client") client().then(() => process.exit(0), fail);
else {
  noWatchdog();
  server().catch(fail);
}
