// What calls have brought and given: parts of lines, which are unpacked when asked for. `lines.rs` says how one is packed.
const lineParts = table.lines.map(([thread, start, end], id) => ({ thread, start, end, element: "l" + id, lines: null }));

// The line of a call, or null: [call, result].
async function lineOf(item) {
  for (const part of lineParts) {
    if (part.thread !== item.thread || part.start > item.start || part.end < item.start || !byId(part.element)) continue;
    part.lines = part.lines || JSON.parse(new TextDecoder().decode(await inflate(byId(part.element).textContent)));
    const found = part.lines.find(([start, depth]) => start === item.start && depth === item.depth);
    if (found) return [found[2], found[3]];
  }
  return null;
}
