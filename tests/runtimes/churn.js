// Garbage, compiled and thrown-away code, exceptions with stacks, promises, workers: the same output in every run. Run with --expose-gc.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
function tree(n) { return n === 0 ? { v: 1 } : { l: tree(n - 1), r: tree(n - 1), v: n }; }
function sum(t) { return t.l ? sum(t.l) + sum(t.r) + t.v : t.v; }
function deep(n) { if (n === 0) throw new Error("bottom"); return 1 + deep(n - 1); }
if (!isMainThread) {
  let total = 0;
  for (let i = 0; i < 40; i++) { total += sum(tree(11)); if (i % 10 === 0) global.gc && gc(); }
  parentPort.postMessage(total + workerData);
} else {
  let total = 0;
  for (let i = 0; i < 60; i++) { total += sum(tree(11)); if (i % 5 === 0) gc(); }
  console.log("sum", total);
  let frames = 0;
  for (let i = 0; i < 300; i++) { try { deep(i % 50); } catch (e) { frames += e.stack.split("\n").length; } }
  console.log("frames", frames);
  let made = 0;
  for (let i = 0; i < 300; i++) made += new Function("x", `let s = 0; for (let k = 0; k < 500; k++) s += (x ^ k) % ${i + 2}; return s`)(i);
  console.log("made", made);
  try { (function f() { f(); })(); } catch (e) { console.log(e instanceof RangeError); }
  const re = /(\w+)@(\w+)\.com/g; console.log("a@b.com, c@d.com".replace(re, "$2 $1"));
  console.log(require("zlib").gunzipSync(require("zlib").gzipSync(Buffer.alloc(100000, "abc"))).length);
  Promise.all([1, 2, 3].map(n => new Promise((ok, no) => { const w = new Worker(__filename, { workerData: n }); w.on("message", ok); w.on("error", no); })))
    .then(r => { console.log(r.join()); return Promise.reject(new Error("rejected")); }).catch(e => { console.log(e.message); process.exitCode = 7; });
}
