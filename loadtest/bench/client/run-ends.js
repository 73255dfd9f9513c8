// run-ends.js: producers of runs and the readers of each, in one process. runs.js forks it.
//
//   start   begins the runs; each reader has a connection of its own
//   drain   -> tokens, parts, bytes and latencies since the last drain
//   reload  -> bytes and time of one more reader, until it has read what is written
//   end     ends the runs -> failures, when all readers have met the end mark
//
// Times of tokens stay here and are not sent, so that a part is as large as a real one.

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { WebSocket } from 'ws';
import { read } from '../../../src/ai/index.js';
import { Fanfare } from '../../../src/client/node.js';
import { createServer } from '../../../src/sdk/index.js';
import { Latency } from '../../../test/harness/latency.js';
import { answerParent } from '../webhooks-child.js';

/** @import { RunWriter } from '../../../src/ai/writer.js' */

const AI = fileURLToPath(new URL('../../../src/ai', import.meta.url));
const TICK_MS = 5;
const WORDS = ['the', ' model', ' says', ' something', ' and', ' goes', ' on', '.'];

const latency = new Latency();
let [tokens, bytes, failures] = [0, 0, 0];
let rate = 0;
let url = '';
/** @type {{run: RunWriter, partsBefore: number, wroteAtMs: Float64Array, written: number}[]} */
let runs = [];
/** @type {Promise<void>[]} */
let readers = [];
/** @type {Fanfare[]} */
const clients = [];
/** @type {Promise<unknown>[]} */
const welcomes = [];
/** @type {ReturnType<typeof setInterval>|undefined} */
let timer;

/** Counts what a reader receives. */
class CountingSocket extends WebSocket {
  /** @param {string} address @param {string|string[]} [protocols] */
  constructor(address, protocols) {
    super(address, protocols);
    this.on('message', (/** @type {Buffer} */ data) => {
      bytes += data.length;
    });
  }
}

/** The library with another size of a part. @param {number} partKb @returns {Promise<any>} */
async function libraryWith(partKb) {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-runs-'));
  await cp(AI, folder, { recursive: true });
  const file = join(folder, 'writer.js');
  const text = await readFile(file, 'utf8');
  const changed = text.replace(/const PART_SIZE = \d+;/, `const PART_SIZE = ${1024 * partKb};`);
  if (!changed.includes(`PART_SIZE = ${1024 * partKb};`)) throw new Error('no PART_SIZE');
  await writeFile(file, changed);
  const library = await import(pathToFileURL(join(folder, 'index.js')).href);
  await rm(folder, { recursive: true });
  return library;
}

/** @param {number} number of the token @param {number} size of its text; 0: a word */
function chunkOf(number, size) {
  const delta = size === 0 ? WORDS[number % WORDS.length] : 'x'.repeat(size);
  return { type: 'text-delta', id: '1', delta };
}

/** @param {(typeof runs)[0]} one @param {number} size */
function writeToken(one, size) {
  one.wroteAtMs[one.written % one.wroteAtMs.length] = performance.now();
  one.run.write(chunkOf(one.written++, size)).catch(() => failures++);
}

/** @param {(typeof runs)[0]} one @param {Fanfare} fanfare */
async function follow({ run, wroteAtMs }, fanfare) {
  let number = 0;
  for await (const _ of read(fanfare, run.room)) {
    latency.add(performance.now() - wroteAtMs[number++ % wroteAtMs.length]);
    tokens++;
  }
}

function connect() {
  const fanfare = new Fanfare(url, { WebSocket: /** @type {any} */ (CountingSocket) });
  clients.push(fanfare);
  welcomes.push(new Promise((resolve) => fanfare.on('welcome', resolve)));
  return fanfare;
}

answerParent({
  async start({ name, count, readersOfRun, perSecond, size, everyMs, partKb, apiKey, ...rest }) {
    url = rest.url;
    rate = perSecond;
    const { stream } = await libraryWith(partKb);
    const server = createServer({ url, apiKey });
    runs = [];
    for (let i = 0; i < count; i++) {
      const run = await stream(server, `run.${name}.${i}`, { everyMs });
      runs.push({ run, partsBefore: 0, wroteAtMs: new Float64Array(20_000), written: 0 });
    }
    readers = runs.flatMap((one) =>
      Array.from({ length: readersOfRun }, () => follow(one, connect())),
    );
    for (const reader of readers) reader.catch(() => failures++);
    await Promise.all(welcomes.splice(0));
    const beganMs = performance.now();
    timer = setInterval(() => {
      const due = (rate * (performance.now() - beganMs)) / 1000;
      // Runs are out of step, as those of different users are.
      for (const [i, one] of runs.entries())
        while (one.written < due - i / count) writeToken(one, size);
    }, TICK_MS);
    return {};
  },

  async drain() {
    let parts = 0;
    for (const one of runs) {
      const { offset = 0 } = one.run.position ?? {};
      parts += offset - one.partsBefore;
      one.partsBefore = offset;
    }
    const drained = { tokens, parts, bytes, failures, latency: latency.drain() };
    tokens = bytes = 0;
    return drained;
  },

  async reload() {
    const [{ run, written }] = runs;
    clearInterval(timer);
    while (run.written < written) await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    bytes = 0;
    const beganMs = performance.now();
    let number = 0;
    for await (const _ of read(connect(), run.room)) if (++number === written) break;
    return { ms: performance.now() - beganMs, bytes, parts: run.position?.offset, tokens: number };
  },

  async end() {
    clearInterval(timer);
    await Promise.allSettled(runs.map(({ run }) => run.end()));
    await Promise.allSettled(readers);
    for (const client of clients.splice(0)) client.close();
    return { failures };
  },
});
