// Draws a list of steps as a swimlane: requests down, time across. It plays slowly, and can be
// stepped in both directions. The list remains on the page with the same content.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
// Duration of a playback at speed 1, whatever the number of steps.
const PLAY_MS = 6500;
const SPEEDS = [0.25, 0.5, 1, 2, 4];
// Upper bound of the lanes that are drawn with labels.
const MAX_LABELLED_LANES = 4;
const LABELLED = { lane: 84, name: 18, bar: 40, label: 68, thickness: 14, margin: 10 };
const COMPACT = { lane: 24, name: 17, bar: 12, label: 0, thickness: 10, margin: 10 };
// Least distance of two labels in a lane.
const LABEL_GAP = 8;
// The time before two requests overlap matters little, so it is drawn this much shorter.
const BEFORE_OVERLAP = 0.3;

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

const measure = document.createElement("canvas").getContext("2d");

function textWidth(text, isBold = false) {
  measure.font = `${isBold ? 700 : 400} 14px system-ui, sans-serif`;
  return measure.measureText(text).width;
}

// Returns the overlap of two requests: both read the same value before either of them wrote. `from`
// is the later of the reads, `to` the earlier of the writes; null without an overlap.
function findOverlap(steps, laneCount) {
  if (laneCount !== 2) return null;
  const [a, b] = [0, 1].map((lane) => {
    const find = (event) => steps.findIndex((step) => step.lane === lane && step.event === event);
    const [read, write, committed] = [find("read"), find("write"), find("committed")];
    return { read, end: committed >= 0 ? committed : write };
  });
  if (a.read < 0 || b.read < 0 || a.end < 0 || b.end < 0) return null;
  if (steps[a.read].value !== steps[b.read].value) return null;
  const [first, from, to] = [Math.min(a.read, b.read), Math.max(a.read, b.read), Math.min(a.end, b.end)];
  return from < to ? { first, from, to } : null;
}

// Returns what each request does from a step to its next one: waiting, lock, working or idle.
function activities(steps, isLocked) {
  const held = new Set();
  const running = new Set();
  return steps.map(({ lane, event }) => {
    if (event === "held") held.add(lane);
    if (event === "read") running.add(lane);
    if (["release", "answered", "broken", "killed"].includes(event)) {
      held.delete(lane);
      running.delete(lane);
    }
    if (event === "committed") running.delete(lane);
    if (event === "paused") return "paused";
    if (event === "wait" && isLocked) return "waiting";
    if (held.has(lane)) return "lock";
    return running.has(lane) ? "working" : "idle";
  });
}

// Returns the x position of each step. The order is exact; gaps are compressed, and all of it fits
// the width.
function positions(steps, overlap, from, width) {
  const weights = steps.map((step, index) => {
    if (!index) return 0;
    const weight = 1 + 0.35 * Math.log2(1 + (step.t - steps[index - 1].t) / 500);
    return overlap && index <= overlap.first ? weight * BEFORE_OVERLAP : weight;
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  let sum = 0;
  return weights.map((weight) => from + ((sum += weight) / total) * (width - from - 12));
}

// Each kind of event has its own shape, so that color is never the only sign.
function eventMark(event, x, y, size) {
  const mark = { class: `mark ${event}` };
  const path = (d) => svgElement("path", { ...mark, d });
  const [s, h] = [size, size * 1.5];
  switch (event) {
    case "read": return svgElement("circle", { ...mark, cx: x, cy: y, r: s });
    case "write": return svgElement("rect", { ...mark, x: x - s, y: y - s, width: 2 * s, height: 2 * s });
    case "held": return path(`M${x - s} ${y + s}L${x} ${y - s}L${x + s} ${y + s}Z`);
    case "commit": return path(`M${x} ${y - h}V${y + h}`);
    case "committed": return path(`M${x - 2} ${y - h}V${y + h}M${x + 2} ${y - h}V${y + h}`);
    case "release": return path(`M${x - s} ${y - s}L${x} ${y + s}L${x + s} ${y - s}Z`);
    case "paused": return path(`M${x - 3} ${y - h}V${y + h}M${x + 3} ${y - h}V${y + h}`);
    case "resumed": return path(`M${x - s} ${y - s}L${x + s} ${y}L${x - s} ${y + s}Z`);
    case "killed":
    case "broken": return path(`M${x - s} ${y - s}L${x + s} ${y + s}M${x + s} ${y - s}L${x - s} ${y + s}`);
    default: return svgElement("circle", { ...mark, cx: x, cy: y, r: 2.5 });
  }
}

// Places the labels of a lane in the order of their marks: reads and writes, moved apart where they
// would meet, then as many others as have room.
function placeLabels(own, xs, width) {
  const label = (step) => ({ step, x: xs[step.index], length: textWidth(step.label, true) });
  const labels = own.filter((step) => step.label).map(label);
  const isMain = ({ step }) => ["read", "write"].includes(step.event);
  const placed = labels.filter(isMain);
  const room = () => placed.reduce((sum, { length }) => sum + length + LABEL_GAP, -LABEL_GAP);
  while (room() > width) placed.shift();
  let from = 0;
  for (const one of placed) {
    one.from = Math.max(from, one.x - one.length / 2);
    from = one.from + one.length + LABEL_GAP;
  }
  let to = width;
  for (const one of [...placed].reverse()) {
    one.from = Math.min(one.from, to - one.length);
    to = one.from - LABEL_GAP;
  }
  const rank = ({ step }) => (["held", "killed", "paused", "committed"].indexOf(step.event) + 9) % 9;
  const others = labels.filter((one) => !isMain(one)).sort((a, b) => rank(a) - rank(b));
  for (const { step, x, length } of others) {
    // Below the mark, else to the left or to the right of that.
    const places = [x - length / 2, x - length + 8, x - 8].map((from) => Math.min(Math.max(from, 0), width - length));
    const isFree = (from) => placed.every((other) =>
      x < other.x ? from + length + LABEL_GAP <= other.from : other.from + other.length + LABEL_GAP <= from);
    const from = places.find(isFree);
    if (from !== undefined) placed.push({ step, x, from, length });
  }
  return placed;
}

// Draws in units of `scale` pixels: texts are larger for a projector.
function drawLanes({ steps, heads, overlap, texts, busy, isLocked }, pixels, scale) {
  const width = pixels / scale;
  const isCompact = heads.length > MAX_LABELLED_LANES;
  const size = isCompact ? COMPACT : LABELLED;
  const gutter = isCompact ? Math.min(Math.max(...heads.map(([, name]) => textWidth(name))) + 14, width / 3) : 12;
  const xs = positions(steps, overlap, gutter, width);
  const height = heads.length * size.lane + (overlap ? 26 : 6);
  const svg = svgElement("svg", { width: pixels, height: height * scale, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (overlap) {
    const [from, to] = [xs[overlap.from], xs[overlap.to]];
    svg.append(svgElement("rect", { class: "overlap", x: from, y: 0, width: to - from, height }));
    const length = textWidth(texts.overlap, true);
    const x = Math.min(Math.max((from + to - length) / 2, 2), width - length - 2);
    svg.append(svgElement("text", { class: "overlap-label", x, y: height - 8 }, texts.overlap));
  }
  // Below the texts, which it would cut.
  const playhead = svgElement("line", { class: "playhead", y1: 0, y2: height });
  svg.append(playhead);
  const groups = steps.map(() => svgElement("g"));
  heads.forEach(([replica, name, isDuplicate], lane) => {
    const [top, y] = [lane * size.lane, lane * size.lane + size.bar];
    const own = steps.filter((step) => step.lane === lane);
    if (lane) svg.append(svgElement("line", { class: "rule", x1: 0, x2: width, y1: top, y2: top }));
    const head = svgElement("text", { class: isDuplicate ? "name loss" : "name", x: 2, y: top + size.name }, name);
    if (!isCompact) head.append(svgElement("tspan", { class: "replica", dx: 8 }, replica));
    svg.append(head);
    own.forEach((step, at) => {
      const [x, next] = [xs[step.index], own[at + 1]];
      const group = groups[step.index];
      const thickness = busy[step.index] === "idle" ? 2 : size.thickness;
      if (next) group.append(svgElement("rect", { class: `activity ${busy[step.index]}`, x, y: y - thickness / 2, width: Math.max(xs[next.index] - x, 1), height: thickness }));
      // Without a lock, there is nothing to ask for and nothing to release.
      const isQuiet = !isLocked && ["wait", "release"].includes(step.event);
      const mark = eventMark(isQuiet ? "sent" : step.event, x, y, isCompact ? 4 : 6);
      if (isDuplicate && step.event === "write") mark.classList.add("loss");
      group.append(mark);
    });
    const labels = isCompact ? [] : placeLabels(own, xs, width);
    for (const { step, from } of labels) {
      const kind = isDuplicate && step.event === "write" ? "loss" : step.event;
      groups[step.index].append(svgElement("text", { class: `label ${kind}`, x: from, y: top + size.label }, step.label));
    }
    svg.append(...own.map((step) => groups[step.index]));
  });
  return { svg, xs, groups, playhead };
}

function createControls(texts, stepCount) {
  const bar = htmlElement("div", { class: "controls" });
  const button = (kind, text) => {
    const element = htmlElement("button", { type: "button", class: `quiet ${kind}` }, text);
    bar.append(element);
    return element;
  };
  const back = button("back", texts.back);
  const forward = button("forward", texts.next);
  const play = button("play", texts.play);
  const label = htmlElement("label", { class: "speed" });
  const speed = htmlElement("select");
  for (const factor of SPEEDS) {
    const option = htmlElement("option", { value: factor }, `${factor}×`);
    option.selected = factor === 1;
    speed.append(option);
  }
  label.append(htmlElement("span", {}, texts.speed), speed);
  const slider = htmlElement("input", { type: "range", min: 1, max: stepCount, value: stepCount, "aria-label": texts.step });
  bar.append(label, slider);
  return { bar, back, play, forward, label, speed, slider };
}

function createLegend(texts, busy, hasLoss) {
  const legend = htmlElement("ul", { class: "legend", "aria-hidden": "true" });
  for (const kind of ["waiting", "lock", "paused", "working"]) {
    if (busy.includes(kind)) legend.append(htmlElement("li", { class: kind }, texts[kind]));
  }
  if (hasLoss) legend.append(htmlElement("li", { class: "loss" }, texts.loss));
  return legend;
}

function drawSwimlane(track, autoplay) {
  const items = [...track.querySelectorAll("li[data-t]")];
  if (!items.length || track.dataset.drawn) return;
  track.dataset.drawn = "yes";
  const texts = { ...track.dataset };
  const heads = JSON.parse(texts.heads);
  const steps = items.map(({ dataset }, index) => ({
    index, lane: +dataset.l, t: +dataset.t, event: dataset.e, value: dataset.v, label: dataset.s,
  }));
  const isLocked = steps.some((step) => step.event === "held");
  const busy = activities(steps, isLocked);
  const overlap = findOverlap(steps, heads.length);
  const model = { steps, heads, overlap, texts, busy, isLocked };
  // A playback begins where both requests are inside.
  const first = overlap ? overlap.first + 1 : 1;
  const { bar, back, play, forward, label, speed, slider } = createControls(texts, steps.length);
  const count = htmlElement("span", { class: "step-count" });
  const sentence = htmlElement("b");
  const description = htmlElement("p", { class: "step-description", role: "status" });
  description.append(count, " ", sentence);
  const command = htmlElement("code");
  const commandBox = htmlElement("pre", { class: "step-command" });
  commandBox.append(command);
  const beside = htmlElement("div", { class: "beside" });
  beside.append(description, commandBox);
  const timeline = htmlElement("div", { class: "timeline" });
  const body = htmlElement("div", { class: "lanes" });
  body.append(timeline, beside);
  const swimlane = htmlElement("div", { class: "swimlane", role: "group", tabindex: "0", "aria-label": texts.name });
  swimlane.append(bar, body, createLegend(texts, busy, heads.some(([, , isDuplicate]) => isDuplicate)));
  track.prepend(swimlane);

  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let drawing = null;
  let current = steps.length;
  let frame = 0;

  const commandOf = (item) => item.querySelector("code")?.textContent ?? "";
  const textOf = (item) => `${item.querySelector("b").textContent} · ${item.querySelector("span").textContent}`;

  // Makes the box as high as its highest step, so that nothing below it moves with the steps.
  function reserveHeight() {
    beside.style.minHeight = "";
    count.textContent = texts.count.replace("#", steps.length);
    const heights = [...items].map((item) => {
      sentence.textContent = textOf(item);
      command.textContent = commandOf(item);
      return beside.offsetHeight;
    });
    beside.style.minHeight = `${Math.max(0, ...heights)}px`;
  }

  function showStep(number) {
    current = Math.min(Math.max(number, 1), steps.length);
    const index = current - 1;
    const { lane, event } = steps[index];
    const isLoss = event === "write" && heads[lane][2];
    const text = textOf(items[index]);
    slider.value = current;
    count.textContent = texts.count.replace("#", current);
    slider.setAttribute("aria-valuetext", `${count.textContent}: ${text}`);
    sentence.textContent = text;
    command.textContent = commandOf(items[index]);
    beside.dataset.kind = isLoss ? "loss" : event === "held" || event === "release" ? "lock" : busy[index];
    drawing.groups.forEach((group, at) => {
      group.classList.toggle("later", at > index);
      group.classList.toggle("current", at === index);
    });
    items.forEach((item, at) => item.classList.toggle("current", at === index));
    movePlayhead(drawing.xs[index]);
  }

  function movePlayhead(x) {
    drawing.playhead.setAttribute("x1", x);
    drawing.playhead.setAttribute("x2", x);
  }

  function draw() {
    const scale = parseFloat(getComputedStyle(timeline).getPropertyValue("--drawing-scale")) || 1;
    drawing = drawLanes(model, Math.max(timeline.clientWidth, 240), scale);
    timeline.replaceChildren(drawing.svg);
    reserveHeight();
    showStep(current);
  }

  function pause() {
    cancelAnimationFrame(frame);
    frame = 0;
    play.textContent = texts.play;
    description.setAttribute("aria-live", "polite");
  }

  // Moves the playhead evenly; a step is shown when the playhead reaches it.
  function start() {
    if (current === steps.length) showStep(first);
    play.textContent = texts.pause;
    // A screen reader would fall behind.
    description.setAttribute("aria-live", "off");
    const end = drawing.xs.at(-1);
    let [x, last] = [drawing.xs[current - 1], performance.now()];
    const tick = (now) => {
      const [{ xs }, index] = [drawing, current - 1];
      const way = (xs.at(-1) - xs[first - 1]) * (xs.at(-1) / end);
      x += Math.max(way, 1) * ((now - last) / PLAY_MS) * +speed.value;
      last = now;
      let next = index;
      while (next + 1 < steps.length && xs[next + 1] <= x) next += 1;
      if (next !== index) showStep(next + 1);
      movePlayhead(Math.min(x, xs.at(-1)));
      if (current === steps.length) return pause();
      frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
  }

  const pauseAndShow = (number) => {
    pause();
    showStep(number());
  };
  const toggle = () => (frame ? pause() : start());
  back.addEventListener("click", () => pauseAndShow(() => current - 1));
  forward.addEventListener("click", () => pauseAndShow(() => (current === steps.length ? first : current + 1)));
  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => pauseAndShow(() => +slider.value));
  swimlane.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === speed) return;
    const number = { ArrowLeft: () => current - 1, ArrowRight: () => current + 1, Home: () => 1, End: () => steps.length }[event.key];
    if (number) pauseAndShow(number);
    else if (event.key === " " && event.target.tagName !== "BUTTON") toggle();
    else return;
    event.preventDefault();
  });
  const allowMotion = () => {
    play.hidden = label.hidden = reducedMotion.matches;
    if (reducedMotion.matches) pause();
  };
  allowMotion();
  reducedMotion.addEventListener("change", allowMotion);
  draw();
  let width = timeline.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(timeline.clientWidth - width) < 2 || !timeline.clientWidth) return;
    width = timeline.clientWidth;
    draw();
  }).observe(timeline);
  if (!autoplay || reducedMotion.matches) return;
  showStep(first);
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    if (!frame && current === first) start();
  }, { threshold: 0.6 });
  seen.observe(swimlane);
}

// The first swimlane of the page plays by itself when it is seen.
let isFirst = true;
for (const track of document.querySelectorAll(".track")) {
  const details = track.closest("details.fork, details.crowd");
  if (details) {
    details.addEventListener("toggle", () => details.open && drawSwimlane(track, false));
  } else {
    drawSwimlane(track, isFirst);
    isFirst = false;
  }
}
