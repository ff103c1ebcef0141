// Finds locks in the table by words of their name, language or store.

const search = document.getElementById("search");
const words = document.getElementById("words");
const rows = [...document.querySelectorAll("tr[data-words]")];

function find() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Set();
  let shown = 0;
  for (const row of rows) {
    row.hidden = !wanted.every((word) => row.dataset.words.includes(word));
    if (row.hidden) continue;
    shown += 1;
    found.add(row.dataset.words);
  }
  const { one, other, rows: inRows } = search.dataset;
  const locks = (found.size === 1 ? one : other).replace("%", found.size);
  document.getElementById("found").textContent = shown === found.size ? locks : inRows.replace("%locks", locks).replace("%rows", shown);
}

search.hidden = false;
search.addEventListener("submit", (event) => event.preventDefault());
words.addEventListener("input", find);
find();
