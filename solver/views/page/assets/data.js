// The schedules of the page: columns become typed arrays, times become the page's unit.

export const all = [];
export const chartTexts = { unit: "", titles: [] };
export let lastMoment = 0;
export const NONE = -1;
const WHY = [
  "starts at time 0", "data of", "order on the stream, after", "memory given back by",
  "a given moment", "nothing: the schedule lets it wait",
];
export const BY_MEMORY = 3;

function prepared(columns) {
  const count = columns.start.length;
  const shown = { ...columns, count };
  shown.begin = Float64Array.from(columns.start, (ticks) => ticks * columns.tick);
  shown.end = Float64Array.from(columns.start,
    (ticks, op) => (ticks + columns.duration[op]) * columns.tick);
  shown.last = columns.makespan * columns.tick;
  shown.alpha = new Float32Array(count).fill(1);
  shown.usual = usualDuration(columns) * columns.tick;
  shown.typical = columns.microbatch.indexOf(columns.microbatch.reduce((most, each) => Math.max(most, each), NONE));
  shown.onPath = new Uint8Array(count);
  for (const op of columns.path) shown.onPath[op] = 1;
  shown.lanes = lanesOf(columns);
  shown.needs = needsOf(columns);
  for (const strip of shown.strips) {
    strip.time = Float64Array.from(strip.time, (ticks) => ticks * columns.tick);
    strip.most = strip.amount.reduce((most, amount) => Math.max(most, amount), 0);
  }
  shown.home = firstLanes(shown);
  shown.chunk = chunks(shown);
  shown.isChunked = shown.chunk.some((chunk) => chunk > 0);
  return shown;
}

// Lanes with ops, by device; each with its ops by start, and points apart. Ops that occupy nothing
// share as few further lanes as they need.
function lanesOf({ lanes, start, duration }) {
  const byStart = (ops) => ops.sort((a, b) => start[a] - start[b]);
  const held = new Set(lanes.flatMap((lane) => lane.ops));
  const kept = lanes.filter((lane) => lane.ops.length)
    .sort((one, other) => one.device - other.device)
    .map((lane) => ({
      ...lane,
      ops: byStart(lane.ops.filter((op) => duration[op] > 0)),
      points: lane.ops.filter((op) => duration[op] === 0),
    }));
  const free = [];
  const alone = Array.from(start.keys()).filter((op) => duration[op] > 0 && !held.has(op));
  for (const op of byStart(alone)) {
    let ops = free.find((those) => start[those.at(-1)] + duration[those.at(-1)] <= start[op]);
    if (!ops) free.push(ops = []);
    ops.push(op);
  }
  const others = free.map((ops) => ({ name: "no resource", device: NONE, compute: false, ops, points: [] }));
  return [...kept, ...others].map((lane) => ({ ...lane, ops: Int32Array.from(lane.ops) }));
}

// The precedences of each op one after the other, from `pointer` of the op to that of the next one.
function needsOf({ before, after, lag, start }) {
  const pointer = new Int32Array(start.length + 1);
  for (const op of after) pointer[op + 1] += 1;
  for (let op = 0; op < start.length; op++) pointer[op + 1] += pointer[op];
  const next = pointer.slice();
  const needs = { pointer, op: new Int32Array(after.length), lag: lag && new Float64Array(after.length) };
  after.forEach((op, number) => {
    const at = next[op]++;
    needs.op[at] = before[number];
    if (lag) needs.lag[at] = lag[number];
  });
  return needs;
}

// Half of the time of micro-batches is in ops of this duration or shorter ones.
function usualDuration({ duration, microbatch }) {
  const held = duration.filter((_, op) => microbatch[op] !== NONE).sort((a, b) => a - b);
  let left = held.reduce((sum, ticks) => sum + ticks, 0) / 2;
  return held.find((ticks) => (left -= ticks) <= 0) ?? 0;
}

// The first lane of each op, which says its device.
function firstLanes(shown) {
  const home = new Int32Array(shown.count).fill(NONE);
  shown.lanes.forEach((lane, number) => {
    for (const op of lane.ops) if (home[op] === NONE) home[op] = number;
    for (const op of lane.points) if (home[op] === NONE) home[op] = number;
  });
  return home;
}

// Stages of one device are numbered from 0, so that every other one gets another shade.
function chunks(shown) {
  const held = new Map();
  const deviceOf = (op) => (shown.home[op] === NONE ? NONE : shown.lanes[shown.home[op]].device);
  const isCompute = (op) => shown.home[op] !== NONE && shown.lanes[shown.home[op]].compute;
  for (let op = 0; op < shown.count; op++) {
    if (shown.stage[op] === NONE || !isCompute(op)) continue;
    const device = deviceOf(op);
    if (!held.has(device)) held.set(device, new Set());
    held.get(device).add(shown.stage[op]);
  }
  const rank = new Map();
  for (const [device, stages] of held) {
    [...stages].sort((a, b) => a - b).forEach((stage, place) => rank.set(`${device}.${stage}`, place));
  }
  return Uint8Array.from({ length: shown.count }, (_, op) =>
    isCompute(op) ? (rank.get(`${deviceOf(op)}.${shown.stage[op]}`) ?? 0) % 2 : 0);
}

export function setSchedules({ unit, titles, shown }) {
  Object.assign(chartTexts, { unit, titles });
  all.splice(0, all.length, ...shown.map(prepared));
  lastMoment = all.reduce((most, schedule) => Math.max(most, schedule.last, schedule.bound ?? 0), 0);
}

export function nameOf(shown, op) {
  if (shown.names) return shown.names[op];
  const microbatch = shown.microbatch[op];
  const stage = shown.stage[op];
  const kind = shown.kinds[shown.kind[op]].name;
  return `${kind}${stage === NONE ? "" : stage}${microbatch === NONE ? "" : `.${microbatch}`}`;
}

// The labels of an op from the longest to the shortest: its name where stages of a device have to be
// told apart, letter and micro-batch, and the micro-batch, since colours say the kind.
export function labelsOf(shown, op) {
  const letter = shown.kinds[shown.kind[op]].letter;
  const slice = shown.slice && shown.slice[op] !== NONE ? `.${shown.slice[op]}` : "";
  const number = shown.microbatch[op] === NONE ? "" : `${shown.microbatch[op]}${slice}`;
  const names = shown.isChunked || (shown.names && !number) ? [nameOf(shown, op)] : [];
  return number ? [...names, letter + number, number] : [...names, letter];
}

const plainNumber = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function shownNumber(value) {
  const whole = Math.round(value);
  const isWhole = Math.abs(value - whole) <= 1e-9 * Math.max(1, Math.abs(value));
  return isWhole ? wholeNumber.format(whole) : plainNumber.format(value);
}

const compactNumber = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function compact(value) {
  return compactNumber.format(value).replace("B", "G");
}

export function shownTime(value) {
  return `${shownNumber(value)} ${chartTexts.unit}`;
}

// What is known of an op, as [name, value].
export function factsOf(shown, op) {
  const kind = shown.kinds[shown.kind[op]];
  const lane = shown.home[op] === NONE ? null : shown.lanes[shown.home[op]];
  const [slice, replica] = [shown.slice, shown.replica].map((each) => (each ? each[op] : NONE));
  const labels = [
    ["stage", shown.stage[op]], ["micro-batch", shown.microbatch[op]], ["slice", slice], ["replica", replica],
  ];
  const cause = shown.cause[op];
  const why = WHY[shown.why[op]] + (cause === NONE ? "" : ` ${nameOf(shown, cause)}`);
  const slack = shown.slack[op] * shown.tick;
  return [
    ["kind", kind.words],
    ...labels.filter(([, value]) => value !== NONE).map(([name, value]) => [name, String(value)]),
    ...(lane ? [["stream", lane.name]] : []),
    ["from", `${shownTime(shown.begin[op])} to ${shownTime(shown.end[op])}`],
    ["takes", shownTime(shown.end[op] - shown.begin[op])],
    ["slack", slack > 0 ? shownTime(slack) : "none: any delay moves the end"],
    ["waited for", why],
  ];
}
