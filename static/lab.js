// A run: its figures and curves while it goes on, its curves when it is over. The page can be read
// without this; then it reloads itself.

const live = document.getElementById("live");
const charts = new Set();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// One chart; `columns` are times, stock, sold and oversold.
function chart(box, columns) {
  const line = (label, stroke, more) => ({
    label, stroke: colour(stroke), points: { show: false }, value: (_, count) => count?.toLocaleString("en") ?? "–", ...more,
  });
  const axis = () => ({
    stroke: colour("--quiet"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
  });
  const draw = () => {
    const options = {
      width: Math.max(box.clientWidth, 120),
      height: 220,
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (_, least, most) => [Math.min(0, least), Math.max(1, most * 1.05)] } },
      axes: [{ ...axis(), values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis(), size: 56 }],
      series: [
        { label: "after", value: (_, t) => (t == null ? "–" : `${t.toFixed(1)} s`) },
        line("stock", "--accent", { width: 2.5 }),
        line("sold", "--ink", { width: 2, dash: [7, 4] }),
        line("oversold", "--danger", { width: 2, dash: [2, 3] }),
      ],
    };
    return new uPlot(options, made.columns, box);
  };
  const made = {
    columns,
    redraw() {
      made.plot.destroy();
      made.plot = draw();
    },
    set(fresh) {
      made.columns = fresh;
      made.plot.setData(fresh);
    },
    fit() {
      const width = Math.max(box.clientWidth, 120);
      if (width !== made.plot.width) made.plot.setSize({ width, height: 220 });
    },
  };
  made.plot = draw();
  new ResizeObserver(() => made.fit()).observe(box);
  charts.add(made);
  return made;
}

function curves() {
  if (!window.uPlot) return;
  for (const box of document.querySelectorAll("[data-curve]")) chart(box, JSON.parse(box.dataset.curve));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const made of charts) made.redraw();
  });
}

// The run that goes on, as it is told ten times a second; drawn once a frame, however often.
function follow() {
  const arms = new Map();
  const money = { sold: true, stock: true, oversold: true };
  const said = document.getElementById("said");
  const connection = document.getElementById("connection");
  const state = document.getElementById("state");
  let newest = null;

  function figure(name, value, pays) {
    if (name.endsWith("_ms")) return value >= 100 ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
    if (pays && money[name]) return (value / 100).toFixed(2);
    return value.toLocaleString("en");
  }

  function curve(progress, pays) {
    if (!window.uPlot || progress.samples.length < 2) return;
    const by = pays ? 100 : 1;
    const column = (of) => progress.samples.map(of);
    const columns = [
      column((s) => s.t_ms / 1000), column((s) => s.stock / by),
      column((s) => s.sold / by), column((s) => s.oversold / by),
    ];
    if (arms.has(progress.arm)) return arms.get(progress.arm).set(columns);
    const place = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = `${progress.strategy}: stock (line), sold (dashes), oversold (dots)`;
    const box = document.createElement("div");
    box.className = "curve";
    place.append(caption, box);
    document.getElementById("curves").append(place);
    arms.set(progress.arm, chart(box, columns));
  }

  function show() {
    const { progress, wanted } = newest;
    newest = null;
    const pays = wanted.journey === "pay";
    const last = progress.samples.at(-1);
    if (last) {
      document.getElementById("now").hidden = false;
      for (const cell of live.querySelectorAll("[data-figure]")) {
        const name = cell.dataset.figure;
        cell.textContent = figure(name, last[name], pays);
        if (name === "oversold") cell.classList.toggle("off", last.oversold > 0);
      }
    }
    document.getElementById("arm").textContent =
      progress.arms > 1 ? `${progress.strategy}, ${progress.arm + 1} of ${progress.arms}` : progress.strategy;
    for (const text of progress.said.slice(said.children.length)) {
      const item = document.createElement("li");
      item.textContent = text;
      said.append(item);
    }
    curve(progress, pays);
  }

  const events = new EventSource(`/api/lab/runs/${live.dataset.run}/events`);
  events.addEventListener("run", (event) => {
    const run = JSON.parse(event.data);
    connection.textContent = run.state === "queued" ? "It is about to begin." : "";
    const standing = run.state === "queued" ? "◔ waits to begin" : "◑ goes on";
    if (state.textContent.trim() !== standing) state.textContent = standing;
    if (run.state === "done" || run.state === "failed") {
      events.close();
      // Everything it rests on is drawn by the shop.
      location.replace(location.pathname);
      return;
    }
    const waits = newest !== null;
    newest = run;
    if (!waits) requestAnimationFrame(show);
  });
  events.addEventListener("error", () => {
    connection.textContent =
      events.readyState === EventSource.CLOSED
        ? "This page is cut off from the run. Reload it to go on."
        : "The replica does not answer; asking again.";
  });
}

curves();
if (live) follow();
