// client.js: clients in one region: they join rooms, publish to one of them at a rate, and measure how
// long each message takes. The clock is the machine's, so messages of other processes count, too.
//
//   node client.js '{"url":"ws://10.0.0.1:3000/","members":20,"rooms":["near","far"],"publish":"near",
//     "rate":20,"bytes":100,"seconds":20}'
//
// Prints {"joined":true}, begins at the first line of its standard input, and prints its figures.

import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocket } from 'ws';

/** Messages on their way at the end. */
const REST_MS = 2000;
const TICK_MS = 5;

const plan = JSON.parse(process.argv[2]);
/** Milliseconds of each delivery, by room. @type {Record<string, number[]>} */
const tookMs = Object.fromEntries(plan.rooms.map((/** @type {string} */ room) => [room, []]));
const nowMs = () => Number(process.hrtime.bigint()) / 1e6;
let isMeasuring = false;

/** @param {import('ws').RawData} data */
function receive(data) {
  const message = JSON.parse(String(data));
  if (message.type !== 'message' || !isMeasuring) return;
  tookMs[message.room]?.push(nowMs() - message.payload.sentMs);
}

const sockets = [];
for (let i = 0; i < plan.members; i++) {
  const socket = new WebSocket(plan.url);
  socket.on('message', receive);
  await once(socket, 'open');
  for (const room of plan.rooms) socket.send(JSON.stringify({ type: 'join', room }));
  sockets.push(socket);
}
// The reply to a join is the last one before the first message.
await pause(1000);
console.log(JSON.stringify({ joined: true }));
const lines = createInterface({ input: process.stdin });
await once(lines, 'line');

const padding = 'x'.repeat(plan.bytes);
const started = nowMs();
isMeasuring = true;
let sent = 0;
while (plan.publish && nowMs() - started < plan.seconds * 1000) {
  for (; sent < ((nowMs() - started) * plan.rate) / 1000; sent++) {
    const payload = { sentMs: nowMs(), padding };
    sockets[sent % sockets.length].send(
      JSON.stringify({ type: 'message', room: plan.publish, payload }),
    );
  }
  await pause(TICK_MS);
}
await pause(Math.max(0, plan.seconds * 1000 - (nowMs() - started)) + REST_MS);
for (const socket of sockets) socket.terminate();
lines.close();
const figures = Object.entries(tookMs).map(([room, list]) => [room, figuresOf(list)]);
console.log(JSON.stringify({ sent, tookMs: Object.fromEntries(figures) }));

/** @param {number[]} list */
function figuresOf(list) {
  list.sort((a, b) => a - b);
  const at = (/** @type {number} */ share) => list[Math.floor(share * (list.length - 1))];
  return { count: list.length, p50: at(0.5), p99: at(0.99), max: list.at(-1) };
}
