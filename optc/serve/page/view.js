// What the page shows, and how it asks for it.
const EVERY_MS = 1000;
const byId = (id) => document.getElementById(id);
const made = (name, text = "", kind = "") => {
  const one = document.createElement(name);
  one.textContent = text;
  if (kind) one.className = kind;
  return one;
};
let key = "", states = [];
const headers = (more = {}) => (key ? { authorization: `Bearer ${key}`, ...more } : more);

function chosen() {
  return byId("models").value;
}

function modelOf(state) {
  return state.models.find((one) => one.name === chosen());
}

// The latest state, and the one of some seconds before it.
function pair(seconds) {
  const known = states.filter(modelOf);
  const last = known.at(-1);
  if (!last) return null;
  const first = known.find((one) => one.now_s >= last.now_s - seconds);
  return { before: modelOf(first), after: modelOf(last), seconds: last.now_s - first.now_s };
}

function showModels(state) {
  const select = byId("models"), names = state.models.map((one) => one.name);
  if (names.join("\n") === [...select.options].map((one) => one.value).join("\n")) return;
  const before = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(before)) select.value = before;
  byId("models-label").hidden = names.length < 2;
}

function showTiles() {
  const now = pair(5);
  if (!now) return;
  const tiles = tilesOf(now.before, now.after, now.seconds);
  byId("tiles").replaceChildren(...Object.entries(tiles).map(([name, value]) => {
    const tile = made("div");
    tile.append(made("dt", name), made("dd", value));
    return tile;
  }));
}

function showLatencies() {
  const now = pair(MINUTE);
  if (!now) return;
  byId("latencies").replaceChildren(...Object.entries(LATENCIES).map(([name, label]) => {
    const row = made("tr"), [a, b] = [now.before.latencies[name], now.after.latencies[name]];
    const head = made("th", label);
    head.scope = "row";
    row.append(head, ...[0.5, 0.9, 0.99].map((one) => made("td", duration(quantile(a, b, one)))));
    return row;
  }));
}

function chart(label, values, shown) {
  const figure = made("figure"), caption = made("figcaption", label);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const top = Math.max(...values, 1e-9), step = 100 / Math.max(1, values.length - 1);
  line.setAttribute("points", values.map((value, i) =>
    `${(i * step).toFixed(2)},${(38 - 36 * value / top).toFixed(2)}`).join(" "));
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${label}: now ${shown(values.at(-1))}, at most ${shown(top)}`);
  svg.append(line);
  caption.append(made("span", `at most ${shown(top)}`));
  figure.append(caption, svg);
  return figure;
}

function showCharts() {
  const known = states.filter(modelOf);
  if (known.length < 3) return;
  const steps = known.slice(1).map((state, i) => ({
    before: modelOf(known[i]), after: modelOf(state), seconds: state.now_s - known[i].now_s }));
  const tokens = steps.map((one) =>
    rate(one.before.output_tokens, one.after.output_tokens, one.seconds));
  byId("charts").replaceChildren(
    chart("output, tok/s", tokens, (value) => number(value)),
    chart("queue", steps.map((one) => one.after.waiting), (value) => number(value)),
    chart("KV use", steps.map((one) => one.after.kv_use), percent));
}

function show(state) {
  byId("state").textContent = state.state;
  byId("state").className = state.state === "ready" ? "" : "bad";
  byId("version").textContent = state.version;
  byId("uptime").textContent = `up ${duration(state.uptime_s)}`;
  showModels(state);
  showTiles();
  showLatencies();
  showCharts();
}

async function look() {
  if (document.hidden) return;
  let answer;
  try {
    answer = await fetch("status", { headers: headers(), cache: "no-store" });
  } catch {
    byId("state").textContent = "no answer";
    byId("state").className = "bad";
    return;
  }
  byId("key-form").hidden = answer.status !== 401;
  if (!answer.ok) {
    byId("state").textContent = answer.status === 401 ? "a key is needed" : `${answer.status}`;
    byId("state").className = "bad";
    return;
  }
  const state = await answer.json();
  if (states.length && state.uptime_s < states.at(-1).uptime_s) states = []; // a new server
  states = [...states, state].filter((one) => one.now_s > state.now_s - KEPT);
  show(state);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  look();
});
byId("models").addEventListener("change", () => show(states.at(-1)));
look();
setInterval(look, EVERY_MS);
