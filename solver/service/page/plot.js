// Small line charts as SVG: a few lines, an axis each way, a mark.

import { figure } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 62, right: 14, top: 12, bottom: 38 };

export function drawn(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function span(numbers, padding) {
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const room = (high - low || Math.abs(high) || 1) * padding;
  return [low - room, high + room];
}

// `lines`: [{ points: [[x, y], ...], className, isStep }]; `mark`: an x; `onPick`: called with the
// x of the point that is clicked.
export function plot({ lines, label, below, title, mark, onPick, width = 420, height = 190 }) {
  const points = lines.flatMap((line) => line.points);
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "plot" });
  picture.append(drawn("title", {}, title));
  if (!points.length) return picture;
  const xs = span(points.map(([x]) => x), 0);
  const ys = span(points.map(([, y]) => y), 0.08);
  const right = width - MARGIN.right;
  const floor = height - MARGIN.bottom;
  const xOf = (x) => MARGIN.left + ((x - xs[0]) / (xs[1] - xs[0] || 1)) * (right - MARGIN.left);
  const yOf = (y) => floor - ((y - ys[0]) / (ys[1] - ys[0])) * (floor - MARGIN.top);
  const text = (x, y, words, anchor = "middle") => drawn("text", { x, y, "text-anchor": anchor }, words);
  const values = points.map(([, y]) => y);
  for (const value of new Set([Math.min(...values), Math.max(...values)])) {
    picture.append(drawn("line", { x1: MARGIN.left, x2: right, y1: yOf(value), y2: yOf(value), class: "grid" }));
    picture.append(text(MARGIN.left - 6, yOf(value) + 4, figure(value), "end"));
  }
  picture.append(text(xOf(xs[0]), floor + 16, figure(Number(xs[0].toPrecision(3)))));
  if (xs[1] > xs[0]) picture.append(text(right, floor + 16, figure(Number(xs[1].toPrecision(3))), "end"));
  picture.append(text((MARGIN.left + right) / 2, height - 6, below), text(6, 10, label, "start"));
  if (mark !== undefined && mark >= xs[0] && mark <= xs[1]) {
    picture.append(drawn("line", { x1: xOf(mark), x2: xOf(mark), y1: MARGIN.top, y2: floor, class: "mark" }));
  }
  for (const { points: places, className, isStep } of lines) {
    const path = places.map(([x, y], at) => {
      const place = `${xOf(x).toFixed(1)} ${yOf(y).toFixed(1)}`;
      if (!at) return `M${place}`;
      return isStep ? `H${xOf(x).toFixed(1)}V${yOf(y).toFixed(1)}` : `L${place}`;
    });
    picture.append(drawn("path", { d: path.join(""), class: `line ${className}` }));
    if (isStep) continue;
    for (const [x, y] of places) picture.append(drawn("circle", { cx: xOf(x), cy: yOf(y), r: 2.5, class: className }));
  }
  if (onPick) addPicks(picture, [...new Set(points.map(([x]) => x))], xOf, floor, onPick);
  return picture;
}

// Upright stripes around each x, so that a click anywhere picks the nearest one.
function addPicks(picture, xs, xOf, floor, onPick) {
  xs.sort((one, other) => one - other).forEach((x, at) => {
    const left = at ? (xOf(xs[at - 1]) + xOf(x)) / 2 : xOf(x) - 8;
    const right = at + 1 < xs.length ? (xOf(x) + xOf(xs[at + 1])) / 2 : xOf(x) + 8;
    const stripe = drawn("rect", { x: left, y: 0, width: right - left, height: floor, class: "pick" });
    stripe.append(drawn("title", {}, figure(x)));
    stripe.addEventListener("click", () => onPick(x));
    picture.append(stripe);
  });
}
