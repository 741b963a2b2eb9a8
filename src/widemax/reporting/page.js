"use strict";
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  document.addEventListener("pointermove", (event) => {
    const text = event.target.dataset ? event.target.dataset.tip : "";
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const right = Math.max(0, window.innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.min(event.clientX + 12, right) + "px";
    tip.style.top = event.clientY + 16 + "px";
  });
  for (const button of document.querySelectorAll("[data-series]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      const marks = button.closest("figure").querySelectorAll(".s" + button.dataset.series);
      for (const mark of marks) mark.classList.toggle("hidden", !shown);
    });
  }
})();
