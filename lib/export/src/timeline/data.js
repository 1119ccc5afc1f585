// The table of the page and its parts of calls, which are unpacked when asked for and forgotten when there are many.
// `columns.rs` says how a part is packed.
const byId = (id) => document.getElementById(id);
const table = JSON.parse(byId("table").textContent);
const Flag = { COUNT: 1, TOTAL: 2, OWN: 4, INNER: 8, UNWOUND: 16, END_UNSEEN: 32, OWN_UNKNOWN: 64, UNTIL_PROCESS_END: 128, BEGIN_UNSEEN: 256,
  TAIL: 512, ENTRY_ONLY: 1024 };
const UNKNOWN = Flag.UNWOUND | Flag.END_UNSEEN;
// Functions with smaller numbers are marks.
const Mark = { WAITED: 0, LOST: 1, RESUMED: 2, ENDED: 3 }, MARKS = 4;
// Items kept unpacked: some 40 bytes each.
const MAX_UNPACKED = 5e6;

const functions = table.functions.map((f) => f && {
  name: f[0], module: f[1], calls: f[2], total: f[3], own: f[4], longest: f.length > 5 ? { thread: f[5], start: f[6], total: f[7] } : null,
});
const threads = table.threads.map((thread, index) => ({ ...thread, index, levels: [] }));
const parts = table.parts.map(([thread, step, start, end, count], id) => ({ id, thread, step, start, end, count, items: null, promise: null, used: 0 }));
for (const part of parts) {
  const levels = threads[part.thread].levels;
  let level = levels.find((l) => l.step === part.step);
  if (!level) levels.push(level = { step: part.step, parts: [] });
  level.parts.push(part);
}
for (const thread of threads) {
  thread.levels.sort((a, b) => a.step - b.step);
  for (const level of thread.levels) level.parts.sort((a, b) => a.start - b.start);
}
const traceEnd = Math.max(1, ...threads.map((t) => t.end)), traceStart = Math.min(traceEnd - 1, ...threads.map((t) => t.start));

let unpacked = 0, uses = 0;
let whenUnpacked = () => {};

// The element is there and the browser has read all of it.
function isRead(part) {
  const element = byId("p" + part.id);
  return element && (element.nextSibling || document.readyState !== "loading");
}

function load(part) {
  part.used = ++uses;
  if (part.items) return Promise.resolve(part.items);
  if (part.promise) return part.promise;
  if (!isRead(part)) return Promise.resolve(null);
  part.promise = unpack(part).then((items) => {
    part.items = items;
    part.promise = null;
    unpacked += part.count;
    if (unpacked > MAX_UNPACKED) forget();
    whenUnpacked();
    return items;
  });
  return part.promise;
}

function forget() {
  const old = parts.filter((p) => p.items).sort((a, b) => a.used - b.used);
  while (unpacked > MAX_UNPACKED / 2 && old.length > 1) {
    const part = old.shift();
    part.items = null;
    unpacked -= part.count;
  }
}

const unpack = async (part) => decode(await inflate(byId("p" + part.id).textContent), part);

async function inflate(base64) {
  const text = atob(base64), packed = new Uint8Array(text.length);
  for (let i = 0; i < packed.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function decode(bytes, part) {
  const n = part.count;
  let at = 0;
  const next = () => {
    let value = 0, scale = 1, byte;
    do { byte = bytes[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return value;
  };
  const items = { part, n, flags: new Uint16Array(n), depth: new Uint16Array(n), fun: new Uint32Array(n), start: new Float64Array(n), end: new Float64Array(n),
    total: new Float64Array(n), own: new Float64Array(n), count: new Float64Array(n) };
  for (let i = 0; i < n; i++) items.flags[i] = next();
  for (let i = 0; i < n; i++) items.depth[i] = next();
  for (let i = 0; i < n; i++) items.fun[i] = next();
  let last = 0;
  for (let i = 0; i < n; i++) {
    const zigzag = next();
    last += zigzag % 2 ? -(zigzag + 1) / 2 : zigzag / 2;
    items.start[i] = last;
  }
  for (let i = 0; i < n; i++) items.end[i] = items.start[i] + next();
  for (let i = 0; i < n; i++) {
    const flags = items.flags[i];
    items.count[i] = flags & Flag.COUNT ? next() : 1;
    items.total[i] = flags & Flag.TOTAL ? next() : items.end[i] - items.start[i];
    items.own[i] = flags & Flag.OWN ? next() : items.total[i];
  }
  return items;
}

// The coarsest level of which no item is wider than a pixel.
function levelFor(thread, nsPerPixel) {
  let chosen = 0;
  while (chosen + 1 < thread.levels.length && thread.levels[chosen + 1].step <= nsPerPixel) chosen++;
  return chosen;
}

const partsIn = (level, start, end) => level.parts.filter((p) => p.start <= end && p.end >= start);

// What can be drawn now of a thread: the items of the right level, or of a coarser one while that is unpacked.
function drawable(thread, start, end, nsPerPixel) {
  for (let at = levelFor(thread, nsPerPixel); at < thread.levels.length; at++) {
    const wanted = partsIn(thread.levels[at], start, end);
    for (const part of wanted) load(part);
    if (wanted.every((p) => p.items) || at === thread.levels.length - 1) return wanted.filter((p) => p.items).map((p) => p.items);
  }
  return [];
}

function itemAt(items, i) {
  return { thread: items.part.thread, start: items.start[i], end: items.end[i], depth: items.depth[i], fun: items.fun[i], flags: items.flags[i],
    total: items.total[i], own: items.own[i], count: items.count[i] };
}

// All items of the finest level in a range, part by part.
async function* itemsIn(thread, start, end, isWanted = () => true) {
  for (const part of partsIn(thread.levels[0], start, end)) {
    if (!isWanted()) return;
    const items = await load(part);
    if (items) yield items;
  }
}
