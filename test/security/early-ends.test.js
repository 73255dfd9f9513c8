// early-ends.test.js: clients that leave, or go on, before the server has answered them, with the
// default limits.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { scrape, startServer, until, urlOf } from '../harness/server.js';
import { newSecret } from '../helpers/api.js';
import { frame, OPCODES } from '../helpers/raw-frames.js';
import { handshake, RawClient } from '../helpers/raw-http.js';
import { shared } from '../helpers/shared.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';
import { SECRET, token } from '../helpers/tokens.js';

/** @typedef {import('../harness/server.js').Server} Server */

const limit = { timeout: 60_000 };
const API_KEY = newSecret();
const ENV = { WORKERS: '1', LOG_LEVEL: 'info', FANFARE_CENTRIFUGO: 'on' };
/** A call of nobody's stream: its answer takes a second. */
const NOBODY = JSON.stringify({ session: 'A'.repeat(22), node: 'ThKJUQU53fSi5reL', data: '{}' });
const CALL = `POST /emulation HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ${NOBODY.length}\r\n\r\n${NOBODY}`;

const open = shared((owner) => startServer(owner, { ...ENV, API_KEYS: `backend ${API_KEY} all` }));
const guarded = shared((owner) =>
  startServer(owner, {
    ...ENV,
    API_KEYS: `backend ${API_KEY} all`,
    JWT_SECRET: SECRET,
    FANFARE_PRESENCE: '*',
  }),
);

/** Log lines of faults. @param {Server} server */
const faultsOf = ({ lines }) => lines.filter(({ level }) => level >= 50).map(({ msg }) => msg);

/** @param {Server} server @param {string} name of a metric, with its labels */
async function metric({ metricsPort }, name) {
  const { values } = await scrape(metricsPort);
  return values.get(name);
}

/**
 * Connects, writes, and leaves when something has come.
 * @param {Server} server @param {string|Buffer} first @param {string|Buffer} [second] written when
 *   `first` is answered
 */
async function leaveEarly({ port }, first, second) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(first);
  if (second !== undefined) {
    await once(socket, 'data');
    socket.write(second);
  }
  socket.resume().end();
  if (!socket.destroyed) await once(socket, 'close');
}

test(
  'a request that leaves HTTP before an earlier one is answered closes its socket, and nobody else',
  limit,
  async (t) => {
    const server = await open();
    const honest = new WebSocket(urlOf(server));
    t.after(() => honest.terminate());
    await once(honest, 'open');
    for (const next of [handshake(), 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n']) {
      const client = await RawClient.connect(t, server);
      client.write(CALL + next);
      await client.closed();
      assert.equal(client.bytes.length, 0);
    }
    // The calls would be answered now.
    await delay(1200);
    assert.equal(honest.readyState, WebSocket.OPEN);
    assert.deepEqual(faultsOf(server), []);
  },
);

for (const [name, target, first] of /** @type {const} */ ([
  ['native', '/ws', (/** @type {string} */ text) => ({ type: 'hello', token: text })],
  [
    'Centrifugo',
    '/connection/websocket',
    (/** @type {string} */ text) => ({ id: 1, connect: { token: text } }),
  ],
]))
  test(
    `${name} clients that leave while their token is checked leave nothing behind`,
    limit,
    async () => {
      const server = await guarded();
      const text = token({ sub: 'ann', autojoin: ['lobby'], rooms: { join: ['lobby'] } });
      const hello = frame(OPCODES.text, JSON.stringify(first(text)));
      for (let i = 0; i < 60; i++) await leaveEarly(server, handshake({ target }), hello);
      const url = `http://127.0.0.1:${server.port}/api/connections?user=ann`;
      const headers = { authorization: `Bearer ${API_KEY}` };
      await until(
        async () => {
          const answer = /** @type {any} */ (await (await fetch(url, { headers })).json());
          return answer.count === 0;
        },
        3000,
        'no connection left',
      );
    },
  );

test(
  'Pusher clients that leave while the place in their app is taken give it back',
  limit,
  async (t) => {
    const apps = join(temporaryFolder(t), 'apps.json');
    writeFileSync(
      apps,
      JSON.stringify([{ id: '1', key: 'k', secrets: ['secret'], maxConnections: 5 }]),
    );
    const server = await startServer(t, { ...ENV, FANFARE_PUSHER_APPS: apps });
    const opening = handshake({ target: '/app/k?protocol=7' });
    for (let i = 0; i < 60; i++) {
      const socket = connect(server.port, '127.0.0.1');
      socket.on('error', () => {});
      socket.write(opening);
      await once(socket, 'data');
      socket.end();
      if (!socket.destroyed) await once(socket, 'close');
    }
    const client = await RawClient.connect(t, server);
    client.write(opening);
    await until(() => client.bytes.includes('connection_established'), 3000, 'a place');
  },
);

test('event streams of clients that leave at once end', limit, async () => {
  const server = await open();
  for (let i = 0; i < 30; i++)
    await leaveEarly(server, 'GET /sse?room=a HTTP/1.1\r\nHost: a\r\n\r\n');
  await until(
    async () => (await metric(server, 'fanfare_transport_connections{transport="sse"}')) === 0,
    5000,
    'no stream left',
  );
});

test('bodies in chunks of a byte take the memory of their bytes', limit, async (t) => {
  const server = await open();
  const [pid] = server.workerPids();
  const kilobytes = () =>
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  const before = kilobytes();
  const head =
    'POST /emulation HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n';
  const chunks = '1\r\nx\r\n'.repeat(60_000);
  for (let i = 0; i < 10; i++) (await RawClient.connect(t, server)).write(head + chunks);
  await delay(3000);
  const grown = Math.round((kilobytes() - before) / 1024);
  t.diagnostic(`${grown} MB more`);
  assert.ok(grown < 100, `${grown} MB`);
});
