"""The fixed parts of the HTML page: its style, and the script that sorts tables."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --dim: #59636e; --line: #d5dae0; --paper: #ffffff; --shade: #f4f6f8;
  --alarm: #b42318; --good: #1a7f37; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ec; --dim: #9aa4af; --line: #363d45; --paper: #14181c; --shade: #1e242a;
  --alarm: #ff8a7d; --good: #5fd37a; --link: #7cb8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem; max-width: 90rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; max-width: 60rem; }
.dim, footer { color: var(--dim); }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.facts li { background: var(--shade); border: 1px solid var(--line); border-radius: .5rem;
  padding: .5rem .9rem; min-width: 6.5rem; }
.facts b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--dim); font-size: .85rem; }
.facts li.alarm b, .alarm > h2 { color: var(--alarm); }
section.alarm { border-left: 4px solid var(--alarm); padding-left: 1rem; margin-top: 1.5rem; }
.wide { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; }
th { background: var(--shade); font-weight: 600; white-space: normal; vertical-align: bottom;
  min-width: 4.6rem; }
th.text, td.text { text-align: left; }
th:first-child { min-width: 0; }
td.long { white-space: normal; min-width: 13rem; max-width: 34rem; overflow-wrap: anywhere; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
th:first-child { background: var(--shade); }
tbody tr:hover td { background: var(--shade); }
th span { cursor: pointer; }
th span:focus-visible, summary:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] span::after { content: " \\2191"; }
th[aria-sort=descending] span::after { content: " \\2193"; }
figure { margin: .5rem 0; max-width: 44rem; }
figure svg { display: block; width: 100%; height: auto; }
details { border-top: 1px solid var(--line); padding: .3rem 0; }
summary { cursor: pointer; padding: .4rem 0; font-weight: 600; overflow-wrap: anywhere; }
footer { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: .75rem;
  font-size: .9rem; }
@media (max-width: 40rem) { body { padding: .75rem; } th, td { padding: .25rem .45rem; }
  td.long { min-width: 9rem; }
  th:first-child, td:first-child { min-width: 5.5rem; max-width: 9.5rem; white-space: normal;
    overflow-wrap: anywhere; }
  .facts li { flex: 1 1 6rem; min-width: 0; padding: .5rem .6rem; } }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  :root { --ink: #000; --dim: #444; --line: #bbb; --paper: #fff; --shade: #f2f2f2;
    --alarm: #a00; --good: #060; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  .wide { overflow: visible; } table { font-size: 7pt; }
  th, td { padding: .1rem .25rem; } th { min-width: 0; }
  td.long, td.text:last-child { white-space: normal; min-width: 5rem; overflow-wrap: anywhere; }
  th:first-child, td:first-child { position: static; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  figure { max-width: 13cm; } thead { display: table-header-group; }
}
"""

SCRIPT = """
for (const table of document.querySelectorAll("table")) {
  table.querySelectorAll("th").forEach((head, place) => {
    const button = document.createElement("span");
    button.tabIndex = 0;
    button.setAttribute("role", "button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, head, place));
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(table, head, place);
    });
  });
}
function sort(table, head, place) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const isText = head.classList.contains("text");
  const figure = (row) => {
    const cell = row.cells[place];
    if (isText) return cell.textContent;
    return cell.dataset.order === undefined ? null : Number(cell.dataset.order);
  };
  const rows = [...body.rows].sort((one, other) => {
    const [a, b] = [figure(one), figure(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    const order = isText ? a.localeCompare(b, undefined, {numeric: true}) : a - b;
    return up ? order : -order;
  });
  body.append(...rows);
}
let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => { for (const one of closed) one.open = false; });
"""
