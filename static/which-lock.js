// Shows the answer to the questions once the answers that it needs are given.

const questions = document.getElementById("questions");
const answers = [...document.querySelectorAll("[data-needs]")];

function answer() {
  const given = new Set([...new FormData(questions)].map(([name, value]) => `${name}=${value}`));
  for (const section of answers) {
    section.hidden = !section.dataset.needs.split(" ").every((need) => given.has(need));
  }
}

questions.addEventListener("change", answer);
// A browser restores the answers of a page that it has shown before.
answer();
