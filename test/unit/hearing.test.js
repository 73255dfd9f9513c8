// hearing.test.js: what a worker takes from its replica: nothing before it is known to be in step,
// and nothing while a channel is missing there.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReplyError } from 'ioredis';
import { BrokerError } from '../../src/backend/errors.js';
import { Hearing } from '../../src/backend/redis/hearing.js';
import { loadConfig } from '../../src/config/config.js';
import { createCounters } from '../../src/observability/counters.js';
import { redisSettings } from '../harness/redis.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {NonNullable<Hearing['replica']>} Ear */

const defaults = /** @type {import('../../src/config/settings.js').Config} */ (
  loadConfig({}).config
);
const PROBES = Buffer.from('probe');
const ROOM = Buffer.from('room');

/** A worker at a replica. No server is there: the test says what each passes on. @param {TestContext} t */
function build(t) {
  const probe = {
    token: 0,
    lastToken: 0,
    get nextToken() {
      return this.lastToken + 1;
    },
    send() {
      this.token = ++this.lastToken;
    },
  };
  /** @type {string[]} */
  const heard = [];
  const hearing = new Hearing({
    settings: redisSettings({
      REDIS_URL: 'redis://127.0.0.1:1',
      REDIS_SUBSCRIBE_URL: 'redis://127.0.0.1:1',
    }),
    config: { ...defaults, roomLingerMs: 0 },
    counters: createCounters(),
    probe: /** @type {any} */ (probe),
    clock: { nowMs: 0 },
    isSharded: false,
    checkReset: () => false,
    onSlotMoved() {},
    events: {
      onReady() {},
      onLive() {},
      onAway() {},
      onRefused() {},
      onMoved() {},
      onMessage: (channel, message) => {
        if (channel === ROOM) heard.push(String(message));
      },
      onSwitch() {},
    },
  });
  hearing.probeOn(String(PROBES));
  t.after(() => hearing.close());
  const replica = /** @type {Ear} */ (hearing.replica);
  /** @param {Ear} ear @param {string|number} message a number is a probe */
  const pass = ({ connection }, message) => {
    const bytes = Buffer.alloc(4);
    if (typeof message === 'number') bytes.writeUInt32BE(message);
    const parts = typeof message === 'number' ? [PROBES, bytes] : [ROOM, Buffer.from(message)];
    connection.redis.emit('messageBuffer', ...parts);
  };
  /** A probe comes back over both. */
  const probeBoth = () => {
    probe.send();
    pass(hearing.current, probe.token);
    pass(replica, probe.token);
  };
  return { hearing, probe, replica, heard, pass, probeBoth };
}

test('what comes before the first probe of a connection is ignored: it may have been heard before', (t) => {
  const { hearing, probe, replica, heard, pass } = build(t);
  probe.send();
  probe.token = 0; // the connection is lost
  pass(replica, 'repeated');
  pass(replica, probe.lastToken);
  pass(replica, 'repeated');
  probe.send();
  pass(replica, 'before the probe');
  pass(replica, probe.token);
  pass(replica, 'a');
  probe.token = 0;
  pass(replica, 'b');
  assert.deepEqual(heard, ['a', 'b']);
  replica.connection.destroy('test');
  pass(replica, 'repeated');
  assert.deepEqual(heard, ['a', 'b']);
  assert.equal(hearing.isReplica, true);
});

test('a replica that lacks channels is not heard, however many probes come back', (t) => {
  const { hearing, replica, heard, pass, probeBoth } = build(t);
  hearing.leaveReplica('test');
  for (let i = 0; i < 10; i++) probeBoth();
  assert.equal(hearing.isReplica, false);
  replica.subscriptions.isLive = true;
  for (let i = 0; i < 4; i++) probeBoth();
  assert.equal(hearing.isReplica, true);
  pass(replica, 'a');
  assert.deepEqual(heard, ['a']);
});

test('if the replica alone refuses a channel, its connection is replaced', async (t) => {
  const { hearing, replica } = build(t);
  hearing.leaveReplica('test');
  const { current } = hearing;
  /** @type {string[]} */
  const destroyed = [];
  replica.connection.destroy = (reason) => void destroyed.push(reason);
  /** @param {unknown} cause */
  const failing = (cause) => async () => {
    throw new BrokerError('UNAVAILABLE', 'test', { cause });
  };
  current.subscriptions.subscribe = async () => {};
  replica.subscriptions.subscribe = failing(undefined); // it is not connected
  await hearing.subscribe('other');
  assert.deepEqual(destroyed, []);
  replica.subscriptions.subscribe = failing(new ReplyError('NOPERM'));
  await hearing.subscribe('other');
  assert.deepEqual(destroyed, ['the replica refused a subscription']);
  const joining = hearing.subscribe('other');
  hearing.current = replica;
  await assert.rejects(joining);
  hearing.current = current; // which is closed with the test
});
