// fake-client.js: `fanfare/client` on a fake socket and a fake clock, for unit tests.

import { setImmediate as turn } from 'node:timers/promises';
import { Fanfare } from '../../src/client/index.js';
import { at } from './client-messages.js';
import { fakeSockets } from './fake-socket.js';

/** @typedef {import('node:test').TestContext} TestContext */

/**
 * A client whose clock the test turns, and its sockets.
 * @param {TestContext} t @param {import('../../src/client/fanfare.js').Options} [options]
 */
export function setUp(t, options = {}) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  t.mock.method(performance, 'now', () => Date.now());
  t.mock.method(Math, 'random', () => 0.5);
  const { Socket, sockets } = fakeSockets();
  const fanfare = new Fanfare('wss://chat.example', { WebSocket: Socket, ...options });
  t.after(() => fanfare.close());
  /** @type {string[]} */
  const states = [];
  fanfare.on('state', (state) => states.push(state));
  /** @type {import('../../src/client/index.js').FanfareError[]} */
  const errors = [];
  fanfare.on('error', (error) => errors.push(error));
  return {
    fanfare,
    sockets,
    states,
    errors,
    /** The newest socket. */
    get socket() {
      return sockets[sockets.length - 1];
    },
    /** Lets the clock run, and then promises. @param {number} ms */
    async pass(ms) {
      t.mock.timers.tick(ms);
      await turn();
    },
    /** Connects, and joins a room. @param {import('../../src/client/room.js').JoinOptions} [join] */
    async joined(join) {
      const room = fanfare.join('chat.1', join);
      await turn();
      this.socket.greet();
      this.socket.answer('join', { type: 'joined', room: 'chat.1', ...at(10), recovered: false });
      return room;
    },
    /** Reconnects, and answers the join. @param {Record<string, unknown>} reply */
    async rejoined(reply) {
      await this.pass(30_000);
      this.socket.greet();
      this.socket.answer('join', { type: 'joined', room: 'chat.1', ...reply });
    },
  };
}
