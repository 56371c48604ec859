"use strict";
// Sorting of tables, and hiding of backends and workloads. Without a script all is shown.

function cellValue(row, column) {
  const cell = row.cells[column];
  const number = cell.dataset.value;
  return number === undefined ? null : Number(number);
}

function compare(a, b, column, sign) {
  const x = cellValue(a, column), y = cellValue(b, column);
  if (x !== null && y !== null) return sign * (x - y);
  if (x !== null || y !== null) return x !== null ? -1 : 1; // undefined comes last
  return sign * a.cells[column].textContent.localeCompare(b.cells[column].textContent);
}

function sortBy(table, column, button) {
  const head = button.closest("th");
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) => compare(a, b, column, descending ? -1 : 1));
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(table, column, button));
    head.append(button);
  });
}

function hideUnchecked(kind) {
  const boxes = [...document.querySelectorAll(`#filters input[name=${kind}]`)];
  if (!boxes.length) return; // there is only one
  const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  for (const part of document.querySelectorAll(`main [data-${kind}]`)) {
    part.classList.toggle(`no-${kind}`, !shown.has(part.dataset[kind]));
  }
}

const filters = document.getElementById("filters");
if (filters) {
  filters.hidden = false;
  filters.addEventListener("change", (event) => hideUnchecked(event.target.name));
  filters.addEventListener("reset", () => setTimeout(() => {
    hideUnchecked("workload");
    hideUnchecked("backend");
  }));
  for (const kind of ["workload", "backend"]) hideUnchecked(kind); // what the browser remembered
}
