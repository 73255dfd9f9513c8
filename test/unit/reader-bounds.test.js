// reader-bounds.test.js: bounds on the resources that one client's bytes take: turns, frames,
// fragments, time and memory.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { FrameServer, frameBytes, MAX_MESSAGE_BYTES } from '../helpers/frame-server.js';
import { handshake, RawClient } from '../helpers/raw-http.js';

/**
 * A server and clients for it.
 * @param {import('node:test').TestContext} t @param {Record<string, string>} [env]
 */
async function serve(t, env) {
  const server = await new FrameServer(true, env).start();
  t.after(() => server.server.close());
  const connect = async () => {
    const client = await RawClient.connect(t, { port: server.port });
    const n = server.opened.length;
    client.write(handshake());
    await until(() => server.opened.length > n && client.bytes.includes('\r\n\r\n'));
    const websocket = server.opened[n];
    t.after(() => websocket.terminate());
    return {
      client,
      websocket,
      socket: /** @type {import('node:net').Socket} */ (websocket.socket),
    };
  };
  return { server, reader: server.websockets.reader, connect };
}

/**
 * @param {any} websocket of the server
 * @param {'onPing'|'onPong'} name
 * @param {() => void} listener also called for each such frame
 */
function listen(websocket, name, listener) {
  const act = websocket[name];
  websocket[name] = function heard(/** @type {Buffer} */ body) {
    act.call(this, body);
    listener();
  };
}

/** @param {() => boolean} condition looked at once a turn of the event loop */
async function until(condition) {
  const end = performance.now() + 10_000;
  while (!condition()) {
    assert.ok(performance.now() < end, 'in time');
    await turn();
  }
}

/**
 * Lets the server read only when the kernel has all of it.
 * @param {{socket: import('node:net').Socket}[]} ends
 * @param {() => unknown} send a promise is awaited: all is written
 */
async function atOnce(ends, send) {
  for (const { socket } of ends) socket.pause();
  await send();
  await new Promise((resolve) => setTimeout(resolve, 50));
  for (const { socket } of ends) socket.resume();
}

/** @param {number} first @param {string} [body] */
const frameOf = (first, body = '') => frameBytes({ first, body: Buffer.from(body), mask: 7 });
const PING = frameOf(0x89);
const PONG = frameOf(0x8a);
/** @param {Buffer} frame @param {number} n */
const times = (frame, n) => Buffer.concat(Array(n).fill(frame));

/** The code that the server has closed with; 0: it has not. @param {RawClient} client */
function closeCode({ bytes }) {
  for (let at = bytes.indexOf('\r\n\r\n') + 4; at < bytes.length; ) {
    if (bytes[at] === 0x88) return bytes.readUInt16BE(at + 2);
    at += 2 + (bytes[at + 1] === 126 ? 2 + bytes.readUInt16BE(at + 2) : bytes[at + 1]);
  }
  return 0;
}

for (const isWs of [false, true]) {
  const way = isWs ? 'by way of ws' : 'the short way';
  // The first fragment of a message makes a connection one of ws's; the second completes it.
  const begin = isWs ? frameOf(0x01, 'f') : Buffer.alloc(0);
  const whole = isWs ? Buffer.concat([begin, frameOf(0x80, 'g')]) : begin;

  test(`a read of thousands of frames takes several turns, and another client is served in between (${way})`, async (t) => {
    const { server, connect } = await serve(t);
    const [flood, other] = [await connect(), await connect()];
    let [pings, inTurn, most, heardAfter] = [0, 0, 0, -1];
    listen(flood.websocket, 'onPing', () => {
      pings++;
      most = Math.max(most, ++inTurn);
    });
    server.onText = (text) => {
      if (text === 'heard?') heardAfter = pings;
    };
    await atOnce([flood, other], () => {
      flood.client.write(Buffer.concat([begin, times(PING, 40_000)]));
      other.client.write(frameOf(0x81, 'heard?'));
    });
    await until(() => {
      inTurn = 0;
      return pings === 40_000 && heardAfter >= 0;
    });
    // A turn has a walk over the read and one from the line; a read has 10,900 frames.
    assert.ok(most <= 2 * 2200, `${most} frames in a turn`);
    assert.ok(heardAfter < 10_000, `heard after ${heardAfter} frames`);
  });

  test(`control frames beyond their rate close the connection with 1008, and the rest is not read (${way})`, async (t) => {
    const { server, connect } = await serve(t, {});
    const { client, websocket, socket } = await connect();
    let pongs = 0;
    listen(websocket, 'onPong', () => pongs++);
    const before = socket.bytesRead;
    client.write(Buffer.concat([begin, times(PONG, 700_000)])); // 4 MB
    await until(() => closeCode(client) !== 0);
    assert.equal(closeCode(client), 1008);
    assert.ok(pongs <= 100, `${pongs} pongs`);
    assert.equal(server.counters.readerCloses.flood, 1);
    for (let i = 0; i < 1000; i++) await turn();
    const read = socket.bytesRead - before;
    assert.ok(read <= 262_144 + 3 * 65_536, `${read} bytes read`);
  });

  test(`a rate of frames that is observed closes nothing, and counts (${way})`, async (t) => {
    const { server, connect } = await serve(t, { FANFARE_LIMITS: 'observe' });
    const { client, websocket } = await connect();
    let pongs = 0;
    listen(websocket, 'onPong', () => pongs++);
    client.write(Buffer.concat([begin, times(PONG, 5000)]));
    await until(() => pongs === 5000);
    assert.equal(closeCode(client), 0);
    assert.equal(server.counters.observed.frames, isWs ? 4901 : 4900);
  });

  test(`frames within their rate close nothing: five pings a second (${way})`, async (t) => {
    const { server, connect } = await serve(t, {});
    const { client, websocket } = await connect();
    let pings = 0;
    listen(websocket, 'onPing', () => pings++);
    client.write(begin);
    for (let i = 1; i <= 300; i++) {
      server.nowMs += 200;
      client.write(PING);
      await until(() => pings === i);
    }
    assert.equal(closeCode(client), 0);
  });

  test(`a length in more bytes than it needs is a protocol error (${way})`, async (t) => {
    for (const long of [
      [0x81, 0x80 | 126, 0, 5],
      [0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, 5],
      [0x81, 0x80 | 127, 0, 0, 0, 0, 0, 0, 1, 0],
    ]) {
      const { server, connect } = await serve(t);
      const { client } = await connect();
      client.write(Buffer.concat([whole, Buffer.from(long), Buffer.alloc(4 + 256, 'x')]));
      await until(() => closeCode(client) !== 0);
      assert.equal(closeCode(client), 1002);
      assert.deepEqual(server.told, isWs ? ['text fg'] : []);
    }
  });

  test(`data that follows a close by the server is not read to its end (${way})`, async (t) => {
    const { server, connect } = await serve(t);
    const { client, websocket, socket } = await connect();
    const before = socket.bytesRead;
    const after = times(frameOf(0x81, 'x'.repeat(100)), 40_000);
    client.write(Buffer.concat([whole, frameOf(0x81, 'close'), after]));
    await until(() => closeCode(client) !== 0);
    for (let i = 0; i < 1000; i++) await turn();
    const read = socket.bytesRead - before;
    assert.ok(read <= 262_144 + 3 * 65_536, `${read} bytes read`);
    assert.equal(websocket.readyState, WebSocket.CLOSING);
    assert.deepEqual(server.told.at(-1), 'text close');
  });

  test(`a message left unfinished closes its connection with 4011, a slow one does not (${way})`, async (t) => {
    const { server, reader, connect } = await serve(t);
    const [stuck, slow] = [await connect(), await connect()];
    const one = frameOf(0x81, 'x'.repeat(20_000));
    stuck.client.write(Buffer.concat([whole, isWs ? frameOf(0x01, 'never') : one.subarray(0, 10)]));
    slow.client.write(whole);
    const start = slow.socket.bytesRead + whole.length;
    for (let second = 0; second < 45; second++) {
      const sent = Math.min(second, 15) * 1000;
      if (second < 15) slow.client.write(one.subarray(sent, sent + 1000));
      await until(() => slow.socket.bytesRead === start + Math.min(second + 1, 15) * 1000);
      reader.sweep(second * 1000);
      if (second === 29) assert.equal(server.counters.readerCloses.unfinished, 0);
    }
    await until(() => closeCode(stuck.client) !== 0);
    assert.equal(closeCode(stuck.client), 4011);
    slow.client.write(one.subarray(15_000));
    await until(() => server.told.includes(`text ${'x'.repeat(20_000)}`));
    reader.sweep(1e9);
    reader.sweep(2e9);
    assert.equal(closeCode(slow.client), 0);
    assert.equal(server.counters.readerCloses.unfinished, 1);
  });
}

test('a small fragment is copied, so it does not keep the memory of its read', async (t) => {
  const { server, connect } = await serve(t);
  const { client, websocket } = await connect();
  let pings = 0;
  listen(websocket, 'onPing', () => pings++);
  const rest = times(frameOf(0x89, 'p'.repeat(125)), 490);
  for (let i = 1; i <= 20; i++) {
    client.write(Buffer.concat([frameOf(i === 1 ? 0x01 : 0x00, 'x'), rest]));
    await until(() => pings === 490 * i);
  }
  const bytes = memoryOfFragments(websocket.socket);
  assert.ok(bytes >= 20 && bytes <= 256, `${bytes} bytes`);
  client.write(frameOf(0x80));
  await until(() => server.told.length === 1);
  assert.deepEqual(server.told, ['text xxxxxxxxxxxxxxxxxxxx']);
  assert.equal(memoryOfFragments(websocket.socket), 0);
});

/** @param {any} socket @returns {number} bytes that the reader keeps of an unfinished message */
function memoryOfFragments(socket) {
  const symbols = Object.getOwnPropertySymbols(socket);
  const reading = symbols.find(({ description }) => description === 'reading');
  assert.ok(reading !== undefined);
  return socket[reading].progress.message?.buffer.byteLength ?? 0;
}

test('a message may have 64 fragments, or one for each KB; one more closes the connection with 1008', async (t) => {
  const { server, connect } = await serve(t);
  const { client } = await connect();
  const fragments = (/** @type {number} */ n, size = 1) =>
    Buffer.concat([frameOf(0x01), times(frameOf(0x00, 'x'.repeat(size)), n - 2), frameOf(0x80)]);
  client.write(fragments(64));
  await until(() => server.told.length === 1);
  client.write(fragments(38, 1050));
  await until(() => server.told.length === 2);
  client.write(fragments(65));
  await until(() => closeCode(client) !== 0);
  assert.equal(closeCode(client), 1008);
});

test('small fragments and empty frames take tokens, large fragments take none', async (t) => {
  const { server, connect } = await serve(t, {
    FANFARE_FRAMES_BURST: '10',
    FANFARE_FRAMES_PER_MINUTE: '1',
  });
  const { client } = await connect();
  const piece = 'x'.repeat(1300);
  const message = Buffer.concat([
    frameOf(0x01, piece),
    times(frameOf(0x00, piece), 28),
    frameOf(0x80, piece),
  ]);
  client.write(times(message, 20));
  await until(() => server.told.length === 20);
  assert.equal(closeCode(client), 0);
  client.write(
    Buffer.concat([times(frameOf(0x81), 8), frameOf(0x01, 'f'), frameOf(0x80, 'g'), frameOf(0x81)]),
  );
  await until(() => closeCode(client) !== 0);
  assert.equal(closeCode(client), 1008);
  assert.deepEqual(server.told.slice(20), [...Array(8).fill('text '), 'text fg']);
});

test('reads that wait for their turn are bounded over all connections: one beyond is closed with 1013', async (t) => {
  const { server, reader, connect } = await serve(t);
  reader.maxWaitingBytes = 30_000;
  const flood = await connect();
  await atOnce([flood], () => flood.client.write(times(PING, 12_000)));
  await until(() => closeCode(flood.client) !== 0);
  assert.equal(closeCode(flood.client), 1013);
  assert.equal(server.counters.readerCloses.overload, 1);
  assert.equal(reader.waitingBytes, 0);
});

test('long reads that wait leave room for short ones', async (t) => {
  const { server, reader, connect } = await serve(t);
  const [one, two, short] = [await connect(), await connect(), await connect()];
  reader.maxWaitingBytes = 80_000;
  server.endTurnsEarly();
  const long = times(frameOf(0x81, 'x'.repeat(1000)), 39);
  await atOnce([one, two, short], () => {
    one.client.write(long);
    two.client.write(long);
    short.client.write(times(frameOf(0x81, 'short'), 700));
  });
  await until(() => server.told.filter((text) => text === 'text short').length === 700);
  assert.equal(closeCode(short.client), 0);
  await until(() => closeCode(two.client) !== 0);
  assert.equal(closeCode(two.client), 1013);
  await until(() => reader.waitingBytes === 0);
  assert.equal(closeCode(one.client), 0);
  assert.equal(server.counters.readerCloses.overload, 1);
});

test('a connection that ends while it waits for its turn is released', async (t) => {
  const { reader, connect } = await serve(t);
  const flood = await connect();
  await atOnce([flood], () => flood.client.write(times(PING, 12_000)));
  await until(() => reader.waitingBytes > 0);
  flood.websocket.terminate();
  await until(() => reader.waitingBytes === 0);
});

test('a connection that waits for its turn counts as alive for the heartbeat', async (t) => {
  const { reader, connect } = await serve(t);
  const flood = await connect();
  flood.websocket.connection.isAlive = false;
  await atOnce([flood], () => flood.client.write(frameOf(0x81, 'x'.repeat(20_000))));
  await until(() => flood.websocket.connection.isAlive);
  flood.websocket.onPing = () => {};
  flood.websocket.connection.isAlive = false;
  await atOnce([flood], () => flood.client.write(times(PING, 12_000)));
  await until(() => reader.waitingBytes > 0);
  assert.equal(flood.websocket.connection.isAlive, true);
});

test('with compression, messages past their turn arrive whole and in order', async (t) => {
  const { server, reader } = await serve(t, { FANFARE_LIMITS: 'off', FANFARE_COMPRESSION: 'on' });
  server.endTurnsEarly();
  const client = new WebSocket(`ws://127.0.0.1:${server.port}/ws`, {
    perMessageDeflate: { threshold: 0 },
  });
  t.after(() => client.terminate());
  await once(client, 'open');
  assert.notEqual(client.extensions, '');
  const texts = Array.from({ length: 300 }, (_, i) => `${i} ${'x'.repeat(2000)}`);
  let seed = 1;
  for (let i = 0; i < 30; i++) {
    // Little of it goes away: reads are full.
    texts.push(
      Array.from({ length: 4000 }, () =>
        (seed = (seed * 48_271) % 2_147_483_647).toString(36),
      ).join(''),
    );
  }
  const { socket } = server.opened[0];
  const answered = once(client, 'pong');
  await atOnce([{ socket }], () => {
    for (const text of texts) client.send(text);
    // Threads compress the messages, so they are written later.
    return new Promise((resolve) => client.ping('', true, resolve));
  });
  await answered;
  assert.deepEqual(
    server.told,
    texts.map((text) => `text ${text}`),
  );
  assert.ok(server.counters.readsDeferred > 0);
  assert.equal(reader.waitingBytes, 0);
});

test('with compression, a message arrives also if the next one is too large', async (t) => {
  const { server } = await serve(t, { FANFARE_LIMITS: 'off', FANFARE_COMPRESSION: 'on' });
  const client = new WebSocket(`ws://127.0.0.1:${server.port}/ws`, {
    perMessageDeflate: { threshold: 0 },
  });
  t.after(() => client.terminate());
  await once(client, 'open');
  const { socket } = server.opened[0];
  // The server reads both at once.
  socket.pause();
  const text = 'y'.repeat(30_000);
  await new Promise((resolve) => client.send(text, resolve));
  /** @type {any} */ (client)._socket.write(
    frameOf(0x82, 'x'.repeat(MAX_MESSAGE_BYTES + 1)).subarray(0, 8),
  );
  await new Promise((resolve) => setTimeout(resolve, 20));
  socket.resume();
  const [code] = await once(client, 'close');
  assert.equal(code, 1009);
  assert.deepEqual(server.told.slice(0, 1), [`text ${text}`]);
});
