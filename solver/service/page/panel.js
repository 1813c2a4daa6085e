// The form on the left: what the pipeline is.

import { fillBars, makeBars } from "./bars.js";
import { byId, element, figure } from "./dom.js";
import {
  capacityInP, isRecomputed, isSplit, perStage, setCapacity, setLayers, setRecompute, setSplit, stageCount,
  stagesPerDevice, unshown,
} from "./fields.js";
import { edit, state } from "./state.js";

const PLACEMENTS = [
  ["linear", "linear"], ["interleaved", "interleaved"],
  ["vshape", "V"], ["wave", "wave"],
  ["bidirectional", "bidirectional (two pipes)"],
];
const controls = [];

// A slider with a field beside it: the slider has a range, the field takes any number in the limits.
function slider({ name, text, min, max, step, most, get, set, unit, isOffered = () => true }) {
  const range = element("input", { type: "range", id: name, min, max: typeof max === "number" ? max : 1, step });
  const field = element("input", { type: "text", inputMode: "decimal", size: 6, "aria-label": text });
  const made = element("div", { className: "control" },
    element("label", { htmlFor: name, textContent: text }), range, field);
  const apply = (written, since) => {
    const number = Number(written);
    const isRight = written.trim() !== "" && Number.isFinite(number) && number >= Number(min)
      && number <= most && (step !== 1 || Number.isInteger(number));
    field.setAttribute("aria-invalid", String(!isRight));
    if (isRight) edit((pipeline) => set(pipeline, number), since);
  };
  range.addEventListener("input", (event) => apply(range.value, event.timeStamp));
  field.addEventListener("change", (event) => apply(field.value, event.timeStamp));
  controls.push((pipeline) => {
    made.hidden = !isOffered(pipeline);
    if (made.hidden) return;
    const value = get(pipeline);
    range.disabled = field.disabled = value === null || !Number.isFinite(value);
    if (range.disabled) {
      field.value = value === null ? "none" : "mixed";
      return;
    }
    const longest = Math.max(typeof max === "function" ? max(pipeline) : max, value);
    // While a slider is held its scale stays.
    if (document.activeElement !== range || Number(range.max) < value) range.max = longest;
    range.value = value;
    range.setAttribute("aria-valuetext", `${figure(value)} ${unit(pipeline)}`);
    if (document.activeElement !== field) field.value = String(Number(value.toPrecision(6)));
    field.title = unit(pipeline);
  });
  return made;
}

function box({ name, text, get, set, isOffered = () => true, hint }) {
  const input = element("input", { type: "checkbox", id: name });
  const made = element("div", { className: "control check" },
    element("label", { title: hint ?? "" }, input, ` ${text}`));
  input.addEventListener("change", (event) => edit((pipeline) => set(pipeline, input.checked), event.timeStamp));
  controls.push((pipeline) => {
    made.hidden = !isOffered(pipeline);
    input.checked = get(pipeline);
  });
  return made;
}

function placement() {
  const select = element("select", { id: "placement" });
  const made = element("div", { className: "control" },
    element("label", { htmlFor: "placement", textContent: "Placement" }), select);
  select.addEventListener("change", (event) => edit((pipeline) => {
    pipeline.placement = select.value;
    delete pipeline.stages_per_device;
  }, event.timeStamp));
  controls.push((pipeline) => {
    const isExplicit = typeof pipeline.placement === "object";
    const entries = isExplicit ? [["explicit", "as in the file"], ...PLACEMENTS] : PLACEMENTS;
    select.replaceChildren(...entries.map(([value, textContent]) => element("option", { value, textContent })));
    select.value = isExplicit ? "explicit" : pipeline.placement ?? "linear";
  });
  return made;
}

const unitOfTime = (pipeline) => pipeline.time_unit ?? "us";
const hasLayers = (pipeline) => Boolean(pipeline.layers);
const numberOr = (entry, absent) => (entry === undefined || entry === null ? absent : entry);

function shape() {
  return [
    slider({ name: "devices", text: "Devices", min: 1, max: 16, step: 1, most: 64, unit: () => "devices",
      get: (pipeline) => pipeline.num_devices, set: (pipeline, count) => { pipeline.num_devices = count; },
      isOffered: (pipeline) => typeof pipeline.placement !== "object" }),
    slider({ name: "microbatches", text: "Micro-batches", min: 1, max: 64, step: 1, most: 512,
      unit: () => "micro-batches", get: (pipeline) => pipeline.num_microbatches,
      set: (pipeline, count) => { pipeline.num_microbatches = count; } }),
    placement(),
    slider({ name: "chunks", text: "Stages/device", min: 1, max: 4, step: 1, most: 8, unit: () => "stages",
      get: stagesPerDevice, set: (pipeline, count) => { pipeline.stages_per_device = count; },
      isOffered: (pipeline) => ["interleaved", "wave"].includes(pipeline.placement) }),
  ];
}

function times() {
  return [
    box({ name: "split", text: "Split backward", get: (pipeline) => isSplit(pipeline.layers?.body ?? pipeline.times),
      set: setSplit, hint: "The gradient of the input and that of the weights are ops of their own." }),
    box({ name: "layers", text: "Share out layers", get: hasLayers, set: setLayers,
      hint: "A proof also chooses how many layers each stage has." }),
    slider({ name: "layer-count", text: "Layers", min: 1, max: 128, step: 1, most: 512, unit: () => "layers",
      get: (pipeline) => pipeline.layers.body.count, isOffered: hasLayers,
      set: (pipeline, count) => { pipeline.layers.body.count = Math.max(count, stageCount(pipeline)); } }),
    ...[["first", "F embedding"], ["body", "F layer"], ["last", "F head"]].map(([part, text]) => slider({
      name: `layer-${part}`, text, min: 0, step: "any", most: 1e9, unit: unitOfTime,
      max: (pipeline) => 3 * pipeline.layers[part].forward || pipeline.layers.body.forward,
      isOffered: (pipeline) => hasLayers(pipeline) && typeof pipeline.layers[part]?.forward === "number",
      get: (pipeline) => pipeline.layers[part].forward,
      set: (pipeline, time) => scaleLayer(pipeline.layers[part], time) })),
  ];
}

// Backwards stay in proportion.
function scaleLayer(part, time) {
  const factor = part.forward ? time / part.forward : 1;
  for (const kind of ["backward", "backward_input", "backward_weight"]) {
    if (typeof part[kind] === "number") part[kind] = Number((part[kind] * factor).toPrecision(6));
  }
  part.forward = time;
}

function forwardTime(pipeline) {
  const entry = pipeline.times?.forward ?? pipeline.layers?.body.forward;
  return perStage(entry, stageCount(pipeline))?.[0] || 100;
}

function rest() {
  const share = (pipeline) => {
    const entry = numberOr(pipeline.memory?.released_by_backward_weight, 0);
    return typeof entry === "number" ? entry : NaN;
  };
  return [
    slider({ name: "latency", text: "Transfer (p2p)", min: 0, step: "any", most: 1e9, unit: unitOfTime,
      max: forwardTime,
      get: (pipeline) => {
        const entry = numberOr(pipeline.p2p?.latency, 0);
        return typeof entry === "number" ? entry : NaN;
      },
      set: (pipeline, time) => { pipeline.p2p = { ...pipeline.p2p, latency: Number(time.toPrecision(4)) }; } }),
    box({ name: "limited", text: "Limited memory", get: (pipeline) => capacityInP(pipeline) !== null,
      set: (pipeline, wanted) => setCapacity(pipeline, wanted ? 1 : null),
      isOffered: (pipeline) => !hasLayers(pipeline) }),
    slider({ name: "capacity", text: "Memory, in p", min: 0.125, max: 3, step: 0.125, most: 1000,
      unit: () => "p: activations of a whole pipeline", get: capacityInP, set: setCapacity,
      isOffered: (pipeline) => capacityInP(pipeline) !== null }),
    slider({ name: "released", text: "Held until W", min: 0, max: 1, step: 0.05, most: 1,
      unit: () => "of an activation", get: share, set: (pipeline, amount) => {
        pipeline.memory.released_by_backward_weight = amount;
      }, isOffered: (pipeline) => Boolean(pipeline.memory) && isSplit(pipeline.layers?.body ?? pipeline.times)
        && !hasLayers(pipeline) }),
    box({ name: "recompute", text: "May recompute", get: isRecomputed, set: setRecompute,
      hint: "Activations may be dropped after the forward and computed again before the backward.",
      isOffered: (pipeline) => Boolean(pipeline.memory) && (hasLayers(pipeline) || hasPlainMemory(pipeline)) }),
  ];
}

function hasPlainMemory(pipeline) {
  const stages = stageCount(pipeline);
  return perStage(pipeline.times?.forward, stages) !== null && perStage(pipeline.memory.activation, stages) !== null;
}

function group(title, ...children) {
  return element("fieldset", {}, element("legend", { textContent: title }), ...children);
}

export function makePanel() {
  const bars = element("div", { id: "bars" });
  makeBars(bars);
  const note = element("p", { id: "note", className: "faint" });
  byId("left").append(group("Pipeline", ...shape()), group("Times", ...times(), bars),
    group("Transfers and memory", ...rest()), note);
  byId("left").addEventListener("submit", (event) => event.preventDefault());
}

export function fillPanel() {
  const pipeline = state.instance;
  for (const fill of controls) fill(pipeline);
  const hasBars = fillBars();
  const others = unshown(pipeline);
  const notes = [];
  if (!hasBars) notes.push("The times of this file differ by micro-batch; this page keeps them as they are.");
  if (others.length) notes.push(`This file also has: ${others.join(", ")}. This page keeps them as they are.`);
  byId("note").textContent = notes.join(" ");
}
