// Charts that are wider than the screen open where an update is lost.

for (const chart of document.querySelectorAll(".static-lanes .timeline")) {
  const loss = chart.querySelector(".loss .mark")?.getBoundingClientRect();
  if (loss) chart.scrollLeft = loss.x - chart.getBoundingClientRect().x - chart.clientWidth / 2;
}
