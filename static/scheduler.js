// You are the scheduler: sends the page's forms without loading a page, and keys press its buttons.
// Without this script the forms work as they are.

const WAIT_POLL_MS = 700;
const KEYS = { u: "undo", x: "expire", r: "again" };
const STARS = "holdfast-stars-";

const game = document.getElementById("game");
let isSending = false;
let waitTimer = 0;

function storedStars(level) {
  try {
    return Number(localStorage.getItem(STARS + level)) || 0;
  } catch {
    return 0;
  }
}

function storeStars({ level, stars }) {
  if (!level || storedStars(level) >= Number(stars)) return;
  try {
    localStorage.setItem(STARS + level, stars);
  } catch {
    // The browser stores nothing; the stars are shown all the same.
  }
}

function showLevels() {
  for (const level of document.querySelectorAll("[data-stars-of]")) {
    const stars = storedStars(level.dataset.starsOf);
    level.querySelector(".stars").textContent = "★".repeat(stars) + "☆".repeat(3 - stars);
  }
}

// Replaces the game by a fresh copy, and keeps the focus.
async function swap(response) {
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("game");
  if (!fresh) throw new Error("this is no game");
  const focused = document.activeElement?.id;
  const isNew = fresh.dataset.last !== game.dataset.last;
  game.replaceChildren(...fresh.childNodes);
  for (const name of ["last", "waiting", "level", "stars"]) {
    if (name in fresh.dataset) game.dataset[name] = fresh.dataset[name];
    else delete game.dataset[name];
  }
  // A refused step is answered with the page of the game, without a redirect.
  if (response.ok) history.replaceState(null, "", response.url);
  const target = document.getElementById(focused);
  (target && !target.disabled ? target : game).focus({ preventScroll: true });
  if (isNew) document.getElementById("announce").textContent = `${fresh.dataset.last} ${game.querySelector("#goal-title").textContent}`;
  settle();
}

// After each state: keeps the stars, and looks again while an order waits.
function settle() {
  storeStars(game.dataset);
  clearTimeout(waitTimer);
  if ("waiting" in game.dataset) waitTimer = setTimeout(look, WAIT_POLL_MS);
}

async function look() {
  if (isSending || document.hidden) return settle();
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!isSending) await swap(response);
  } catch {
    settle();
  }
}

async function send(form, button) {
  isSending = true;
  game.setAttribute("aria-busy", "true");
  const body = new URLSearchParams(new FormData(form));
  if (button?.name) body.set(button.name, button.value);
  try {
    await swap(await fetch(form.action, { method: "POST", body, headers: { Accept: "text/html" } }));
  } catch {
    // The page of the game says what is the matter.
    location.reload();
  } finally {
    isSending = false;
    game.removeAttribute("aria-busy");
  }
}

if (game) {
  game.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isSending) send(event.target, event.submitter);
  });
  game.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.repeat) return;
    const key = event.key.toLowerCase();
    const button = document.getElementById(KEYS[key] ?? `step-${key.toUpperCase()}`);
    if (!button || button.disabled || isSending) return;
    event.preventDefault();
    button.click();
  });
  game.focus({ preventScroll: true });
  settle();
} else {
  showLevels();
}
