import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["conformance.test.js"],
    // One test makes 102,400 assertions and needs longer than the default 5 s on a busy machine.
    testTimeout: 40_000,
    hookTimeout: 40_000,
  },
});
