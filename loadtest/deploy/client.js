// client.js: a process with many stock clients. It records when each is without its room, and which
// messages it received.
//
//   node client.js KIND PORT FIRST COUNT   forked by stock-clients.js
//
// A client is connected from the answer to its subscription until its library notices that the
// connection is gone: that is what its user sees.

import { ROOM_SIZE, roomOf } from './settings.js';

/** Opening at this rate troubles no server. */
const OPENS_PER_SECOND = 250;

/**
 * @typedef {object} Listener
 * @property {() => void} onJoined the server has answered the subscription
 * @property {() => void} onLost may be called twice
 * @property {(n: number) => void} onMessage its number
 */

class Watched {
  #lostAtMs = performance.now();
  #isJoined = false;
  /** How often each message arrived, by its number. @type {Map<number, number>} */
  received = new Map();
  downMs = 0;
  losses = 0;
  joins = 0;

  /** @param {number} room */
  constructor(room) {
    this.room = room;
  }

  get isJoined() {
    return this.#isJoined;
  }

  joined() {
    this.joins++;
    if (this.#isJoined) return;
    this.#isJoined = true;
    this.downMs += performance.now() - this.#lostAtMs;
  }

  lost() {
    if (!this.#isJoined) return;
    this.#isJoined = false;
    this.#lostAtMs = performance.now();
    this.losses++;
  }

  /** @param {number} n */
  receive(n) {
    this.received.set(n, (this.received.get(n) ?? 0) + 1);
  }

  /** Forgets what has happened so far. */
  begin() {
    this.downMs = this.losses = this.joins = 0;
  }

  /** @param {ReadonlyMap<number, readonly number[]>} published messages by room */
  report(published) {
    if (!this.#isJoined) this.downMs += performance.now() - this.#lostAtMs;
    let lost = 0;
    let twice = 0;
    for (const n of published.get(this.room) ?? []) {
      const count = this.received.get(n) ?? 0;
      if (count === 0) lost++;
      else if (count > 1) twice++;
    }
    const { downMs, losses, joins, isJoined } = this;
    return { downMs, losses, joins, lost, twice, isBack: isJoined };
  }
}

const [, , kind, port, first, count] = process.argv;
/** @type {Watched[]} */
const clients = [];
const { open } = await import(`./clients/${kind}.js`);
const timer = setInterval(() => {
  if (clients.length === Number(count)) return clearInterval(timer);
  const room = Math.floor((Number(first) + clients.length) / ROOM_SIZE);
  const client = new Watched(room);
  clients.push(client);
  open(Number(port), roomOf(room), {
    onJoined: () => client.joined(),
    onLost: () => client.lost(),
    onMessage: (/** @type {number} */ n) => client.receive(n),
  });
}, 1000 / OPENS_PER_SECOND);

process.on('message', (/** @type {{what: string, published?: [number, number[]][]}} */ message) => {
  const { what, published = [] } = message;
  if (what === 'begin') for (const client of clients) client.begin();
  if (what === 'report') {
    const byRoom = new Map(published);
    process.send?.({ report: clients.map((client) => client.report(byRoom)) });
  } else process.send?.({ joined: clients.filter(({ isJoined }) => isJoined).length });
});
process.on('disconnect', () => process.exit());
