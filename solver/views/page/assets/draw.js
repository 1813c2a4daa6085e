// Painting: only what can be seen, and only after something changed.

import { NONE, all, chartTexts, shownTime } from "./data.js";
import { TITLE, firstPlace, isExceeded, options, rows, total } from "./lanes.js";
import { axisTimes, pixelsPerTime, view, xOf } from "./view.js";
import { FONT, brief, cut, fitting, hatching, looks, usualForm, widthOf } from "./marks.js";
import { paintLinks, paintTrace } from "./trace.js";

export const axis = document.querySelector("#axis canvas");
export const lanes = document.getElementById("lanes");
export const scroller = document.getElementById("scroll");
// Pixels from which a bar is drawn by itself. Bars of 2 pixels, one by one, took 199 ms a paint of
// 32 x 256 at 1,800 pixels, mixed 9 ms; below 5 no letter fits.
const DIRECT = 5;
export const MOST_LINKS = 3000; // More ops than this: their lines would cover the bars.
const PAPER = 1000; // Pixels across a printed page: letters of 11 pixels stay about 6 points high.
const pens = { axis: axis.getContext("2d"), lanes: lanes.getContext("2d") };
let waiting = false;
const mixed = { red: [], green: [], blue: [], weight: [] };
const stripe = document.createElement("canvas");

export function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    if (waiting) paint();
  });
}

export function resize() {
  view.width = view.printing ? Math.min(PAPER, scroller.clientWidth) : scroller.clientWidth;
  view.gutter = view.width < 600 ? 58 : 104;
  pens.lanes.font = FONT;
  for (const row of rows.filter((each) => each.type === "strip")) {
    const [text, beside] = row.isExceeded ? [row.label, 24] : [brief(row.label), 8];
    view.gutter = Math.max(view.gutter, Math.min(widthOf(pens.lanes, text) + beside, view.width / 3));
  }
  document.getElementById("tall").style.height = `${total}px`;
  const most = view.printing ? total : Math.max(160, Math.round(window.innerHeight * 0.72));
  scroller.style.height = `${Math.min(total, most)}px`;
  view.height = Math.min(total, most);
  sized(axis, view.width, 24);
  sized(lanes, view.width, view.height);
  stripe.width = lanes.width;
  stripe.height = 1;
  for (const name of Object.keys(mixed)) mixed[name] = new Float32Array(lanes.width);
  redraw();
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

export function paint() {
  waiting = false;
  if (!all.length) return;
  const began = performance.now();
  view.top = scroller.scrollTop;
  view.bars = view.labels = 0;
  paintAxis(pens.axis);
  paintLanes(pens.lanes);
  lanes.dataset.from = view.from;
  lanes.dataset.to = view.to;
  lanes.dataset.gutter = view.gutter;
  lanes.dataset.bars = view.bars;
  lanes.dataset.labels = view.labels;
  lanes.dataset.form = all[0].form;
  lanes.dataset.took = performance.now() - began;
  if (!lanes.dataset.first) lanes.dataset.first = performance.now();
}

function paintAxis(pen) {
  pen.fillStyle = looks.back;
  pen.fillRect(0, 0, view.width, 24);
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  pen.fillStyle = looks.faint;
  pen.fillText(chartTexts.unit, 4, 12);
  pen.textAlign = "center";
  const spans = [];
  for (const [time, text] of axisTimes((words) => widthOf(pen, words))) {
    const x = xOf(time);
    const half = widthOf(pen, text) / 2;
    const middle = Math.max(half + 30, Math.min(x, view.width - half - 1));
    spans.push([middle - half, middle + half]);
    pen.fillStyle = looks.text;
    pen.fillText(text, middle, 11);
    pen.fillStyle = looks.line;
    pen.fillRect(Math.round(x), 19, 1, 5);
  }
  lanes.dataset.ticks = JSON.stringify(spans);
}

function paintLanes(pen) {
  pen.fillStyle = looks.back;
  pen.fillRect(0, 0, view.width, view.height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  for (const shown of all) shown.form = usualForm(pen, shown);
  const links = [];
  for (const row of rows) {
    const y = row.y - view.top;
    if (y + row.height < 0 || y > view.height) continue;
    if (row.type === "lane") paintLane(pen, row, y, links);
    else if (row.type === "strip") paintStrip(pen, row, y);
    else paintTitle(pen, row, y);
  }
  paintMoments(pen);
  if (options.links) paintLinks(pen, links);
  paintTrace(pen);
}

// The name of a row, and in an overlay the number of its schedule.
function label(pen, row, y, colour) {
  pen.fillStyle = looks.back;
  pen.fillRect(0, y, view.gutter, row.height);
  pen.fillStyle = colour;
  pen.textAlign = "left";
  pen.fillText(cut(pen, brief(row.label), view.gutter - (row.tag ? 18 : 6)), 4, y + row.height / 2);
  if (!row.tag) return;
  pen.textAlign = "right";
  pen.fillStyle = looks.faint;
  pen.fillText(String(row.tag), view.gutter - 4, y + row.height / 2);
}

function paintTitle(pen, row, y) {
  pen.textAlign = "left";
  pen.fillStyle = looks.text;
  pen.font = `600 ${FONT}`;
  const end = shownTime(all[row.shown].last);
  const number = `${row.shown + 1}  `;
  pen.fillText(cut(pen, `${number}${chartTexts.titles[row.shown]}: ${end}`, view.width - 8), 4, y + TITLE / 2);
  pen.font = FONT;
}

function paintLane(pen, row, y, links) {
  const shown = all[row.shown];
  const lane = shown.lanes[row.lane];
  const height = row.height - 2;
  pen.fillStyle = looks.lane;
  pen.fillRect(view.gutter, y + 1, view.width - view.gutter, height);
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, y, view.width - view.gutter, row.height);
  pen.clip();
  paintOps(pen, shown, lane, y + 1, height, (op) => links.push([row.shown, op]));
  for (const op of lane.points) paintPoint(pen, shown, op, y + 1, height);
  if (shown.spanBound !== null && lane.compute && lane.ops.length) {
    const end = shown.begin[lane.ops[0]] + shown.spanBound;
    upright(pen, end, y, y + row.height, looks.bad, [5, 3]);
  }
  pen.restore();
  label(pen, row, y, looks.text);
}

function paintOps(pen, shown, lane, y, height, note) {
  const { ops } = lane;
  const scale = pixelsPerTime();
  let place = firstPlace(ops.length, (number) => shown.end[ops[number]] > view.from);
  let first = NONE;
  let last = NONE;
  for (; place < ops.length; place++) {
    const op = ops[place];
    if (shown.begin[op] >= view.to) break;
    const x = xOf(shown.begin[op]);
    const width = (shown.end[op] - shown.begin[op]) * scale;
    if (options.links) note(op);
    if (options.slack && shown.slack[op] > 0) paintSlack(pen, shown, op, y, height);
    if (width >= DIRECT) {
      paintBar(pen, shown, op, x, width, y, height);
    } else {
      mix(shown, op, x, width);
      if (first === NONE) first = Math.floor(x);
      last = Math.ceil(x + width);
    }
  }
  if (first !== NONE) paintMixed(pen, first, last, y, height);
}

// Ops narrower than some pixels share them: each column of the screen shows their colours by their
// time in it, and the idle part as idle.
function mix(shown, op, x, width) {
  const ratio = lanes.width / view.width;
  const [red, green, blue] = shown.tones[shown.kind[op]][shown.chunk[op]].rgb;
  const begin = x * ratio;
  const end = Math.min(begin + width * ratio, mixed.weight.length);
  for (let column = Math.max(0, Math.floor(begin)); column < end; column++) {
    const share = (Math.min(end, column + 1) - Math.max(begin, column)) * shown.alpha[op];
    mixed.red[column] += red * share;
    mixed.green[column] += green * share;
    mixed.blue[column] += blue * share;
    mixed.weight[column] += share;
  }
}

function paintMixed(pen, x, end, y, height) {
  const ratio = lanes.width / view.width;
  const first = Math.max(0, Math.floor(x * ratio));
  const last = Math.min(mixed.weight.length, Math.ceil(end * ratio) + 1);
  if (last <= first) return;
  const source = stripe.getContext("2d");
  const picture = source.createImageData(last - first, 1);
  for (let column = first, at = 0; column < last; column++, at += 4) {
    const weight = mixed.weight[column];
    if (weight > 0) {
      picture.data[at] = mixed.red[column] / weight;
      picture.data[at + 1] = mixed.green[column] / weight;
      picture.data[at + 2] = mixed.blue[column] / weight;
      picture.data[at + 3] = Math.min(1, weight) * 255;
    }
    mixed.red[column] = mixed.green[column] = mixed.blue[column] = mixed.weight[column] = 0;
  }
  source.putImageData(picture, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(stripe, 0, 0, last - first, 1, first / ratio, y, (last - first) / ratio, height);
}

function paintBar(pen, shown, op, x, width, y, height) {
  const tone = shown.tones[shown.kind[op]][shown.chunk[op]];
  const left = Math.max(x, view.gutter - 4);
  const seen = Math.min(x + width, view.width + 4) - left;
  pen.globalAlpha = shown.alpha[op];
  pen.fillStyle = tone.fill;
  pen.fillRect(left, y, seen - (width >= DIRECT ? 1 : 0), height);
  if (shown.kinds[shown.kind[op]].hatched) {
    pen.fillStyle = hatching(pen);
    pen.fillRect(left, y, seen - 1, height);
  }
  const text = fitting(pen, shown, op, seen - 1);
  view.bars += 1;
  if (text) {
    view.labels += 1;
    pen.fillStyle = tone.ink;
    pen.textAlign = "center";
    pen.fillText(text, left + seen / 2, y + height / 2 + 0.5, seen - 1);
  }
  pen.globalAlpha = 1;
}

function paintPoint(pen, shown, op, y, height) {
  const time = shown.begin[op];
  if (time < view.from || time > view.to) return;
  pen.globalAlpha = shown.alpha[op];
  pen.fillStyle = looks.text;
  const x = xOf(time);
  pen.beginPath();
  pen.moveTo(x - 3, y);
  pen.lineTo(x + 3, y);
  pen.lineTo(x, y + height / 3);
  pen.fill();
  pen.globalAlpha = 1;
}

function paintSlack(pen, shown, op, y, height) {
  const x = xOf(shown.end[op]);
  pen.fillStyle = looks.mark;
  pen.globalAlpha = 0.8;
  pen.fillRect(x, y + height - 3, shown.slack[op] * shown.tick * pixelsPerTime(), 3);
  pen.globalAlpha = 1;
}

// Ends, bounds and iterations: lines through all lanes of a schedule.
function paintMoments(pen) {
  const own = (number) => rows.filter((row) => row.shown === number && row.type !== "title");
  all.forEach((shown, number) => {
    const mine = options.overlay ? rows.filter((row) => row.type !== "title") : own(number);
    if (!mine.length) return;
    const top = mine[0].y - view.top;
    const bottom = mine[mine.length - 1].y + mine[mine.length - 1].height - view.top;
    if (shown.period) paintPeriods(pen, shown, top, bottom);
    upright(pen, shown.last, top, bottom, looks.faint, []);
    if (shown.bound !== null) upright(pen, shown.bound, top, bottom, looks.bad, [5, 3]);
  });
}

function upright(pen, time, top, bottom, colour, dashes) {
  const x = xOf(time);
  if (x < view.gutter || x > view.width) return;
  pen.strokeStyle = colour;
  pen.setLineDash(dashes);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, Math.max(0, top));
  pen.lineTo(x, Math.min(view.height, bottom));
  pen.stroke();
  pen.setLineDash([]);
  pen.lineWidth = 1;
}

function paintPeriods(pen, shown, top, bottom) {
  if (shown.period * pixelsPerTime() < 8) return;
  const first = Math.max(1, Math.ceil(view.from / shown.period));
  for (let turn = first; turn * shown.period <= Math.min(view.to, shown.last); turn++) {
    upright(pen, turn * shown.period, top, bottom, looks.faint, [2, 3]);
  }
}

function paintStrip(pen, row, y) {
  const shown = all[row.shown];
  const strip = shown.strips[row.strip];
  const most = Math.max(strip.most, strip.cap ?? 0) || 1;
  const floor = y + row.height - 2;
  const high = (amount) => floor - (amount / most) * (row.height - 4);
  pen.fillStyle = looks.strip;
  pen.beginPath();
  const past = firstPlace(strip.time.length, (number) => strip.time[number] > view.from);
  let right = view.gutter;
  let level = floor;
  pen.moveTo(right, floor);
  for (let number = Math.max(0, past - 1); number < strip.time.length; number++) {
    if (strip.time[number] > view.to) break;
    const next = number + 1 < strip.time.length ? strip.time[number + 1] : shown.last;
    const top = high(strip.amount[number]);
    const x = Math.max(view.gutter, xOf(strip.time[number]));
    pen.lineTo(x, level);
    pen.lineTo(x, top);
    level = top;
    right = Math.min(view.width, Math.max(view.gutter, xOf(next)));
    pen.lineTo(right, top);
  }
  pen.lineTo(right, floor);
  pen.fill();
  if (strip.cap !== null) {
    pen.fillStyle = isExceeded(strip) ? looks.bad : looks.faint;
    pen.fillRect(view.gutter, high(strip.cap), view.width - view.gutter, 1);
  }
  label(pen, row, y, isExceeded(strip) ? looks.bad : looks.faint);
}
