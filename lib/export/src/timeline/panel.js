// What is said of the selected call, of a range, of what was found, and of the page.
let selected = null, range = null, asked = 0;
const panel = byId("panel"), content = byId("content");

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function show(...children) {
  content.replaceChildren(...children);
  panel.hidden = false;
  redraw();
}

function hidePanel() {
  panel.hidden = true;
  asked++;
  redraw();
}

function rows(heads, lines) {
  const cell = (tag, value, isNumber) => make(tag, { className: isNumber ? "n" : tag === "td" ? "f" : "" }, value);
  const isNumber = (at) => !heads[at].startsWith("*");
  return make("table", {}, make("tr", {}, ...heads.map((h, at) => cell("th", h.replace("*", ""), isNumber(at)))),
    ...lines.map((line) => make("tr", {}, ...line.map((value, at) => cell("td", value, isNumber(at))))));
}

const moduleOf = (fun) => (functions[fun] && fun >= MARKS ? table.modules[functions[fun].module] : "");
// Names that are no file's have brackets already.
const bracketed = (module) => (module.startsWith("[") ? module : `[${module}]`);
const nameOf = (fun) => (functions[fun] ? functions[fun].name : "?");
const link = (text, action) => make("a", { onclick: action, title: "Go there" }, text);

// Why a time is not what it seems, in words.
function remarks(item) {
  const { flags } = item, words = [];
  if (flags & Flag.UNWOUND) words.push("ended by a longjmp or a throw, some time before what came next");
  if (flags & Flag.END_UNSEEN) words.push("its end was not seen: the right edge is the latest possible");
  if (flags & Flag.UNTIL_PROCESS_END) words.push("ran until its process ended");
  if (flags & Flag.BEGIN_UNSEEN) words.push("began before the recording of its thread");
  if (flags & Flag.TAIL) words.push("reached by a jump (tail call)");
  if (flags & Flag.ENTRY_ONLY) words.push("only beginnings of such calls are recorded");
  if (flags & Flag.TOTAL && !(flags & UNKNOWN)) words.push(`the thread waited ${time(item.end - item.start - item.total)} for sptrace meanwhile`);
  return words;
}

async function showCall(item) {
  const turn = ++asked, f = functions[item.fun], thread = threads[item.thread];
  const isKnown = !(item.flags & (UNKNOWN | Flag.COUNT | Flag.BEGIN_UNSEEN)), module = moduleOf(item.fun);
  const isMany = item.flags & Flag.COUNT && item.fun >= MARKS;
  const title = isMany ? `${number(item.count)} calls, most time in ${nameOf(item.fun)}` : item.fun === Mark.LOST ? `${number(item.count)} events lost` : nameOf(item.fun);
  const facts = [["begins", exact(item.start)], ["ends", (item.flags & UNKNOWN ? "? at the latest " : "") + exact(item.end)]];
  if (item.fun >= MARKS && !isMany) {
    facts.push(["duration", isKnown ? `${time(item.total)}  (${number(item.total)} ns)` : "?"]);
    facts.push(["self", isKnown && !(item.flags & Flag.OWN_UNKNOWN) ? `${time(item.own)}  (${number(item.own)} ns)` : "?"]);
  } else facts.push(["length", time(item.end - item.start)]);
  facts.push(["thread", `${thread.name} ${thread.tid} of ${thread.pid}`], ["depth", String(item.depth)]);
  const left = make("div", {}, make("h2", {}, title, make("span", { className: "faint" }, module ? `  ${bracketed(module)}` : "")), rows(["*", "*"], facts),
    ...remarks(item).map((text) => make("p", {}, text)));
  if (isMany) left.append(make("p", { className: "faint" }, table.finestNs && nsPerPixel() < table.finestNs ? `Calls shorter than ${time(table.finestNs)} are not in this page one by one.` : "Zoom in to see them."));
  if (f && item.fun >= MARKS) left.append(make("p", {}, "The whole trace: ", `${number(f.calls)} calls, total ${time(f.total)}, self ${time(f.own)}`, ...longestLink(item.fun)));
  const caller = make("div"), callees = make("div"), line = make("p", { className: "f line" });
  left.insertBefore(line, left.children[1]);
  show(make("div", { className: "columns" }, left, make("div", {}, caller, callees)));
  if (item.fun < MARKS) return;
  const told = isMany ? null : await lineOf(item);
  if (turn !== asked) return;
  if (told) line.append(told.join(" "));
  const below = await callerOf(item);
  if (turn !== asked) return;
  caller.append(make("h2", {}, "Caller"), below ? make("p", { className: "f" }, link(nameOf(below.fun), () => go(below)), make("span", { className: "faint" }, `  ${bracketed(moduleOf(below.fun))}`)) : make("p", {}, "none: the bottom of what was seen"));
  if (!isMany) showCallees(item, callees, turn);
}

function longestLink(fun) {
  const { longest } = functions[fun];
  if (!longest) return [];
  return [", ", link(`the longest ${time(longest.total)}`, () => goToLongest(fun))];
}

async function showCallees(item, place, turn) {
  const sums = new Map();
  for await (const items of itemsIn(threads[item.thread], item.start, item.end, () => turn === asked)) {
    for (let i = 0; i < items.n; i++) {
      if (!isDirectlyIn(item, items, i) || items.fun[i] < MARKS) continue;
      const sum = sums.get(items.fun[i]) || { calls: 0, total: 0, isPart: false };
      sum.calls += items.count[i];
      if (!(items.flags[i] & UNKNOWN)) sum.total += items.total[i];
      sum.isPart = sum.isPart || Boolean(items.flags[i] & Flag.COUNT);
      sums.set(items.fun[i], sum);
    }
  }
  if (turn !== asked) return;
  const list = [...sums].sort((a, b) => b[1].total - a[1].total || b[1].calls - a[1].calls);
  const calls = list.reduce((n, [, s]) => n + s.calls, 0);
  place.append(make("h2", {}, `Callees: ${number(calls)} calls of ${number(list.length)} functions`));
  if (list.length) place.append(rows(["calls", "total", "*function"], list.slice(0, 100).map(([fun, s]) => [number(s.calls), time(s.total), (s.isPart ? "mostly " : "") + nameOf(fun)])));
}

// Calls that begin in a range; durations as far as they lie in it, own times of those that lie in it.
async function addUp(start, end, isWanted, tell) {
  const sums = new Map();
  let done = 0, many = 0;
  const all = threads.reduce((n, t) => n + partsIn(t.levels[0], start, end).length, 0);
  for (const thread of threads) {
    for await (const items of itemsIn(thread, start, end, isWanted)) {
      addItems(items, start, end, sums);
      for (let i = 0; i < items.n; i++) many += items.flags[i] & Flag.COUNT && items.fun[i] >= MARKS && items.start[i] >= start && items.start[i] < end ? items.count[i] : 0;
      tell(++done / all);
    }
  }
  return { sums, many };
}

function addItems(items, start, end, sums) {
  for (let i = 0; i < items.n; i++) {
    const fun = items.fun[i], flags = items.flags[i], from = items.start[i], to = items.end[i];
    if (fun < MARKS || flags & Flag.COUNT || to < start || from >= end) continue;
    let sum = sums.get(fun);
    if (!sum) sums.set(fun, sum = { calls: 0, total: 0, own: 0, unknown: 0 });
    if (from >= start && !(flags & Flag.BEGIN_UNSEEN)) sum.calls++;
    if (flags & UNKNOWN) { sum.unknown++; continue; }
    const isWhole = from >= start && to <= end;
    if (!(flags & Flag.INNER)) sum.total += isWhole ? items.total[i] : Math.min(items.total[i], Math.min(to, end) - Math.max(from, start));
    if (isWhole && !(flags & Flag.OWN_UNKNOWN)) sum.own += items.own[i];
  }
}

async function showRange(start, end) {
  const turn = ++asked;
  range = { start, end };
  const status = make("p", { className: "faint" }, "adding up");
  const heading = make("h2", {}, `From ${exact(start)} to ${exact(end)}: ${time(end - start)}`);
  show(heading, status);
  const { sums, many } = await addUp(start, end, () => turn === asked, (part) => { status.textContent = `adding up, ${Math.round(part * 100)} %`; });
  if (turn !== asked) return;
  range.sums = sums;
  const list = [...sums].sort((a, b) => b[1].own - a[1].own || b[1].calls - a[1].calls);
  const calls = list.reduce((n, [, s]) => n + s.calls, 0), unknown = list.reduce((n, [, s]) => n + s.unknown, 0);
  status.textContent = `${number(calls)} calls begin here, of ${number(list.length)} functions; totals are what lies in the range, self is of calls that lie in it as a whole` +
    (unknown ? `; of ${number(unknown)} calls the duration is not known` : "") + (many ? `; ${number(many)} short calls more are in this page only as sums` : "");
  show(heading, status, rows(["self", "total", "calls", "*function", "*module"], list.slice(0, 200).map(([fun, s]) => [time(s.own), time(s.total), number(s.calls), link(nameOf(fun), () => goToLongest(fun)), moduleOf(fun)])));
}

function showFound() {
  asked++;
  const { list } = search, calls = list.reduce((n, i) => n + functions[i].calls, 0);
  byId("found").textContent = list.length ? `${number(list.length)} functions, ${number(calls)} calls` : "nothing found";
  if (!list.length) return hidePanel();
  show(make("h2", {}, "Found; a click goes to the longest call, Enter to the next one"),
    rows(["calls", "total", "self", "*function", "*module"], list.slice(0, 200).map((i) => [number(functions[i].calls), time(functions[i].total), time(functions[i].own), link(functions[i].name, () => goToLongest(i)), moduleOf(i)])));
}

// What the page says of itself.
function fillHelp() {
  byId("title").textContent = table.command || "sptrace";
  byId("title").title = `${table.command}\n${table.host}, ${new Date(table.startMs).toISOString()}\n${table.cpu}`;
  const small = table.calls - table.single - table.deep, cut = [];
  if (table.finestNs) cut.push(`${number(Math.max(0, small))} of ${number(table.calls)} calls are shown as sums only: those shorter than ${time(table.finestNs)}, so that the page stays small`);
  if (table.deep) cut.push(`${number(table.deep)} calls deeper than the rows of a thread are not shown`);
  if (table.hidden) cut.push(`${number(table.hidden)} shorter calls are left out by --min-time`);
  if (table.notesLeftOut) cut.push(`${number(table.notesLeftOut)} notes are left out`);
  if (table.linesLeftOut) cut.push(`of ${number(table.linesLeftOut)} calls the arguments are left out`);
  byId("cut").hidden = !cut.length;
  byId("cut").textContent = cut.join("; ") + (cut.length ? ". Narrower: sptrace report timeline --from, --to, --tid, -F, -D." : "");
  byId("facts").textContent = `${number(table.calls)} calls, ${number(table.single)} of them one by one; of ${number(table.unknown)} the duration is not known. ` +
    `${number(threads.length)} threads, ${number(parts.length)} parts. Recorded by sptrace ${table.tool}.`;
  byId("modules").append(...table.modules.slice(0, table.colours + 1).flatMap((name, i) => [swatch(`rgb(${moduleColour(i)})`), i === table.colours ? "others" : name]));
  const signs = [["empty space", "no traced function runs"], ["paler and narrower", "calls too short for a pixel: the fuller, the more"],
    ["pale with lines", "several short calls, drawn as one until you zoom in"], ["pale with slanted lines", "ended by a longjmp or a throw"],
    ["pale with dots", "the end was not seen: the right edge is the latest possible"], ["arrow at the left edge", "began before the recording"],
    ["bar at the right edge", "ran until its process ended"], ["grey with crosses", "the thread waited for sptrace"], ["orange bar", "events were lost"]];
  byId("signs").append(...signs.map((line) => make("tr", {}, ...line.map((text) => make("td", {}, text)))));
}

const swatch = (colour) => make("span", { className: "swatch", style: `background:${colour}` });
