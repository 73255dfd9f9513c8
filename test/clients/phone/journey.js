// journey.js: what an app does with the client on a phone. It runs against a real server in
// e2e/client-phones, and in Hermes against the server of phone-server.js.

import { Fanfare } from '../../../src/client/index.js';
import { followAppState } from '../../../src/client/mobile.js';
import { Fanfare as SharedFanfare } from '../../../src/client/shared/index.js';
import { messagesOf, stateOf, usersOf } from '../../../src/client/views.js';

/**
 * @typedef {object} Phone
 * @property {string} url
 * @property {any} WebSocket of React Native
 * @property {ReturnType<typeof import('./surroundings.js').appStates>} appStates
 * @property {(payload: unknown, key?: string) => Promise<void>} publish as another user: to
 *   `chat.phone`, or with a key to `price.phone`
 * @property {(reason: string) => void} cut the network fails
 */

/** @param {() => unknown} condition @param {string} what */
async function until(condition, what) {
  for (let i = 0; !condition(); i++) {
    if (i > 2000) throw new Error(`${what} did not happen`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** @param {Phone} phone @returns {Promise<Record<string, unknown>>} what the app has seen */
export async function journey({ url, WebSocket, appStates, publish, cut }) {
  // An app that needs headers, as behind some proxies, extends the class.
  class OwnSocket extends WebSocket {
    /** @param {string} address @param {string} protocols */
    constructor(address, protocols) {
      super(address, protocols, { headers: { 'x-phone': 'yes' } });
    }
  }
  const quick = { firstDelayMs: 20, maxDelayMs: 50 };
  const fanfare = new Fanfare(url, { ...quick, WebSocket: /** @type {any} */ (OwnSocket) });
  let maxBytes = 0;
  fanfare.on('welcome', ({ limits }) => {
    maxBytes = limits.maxMessageBytes;
  });
  /** @type {string[]} */
  const states = [];
  /** @type {string[]} */
  const reasons = [];
  fanfare.on('state', (state, { reason }) => {
    states.push(state);
    if (reason) reasons.push(reason);
  });
  const stop = followAppState(fanfare, appStates);
  /** @type {unknown[]} */
  const received = [];
  const room = fanfare.join('chat.phone', { last: 1, presence: { user: 'ann' } });
  room.on('message', (payload) => received.push(payload));
  const views = {
    messages: messagesOf(fanfare, 'chat.phone', { last: 5 }),
    state: stateOf(fanfare, 'price.phone'),
    users: usersOf(fanfare, 'chat.phone'),
  };
  const ends = Object.values(views).map((view) => view.subscribe(() => {}));
  await until(() => room.isJoined, 'the join');
  const { offset } = await room.publish('one');
  await until(() => received.length === 1, 'the first message');
  cut('The network connection was lost.');
  await publish('two');
  await until(() => received.length === 2, 'the message that was missed');
  appStates.enter('inactive');
  appStates.enter('background');
  const inBackground = fanfare.state;
  await publish('three');
  appStates.enter('active');
  await until(() => received.length === 3, 'the message of the background');
  await publish(7, 'x');
  await until(() => views.state.get()?.get('x') === 7, 'the state');
  await until(() => views.users.get().count === 1, 'the users');
  await until(() => views.messages.get().messages.length === 3, 'the view');
  // Fewer characters than the limit, and more bytes.
  const large = 'é'.repeat(maxBytes / 2);
  const tooLarge = await fanfare.publish('chat.phone', large).catch(({ code }) => code);
  // Without tabs it is a client like any other.
  const shared = new SharedFanfare(url, { ...quick, name: 'ann' });
  await shared.connect();
  for (const end of [...ends, stop]) end();
  await Promise.all([fanfare.close(), shared.close()]);
  return { received, reasons, inBackground, offset, tooLarge, states: [...new Set(states)] };
}
