// relay.test.js: the relay and its links over a real Unix socket: counts, crashes, hung workers,
// nonsense.

import assert from 'node:assert/strict';
import { fork, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, statSync, utimesSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import pino from 'pino';
import { EmbeddedBroker } from '../../src/backend/embedded/broker.js';
import { encodeReport } from '../../src/backend/embedded/place-report.js';
import { RelayLink } from '../../src/backend/embedded/relay-link.js';
import { RelayServer } from '../../src/backend/embedded/relay-server.js';
import {
  MAX_OUTCOMES,
  MessageReader,
  MessageWriter,
  OP,
  RELAY_VERSION,
  SLAB_BYTES,
} from '../../src/backend/embedded/relay-wire.js';
import { BrokerError } from '../../src/backend/errors.js';
import { countersOf, openMachine, openWorker } from '../helpers/machine.js';

const log = pino({ level: 'silent' });

/** @typedef {import('node:test').TestContext} TestContext */

const RULE = Object.freeze({ size: 100, ttlMs: 60_000 });
const historyOf = (/** @type {string} */ room) => (room.startsWith('kept') ? RULE : null);

/**
 * @param {TestContext} t @param {Partial<ConstructorParameters<typeof RelayServer>[0]>} [options]
 */
async function startRelay(t, options) {
  const relay = new RelayServer({ log, ...options });
  await relay.start();
  t.after(() => relay.close());
  return relay;
}

/** @param {TestContext} t @param {RelayServer} relay */
async function openLink(t, relay) {
  const link = new RelayLink({ path: relay.path, log });
  await link.open();
  t.after(() => link.close());
  return link;
}

/** @param {() => boolean} condition */
async function eventually(condition) {
  const end = performance.now() + 15_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`not within 15 s: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** @param {RelayServer} relay */
function counts(relay) {
  const { workers, rooms, addresses, connections } = countersOf(relay);
  return { workers, rooms, addresses, connections };
}

test('the socket is in a folder that only its user may open, and both are removed at the end', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t);
  assert.equal(statSync(dirname(relay.path)).mode & 0o777, 0o700);
  await relay.close();
  await relay.close();
  assert.equal(existsSync(dirname(relay.path)), false);
});

test('folders of killed primaries are removed at the next start, and those of live ones stay', {
  timeout: 10_000,
}, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'fanfare-test-'));
  const before = process.env.TMPDIR;
  process.env.TMPDIR = folder;
  t.after(() => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    return rm(folder, { recursive: true });
  });
  const living = await startRelay(t);
  // A socket whose process was killed: the file stays, and no process listens.
  const dead = join(folder, 'fanfare-dead00');
  mkdirSync(dead);
  const script = `require('net').createServer().listen(${JSON.stringify(join(dead, 'relay'))}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', script]);
  assert.ok(existsSync(join(dead, 'relay')));
  const young = join(folder, 'fanfare-young0');
  mkdirSync(young);
  spawnSync(process.execPath, ['-e', script.replace('dead00', 'young0')]);
  const other = join(folder, 'fanfare-other0');
  mkdirSync(other);
  const old = new Date(Date.now() - 3_600_000);
  for (const path of [dirname(living.path), dead, other]) utimesSync(path, old, old);
  await (await startRelay(t)).swept;
  assert.equal(existsSync(dead), false);
  for (const path of [dirname(living.path), young, other]) assert.ok(existsSync(path), path);
});

test('a temporary folder may have a long name', { timeout: 10_000 }, async (t) => {
  const long = await mkdtemp(join(tmpdir(), `fanfare-${'x'.repeat(100)}-`));
  const before = process.env.TMPDIR;
  process.env.TMPDIR = long;
  t.after(() => {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
    return rm(long, { recursive: true });
  });
  const relay = await startRelay(t);
  await openLink(t, relay);
  await eventually(() => countersOf(relay).workers === 1);
});

test('the cap of an address is exact over all workers', { timeout: 10_000 }, async (t) => {
  const relay = await startRelay(t);
  const links = await Promise.all([1, 2, 3].map(() => openMachine(t, relay.path)));
  const asked = Array.from({ length: 300 }, (_, i) => links[i % 3].acquire('10.0.0.1', 100, false));
  const answers = await Promise.all(asked);
  assert.equal(answers.filter(({ admitted }) => admitted).length, 100);
  assert.deepEqual(answers.at(-1), { admitted: false, connections: 100 });
  assert.deepEqual(await links[0].acquire('10.0.0.2', 100, false), {
    admitted: true,
    connections: 1,
  });
  // Counted above the cap if the limit only observes.
  assert.deepEqual(await links[0].acquire('10.0.0.1', 100, true), {
    admitted: true,
    connections: 101,
  });
  const held = answers.flatMap(({ admitted }, i) => (admitted ? [links[i % 3]] : []));
  for (const link of [...held, links[0]]) link.release('10.0.0.1');
  links[0].release('10.0.0.2');
  for (const { link } of links) await link.ask({ type: 'count', request: 0 });
  assert.equal(countersOf(relay).addresses, 0);
  assert.deepEqual(await links[2].acquire('10.0.0.1', 1, false), {
    admitted: true,
    connections: 1,
  });
});

test('the place of a disconnected peer without an address is counted and given back', async (t) => {
  const relay = await startRelay(t);
  /** @type {string[]} */
  const errors = [];
  const ear = pino({ level: 'error' }, { write: (line) => void errors.push(line) });
  const places = await openMachine(t, relay.path, { log: ear });
  assert.deepEqual(await places.acquire('', 1, false), { admitted: true, connections: 1 });
  assert.deepEqual(await places.acquire('', 1, false), { admitted: false, connections: 1 });
  places.release('');
  await places.link.ask({ type: 'count', request: 0 });
  assert.equal(countersOf(relay).addresses, 0);
  assert.deepEqual(errors, []);
});

test('all places and subscriptions of a crashed worker are released', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t);
  const survivor = await openMachine(t, relay.path);
  survivor.link.tell({ type: 'connections', connections: 2 });
  await survivor.acquire('10.0.0.1', 9, false);
  const script = `
    import { machineAt } from ${JSON.stringify(new URL('../helpers/machine.js', import.meta.url).href)};
    const places = machineAt(process.env.RELAY_PATH);
    const { link } = places;
    await link.open();
    link.tell({ type: 'connections', connections: 5 });
    await link.ask({ type: 'subscribe', request: 0, room: 'room' });
    await places.acquire('10.0.0.1', 9, false);
    await places.acquire('10.0.0.2', 9, false);
    process.send('held');
    setInterval(() => {}, 1000);
  `;
  const child = fork('-', {
    execArgv: ['--input-type=module', '--eval', script],
    env: { ...process.env, RELAY_PATH: relay.path },
  });
  t.after(() => child.kill('SIGKILL'));
  await once(child, 'message');
  assert.deepEqual(counts(relay), { workers: 2, rooms: 1, addresses: 2, connections: 7 });
  child.kill('SIGKILL');
  await eventually(() => countersOf(relay).workers === 1);
  assert.deepEqual(counts(relay), { workers: 1, rooms: 0, addresses: 1, connections: 2 });
  assert.deepEqual(await survivor.acquire('10.0.0.1', 2, false), {
    admitted: true,
    connections: 2,
  });
});

test('the users of a dead worker leave, whatever the names of their rooms', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t);
  const { presence, publisher, link } = await openWorker(t, relay);
  for (const room of ['room', '', ' ', '1 2', '2 room'])
    for (const user of ['ann', '', '1 ann']) presence.join(room, user, Buffer.from('x'));
  await publisher.confirm();
  const { members } = relay.bus;
  assert.equal(members.rooms.size, 5);
  assert.equal(members.read('1 2', true).count, 3);
  link.socket?.destroy();
  await eventually(() => members.rooms.size === 0);
});

test('the publications of a crashed worker stay in the history', { timeout: 10_000 }, async (t) => {
  const relay = await startRelay(t, { historyOf });
  const { broker, append } = await openWorker(t, relay);
  const script = `
    import { RelayPublisher } from ${JSON.stringify(new URL('../../src/backend/embedded/relay-publisher.js', import.meta.url).href)};
    import { appender, machineAt } from ${JSON.stringify(new URL('../helpers/machine.js', import.meta.url).href)};
    const { link } = machineAt(process.env.RELAY_PATH);
    await link.open();
    const append = appender(new RelayPublisher(link));
    const published = [];
    for (let i = 1; i <= 50; i++) published.push(append('kept', \`key \${i}\`, Buffer.from(String(i))));
    process.send((await Promise.all(published)).at(-1));
    setInterval(() => {}, 1000);
  `;
  const child = fork('-', {
    execArgv: ['--input-type=module', '--eval', script],
    env: { ...process.env, RELAY_PATH: relay.path },
  });
  t.after(() => child.kill('SIGKILL'));
  const [last] = await once(child, 'message');
  child.kill('SIGKILL');
  await eventually(() => countersOf(relay).workers === 1);
  const { epoch, offset, publications } = await broker.history('kept', { after: 0, limit: 100 });
  assert.deepEqual({ epoch, offset }, last);
  assert.deepEqual(
    publications.map(String),
    Array.from({ length: 50 }, (_, i) => `${i + 1}`),
  );
  assert.deepEqual(await append('kept', 'key 7', Buffer.from('again')), {
    epoch,
    offset: 7,
  });
  assert.deepEqual(await append('kept', '', Buffer.from('51')), { epoch, offset: 51 });
});

test('a worker that does not read its histories gets no more of them, delays no other worker, and stays connected', {
  timeout: 60_000,
}, async (t) => {
  const relay = await startRelay(t, { historyOf });
  const [{ publisher, append }, reader] = [await openWorker(t, relay), await openWorker(t, relay)];
  for (let i = 0; i < 4; i++) await append('kept', '', Buffer.alloc(1024 * 1024, i));
  const deaf = connect(relay.path);
  t.after(() => deaf.destroy());
  await once(deaf, 'connect');
  deaf.pause();
  const asked = 50;
  const writer = new MessageWriter();
  for (let i = 1; i <= asked; i++)
    writer.control({ type: 'read', request: i, room: 'kept', after: 0, limit: 100 });
  writer.writeTo(deaf);
  await eventually(() => countersOf(relay).pendingBytes > 1024 * 1024);
  // All of it would be 200 MB.
  for (let i = 0; i < 20; i++) {
    const { publications } = await reader.broker.history('kept', { after: 0, limit: 1 });
    assert.equal(publications.length, 1);
    await publisher.publish('plain', Buffer.from('x'));
    assert.ok(
      countersOf(relay).pendingBytes < 8 * 1024 * 1024,
      `${countersOf(relay).pendingBytes} bytes wait`,
    );
  }
  /** @type {number[]} */
  const answered = [];
  const messages = new MessageReader((buffer, start, end) => {
    assert.equal(buffer[start + 4], OP.PAGE);
    assert.ok(end - start > 4 * 1024 * 1024);
    answered.push(buffer.readUInt32BE(start + 5));
  });
  deaf.on('data', (chunk) => messages.read(chunk));
  deaf.resume();
  await eventually(() => answered.length === asked);
  assert.deepEqual(
    answered,
    Array.from({ length: asked }, (_, i) => i + 1),
  );
  assert.deepEqual([countersOf(relay).workers, countersOf(relay).droppedLinks], [3, 0]);
});

test('reads above the bound of waiting reads are refused and counted', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t, { historyOf, maxWaitingReads: 10 });
  const { broker } = await openWorker(t, relay, { historyOf });
  await broker.publish('kept', Buffer.alloc(2 * 1024 * 1024));
  const reads = await Promise.allSettled(
    Array.from({ length: 50 }, () => broker.history('kept', { after: 0, limit: 1 })),
  );
  const refused = reads.filter(({ status }) => status === 'rejected');
  assert.ok(refused.length >= 1 && refused.length <= 39, `${refused.length} refused`);
  for (const { reason } of /** @type {PromiseRejectedResult[]} */ (refused)) {
    assert.deepEqual([reason.name, reason.code], ['BrokerError', 'UNAVAILABLE']);
  }
  assert.equal(relay.bus.history().lost.reads, refused.length);
  assert.equal((await broker.history('kept', { after: 0, limit: 1 })).publications.length, 1);
});

test('expired histories are freed without a read', { timeout: 10_000 }, async (t) => {
  const relay = await startRelay(t, { historyOf: () => ({ size: 10, ttlMs: 200 }) });
  const { append } = await openWorker(t, relay);
  await append('kept', '', Buffer.alloc(1000));
  assert.deepEqual([relay.bus.history().publications, relay.bus.history().bytes > 1000], [1, true]);
  await eventually(() => relay.bus.history().bytes === 0);
});

test('all publishes of a tick are answered, also if they do not fit into one answer', {
  timeout: 60_000,
}, async (t) => {
  const relay = await startRelay(t, { historyOf });
  const { append } = await openWorker(t, relay);
  /** @type {Promise<import('../../src/backend/broker.js').Position>[]} */
  const published = [];
  const publication = Buffer.from('x');
  for (let i = 0; i < 2 * MAX_OUTCOMES + 5; i++)
    published.push(append('kept', String(i).padStart(22), publication));
  const positions = await Promise.all(published);
  assert.ok(positions.every(({ offset }, i) => offset === i + 1));
});

test('a read out of its bounds is not sent, so the link stays', { timeout: 10_000 }, async (t) => {
  const { link, broker } = await openWorker(t, await startRelay(t, { historyOf }));
  const epoch = '0'.repeat(16);
  for (const from of [
    { after: -1, limit: 1 },
    { after: 0, limit: Number.POSITIVE_INFINITY },
    { after: 0, limit: 1, before: { epoch, offset: -1 } },
    { after: 0, limit: 1, since: { epoch, offset: 0.5 } },
  ])
    await assert.rejects(link.ask({ type: 'read', request: 0, room: 'kept', ...from }), RangeError);
  assert.equal((await broker.history('kept', { after: 0, limit: 1 })).offset, 0);
});

test('a malformed message on a link ends only that link', { timeout: 10_000 }, async (t) => {
  const relay = await startRelay(t, { historyOf });
  const good = await openWorker(t, relay);
  const room = Buffer.from('plain');
  const kept = Buffer.from('kept');
  const control = (/** @type {string} */ text) =>
    Buffer.from([0, 0, 0, 1 + text.length, OP.CONTROL, ...Buffer.from(text)]);
  for (const bytes of [
    Buffer.from('GET / HTTP/1.1\r\n\r\n'),
    Buffer.from([0, 0, 0, 0]),
    Buffer.from([0, 0, 0, 1, 99]),
    Buffer.from([0, 0, 0, 7, OP.PUBLISH, 0, 0, 0, 1, 200, 1]),
    Buffer.from([0, 0, 0, 2, OP.PUBLISH, 0]),
    control('{"type":"release","key":"10.0.0.1"}'),
    Buffer.from([0, 0, 0, 2, OP.SYNC, 1]),
    Buffer.from([0, 0, 0, 44, OP.APPEND, 0, 0, 0, 1, 0, 5, ...room, ...Buffer.alloc(32)]),
    Buffer.from([0, 0, 0, 11, OP.APPEND, 0, 0, 0, 1, 0, 4, ...kept]),
    // Two publications are announced, none or one is there, or its length is wrong.
    Buffer.from([0, 0, 0, 39, OP.APPEND, 0, 0, 0, 2, 0, 4, ...kept, ...Buffer.alloc(28)]),
    Buffer.from([0, 0, 0, 43, OP.APPEND, 0, 0, 0, 2, 0, 4, ...kept, ...Buffer.alloc(32)]),
    Buffer.from([0, 0, 0, 43, OP.APPEND, 0, 0, 0, 1, 0, 4, ...kept, ...Buffer.alloc(31), 1]),
    control('{'),
    control('null'),
    control('{"type":"toString"}'),
    control('{"type":"connections","connections":-1}'),
    control('{"type":"carry","isCarrier":true}'),
    control('{"type":"places","places":[["::1"]]}'),
    control('{"type":"read","request":1,"room":"kept","after":0}'),
    control('{"type":"read","request":1,"room":"kept","after":0,"limit":1,"since":{"offset":1}}'),
    control('{"type":"read","request":1,"room":"kept","after":0,"limit":1,"keys":[1]}'),
    control('{"type":"volunteer","rules":{"address":{"cap":1,"mode":"off"}}}'),
  ]) {
    const socket = connect(relay.path);
    socket.on('error', () => {
      // A close follows.
    });
    socket.write(bytes);
    await once(socket, 'close');
  }
  await good.publisher.publish('room', Buffer.from('x'));
  assert.equal(countersOf(relay).droppedLinks, 22);
  assert.equal(relay.bus.history().publications, 0);
});

test('when the relay ends, publishes in flight are unknown, later ones unavailable, and onClose is called once', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t, { historyOf });
  const { places, link, broker } = await openWorker(t, relay, { historyOf });
  t.after(() => broker.close());
  let closes = 0;
  link.onClose = () => closes++;
  const underWay = broker.publish('room', Buffer.from('x'));
  const kept = broker.publish('kept', Buffer.from('x'));
  const read = broker.history('kept', { after: 0, limit: 1 });
  const asked = places.acquire('10.0.0.1', 1, false);
  link.flush();
  const gathered = broker.publish('room', Buffer.from('y'));
  const gatheredKept = broker.publish('kept', Buffer.from('y'));
  // As when the primary is killed: the socket ends with nothing read.
  link.socket?.destroy();
  await Promise.all([
    assert.rejects(underWay, { code: 'OUTCOME_UNKNOWN' }),
    assert.rejects(kept, { code: 'OUTCOME_UNKNOWN' }),
    assert.rejects(read, { code: 'UNAVAILABLE' }),
    assert.rejects(asked, { code: 'OUTCOME_UNKNOWN' }),
    assert.rejects(gathered, { code: 'UNAVAILABLE' }),
    assert.rejects(gatheredKept, { code: 'UNAVAILABLE' }),
  ]);
  await assert.rejects(broker.publish('kept', Buffer.from('z')), { code: 'UNAVAILABLE' });
  await assert.rejects(broker.history('kept', { after: 0, limit: 1 }), { code: 'UNAVAILABLE' });
  await assert.rejects(broker.publish('room', Buffer.from('z')), { code: 'UNAVAILABLE' });
  await assert.rejects(broker.subscribe('room'), { code: 'UNAVAILABLE' });
  await assert.rejects(places.acquire('10.0.0.1', 1, false), { code: 'UNAVAILABLE' });
  places.release('10.0.0.1');
  await eventually(() => closes === 1);
  assert.equal(broker.state, 'degraded');
});

test('a link that its owner ends does not call onClose', { timeout: 10_000 }, async (t) => {
  const relay = await startRelay(t);
  const link = await openLink(t, relay);
  link.onClose = () => assert.fail('called');
  await link.close();
  await link.close();
  await eventually(() => countersOf(relay).workers === 0);
});

test('a link to no relay fails to open', { timeout: 10_000 }, async () => {
  await assert.rejects(new RelayLink({ path: join(tmpdir(), 'no-such-relay'), log }).open(), {
    code: 'ENOENT',
  });
});

test('a worker does not start under a primary of another version, and sends it nothing', {
  timeout: 10_000,
}, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'relay-'));
  const path = join(folder, 'relay');
  /** @type {Buffer[]} */
  const received = [];
  const primary = createServer((socket) => {
    socket.on('data', (data) => {
      received.push(data);
      const writer = new MessageWriter();
      writer.number(OP.HELLO, RELAY_VERSION + 1);
      writer.writeTo(socket);
    });
  });
  t.after(async () => {
    primary.close();
    await rm(folder, { recursive: true });
  });
  primary.listen(path);
  await once(primary, 'listening');
  const link = new RelayLink({ path, log });
  await assert.rejects(link.open(), /another version of Fanfare .*: restart the server$/);
  assert.equal(Buffer.concat(received).length, 13, 'one HELLO');
  await assert.rejects(link.ask({ type: 'count', request: 0 }), { code: 'UNAVAILABLE' });
});

test('a primary answers a worker of another version, and logs it', {
  timeout: 10_000,
}, async (t) => {
  /** @type {Record<string, unknown>[]} */
  const lines = [];
  const relay = await startRelay(t, {
    log: pino({}, { write: (line) => lines.push(JSON.parse(line)) }),
  });
  const socket = connect(relay.path);
  t.after(() => socket.destroy());
  const hello = Buffer.from([0, 0, 0, 9, OP.HELLO, 0, 0, 0, RELAY_VERSION + 1, 0, 0, 0, 7]);
  socket.write(hello);
  const [answer] = await once(socket, 'data');
  assert.deepEqual(answer, Buffer.from([0, 0, 0, 5, OP.HELLO, 0, 0, 0, RELAY_VERSION]));
  assert.deepEqual(
    lines.map(({ version, expected }) => [version, expected]),
    [[RELAY_VERSION + 1, RELAY_VERSION]],
  );
});

test('publications of a room that follow each other share a batch, with nothing in between', () => {
  const writer = new MessageWriter();
  const one = Buffer.from('one');
  const joined = [
    writer.publication(OP.PUBLISH, 'a', one),
    writer.publication(OP.PUBLISH, 'a', one),
    writer.publication(OP.APPEND, 'a', one),
    writer.publication(OP.APPEND, 'b', one),
    writer.publication(OP.APPEND, 'b', one),
  ];
  assert.deepEqual(joined, [false, true, false, false, true]);
  writer.number(OP.SYNC, 1);
  assert.equal(writer.publication(OP.APPEND, 'b', one), false, 'after another message');
  assert.equal(writer.publication(OP.APPEND, 'b', one, true), false, 'alone');
  assert.equal(writer.publication(OP.APPEND, 'b', one), false, 'after one that is alone');
  const large = Buffer.alloc(SLAB_BYTES - 100);
  assert.equal(writer.publication(OP.APPEND, 'b', large), false, 'above the limit');
  const passed = Buffer.from([0, 0, 0, 1, OP.HELLO]);
  writer.pass(passed, 0, passed.length);
  assert.equal(writer.publication(OP.APPEND, 'b', one), false, 'after a message that is passed on');
  take(writer);
  assert.equal(writer.publication(OP.APPEND, 'b', one), false, 'after it was taken');
});

test('messages are parsed wherever they are cut', () => {
  const writer = new MessageWriter();
  writer.hello(7);
  writer.publication(OP.PUBLISH, 'room', Buffer.alloc(100_000, 1));
  writer.control({ type: 'count', request: 9 });
  writer.text(OP.KEY, '2001:db8::/64');
  writer.publication(OP.PUBLISH, 'r', Buffer.alloc(0));
  writer.publication(OP.PUBLISH, 'r', Buffer.alloc(1));
  const bytes = take(writer);
  for (const size of [1, 2, 3, 7, 1000, 65_536, bytes.length]) {
    /** @type {string[]} */
    const seen = [];
    const reader = new MessageReader((buffer, start, end) =>
      seen.push(`${buffer[start + 4]}:${end - start}`),
    );
    for (let at = 0; at < bytes.length; at += size)
      reader.read(Buffer.from(bytes.subarray(at, at + size)));
    assert.deepEqual(seen, ['1:13', '4:100019', '8:33', '9:18', '4:21'], `cut every ${size} bytes`);
  }
});

test('one worker carries the reports of the relay, and another one when it resigns', {
  timeout: 10_000,
}, async (t) => {
  const relay = await startRelay(t);
  const rule = { cap: 10, mode: /** @type {const} */ ('enforce') };
  /** @type {string[]} */
  const told = [];
  const links = [];
  for (const name of ['a', 'b']) {
    const link = await openMachine(t, relay.path);
    link.listen({
      onCarry: (isCarrier) => told.push(`${name} ${isCarrier ? 'carries' : 'rests'}`),
      // Redis brings each report back to its sender.
      onReport: (report) => link.passReport(report),
      onKeep: (key, connections) => told.push(`${name} keeps ${connections} of ${key}`),
    });
    link.volunteer({ address: rule, user: rule });
    links.push(link);
  }
  const [a, b] = links;
  for (let i = 0; i < 8; i++) await a.acquire('192.0.2.1', 10, false);
  await eventually(() => relay.places.fleet.figures().keys.reported === 1);
  const places = new Map([['192.0.2.1', 8]]);
  a.passReport(encodeReport({ server: 'ff'.repeat(8), places }));
  await eventually(() => told.includes('a keeps 5 of 192.0.2.1'));
  assert.equal(told[0], 'a carries');
  assert.equal(told.includes('b carries'), false);
  a.resign();
  a.volunteer({ address: rule, user: rule });
  await eventually(() => told.includes('b carries'));
  b.resign();
  await eventually(() => relay.places.fleet.figures().servers === 0);
});

/** @param {MessageWriter} writer @returns {Buffer} its bytes, which it no longer has */
function take(writer) {
  /** @type {Buffer[]} */
  const written = [];
  const sink = {
    write: (/** @type {Buffer} */ buffer) => written.push(Buffer.from(buffer)) > 0,
    cork: () => {},
    uncork: () => {},
  };
  writer.writeTo(/** @type {import('node:net').Socket} */ (/** @type {unknown} */ (sink)));
  assert.equal(writer.length, 0);
  return Buffer.concat(written);
}

/** A broker whose relay answers when the test says so. @param {TestContext} t */
function brokerOfFake(t) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  /** @type {string[]} */
  const told = [];
  /** @type {((error: Error|null) => void)[]} */
  const asked = [];
  const link = {
    isOpen: true,
    isAnswering: true,
    onAnswering: (/** @type {boolean} */ _isAnswering) => {},
    listen: (/** @type {object} */ listeners) => void Object.assign(link, listeners),
    ask: (/** @type {{type: string, room: string}} */ { type, room }) => {
      told.push(`${type} ${room}`);
      return new Promise((resolve, reject) => {
        asked.push((error) => (error === null ? resolve({}) : reject(error)));
      });
    },
    tell: (/** @type {{type: string, room: string}} */ { type, room }) =>
      told.push(`${type} ${room}`),
  };
  const broker = new EmbeddedBroker({ link: /** @type {any} */ (link), roomLingerMs: 2000 });
  /** @param {boolean} isAnswering */
  const turnTo = (isAnswering) => {
    link.isAnswering = isAnswering;
    link.onAnswering(isAnswering);
  };
  const pass = (/** @type {number} */ ms) => {
    nowMs += ms;
    t.mock.timers.tick(ms);
  };
  return { broker, told, asked, turnTo, pass };
}

const LATE = new BrokerError('OUTCOME_UNKNOWN', 'the relay did not answer in time');

test('a room that emptied before its subscription timed out is unsubscribed, as the relay may still take it', async (t) => {
  const { broker, told, asked, pass } = brokerOfFake(t);
  const subscribing = broker.subscribe('room');
  broker.unsubscribe('room');
  asked[0](LATE);
  await assert.rejects(subscribing, { code: 'UNAVAILABLE' });
  pass(3000);
  assert.deepEqual(told, ['subscribe room', 'unsubscribe room']);
});

test('a late failure does not end a later subscription of the room', async (t) => {
  const { broker, told, asked, pass } = brokerOfFake(t);
  const first = broker.subscribe('room');
  broker.unsubscribe('room');
  pass(2500);
  const second = broker.subscribe('room');
  assert.deepEqual(told, ['subscribe room', 'unsubscribe room', 'subscribe room']);
  asked[0](LATE);
  await assert.rejects(first, { code: 'UNAVAILABLE' });
  asked[1](null);
  await second;
  await broker.subscribe('room');
  broker.unsubscribe('room');
  assert.equal(told.length, 3, 'the room lingers');
});

test('a room that was refused is subscribed when the relay answers again, unless nobody wants it', async (t) => {
  const { broker, told, asked, turnTo } = brokerOfFake(t);
  /** @type {string[]} */
  const states = [];
  const onState = (/** @type {string} */ state) => states.push(`${state} after ${told.length}`);
  await broker.start({ onPublication() {}, onState });
  turnTo(false);
  for (const [i, room] of ['*', 'room'].entries()) {
    const subscribing = broker.subscribe(room);
    asked[i](LATE);
    await assert.rejects(subscribing, { code: 'UNAVAILABLE' });
  }
  broker.unsubscribe('room');
  turnTo(true);
  assert.deepEqual(told.slice(2), ['unsubscribe room', 'subscribe *']);
  // What is read from then on is older than what is heard.
  assert.deepEqual(states, ['up after 0', 'degraded after 0', 'up after 4']);
});
