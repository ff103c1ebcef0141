// Handles of a lesson's causes: moving one fetches the picture that the server computes from the
// durations of the run. The sliders are native; the grips in the drawing move them.

const form = document.querySelector("form.handles");
let pending = null;

async function update() {
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  const values = new URLSearchParams([...form.querySelectorAll("input[type=range]")].map((input) => [input.name, input.value]));
  try {
    const response = await fetch(`${form.dataset.from}?${values}`, { signal });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const track = page.querySelector(".track");
    document.querySelector(".player .track").replaceWith(track);
    form.querySelector(".outcome").textContent = page.querySelector(".outcome").textContent;
    track.dispatchEvent(new Event("track", { bubbles: true }));
  } catch (error) {
    // A newer value is on its way, or the server is away: the picture stays as it is.
    if (error.name !== "AbortError") console.warn(error);
  }
}

function show(input) {
  const text = `${(+input.value).toLocaleString("en")} ms`;
  input.parentElement.querySelector("output").textContent = text;
  input.setAttribute("aria-valuetext", text);
}

form.addEventListener("input", (event) => {
  show(event.target);
  update();
});

// The scale of a drag is that of the drawing at its start: the drawing is replaced meanwhile.
let drag = null;
document.addEventListener("pointerdown", (event) => {
  const grip = event.target.closest?.(".grip");
  if (!grip) return;
  const svg = grip.closest("svg");
  const input = form.elements[grip.dataset.field];
  drag = { input, from: +input.value, x: event.clientX, scale: +svg.dataset.ms / svg.clientWidth };
  event.preventDefault();
});
document.addEventListener("pointermove", (event) => {
  if (!drag) return;
  const before = drag.input.value;
  drag.input.value = drag.from + (event.clientX - drag.x) * drag.scale;
  if (drag.input.value !== before) drag.input.dispatchEvent(new Event("input", { bubbles: true }));
});
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => (drag = null));
