// Node.js: V8's own code and stacks, workers, promises, a collector that walks frames.
const fs = require('fs'), { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const grow = n => n ? { l: grow(n - 1), v: n, r: grow(n - 1) } : null;
const sum = t => t ? sum(t.l) + t.v + sum(t.r) : 0;
const deep = n => { if (!n) throw new Error('told'); return 1 + deep(n - 1); };
if (!isMainThread) {
  let total = 0;
  for (let i = 0; i < 10; i++) total += sum(grow(12)) * workerData;
  parentPort.postMessage(total);
} else {
  const hold = process.env.HOLD;
  while (hold && !fs.existsSync(hold));
  for (let i = 0; i < 10; i++) console.log(sum(grow(14)));
  let caught = 0;
  for (let i = 0; i < 5000; i++) try { deep(i % 50); } catch (e) { caught += e.message.length; }
  console.log(caught, 'ab12'.repeat(3000).replace(/\d+/g, d => +d + 1).length);
  const { WebAssembly: W } = globalThis;
  const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 9, 1, 7, 0, 32, 0, 65, 7, 108, 11]);
  console.log(new W.Instance(new W.Module(bytes)).exports.f(6));
  (async () => {
    const totals = await Promise.all([1, 2, 3, 4].map(n => new Promise(done => new Worker(__filename, { workerData: n }).on('message', done))));
    console.log(totals.join(' '), require('crypto').createHash('sha256').update('nopal'.repeat(10000)).digest('hex'));
    process.exitCode = 8;
  })();
}
