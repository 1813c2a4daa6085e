// The part of the time axis that is shown, and how times become pixels.

import { lastMoment } from "./data.js";

export const view = { from: 0, to: 1, width: 0, height: 0, gutter: 100, top: 0, printing: false };
const PADDING = 0.01; // Share of the schedule that is free behind its end.
const CLOSEST = 1e-7; // Least share of the schedule in a window: doubles still tell its pixels apart.

export function fit() {
  view.from = 0;
  view.to = (lastMoment || 1) * (1 + PADDING);
}

export function pixelsPerTime() {
  return (view.width - view.gutter) / (view.to - view.from);
}

export function xOf(time) {
  return view.gutter + (time - view.from) * pixelsPerTime();
}

export function timeAt(x) {
  return view.from + (x - view.gutter) / pixelsPerTime();
}

// Keeps the window inside the schedule, apart from a margin, and not too short for doubles.
function setWindow(from, to) {
  const whole = (lastMoment || 1) * (1 + PADDING);
  const length = Math.min(Math.max(to - from, whole * CLOSEST), whole);
  const first = Math.min(Math.max(from + (to - from - length) / 2, 0), whole - length);
  view.from = first;
  view.to = first + length;
}

export function zoom(factor, x) {
  const fixed = timeAt(x ?? (view.gutter + view.width) / 2);
  setWindow(fixed - (fixed - view.from) / factor, fixed + (view.to - fixed) / factor);
}

export function pan(pixels) {
  const time = pixels / pixelsPerTime();
  const length = view.to - view.from;
  const whole = (lastMoment || 1) * (1 + PADDING);
  const from = Math.min(Math.max(view.from + time, 0), whole - length);
  view.from = from;
  view.to = from + length;
}

// Moves the window so that a time span can be seen.
export function reveal(begin, end) {
  const length = view.to - view.from;
  if (begin >= view.from && end <= view.to) return;
  const middle = (begin + end) / 2;
  const wanted = Math.max(length, (end - begin) * 1.2);
  setWindow(middle - wanted / 2, middle + wanted / 2);
}

// Texts of the axis by their times: steps of 1, 2 or 5 times a power of ten, as many as there is
// room for, with the digits that tell them apart. Wide texts are further apart.
export function axisTimes(widthOf, apart = 90) {
  const room = Math.max(2, (view.width - view.gutter) / apart);
  const rough = (view.to - view.from) / room;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((size) => size >= rough);
  const digits = Math.min(12, Math.max(0, -Math.floor(Math.log10(step))));
  const written = new Intl.NumberFormat("en", { maximumFractionDigits: digits });
  const times = [];
  for (let number = Math.ceil(view.from / step); number * step <= view.to; number++) {
    times.push([number * step, written.format(number * step)]);
  }
  // A text at an edge moves inwards by half of its width.
  const widest = Math.max(...times.map(([, text]) => widthOf(text))) * 1.5 + 10;
  return widest > apart && times.length > 2 ? axisTimes(widthOf, widest) : times;
}
