// What if: the best quick value and the bound over memory, micro-batches and devices. They fill in
// when the pipeline has been still for a moment.

import { Newest, send } from "./ask.js";
import { byId, element, figure } from "./dom.js";
import { capacityInP, kindsOf, onePipeline, perStage, setCapacity, stageCount } from "./fields.js";
import { plot } from "./plot.js";
import { edit } from "./state.js";

const MULTIPLES = [0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.25, 1.5, 1.75, 2, 2.5, 3];
const DEVICES = [2, 3, 4, 6, 8, 12, 16];
const TIMES_AS_MANY = [0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4];
const MOST_MICROBATCHES = 256;

function sorted(numbers) {
  return [...new Set(numbers)].sort((one, other) => one - other);
}

function microbatchCounts(pipeline) {
  const isEven = pipeline.placement === "bidirectional";
  const counts = TIMES_AS_MANY.map((factor) => Math.max(1, Math.round(pipeline.num_microbatches * factor)));
  return sorted(counts.map((count) => (isEven ? count + (count % 2) : count)))
    .filter((count) => count <= Math.max(MOST_MICROBATCHES, pipeline.num_microbatches));
}

// The same model on another number of devices: all stages equal, the work in all as before.
function onDevices(pipeline, count) {
  const before = stageCount(pipeline);
  const other = { ...structuredClone(pipeline), num_devices: count };
  const stages = stageCount(other);
  const shared = (entry) => {
    const numbers = perStage(entry, before);
    return numbers && Number((numbers.reduce((total, number) => total + number, 0) / stages).toPrecision(8));
  };
  for (const kind of kindsOf(pipeline)) other.times[kind] = shared(pipeline.times[kind]);
  if (other.memory) {
    const multiple = capacityInP(pipeline);
    other.memory.activation = shared(pipeline.memory.activation);
    setCapacity(other, multiple);
  }
  return other;
}

async function asked(instance, signal) {
  return send("quick", { body: { instance }, signal });
}

function lines(points) {
  const line = (name) => points.filter((point) => point[name] !== null && point[name] !== undefined)
    .map((point) => [point.x, point[name]]);
  return [{ points: line("bound"), className: "bound" }, { points: line("value"), className: "value" }];
}

async function overMemory(pipeline, signal) {
  const one = onePipeline(pipeline);
  const multiples = sorted([...MULTIPLES, capacityInP(pipeline)]);
  const capacity = multiples.map((multiple) => multiple * one);
  const answer = await send("quick", { body: { instance: pipeline, arrays: { capacity } }, signal });
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
  return multiples.map((x, at) => ({ x, value: isNumber(answer.value[at]) ? answer.value[at] : null,
    bound: isNumber(answer.bound[at]) ? answer.bound[at] : null }));
}

async function overVariants(xs, variant, signal, scale = () => 1) {
  const points = [];
  for (const x of xs) {
    const { value, bound } = await asked(variant(x), signal);
    points.push({ x, value: value && value * scale(x), bound: bound && bound * scale(x) });
  }
  return points;
}

function studies(pipeline) {
  const unit = pipeline.time_unit ?? "us";
  const multiple = capacityInP(pipeline);
  const found = [];
  if (Number.isFinite(multiple) && multiple !== null && onePipeline(pipeline)) {
    found.push({ title: "more or less memory", below: "memory of a device, in p", label: `makespan (${unit})`,
      mark: multiple, run: (signal) => overMemory(pipeline, signal), set: setCapacity });
  }
  const ofMicrobatches = (count) => ({ ...pipeline, num_microbatches: count });
  found.push({ title: "more or fewer micro-batches", below: "micro-batches", label: `time per micro-batch (${unit})`,
    mark: pipeline.num_microbatches,
    run: (signal) => overVariants(microbatchCounts(pipeline), ofMicrobatches, signal, (count) => 1 / count),
    set: (edited, count) => { edited.num_microbatches = count; } });
  const hasBars = kindsOf(pipeline).every((kind) => perStage(pipeline.times[kind], stageCount(pipeline)));
  if (typeof pipeline.placement !== "object" && hasBars && !Number.isNaN(multiple)) {
    found.push({ title: "the same model on more or fewer devices", below: "devices", label: `makespan (${unit})`,
      mark: pipeline.num_devices,
      run: (signal) => overVariants(sorted([...DEVICES, pipeline.num_devices]),
        (count) => onDevices(pipeline, count), signal),
      set: (edited, count) => Object.assign(edited, onDevices(edited, count)) });
  }
  return found;
}

function numbersOf(study, points) {
  const rows = points.map((point) => element("tr", {}, ...[point.x, point.value, point.bound].map((number) =>
    element("td", { textContent: figure(number) }))));
  const heads = [study.below, `best, ${study.label}`, "lower bound"].map((textContent) =>
    element("th", { textContent, scope: "col" }));
  return element("details", {}, element("summary", { textContent: "numbers" }),
    element("div", { className: "wide" }, element("table", {},
      element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows))));
}

function shown(study, points) {
  const picture = plot({ lines: lines(points), label: study.label, below: study.below, mark: study.mark,
    title: `${study.label} over ${study.below}, best quick schedule and lower bound`,
    onPick: (x) => edit((pipeline) => study.set(pipeline, x)) });
  return element("figure", {}, element("figcaption", { textContent: study.title }), picture, numbersOf(study, points));
}

const CANNOT = "There are no curves for this pipeline: they need one that can be answered at once, without layers, "
  + "recomputing, blocks or two pipes.";

async function all({ pipeline }, signal) {
  const figures = [];
  for (const study of studies(pipeline)) {
    figures.push(shown(study, await study.run(signal)));
    if (!signal.aborted) byId("curves").replaceChildren(...figures);
  }
  return figures;
}

function fill(contents) {
  byId("curves").replaceChildren(...contents);
  byId("curves").dataset.ready = "yes";
}

const newest = new Newest(all, fill, (error) => fill([element("p", { textContent: error.message })]));

const STILL = 350; // Milliseconds without a change after which curves are asked for.
let waiting = null;

export function waitForCurves() {
  clearTimeout(waiting);
  newest.cancel();
  delete byId("curves").dataset.ready;
}

// `isQuick`: whether the pipeline is one that is answered at once.
export function askCurves(pipeline, isQuick) {
  waitForCurves();
  if (isQuick) waiting = setTimeout(() => newest.put({ pipeline }), STILL);
  else fill([element("p", { textContent: CANNOT })]);
}
