// honest.js: a process of well-behaved clients, which exchange messages during a flood.
//
// They are in one room and one of them publishes every PUBLISH_MS, in turn, each from an address of
// its own and well within the default limits (24 messages a minute). Each delivery is timed. One
// delivery that never came counts as the slowest there is. Beside them, somebody new connects each
// second and sends `hello`, to check that places are left.

import { WebSocket } from 'ws';

const CLIENTS = 50;
const ROOM = 'honest';
const PUBLISH_MS = 50;
const NEWCOMER_MS = 1000;
const NEWCOMER_ADDRESSES = 100;
const COME_BACK_MS = 500;
/** A newcomer that has no answer by then was refused. */
const PATIENCE_MS = 5000;

/**
 * @typedef {object} Honest their observations
 * @property {number} published
 * @property {number} missing deliveries that did not come
 * @property {number} p50 of the deliveries in ms; Infinity for a missing one
 * @property {number} p99
 * @property {number} max of those that came
 * @property {number} disconnected
 * @property {Record<string, number>} closes by code
 * @property {Record<string, number>} errors by code
 * @property {number} newcomers
 * @property {Record<string, number>} refused newcomers, by status or error
 */

let port = 0;
/** @type {number[]} */
let latencies = [];
let published = 0;
let expected = 0;
/** @type {Record<string, number>} */
let closes = {};
/** @type {Record<string, number>} */
let errors = {};
let newcomers = 0;
/** @type {Record<string, number>} */
let refused = {};
/** Which measurement a message belongs to. */
let round = 0;
/** @type {(Client|undefined)[]} */
const clients = [];
/** @type {NodeJS.Timeout[]} */
const timers = [];

/** @param {Record<string, number>} counts @param {string|number} key */
function count(counts, key) {
  counts[key] = (counts[key] ?? 0) + 1;
}

class Client {
  isIn = false;

  /** @param {number} number @param {() => void} onJoined */
  constructor(number, onJoined) {
    this.socket = new WebSocket(`ws://127.0.0.1:${port}/ws`, {
      localAddress: `127.0.1.${number + 1}`,
    });
    this.socket.on('open', () => this.socket.send(JSON.stringify({ type: 'join', room: ROOM })));
    this.socket.on('message', (data) => {
      const message = JSON.parse(String(data));
      if (message.type === 'message' && message.payload.round === round) {
        latencies.push(performance.now() - message.payload.atMs);
      } else if (message.type === 'joined') {
        this.isIn = true;
        onJoined();
      } else if (message.type === 'error') count(errors, message.error);
    });
    this.socket.on('error', () => {});
    this.socket.on('close', (code) => {
      if (this.isIn) count(closes, code);
      this.isIn = false;
      timers.push(setTimeout(() => (clients[number] = new Client(number, onJoined)), COME_BACK_MS));
    });
  }
}

let turn = 0;
function publish() {
  const client = clients[turn++ % CLIENTS];
  published++;
  // The others' disconnects show as missing deliveries too: all fifty should be there.
  expected += CLIENTS;
  if (!client?.isIn) return;
  client.socket.send(
    JSON.stringify({ type: 'message', room: ROOM, payload: { round, atMs: performance.now() } }),
  );
}

let newcomer = 0;
function newcomerComes() {
  newcomers++;
  const mine = round;
  const socket = new WebSocket(`ws://127.0.0.1:${port}/ws`, {
    localAddress: `127.0.1.${101 + (newcomer++ % NEWCOMER_ADDRESSES)}`,
    handshakeTimeout: PATIENCE_MS,
  });
  let outcome = '';
  const timer = setTimeout(() => {
    outcome ||= 'no answer';
    socket.terminate();
  }, PATIENCE_MS);
  socket.on('unexpected-response', (request, response) => {
    outcome ||= `HTTP ${response.statusCode}`;
    request.destroy();
    socket.terminate();
  });
  socket.on('open', () => socket.send('{"type":"hello"}'));
  socket.on('message', () => {
    outcome = 'welcome';
    socket.close();
  });
  socket.on('error', (error) => {
    outcome ||= /** @type {NodeJS.ErrnoException} */ (error).code ?? error.message;
  });
  socket.on('close', () => {
    clearTimeout(timer);
    if (mine === round && outcome !== 'welcome') count(refused, outcome || 'closed');
  });
}

/** @returns {Honest} */
function result() {
  const sorted = Float64Array.from(latencies).sort();
  const total = Math.max(expected, sorted.length);
  const quantile = (/** @type {number} */ q) =>
    sorted[Math.ceil(q * total) - 1] ?? Number.POSITIVE_INFINITY;
  return {
    published,
    missing: total - sorted.length,
    p50: quantile(0.5),
    p99: quantile(0.99),
    max: sorted[sorted.length - 1] ?? 0,
    disconnected: Object.values(closes).reduce((sum, n) => sum + n, 0),
    closes,
    errors,
    newcomers,
    refused,
  };
}

process.on(
  'message',
  async (/** @type {{port?: number, say: 'come'|'begin'|'end'|'report'|'leave'}} */ order) => {
    switch (order.say) {
      case 'come': {
        port = order.port ?? 0;
        let joined = 0;
        for (let i = 0; i < CLIENTS; i++) {
          clients[i] = new Client(i, () => {
            if (++joined === CLIENTS) process.send?.('joined');
          });
        }
        break;
      }
      case 'begin':
        round++;
        latencies = [];
        [published, expected, newcomers] = [0, 0, 0];
        [closes, errors, refused] = [{}, {}, {}];
        timers.push(setInterval(publish, PUBLISH_MS), setInterval(newcomerComes, NEWCOMER_MS));
        break;
      case 'end':
        for (const timer of timers.splice(0)) clearInterval(timer);
        // Whoever was waiting to come back does so now.
        for (let i = 0; i < CLIENTS; i++) {
          if (clients[i]?.socket.readyState === WebSocket.CLOSED)
            clients[i] = new Client(i, () => {});
        }
        break;
      case 'report':
        process.send?.(result());
        break;
      case 'leave':
        process.exit(0);
    }
  },
);
process.on('disconnect', () => process.exit(0));
