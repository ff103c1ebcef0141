// Returns the texts before which a line breaks although they begin with punctuation.
const closing = /[,.;:!?)’”，。；：、！？）]/;
const found = [];
document.querySelectorAll("details").forEach((part) => (part.open = true));

for (const block of document.querySelectorAll("main :is(p, li, dd, legend, label, summary, td, h1, h2, h3)")) {
  const texts = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  let before = null;
  while (texts.nextNode()) {
    const text = texts.currentNode;
    // The path of a file may break anywhere, and a menu's entries have no lines of the page.
    const isLeftOut = text.parentElement.closest("code, option");
    for (const { 0: character, index } of text.data.matchAll(/./gs)) {
      range.setStart(text, index);
      range.setEnd(text, index + 1);
      const box = range.getBoundingClientRect();
      const begins = before && box.left < before.right - 1;
      if (begins && !isLeftOut && closing.test(character)) found.push(text.data.slice(index, index + 20));
      // After a space, it is a sign of its own.
      if (!character.trim()) before = null;
      else if (box.width) before = box;
    }
  }
}
return found;
