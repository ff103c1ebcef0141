// Draws a list of steps as a swimlane: requests down, time across; to be stepped through in both
// directions. The list stays where it is and says the same.

const NS = "http://www.w3.org/2000/svg";
const LANE = 40;
const LEFT = 12;
// What a request is doing after each event, until its next one.
const DOES = {
  sent: "away", wait: "waits", held: "holds", read: "works", write: "holds", commit: "holds",
  committed: "holds", release: "away", paused: "stopped", resumed: "works",
};
const WORDS = { waits: "waits", works: "works", stopped: "stopped" };
const LABELS = { held: "lock", commit: "commit", committed: "✓", release: "free", paused: "❚❚", resumed: "▶", killed: "✕ killed", sent: "sent", broken: "✕" };

function element(name, attributes = {}, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function html(name, attributes = {}, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function label(step) {
  if (step.event === "read") return `read ${step.value ?? ""}`;
  if (step.event === "write") return `write ${step.value ?? ""}`;
  return LABELS[step.event] ?? "";
}

// Where each step stands: in order, at least so far apart that labels fit, at most so far that an
// idle second does not push the rest out of sight.
function places(steps, few, narrow) {
  const [least, most] = !few ? [11, 60] : narrow ? [44, 80] : [56, 150];
  let x = LEFT;
  return steps.map((step, n) => {
    if (n) {
      const gap = step.t - steps[n - 1].t;
      x += Math.min(most, least + 6 * Math.log2(1 + gap / 500));
    }
    return x;
  });
}

// A shape for each kind of step, so that colour is never the only sign.
function shape(step, x, y) {
  const at = { class: `mark ${step.event}` };
  switch (step.event) {
    case "read": return element("circle", { ...at, cx: x, cy: y, r: 5 });
    case "write": return element("rect", { ...at, x: x - 4.5, y: y - 4.5, width: 9, height: 9 });
    case "held": return element("path", { ...at, d: `M${x - 5} ${y + 5}L${x} ${y - 5}L${x + 5} ${y + 5}Z` });
    case "commit": return element("path", { ...at, d: `M${x} ${y - 7}V${y + 7}` });
    case "committed": return element("path", { ...at, d: `M${x - 2} ${y - 7}V${y + 7}M${x + 2} ${y - 7}V${y + 7}` });
    case "release": return element("path", { ...at, d: `M${x - 5} ${y - 5}L${x} ${y + 5}L${x + 5} ${y - 5}Z` });
    case "paused": return element("path", { ...at, d: `M${x - 3} ${y - 9}V${y + 9}M${x + 3} ${y - 9}V${y + 9}` });
    case "resumed": return element("path", { ...at, d: `M${x - 4} ${y - 6}L${x + 5} ${y}L${x - 4} ${y + 6}Z` });
    case "killed":
    case "broken": return element("path", { ...at, d: `M${x - 6} ${y - 6}L${x + 6} ${y + 6}M${x + 6} ${y - 6}L${x - 6} ${y + 6}` });
    default: return element("circle", { ...at, cx: x, cy: y, r: 2 });
  }
}

// While two requests are both between their read and their commit, having read the same value.
function bothInside(steps, xs, lanes) {
  if (lanes !== 2) return null;
  const way = [0, 1].map((lane) => {
    const own = (event) => steps.findIndex((step) => step.lane === lane && step.event === event);
    const read = own("read");
    const end = own("committed") >= 0 ? own("committed") : own("write");
    return { read, end, value: steps[read]?.value };
  });
  const [a, b] = way;
  if (a.read < 0 || b.read < 0 || a.end < 0 || b.end < 0 || a.value !== b.value) return null;
  const [from, to] = [Math.max(a.read, b.read), Math.min(a.end, b.end)];
  return from < to ? { from: xs[from], to: xs[to] } : null;
}

function picture(steps, heads, narrow) {
  const few = heads.length <= 3;
  const xs = places(steps, few, narrow);
  const width = xs.at(-1) + (few ? 70 : 40);
  const height = heads.length * LANE + 14;
  const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const middle = (lane) => lane * LANE + 26;
  const both = bothInside(steps, xs, heads.length);
  if (both) {
    svg.append(element("rect", { class: "both", x: both.from, y: 0, width: both.to - both.from, height }));
    svg.append(element("text", { class: "both-label", x: both.from + 4, y: height - 3 }, "both inside"));
  }
  const parts = [];
  heads.forEach((_, lane) => {
    const own = steps.map((step, n) => ({ ...step, n })).filter((step) => step.lane === lane);
    const y = middle(lane);
    svg.append(element("line", { class: "rule", x1: 0, x2: width, y1: y + 13, y2: y + 13 }));
    let free = -Infinity;
    own.forEach((step, at) => {
      const [x, next] = [xs[step.n], own[at + 1]];
      const group = element("g", {});
      if (next) {
        const idle = step.event === "wait" && next.event !== "held";
        const does = idle ? "away" : DOES[step.event] ?? "away";
        const end = xs[next.n];
        const thick = does === "away" ? 2 : 12;
        group.append(element("rect", { class: `does ${does}`, x, y: y - thick / 2, width: Math.max(end - x, 1), height: thick }));
        const word = WORDS[does];
        if (word && end - x > word.length * 6.5 + 22) group.append(element("text", { class: "word", x: (x + end) / 2, y: y + 3.5 }, word));
      }
      group.append(shape(step, x, y));
      const text = label(step);
      if (text && x - 4 > free) {
        group.append(element("text", { class: `label ${step.event}`, x: x - 4, y: y - 11 }, text));
        free = x + text.length * 6.6;
      }
      parts[step.n] = group;
    });
    svg.append(...own.map((step) => parts[step.n]));
  });
  const head = element("line", { class: "playhead", y1: 0, y2: height });
  svg.append(head);
  return { svg, xs, parts, head };
}

function controls(many) {
  const bar = html("div", { class: "controls" });
  const button = (name, text, kind = "") => {
    const made = html("button", { type: "button", class: `quiet ${kind}`, "aria-label": name }, text);
    bar.append(made);
    return made;
  };
  const back = button("One step back", "◀ Back");
  const on = button("One step on", "Step ▶");
  const play = button("Play", "Play", "play");
  const scrub = html("input", { type: "range", min: 1, max: many, value: many, "aria-label": "Step" });
  bar.append(scrub);
  return { bar, back, play, on, scrub };
}

function draw(track) {
  const items = [...track.querySelectorAll("li[data-t]")];
  const heads = JSON.parse(track.dataset.heads);
  if (!items.length || track.dataset.drawn) return;
  track.dataset.drawn = "yes";
  const steps = items.map(({ dataset }) => ({ lane: +dataset.l, t: +dataset.t, event: dataset.e, value: dataset.v }));
  const { svg, xs, parts, head } = picture(steps, heads, track.clientWidth < 500);
  const { bar, back, play, on, scrub } = controls(steps.length);
  const names = html("ol", { class: "names", "aria-hidden": "true" });
  for (const [replica, name, again] of heads) {
    const item = html("li", again ? { class: "off" } : {});
    item.append(html("b", {}, name), html("span", {}, replica));
    names.append(item);
  }
  const scroll = html("div", { class: "across", tabindex: "0", role: "region", "aria-label": "The swimlane" });
  scroll.append(svg);
  const lanes = html("div", { class: "lanes" });
  lanes.append(names, scroll);
  const says = html("p", { class: "says", role: "status" });
  const swim = html("div", { class: "swim", role: "group", "aria-label": "Swimlane: step through it with the arrow keys" });
  swim.append(bar, says, lanes);
  track.prepend(swim);

  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let at = steps.length;
  let timer = 0;

  function go(to, follow = true) {
    at = Math.min(Math.max(to, 1), steps.length);
    scrub.value = at;
    const n = at - 1;
    const text = `${items[n].querySelector("b").textContent} · ${items[n].querySelector("span").textContent}`;
    scrub.setAttribute("aria-valuetext", `step ${at} of ${steps.length}: ${text}`);
    says.replaceChildren(html("span", {}, `event ${at} of ${steps.length}`), html("b", {}, text));
    parts.forEach((part, place) => {
      part.classList.toggle("later", place > n);
      part.classList.toggle("now", place === n);
    });
    items.forEach((item, place) => item.classList.toggle("now", place === n));
    [...names.children].forEach((item, lane) => item.classList.toggle("now", lane === steps[n].lane));
    head.setAttribute("x1", xs[n]);
    head.setAttribute("x2", xs[n]);
    if (follow) scroll.scrollTo({ left: xs[n] - scroll.clientWidth / 2, behavior: calm.matches ? "auto" : "smooth" });
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.setAttribute("aria-label", "Play");
    play.textContent = "Play";
  }

  function start() {
    if (at === steps.length) go(1);
    play.setAttribute("aria-label", "Pause");
    play.textContent = "Pause";
    timer = setInterval(() => (at === steps.length ? stop() : go(at + 1)), 450);
  }

  const by = (to) => {
    stop();
    go(to());
  };
  back.addEventListener("click", () => by(() => at - 1));
  on.addEventListener("click", () => by(() => (at === steps.length ? 1 : at + 1)));
  play.addEventListener("click", () => (timer ? stop() : start()));
  scrub.addEventListener("input", () => by(() => +scrub.value));
  swim.addEventListener("keydown", (event) => {
    const to = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 1, End: () => steps.length }[event.key];
    if (!to || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    by(to);
  });
  go(steps.length, false);
  names.querySelector(".now")?.classList.remove("now");
  scroll.scrollLeft = 0;
  says.replaceChildren(html("span", {}, `${steps.length} events: step or play through them, or use the arrow keys`));
}

for (const track of document.querySelectorAll(".track")) {
  const folded = track.closest("details.fork, details.crowd");
  if (!folded) draw(track);
  else folded.addEventListener("toggle", () => folded.open && draw(track));
}
