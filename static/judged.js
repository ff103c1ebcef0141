// Finds locks and shops in the table by words of their name, group, language or store; in each group
// first those with that name.

const search = document.getElementById("search");
const words = document.getElementById("words");
const parts = (word) => [word, ...word.split("-")];
const rows = [...document.querySelectorAll("tr[data-words]")].map((row) => {
  const about = row.dataset.words.split(" ");
  return { row, name: parts(about[0]), words: about.flatMap(parts) };
});
const table = rows[0].row.closest("table");

// Returns whether something has a word: as a whole, if any row has it so (Java is not JavaScript),
// else as the beginning of another.
function matcher(word) {
  const isWhole = rows.some((it) => it.words.includes(word));
  return (it) => it.words.some((other) => (isWhole ? other === word : other.startsWith(word)));
}

function find() {
  const wanted = words.value.toLowerCase().match(/[\p{L}\p{N}+#-]+/gu) ?? [];
  const matchers = wanted.map(matcher);
  const isNamed = ({ name }) => wanted.every((word) => name.some((part) => part.startsWith(word)));
  const sorted = [...rows].sort((one, other) => isNamed(other) - isNamed(one));
  for (const it of rows) it.row.hidden = !matchers.every((matches) => matches(it));
  for (const group of table.tBodies) {
    const own = sorted.map(({ row }) => row).filter((row) => row.parentElement === group);
    group.append(...own);
    group.hidden = own.every((row) => row.hidden);
  }

  const shown = rows.filter(({ row }) => !row.hidden);
  const count = new Set(shown.map(({ name }) => name[0])).size;
  const { none, found, rows: inRows } = search.dataset;
  const locks = found.replace("%", count);
  let said = shown.length === count ? locks : inRows.replace("%locks", locks).replace("%rows", shown.length);
  if (count === 0) said = none.replace("%", () => words.value.trim());
  document.getElementById("found").textContent = said;
  table.parentElement.hidden = count === 0;
}

search.hidden = false;
search.addEventListener("submit", (event) => event.preventDefault());
words.addEventListener("input", find);
find();
