// Draws a list of steps as a swimlane: requests down, time across, to be stepped through in both
// directions. The list remains on the page with the same content.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const LANE_HEIGHT = 40;
const LEFT = 12;
const PLAY_INTERVAL_MS = 450;
// The activity of a request after each event, until its next one.
const ACTIVITIES = {
  sent: "idle", wait: "waiting", held: "holding", read: "working", write: "holding", commit: "holding",
  committed: "holding", release: "idle", paused: "paused", resumed: "working",
};
const ACTIVITY_LABELS = { waiting: "waits", working: "works", paused: "stopped" };
const EVENT_LABELS = { held: "lock", commit: "commit", committed: "✓", release: "free", paused: "❚❚", resumed: "▶", killed: "✕ killed", sent: "sent", broken: "✕" };

function configure(element, attributes, text) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function svgElement(name, attributes = {}, text) {
  return configure(document.createElementNS(SVG_NAMESPACE, name), attributes, text);
}

function htmlElement(name, attributes = {}, text) {
  return configure(document.createElement(name), attributes, text);
}

function eventLabel(step) {
  if (step.event === "read") return `read ${step.value ?? ""}`;
  if (step.event === "write") return `write ${step.value ?? ""}`;
  return EVENT_LABELS[step.event] ?? "";
}

// Returns the x position of each step: in order, far enough apart for labels, and bounded, so that
// a long gap does not push the rest out of sight.
function positions(steps, hasFewLanes, isNarrow) {
  const [min, max] = !hasFewLanes ? [11, 60] : isNarrow ? [44, 80] : [56, 150];
  let x = LEFT;
  return steps.map((step, index) => {
    if (index) {
      const gap = step.t - steps[index - 1].t;
      x += Math.min(max, min + 6 * Math.log2(1 + gap / 500));
    }
    return x;
  });
}

// Each kind of event has its own shape, so that color is never the only sign.
function eventMark(step, x, y) {
  const mark = { class: `mark ${step.event}` };
  const path = (d) => svgElement("path", { ...mark, d });
  switch (step.event) {
    case "read": return svgElement("circle", { ...mark, cx: x, cy: y, r: 5 });
    case "write": return svgElement("rect", { ...mark, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
    case "held": return path(`M${x - 5} ${y + 5}L${x} ${y - 5}L${x + 5} ${y + 5}Z`);
    case "commit": return path(`M${x} ${y - 7}V${y + 7}`);
    case "committed": return path(`M${x - 2} ${y - 7}V${y + 7}M${x + 2} ${y - 7}V${y + 7}`);
    case "release": return path(`M${x - 5} ${y - 5}L${x} ${y + 5}L${x + 5} ${y - 5}Z`);
    case "paused": return path(`M${x - 3} ${y - 9}V${y + 9}M${x + 3} ${y - 9}V${y + 9}`);
    case "resumed": return path(`M${x - 4} ${y - 6}L${x + 5} ${y}L${x - 4} ${y + 6}Z`);
    case "killed":
    case "broken": return path(`M${x - 6} ${y - 6}L${x + 6} ${y + 6}M${x + 6} ${y - 6}L${x - 6} ${y + 6}`);
    default: return svgElement("circle", { ...mark, cx: x, cy: y, r: 2 });
  }
}

// Returns the time span in which two requests were both between read and commit, after they read
// the same value; null without such an overlap.
function overlap(steps, xs, laneCount) {
  if (laneCount !== 2) return null;
  const [a, b] = [0, 1].map((lane) => {
    const find = (event) => steps.findIndex((step) => step.lane === lane && step.event === event);
    const [read, committed] = [find("read"), find("committed")];
    return { read, end: committed >= 0 ? committed : find("write"), value: steps[read]?.value };
  });
  if (a.read < 0 || b.read < 0 || a.end < 0 || b.end < 0 || a.value !== b.value) return null;
  const [from, to] = [Math.max(a.read, b.read), Math.min(a.end, b.end)];
  return from < to ? { from: xs[from], to: xs[to] } : null;
}

function drawLanes(steps, heads, isNarrow) {
  const hasFewLanes = heads.length <= 3;
  const xs = positions(steps, hasFewLanes, isNarrow);
  const width = xs.at(-1) + (hasFewLanes ? 70 : 40);
  const height = heads.length * LANE_HEIGHT + 14;
  const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const both = overlap(steps, xs, heads.length);
  if (both) {
    svg.append(svgElement("rect", { class: "overlap", x: both.from, y: 0, width: both.to - both.from, height }));
    svg.append(svgElement("text", { class: "overlap-label", x: both.from + 4, y: height - 3 }, "both inside"));
  }
  const groups = [];
  heads.forEach((_, lane) => {
    const own = steps.map((step, index) => ({ ...step, index })).filter((step) => step.lane === lane);
    const y = lane * LANE_HEIGHT + 26;
    svg.append(svgElement("line", { class: "rule", x1: 0, x2: width, y1: y + 13, y2: y + 13 }));
    let labelEnd = -Infinity;
    own.forEach((step, at) => {
      const [x, next] = [xs[step.index], own[at + 1]];
      const group = svgElement("g", {});
      if (next) {
        const isUnlocked = step.event === "wait" && next.event !== "held";
        const activity = isUnlocked ? "idle" : ACTIVITIES[step.event] ?? "idle";
        const end = xs[next.index];
        const thickness = activity === "idle" ? 2 : 12;
        group.append(svgElement("rect", { class: `activity ${activity}`, x, y: y - thickness / 2, width: Math.max(end - x, 1), height: thickness }));
        const label = ACTIVITY_LABELS[activity];
        if (label && end - x > label.length * 6.5 + 22) group.append(svgElement("text", { class: "activity-label", x: (x + end) / 2, y: y + 3.5 }, label));
      }
      group.append(eventMark(step, x, y));
      const label = eventLabel(step);
      if (label && x - 4 > labelEnd) {
        group.append(svgElement("text", { class: `label ${step.event}`, x: x - 4, y: y - 11 }, label));
        labelEnd = x + label.length * 6.6;
      }
      groups[step.index] = group;
    });
    svg.append(...own.map((step) => groups[step.index]));
  });
  const playhead = svgElement("line", { class: "playhead", y1: 0, y2: height });
  svg.append(playhead);
  return { svg, xs, groups, playhead };
}

function createControls(stepCount) {
  const bar = htmlElement("div", { class: "controls" });
  const button = (name, text, kind = "") => {
    const element = htmlElement("button", { type: "button", class: `quiet ${kind}`, "aria-label": name }, text);
    bar.append(element);
    return element;
  };
  const back = button("One step back", "◀ Back");
  const forward = button("One step on", "Step ▶");
  const play = button("Play", "Play", "play");
  const slider = htmlElement("input", { type: "range", min: 1, max: stepCount, value: stepCount, "aria-label": "Step" });
  bar.append(slider);
  return { bar, back, play, forward, slider };
}

function drawSwimlane(track) {
  const items = [...track.querySelectorAll("li[data-t]")];
  const heads = JSON.parse(track.dataset.heads);
  if (!items.length || track.dataset.drawn) return;
  track.dataset.drawn = "yes";
  const steps = items.map(({ dataset }) => ({ lane: +dataset.l, t: +dataset.t, event: dataset.e, value: dataset.v }));
  const { svg, xs, groups, playhead } = drawLanes(steps, heads, track.clientWidth < 500);
  const { bar, back, play, forward, slider } = createControls(steps.length);
  const laneNames = htmlElement("ol", { class: "lane-names", "aria-hidden": "true" });
  for (const [replica, name, isDuplicate] of heads) {
    const item = htmlElement("li", isDuplicate ? { class: "off" } : {});
    item.append(htmlElement("b", {}, name), htmlElement("span", {}, replica));
    laneNames.append(item);
  }
  const timeline = htmlElement("div", { class: "timeline", tabindex: "0", role: "region", "aria-label": "The swimlane" });
  timeline.append(svg);
  const lanes = htmlElement("div", { class: "lanes" });
  lanes.append(laneNames, timeline);
  const description = htmlElement("p", { class: "step-description", role: "status" });
  const swimlane = htmlElement("div", { class: "swimlane", role: "group", "aria-label": "Swimlane: step through it with the arrow keys" });
  swimlane.append(bar, description, lanes);
  track.prepend(swimlane);

  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let current = steps.length;
  let timer = 0;

  function showStep(number, scroll = true) {
    current = Math.min(Math.max(number, 1), steps.length);
    slider.value = current;
    const index = current - 1;
    const text = `${items[index].querySelector("b").textContent} · ${items[index].querySelector("span").textContent}`;
    slider.setAttribute("aria-valuetext", `step ${current} of ${steps.length}: ${text}`);
    description.replaceChildren(htmlElement("span", {}, `event ${current} of ${steps.length}`), htmlElement("b", {}, text));
    groups.forEach((group, at) => {
      group.classList.toggle("later", at > index);
      group.classList.toggle("current", at === index);
    });
    items.forEach((item, at) => item.classList.toggle("current", at === index));
    [...laneNames.children].forEach((item, lane) => item.classList.toggle("current", lane === steps[index].lane));
    playhead.setAttribute("x1", xs[index]);
    playhead.setAttribute("x2", xs[index]);
    if (scroll) timeline.scrollTo({ left: xs[index] - timeline.clientWidth / 2, behavior: reducedMotion.matches ? "auto" : "smooth" });
  }

  function setPlayLabel(label) {
    play.setAttribute("aria-label", label);
    play.textContent = label;
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    setPlayLabel("Play");
  }

  function start() {
    if (current === steps.length) showStep(1);
    setPlayLabel("Pause");
    timer = setInterval(() => (current === steps.length ? pause() : showStep(current + 1)), PLAY_INTERVAL_MS);
  }

  const pauseAndShow = (number) => {
    pause();
    showStep(number());
  };
  back.addEventListener("click", () => pauseAndShow(() => current - 1));
  forward.addEventListener("click", () => pauseAndShow(() => (current === steps.length ? 1 : current + 1)));
  play.addEventListener("click", () => (timer ? pause() : start()));
  slider.addEventListener("input", () => pauseAndShow(() => +slider.value));
  swimlane.addEventListener("keydown", (event) => {
    const number = { ArrowLeft: () => current - 1, ArrowRight: () => current + 1, Home: () => 1, End: () => steps.length }[event.key];
    if (!number || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    pauseAndShow(number);
  });
  showStep(steps.length, false);
  laneNames.querySelector(".current")?.classList.remove("current");
  timeline.scrollLeft = 0;
  description.replaceChildren(htmlElement("span", {}, `${steps.length} events: step or play through them, or use the arrow keys`));
}

for (const track of document.querySelectorAll(".track")) {
  const details = track.closest("details.fork, details.crowd");
  if (!details) drawSwimlane(track);
  else details.addEventListener("toggle", () => details.open && drawSwimlane(track));
}
