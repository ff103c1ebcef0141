// Shows the answer to the questions once the answers that it needs are given.

const questions = document.getElementById("questions");
const answers = [...document.querySelectorAll("[data-needs]")];

function answer() {
  const given = new Set([...new FormData(questions)].map(([name, value]) => `${name}=${value}`));
  // Only the questions whose answer can change the lock are asked.
  for (const fieldset of questions.querySelectorAll("fieldset")) {
    const { name } = fieldset.querySelector("input");
    const open = (need) => ![...given].some((it) => it.startsWith(need.split("=")[0] + "="));
    const fits = (need) => need.startsWith(`${name}=`) || open(need) || given.has(need);
    const possible = answers.filter(({ dataset }) => dataset.needs.split(" ").every(fits));
    fieldset.hidden = !possible.some(({ dataset }) => dataset.needs.includes(`${name}=`));
  }
  for (const section of answers) {
    section.hidden = !section.dataset.needs.split(" ").every((need) => given.has(need));
  }
}

questions.addEventListener("change", answer);
// A browser restores the answers of a page that it has shown before.
answer();
