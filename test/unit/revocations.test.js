import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import pino from 'pino';
import { RevocationLog } from '../../src/auth/revocation-log.js';
import { Revocations } from '../../src/auth/revocations.js';
import { loadConfig } from '../../src/config/config.js';
import { Connection } from '../../src/hub/connection.js';
import { EVERYONE } from '../../src/hub/hub.js';
import { createAuthCounters, createCounters } from '../../src/observability/counters.js';
import { Identities } from '../../src/operations/identities.js';
import { Lane } from '../../src/operations/lane.js';
import { WorkerAuth } from '../../src/worker/auth.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { startWorker } from '../helpers/whole-worker.js';

const LIFETIME_S = 3600;

/** @param {{max?: number, centrifugo?: {isLenient: boolean}}} [options] */
function build({ max, centrifugo } = {}) {
  const clock = { nowMs: 1_000_000_000_000 };
  const counters = createAuthCounters();
  const revocations = new Revocations({
    maxLifetimeS: LIFETIME_S,
    centrifugo,
    counters,
    now: () => clock.nowMs,
    ...(max !== undefined && { max }),
  });
  /** @param {{user?: string, tokenId?: string|null, issuedAtMs?: number}} [identity] */
  const isRevoked = ({ user = 'alice', tokenId = null, issuedAtMs = clock.nowMs } = {}) =>
    revocations.isRevoked(
      /** @type {import('../../src/auth/claims.js').Identity} */ ({ user, tokenId, issuedAtMs }),
    );
  return { revocations, clock, counters, isRevoked };
}

test('a user’s tokens issued before the revocation are refused, and later ones are accepted', () => {
  const { revocations, clock, isRevoked } = build();
  const issuedAtMs = clock.nowMs;
  clock.nowMs += 1000;
  assert.ok(!isRevoked({ issuedAtMs }));
  revocations.add(revocations.create({ user: 'alice' }));
  assert.ok(isRevoked({ issuedAtMs }));
  assert.ok(!isRevoked({ user: 'bob', issuedAtMs }));
  clock.nowMs += 5000;
  assert.ok(!isRevoked({ issuedAtMs: clock.nowMs }));
});

test('a revocation also refuses the tokens of a signer whose clock is ahead', () => {
  const { revocations, clock, isRevoked } = build();
  const issuedAtMs = clock.nowMs + 4999; // valid now: a time in a token may be off by 5 s
  revocations.add(revocations.create({ user: 'alice' }));
  assert.ok(isRevoked({ issuedAtMs }));
  revocations.add(revocations.create({ user: 'bob', issuedBeforeMs: clock.nowMs }));
  assert.ok(!isRevoked({ user: 'bob' }), 'a given time counts as it is');
});

test('one token is revoked by its id', () => {
  const { revocations, isRevoked } = build();
  revocations.add(revocations.create({ tokenId: 't1' }));
  assert.ok(isRevoked({ tokenId: 't1' }));
  assert.ok(!isRevoked({ tokenId: 't2' }));
  assert.ok(!isRevoked());
});

test('a revocation time in the future also refuses tokens issued until then', () => {
  const { revocations, clock, isRevoked } = build();
  revocations.add(revocations.create({ user: 'alice', issuedBeforeMs: clock.nowMs + 60_000 }));
  clock.nowMs += 59_000;
  assert.ok(isRevoked());
  clock.nowMs += 1000;
  assert.ok(!isRevoked());
});

test('a revocation is kept until the longest possible token has expired', () => {
  const { revocations, clock, counters, isRevoked } = build();
  const issuedAtMs = clock.nowMs - 1;
  revocations.add(revocations.create({ user: 'alice' }));
  revocations.add(revocations.create({ tokenId: 't1' }));
  clock.nowMs += LIFETIME_S * 1000;
  revocations.sweep();
  assert.ok(isRevoked({ issuedAtMs }));
  assert.equal(counters.revocations, 2);
  clock.nowMs += 65_000;
  revocations.sweep();
  revocations.sweep();
  assert.equal(revocations.size, 0);
  assert.equal(counters.revocations, 0);
});

test('a revocation outlives tokens that need not have iat or exp', () => {
  for (const isLenient of [false, true]) {
    const { revocations, clock, isRevoked } = build({ centrifugo: { isLenient } });
    revocations.add(revocations.create({ user: 'alice' }));
    revocations.add(revocations.create({ tokenId: 't1' }));
    clock.nowMs += 1000 * LIFETIME_S * 1000;
    revocations.sweep();
    revocations.sweep();
    assert.ok(isRevoked({ issuedAtMs: 0 }), 'without iat');
    assert.ok(isRevoked({ user: 'bob', tokenId: 't1' }));
    assert.ok(!isRevoked(), 'issued later');
  }
});

test('a full list forgets the earliest of those kept past their time, but none of lenient tokens', () => {
  for (const isLenient of [false, true]) {
    const built = build({ centrifugo: { isLenient }, max: 3 });
    const { revocations, clock, counters, isRevoked } = built;
    const add = (/** @type {string} */ user) => revocations.add(revocations.create({ user }));
    for (const user of ['a', 'b']) assert.ok(add(user));
    clock.nowMs += LIFETIME_S * 1000 + 65_000;
    assert.ok(add('c'));
    assert.equal(add('d'), !isLenient);
    assert.equal(counters.revocationsRefused, isLenient ? 1 : 0);
    assert.ok(isRevoked({ user: 'c', issuedAtMs: 0 }), 'its tokens may be valid');
    assert.equal(isRevoked({ user: 'a', issuedAtMs: 0 }), isLenient);
    // What has left is not written to the backend again.
    const others = isLenient ? ['a', 'b', 'c'] : ['c', 'd'];
    assert.deepEqual(
      revocations.beyond([]).map(({ user }) => user),
      others,
    );
  }
});

test('a revocation above the limit is refused and counted, and existing ones stay', () => {
  const { revocations, clock, counters, isRevoked } = build({ max: 3 });
  for (const user of ['a', 'b', 'c']) assert.ok(revocations.add(revocations.create({ user })));
  assert.equal(revocations.add(revocations.create({ user: 'd' })), false);
  assert.equal(counters.revocationsRefused, 1);
  assert.equal(counters.revocations, 3);
  assert.ok(isRevoked({ user: 'a', issuedAtMs: clock.nowMs - 1 }));
  clock.nowMs += LIFETIME_S * 1000 + 65_000;
  assert.ok(revocations.add(revocations.create({ user: 'd' })), 'expired ones make room');
  assert.equal(revocations.size, 1);
});

test('the order and repetition of revocations do not matter', () => {
  const revocation = fc.record({
    user: fc.constantFrom('a', 'b', null),
    tokenId: fc.constantFrom('x', 'y'),
    issuedBeforeMs: fc.nat(9),
    keepUntilMs: fc.integer({ min: 2e12, max: 2e12 + 9 }),
  });
  fc.assert(
    fc.property(fc.array(revocation), fc.array(fc.nat(99)), (list, again) => {
      const [one, other] = [build().revocations, build().revocations];
      const shuffled = [...list].reverse();
      for (const i of again) if (list.length > 0) shuffled.push(list[i % list.length]);
      for (const each of list) one.add(form(each));
      for (const each of shuffled) other.add(form(each));
      assert.deepEqual(sorted(one), sorted(other));
    }),
  );
});

/** @param {{user: string|null, tokenId: string, issuedBeforeMs: number, keepUntilMs: number}} r */
function form(r) {
  return r.user === null ? { ...r, issuedBeforeMs: 0 } : { ...r, tokenId: null };
}

/** @param {Revocations} revocations */
function sorted(revocations) {
  return [...revocations.entries()].map((one) => JSON.stringify(one)).sort();
}

test('a revocation that the backend cannot keep is logged with its cause, once a minute', async () => {
  const { config } = loadConfig({ JWT_SECRET: 's'.repeat(32) });
  assert.ok(config?.tokens);
  /** @type {any[]} */
  const lines = [];
  const add = () => Promise.reject(new Error('the disk is full'));
  const auth = new WorkerAuth({
    config,
    settings: config.tokens,
    hub: /** @type {any} */ ({ listenForNotices() {} }),
    backend: /** @type {any} */ ({ revocations: { add } }),
    counters: createAuthCounters(),
    closeAll() {},
    log: pino({}, { write: (line) => lines.push(JSON.parse(line)) }),
  });
  for (const user of ['ann', 'bob'])
    await assert.rejects(auth.revoke({ user }), { message: 'the disk is full' });
  assert.deepEqual(
    lines.map(({ msg, err }) => [msg, err.message]),
    [['a revocation failed: its tokens may still be accepted', 'the disk is full']],
  );
});

test('a token that is revoked while it is verified is refused', async () => {
  const identity = { user: 'alice' };
  let isRevoked = false;
  const parts = /** @type {any} */ ({
    hub: {},
    lane: new Lane({ maxSteps: 1, replies: /** @type {any} */ ({}), counters: createCounters() }),
    sessions: { isRevoked: () => isRevoked },
    verifier: { verify: async () => identity },
  });
  const identities = new Identities(parts);
  /** @type {unknown[]} */
  const seen = [];
  for (const revokes of [false, true]) {
    const connection = new Connection(new FakeTransport(), '');
    identities.verifyToken(
      connection,
      'token',
      /** @type {any} */ (() => {}),
      'token',
      (...answer) => seen.push(answer),
    );
    isRevoked = revokes;
    await new Promise(setImmediate);
  }
  assert.deepEqual(seen, [
    [identity, '', ''],
    [null, 'INVALID_TOKEN', ''],
  ]);
});

/** A worker alone knows these, and the backend has none. @param {number} count */
async function announcedOf(count) {
  const { revocations } = build();
  for (let i = 0; i < count; i++) revocations.add(revocations.create({ user: `u${i}` }));
  /** @type {(string|null)[]} */
  const added = [];
  /** @type {(string|null)[]} */
  const announced = [];
  const log = new RevocationLog({
    store: {
      read: async () => [],
      add: async ({ user }) => added.push(user) > 0,
    },
    announce: async ({ user }) => void announced.push(user),
    revocations,
    onRevoked() {},
    log: { warn: (fields) => assert.fail(String(fields)), info() {} },
  });
  await log.refresh();
  log.close();
  assert.equal(added.length, count);
  return announced;
}

test('revocations that a replaced primary kept for one worker alone reach the others at once', async () => {
  assert.deepEqual(await announcedOf(2), ['u0', 'u1']);
});

test('if the backend has lost many revocations, workers do not announce them all', async () => {
  assert.deepEqual(await announcedOf(101), []);
});

test('a worker whose broker comes back while it reads the list reads it once more', async () => {
  const { revocations } = build();
  /** @type {((known: import('../../src/backend/revocations.js').Revocation[]) => void)[]} */
  const reads = [];
  /** @type {(string|null)[]} */
  const revoked = [];
  const log = new RevocationLog({
    store: {
      read: () => new Promise((resolve) => void reads.push(resolve)),
      add: async () => true,
    },
    announce: async () => {},
    revocations,
    onRevoked: ({ user }) => revoked.push(user),
    log: { warn: (fields) => assert.fail(String(fields)), info() {} },
  });
  log.refresh();
  assert.equal(reads.length, 1);
  // The store has answered. Then a user was revoked, and the notice was lost with the subscription.
  const refreshed = [log.refresh(), log.refresh()];
  reads[0]([]);
  await new Promise(setImmediate);
  assert.equal(reads.length, 2, 'otherwise the user stays for 30 s');
  reads[1]([revocations.create({ user: 'ann' })]);
  await Promise.all(refreshed);
  assert.deepEqual(revoked, ['ann']);
  assert.equal(reads.length, 2);
  log.close();
});

test('a worker that may have missed a notice reads the list, also without an outage', async (t) => {
  const { delivery, entry } = await startWorker(t, { JWT_SECRET: 'a'.repeat(32) });
  const { broker, revocations } = /** @type {any} */ (delivery.backend);
  const known = () => entry.auth?.revocations.size;
  // Another worker adds it. The notice was lost with the subscription, as when a slot moves.
  await revocations.add(build().revocations.create({ user: 'ann' }));
  broker.events.onLost(['room']);
  await new Promise(setImmediate);
  assert.equal(known(), 0);
  broker.events.onLost(['room', EVERYONE]);
  await new Promise(setImmediate);
  assert.equal(known(), 1, 'otherwise her connections stay for up to 30 s');
});
