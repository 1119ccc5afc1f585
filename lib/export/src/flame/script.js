// Lays the frames out for the width of the window; zooms at a click, searches, resets.
"use strict";
(() => {
  const svg = document.documentElement, byId = (id) => document.getElementById(id);
  const frames = Array.from(byId("frames").children, (g) => ({
    g, rect: g.querySelector("rect"), text: g.querySelector("text"), name: g.dataset.n, depth: +g.dataset.d,
    start: +g.dataset.s, value: +g.dataset.v,
  }));
  const all = frames[0], charPx = 7.25, marginPx = 10;
  const number = (n) => n.toLocaleString("en-US");
  const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(2) : "0.00") + " %";
  let zoomed = all, pattern = "";

  function layOut() {
    const width = Math.max(200, svg.clientWidth || window.innerWidth) - 2 * marginPx;
    const scale = width / Math.max(1, zoomed.value), end = zoomed.start + zoomed.value;
    for (const f of frames) {
      const isBelow = f.depth < zoomed.depth && f.start <= zoomed.start && f.start + f.value >= end;
      const isInside = f.depth >= zoomed.depth && f.start >= zoomed.start && f.start + f.value <= end;
      const px = isBelow ? width : f.value * scale;
      const isShown = isBelow || (isInside && px >= 0.3);
      f.g.style.display = isShown ? "" : "none";
      if (!isShown) continue;
      f.g.classList.toggle("below", isBelow);
      const x = marginPx + (isBelow ? 0 : (f.start - zoomed.start) * scale);
      f.rect.setAttribute("x", x);
      f.rect.setAttribute("width", Math.max(0.3, px - 0.3));
      f.text.setAttribute("x", x + 3);
      const room = Math.floor((px - 6) / charPx);
      f.text.textContent = room < 3 ? "" : f.name.length <= room ? f.name : f.name.slice(0, room - 1) + "\u2026";
    }
    byId("reset").classList.toggle("off", zoomed === all);
  }

  function zoom(frame) { zoomed = frame; layOut(); }

  function search(text) {
    pattern = text;
    let matches = () => false;
    if (text) {
      try { const re = new RegExp(text, "i"); matches = (name) => re.test(name); }
      catch (e) { const low = text.toLowerCase(); matches = (name) => name.toLowerCase().includes(low); }
    }
    // Frames come parents first: one inside of a found one counts only once.
    let sum = 0, count = 0, end = -1;
    const found = frames.filter((f) => f !== all && matches(f.name));
    const marked = new Set(found);
    for (const f of frames) f.g.classList.toggle("found", marked.has(f));
    for (const f of found.slice().sort((a, b) => a.start - b.start || b.value - a.value)) {
      count += 1;
      if (f.start >= end) { sum += f.value; end = f.start + f.value; }
    }
    byId("found").textContent = text ? number(count) + " frames, " + percent(sum, all.value) : "";
  }

  const input = byId("search");
  input.addEventListener("input", () => search(input.value));
  byId("reset").addEventListener("click", () => zoom(all));
  byId("frames").addEventListener("click", (e) => {
    const frame = frames.find((f) => f.g === e.target.closest("g"));
    if (frame) zoom(frame);
  });
  byId("frames").addEventListener("mouseover", (e) => {
    const g = e.target.closest("g"), title = g && g.querySelector("title");
    byId("details").textContent = title ? title.textContent.split("\n").join("   ") : "";
  });
  byId("frames").addEventListener("mouseout", () => { byId("details").textContent = ""; });
  window.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); input.focus(); input.select(); }
    if (e.key === "Escape") { if (pattern) { input.value = ""; search(""); } else zoom(all); }
  });
  // What is searched and what is under the mouse stay in the window where the frames are higher than it.
  function place() {
    const head = byId("head"), foot = byId("foot");
    head.setAttribute("transform", `translate(0 ${window.scrollY})`);
    foot.setAttribute("transform", `translate(0 ${Math.min(+foot.dataset.y, window.scrollY + window.innerHeight - FOOT_PX)})`);
  }
  const FOOT_PX = byId("foot").firstElementChild.height.baseVal.value;
  window.addEventListener("resize", () => { layOut(); place(); });
  window.addEventListener("scroll", place);
  layOut();
  // A flame stands on its root, which is where somebody begins to read.
  if (all.rect.y.baseVal.value > window.innerHeight) window.scrollTo(0, svg.getBoundingClientRect().height);
  place();
})();
