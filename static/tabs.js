// Tabs of a run's page, and of its file: shows one section at a time, by the pattern of the ARIA
// Authoring Practices. Without this script all sections are shown.

function createTabs(box) {
  const panels = [...box.children].filter((panel) => panel.querySelector("h2, h3"));
  if (panels.length < 2) return;
  const list = document.createElement("div");
  list.className = "tablist";
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", box.dataset.label);
  const tabs = panels.map((panel, index) => {
    const tab = document.createElement("button");
    const title = panel.querySelector("h2, h3");
    tab.type = "button";
    tab.textContent = title.textContent;
    tab.id = `tab-${title.id}`;
    tab.setAttribute("role", "tab");
    panel.id ||= `panel-${title.id}`;
    tab.setAttribute("aria-controls", panel.id);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => select(index));
    list.append(tab);
    return tab;
  });
  function select(chosen) {
    tabs.forEach((tab, index) => {
      const isChosen = index === chosen;
      tab.setAttribute("aria-selected", isChosen);
      tab.tabIndex = isChosen ? 0 : -1;
      panels[index].hidden = !isChosen;
    });
  }
  list.addEventListener("keydown", (event) => {
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const index = (to + tabs.length) % tabs.length;
    select(index);
    tabs[index].focus();
  });
  box.prepend(list);
  select(0);
}

document.querySelectorAll(".tabs").forEach(createTabs);
