"use strict";
// A click on a box leaves only it, what it calls and what calls it. Searches; zooms.
(() => {
  const svg = document.documentElement, byId = (id) => document.getElementById(id);
  const graph = byId("graph"), boxes = [...graph.querySelectorAll(".node")], arrows = [...graph.querySelectorAll(".arrow")];
  const names = boxes.map(box => box.querySelector("title").textContent.split("\n")[0]);
  const whole = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
  let chosen = null, matches = [], at = -1, scale = 1;

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

  function bringIntoView(box) {
    const { left, top, width, height } = box.querySelector("rect").getBoundingClientRect();
    window.scrollBy(left + width / 2 - window.innerWidth / 2, top + height / 2 - window.innerHeight / 2);
  }

  // Scales the page; what is at this place of the window stays there.
  function zoom(to, x = window.innerWidth / 2, y = window.innerHeight / 2) {
    const before = scale, [left, top] = [window.scrollX + x, window.scrollY + y];
    scale = Math.min(8, Math.max(0.05, to));
    svg.setAttribute("width", Math.round(whole.width * scale));
    svg.setAttribute("height", Math.round(whole.height * scale));
    window.scrollTo(left * scale / before - x, top * scale / before - y);
    placeHead();
  }

  // The head stays where it is in the window, and as large as it is.
  function placeHead() {
    byId("head").setAttribute("transform", `translate(${window.scrollX / scale} ${window.scrollY / scale}) scale(${1 / scale})`);
  }

  function search(text) {
    let isFound = () => false;
    if (text) {
      try { const re = new RegExp(text, "i"); isFound = (name) => re.test(name); }
      catch (e) { const low = text.toLowerCase(); isFound = (name) => name.toLowerCase().includes(low); }
    }
    matches = boxes.filter((box, i) => isFound(names[i]));
    at = -1;
    for (const box of boxes) box.classList.toggle("found", matches.includes(box));
    byId("found").textContent = text ? `${matches.length} of ${boxes.length}` : "";
  }

  function goToNext(step) {
    if (!matches.length) return;
    // Before the first one lies the last.
    at = at < 0 && step < 0 ? matches.length - 1 : (at + step + matches.length) % matches.length;
    show(matches[at].dataset.i);
    bringIntoView(matches[at]);
    byId("found").textContent = `${at + 1} of ${matches.length}: ${names[boxes.indexOf(matches[at])]}`;
  }

  const input = byId("search");
  for (const box of boxes) box.addEventListener("click", event => {
    event.stopPropagation();
    show(box.dataset.i === chosen ? null : box.dataset.i);
  });
  document.addEventListener("click", event => { if (event.target !== input) show(null); });
  input.addEventListener("input", () => search(input.value));
  document.addEventListener("keydown", event => {
    const focused = document.activeElement;
    if ((event.ctrlKey || event.metaKey) && event.key === "f") { event.preventDefault(); input.focus(); input.select(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (chosen !== null) show(null);
      else { input.value = ""; search(""); input.blur(); }
    } else if (focused === input) {
      if (event.key === "Enter") goToNext(event.shiftKey ? -1 : 1);
    } else if (event.key === "Enter" && focused && focused.dataset && focused.dataset.i !== undefined) show(focused.dataset.i);
    else if (event.key === "/") { event.preventDefault(); input.focus(); input.select(); }
    else if (event.key === "+" || event.key === "=") zoom(scale * 1.25);
    else if (event.key === "-") zoom(scale / 1.25);
    else if (event.key === "0") zoom(Math.min(1, window.innerWidth / whole.width, window.innerHeight / whole.height));
    else if (event.key === "1") zoom(1);
  });
  window.addEventListener("scroll", placeHead);
  window.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(scale * Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
  }, { passive: false });
})();
