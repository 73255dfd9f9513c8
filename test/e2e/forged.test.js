// forged.test.js: another program publishes on the channels of our rooms: no worker ends, no client
// is cut off.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { startRedis } from '../harness/redis.js';
import { samples, startServer } from '../harness/server.js';
import { connect } from '../helpers/clients.js';

/** As a Redis message holds it: behind its length. @param {Buffer} publication */
function framed(publication) {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(publication.length);
  return Buffer.concat([length, publication]);
}

/** @param {number} time @param {string} from @param {string} payload @param {number} [kind] */
function forged(time, from, payload, kind = KIND.MESSAGE) {
  const json = Buffer.from(payload);
  return framed(encodePublication(kind, time, 0, from, json, 0, json.length));
}

test('stray messages on a room of Redis end no worker and cut off no client', {
  timeout: 40_000,
}, async (t) => {
  const redis = await startRedis(t);
  const server = await startServer(t, {
    REDIS_URL: redis.url,
    FANFARE_HISTORY: 'h.*=50/60s',
    WORKERS: '2',
  });
  const stranger = new Redis(redis.url);
  t.after(() => stranger.disconnect());
  const client = await connect(t, server.port);
  await client.join('r');
  await client.join('h.1');
  const position = Buffer.alloc(28);
  position.writeUInt32BE(0x40000000 + 24);
  position.write('"","forged":"xxx', 4, 'latin1');
  const stray = [
    Buffer.from('hello'),
    Buffer.alloc(0),
    Buffer.from('7fffffff00', 'hex'),
    forged(0, 'a","payload":"forged', '1'),
    forged(0, 'x', 'NOT JSON"'),
    framed(
      Buffer.from(
        forged(0, 'x', '"a"')
          .subarray(4)
          .map((byte, i) => (i === 14 ? 0xff : byte)),
      ),
    ),
    forged(0, 'x', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"', KIND.POSITIONED),
    forged(0, 'x', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"', KIND.RESYNC),
    Buffer.concat([position, forged(0, 'x', '1')]),
  ];
  const future = Buffer.concat(Array(200).fill(forged(2 ** 48 - 1, 'x', '"future"')));
  for (const room of ['{r}', '{h.1}', '{*}']) {
    for (const bytes of [...stray, future]) await stranger.publish(`fanfare:room:${room}`, bytes);
  }
  client.send({ type: 'message', room: 'r', payload: 'ours' });
  await client.next(({ payload }) => payload === 'ours');
  assert.equal(client.all(({ room, payload }) => room === 'r' && payload === 'future').length, 200);
  assert.equal(client.close, null);
  const page = samples(
    await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text(),
  );
  assert.equal(page.get('fanfare_worker_restarts_total'), 0);
  assert.ok((page.get('fanfare_malformed_publications_total') ?? 0) >= 6, 'counted');
});
