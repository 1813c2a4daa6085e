// Times of stages as bars: drag one up or down, or move it with keys; with shift all move together.

import { KINDS, WORDS, asEntry, kindsOf, perStage, stageCount } from "./fields.js";
import { element, figure } from "./dom.js";
import { edit, state } from "./state.js";

const HIGH = 72; // Pixels of the highest bar.
const STEP = 0.02; // Share of the scale by which a key moves a bar.
const ROOM = 1.4; // Scale over the longest time, so that bars can grow.
let scale = 1;
let held = null;

function rounded(time) {
  const unit = 10 ** Math.floor(Math.log10(scale) - 2);
  return Math.max(0, Number((Math.round(time / unit) * unit).toPrecision(10)));
}

function change(kind, stage, time, isAll, since) {
  edit((pipeline) => {
    const numbers = perStage(pipeline.times[kind], stageCount(pipeline));
    const shift = rounded(time) - numbers[stage];
    const next = numbers.map((number, at) => (isAll || at === stage ? Math.max(0, rounded(number + shift)) : number));
    pipeline.times[kind] = asEntry(next);
  }, since);
}

function setAll(kind, time) {
  edit((pipeline) => { pipeline.times[kind] = time; });
}

function bar(kind, stage) {
  const made = element("div", { className: `bar-of ${kind}`, tabIndex: stage ? -1 : 0, role: "slider",
    "aria-orientation": "vertical", "aria-valuemin": "0" }, element("i"));
  const time = () => Number(made.dataset.time);
  made.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    made.setPointerCapture(event.pointerId);
    made.focus();
    held = { y: event.clientY, time: time(), isAll: event.shiftKey };
  });
  made.addEventListener("pointermove", (event) => {
    if (!held || !made.hasPointerCapture(event.pointerId)) return;
    change(kind, stage, held.time + ((held.y - event.clientY) / HIGH) * scale, held.isAll, event.timeStamp);
  });
  for (const type of ["pointerup", "pointercancel"]) {
    made.addEventListener(type, () => {
      held = null;
      fillBars();
    });
  }
  made.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: 1, ArrowDown: -1, PageUp: 5, PageDown: -5 };
    const isAll = event.shiftKey;
    if (event.key in steps) change(kind, stage, time() + steps[event.key] * STEP * scale, isAll, event.timeStamp);
    else if (event.key === "Home") change(kind, stage, 0, isAll, event.timeStamp);
    else if (["ArrowLeft", "ArrowRight"].includes(event.key)) {
      (event.key === "ArrowLeft" ? made.previousElementSibling : made.nextElementSibling)?.focus();
    } else return;
    event.preventDefault();
  });
  made.addEventListener("focus", () => {
    for (const other of made.parentElement.children) other.tabIndex = other === made ? 0 : -1;
  });
  return made;
}

function row(kind) {
  const input = element("input", { type: "text", inputMode: "decimal", size: 7,
    "aria-label": `${WORDS[kind]} of all stages` });
  input.addEventListener("change", () => {
    const time = Number(input.value);
    const isRight = input.value.trim() !== "" && Number.isFinite(time) && time >= 0;
    input.setAttribute("aria-invalid", String(!isRight));
    if (isRight) setAll(kind, time);
  });
  const head = element("div", { className: "bars-head" },
    element("span", { textContent: `${KINDS[kind]}  ${WORDS[kind]}` }), element("label", {}, "all ", input));
  const group = element("div", { className: "bars", role: "group", "aria-label": `${WORDS[kind]} of each stage` });
  return element("div", { className: "bars-row" }, head, group);
}

let rows = {};

export function makeBars(place) {
  rows = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, row(kind)]));
  place.append(...Object.values(rows));
}

// Shows the times of the pipeline; rows whose times are no numbers of stages are hidden.
export function fillBars() {
  const pipeline = state.instance;
  const stages = stageCount(pipeline);
  const kinds = pipeline.times ? kindsOf(pipeline) : [];
  const times = Object.fromEntries(kinds.map((kind) => [kind, perStage(pipeline.times[kind], stages)]));
  const longest = Math.max(1e-9, ...Object.values(times).flatMap((numbers) => numbers ?? []));
  if (!held) scale = longest * ROOM;
  for (const kind of Object.keys(rows)) {
    rows[kind].hidden = !times[kind];
    if (times[kind]) fillRow(rows[kind], kind, times[kind], pipeline.time_unit ?? "us");
  }
  return kinds.every((kind) => times[kind]);
}

function fillRow(place, kind, numbers, unit) {
  const group = place.querySelector(".bars");
  while (group.children.length > numbers.length) group.lastElementChild.remove();
  while (group.children.length < numbers.length) group.append(bar(kind, group.children.length));
  group.classList.toggle("many", numbers.length > 24);
  numbers.forEach((time, stage) => {
    const made = group.children[stage];
    made.dataset.time = time;
    made.firstElementChild.style.height = `${Math.min(1, time / scale) * HIGH}px`;
    made.title = `stage ${stage}: ${figure(time)} ${unit}`;
    made.setAttribute("aria-valuenow", time);
    made.setAttribute("aria-valuemax", Number((scale).toPrecision(4)));
    made.setAttribute("aria-valuetext", `${figure(time)} ${unit}`);
    made.setAttribute("aria-label", `${WORDS[kind]} of stage ${stage}`);
  });
  const input = place.querySelector("input");
  if (document.activeElement === input) return;
  const isEqual = numbers.every((time) => time === numbers[0]);
  input.value = isEqual ? String(numbers[0]) : "";
  input.placeholder = isEqual ? "" : "mixed";
}
