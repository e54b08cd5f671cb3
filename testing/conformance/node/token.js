// Gives every request of the suite a token, where the server under test wants one.
const token = process.env.ALLUVIUM_TEST_TOKEN;
if (token) {
  const plain = globalThis.fetch;
  globalThis.fetch = (input, init = {}) => {
    const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
    if (!headers.has("authorization")) headers.set("authorization", `Bearer ${token}`);
    return plain(input, { ...init, headers });
  };
}
