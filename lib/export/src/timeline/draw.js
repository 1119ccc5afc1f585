// Draws: rectangles as pixels, so that their number does not matter; then signs and text upon them.
const ROW = 16, HEAD = 20, RULER = 30, FEW_ROWS = 3;
// One colour a module, told apart by all eyes, and dark text upon each.
const PALETTE = [[240, 185, 77], [140, 202, 240], [102, 196, 165], [243, 234, 124], [224, 152, 106], [221, 169, 200], [200, 200, 200]];
const LOST = [213, 94, 0], WAITED = [128, 128, 128];
const canvas = byId("canvas"), ctx = canvas.getContext("2d", { alpha: false });
const view = { start: 0, end: 1, top: 0 };
const size = { width: 0, height: 0, dpr: 1 };
const drawn = { ms: 0, frames: 0, worstMs: 0, items: 0 };
let image, pixels, cover, rank, paint, colours, theme, patterns, marked = null;

const packColour = (rgb) => (255 << 24 | rgb[2] << 16 | rgb[1] << 8 | rgb[0]) >>> 0;
const mix = (rgb, other, part) => rgb.map((c, i) => Math.round(c * part + other[i] * (1 - part)));
const moduleColour = (module) => PALETTE[Math.min(module, table.colours)];

// Functions of a module differ a little in brightness.
function functionColour(f, number) {
  if (number < MARKS) return number === Mark.LOST ? LOST : WAITED;
  if (!f) return PALETTE[6];
  return mix(moduleColour(f.module), [255, 255, 255], 1 - ((number * 2654435761 >>> 0) % 5) * 0.075);
}

function readTheme() {
  const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
  theme = { back: get("--back"), text: get("--text"), faint: get("--faint"), line: get("--line"), head: get("--head"), mark: get("--mark"), range: get("--range") };
  theme.rgb = [1, 3, 5].map((i) => parseInt(theme.back.slice(i, i + 2), 16));
  const stripes = (draw) => {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const c = tile.getContext("2d");
    c.strokeStyle = "#00000080";
    c.lineWidth = 1.4;
    draw(c);
    c.stroke();
    return ctx.createPattern(tile, "repeat");
  };
  patterns = {
    unwound: stripes((c) => { c.moveTo(-2, 2); c.lineTo(2, -2); c.moveTo(0, 8); c.lineTo(8, 0); c.moveTo(6, 10); c.lineTo(10, 6); }),
    unseen: stripes((c) => { for (const [x, y] of [[2, 2], [6, 6]]) { c.moveTo(x - 0.7, y); c.lineTo(x + 0.7, y); } }),
    many: stripes((c) => { c.moveTo(2, 0); c.lineTo(2, 8); c.moveTo(6, 0); c.lineTo(6, 8); }),
    waited: stripes((c) => { c.moveTo(-2, -2); c.lineTo(10, 10); c.moveTo(10, -2); c.lineTo(-2, 10); }),
  };
  colourAll();
}

function colourAll() {
  const shade = (f, i) => (marked && i >= MARKS && !marked[i] ? mix(functionColour(f, i), theme.rgb, 0.22) : functionColour(f, i));
  colours = Uint32Array.from(functions, (f, i) => packColour(shade(f, i)));
}

function resize() {
  const dpr = window.devicePixelRatio || 1, width = Math.max(1, Math.round(canvas.clientWidth * dpr)), height = Math.max(1, Math.round(canvas.clientHeight * dpr));
  if (image && width === size.width && height === size.height && dpr === size.dpr) return;
  Object.assign(size, { width, height, dpr });
  Object.assign(canvas, { width, height });
  image = ctx.createImageData(width, height);
  pixels = new Uint32Array(image.data.buffer);
  const cells = (Math.ceil(height / dpr / ROW) + 2) * width;
  [cover, rank, paint] = [new Float32Array(cells), new Float32Array(cells), new Uint32Array(cells)];
}

const rowsOf = (thread) => (thread.isFolded ? Math.min(FEW_ROWS, thread.rows) : thread.rows);
const nsPerPixel = () => (view.end - view.start) / size.width;
const xOf = (ns) => (ns - view.start) / (view.end - view.start) * size.width / size.dpr;
const nsAt = (x) => view.start + x * size.dpr * nsPerPixel();

// Where threads lie, from the top of the page; the sum of their heights.
function layOut() {
  let y = 0;
  for (const thread of threads) {
    thread.y = y;
    y += HEAD + rowsOf(thread) * ROW + 6;
  }
  return y;
}

function draw() {
  const begin = performance.now();
  resize();
  const { width, height, dpr } = size, whole = layOut(), room = height / dpr - RULER;
  view.top = Math.max(0, Math.min(view.top, whole - room));
  pixels.fill(packColour(theme.rgb));
  const signs = [], texts = [];
  drawn.items = 0;
  for (const thread of threads) {
    const top = RULER + thread.y - view.top + HEAD;
    if (top + rowsOf(thread) * ROW >= RULER && top - HEAD < height / dpr) drawThread(thread, top, signs, texts);
  }
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.putImageData(image, 0, 0);
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  drawSigns(signs);
  drawTexts(texts);
  drawHeads();
  drawSelection();
  drawRuler();
  drawn.ms = performance.now() - begin;
  drawn.worstMs = Math.max(drawn.worstMs, drawn.ms);
  drawn.frames++;
}

function drawThread(thread, top, signs, texts) {
  const { width, height, dpr } = size, perNs = width / (view.end - view.start), begin = view.start;
  const first = Math.max(0, Math.floor((RULER - top) / ROW));
  const last = Math.min(rowsOf(thread), Math.ceil((height / dpr - top) / ROW)), rows = last - first;
  if (rows <= 0) return;
  cover.fill(0, 0, rows * width);
  rank.fill(0, 0, rows * width);
  const sink = { thread, top, first, last, width, signs, texts };
  for (const items of drawable(thread, view.start, view.end, nsPerPixel())) {
    const { n, depth, start, end } = items;
    drawn.items += n;
    for (let i = 0; i < n; i++) {
      const row = depth[i];
      if (row < first || row >= last) continue;
      const x0 = (start[i] - begin) * perNs, x1 = (end[i] - begin) * perNs;
      if (x1 < 0 || x0 > width) continue;
      if (x1 - x0 >= 2) { drawWide(items, i, x0, x1, sink); continue; }
      // In each pixel the one that takes most is seen; how full it is says how much.
      const isLoss = items.fun[i] === Mark.LOST;
      const cell = (row - first) * width + Math.min(width - 1, Math.max(0, x0 | 0)), part = isLoss ? 2 : Math.max(0.2, x1 - x0);
      cover[cell] += part;
      if (part > rank[cell]) { rank[cell] = part; paint[cell] = colours[items.fun[i]]; }
      if (isLoss) signs.push({ x0: x0 - 1, x1: x0 + 2, row, flags: 0, fun: Mark.LOST, top });
    }
  }
  compose(top, first, rows);
}

function drawWide(items, i, x0, x1, { thread, top, first, width, signs, texts }) {
  const flags = items.flags[i], fun = items.fun[i], row = items.depth[i], base = (row - first) * width;
  const a = Math.max(0, Math.round(x0)), b = Math.min(width, Math.max(a + 1, Math.round(x1)));
  const isPale = flags & (Flag.COUNT | UNKNOWN) || fun < MARKS;
  paint.fill(colours[fun], base + a, base + b);
  cover.fill(isPale ? 0.5 : 1, base + a, base + b);
  rank.fill(4, base + a, base + b);
  // A gap on the right tells neighbours apart.
  if (x1 - x0 >= 4 && b < width) cover[base + b - 1] = 0.35;
  const px = (b - a) / size.dpr;
  // What is said of an edge is said where that is in view.
  const seen = flags & ~(x0 < 0 ? Flag.BEGIN_UNSEEN : 0) & ~(x1 > width ? Flag.UNTIL_PROCESS_END : 0);
  if (px >= 3 && (isPale || seen & (Flag.BEGIN_UNSEEN | Flag.UNTIL_PROCESS_END)) && signs.length < 20000) signs.push({ x0: a, x1: b, row, flags: seen, fun, top });
  const arrowPx = seen & Flag.BEGIN_UNSEEN ? 7 : 0;
  if (px - arrowPx >= 26 && fun >= MARKS) texts.push({ x: a / size.dpr + arrowPx, px: px - arrowPx, y: top + row * ROW, fun, count: flags & Flag.COUNT ? items.count[i] : 0, thread });
}

// Cells to pixels: the first line of a row, then copies of it.
function compose(top, first, rows) {
  const { width, height, dpr } = size, [br, bg, bb] = theme.rgb, back = packColour(theme.rgb);
  for (let r = 0; r < rows; r++) {
    const y0 = Math.round((top + (first + r) * ROW) * dpr), y1 = Math.min(height, Math.round((top + (first + r + 1) * ROW) * dpr) - 1);
    const visible = Math.max(0, y0);
    if (visible >= y1) continue;
    const line = visible * width, cells = r * width;
    for (let x = 0; x < width; x++) {
      const c = cover[cells + x];
      if (c === 0) { pixels[line + x] = back; continue; }
      const colour = paint[cells + x];
      if (c >= 1) { pixels[line + x] = colour; continue; }
      const part = 0.3 + 0.7 * c, rest = 1 - part;
      pixels[line + x] = (255 << 24 | ((colour >> 16 & 255) * part + bb * rest) << 16 | ((colour >> 8 & 255) * part + bg * rest) << 8
        | ((colour & 255) * part + br * rest)) >>> 0;
    }
    for (let y = visible + 1; y < y1; y++) pixels.copyWithin(y * width, line, line + width);
  }
}

function drawSigns(signs) {
  const { dpr } = size;
  for (const { x0, x1, row, flags, fun, top } of signs) {
    const x = x0 / dpr, w = (x1 - x0) / dpr, y = top + row * ROW, h = ROW - 1;
    const pattern = fun === Mark.WAITED ? patterns.waited : fun < MARKS ? null : flags & Flag.COUNT ? patterns.many
      : flags & Flag.UNWOUND ? patterns.unwound : flags & Flag.END_UNSEEN ? patterns.unseen : null;
    if (pattern) { ctx.fillStyle = pattern; ctx.fillRect(x, y, w, h); }
    if (fun === Mark.LOST) { ctx.fillStyle = `rgb(${LOST})`; ctx.fillRect(x, y, Math.max(w, 3), h); }
    ctx.fillStyle = "#000000c0";
    // An arrow out of the rectangle: it began before the recording, or ended with its process.
    if (flags & Flag.BEGIN_UNSEEN && w >= 8) arrow(x + 1, y + h / 2, 5);
    if (flags & Flag.UNTIL_PROCESS_END && w >= 8) ctx.fillRect(x + w - 3, y, 3, h);
  }
}

function arrow(x, y, px) {
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(x + px, y - px);
  ctx.lineTo(x + px, y + px);
  ctx.fill();
}

function drawTexts(texts) {
  ctx.font = "11px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
  ctx.textBaseline = "middle";
  const charPx = ctx.measureText("m").width;
  for (const { x, px, y, fun, count } of texts) {
    const chars = Math.floor((px - 6) / charPx);
    if (chars < 2 || y < RULER - ROW) continue;
    const name = (count ? number(count) + "x " : "") + (functions[fun] ? functions[fun].name : "?");
    ctx.fillStyle = marked && fun >= MARKS && !marked[fun] ? theme.faint : "#111111";
    ctx.fillText(name.length <= chars ? name : name.slice(0, chars - 1) + "\u2026", x + 3, y + ROW / 2);
  }
}

function drawHeads() {
  const width = size.width / size.dpr;
  ctx.font = "12px system-ui, sans-serif";
  for (const thread of threads) {
    const y = RULER + thread.y - view.top;
    if (y + HEAD < RULER || y > size.height / size.dpr) continue;
    ctx.fillStyle = theme.head;
    ctx.fillRect(0, y, width, HEAD - 2);
    ctx.fillStyle = theme.text;
    const hidden = thread.rows - rowsOf(thread), exec = thread.execs > 1 ? `, after exec ${thread.execs}` : "";
    const sign = thread.rows <= FEW_ROWS ? "  " : thread.isFolded ? "\u25b8 " : "\u25be ";
    ctx.fillText(`${sign}${thread.name ? thread.name + "  " : ""}${thread.tid === thread.pid ? "process " + thread.pid : `thread ${thread.tid} of ${thread.pid}`}${exec}   ` +
      `${number(thread.calls)} calls${hidden ? `, ${hidden} rows folded` : ""}`, 8, y + HEAD / 2 - 1);
  }
}

function drawSelection() {
  const height = size.height / size.dpr;
  if (range) {
    const a = xOf(range.start), b = xOf(range.end);
    ctx.fillStyle = theme.range;
    ctx.fillRect(a, RULER, Math.max(1, b - a), height);
    ctx.fillStyle = theme.mark;
    ctx.fillRect(a, RULER, 1, height);
    ctx.fillRect(b, RULER, 1, height);
  }
  if (!selected || selected.depth >= rowsOf(threads[selected.thread])) return;
  const x = Math.max(-4, xOf(selected.start)), right = Math.min(size.width / size.dpr + 4, xOf(selected.end));
  ctx.strokeStyle = theme.text;
  ctx.lineWidth = 2;
  ctx.strokeRect(x, RULER + threads[selected.thread].y - view.top + HEAD + selected.depth * ROW, Math.max(3, right - x), ROW - 1);
}

function drawRuler() {
  const width = size.width / size.dpr, span = view.end - view.start;
  ctx.fillStyle = theme.head;
  ctx.fillRect(0, 0, width, RULER);
  // A step of 1, 2 or 5, some 110 pixels wide.
  const least = span * 110 / width, power = 10 ** Math.floor(Math.log10(least)), step = [1, 2, 5, 10].find((n) => n * power >= least) * power;
  // Far from the start, ticks are told from a round time on the left.
  const base = view.start > step * 2000 ? Math.floor(view.start / (step * 1000)) * step * 1000 : 0;
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  for (let tick = Math.ceil((view.start - base) / step); base + tick * step <= view.end; tick++) {
    const x = xOf(base + tick * step);
    ctx.fillStyle = theme.line;
    ctx.fillRect(x, 18, 1, RULER - 18);
    ctx.fillStyle = theme.faint;
    ctx.fillText((base ? "+" : "") + time(tick * step), x + 4, 23);
  }
  ctx.fillStyle = theme.text;
  ctx.fillText(`${base ? "from " + exact(base) + "   " : ""}in view: ${time(span)}`, 8, 10);
  drawNotes();
  // Which part of the trace is in view.
  const whole = traceEnd - traceStart;
  ctx.fillStyle = theme.mark;
  ctx.fillRect((view.start - traceStart) / whole * width, 0, Math.max(3, span / whole * width), 3);
}

function drawNotes() {
  let free = 0;
  for (const [ns, , text] of table.notes) {
    if (ns < view.start || ns > view.end) continue;
    const x = xOf(ns);
    ctx.fillStyle = theme.mark;
    // On the left the upper line says what is in view.
    const top = x < 260 ? 17 : 4;
    ctx.fillRect(x, top, 2, RULER - top);
    const words = text.slice(0, 60), px = ctx.measureText(words).width;
    const left = x + px + 8 > size.width / size.dpr ? x - px - 6 : x + 5;
    if (left < Math.max(free, 260)) continue;
    ctx.fillText(words, left, 10);
    free = left + px + 8;
  }
}

const number = (n) => n.toLocaleString("en-US");

// Rounded to what one can compare.
function time(ns) {
  const [unit, name] = ns >= 1e9 ? [1e9, "s"] : ns >= 1e6 ? [1e6, "ms"] : ns >= 1e3 ? [1e3, "\u00b5s"] : [1, "ns"];
  return `${+(ns / unit).toFixed(unit === 1 ? 2 : 3)} ${name}`;
}

// To the nanosecond.
function exact(ns) {
  const text = String(Math.round(ns) % 1e9).padStart(9, "0");
  return `${Math.floor(Math.round(ns) / 1e9)}.${text.slice(0, 3)} ${text.slice(3, 6)} ${text.slice(6)} s`;
}
