// The page of a run: its place in the queue, live figures and curves during the run; afterwards the
// verdict in focus, and curves. Without this script the page reloads itself during the run.

const MIN_RECONNECT_MS = 1000;
const MAX_RECONNECT_MS = 15000;
// Besides the color, each curve has its own dashes.
const DASHES = [[], [8, 4], [2, 3], [12, 3, 2, 3], [4, 4], [14, 6]];

const live = document.getElementById("live");

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A strategy's name, with its definition on tap if the page has it.
function named(name) {
  if (!document.getElementById(`strategy-${name}`)) return name;
  const term = document.createElement("button");
  term.type = "button";
  term.className = "term";
  term.setAttribute("popovertarget", `strategy-${name}`);
  term.textContent = name;
  return term;
}

// Draws one chart: for each strategy what was sold by then. `curves` have name, broken, t and sold.
function createChart(box, curves) {
  let plot = null;
  const legend = document.createElement("ul");
  legend.className = "curve-legend";
  box.prepend(legend);
  const size = () => ({ width: Math.max(box.clientWidth, 120), height: 240 });
  const axis = () => ({
    stroke: color("--quiet"),
    font: `14px ${getComputedStyle(document.body).fontFamily}`,
    grid: { stroke: color("--line"), width: 1 },
    ticks: { stroke: color("--line"), width: 1 },
  });
  const series = ({ name, broken }, index) => ({
    label: name, stroke: color(broken ? "--danger" : "--ink"), width: 2.5, dash: DASHES[index % DASHES.length],
    spanGaps: true, points: { show: false },
  });
  const legendEntry = ({ label, stroke, dash }) => {
    const entry = document.createElement("li");
    entry.innerHTML = `<svg width="36" height="8" aria-hidden="true"><path d="M0 4h36" stroke="${stroke}" stroke-width="2.5" stroke-dasharray="${dash}"/></svg>`;
    entry.append(named(label));
    return entry;
  };
  function draw() {
    plot?.destroy();
    const lines = curves.map(series);
    legend.replaceChildren(...lines.map(legendEntry));
    const options = {
      ...size(),
      cursor: { show: false },
      legend: { show: false },
      scales: { x: { time: false }, y: { range: (_, min, max) => [Math.min(0, min), Math.max(1, max * 1.05)] } },
      axes: [{ ...axis(), values: (_, ticks) => ticks.map((t) => `${t} s`) }, { ...axis(), size: 64 }],
      series: [{}, ...lines],
    };
    plot = new uPlot(options, uPlot.join(curves.map(({ t, sold }) => [t, sold])), box);
  }
  draw();
  new ResizeObserver(() => size().width !== plot.width && plot.setSize(size())).observe(box);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  return {
    set(newCurves) {
      curves = newCurves;
      draw();
    },
  };
}

function drawCurves() {
  if (!window.uPlot) return;
  for (const box of document.querySelectorAll("[data-curves]")) createChart(box, JSON.parse(box.dataset.curves));
}

// Follows a run by its event stream, at most ten events per second; draws once per animation frame.
// The first event of each connection has the present state, so a lost one is simply opened again.
function follow() {
  const labels = JSON.parse(live.dataset.labels);
  const amounts = new Set(["sold", "stock", "oversold"]);
  const stepList = document.getElementById("run-steps");
  const connection = document.getElementById("connection");
  const state = document.getElementById("state");
  const scene = document.getElementById("scene");
  const curves = [];
  let chart = null;
  let newest = null;
  let isSceneAsked = scene.hasChildNodes();
  let reconnectMs = MIN_RECONNECT_MS;

  function formatFigure(name, value, isMoney) {
    if (name.endsWith("_ms")) return value >= 100 ? `${Math.round(value).toLocaleString("en")} ms` : `${value.toFixed(1)} ms`;
    if (isMoney && amounts.has(name)) return (value / 100).toFixed(2);
    return value.toLocaleString("en");
  }

  function drawCurve({ arm, strategy, samples }, isMoney) {
    if (!window.uPlot || samples.length < 3) return;
    const unit = isMoney ? 100 : 1;
    curves[arm] = {
      name: strategy, broken: samples.at(-1).oversold > 0,
      t: samples.map((sample) => sample.t_ms / 1000), sold: samples.map((sample) => sample.sold / unit),
    };
    const known = curves.filter(Boolean);
    if (chart) return chart.set(known);
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = live.dataset.sold;
    const box = document.createElement("div");
    box.className = "curve";
    figure.append(caption, box);
    document.getElementById("curves").append(figure);
    chart = createChart(box, known);
  }

  // Shows the orders of the first scene, while the load has no figures yet.
  async function showScene() {
    isSceneAsked = true;
    const response = await fetch(`/lab/runs/${live.dataset.run}/picture`);
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const track = page.querySelector(".track");
    scene.append(track);
    track.dispatchEvent(new Event("track", { bubbles: true }));
  }

  function draw() {
    const { progress, wanted: request } = newest;
    newest = null;
    if (progress.has_scene && !isSceneAsked) showScene().catch(console.warn);
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
      progress.arms > 1 ? `${progress.strategy} (${progress.arm + 1}/${progress.arms})` : progress.strategy;
    for (const step of progress.said.slice(stepList.children.length)) {
      const item = document.createElement("li");
      item.textContent = step;
      stepList.append(item);
    }
    drawCurve(progress, isMoney);
  }

  function showState(run) {
    const label = run.state === "queued" ? `◔ ${labels.queued[run.position - 1] ?? ""}` : `◑ ${labels.running}`;
    if (state.textContent.trim() !== label) state.textContent = label;
  }

  function connect() {
    const events = new EventSource(`/api/lab/runs/${live.dataset.run}/events?language=${live.dataset.language}`);
    events.addEventListener("run", (event) => {
      reconnectMs = MIN_RECONNECT_MS;
      connection.textContent = "";
      const run = JSON.parse(event.data);
      if (run.state === "done" || run.state === "failed") {
        events.close();
        // The server renders the result, once it is seen: a projector leads its class there.
        const showResult = () => location.replace(location.pathname + location.search);
        if (document.hidden) document.addEventListener("visibilitychange", showResult, { once: true });
        else showResult();
        return;
      }
      showState(run);
      const isScheduled = newest !== null;
      newest = run;
      if (!isScheduled) requestAnimationFrame(draw);
    });
    events.addEventListener("error", () => {
      connection.textContent = live.dataset.reconnecting;
      // A lost connection is opened again by the browser; after an error response it gives up.
      if (events.readyState !== EventSource.CLOSED) return;
      setTimeout(connect, reconnectMs);
      reconnectMs = Math.min(2 * reconnectMs, MAX_RECONNECT_MS);
    });
  }
  connect();
}

drawCurves();
// The verdict is announced, but the page is not scrolled past the drawing.
if (!location.hash) document.getElementById("verdict")?.focus({ preventScroll: true });
if (live) follow();
