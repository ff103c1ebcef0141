// Returns what is wrong with the drawings that are seen: texts that cover one another or leave their
// drawing, at any step of the playback a playhead that cuts a text.
const problems = [];

function boxes(svg, css) {
  const seen = [...svg.querySelectorAll(css)].filter((element) => element.getClientRects().length);
  return seen.map((element) => [element.textContent, element.getBoundingClientRect()]);
}

// Texts of neighbouring rows may touch, not cover.
function covers(one, other) {
  const [x, y] = [Math.min(one.right, other.right) - Math.max(one.left, other.left), Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)];
  return x > 0.5 && y > 0.5;
}

function examine(svg, where) {
  const texts = boxes(svg, "text");
  const frame = svg.getBoundingClientRect();
  texts.forEach(([text, box], at) => {
    if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5) problems.push(`${where}: "${text}" leaves the drawing`);
    for (const [other, otherBox] of texts.slice(at + 1)) {
      if (covers(box, otherBox)) problems.push(`${where}: "${text}" covers "${other}"`);
    }
    for (const [, line] of boxes(svg, ".playhead")) {
      const cut = line.left < box.right && line.right > box.left && line.top < box.bottom && line.bottom > box.top;
      if (cut) problems.push(`${where}: the playhead cuts "${text}"`);
    }
  });
  return texts.length;
}

let count = 0;
for (const swimlane of document.querySelectorAll(".swimlane[role]")) {
  const svg = swimlane.querySelector("svg");
  if (!svg.getClientRects().length) continue;
  const slider = swimlane.querySelector("input[type=range]");
  for (let step = 1; step <= +slider.max; step += 1) {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
    count += examine(svg, `step ${step}`);
  }
}
return [count, [...new Set(problems.map((problem) => problem.replace(/^step \d+: /, "")))]];
