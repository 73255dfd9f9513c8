// last-answers.test.js: peers that were refused and linger (transport/last-answers.js).

import assert from 'node:assert/strict';
import { connect as dial } from 'node:net';
import { test } from 'node:test';
import { limit, start, until } from '../helpers/public-port.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

test('a refused peer that stays connected is disconnected', limit, async (t) => {
  const { connect, server } = await start(t);
  const client = await connect();
  client.socket.allowHalfOpen = true;
  client.write(handshake({ target: '/nowhere' }));
  await client.response();
  assert.equal(server.openSockets, 1);
  await until(() => server.openSockets === 0);
});

test('a refused peer that goes on sending is closed after 8 MB', limit, async (t) => {
  const { connect, server } = await start(t);
  /** @type {import('node:net').Socket|undefined} */
  let socket;
  server.reader.acceptor.on('connection', (one) => {
    socket = one;
  });
  const client = await connect();
  client.write(handshake({ target: '/nowhere' }));
  await client.response();
  for (let i = 0; i < 64; i++) client.write(Buffer.alloc(1_048_576));
  await client.closed();
  assert.ok(socket !== undefined && socket.bytesRead < 8_388_608 + 1_000_000);
});

test('peers that linger together are closed a hundred at a time', limit, async (t) => {
  const { server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  // They do not end when the server does.
  const clients = Array.from(
    { length: 250 },
    () => new RawClient(dial({ port, host: '127.0.0.1', allowHalfOpen: true })),
  );
  for (const client of clients) t.after(() => client.socket.destroy());
  for (const client of clients) client.write(handshake({ method: 'POST' }));
  for (const client of clients) assert.equal((await client.response()).status, 405);
  const late = performance.now() + 1100;
  while (performance.now() < late); // a busy worker: all are overdue at once
  let [open, most] = [server.openSockets, 0];
  await until(() => {
    most = Math.max(most, open - server.openSockets);
    open = server.openSockets;
    return open === 0;
  }, 5000);
  assert.ok(most <= 100, `${most} in a turn`);
});

test('what refused peers go on sending is read in small parts of a turn', limit, async (t) => {
  const { server } = await start(t, { env: { FANFARE_LIMITS: 'off' } });
  let reads = 0;
  let most = 0;
  const { data } = server;
  server.data = (socket, bytes) => {
    reads++;
    data.call(server, socket, bytes);
  };
  const turn = () => {
    most = Math.max(most, reads);
    reads = 0;
    next = setImmediate(turn);
  };
  let next = setImmediate(turn);
  t.after(() => clearImmediate(next));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.reader.acceptor.address());
  // They do not end when the server does.
  const clients = Array.from(
    { length: 150 },
    () => new RawClient(dial({ port, host: '127.0.0.1', allowHalfOpen: true })),
  );
  for (const client of clients) t.after(() => client.socket.destroy());
  for (const client of clients)
    client.write(handshake({ method: 'POST', headers: { 'Content-Length': '2000000' } }));
  for (const client of clients) assert.equal((await client.response()).status, 405);
  const more = Buffer.alloc(1_048_576);
  for (const client of clients) client.write(more);
  await until(() => server.openSockets === 0, 5000); // they had LINGER_MS to close
  assert.ok(most > 0);
  // At most two reads of each when they begin; then 64 sockets go on in a turn. It was 2,100.
  assert.ok(most <= 2 * 150 + 2 * 64, `${most} reads in a turn`);
});

test('a refused peer that is still sending gets the answer, not a reset', limit, async (t) => {
  const { connect } = await start(t);
  const client = await connect();
  client.write(
    handshake({
      method: 'POST',
      headers: { 'Content-Length': '4000000' },
      body: 'x'.repeat(2_000_000),
    }),
  );
  client.write('x'.repeat(2_000_000));
  assert.equal((await client.response()).status, 405);
});
