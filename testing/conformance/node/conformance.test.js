// The official suite, called from code: its own command-line runner finds no test file under the vitest it installs.
import "./token.js";
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

const baseUrl = process.env.ALLUVIUM_TEST_URL;
if (!baseUrl) throw new Error("ALLUVIUM_TEST_URL must name the server under test, for example http://127.0.0.1:4437");

runConformanceTests({
  baseUrl,
  // The reserved `__ds` paths; only the engine can be subscribed to.
  subscriptions: process.env.ALLUVIUM_TEST_SUBSCRIPTIONS !== "no",
  longPollTimeoutMs: Number(process.env.ALLUVIUM_TEST_LONG_POLL_MS ?? 2000),
});
