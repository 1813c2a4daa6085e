// Pointer, wheel, keys, buttons, filters; and the start of it all.

import { NONE, all, factsOf, nameOf, setSchedules, shownNumber, shownTime } from "./data.js";
import { LANE, arrange, firstPlace, listed, only, opAt, options, rowAt, rows } from "./lanes.js";
import { fit, pan, pixelsPerTime, reveal, timeAt, view, zoom } from "./view.js";
import { fillLegend, readLooks, tones } from "./marks.js";
import { axis, lanes, paint, redraw, resize, scroller } from "./draw.js";
import { boxOf, choose, chosen, neededBy, refresh } from "./trace.js";

const tip = document.getElementById("tip");
const factsPlace = document.getElementById("facts");
const chart = document.getElementById("chart");
const REACH = 5; // Pixels by which a pointer may miss a narrow op.
const STEP = 1.4; // Two steps of a key double the scale.
const MOST_STRIPS = 16; // With more, memory is shown when asked for: lanes come first.
const pointers = new Map();
let moved = 0;

function filled(place, title, facts) {
  const head = document.createElement("b");
  head.textContent = title;
  const list = document.createElement("dl");
  for (const [name, value] of facts) {
    const item = document.createElement("div");
    const term = document.createElement("dt");
    const words = document.createElement("dd");
    term.textContent = name;
    words.textContent = value;
    item.append(term, words);
    list.append(item);
  }
  place.replaceChildren(head, list);
}

function showFacts() {
  if (!chosen) {
    factsPlace.replaceChildren();
    return;
  }
  const shown = all[chosen.number];
  filled(factsPlace, nameOf(shown, chosen.op), [
    ...factsOf(shown, chosen.op),
    ["needs", Array.from(neededBy(shown, chosen.op), (op) => nameOf(shown, op)).join(", ") || "nothing"],
    ["chain to it", `${chosen.chain.length} ops, the first ${nameOf(shown, chosen.chain[0])}`],
    ["would move", `${chosen.moved.length} ops if it ended later`],
  ]);
}

function pick(number, op) {
  choose(number, op);
  showFacts();
}

// Chooses an op by a key: it may be out of sight.
function go(number, op) {
  pick(number, op);
  const shown = all[number];
  reveal(shown.begin[op], shown.end[op]);
  const box = boxOf(number, op);
  if (box && box.top < 0) scroller.scrollTop += box.top - 8;
  if (box && box.top + box.height > view.height) scroller.scrollTop += box.top + box.height - view.height + 8;
}

function placeOf(event) {
  const box = lanes.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

function found(x, y) {
  const row = rowAt(y + view.top);
  if (!row || row.type !== "lane" || x < view.gutter) return null;
  const shown = all[row.shown];
  const op = opAt(shown, shown.lanes[row.lane], timeAt(x), REACH / pixelsPerTime());
  return op === NONE ? null : { number: row.shown, op };
}

function hover(event) {
  const { x, y } = placeOf(event);
  const at = found(x, y);
  const row = rowAt(y + view.top);
  if (at) filled(tip, nameOf(all[at.number], at.op), factsOf(all[at.number], at.op));
  else if (row && row.type === "strip" && x >= view.gutter) amountTip(row, timeAt(x));
  else if (row && row.label && x < view.gutter) filled(tip, row.label, []);
  tip.hidden = !(at || (row && row.label && (row.type === "strip" || x < view.gutter)));
  if (tip.hidden) return;
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 16;
  const isLow = below + tip.offsetHeight > window.innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, isLow ? event.clientY - tip.offsetHeight - 12 : below)}px`;
}

function amountTip(row, time) {
  const strip = all[row.shown].strips[row.strip];
  const place = firstPlace(strip.time.length, (number) => strip.time[number] > time) - 1;
  const cap = strip.cap === null ? [] : [["capacity", shownNumber(strip.cap)]];
  const amount = place < 0 ? 0 : strip.amount[place];
  filled(tip, strip.name, [["at", shownTime(time)], ["in use", shownNumber(amount)],
    ["peak", shownNumber(strip.most)], ...cap]);
}

lanes.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, placeOf(event));
  lanes.setPointerCapture(event.pointerId);
  if (pointers.size === 1) moved = 0;
});

lanes.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) {
    hover(event);
    return;
  }
  const now = placeOf(event);
  if (pointers.size === 2) pinch(event.pointerId, before, now);
  else drag(event, before, now);
  pointers.set(event.pointerId, now);
});

function drag(event, before, now) {
  moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
  if (moved < 4) return;
  tip.hidden = true;
  pan(before.x - now.x);
  if (event.pointerType === "mouse") scroller.scrollTop += before.y - now.y;
  redraw();
}

function pinch(id, before, now) {
  const [other] = [...pointers].filter(([key]) => key !== id).map(([, place]) => place);
  const old = Math.max(20, Math.abs(before.x - other.x));
  const wide = Math.max(20, Math.abs(now.x - other.x));
  moved += 10;
  zoom(wide / old, (now.x + other.x) / 2);
  redraw();
}

function released(event) {
  const wasDown = pointers.delete(event.pointerId);
  if (!wasDown || moved >= 4 || event.type !== "pointerup") return;
  const { x, y } = placeOf(event);
  const at = found(x, y);
  pick(at ? at.number : null, at ? at.op : NONE);
}

for (const type of ["pointerup", "pointercancel"]) lanes.addEventListener(type, released);
lanes.addEventListener("pointerleave", () => { tip.hidden = true; });

lanes.addEventListener("wheel", (event) => {
  const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (!event.ctrlKey && !event.metaKey && !isSideways) return;
  event.preventDefault();
  if (isSideways) pan(event.deltaX || event.deltaY);
  else zoom(Math.exp(-event.deltaY * 0.004), placeOf(event).x);
  redraw();
}, { passive: false });

// The op `step` places further on the lane of the chosen one; the first op where none is chosen.
function neighbour(step) {
  if (!chosen) {
    const row = rows.find((each) => each.type === "lane" && all[each.shown].lanes[each.lane].ops.length);
    if (row) go(row.shown, all[row.shown].lanes[row.lane].ops[0]);
    return;
  }
  const shown = all[chosen.number];
  const ops = shown.home[chosen.op] === NONE ? [] : shown.lanes[shown.home[chosen.op]].ops;
  const next = ops[ops.indexOf(chosen.op) + step];
  if (next !== undefined) go(chosen.number, next);
}

function toCause() {
  if (chosen && all[chosen.number].cause[chosen.op] !== NONE) {
    go(chosen.number, all[chosen.number].cause[chosen.op]);
  }
}

const KEYS = {
  ArrowLeft: () => pan(-80),
  ArrowRight: () => pan(80),
  ArrowUp: () => { scroller.scrollTop -= LANE * 2; },
  ArrowDown: () => { scroller.scrollTop += LANE * 2; },
  "+": () => zoom(STEP),
  "=": () => zoom(STEP),
  "-": () => zoom(1 / STEP),
  0: fit,
  f: fit,
  n: () => neighbour(1),
  p: () => neighbour(-1),
  c: toCause,
  Escape: () => pick(null, NONE),
};

lanes.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  tip.hidden = true;
  KEYS[event.key]();
  redraw();
});

const BUTTONS = { in: () => zoom(STEP), out: () => zoom(1 / STEP), fit };
for (const button of chart.querySelectorAll("[data-do]")) {
  button.addEventListener("click", () => {
    BUTTONS[button.dataset.do]();
    redraw();
  });
}

for (const box of chart.querySelectorAll("[data-show]")) {
  box.addEventListener("change", () => {
    box.dataset.chosen = "by hand";
    options[box.dataset.show] = box.checked;
    arrange();
    resize();
    refresh();
  });
}

for (const field of chart.querySelectorAll("[data-only]")) {
  field.addEventListener("input", () => {
    const wanted = listed(field.value);
    field.setAttribute("aria-invalid", String(wanted === false));
    if (wanted === false) return;
    only[field.dataset.only] = wanted;
    arrange();
    resize();
    refresh();
  });
}

// What the schedules do not have needs no control.
function prepareControls() {
  const has = (name) => all.some((shown) => shown[name].some((value) => value !== NONE));
  const devices = new Set(all.flatMap((shown) => shown.lanes.map((lane) => lane.device)));
  const strips = all.reduce((sum, shown) => sum + shown.strips.length, 0);
  const offer = (query, isUseful) => { chart.querySelector(query).closest("label").hidden = !isUseful; };
  offer('[data-only="stage"]', has("stage"));
  offer('[data-only="microbatch"]', has("microbatch"));
  offer('[data-only="device"]', devices.size > 1);
  offer('[data-show="memory"]', strips);
  offer('[data-show="overlay"]', all.length > 1);
  const box = chart.querySelector('[data-show="memory"]');
  if (!box.dataset.chosen) box.checked = strips > 0 && strips <= MOST_STRIPS;
  options.memory = strips > 0 && box.checked;
}

function setPrinting(now) {
  view.printing = now;
  document.documentElement.classList.toggle("print", now);
  readLooks();
  resize();
  paint();
}

addEventListener("beforeprint", () => setPrinting(true));
addEventListener("afterprint", () => setPrinting(false));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readLooks();
  redraw();
});
scroller.addEventListener("scroll", redraw);
new ResizeObserver(resize).observe(chart);
addEventListener("resize", resize);

// Draws schedules in place of those before, over the whole of their time.
export function show(schedules) {
  setSchedules(schedules);
  for (const shown of all) shown.tones = tones(shown);
  choose(null, NONE);
  showFacts();
  chart.hidden = false;
  readLooks();
  fillLegend(document.getElementById("legend"));
  prepareControls();
  fit();
  arrange();
  resize();
  paint();
}

// The whole chart as a PNG, as printed pages have it.
export async function picture() {
  setPrinting(true);
  const whole = document.createElement("canvas");
  whole.width = lanes.width;
  whole.height = axis.height + lanes.height;
  const pen = whole.getContext("2d");
  pen.drawImage(axis, 0, 0);
  pen.drawImage(lanes, 0, axis.height);
  setPrinting(false);
  return new Promise((done) => { whole.toBlob(done, "image/png"); });
}
