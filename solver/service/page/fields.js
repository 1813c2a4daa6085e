// What a pipeline document says: counts, times of stages, memory. Documents are changed in place.

export const KINDS = { forward: "F", backward: "B", backward_input: "I", backward_weight: "W" };
export const WORDS = {
  forward: "forward", backward: "backward", backward_input: "input gradient", backward_weight: "weight gradient",
};

export function stagesPerDevice(pipeline) {
  if (pipeline.placement === "vshape") return 2;
  if (["linear", "bidirectional"].includes(pipeline.placement ?? "linear")) return 1;
  return pipeline.stages_per_device ?? 2;
}

export function stageCount(pipeline) {
  if (typeof pipeline.placement === "object") return pipeline.placement.stage_to_device.length;
  return pipeline.num_devices * stagesPerDevice(pipeline);
}

export function isSplit(times) {
  return times.backward_input !== undefined && times.backward_input !== null;
}

export function kindsOf(pipeline) {
  return isSplit(pipeline.times) ? ["forward", "backward_input", "backward_weight"] : ["forward", "backward"];
}

// A number for each stage; null where the document says more than that.
export function perStage(entry, stages) {
  if (typeof entry === "number") return Array(stages).fill(entry);
  const isPlain = Array.isArray(entry) && entry.length === stages && entry.every((one) => typeof one === "number");
  return isPlain ? [...entry] : null;
}

// The shortest way to write numbers of stages.
export function asEntry(numbers) {
  return numbers.every((number) => number === numbers[0]) ? numbers[0] : numbers;
}

function fitted(entry, stages) {
  if (!Array.isArray(entry) || entry.length === stages) return entry;
  return Array.from({ length: stages }, (_, stage) => entry[Math.min(stage, entry.length - 1)]);
}

// Lists of stages and devices get as many entries as there are; the last one is repeated.
export function refit(pipeline) {
  const stages = stageCount(pipeline);
  const fit = (owner, names, count) => {
    for (const name of names) if (owner && owner[name] !== undefined) owner[name] = fitted(owner[name], count);
  };
  fit(pipeline.times, Object.keys(KINDS), stages);
  fit(pipeline.memory, ["activation", "static", "released_by_backward_weight", "left_to_weight", "forward_peak"],
    stages);
  fit(pipeline.memory, ["capacity"], pipeline.num_devices);
  fit(pipeline, ["allreduce", "optimizer"], stages);
  for (const mode of pipeline.memory?.recompute?.modes ?? []) fit(mode, ["time", "held"], stages);
  if (pipeline.placement === "bidirectional" && pipeline.num_microbatches % 2) pipeline.num_microbatches += 1;
}

export function setSplit(pipeline, wanted) {
  const owners = pipeline.layers ? Object.values(pipeline.layers).filter((part) => part?.forward !== undefined)
    : [pipeline.times];
  const map = (entry, change) => (Array.isArray(entry) ? entry.map((one) => map(one, change)) : change(entry));
  const sum = (one, other) => (Array.isArray(one) ? one.map((part, at) => sum(part, other[at] ?? other)) : one + other);
  for (const owner of owners) {
    if (wanted && owner.backward !== undefined) {
      owner.backward_input = map(owner.backward, (time) => time / 2);
      owner.backward_weight = map(owner.backward, (time) => time / 2);
      delete owner.backward;
    } else if (!wanted && owner.backward_input !== undefined) {
      const [input, weight] = [owner.backward_input, owner.backward_weight];
      owner.backward = Array.isArray(input) ? sum(input, weight) : Array.isArray(weight) ? sum(weight, input)
        : input + weight;
      delete owner.backward_input;
      delete owner.backward_weight;
    }
  }
  if (!wanted && pipeline.memory) delete pipeline.memory.released_by_backward_weight;
}

// 1p: one activation of every stage. Null where activations are no numbers.
export function onePipeline(pipeline) {
  if (pipeline.layers) {
    const parts = [pipeline.layers.first, pipeline.layers.last].filter(Boolean);
    const body = pipeline.layers.body.count * (pipeline.layers.body.activation ?? 0);
    return body + parts.reduce((total, part) => total + (part.activation ?? 0), 0);
  }
  const amounts = perStage(pipeline.memory?.activation, stageCount(pipeline));
  return amounts && amounts.reduce((total, amount) => total + amount, 0);
}

// The capacity as a multiple of 1p; null without a limit, NaN where it is no single number.
export function capacityInP(pipeline) {
  const capacity = pipeline.memory?.capacity;
  if (capacity === undefined || capacity === null) return null;
  const text = typeof capacity === "string" ? /^([0-9.]+)p$/.exec(capacity) : null;
  if (text) return Number(text[1]);
  const one = onePipeline(pipeline);
  return typeof capacity === "number" && one ? capacity / one : NaN;
}

export function setCapacity(pipeline, multiple) {
  if (multiple === null) {
    delete pipeline.memory;
    return;
  }
  pipeline.memory ??= { activation: 1 };
  const one = onePipeline(pipeline);
  pipeline.memory.capacity = pipeline.layers ? Number((multiple * one).toPrecision(6)) : `${multiple}p`;
}

const HELD = 0.1; // What stays of an activation that is recomputed: about the input of a layer.

export function setRecompute(pipeline, wanted) {
  const { memory, layers } = pipeline;
  if (layers) {
    if (wanted) {
      const { forward, activation } = layers.body;
      layers.recompute = [{ name: "full", time: forward, held: HELD * activation }];
    } else delete layers.recompute;
  } else if (wanted && memory) {
    const scaled = (entry) => (Array.isArray(entry) ? entry.map(scaled) : entry * HELD);
    const mode = { name: "full", time: pipeline.times.forward, held: scaled(memory.activation) };
    memory.recompute = { modes: [mode], decide: "stage", place: "before_backward" };
  } else if (memory) delete memory.recompute;
}

export function isRecomputed(pipeline) {
  return Boolean(pipeline.layers ? pipeline.layers.recompute : pipeline.memory?.recompute);
}

// Stages become layers of the same time in all: four for each stage, beside an embedding and a head.
export function setLayers(pipeline, wanted) {
  const stages = stageCount(pipeline);
  const mean = (entry) => {
    const numbers = perStage(entry, stages) ?? [1];
    return numbers.reduce((total, number) => total + number, 0) / numbers.length;
  };
  const short = (number) => Number(number.toPrecision(4));
  if (wanted && !pipeline.layers) {
    const recompute = isRecomputed(pipeline);
    const count = 4 * stages;
    const times = (share) => Object.fromEntries(
      kindsOf(pipeline).map((kind) => [kind, short(mean(pipeline.times[kind]) * share)]));
    const held = pipeline.memory ? mean(pipeline.memory.activation) : 1;
    const capacity = capacityInP(pipeline);
    pipeline.layers = {
      first: times(1 / 8), body: { count, ...times(1 / 4), activation: short(held / 4) }, last: times(1 / 2),
    };
    delete pipeline.times;
    pipeline.memory = { capacity: 1 };
    setCapacity(pipeline, capacity ?? 4);
    setRecompute(pipeline, recompute);
  } else if (!wanted && pipeline.layers) {
    const { body } = pipeline.layers;
    const recompute = isRecomputed(pipeline);
    const capacity = capacityInP(pipeline);
    const each = body.count / stages;
    pipeline.times = Object.fromEntries(
      Object.keys(KINDS).filter((kind) => body[kind] !== undefined).map((kind) => [kind, short(body[kind] * each)]));
    pipeline.memory = { activation: short((body.activation ?? 1) * each) };
    delete pipeline.layers;
    setCapacity(pipeline, Number.isFinite(capacity) ? capacity : 1);
    setRecompute(pipeline, recompute);
  }
}

const SHOWN = new Set(["schema", "kind", "name", "description", "time_unit", "num_devices", "stages_per_device",
  "num_microbatches", "placement", "times", "layers", "p2p", "memory", "objective"]);

// Names of what a document has and no control shows.
export function unshown(pipeline) {
  return Object.keys(pipeline).filter((name) => !SHOWN.has(name) && pipeline[name] !== null);
}
