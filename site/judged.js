// Finds locks in the table by words of their name, language or store.

const search = document.getElementById("search");
const words = document.getElementById("words");
const rows = [...document.querySelectorAll("tr[data-words]")];

function find() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = new Set();
  for (const row of rows) {
    row.hidden = !wanted.every((word) => row.dataset.words.includes(word));
    if (!row.hidden) found.add(row.dataset.words);
  }
  document.getElementById("found").textContent = search.dataset[found.size === 1 ? "one" : "other"].replace("%", found.size);
}

search.hidden = false;
search.addEventListener("submit", (event) => event.preventDefault());
words.addEventListener("input", find);
find();
