// centrifugo-checker.test.js: the Centrifugo client of random runs records what its application sees,
// and notices what the door must not do.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { WebSocketServer } from 'ws';
import { CentrifugoClient } from '../checker/centrifugo-client.js';
import { Checker } from '../checker/checker.js';
import { Random } from '../checker/random.js';
import { Recorder, readRecord } from '../checker/record.js';
import { until } from '../harness/server.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const ROOM = 'h.0';
const publication = (/** @type {number} */ offset, value = `p0:${offset}:${ROOM}`) => ({
  push: { channel: ROOM, pub: { data: value, offset } },
});
const unsubscribed = (/** @type {number} */ code) => ({
  push: { channel: ROOM, unsubscribe: { code, reason: 'r' } },
});
const position = { recoverable: true, positioned: true, epoch: 'e' };

/**
 * A client of a server that answers its subscriptions in turn, each with what follows it. A number
 * closes the connection.
 * @param {import('node:test').TestContext} t
 * @param {readonly {result: object, frames: readonly (object|number)[]}[]} answers
 */
async function clientOf(t, answers) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  t.after(() => server.close());
  await once(server, 'listening');
  const left = [...answers];
  server.on('connection', (socket) => {
    const send = (/** @type {object|number} */ frame) =>
      typeof frame === 'number' ? socket.close(frame, 'r') : socket.send(JSON.stringify(frame));
    socket.on('message', (text) => {
      for (const line of String(text).split('\n')) {
        const { id, connect, subscribe } = JSON.parse(line);
        if (connect) send({ id, connect: { client: 'c', version: 'v' } });
        if (!subscribe) continue;
        const { result, frames } = left.shift() ?? { result: { ...position }, frames: [] };
        send({ id, subscribe: result });
        for (const frame of frames) send(frame);
      }
    });
  });
  const path = join(temporaryFolder(t), 'record.jsonl');
  const recorder = new Recorder(path);
  recorder.write({ type: 'run', history: [ROOM], plain: [] });
  for (let n = 1; n <= 9; n++) recorder.write({ type: 'invoke', value: `p0:${n}:${ROOM}` });
  const client = new CentrifugoClient({
    ...{ id: 0, urls: [`ws://127.0.0.1:${Object(server.address()).port}/`], rooms: [ROOM] },
    ...{ transport: 'websocket', recorder, random: new Random(1) },
  });
  t.after(() => client.stop());
  /** @param {() => boolean} isOver */
  const recorded = async (isOver) => {
    client.start();
    await until(isOver);
    await client.stop();
    recorder.close();
    const events = [...readRecord(path)];
    const checker = new Checker();
    for (const event of events) checker.see(event);
    const found = checker.findings.filter(({ violations }) => violations > 0);
    return {
      types: events.map(({ type }) => type).filter((type) => !['run', 'invoke'].includes(type)),
      found: found.map(({ id }) => id),
    };
  };
  return { client, recorded };
}

const at = (/** @type {CentrifugoClient} */ client) => client.places.get(ROOM)?.position?.offset;

test('a recovery after a close and one after 2500 go on where the client was', async (t) => {
  const recovered = { ...position, was_recovering: true, recovered: true };
  const { client, recorded } = await clientOf(t, [
    { result: position, frames: [publication(1), 3001] },
    {
      result: { ...recovered, offset: 1, publications: [publication(2).push.pub] },
      frames: [publication(3), unsubscribed(2500)],
    },
    { result: { ...recovered, offset: 3 }, frames: [publication(4)] },
  ]);
  const { types, found } = await recorded(() => at(client) === 4);
  const [subscribed, closed] = [['connect', 'subscribe', 'reply', 'deliver'], ['close']];
  assert.deepEqual(types, [
    ...[...subscribed, ...closed, ...subscribed],
    ...['deliver', 'deliver', 'close'],
  ]);
  assert.deepEqual([found, client.oddities], [[], []]);
});

test('a subscription after 2500 that is not recovered is a resync', async (t) => {
  const { client, recorded } = await clientOf(t, [
    { result: position, frames: [publication(1), unsubscribed(2500)] },
    { result: { ...position, was_recovering: true, offset: 5 }, frames: [publication(6)] },
  ]);
  const { types, found } = await recorded(() => at(client) === 6);
  assert.deepEqual(types.slice(4), ['resync', 'deliver', 'close']);
  assert.deepEqual(found, []);
});

for (const [what, frames, id] of /** @type {const} */ ([
  ['a publication that comes twice', [1, 2, 2, 3].map((n) => publication(n)), 'I4'],
  ['a gap', [1, 3].map((n) => publication(n)), 'I5'],
]))
  test(`${what} is a finding`, async (t) => {
    const { client, recorded } = await clientOf(t, [{ result: position, frames }]);
    const last = frames.at(-1)?.push.pub.offset;
    const { found } = await recorded(() => at(client) === last);
    assert.deepEqual(found, [id]);
  });

test('a false recovery is a finding', async (t) => {
  const recovered = { ...position, was_recovering: true, recovered: true };
  const { client, recorded } = await clientOf(t, [
    { result: position, frames: [publication(1), 3001] },
    { result: { ...recovered, epoch: 'f', offset: 1 }, frames: [publication(2)] },
  ]);
  const { found } = await recorded(() => at(client) === 2);
  assert.ok(found.includes('I6'), `${found}`);
});

test('an end of the subscription or of the connection for ever is a finding', async (t) => {
  const ends = await clientOf(t, [{ result: position, frames: [unsubscribed(2000)] }]);
  await ends.recorded(() => ends.client.oddities.length > 0);
  assert.match(ends.client.oddities[0], /2000/);
  const closes = await clientOf(t, [{ result: position, frames: [3501] }]);
  await closes.recorded(() => closes.client.oddities.length > 0);
  assert.match(closes.client.oddities[0], /3501/);
});
