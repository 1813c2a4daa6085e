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
