// The view and what changes it: mouse, keys, the address. Begins to draw.
const target = { start: 0, end: 1 };
let isDue = false, drag = null, mouseX = 0;

function redraw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    const goesOn = approach();
    draw();
    if (goesOn) redraw();
  });
}

// Moves the view a part of the way to its target.
function approach() {
  const span = view.end - view.start, far = Math.abs(target.start - view.start) + Math.abs(target.end - view.end);
  if (far < span * 1e-3) {
    Object.assign(view, target);
    return false;
  }
  view.start += (target.start - view.start) * 0.4;
  view.end += (target.end - view.end) * 0.4;
  return true;
}

function moveTo(start, end, isAtOnce = false) {
  const whole = traceEnd - traceStart, span = Math.min(Math.max(end - start, 20), whole * 1.1);
  start += (end - start - span) / 2;
  start = Math.min(Math.max(start, traceStart - whole * 0.05), traceEnd + whole * 0.05 - span);
  Object.assign(target, { start, end: start + span });
  if (isAtOnce) Object.assign(view, target);
  rememberSoon();
  redraw();
}

function zoom(factor, x) {
  const part = x * size.dpr / size.width, at = target.start + part * (target.end - target.start), span = (target.end - target.start) * factor;
  moveTo(at - part * span, at + (1 - part) * span);
}

function pan(part) {
  const span = target.end - target.start;
  moveTo(target.start + part * span, target.end + part * span);
}

function showAll() {
  const margin = (traceEnd - traceStart) * 0.01;
  moveTo(traceStart - margin, traceEnd + margin);
}

function select(item) {
  selected = item;
  if (item) showCall(item);
  rememberSoon();
  redraw();
}

// Selects a call and brings it into view; `isClose`: until it fills much of it.
function go(item, isClose = false) {
  if (!item) return;
  const length = Math.max(item.end - item.start, 1), span = target.end - target.start;
  const isIn = item.start >= target.start && item.end <= target.end && length > span / 200;
  if (isClose || !isIn) moveTo(item.start - length * 0.6, item.end + length * 0.6);
  const thread = threads[item.thread];
  if (item.depth >= rowsOf(thread)) thread.isFolded = false;
  layOut();
  const y = thread.y + HEAD + item.depth * ROW, room = size.height / size.dpr - RULER;
  if (y < view.top || y + ROW > view.top + room) view.top = y - room / 3;
  select(item);
}

async function goToLongest(fun) {
  const { longest } = functions[fun];
  if (!longest) return;
  go(await best(threads[longest.thread], longest.start, longest.start, (items, i) => (items.fun[i] === fun && items.start[i] === longest.start ? -items.total[i] : Infinity))
    || { thread: longest.thread, start: longest.start, end: longest.start + longest.total, depth: 0, fun, flags: 0, total: longest.total, own: 0, count: 1 }, true);
}

async function goToNext(way) {
  const from = selected && marked && marked[selected.fun] ? selected.start : (view.start + view.end) / 2;
  const found = await nextFound(from, way);
  if (found) go(found, true);
  else if (search) byId("found").textContent = way > 0 ? "no later call" : "no earlier call";
}

let remembering = 0;
function rememberSoon() {
  clearTimeout(remembering);
  remembering = setTimeout(() => { try { history.replaceState(null, "", address()); } catch (e) { /* an address that may not change */ } }, 300);
}

function address() {
  const call = selected ? `&call=${selected.thread},${selected.depth},${selected.start}` : "";
  return `#from=${Math.round(target.start)}&to=${Math.round(target.end)}${call}`;
}

async function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), from = Number(given.get("from") || NaN), to = Number(given.get("to") || NaN);
  if (from < to) moveTo(from, to, true);
  const [thread, depth, start] = (given.get("call") || "").split(",").map(Number);
  if (!given.get("call") || !threads[thread]) return;
  select(await best(threads[thread], start, start, (items, i) => (items.depth[i] === depth && items.start[i] === start ? 0 : Infinity)));
}

function fold(threadsToo, isFolded) {
  for (const thread of threadsToo) thread.isFolded = isFolded;
  redraw();
}

function copyLink() {
  const text = location.href.split("#")[0] + address();
  history.replaceState(null, "", address());
  navigator.clipboard?.writeText(text).catch(() => {});
  byId("found").textContent = "the address leads here";
}

function escape() {
  if (!panel.hidden) hidePanel();
  else if (search) { byId("search").value = ""; searchFor(""); byId("found").textContent = ""; }
  selected = range = null;
  canvas.focus();
  rememberSoon();
  redraw();
}

const keys = {
  "w": () => zoom(0.5, mouseX), "+": () => zoom(0.5, mouseX), "=": () => zoom(0.5, mouseX), "s": () => zoom(2, mouseX), "-": () => zoom(2, mouseX),
  "a": () => pan(-0.25), "d": () => pan(0.25), "0": showAll, "f": () => selected && go(selected, true), "/": () => { byId("search").focus(); byId("search").select(); },
  "?": () => byId("keys").showModal(), "m": () => showRange(target.start, target.end), "n": () => goToNext(1), "N": () => goToNext(-1), "l": copyLink,
  "c": () => fold(threads, !threads.every((t) => t.isFolded)), "Escape": escape,
  "ArrowLeft": async (e) => (e.shiftKey && selected ? go(await neighbour(selected, -1)) : pan(-0.25)),
  "ArrowRight": async (e) => (e.shiftKey && selected ? go(await neighbour(selected, 1)) : pan(0.25)),
  "ArrowUp": async () => (selected ? go(await callerOf(selected)) : scroll(-5 * ROW)),
  "ArrowDown": async () => (selected ? go(await firstCallee(selected)) : scroll(5 * ROW)),
  "PageUp": () => scroll(-size.height / size.dpr * 0.8), "PageDown": () => scroll(size.height / size.dpr * 0.8),
};

function scroll(px) {
  view.top += px;
  redraw();
}

function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || byId("keys").open) return;
  if (e.target === byId("search")) {
    if (e.key === "Enter") { e.preventDefault(); goToNext(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") escape();
    return;
  }
  const action = keys[e.key];
  if (action) { e.preventDefault(); action(e); }
}

function onWheel(e) {
  e.preventDefault();
  if (e.ctrlKey || e.metaKey) return zoom(Math.exp(Math.max(-60, Math.min(60, e.deltaY)) / 150), e.offsetX);
  const sideways = e.shiftKey ? e.deltaX || e.deltaY : e.deltaX;
  if (sideways) pan(sideways / 1000);
  if (!e.shiftKey && e.deltaY) scroll(e.deltaY);
}

function onMove(e) {
  mouseX = e.offsetX;
  if (!drag) return point(e);
  const x = e.offsetX;
  drag.isMoved = drag.isMoved || Math.abs(x - drag.x) + Math.abs(e.offsetY - drag.y) > 4;
  if (!drag.isMoved) return;
  if (drag.isRange) range = { start: nsAt(Math.min(x, drag.x)), end: nsAt(Math.max(x, drag.x)) };
  else {
    const by = (drag.x - x) * size.dpr * nsPerPixel();
    moveTo(drag.start + by, drag.end + by, true);
    view.top = drag.top + drag.y - e.offsetY;
  }
  redraw();
}

// Says what is under the mouse.
function point(e) {
  const tip = byId("tip"), found = hit(e.offsetX, e.offsetY), item = found && found.item;
  tip.hidden = !item;
  if (!item) return;
  const isMany = item.flags & Flag.COUNT, isKnown = !(item.flags & (UNKNOWN | Flag.BEGIN_UNSEEN));
  tip.textContent = (isMany ? `${number(item.count)} x, mostly ` : "") + nameOf(item.fun) + (moduleOf(item.fun) ? ` ${bracketed(moduleOf(item.fun))}` : "") +
    `\n${isMany ? "in " + time(item.end - item.start) : isKnown ? time(item.total) : "? (end or beginning not seen)"}`;
  const box = canvas.getBoundingClientRect();
  tip.style.left = Math.max(0, Math.min(e.offsetX + 14, box.width - tip.offsetWidth - 8)) + "px";
  tip.style.top = (e.offsetY + 22 + tip.offsetHeight > box.height ? e.offsetY - tip.offsetHeight - 8 : e.offsetY + 18) + "px";
}

function onUp(e) {
  const was = drag;
  drag = null;
  if (!was) return;
  if (was.isMoved) {
    if (was.isRange && range) showRange(range.start, range.end);
    return;
  }
  const found = hit(e.offsetX, e.offsetY);
  if (found && !found.item && e.offsetY - RULER + view.top < found.thread.y + HEAD) return fold([found.thread], !found.thread.isFolded);
  if (found && found.item) select(found.item);
  else escape();
}

canvas.addEventListener("pointerdown", (e) => {
  if (e.button) return;
  canvas.setPointerCapture(e.pointerId);
  canvas.focus();
  drag = { x: e.offsetX, y: e.offsetY, start: view.start, end: view.end, top: view.top, isRange: e.shiftKey, isMoved: false };
});
canvas.addEventListener("pointermove", onMove);
canvas.addEventListener("pointerup", onUp);
canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
canvas.addEventListener("dblclick", (e) => { const found = hit(e.offsetX, e.offsetY); if (found && found.item) go(found.item, true); });
canvas.addEventListener("wheel", onWheel, { passive: false });
window.addEventListener("keydown", onKey);
window.addEventListener("hashchange", readAddress);
window.addEventListener("resize", redraw);
new ResizeObserver(redraw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readTheme(); redraw(); });
byId("search").addEventListener("input", (e) => {
  if (searchFor(e.target.value)) showFound();
  else { byId("found").textContent = ""; hidePanel(); }
  redraw();
});
byId("all").onclick = showAll;
byId("range").onclick = () => showRange(target.start, target.end);
byId("link").onclick = copyLink;
byId("help").onclick = () => byId("keys").showModal();
byId("close").onclick = hidePanel;

fillHelp();
readTheme();
resize();
// Of many threads those with most calls are shown whole.
const busiest = threads.slice().sort((a, b) => b.calls - a.calls);
busiest.forEach((thread, at) => { thread.isFolded = threads.length > 4 && at >= 3 && thread.index > 0; });
whenUnpacked = redraw;
showAll();
Object.assign(view, target);
draw();
requestAnimationFrame(() => performance.mark("first paint"));
document.addEventListener("DOMContentLoaded", () => { readAddress(); redraw(); });
canvas.focus();
