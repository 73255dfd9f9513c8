// handshakes.test.js: how many handshakes are admitted, for how long they wait, and whose turn it is
// (transport/handshakes.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limit, start, until } from '../helpers/public-port.js';
import { handshake } from '../helpers/raw-http.js';

test(
  '100 of 300 connections from one address are admitted, with or without forged headers, and places are given back',
  limit,
  async (t) => {
    const { connect, counters, held, server } = await start(t);
    const clients = await Promise.all(Array.from({ length: 300 }, connect));
    const forged = (/** @type {number} */ i) =>
      i % 2 ? { 'X-Forwarded-For': `6.6.${i >> 8}.${i & 255}`, Forwarded: `for=6.6.6.${i}` } : {};
    const responses = await Promise.all(
      clients.map((client, i) => client.write(handshake({ headers: forged(i) })).response()),
    );
    const refused = responses.filter(({ status }) => status === 429);
    assert.equal(responses.filter(({ status }) => status === 101).length, 100);
    assert.equal(refused.length, 200);
    assert.equal(counters.refused.per_ip, 200);
    for (const { headers } of refused)
      assert.ok(Number(headers['retry-after']) >= 10 && Number(headers['retry-after']) <= 20);
    assert.ok(
      new Set(refused.map(({ headers }) => headers['retry-after'])).size > 1,
      'with jitter',
    );
    await until(() => server.openSockets === 100);
    for (const client of clients) client.socket.destroy();
    await until(() => server.openSockets === 0);
    assert.equal(held.get('127.0.0.1'), 0);
    assert.equal((await (await connect()).write(handshake()).response()).status, 101);
  },
);

test('a worker that lags refuses with 503', limit, async (t) => {
  const { connect, health } = await start(t);
  health.lag = 10_000;
  const response = await (await connect()).write(handshake()).response();
  assert.equal(response.status, 503);
  assert.ok(Number(response.headers['retry-after']) >= 5);
});

test(
  'half a header or single bytes get 408 at the deadline, and silence no answer',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '1000' },
    });
    const started = performance.now();
    const [idle, half, dribbling] = await Promise.all([connect(), connect(), connect()]);
    half.write('GET /ws HTTP/1.1\r\nHost: a\r\n');
    dribbling.write('GET /ws HTTP/1.1\r\n');
    // If a byte waits unread at the deadline, the worker is late itself and answers 503. So the last
    // one comes 100 ms before.
    const dribble = () => dribbling.socket.writable && dribbling.write('X-A: b\r\n');
    const timer = setInterval(dribble, 300);
    t.after(() => clearInterval(timer));
    for (const client of [half, dribbling]) {
      const { status, headers } = await client.response();
      assert.deepEqual([status, headers['retry-after']], [408, '1']);
      await client.closed();
    }
    await idle.closed();
    assert.equal(idle.bytes.length, 0, 'an answer could meet a request that is on its way');
    clearInterval(timer);
    assert.ok(performance.now() - started >= 990);
    assert.ok(performance.now() - started < 5000);
    assert.equal(counters.refused.handshake_timeout, 3);
    await until(() => server.openSockets === 0);
  },
);

test(
  'an admission that stalls ends in 503, and a place granted later is given back',
  limit,
  async (t) => {
    /** @type {(() => void)[]} */
    const answer = [];
    let released = 0;
    const { connect, counters } = await start(t, {
      env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '200' },
      addresses: {
        acquire: () =>
          new Promise((resolve) => answer.push(() => resolve({ admitted: true, connections: 1 }))),
        release: () => released++,
      },
      onUpgrade: () => assert.fail('too late'),
    });
    const client = await connect();
    const response = await client.write(handshake()).response();
    assert.equal(response.status, 503);
    assert.ok(response.headers['retry-after']);
    assert.equal(counters.refused.handshakes, 1);
    await client.closed();
    assert.equal(released, 0);
    answer[0]();
    await until(() => released === 1);
  },
);

test('the place of a client that disconnects during admission is given back', limit, async (t) => {
  /** @type {(() => void)[]} */
  const answer = [];
  let released = 0;
  const { connect, server } = await start(t, {
    addresses: {
      acquire: () =>
        new Promise((resolve) => answer.push(() => resolve({ admitted: true, connections: 1 }))),
      release: () => released++,
    },
    onUpgrade: () => assert.fail('nobody is there'),
  });
  const client = await connect();
  client.write(handshake());
  await until(() => answer.length === 1);
  client.socket.resetAndDestroy();
  await until(() => server.openSockets === 0);
  answer[0]();
  await until(() => released === 1);
});

test('a place is given back once if ws refuses an admitted handshake', limit, async (t) => {
  let released = 0;
  const { connect, server } = await start(t, {
    addresses: {
      acquire: async () => ({ admitted: true, connections: 1 }),
      release: () => released++,
    },
  });
  const client = await connect();
  assert.equal(
    (await client.write(handshake({ headers: { 'Sec-WebSocket-Protocol': 'a,a' } })).response())
      .status,
    400,
  );
  await client.closed();
  await until(() => server.openSockets === 0);
  assert.equal(released, 1);
});

test(
  'if an address opens many silent connections, its own oldest are closed, and no other is refused',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, { env: { FANFARE_MAX_HANDSHAKES: '4' } });
    const quiet = await connect('127.0.0.3');
    await until(() => server.handshakes === 1);
    const silent = [];
    for (let i = 0; i < 6; i++) {
      silent.push(await connect('127.0.0.2'));
      if (i % 2) silent[i].write('GET /ws HTTP/1.1\r\n'); // half a handshake is no better
    }
    await until(() => counters.idleClosed.handshakes === 3);
    for (const client of silent.slice(0, 3)) await client.closed();
    assert.equal(server.handshakes, 4);
    for (let i = 4; i < 20; i++) {
      const honest = await connect(`127.0.0.${i}`);
      assert.equal((await honest.write(handshake()).response()).status, 101);
    }
    assert.equal((await quiet.write(handshake()).response()).status, 101);
    assert.equal(counters.refused.handshakes, 0);
  },
);

test(
  'a trusted proxy does not count as one address: the address with the most silent connections loses first',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_MAX_HANDSHAKES: '6', TRUST_PROXY: '127.0.0.1' },
    });
    const proxied = await Promise.all(Array.from({ length: 4 }, () => connect('127.0.0.1')));
    const silent = [await connect('127.0.0.2'), await connect('127.0.0.2')];
    await until(() => server.handshakes === 6);
    const more = await connect('127.0.0.1');
    await silent[0].closed();
    const last = await connect('127.0.0.1');
    // Now that all have one each, the oldest goes.
    await proxied[0].closed();
    assert.equal(counters.idleClosed.handshakes, 2);
    for (const client of [...proxied.slice(1), silent[1], more, last])
      assert.equal((await client.write(handshake()).response()).status, 101);
  },
);

test('1,200 handshakes at once are all accepted', limit, async (t) => {
  const { connect, counters, server, websockets } = await start(t);
  const clients = await Promise.all(
    Array.from({ length: 1200 }, (_, i) => connect(`127.0.1.${1 + (i % 24)}`)),
  );
  await until(() => server.openSockets === 1200);
  for (const client of clients) client.write(handshake());
  const answers = await Promise.all(clients.map((client) => client.response(8000)));
  assert.equal(answers.filter(({ status }) => status === 101).length, 1200);
  assert.equal(websockets.clients.size, 1200);
  assert.equal(counters.idleClosed.handshakes, 0);
});

for (const mode of ['enforce', 'observe', 'off']) {
  test(
    `a handshake that the worker cannot handle in time gets 503, not 408: ${mode}`,
    limit,
    async (t) => {
      const { connect, counters, server } = await start(t, {
        env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '600', FANFARE_MAX_HANDSHAKES_MODE: mode },
        onUpgrade(_request, socket) {
          const end = performance.now() + 100;
          while (performance.now() < end);
          socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
        },
      });
      const clients = await Promise.all(Array.from({ length: 12 }, () => connect()));
      await until(() => server.openSockets === 12);
      for (const client of clients) client.write(handshake());
      const answers = await Promise.all(clients.map((client) => client.response()));
      const refused = answers.filter(({ status }) => status === 503);
      assert.equal(answers.filter(({ status }) => status === 101).length, 12 - refused.length);
      assert.equal(counters.refused.handshakes, refused.length);
      assert.equal(counters.refused.handshake_timeout, 0);
      assert.equal(refused.length > 0, mode === 'enforce');
      assert.equal(counters.observed.handshakes > 0, mode === 'observe');
      for (const { headers } of refused) assert.ok(Number(headers['retry-after']) >= 5);
      await until(() => server.handshakes === 0);
    },
  );
}

test(
  'an address that connects too often gets 429 before its request is read; its further requests count too',
  limit,
  async (t) => {
    const { connect, counters, server } = await start(t, {
      env: { FANFARE_HANDSHAKES_PER_MINUTE_PER_IP: '1', FANFARE_HANDSHAKES_BURST_PER_IP: '3' },
    });
    const livez = 'GET /livez HTTP/1.1\r\nHost: a\r\n\r\n';
    const first = await connect();
    assert.equal((await first.write(livez).response()).status, 200);
    assert.equal((await first.write(livez).response()).status, 200);
    assert.equal((await (await connect()).write(handshake()).response()).status, 101);
    const refused = await connect();
    const { status, headers } = await refused.response();
    assert.equal(status, 429);
    assert.ok(Number(headers['retry-after']) >= 1);
    await refused.closed();
    const last = await first.write(livez).response();
    assert.equal(last.status, 429);
    assert.equal(last.headers.connection, 'close');
    assert.equal((await (await connect('127.0.0.2')).write(handshake()).response()).status, 101);
    assert.equal(counters.refused.handshakes_per_ip, 2);
    await until(() => server.openSockets === 2);
  },
);

test(
  'unfinished sockets that leave the queue count against the cap of handshakes',
  limit,
  async (t) => {
    const { connect, server, counters } = await start(t, { env: { FANFARE_MAX_HANDSHAKES: '3' } });
    let accepted = 0;
    server.reader.acceptor.on('connection', () => accepted++);
    const first = await Promise.all([connect(), connect(), connect()]);
    await until(() => accepted === 3);
    // All of it comes in one turn: the first three are in line when the next three come.
    for (const client of first) client.write('G');
    await Promise.all([connect(), connect(), connect()]);
    await until(() => accepted === 6);
    for (let i = 0; i < 10; i++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(server.handshakes, 3);
    assert.equal(counters.idleClosed.handshakes, 3);
  },
);

test('an observed cap of handshakes counts and admits', limit, async (t) => {
  const { connect, counters, server } = await start(t, {
    env: { FANFARE_MAX_HANDSHAKES: '1', FANFARE_MAX_HANDSHAKES_MODE: 'observe' },
  });
  await connect();
  await until(() => server.handshakes === 1);
  assert.equal((await (await connect()).write(handshake()).response()).status, 101);
  assert.equal(counters.observed.handshakes, 1);
  assert.equal(counters.refused.handshakes, 0);
});

test('handshakes that time out together are refused a hundred at a time', limit, async (t) => {
  const { connect, counters } = await start(t, {
    env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '300', FANFARE_LIMITS: 'off' },
  });
  await Promise.all(Array.from({ length: 250 }, () => connect()));
  let [refused, most] = [0, 0];
  await until(() => {
    most = Math.max(most, counters.refused.handshake_timeout - refused);
    refused = counters.refused.handshake_timeout;
    return refused === 250;
  });
  assert.ok(most <= 100, `${most} in a turn`);
});

test('a worker that was blocked does not refuse clients that were in time', limit, async (t) => {
  const { connect, counters } = await start(t, { env: { FANFARE_HANDSHAKE_TIMEOUT_MS: '500' } });
  const [early, silent] = [await connect(), await connect()];
  early.write(handshake());
  // Its bytes are in the kernel, and this process reads nothing.
  const end = performance.now() + 1500;
  while (performance.now() < end);
  assert.equal((await early.response()).status, 101);
  assert.equal(counters.refused.handshake_timeout, 0);
  await silent.closed();
  assert.equal(counters.refused.handshake_timeout, 1);
});

test(
  'a client waits for its own turn, not for all handshakes of an earlier address',
  limit,
  async (t) => {
    const came = /** @type {string[]} */ ([]);
    const { connect, server } = await start(t, {
      env: { FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' },
      onUpgrade(request, socket) {
        came.push(String(request.url));
        const end = performance.now() + 5;
        while (performance.now() < end); // one a turn
        socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
      },
    });
    const many = [];
    for (let i = 0; i < 30; i++) many.push(await connect('127.0.0.2'));
    const other = await connect('127.0.0.3');
    await until(() => server.handshakes === 31);
    for (const client of many) client.write(handshake({ target: '/ws?many' }));
    other.write(handshake({ target: '/ws?other' }));
    await until(() => came.length === 31);
    const before = came.indexOf('/ws?other');
    assert.ok(before >= 0 && before <= 5, `${before} came before it`);
  },
);

test(
  'a client that leaves without a request, or before its turn, leaves nothing behind',
  limit,
  async (t) => {
    const { connect, server, counters } = await start(t);
    const silent = await connect();
    await until(() => server.handshakes === 1);
    silent.socket.end();
    await silent.closed();
    await until(() => server.openSockets === 0);
    for (let i = 0; i < 20; i++) {
      const client = await connect();
      client.write(handshake());
      client.socket.destroy();
    }
    await until(() => server.openSockets === 0);
    assert.equal(server.handshakes, 0);
    assert.equal(counters.refused.handshake_timeout, 0);
  },
);
