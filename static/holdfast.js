// Updates open pages: the bar and the stock refresh themselves, a payment window counts down, and
// the pages of a class follow its teacher's. Shows the definitions of words.
// Every page works without this script.

const REFRESH_INTERVAL_MS = 3000;
// A network that has gone may leave a request open for minutes.
const REFRESH_TIMEOUT_MS = 10_000;
const isPresented = location.search === "?present";
let refreshedAt = new Date();
let announcedRace;
// Counts the refreshes: of two at once, the later one tells, whichever is answered last.
let refreshes = 0;

// Replaces the content of each [data-swap] element with that of a fresh copy of the page, if it has
// changed, so that a screen reader announces only changes.
async function refresh() {
  const url = document.body.dataset.live;
  if (document.hidden || !url) return;
  const own = (refreshes += 1);
  // A race plays on the first page, and the class is led to the page of its own.
  const race = isPresented ? document.getElementById("race")?.dataset.race : undefined;
  const query = race && race !== announcedRace ? `${location.search}&race=${race}` : location.search;
  const signal = AbortSignal.timeout?.(REFRESH_TIMEOUT_MS);
  const response = await fetch(url + query, { headers: { Accept: "text/html" }, signal });
  if (!response.ok) throw new Error(response.statusText);
  announcedRace = race;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (own !== refreshes) return;
  refreshedAt = new Date();
  // Before the comparison: otherwise each refresh would replace every time.
  showLocalTimes(fresh);
  // The URL may change with the state of the page: a settled order has only its bar to refresh.
  if (fresh.body.dataset.live) document.body.dataset.live = fresh.body.dataset.live;
  for (const element of document.querySelectorAll("[data-swap]")) {
    const replacement = fresh.getElementById(element.id);
    if (!replacement) continue;
    element.className = replacement.className;
    // While selling is paused, the buttons that buy are disabled.
    if ("disabled" in replacement) {
      element.disabled = replacement.disabled;
      const why = replacement.getAttribute("aria-describedby");
      if (why) element.setAttribute("aria-describedby", why);
      else element.removeAttribute("aria-describedby");
    }
    const status = element.querySelector("[role=status]");
    if (status) replaceContent(status, replacement.querySelector("[role=status]"));
    else replaceContent(element, replacement);
  }
  followTeacher();
}

function replaceContent(element, replacement) {
  if (!replacement || element.innerHTML === replacement.innerHTML) return;
  if (element.contains(document.activeElement)) return;
  element.replaceChildren(...replacement.childNodes);
}

// Shows times in the zone of the browser, and in UTC as their title: a page has them in UTC. A
// relative time has both in its title. The shape stays, so that nothing shifts.
function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[data-utc], time[title]")) {
    const at = new Date(time.dateTime);
    const east = -at.getTimezoneOffset();
    const part = (minutes) => String(Math.floor(Math.abs(minutes))).padStart(2, "0");
    const zone = (east < 0 ? "−" : "+") + part(east / 60) + (east % 60 ? ":" + part(east % 60) : "");
    const clock = new Date(at.getTime() + east * 60_000).toISOString().slice(0, 19).replace("T", " ");
    const local = `${clock} ${zone}`;
    if (time.title) {
      time.title = `${local} · ${time.title}`;
    } else {
      time.title = time.textContent;
      time.textContent = local;
    }
  }
}

// Refreshes the page. If the replica does not respond, the bar says when it last did, in place of a
// state of the books that may be old; the next refresh tries again.
async function tryRefresh() {
  try {
    await refresh();
  } catch {
    const books = document.getElementById("books");
    const stale = books?.dataset.stale.replace("{time}", refreshedAt.toLocaleTimeString(document.documentElement.lang));
    if (books && books.textContent !== stale) books.textContent = stale;
  }
}

async function refreshForever() {
  await tryRefresh();
  setTimeout(refreshForever, REFRESH_INTERVAL_MS);
}

// Counts down from the remaining time that the server sent, on the monotonic clock: the browser's
// wall clock may be wrong.
function countDown(timer) {
  const end = performance.now() + Number(timer.dataset.leftMs);
  const tick = () => {
    const left = end - performance.now();
    if (left <= 0) {
      showExpired(timer.dataset.order);
      return;
    }
    const seconds = Math.ceil(left / 1000);
    timer.textContent = timer.dataset.leftForm
      .replace("{m}", Math.floor(seconds / 60))
      .replace("{s}", String(seconds % 60).padStart(2, "0"));
    // The time until the displayed second has passed.
    setTimeout(tick, left % 1000 || 1000);
  };
  tick();
}

// Shows the page's own texts for an expired order in place of the form *Pay*, and refreshes the
// order's page until its units are returned.
function showExpired(orderUrl) {
  const content = (id) => document.getElementById(id).content.cloneNode(true);
  document.getElementById("order-status").replaceChildren(content("expired-status"));
  document.getElementById("order-actions").replaceChildren(content("too-late"));
  document.body.dataset.live = orderUrl;
}

// A word of the glossary shows its definition while one points at it or focuses it. A click keeps
// it: by itself, it would close what the pointer has just opened.
let shownByPointing = null;

function explain(term) {
  const definition = document.getElementById(term.getAttribute("popovertarget"));
  const isPointedAt = () => term.matches(":hover, :focus-visible") || definition.matches(":hover");
  const show = () => {
    if (definition.matches(":popover-open")) return;
    definition.showPopover({ source: term });
    shownByPointing = definition;
  };
  const hide = () => {
    if (shownByPointing !== definition || isPointedAt()) return;
    shownByPointing = null;
    definition.hidePopover();
  };
  // On its way from the word to the definition, the pointer is over neither.
  const hideSoon = () => setTimeout(hide, 200);
  term.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show());
  term.addEventListener("focus", () => term.matches(":focus-visible") && show());
  for (const part of [term, definition]) part.addEventListener("pointerleave", hideSoon);
  term.addEventListener("blur", hideSoon);
  term.addEventListener("click", (event) => {
    if (shownByPointing !== definition || !definition.matches(":popover-open")) return;
    event.preventDefault();
    shownByPointing = null;
  });
}

// For the page of a student. The last page that was followed is stored in the tab: whoever goes
// elsewhere may stay there until the teacher's page changes.
const followed = "followed";
const followBox = document.getElementById("follow");

function followTeacher() {
  if (!followBox?.checked) return;
  const link = document.querySelector("#teacher a");
  const page = link?.pathname ?? (document.querySelector("#teacher .here") && location.pathname);
  if (!page || page === sessionStorage.getItem(followed)) return;
  if (link && hasUnsentInput()) return;
  sessionStorage.setItem(followed, page);
  if (link) location.assign(link.href);
}

// Returns whether an answer is chosen, or a text is typed, that the server does not have.
function hasUnsentInput() {
  const isChanged = (field) => field.checked !== field.defaultChecked || field.value !== field.defaultValue;
  const fields = document.querySelectorAll("main :is([name=guess], textarea):enabled");
  return Boolean(document.querySelector("main [aria-invalid]")) || [...fields].some(isChanged);
}

if (followBox) {
  followBox.checked = sessionStorage.getItem(followed) !== null;
  followBox.addEventListener("change", () => {
    if (followBox.checked) sessionStorage.setItem(followed, "");
    else sessionStorage.removeItem(followed);
    followTeacher();
  });
  document.getElementById("teacher").addEventListener("click", ({ target }) => {
    if (!target.pathname) return;
    sessionStorage.setItem(followed, target.pathname);
    // Whoever comes back finds the focus where it was, and what has it is not replaced.
    target.blur();
  });
  followTeacher();
}

showLocalTimes(document);
setTimeout(refreshForever, REFRESH_INTERVAL_MS);
// A page that is shown again may be old: its basket changed in another tab, or it comes from the
// browser's cache.
document.addEventListener("visibilitychange", tryRefresh);
window.addEventListener("focus", tryRefresh);
window.addEventListener("online", tryRefresh);
// A projector that goes back leads the class there, and so does one that shows what its browser has
// loaded before: the server is asked for the page.
const showAgain = () => (isPresented ? location.reload() : tryRefresh());
window.addEventListener("pageshow", (event) => event.persisted && showAgain());
document.addEventListener("prerenderingchange", showAgain);
document.querySelectorAll("[data-left-ms]").forEach(countDown);
if (HTMLElement.prototype.showPopover) document.querySelectorAll(".term").forEach(explain);
