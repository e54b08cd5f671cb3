// Reads one multipart message from standard input with a streaming parser, and prints its parts as JSON.
import { once } from "node:events";
import busboy from "@fastify/busboy";

const input = [];
for await (const piece of process.stdin) input.push(piece);
const message = Buffer.concat(input);
const bodyAt = message.indexOf("\r\n\r\n") + 4;
const boundary = /boundary=(\S+)/.exec(message.subarray(0, bodyAt).toString("latin1"))[1];

const parser = new busboy.Dicer({ boundary });
const parts = [];
const ends = [];
parser.on("part", (stream) => {
  const part = { type: null, pieces: [] };
  parts.push(part);
  stream.on("header", (header) => { part.type = header["content-type"][0]; });
  stream.on("data", (piece) => part.pieces.push(piece));
  ends.push(once(stream, "end"));
});
const finished = once(parser, "finish");
// In small pieces, so that delimiters are cut wherever they can be; of a large message, in not too many of them.
const step = Math.max(7, message.length >> 14);
for (let at = bodyAt; at < message.length; at += step) {
  if (!parser.write(message.subarray(at, at + step))) await once(parser, "drain");
}
parser.end();
await finished;
await Promise.all(ends);
console.log(JSON.stringify(parts.map(({ type, pieces }) => ({ type, hex: Buffer.concat(pieces).toString("hex") }))));
