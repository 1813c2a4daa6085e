// Rows of the chart from top to bottom, what of it is filtered, and what lies at a point.

import { NONE, all, compact } from "./data.js";

export const LANE = 22;
const NARROW_LANE = 15;
const STRIP = 15;
export const TITLE = 24;
const GAP = 4;

export const options = { critical: false, slack: false, memory: false, links: false, overlay: false };
export const only = { device: null, stage: null, microbatch: null };
export let rows = [];
export let rowOf = [];
export let total = 0;

// "0-3,7" becomes a test of numbers; null where nothing is asked for, false where it is no list.
export function listed(text) {
  const ranges = [];
  for (const part of text.split(",").map((piece) => piece.trim()).filter(Boolean)) {
    const found = /^([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?$/.exec(part);
    if (!found) return false;
    ranges.push([Number(found[1]), Number(found[2] ?? found[1])]);
  }
  if (!ranges.length) return null;
  return (number) => ranges.some(([low, high]) => low <= number && number <= high);
}

function add(row) {
  rows.push({ ...row, y: total });
  total += row.height;
}

export function arrange() {
  rows = [];
  total = 0;
  if (options.overlay && all.length > 1) arrangeTogether();
  else all.forEach(arrangeOne);
  rowOf = all.map((shown) => new Int32Array(shown.lanes.length).fill(NONE));
  rows.forEach((row, number) => {
    if (row.type === "lane") rowOf[row.shown][row.lane] = number;
  });
}

function visibleLanes(shown) {
  return shown.lanes.map((lane, number) => [lane, number])
    .filter(([lane]) => !only.device || only.device(lane.device));
}

function arrangeOne(shown, number) {
  if (all.length > 1) add({ type: "title", shown: number, height: TITLE });
  const lanes = visibleLanes(shown);
  lanes.forEach(([lane, index], place) => {
    add({ type: "lane", shown: number, lane: index, height: LANE, label: lane.name });
    const isLast = place + 1 === lanes.length || lanes[place + 1][0].device !== lane.device;
    if (isLast) addStrips(shown, number, lane.device);
  });
  total += GAP;
}

function addStrips(shown, number, device, tag) {
  if (!options.memory) return;
  shown.strips.forEach((strip, index) => {
    if (strip.device !== device) return;
    const label = stripLabel(strip, shown);
    add({ type: "strip", shown: number, strip: index, height: STRIP, label, tag, isExceeded: isExceeded(strip) });
  });
}

export function isExceeded(strip) {
  return strip.cap !== null && strip.most > strip.cap * (1 + 1e-9);
}

// "4 of 4": a pool that is called as its device is needs no name.
function stripLabel(strip, shown) {
  const isOfDevice = shown.lanes.some((lane) => lane.name === strip.name);
  const cap = strip.cap === null ? "" : ` of ${compact(strip.cap)}`;
  const amount = `${compact(strip.most)}${cap}`;
  if (isExceeded(strip)) return `${isOfDevice ? "" : `${strip.name} `}${amount} infeasible`;
  return `${isOfDevice ? "peak" : strip.name} ${amount}`;
}

// The same lane of every schedule, one directly below the other.
function arrangeTogether() {
  const keys = new Map();
  all.forEach((_, number) => add({ type: "title", shown: number, height: TITLE - 4 }));
  all.forEach((shown, number) => {
    for (const [lane, index] of visibleLanes(shown)) {
      const key = `${lane.device} ${lane.name}`;
      if (!keys.has(key)) keys.set(key, []);
      keys.get(key).push([number, index, lane]);
    }
  });
  for (const parts of keys.values()) {
    parts.forEach(([number, index, lane], place) => {
      const label = place === 0 ? lane.name : "";
      add({ type: "lane", shown: number, lane: index, height: NARROW_LANE, label, tag: number + 1 });
    });
    total += GAP;
    parts.forEach(([number, , lane]) => {
      if (lane.compute) addStrips(all[number], number, lane.device, number + 1);
    });
  }
}

// The first place of a sorted list where `isPast` holds.
export function firstPlace(length, isPast) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isPast(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

export function rowAt(y) {
  const place = firstPlace(rows.length, (number) => rows[number].y > y) - 1;
  return place >= 0 && y < rows[place].y + rows[place].height ? rows[place] : null;
}

// The op of a lane at a time, or the nearest one within `reach`; points come before ops.
export function opAt(shown, lane, time, reach) {
  let best = NONE;
  let least = reach;
  for (const op of lane.points) {
    const distance = Math.abs(shown.begin[op] - time);
    if (distance < least / 2) [best, least] = [op, distance * 2];
  }
  if (best !== NONE) return best;
  const { ops } = lane;
  const place = firstPlace(ops.length, (number) => shown.end[ops[number]] > time);
  for (const number of [place - 1, place]) {
    if (number < 0 || number >= ops.length) continue;
    const op = ops[number];
    const distance = Math.max(shown.begin[op] - time, time - shown.end[op], 0);
    if (distance < least || (distance === 0 && best === NONE)) [best, least] = [op, distance];
  }
  return best;
}

export function isWanted(shown, op) {
  const fits = (name) => !only[name] || only[name](shown[name][op]);
  return fits("stage") && fits("microbatch");
}
