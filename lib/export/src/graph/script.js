"use strict";
// A click on a box leaves only it, what it calls and what calls it.
(() => {
  const graph = document.getElementById("graph");
  const boxes = [...graph.querySelectorAll(".node")];
  const arrows = [...graph.querySelectorAll(".arrow")];
  let chosen = null;
  function show(index) {
    chosen = index;
    const near = new Set([index]);
    for (const arrow of arrows) {
      const { f, t } = arrow.dataset;
      const isNear = index !== null && (f === index || t === index);
      if (isNear) { near.add(f); near.add(t); }
      arrow.classList.toggle("near", isNear);
      arrow.classList.toggle("pale", index !== null && !isNear);
    }
    for (const box of boxes) {
      box.classList.toggle("pale", index !== null && !near.has(box.dataset.i));
      box.classList.toggle("chosen", box.dataset.i === index);
    }
  }
  for (const box of boxes) box.addEventListener("click", event => {
    event.stopPropagation();
    show(box.dataset.i === chosen ? null : box.dataset.i);
  });
  document.addEventListener("click", () => show(null));
  document.addEventListener("keydown", event => {
    const focused = document.activeElement;
    if (event.key === "Escape") show(null);
    else if (event.key === "Enter" && focused && focused.dataset.i !== undefined) show(focused.dataset.i);
  });
})();
