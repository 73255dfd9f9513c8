// redis-scripts.test.js: scripts on the simulation's Redis, for what a real one cannot be made to do
// within a test, and for what only its keys show.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readScript } from '../../src/backend/redis/scripts.js';
import { RedisServer } from '../simulation/redis/server.js';

const KEYS = ['meta', 'values', 'log', 'removed', 'sums'];
const PUBLISH = ['batch', 'stream', 'publishing', 'state', 'publish-state']
  .map(readScript)
  .join('');

/** A Redis, and publishes of a worker that knows only the Redis's fence. */
function build() {
  const server = new RedisServer({ now: () => 1_700_000_000_000, random: Math.random });
  const user = /** @type {import('../simulation/redis/acl.js').AclUser} */ (
    server.users.get('default')
  );
  /** @param {string} key @param {string} newEpoch @returns {[incarnation: string, offset: number, flags: string]} */
  const publish = (key, newEpoch) => {
    const fence = server.runId.slice(0, 16) + server.replicationId.slice(0, 16);
    const args = [fence, newEpoch, 'channel', '', '10', '10000', '60000', '', key, 'value', '0'];
    const sha = server.scripts.load(PUBLISH);
    return /** @type {any} */ (server.scripts.run(sha, KEYS, args, user));
  };
  return { server, publish };
}

test('a state that outlives a restart of Redis continues under a new epoch', () => {
  const { server, publish } = build();
  const [first, offset] = publish('a', 'e1'.padStart(16, '0'));
  assert.deepEqual([first.slice(32), offset], ['e1'.padStart(16, '0'), 1]);
  const known = publish('b', 'e2'.padStart(16, '0'));
  assert.deepEqual(known, [first, 2, '1']);
  server.restart(server.keys.snapshot());
  // Writes after the snapshot may be gone, so positions of the former epoch prove nothing.
  const [second, next, flags] = publish('c', 'e3'.padStart(16, '0'));
  assert.deepEqual([second.slice(32), next, flags], ['e3'.padStart(16, '0'), 3, '1']);
  assert.deepEqual([...(server.keys.read('values', 'hash')?.keys() ?? [])], ['a', 'b', 'c']);
});

test('an idempotency key lives no longer because its event was recorded', () => {
  const { server } = build();
  const user = /** @type {any} */ (server.users.get('default'));
  const bounds = 'local IS_SHARDED, MAX_ENTRIES, MAX_PAYLOADS = false, 100, 100\n';
  const sha = server.scripts.load(bounds + readScript('record') + readScript('events'));
  server.run(['SET', 'key', 'fingerprint', 'PX', '60000'], user);
  const keys = ['sequence', 'partition', 'state', 'key'];
  server.scripts.run(sha, keys, ['message.published', '', '"room":"r"', '4'], user);
  assert.deepEqual(server.run(['GET', 'key'], user), 'fingerprint:e');
  assert.equal(server.run(['PTTL', 'key'], user), 60_000);
  assert.equal(server.run(['XLEN', 'partition'], user), 1);
});
