// What every script here tells its harness: each claim is announced with `CHECK` and confirmed with `OK`; `RESTART` asks
// for a restart of the server and waits until it is done.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";

// A client that waits for ever would hang the run; two minutes are far more than all claims of a script take together.
const watchdog = setTimeout(() => fail(new Error("nothing happened for two minutes")), 120_000);
let answers;

export async function check(name, body) {
  console.log(`CHECK ${name}`);
  await body();
  console.log("OK");
}

export async function restart(how) {
  answers ??= createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  console.log(`RESTART ${how}`);
  assert.equal((await answers.next()).value, "done");
}

export function fail(error) {
  console.error(error);
  process.exit(1);
}

/** For a script that is not over after two minutes, or that ends by itself. */
export function noWatchdog() {
  clearTimeout(watchdog);
}
