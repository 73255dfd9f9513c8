// stock-clients.test.js: after each close of each door, do the clients of its users return? They are
// the libraries as published, against a server of this process that closes with one code. The tables
// of docs/protocol.md, docs/pusher.md and docs/centrifugo.md make the promise.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import { EventSource } from 'eventsource';
import { WebSocket } from 'ws';
import { Fanfare } from '../../src/client/node.js';
import { Fanfare as SseFanfare } from '../../src/client/sse/index.js';
import {
  endings as centrifugoEndings,
  closeOf as toCentrifugo,
} from '../../src/doors/centrifugo/codec/codes.js';
import {
  endings as pusherEndings,
  closeOf as toPusher,
} from '../../src/doors/pusher/codec/closes.js';
import { API_ERRORS, CLOSES, ERRORS, OVER, REFUSALS, WS_CLOSES } from '../../src/protocol/codes.js';
import { startClosingServer } from '../helpers/closing-server.js';
import '../helpers/short-timers.js';

const OPTIONS = { timeout: 30_000 };
/** @type {any} */
const PusherJs = createRequire(import.meta.url)('pusher-js');

/** Codes that a door sends, with what its table says. @type {(endings: any[]) => Map<number, boolean>} */
const promises = (endings) =>
  new Map(endings.map(({ code, clients }) => [code, /^return/.test(clients)]));

/** @typedef {'returns'|'stops'} Outcome */

/** @param {boolean} doesReturn @returns {Outcome} */
const outcomeOf = (doesReturn) => (doesReturn ? 'returns' : 'stops');

const { port, close } = await startClosingServer();
after(close);

/** @type {Record<string, (path: string) => Promise<Outcome>>} */
const CLIENTS = {
  'fanfare/client': (path) => {
    const client = new Fanfare(`ws://127.0.0.1:${port}/${path}`);
    client.on('error', () => {});
    return ended(client, { waiting: 'returns', closed: 'stops' }, () => void client.connect());
  },
  'fanfare/client/sse': (path) => {
    const client = new SseFanfare(`http://127.0.0.1:${port}/${path}`);
    client.on('error', () => {});
    return ended(client, { waiting: 'returns', closed: 'stops' }, () => void client.join('a'));
  },
  'pusher-js': (path) =>
    new Promise((resolve) => {
      const pusher = new PusherJs(path.split('/')[1], {
        ...{ cluster: '', wsHost: '127.0.0.1', wsPort: port },
        ...{ forceTLS: false, enabledTransports: ['ws'] },
      });
      let wasConnected = false;
      const end = (/** @type {Outcome} */ outcome) => {
        pusher.connection.unbind('connecting');
        resolve(outcome);
        // After this event it goes on with the attempt.
        setImmediate(() => pusher.disconnect());
      };
      pusher.connection.bind('connected', () => {
        wasConnected = true;
      });
      pusher.connection.bind('connecting', () => wasConnected && end('returns'));
      pusher.connection.bind('disconnected', () => end('stops'));
    }),
  'centrifuge-js': (path) =>
    new Promise((resolve) => {
      const client = new Centrifuge(`ws://127.0.0.1:${port}/${path}`, {
        ...{ websocket: WebSocket, minReconnectDelay: 5000, maxReconnectDelay: 9000 },
      });
      let wasConnected = false;
      const end = (/** @type {Outcome} */ outcome) => {
        client.removeAllListeners();
        resolve(outcome);
        setImmediate(() => client.disconnect());
      };
      client.on('connected', () => {
        wasConnected = true;
      });
      client.on('connecting', () => wasConnected && end('returns'));
      client.on('disconnected', () => end('stops'));
      client.connect();
    }),
  EventSource: (path) =>
    new Promise((resolve) => {
      const source = new EventSource(`http://127.0.0.1:${port}/${path}?room=a`);
      source.onerror = () => {
        resolve(source.readyState === source.CLOSED ? 'stops' : 'returns');
        setImmediate(() => source.close()); // it sets its timer after this event
      };
    }),
};

/**
 * @param {any} client a Fanfare of either kind @param {Record<string, Outcome>} outcomes by state
 * @param {() => void} begin @returns {Promise<Outcome>}
 */
function ended(client, outcomes, begin) {
  return new Promise((resolve) => {
    let isOver = false;
    client.on('state', (/** @type {string} */ state) => {
      if (isOver || !(state in outcomes)) return;
      isOver = true;
      resolve(outcomes[state]);
      client.close();
    });
    begin();
  });
}

/**
 * @param {string} name of the client
 * @param {Iterable<[path: string, doesReturn: boolean]>} promised
 */
async function holds(name, promised) {
  const rows = [...promised];
  const seen = await Promise.all(rows.map(([path]) => CLIENTS[name](path)));
  const expected = rows.map(([path, doesReturn]) => `${path}: ${outcomeOf(doesReturn)}`);
  assert.deepEqual(
    rows.map(([path], i) => `${path}: ${seen[i]}`),
    expected,
  );
}

const NATIVE = [...Object.values(CLOSES), ...Object.values(WS_CLOSES)];

describe('what a client does after a close is what its table says', { concurrency: true }, () => {
  test('fanfare/client', OPTIONS, () =>
    holds(
      'fanfare/client',
      NATIVE.map(({ code, isLasting }) => [`native/${code}`, isLasting !== true]),
    ),
  );

  test('fanfare/client/sse', OPTIONS, () =>
    // The server closes no stream for what only WebSockets send.
    holds(
      'fanfare/client/sse',
      Object.values(CLOSES)
        .filter(({ code }) => code >= 1011)
        .map(({ code, isLasting }) => [`close/${code}`, isLasting !== true]),
    ),
  );

  test('pusher-js', OPTIONS, () =>
    holds(
      'pusher-js',
      [...promises(pusherEndings())].map(([code, doesReturn]) => [`app/${code}`, doesReturn]),
    ),
  );

  test('centrifuge-js', OPTIONS, () =>
    holds(
      'centrifuge-js',
      [...promises(centrifugoEndings())].map(([code, doesReturn]) => [
        `centrifugo/${code}`,
        doesReturn,
      ]),
    ),
  );
});

test('what time heals ends no client of any door', () => {
  const pusher = promises(pusherEndings());
  const centrifugo = promises(centrifugoEndings());
  for (const [name, close] of Object.entries(CLOSES)) {
    assert.notEqual(close.over, '', name);
    assert.equal(close.code >= 4500 || close.code < 1011, close.isLasting === true, name);
    if (close.isLasting) continue;
    assert.notEqual(centrifugo.get(toCentrifugo(close).code), false, `Centrifugo: ${name}`);
    // Pusher's door has no native tokens.
    if (close !== CLOSES.TOKEN_EXPIRED)
      assert.notEqual(pusher.get(toPusher(close).code), false, `Pusher: ${name}`);
  }
});

describe('what a client does after a refusal in HTTP', { concurrency: true }, () => {
  /** @typedef {import('../../src/protocol/codes.js').RefusalCode} RefusalCode */
  /** Fanfare names a time if waiting helps. @param {RefusalCode} code @returns {[string, boolean]} */
  const row = (code) => [`refusal/${code}`, (REFUSALS[code].retryAfterS ?? 0) > 0];
  const rows = [...OVER.keys()].map(row);
  const byProxies = [401, 403, 404, 426, 429, 500, 502, 503].map(
    (status) => /** @type {[string, boolean]} */ ([`proxy/${status}`, true]),
  );

  test(
    'fanfare/client stops after those of Fanfare without a time, and after none of a proxy',
    OPTIONS,
    () => holds('fanfare/client', [...rows, ...byProxies]),
  );

  test('so does fanfare/client/sse', OPTIONS, () =>
    holds('fanfare/client/sse', [...rows, ...byProxies]),
  );

  test('an EventSource gets retry: for what passes, and 204 for the rest', OPTIONS, () =>
    holds('EventSource', rows),
  );
});

test('each refusal of a handshake says when it is over, and names a time if it passes', () => {
  const isOfConsole = (/** @type {string} */ code) => /CONSOLE_OFF|HOST_NOT|FOREIGN/.test(code);
  const ofJoins = ['READS_WAIT', 'ROOM_FULL'];
  for (const code of Object.keys(REFUSALS))
    if (!(code in ERRORS || code in API_ERRORS || isOfConsole(code) || ofJoins.includes(code)))
      assert.ok(OVER.has(/** @type {any} */ (code)), `${code}: when is it over?`);
  const passing = [...OVER.keys()].filter((code) => (REFUSALS[code].retryAfterS ?? 0) > 0);
  assert.deepEqual(
    passing,
    [...OVER.keys()].slice(0, passing.length),
    'those that pass come first in the table',
  );
  for (const [code, over] of OVER)
    if (!passing.includes(code))
      assert.match(over, /fixed|changes|permits|with a|with the next|every/, code);
});
