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
  // A page may have less to follow by now: an order that has gone its way changes no more.
  if (fresh.body.dataset.live) document.body.dataset.live = fresh.body.dataset.live;
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

// The server says how much is left, and a clock that nobody can set counts it down: the browser's
// own may be an hour off.
function countDown(clock) {
  const over = performance.now() + Number(clock.dataset.leftMs);
  const tick = () => {
    const left = over - performance.now();
    if (left <= 0) {
      holdIsOver(clock.dataset.order);
      return;
    }
    const seconds = Math.ceil(left / 1000);
    clock.textContent = `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
    // To the moment at which the next second has passed.
    setTimeout(tick, left % 1000 || 1000);
  };
  tick();
}

// Says so, in the page's own words, and takes *Pay* away; then the order's page is asked until the
// shop has given it back.
function holdIsOver(order) {
  const said = (id) => document.getElementById(id).content.cloneNode(true);
  document.getElementById("order-status").replaceChildren(said("expired-status"));
  document.getElementById("standing").replaceChildren(said("too-late"));
  document.body.dataset.live = order;
}

setTimeout(keepFresh, EVERY_MS);
document.querySelectorAll("[data-left-ms]").forEach(countDown);
