// What a page does beyond its forms: the bar and the shelves stay current, a hold counts down.
// Everything works without it.

const EVERY_MS = 3000;

// Replaces each [data-swap] by its namesake in a fresh copy of the page, if it has changed, so that
// a screen reader is told only what is new.
async function refresh() {
  const from = document.body.dataset.live;
  if (document.hidden || !from) return;
  const response = await fetch(from + location.search, { headers: { Accept: "text/html" } });
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const old of document.querySelectorAll("[data-swap]")) {
    const now = fresh.getElementById(old.id);
    if (!now) continue;
    old.className = now.className;
    const parts = old.querySelector("[role=status]");
    if (parts) swap(parts, now.querySelector("[role=status]"));
    else swap(old, now);
  }
}

function swap(old, now) {
  if (!now || old.innerHTML === now.innerHTML || old.contains(document.activeElement)) return;
  old.replaceChildren(...now.childNodes);
}

async function keepFresh() {
  try {
    await refresh();
  } catch {
    // The shop is away; the next round asks again.
  }
  setTimeout(keepFresh, EVERY_MS);
}

function countDown(clock) {
  const left = Math.floor((Date.parse(clock.dataset.until) - Date.now()) / 1000);
  if (left <= 0) {
    clock.textContent = "no time at all: the hold is over";
    return;
  }
  clock.textContent = `${Math.floor(left / 60)} min ${String(left % 60).padStart(2, "0")} s`;
  setTimeout(countDown, 1000, clock);
}

setTimeout(keepFresh, EVERY_MS);
document.querySelectorAll("[data-until]").forEach(countDown);
