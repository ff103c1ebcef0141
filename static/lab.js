// The page of a run: live figures and curves during the run, curves afterwards. Without this script
// the page reloads itself during the run.

const live = document.getElementById("live");
const charts = new Set();

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Draws one chart; `columns` are times, stock, sold and oversold.
function createChart(box, columns) {
  const series = (label, stroke, more) => ({
    label, stroke: color(stroke), points: { show: false }, value: (_, count) => count?.toLocaleString("en") ?? "–", ...more,
  });
  const axis = () => ({
    stroke: color("--quiet"),
    font: "12px system-ui, sans-serif",
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  });
  const plot = () => {
    const options = {
      width: Math.max(box.clientWidth, 120),
      height: 220,
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (_, min, max) => [Math.min(0, min), Math.max(1, max * 1.05)] } },
      axes: [{ ...axis(), values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis(), size: 56 }],
      series: [
        { label: "after", value: (_, t) => (t == null ? "–" : `${t.toFixed(1)} s`) },
        series("stock", "--accent", { width: 2.5 }),
        series("sold", "--ink", { width: 2, dash: [7, 4] }),
        series("oversold", "--danger", { width: 2, dash: [2, 3] }),
      ],
    };
    return new uPlot(options, chart.columns, box);
  };
  const chart = {
    columns,
    redraw() {
      chart.plot.destroy();
      chart.plot = plot();
    },
    setColumns(columns) {
      chart.columns = columns;
      chart.plot.setData(columns);
    },
    fit() {
      const width = Math.max(box.clientWidth, 120);
      if (width !== chart.plot.width) chart.plot.setSize({ width, height: 220 });
    },
  };
  chart.plot = plot();
  new ResizeObserver(() => chart.fit()).observe(box);
  charts.add(chart);
  return chart;
}

function drawCurves() {
  if (!window.uPlot) return;
  for (const box of document.querySelectorAll("[data-curve]")) createChart(box, JSON.parse(box.dataset.curve));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of charts) chart.redraw();
  });
}

// Follows a run by its event stream, at most ten events per second; draws once per animation frame.
function follow() {
  const arms = new Map();
  const amounts = new Set(["sold", "stock", "oversold"]);
  const stepList = document.getElementById("run-steps");
  const connection = document.getElementById("connection");
  const state = document.getElementById("state");
  let newest = null;

  function formatFigure(name, value, isMoney) {
    if (name.endsWith("_ms")) return value >= 100 ? `${value.toFixed(0)} ms` : `${value.toFixed(1)} ms`;
    if (isMoney && amounts.has(name)) return (value / 100).toFixed(2);
    return value.toLocaleString("en");
  }

  function drawCurve(progress, isMoney) {
    if (!window.uPlot || progress.samples.length < 2) return;
    const unit = isMoney ? 100 : 1;
    const column = (value) => progress.samples.map(value);
    const columns = [
      column((s) => s.t_ms / 1000), column((s) => s.stock / unit),
      column((s) => s.sold / unit), column((s) => s.oversold / unit),
    ];
    if (arms.has(progress.arm)) return arms.get(progress.arm).setColumns(columns);
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = `${progress.strategy}: stock (line), sold (dashes), oversold (dots)`;
    const box = document.createElement("div");
    box.className = "curve";
    figure.append(caption, box);
    document.getElementById("curves").append(figure);
    arms.set(progress.arm, createChart(box, columns));
  }

  function draw() {
    const { progress, wanted: request } = newest;
    newest = null;
    const isMoney = request.journey === "pay";
    const sample = progress.samples.at(-1);
    if (sample) {
      document.getElementById("figures").hidden = false;
      for (const cell of live.querySelectorAll("[data-figure]")) {
        const name = cell.dataset.figure;
        cell.textContent = formatFigure(name, sample[name], isMoney);
        if (name === "oversold") cell.classList.toggle("off", sample.oversold > 0);
      }
    }
    document.getElementById("arm").textContent =
      progress.arms > 1 ? `${progress.strategy}, ${progress.arm + 1} of ${progress.arms}` : progress.strategy;
    for (const step of progress.said.slice(stepList.children.length)) {
      const item = document.createElement("li");
      item.textContent = step;
      stepList.append(item);
    }
    drawCurve(progress, isMoney);
  }

  const events = new EventSource(`/api/lab/runs/${live.dataset.run}/events`);
  events.addEventListener("run", (event) => {
    const run = JSON.parse(event.data);
    connection.textContent = run.state === "queued" ? "It is about to begin." : "";
    const label = run.state === "queued" ? "◔ waits to begin" : "◑ goes on";
    if (state.textContent.trim() !== label) state.textContent = label;
    if (run.state === "done" || run.state === "failed") {
      events.close();
      // The server renders the result.
      location.replace(location.pathname);
      return;
    }
    const isScheduled = newest !== null;
    newest = run;
    if (!isScheduled) requestAnimationFrame(draw);
  });
  events.addEventListener("error", () => {
    connection.textContent =
      events.readyState === EventSource.CLOSED
        ? "This page is cut off from the run. Reload it to go on."
        : "The replica does not answer; asking again.";
  });
}

drawCurves();
if (live) follow();
