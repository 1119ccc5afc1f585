// Finds calls: under the mouse, around and inside of another, of a function, the next one.
let search = null;

// What is drawn at a place of the canvas.
function hit(x, y) {
  const row = y - RULER + view.top;
  const thread = threads.find((t) => row >= t.y && row < t.y + HEAD + rowsOf(t) * ROW);
  if (!thread || y < RULER) return null;
  if (row < thread.y + HEAD) return { thread, item: null };
  const depth = Math.floor((row - thread.y - HEAD) / ROW), at = nsAt(x), reach = 2 * nsPerPixel() * size.dpr;
  let best = null, bestAway = Infinity;
  for (const items of drawable(thread, view.start, view.end, nsPerPixel())) {
    for (let i = 0; i < items.n; i++) {
      if (items.depth[i] !== depth) continue;
      const away = Math.max(items.start[i] - at, at - items.end[i], 0) + (items.fun[i] < MARKS ? -0.5 : 0);
      if (away <= reach && away < bestAway) [best, bestAway] = [itemAt(items, i), away];
    }
  }
  return { thread, item: best };
}

// The best item of the finest level by a test that gives a number, the smallest of all.
async function best(thread, start, end, test) {
  let found = null, least = Infinity;
  for await (const items of itemsIn(thread, start, end)) {
    for (let i = 0; i < items.n; i++) {
      const value = test(items, i);
      if (value < least) [found, least] = [itemAt(items, i), value];
    }
  }
  return found;
}

function callerOf(item) {
  if (item.depth === 0) return Promise.resolve(null);
  const covers = (items, i) => items.depth[i] < item.depth && items.fun[i] >= MARKS && items.start[i] <= item.start && items.end[i] >= item.end;
  return best(threads[item.thread], item.start, item.start, (items, i) => (covers(items, i) ? item.depth - items.depth[i] : Infinity));
}

const isDirectlyIn = (item, items, i) => items.depth[i] === item.depth + 1 && items.start[i] >= item.start && items.end[i] <= item.end;

function firstCallee(item) {
  return best(threads[item.thread], item.start, item.end, (items, i) => (isDirectlyIn(item, items, i) && items.fun[i] >= MARKS ? items.start[i] : Infinity));
}

async function neighbour(item, way) {
  const thread = threads[item.thread], level = thread.levels[0];
  const test = (items, i) => {
    if (items.depth[i] !== item.depth || items.fun[i] < MARKS) return Infinity;
    const away = (items.start[i] - item.start) * way;
    return away > 0 || (away === 0 && (items.end[i] - item.end) * way > 0) ? away : Infinity;
  };
  // Most often in the same part: looks further away only if not.
  for (let reach = 1e4; ; reach *= 30) {
    const found = way > 0 ? await best(thread, item.start, item.start + reach, test) : await best(thread, item.start - reach, item.start, test);
    if (found || reach > traceEnd || !level) return found;
  }
}

// Marks the functions whose name is found; the list of them, those with most time first.
function searchFor(text) {
  let matches = null;
  if (text) {
    try { const re = new RegExp(text, "i"); matches = (name) => re.test(name); } catch (e) { matches = (name) => name.toLowerCase().includes(text.toLowerCase()); }
  }
  search = text ? { text, list: functions.map((f, i) => i).filter((i) => i >= MARKS && functions[i] && matches(functions[i].name)) } : null;
  marked = null;
  if (search) {
    marked = new Uint8Array(functions.length);
    for (const i of search.list) marked[i] = 1;
    search.list.sort((a, b) => functions[b].total - functions[a].total || functions[b].calls - functions[a].calls);
  }
  colourAll();
  return search;
}

// The next call of a found function after a moment, of all threads.
async function nextFound(from, way) {
  if (!search || !search.list.length) return null;
  let found = null;
  for (const thread of threads) {
    const ordered = way > 0 ? thread.levels[0].parts : thread.levels[0].parts.slice().sort((a, b) => b.end - a.end);
    for (const part of ordered) {
      const limit = found ? found.start : way * Infinity;
      if (way > 0 ? part.end < from || part.start > limit : part.start > from || part.end < limit) continue;
      const items = await load(part);
      for (let i = 0; items && i < items.n; i++) {
        if (!marked || !marked[items.fun[i]]) continue;
        const away = (items.start[i] - from) * way;
        if (away > 0 && (!found || (items.start[i] - found.start) * way < 0)) found = itemAt(items, i);
      }
    }
  }
  return found;
}
