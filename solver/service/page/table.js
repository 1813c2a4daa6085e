// The table of all schedules, best first, and the two pickers of what is drawn.

import { byId, element, figure, percent, setOptions } from "./dom.js";
import { PROVED, changed, state } from "./state.js";

const FITS = "feasible";
let rows = [];

export function usableNames() {
  return rows.filter((row) => row.makespan !== null).map((row) => row.name);
}

export function feasibleNames() {
  return rows.filter((row) => row.status === FITS).map((row) => row.name);
}

function byValue(one, other) {
  const rank = (row) => (row.status === FITS ? 0 : row.makespan !== null ? 1 : 2);
  return rank(one) - rank(other) || (one.makespan ?? 0) - (other.makespan ?? 0);
}

export function setRows(schedules) {
  rows = [...schedules].sort(byValue);
}

// Times of published schedules that came with a picture, before the whole table does.
export function updateRows(published) {
  for (const row of rows) {
    if (!(row.name in published)) continue;
    const makespan = published[row.name];
    row.status = makespan === null ? "infeasible" : FITS;
    if (makespan !== null) row.makespan = makespan;
  }
  rows.sort(byValue);
}

export function best() {
  const first = rows.find((row) => row.status === FITS);
  const proof = state.proof;
  if (proof?.value !== undefined && proof.value !== null && !(first && first.makespan < proof.value)) {
    return { value: proof.value, by: proof.best_by ?? "search" };
  }
  return first ? { value: first.makespan, by: first.name } : null;
}

function pick(name) {
  if (state.shown.includes(name)) return;
  state.shown = [state.shown[0], name];
  changed();
}

const HEADS = ["schedule", "makespan", "above the bound", "idle", "memory"];

function cells(row, bound) {
  const over = row.status === FITS && bound ? (row.makespan - bound) / row.makespan : null;
  const peaks = Object.values(row.peak_memory ?? {});
  const isShown = state.shown.includes(row.name);
  const button = element("button", { type: "button", className: "link", textContent: row.name,
    "aria-pressed": String(isShown), title: "Draw this schedule below" });
  button.addEventListener("click", () => pick(row.name));
  const meter = element("i", { className: "meter" });
  meter.style.width = `${Math.min(60, (over ?? 0) * 200)}px`;
  const gap = element("td", {}, meter, row.status === FITS ? percent(over) : "does not fit");
  if (row.status !== FITS) gap.title = row.reason ?? "";
  return [
    element("td", { className: "text" }, button), element("td", { textContent: figure(row.makespan) }), gap,
    element("td", { textContent: percent(row.bubble_ratio) }),
    element("td", { textContent: peaks.length ? figure(Math.max(...peaks)) : "–" }),
  ];
}

export function fillTable(bound) {
  const body = element("tbody");
  const proof = state.proof;
  const proved = proof?.schedule ? [{ name: PROVED, status: FITS, makespan: proof.makespan,
    bubble_ratio: proof.bubble_ratio, peak_memory: proof.peak_memory }] : [];
  const shown = rows.filter((row) => row.makespan !== null);
  for (const row of [...proved, ...shown]) {
    const line = element("tr", {}, ...cells(row, bound));
    line.classList.toggle("shown", state.shown.includes(row.name));
    line.classList.toggle("misfit", row.status !== FITS);
    body.append(line);
  }
  const unit = state.instance.time_unit ?? "us";
  const heads = HEADS.map((text, at) => element("th", { scope: "col", className: at ? "" : "text",
    textContent: at === 1 ? `${text} (${unit})` : text }));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  byId("table").replaceChildren(table, others());
  fillPickers(proved.length > 0);
}

// Schedules that this pipeline cannot have, and what each of them needs.
function others() {
  const absent = rows.filter((row) => row.makespan === null);
  const list = element("dl", { className: "reasons" }, ...absent.map((row) => element("div", {},
    element("dt", { textContent: row.name }), element("dd", { textContent: row.reason ?? row.status }))));
  const made = element("details", {},
    element("summary", { textContent: `${absent.length} schedules do not apply to this pipeline` }), list);
  made.open = byId("table").querySelector("details")?.open ?? false;
  made.hidden = !absent.length;
  return made;
}

function fillPickers(isProved) {
  const names = usableNames();
  const entries = [...(isProved ? [[PROVED, `${PROVED} (best found)`]] : []),
    ...names.map((name) => [name, feasibleNames().includes(name) ? name : `${name} (does not fit)`])];
  for (const [id, at] of [["first", 0], ["second", 1]]) setOptions(byId(id), entries, state.shown[at] ?? "");
}

export function makePickers() {
  for (const [id, at] of [["first", 0], ["second", 1]]) {
    byId(id).addEventListener("change", (event) => {
      state.shown[at] = byId(id).value;
      changed(event.timeStamp);
    });
  }
}
