// The pipeline that the page shows, the two schedules that are drawn, and the address that holds both.

import { refit } from "./fields.js";

export const FIRST = {
  schema: 1, kind: "pipeline", name: "pipeline", time_unit: "us", num_devices: 4, num_microbatches: 8,
  placement: "linear", times: { forward: 100, backward_input: 100, backward_weight: 100 },
  p2p: { latency: 5 }, memory: { capacity: "1p", activation: 1 },
};

export const state = { instance: structuredClone(FIRST), shown: ["1f1b", "zb-h1"], proof: null };
const listeners = [];
let waiting = null;

export function listen(listener) {
  listeners.push(listener);
}

// `since`: the moment of the input that changes something, as events have it.
export function changed(since = performance.now()) {
  for (const listener of listeners) listener(since);
  clearTimeout(waiting);
  waiting = setTimeout(writeAddress, 200);
}

// Changes the pipeline; a proof of another one is none.
export function edit(change, since) {
  change(state.instance);
  refit(state.instance);
  state.proof = null;
  state.shown = state.shown.map((name) => (name === PROVED ? "zb-h1" : name));
  changed(since);
}

export function replace(instance, shown = state.shown, proof = null) {
  state.instance = structuredClone(instance);
  state.shown = [...shown];
  state.proof = proof;
  changed();
}

export const PROVED = "proved";

export function address() {
  const shown = state.shown.filter((name) => name !== PROVED).join(",");
  const written = encodeURIComponent(JSON.stringify(state.instance));
  return `#show=${encodeURIComponent(shown)}&pipeline=${written}`;
}

export function writeAddress() {
  clearTimeout(waiting);
  history.replaceState(null, "", address());
}

// What an address says; null where it holds no pipeline.
export function readAddress(hash) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  const shown = (parts.get("show") ?? "").split(",").filter(Boolean).slice(0, 2);
  const tour = parts.has("tour") ? Number(parts.get("tour")) || 1 : null;
  let instance = null;
  if (parts.has("pipeline")) {
    try {
      instance = JSON.parse(parts.get("pipeline"));
    } catch {
      return { instance: null, shown, tour, isBroken: true };
    }
  }
  return { instance, shown, tour, isBroken: false };
}
