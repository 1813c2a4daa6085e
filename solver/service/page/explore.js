// The page: one question for the picture while something moves, then the table, then the curves.

import { Newest, send, setToken } from "./ask.js";
import { askCurves, waitForCurves } from "./curves.js";
import { byId, element, figure, percent, setOptions, tell } from "./dom.js";
import { adopt, makeFiles } from "./files.js";
import { fillPanel, makePanel } from "./panel.js";
import { forgetProof, makeProof } from "./proof.js";
import { PROVED, changed, listen, readAddress, replace, state, FIRST } from "./state.js";
import { best, feasibleNames, fillTable, makePickers, setRows, updateRows, usableNames } from "./table.js";
import { makeTour, showStep } from "./tour.js";

const SETTLED = 120; // Milliseconds without a change after which the whole table is asked for.
let chart = null;
let known = {};
let settling = null;

function drawnNames() {
  return state.shown.map((name) => (name === PROVED ? state.proof : name)).filter(Boolean);
}

const pictures = new Newest(
  ({ instance, drawn }, signal) => send("picture", { body: { instance, drawn }, signal }),
  (answer, question) => showPicture(answer, question),
  (error) => tell(error.message, false, "picture"),
);

const tables = new Newest(
  ({ instance }, signal) => send("picture", { body: { instance, heuristics: "all" }, signal }),
  (answer, question) => showTable(answer, question),
  (error) => tell(error.message, false, "picture"),
);

function showPicture(answer, question) {
  learn(answer, question);
  if (answer.chart.shown.length) {
    for (const shown of answer.chart.shown) shown.bound = known.bound ?? null;
    chart.show(answer.chart);
  }
  requestAnimationFrame(() => {
    const took = performance.now() - question.since;
    byId("took").textContent = `picture after ${Math.round(took)} ms`;
    Object.assign(byId("took").dataset, { took, pictures: Number(byId("took").dataset.pictures ?? 0) + 1 });
  });
  tell(null, false, "picture");
  if (answer.published) updateRows(answer.published);
  fillHeadline();
  fillTable(known.bound);
  askCurves(question.instance, answer.published !== null);
}

// A bound holds for one pipeline; the best of those that came for it counts.
function learn(answer, { instance }) {
  const of = JSON.stringify(instance);
  if (known.of !== of) known = { of };
  for (const source of [answer, state.proof ?? {}]) {
    if (typeof source.bound === "number" && !(known.bound >= source.bound)) {
      known = { of, bound: source.bound, by: source.bound_by };
    }
  }
}

function showTable(answer, question) {
  const had = known.bound;
  learn(answer, question);
  setRows(answer.heuristics);
  fillTable(known.bound);
  fillHeadline();
  byId("table").dataset.ready = "yes";
  if (!keepDrawable() && known.bound !== had) askPicture();
}

// Schedules that the pipeline cannot have make way for the best that it can.
function keepDrawable() {
  const usable = new Set(usableNames());
  const free = [...feasibleNames(), ...usable].filter((name) => !state.shown.includes(name));
  const shown = state.shown.map((name) => (name === PROVED || usable.has(name) ? name : free.shift() ?? name));
  if (shown.join() === state.shown.join()) return false;
  state.shown = shown;
  changed();
  return true;
}

function fillHeadline() {
  const unit = state.instance.time_unit ?? "us";
  const top = best();
  const facts = [
    ["best", top ? `${figure(top.value)} ${unit}` : "none fits the memory", top ? `by ${top.by}` : ""],
    ["lower bound", known.bound === undefined ? "not known yet" : `${figure(known.bound)} ${unit}`,
      known.by ? `by ${known.by}` : ""],
  ];
  if (top && known.bound !== undefined) {
    const gap = (top.value - known.bound) / top.value;
    facts.push(["gap", gap > 1e-12 ? percent(gap) : "0 %", gap > 1e-12 ? "" : "proved optimal"]);
  }
  byId("headline").replaceChildren(...facts.map(([name, value, more]) => element("div", {},
    element("dt", { textContent: name }), element("dd", {}, element("b", { textContent: value }), ` ${more}`))));
}

function askPicture(since = performance.now()) {
  pictures.put({ instance: structuredClone(state.instance), drawn: drawnNames(), since });
}

// The question goes out first: the form is filled while the service answers.
function refresh(since) {
  askPicture(since);
  fillPanel();
  forgetProof();
  delete byId("table").dataset.ready;
  clearTimeout(settling);
  settling = setTimeout(() => tables.put({ instance: structuredClone(state.instance) }), SETTLED);
  waitForCurves();
}

async function loadChart() {
  const text = await (await fetch("chart/chart.html")).text();
  // A file of the service itself, without anything from elsewhere.
  byId("chart-place").innerHTML = text;
  chart = await import("./chart/controls.js");
}

async function loadPresets() {
  const presets = await send("presets.json", { method: "GET" });
  const entries = [["", "my own"], ["first", "4 devices, 8 micro-batches"],
    ...presets.map((preset, at) => [String(at), preset.title])];
  setOptions(byId("preset"), entries, "");
  byId("preset").addEventListener("change", () => {
    const choice = byId("preset").value;
    if (choice === "first") replace(FIRST, ["1f1b", "zb-h1"]);
    else if (choice) replace(presets[Number(choice)].instance, ["1f1b", "zb-h1"]);
  });
  listen(() => {
    const text = JSON.stringify(state.instance);
    const at = presets.findIndex((preset) => JSON.stringify(preset.instance) === text);
    byId("preset").value = at >= 0 ? String(at) : text === JSON.stringify(FIRST) ? "first" : "";
  });
}

// A service that other machines reach asks for a token first.
async function firstInstance() {
  for (;;) {
    try {
      return await send("instance", { method: "GET" });
    } catch (error) {
      if (error.status !== 401) throw error;
      byId("token-form").hidden = false;
      byId("token").focus();
      await new Promise((done) => { byId("token-form").addEventListener("submit", done, { once: true }); });
      setToken(byId("token").value.trim());
      byId("token-form").hidden = true;
    }
  }
}

async function openAddress() {
  const { instance, shown, tour, isBroken } = readAddress(location.hash);
  if (tour) {
    showStep(tour);
    return;
  }
  if (isBroken) tell("The address holds no readable pipeline; this is the first one instead.");
  if (instance && await adopt(instance, shown.length === 2 ? shown : undefined)) return;
  changed();
}

async function start() {
  await loadChart();
  makePanel();
  makePickers();
  makeProof();
  makeFiles(() => chart.picture());
  makeTour();
  await loadPresets();
  listen(refresh);
  byId("token-form").addEventListener("submit", (event) => event.preventDefault());
  const first = await firstInstance();
  if (first) Object.assign(state, { instance: first });
  addEventListener("hashchange", openAddress);
  await openAddress();
  document.documentElement.dataset.started = "yes";
}

start().catch((error) => tell(`The page did not start: ${error.message}`));
