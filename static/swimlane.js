// Lets a drawn timeline play slowly, and step in both directions. The drawing and the list of its
// steps come with the page, which shows both without this script.

// Duration of a playback at speed 1, whatever the number of steps.
const PLAY_MS = 6500;
const SPEEDS = [0.25, 0.5, 1, 2, 4];

function element(name, attributes = {}, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function createControls(texts, stepCount) {
  const bar = element("div", { class: "controls" });
  const button = (kind, text) => {
    const made = element("button", { type: "button", class: `quiet ${kind}` }, text);
    bar.append(made);
    return made;
  };
  const back = button("back", texts.back);
  const forward = button("forward", texts.next);
  const play = button("play", texts.play);
  const label = element("label", { class: "speed" });
  const speed = element("select");
  for (const factor of SPEEDS) {
    const option = element("option", { value: factor }, `${factor}×`);
    option.selected = factor === 1;
    speed.append(option);
  }
  label.append(element("span", {}, texts.speed), speed);
  const slider = element("input", { type: "range", min: 1, max: stepCount, value: stepCount, "aria-label": texts.step });
  bar.append(label, slider);
  return { bar, back, play, forward, label, speed, slider };
}

// The line that moves through the drawing: a short one on the bar of each lane, clear of all texts.
function createPlayhead(svg) {
  const lanes = new Set([...svg.querySelectorAll(".mark")].map((mark) => +mark.getAttribute("y")));
  const lines = [...lanes].map((y) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of [["class", "playhead"], ["y1", y - 11], ["y2", y + 11]]) line.setAttribute(name, value);
    svg.insertBefore(line, svg.querySelector(".step"));
    return line;
  });
  return (x) => lines.forEach((line) => ["x1", "x2"].forEach((end) => line.setAttribute(end, `${x}%`)));
}

function createPlayer(track, autoplay) {
  const swimlane = track.querySelector(".swimlane");
  if (swimlane.hasAttribute("role")) return;
  const texts = track.dataset;
  const items = [...track.querySelectorAll(".steps li")];
  const groups = [...swimlane.querySelectorAll(".step")];
  const xs = groups.map((group) => parseFloat(group.querySelector(".mark").getAttribute("x")));
  const { bar, back, play, forward, label, speed, slider } = createControls(texts, items.length);
  const count = element("span", { class: "step-count" });
  const sentence = element("b");
  const description = element("p", { class: "step-description", role: "status" });
  description.append(count, " ", sentence);
  const command = element("code");
  const commandBox = element("pre", { class: "step-command" });
  commandBox.append(command);
  const beside = element("div", { class: "beside" });
  beside.append(description, commandBox);
  const movePlayhead = createPlayhead(swimlane.querySelector("svg"));
  swimlane.prepend(bar);
  swimlane.querySelector(".lanes").append(beside);
  for (const [name, value] of Object.entries({ role: "group", tabindex: "0", "aria-label": texts.name })) swimlane.setAttribute(name, value);

  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  let current = +texts.at;
  let hasPlayed = false;
  let frame = 0;

  function describe(index) {
    const item = items[index];
    count.textContent = texts.count.replace("#", index + 1);
    sentence.textContent = `${item.querySelector("b").textContent} · ${item.querySelector("span").textContent}`;
    command.textContent = item.querySelector("code")?.textContent ?? "";
  }

  // Makes the box as high as its highest step, so that nothing below it moves with the steps.
  function reserveHeight() {
    beside.style.minHeight = "";
    const heights = items.map((_, index) => {
      describe(index);
      return beside.offsetHeight;
    });
    beside.style.minHeight = `${Math.max(...heights)}px`;
    describe(current - 1);
  }

  function showStep(number) {
    current = Math.min(Math.max(number, 1), items.length);
    const index = current - 1;
    describe(index);
    slider.value = current;
    const colon = document.documentElement.lang === "zh" ? "：" : ": ";
    slider.setAttribute("aria-valuetext", count.textContent + colon + sentence.textContent);
    beside.dataset.kind = items[index].dataset.kind;
    groups.forEach((group, at) => {
      group.classList.toggle("later", at > index);
      group.classList.toggle("current", at === index);
    });
    items.forEach((item, at) => item.classList.toggle("current", at === index));
    movePlayhead(xs[index]);
  }

  function pause() {
    cancelAnimationFrame(frame);
    frame = 0;
    play.textContent = texts.play;
    description.setAttribute("aria-live", "polite");
  }

  // Moves the playhead evenly; a step is shown when the playhead reaches it.
  function start() {
    if (current === items.length || !hasPlayed) showStep(1);
    hasPlayed = true;
    play.textContent = texts.pause;
    // A screen reader would fall behind.
    description.setAttribute("aria-live", "off");
    const way = Math.max(xs.at(-1) - xs[0], 1);
    let [x, last] = [xs[current - 1], performance.now()];
    const tick = (now) => {
      x += way * ((now - last) / PLAY_MS) * +speed.value;
      last = now;
      let next = current;
      while (next < items.length && xs[next] <= x) next += 1;
      if (next !== current) showStep(next);
      movePlayhead(Math.min(x, xs.at(-1)));
      if (current === items.length) return pause();
      frame = requestAnimationFrame(tick);
    };
    frame = requestAnimationFrame(tick);
  }

  const pauseAndShow = (number) => {
    hasPlayed = true;
    pause();
    showStep(number());
  };
  const toggle = () => (frame ? pause() : start());
  back.addEventListener("click", () => pauseAndShow(() => current - 1));
  forward.addEventListener("click", () => pauseAndShow(() => (current === items.length ? 1 : current + 1)));
  play.addEventListener("click", toggle);
  slider.addEventListener("input", () => pauseAndShow(() => +slider.value));
  swimlane.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === speed) return;
    const number = { ArrowLeft: () => current - 1, ArrowRight: () => current + 1, Home: () => 1, End: () => items.length }[event.key];
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
  reserveHeight();
  showStep(current);
  let width = beside.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(beside.clientWidth - width) < 2 || !beside.clientWidth) return;
    width = beside.clientWidth;
    reserveHeight();
  }).observe(beside);
  if (!autoplay || reducedMotion.matches) return;
  showStep(1);
  const seen = new IntersectionObserver((entries) => {
    // Most of it, or most of a low screen.
    const isSeen = ({ intersectionRatio: ratio, intersectionRect: seen }) => ratio >= 0.6 || seen.height >= 0.6 * innerHeight;
    if (!entries.some(isSeen)) return;
    seen.disconnect();
    if (!frame && current === 1) start();
  }, { threshold: [0.2, 0.3, 0.4, 0.5, 0.6] });
  seen.observe(swimlane);
}

// On the site, the first timeline of the page plays by itself when it is seen; elsewhere each one
// opens on the step that tells the most.
let isFirst = true;
for (const track of document.querySelectorAll(".track")) {
  const details = track.closest("details.fork, details.crowd");
  if (details) {
    details.addEventListener("toggle", () => details.open && createPlayer(track, false));
  } else {
    createPlayer(track, isFirst && "plays" in track.dataset);
    isFirst = false;
  }
}
// A computed drawing took the place of another one.
document.addEventListener("track", (event) => createPlayer(event.target, false));
