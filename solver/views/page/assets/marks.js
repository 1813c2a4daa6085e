// Colours of ops, texts on them, and the look of the page in light and dark.

import { NONE, all, labelsOf } from "./data.js";
import { firstPlace, isExceeded } from "./lanes.js";
import { pixelsPerTime, view } from "./view.js";

export const looks = {};
export const FONT = "11px system-ui, sans-serif";
const CONDENSED = 0.75; // Narrower letters are hard to read.
const widths = new Map();
const patterns = new Map();

export function readLooks() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "text", "faint", "line", "lane", "strip", "bad", "mark"]) {
    looks[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function darker([red, green, blue]) {
  return [red, green, blue].map((part) => Math.round(part * 0.72));
}

// Black or white, whichever is easier to read on a colour.
function inkOn([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 105 ? "#000" : "#fff";
}

// Two shades of each kind: stages of one device take turns.
export function tones(shown) {
  return shown.kinds.map((kind) => [channels(kind.colour), darker(channels(kind.colour))].map((rgb) => ({
    rgb,
    fill: `rgb(${rgb.join(",")})`,
    ink: inkOn(rgb),
  })));
}

export function hatching(context) {
  if (!patterns.has(context)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = "rgba(0,0,0,.45)";
    pen.beginPath();
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
    }
    pen.stroke();
    patterns.set(context, context.createPattern(tile, "repeat"));
  }
  return patterns.get(context);
}

// The longest label that fits into a width, the shortest one also a little condensed; nothing where
// none does. Bars of micro-batches begin with the form that fits most of them: letters here and
// numbers there would be hard to read.
export function fitting(pen, shown, op, width) {
  if (width < 5) return "";
  const labels = labelsOf(shown, op);
  const shortest = labels[labels.length - 1];
  const first = shown.microbatch[op] === NONE ? 0 : shown.form;
  const found = labels.slice(first).find((text) => widthOf(pen, text) <= width);
  return found ?? (widthOf(pen, shortest) * CONDENSED <= width ? shortest : "");
}

export function usualForm(pen, shown) {
  const labels = labelsOf(shown, shown.typical);
  const width = shown.usual * pixelsPerTime() - 1;
  const form = labels.findIndex((text) => widthOf(pen, text) <= width);
  return form < 0 ? labels.length - 1 : form;
}

// Measuring a text takes longer than drawing a bar, and labels repeat.
export function widthOf(pen, text) {
  let width = widths.get(text);
  if (width === undefined) {
    width = pen.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}

export function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  const fits = firstPlace(text.length, (length) => pen.measureText(`${text.slice(0, length + 1)}…`).width > width);
  return `${text.slice(0, fits)}…`;
}

// Names of lanes where there is little room.
export function brief(text) {
  return view.gutter < 80 ? text.replace(/^device /, "dev ").replace(/^peak /, "") : text;
}

function legendItem(place, box, words) {
  const item = document.createElement("span");
  item.append(box, ` ${words}`);
  place.append(item);
}

function lineBox(name) {
  const box = document.createElement("i");
  box.className = `line ${name}`;
  return box;
}

export function fillLegend(place) {
  place.replaceChildren();
  const seen = new Map();
  for (const shown of all) {
    const used = new Set(shown.kind);
    shown.kinds.forEach((kind, number) => {
      if (used.has(number)) seen.set(`${kind.words} ${kind.colour} ${kind.letter}`, kind);
    });
  }
  for (const kind of seen.values()) {
    const box = document.createElement("i");
    box.textContent = kind.letter;
    box.style.background = kind.colour;
    if (kind.hatched) box.className = "hatched";
    box.style.color = inkOn(channels(kind.colour));
    const words = kind.words.startsWith(`${kind.letter} `) ? kind.words.slice(2) : kind.words;
    legendItem(place, box, words);
  }
  fillLinesOfLegend(place);
}

function fillLinesOfLegend(place) {
  legendItem(place, lineBox("end"), "end");
  legendItem(place, lineBox("slack"), "slack, where shown");
  if (all.some((shown) => shown.strips.some(isExceeded))) {
    legendItem(place, lineBox("over"), "capacity, exceeded: infeasible");
  }
  if (all.some((shown) => shown.bound !== null)) legendItem(place, lineBox("bound"), "lower bound");
  if (all.some((shown) => shown.spanBound !== null)) {
    legendItem(place, lineBox("bound"), "lower bound of the span, from each first op");
  }
  if (all.some((shown) => shown.period)) legendItem(place, lineBox("period"), "iterations");
  if (all.some((shown) => shown.isChunked)) {
    const words = document.createElement("span");
    words.textContent = "darker: every other stage of a device";
    place.append(words);
  }
}
