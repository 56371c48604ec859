"use strict";
// Asks for the state once a second and draws it. All text is set as text, never as markup.

const GIB = 2 ** 30;
const COLOURS = { first: "#2E8BC9", second: "#E69F00" };
const KV = [
  ["token_states_bytes", "#3B7D6E", "token states"], ["unfilled_bytes", "#F0C45C", "unfilled"],
  ["rounding_bytes", "#7E6AA5", "rounding"], ["cached_bytes", "#A5D6C1", "cached"],
  ["free_bytes", "#B4B9C0", "free"],
];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function key(colour, label) {
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = colour;
  return element("span", { class: "key" }, swatch, label);
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function number(value, digits = 0) {
  return value === null || value === undefined ? "-" :
    value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function shareDone(cell, state) {
  const now = cell.now;
  if (state.duration_s) return Math.min(1, (now.at_s || 0) / state.duration_s);
  return now.expected ? Math.min(1, now.ended / now.expected) : 0;
}

function curves(cell, names, caption, scale, unit) {
  const series = names.map(({ index }) => cell.points.map((point) => point[index]));
  const known = series.flat().filter((value) => value !== null);
  const top = Math.max(...known, 1e-9);
  const last = cell.points.length ? cell.points[cell.points.length - 1][0] : 1;
  const svg = drawn("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img" });
  names.forEach(({ colour }, i) => {
    const points = cell.points
      .filter((point, j) => series[i][j] !== null)
      .map((point) => `${(300 * point[0]) / (last || 1)},${98 - (94 * point[names[i].index]) / top}`);
    svg.append(drawn("polyline", {
      points: points.join(" "), fill: "none", stroke: colour, "stroke-width": 1.6,
      "vector-effect": "non-scaling-stroke" }));
  });
  const text = `${caption}, most ${number(top * scale, top * scale < 10 ? 2 : 0)} ${unit}`.trim();
  svg.setAttribute("aria-label", text);
  const legend = names.map(({ colour, label }) => key(colour, label));
  return element("figure", {}, element("figcaption", {}, ...legend, ` (${text})`), svg);
}

function kvBar(now) {
  const total = KV.reduce((sum, [term]) => sum + (now.kv_bytes[term] || 0), 0) || 1;
  const svg = drawn("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img" });
  let left = 0;
  const legend = [];
  for (const [term, colour, label] of KV) {
    const share = (now.kv_bytes[term] || 0) / total;
    svg.append(drawn("rect", { x: 300 * left, y: 0, width: 300 * share, height: 100, fill: colour }));
    left += share;
    legend.push(key(colour, `${label} ${(100 * share).toFixed(0)} %`));
  }
  svg.setAttribute("aria-label", "Shares of the KV budget now");
  return element("figure", {}, element("figcaption", {}, "KV budget now: ", ...legend), svg);
}

function memoryMap(map) {
  const columns = 64, rows = Math.ceil(map.length / columns);
  const canvas = element("canvas", { width: columns, height: rows || 1, role: "img",
    "aria-label": "How full each part of reserved memory is, in order of address" });
  const context = canvas.getContext("2d");
  map.forEach((percent, i) => {
    context.fillStyle = `rgb(${[0, 114, 178].map((c) => Math.round(232 + ((c - 232) * percent) / 100))})`;
    context.fillRect(i % columns, Math.floor(i / columns), 1, 1);
  });
  const text = "Memory map: reserved memory in order of address, row by row; dark is held, light is free";
  return element("figure", {}, element("figcaption", {}, text), canvas);
}

function cellView(cell, state) {
  const now = cell.now, at = (name) => state.curves.indexOf(name);
  const view = element("article", { class: "cell" }, element("h3", {}, cell.name));
  if (!Object.keys(now).length) {
    view.append(element("p", { class: "facts-line" }, `starting, ${duration(cell.wall_s)}`));
    return view;
  }
  const of = now.expected ? ` of ${number(now.expected)}` : "";
  const gap = now.reserved_bytes === null ? "-" :
    `${number((now.reserved_bytes - now.allocated_bytes) / GIB, 2)} GiB`;
  view.append(
    element("p", { class: "facts-line" },
      `${number(now.ended)}${of} requests ended, ${number(now.running)} running, ` +
      `${number(now.waiting)} waiting; ${duration(now.at_s)} on its clock in ${duration(cell.wall_s)}; ` +
      `reserved - allocated ${gap}; ${number(now.incidents)} incidents`),
    element("progress", { max: 1, value: shareDone(cell, state), "aria-label": `Share of ${cell.name} done` }));
  const plots = element("div", { class: "plots" });
  plots.append(
    curves(cell, [{ index: at("running"), colour: COLOURS.first, label: "running" },
      { index: at("waiting"), colour: COLOURS.second, label: "waiting" }], "requests", 1, ""),
    curves(cell, [{ index: at("reserved_bytes"), colour: COLOURS.second, label: "reserved" },
      { index: at("allocated_bytes"), colour: COLOURS.first, label: "allocated" }], "memory", 1 / GIB, "GiB"),
    curves(cell, [{ index: at("kv_held_share"), colour: COLOURS.first, label: "KV held" }], "of the budget", 100, "%"));
  if (now.kv_bytes) plots.append(kvBar(now));
  if (now.memory_map && now.memory_map.length) plots.append(memoryMap(now.memory_map));
  view.append(plots);
  return view;
}

let shownResults = -1;

async function showResults(ended) {
  if (ended === shownResults) return;
  shownResults = ended;
  const answer = await fetch("/results");
  document.getElementById("results").innerHTML = await answer.text(); // escaped by the server
}

function tell(text) { // to those who hear the page: when something ended, not each second
  const told = document.getElementById("told");
  if (told.textContent !== text) told.textContent = text;
}

function show(state) {
  tell(`${state.ended} of ${state.total} done`);
  document.getElementById("title").textContent = state.title;
  const running = state.running.map((cell) => shareDone(cell, state)).reduce((a, b) => a + b, 0);
  const share = Math.min(1, (state.ended + running) / state.total);
  const left = share > 0.02 ? `, about ${duration((state.wall_s / share) * (1 - share))} left` : "";
  document.getElementById("head").textContent =
    `${state.ended} of ${state.total} done, ${state.running.length} running, ${duration(state.wall_s)} so far${left}`;
  document.getElementById("whole").value = share;
  document.getElementById("notes").textContent = state.notes.join(" · ");
  document.getElementById("running").replaceChildren(...state.running.map((cell) => cellView(cell, state)));
  document.getElementById("done").replaceChildren(...state.done.map((cell) => element("li",
    cell.status === "completed" ? {} : { class: "bad" },
    `${cell.name}: ${cell.status} in ${duration(cell.wall_s)}${cell.cause ? `: ${cell.cause}` : ""}`)));
}

let unanswered = 0;

async function follow() {
  let state;
  try {
    state = await (await fetch("/state")).json();
    unanswered = 0;
  } catch {
    unanswered += 1;
    if (unanswered < 3) setTimeout(follow, 1000); // once may be chance
    else ended();
    return;
  }
  show(state);
  await showResults(state.ended).catch(() => {}); // the next state says whether that was the end
  setTimeout(follow, 1000);
}

function ended() {
  const text = "The command has ended: what it wrote is in its folder.";
  document.getElementById("head").textContent = text;
  document.getElementById("running").replaceChildren(); // it is not known any more
  tell(text);
}

follow();
