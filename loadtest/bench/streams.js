// streams.js: holds streams of server-sent events: memory of each, and do all of them get every
// event?
//
//   node loadtest/bench/streams.js                      10,000 streams in one room, 50 messages
//   node loadtest/bench/streams.js --streams 1000 --messages 10
//
// Each stream is a raw socket that only counts the events of its room, so that the client stays
// cheap. Memory is the PSS of all processes of the server when it is idle. The first fifth of the
// streams warms the server up: the memory of a stream is the growth from there to all of them.

import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { markdownTable, show } from '../lib/figures.js';
import { readOptions } from '../lib/options.js';
import { saveReport, stopOnSignal } from './script.js';
import { quiet, startServer } from './servers.js';

const { values } = readOptions(
  'Holds streams of server-sent events and measures their memory.',
  `streams N | whole 10..18000 | 10000 | streams in one room
  workers N | whole 1..64 | 2 | processes with connections
  messages N | whole 1..100000 | 50 | messages to the room
  rate N | number 0.1..1000 | 10 | messages a second
  hold S | number 0..3600 | 10 | time for which the streams are held before each reading of memory
  save PATH | | | path of the report without its ending; without, a file of bench/results/`,
);
const { streams: count, workers, messages, rate, hold, save } = values;
/** Handshakes that wait for their answer at once. */
const AT_ONCE = 100;
const QUIET_MS = 10_000;
const ARRIVE_MS = 20_000;
const MARKER = Buffer.from('"payload":');

stopOnSignal();
const target = await startServer('fanfare', { workers });
const warm = Math.ceil(count / 5);

let events = 0;
let ended = 0;
/** @type {import('node:net').Socket[]} */
const sockets = [];

/** Opens a stream, and waits until it is in the room. */
async function open() {
  const socket = connect({ host: target.host, port: target.port, noDelay: true });
  sockets.push(socket);
  socket.on('error', () => {});
  socket.on('close', () => ended++);
  socket.write('GET /sse?room=bench HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n');
  for (let text = ''; !text.includes('event: joined'); ) {
    const [bytes] = await once(socket, 'data');
    text += bytes;
    if (!text.startsWith('HTTP/1.1 200')) throw new Error(text);
  }
  socket.on('data', (bytes) => {
    for (let at = bytes.indexOf(MARKER); at >= 0; at = bytes.indexOf(MARKER, at + 1)) events++;
  });
}

/** @param {number} number of streams to open, some at once */
async function openAll(number) {
  for (let opened = 0; opened < number; opened += AT_ONCE)
    await Promise.all(Array.from({ length: Math.min(AT_ONCE, number - opened) }, open));
  await quiet(target, QUIET_MS);
}

/** Holds the streams, then reads the server's memory in kB. */
async function heldKb() {
  await sleep(1000 * hold);
  await quiet(target, QUIET_MS);
  return target.pssKb();
}

await openAll(warm);
const kbBefore = await heldKb();
const cpuOpening = target.cpuSeconds();
await openAll(count - warm);
const handshakeMs = (1000 * (target.cpuSeconds() - cpuOpening)) / (count - warm);
const kbAfter = await heldKb();
const held = count - ended;

const publisher = new WebSocket(`ws://${target.host}:${target.port}/`);
await once(publisher, 'open');
const cpuBefore = target.cpuSeconds();
for (let i = 0; i < messages; i++) {
  publisher.send(JSON.stringify({ type: 'message', room: 'bench', payload: i }));
  await sleep(1000 / rate);
}
const expected = messages * count;
for (const endMs = performance.now() + ARRIVE_MS; events < expected && performance.now() < endMs; )
  await sleep(50);
const cpuPerMillion = (1e6 * (target.cpuSeconds() - cpuBefore)) / expected;
const kbPerStream = (kbAfter - kbBefore) / (count - warm);
publisher.terminate();
for (const socket of sockets) socket.destroy();
await target.close();

const isComplete = held === count && events === expected;
saveReport({
  script: 'streams',
  title: `${count} streams of server-sent events, ${workers} workers`,
  lines: [
    `**${show(kbPerStream, 1)} kB per stream** (PSS); ${isComplete ? 'all held, none lost' : 'STREAMS OR EVENTS WERE LOST'}`,
    '',
    ...markdownTable(
      [
        'streams held',
        `memory with ${warm} / ${count}, MB`,
        'server CPU per stream opened, ms',
      ].concat(['events received / expected', 'server CPU-s for a million events']),
      [
        [
          `${held} / ${count}`,
          `${show(kbBefore / 1000)} / ${show(kbAfter / 1000)}`,
          show(handshakeMs, 2),
          `${events} / ${expected}`,
          show(cpuPerMillion, 1),
        ],
      ],
    ),
  ],
  data: { count, held, kbPerStream, handshakeMs, events, expected, cpuPerMillion },
  save,
});
process.exit(isComplete ? 0 : 1);
