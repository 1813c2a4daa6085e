// Chains of ops: what the chosen one waited for back to the start, and what waits for it.

import { BY_MEMORY, NONE, all, nameOf } from "./data.js";
import { isWanted, options, rowOf, rows } from "./lanes.js";
import { view, xOf } from "./view.js";
import { looks } from "./marks.js";
import { MOST_LINKS, lanes, redraw } from "./draw.js";

export let chosen = null;

// The ops that start the moment an op lets them: by data, by order on a stream, by memory.
function waiters(shown) {
  if (shown.waiters) return shown.waiters;
  shown.waiters = Array.from({ length: shown.count }, () => []);
  const { pointer, op: needed, lag } = shown.needs;
  const note = (before, after, delay) => {
    if (shown.start[before] + shown.duration[before] + delay !== shown.start[after]) return;
    shown.waiters[before].push(after);
  };
  for (let op = 0; op < shown.count; op++) {
    for (let at = pointer[op]; at < pointer[op + 1]; at++) note(needed[at], op, lag ? lag[at] : 0);
    if (shown.why[op] === BY_MEMORY) shown.waiters[shown.cause[op]].push(op);
  }
  for (const { ops } of shown.lanes) {
    for (let place = 1; place < ops.length; place++) note(ops[place - 1], ops[place], 0);
  }
  return shown.waiters;
}

// Ops from the first to `op`, each the last thing that the next one waited for.
function chainTo(shown, op) {
  const chain = [op];
  while (shown.cause[chain[chain.length - 1]] !== NONE && chain.length <= shown.count) {
    chain.push(shown.cause[chain[chain.length - 1]]);
  }
  return chain.reverse();
}

// Ops that a delay of `op` would move at once, and those that these would move.
function movedBy(shown, op) {
  const moved = new Set();
  const open = [op];
  while (open.length) {
    for (const next of waiters(shown)[open.pop()]) {
      if (moved.has(next)) continue;
      moved.add(next);
      open.push(next);
    }
  }
  return [...moved];
}

export function neededBy(shown, op) {
  return shown.needs.op.slice(shown.needs.pointer[op], shown.needs.pointer[op + 1]);
}

export function choose(number, op) {
  if (number === null || op === NONE) {
    chosen = null;
  } else {
    const shown = all[number];
    chosen = { number, op, chain: chainTo(shown, op), moved: movedBy(shown, op) };
  }
  lanes.dataset.chosen = chosen ? nameOf(all[chosen.number], chosen.op) : "";
  lanes.dataset.chain = chosen ? chosen.chain.length : 0;
  lanes.dataset.moved = chosen ? chosen.moved.length : 0;
  refresh();
}

// How strongly each op is drawn, by filters, the critical path and the chosen op.
export function refresh() {
  all.forEach((shown, number) => {
    const isTraced = chosen !== null && chosen.number === number;
    const base = isTraced ? 0.25 : 1;
    for (let op = 0; op < shown.count; op++) {
      let alpha = base;
      if (options.critical && !isTraced && shown.slack[op] > 0) alpha = 0.22;
      if (!isWanted(shown, op)) alpha = 0.1;
      shown.alpha[op] = alpha;
    }
    if (isTraced) for (const op of [...chosen.chain, ...chosen.moved]) shown.alpha[op] = 1;
  });
  redraw();
}

// Where an op is drawn; null where its lane is hidden.
export function boxOf(number, op) {
  const shown = all[number];
  const place = shown.home[op] === NONE ? NONE : rowOf[number][shown.home[op]];
  if (place === NONE) return null;
  const row = rows[place];
  return {
    left: xOf(shown.begin[op]), right: xOf(shown.end[op]), top: row.y - view.top + 1,
    height: row.height - 2, low: row.y - view.top + row.height - 4,
  };
}

function inside(pen, action) {
  pen.save();
  pen.beginPath();
  pen.rect(view.gutter, 0, view.width - view.gutter, view.height);
  pen.clip();
  action();
  pen.restore();
}

export function paintTrace(pen) {
  inside(pen, () => {
    if (options.critical) {
      all.forEach((shown, number) => line(pen, number, shown.path, looks.bad, 1.5));
    }
    if (!chosen) return;
    const { number, op, chain } = chosen;
    for (const need of neededBy(all[number], op)) line(pen, number, [need, op], looks.faint, 1);
    line(pen, number, chain, looks.text, 2);
    const box = boxOf(number, op);
    if (!box) return;
    pen.strokeStyle = looks.text;
    pen.lineWidth = 2.5;
    pen.strokeRect(box.left, box.top, Math.max(2, box.right - box.left), box.height);
    pen.lineWidth = 1;
  });
}

// A line through the ops of a chain, along the foot of each to the next.
function line(pen, number, chain, colour, width) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  let begun = false;
  for (const op of chain) {
    const box = boxOf(number, op);
    if (!box) continue;
    if (begun) pen.lineTo(box.left, box.low);
    else pen.moveTo(box.left, box.low);
    pen.lineTo(box.right, box.low);
    begun = true;
  }
  pen.stroke();
  pen.lineWidth = 1;
}

export function paintLinks(pen, links) {
  lanes.dataset.links = links.length;
  if (links.length > MOST_LINKS) return;
  inside(pen, () => {
    pen.strokeStyle = looks.faint;
    pen.beginPath();
    for (const [number, op] of links) {
      const shown = all[number];
      const to = boxOf(number, op);
      for (const need of neededBy(shown, op)) {
        const from = shown.home[need] === shown.home[op] ? null : boxOf(number, need);
        if (!from || !to) continue;
        pen.moveTo(from.right, from.low);
        pen.lineTo(to.left, to.low);
      }
    }
    pen.stroke();
  });
}
