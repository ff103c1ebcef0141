// Of recorded races, a choice plays at once: the switch, its hint, a lock, the number of buyers. The
// lead says under which lock the shown race was recorded. race.js comes first, and has set up the
// stage for the choice by then.

const form = document.getElementById("race");
const lead = document.getElementById("race-lead");
const hint = document.getElementById("race-hint");

function follow() {
  if (lead) lead.textContent = lead.dataset[form.elements.on.checked ? form.elements.lock.value : "none"];
}

function play() {
  follow();
  form.requestSubmit();
}

form.addEventListener("input", ({ target }) => target.type !== "range" && play());
// The lock that was chosen before is no input, but turns the lock on.
form.addEventListener("click", ({ target }) => target.name === "lock" && play());
hint.addEventListener("click", () => form.elements.on.click());
// A browser restores the inputs of a page that it has shown before.
follow();
