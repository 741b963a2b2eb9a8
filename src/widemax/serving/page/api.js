// The one door to the server.

export class Refused extends Error {
  constructor(message, { status = 0, suggestions = [] } = {}) {
    super(message);
    this.status = status;
    this.suggestions = Array.isArray(suggestions) ? suggestions : [];
  }
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it still running?");
  }
  if (response.ok) return response;
  let found = {};
  try {
    found = await response.json();
  } catch {
    // What is not JSON says nothing to a reader.
  }
  const detail =
    typeof found.detail === "string" ? found.detail : `The server answered ${response.status}.`;
  throw new Refused(detail, { status: response.status, suggestions: found.suggestions });
}

function query(path, parameters) {
  const kept = Object.entries(parameters).filter(
    ([, value]) => value !== null && value !== undefined,
  );
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}

export async function get(path, parameters = {}, signal = undefined) {
  return (await answered(query(path, parameters), { signal })).json();
}

// What a search field shows: items that have a text, or else those spelt most like it.
export async function searchItems(q, { k, run }, signal) {
  const { items, nearest } = await get("items", { q, k, run }, signal);
  return { found: items, nearest };
}

export async function post(path, body, signal = undefined) {
  const options = {
    method: "POST",
    signal,
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" },
  };
  return (await answered(path, options)).json();
}

// Bytes and headers; `progress` is told the share that has come, where the length is known.
export async function bytes(path, parameters = {}, { signal, progress } = {}) {
  const response = await answered(query(path, parameters), { signal });
  const length = Number(response.headers.get("content-length"));
  if (!progress || !length || response.headers.get("content-encoding")) {
    return { buffer: await response.arrayBuffer(), headers: response.headers };
  }
  const whole = new Uint8Array(length);
  const reader = response.body.getReader();
  let at = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > length) throw new Refused("The server sent more than it said.");
    whole.set(value, at);
    at += value.length;
    progress(at / length);
  }
  return { buffer: whole.buffer.slice(0, at), headers: response.headers };
}

// Of calls that follow each other only the last one counts: the others are given up.
export function latest() {
  let controller = null;
  return () => {
    controller?.abort();
    controller = new AbortController();
    return controller.signal;
  };
}

export function givenUp(error) {
  return error.name === "AbortError";
}
