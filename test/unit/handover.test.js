// handover.test.js: a worker that moves its hearing from the primary to a replica hears each message
// once and in order, however late each side is.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Handover } from '../../src/backend/redis/handover.js';

const PROBE = Buffer.from('probe');
const ROOM = Buffer.from('room');
/** Of the stream; every fourth message is a probe. */
const MESSAGES = 60;
const PROBES_EVERY = 4;

/** A worker that hears one stream from two sides, each at its own pace. */
class Hearer {
  nowMs = 0;
  lastToken = 0;
  /** @type {string[]} */
  heard = [];
  isReplica = false;
  handover = this.#makeHandover();

  #makeHandover(returns = 0) {
    return new Handover({
      tokenOf: (channel, message) => (channel === PROBE ? Number(message) : 0),
      lastToken: () => this.lastToken,
      nextToken: () => this.lastToken + 1,
      nowMs: () => this.nowMs,
      deliver: (channel, message) => {
        if (channel === ROOM) this.heard.push(String(message));
      },
      onDone: () => {
        this.isReplica = true;
      },
      returns,
    });
  }

  /** @param {boolean} isReplica the side @param {number} n of the stream */
  hear(isReplica, n) {
    const isProbe = n % PROBES_EVERY === 0;
    const [channel, text] = isProbe ? [PROBE, n / PROBES_EVERY + 1] : [ROOM, n];
    const message = Buffer.from(String(text));
    if (this.isReplica) {
      if (isReplica && !isProbe) this.heard.push(String(n));
    } else if (isReplica) this.handover.hearReplica(channel, message);
    else this.handover.hearPrimary(channel, message);
  }

  /** The worker sends a probe: the stream has it next. @param {number} n */
  publish(n) {
    if (n % PROBES_EVERY === 0) this.lastToken = n / PROBES_EVERY + 1;
  }
}

const rooms = Array.from({ length: MESSAGES }, (_, n) => n)
  .filter((n) => n % PROBES_EVERY !== 0)
  .map(String);

test('a handover loses, repeats and reorders nothing, whichever side is ahead', () => {
  let returned = 0;
  const steps = fc.array(fc.constantFrom('publish', 'primary', 'replica', 'reset', 'wait'), {
    minLength: MESSAGES,
    maxLength: 6 * MESSAGES,
  });
  fc.assert(
    fc.property(steps, (drawn) => {
      const hearer = new Hearer();
      const at = { publish: 0, primary: 0, replica: 0 };
      const step = (/** @type {string} */ what) => {
        if (what === 'publish' && at.publish < MESSAGES) hearer.publish(at.publish++);
        if (what === 'primary' && at.primary < at.publish) hearer.hear(false, at.primary++);
        if (what === 'replica' && at.replica < at.publish) hearer.hear(true, at.replica++);
        // The replica's connection breaks, and it is behind or ahead when it is back: the worker
        // does not hear it meanwhile.
        if (what === 'reset' && at.replica % 7 === 0 && !hearer.isReplica) hearer.handover.reset();
        if (what === 'wait') hearer.handover.tick((hearer.nowMs += 100));
      };
      for (const what of drawn) step(what);
      // The rest arrives.
      while (at.primary < MESSAGES) {
        step('publish');
        step('replica');
        step('primary');
      }
      while (at.replica < MESSAGES) step('replica');
      hearer.handover.tick((hearer.nowMs += 10_000));
      if (hearer.isReplica) returned++;
      assert.deepEqual(hearer.heard, rooms);
    }),
    { numRuns: 2000 },
  );
  assert.ok(returned > 100, `${returned} handovers were completed`);
});

test('a replica is heard only after three probes in a row came through it in time', () => {
  const hearer = new Hearer();
  let n = 0;
  /** @param {number} count of messages that both sides hear at once */
  const both = (count) => {
    for (const end = n + count; n < end; n++) {
      hearer.publish(n);
      hearer.hear(false, n);
      hearer.hear(true, n);
    }
  };
  both(2 * PROBES_EVERY);
  assert.equal(hearer.handover.proofs, 2);
  // One is late.
  hearer.publish(n);
  hearer.hear(false, n);
  hearer.lastToken++;
  hearer.hear(true, n++);
  assert.equal(hearer.handover.proofs, 0);
  n += 2 * PROBES_EVERY - 1;
  both(3 * PROBES_EVERY);
  assert.equal(hearer.isReplica, false);
  assert.notEqual(hearer.handover.divider, 0);
  both(1);
  assert.equal(hearer.isReplica, true);
});

test('if the other side does not reach the probe in time, the primary is heard without a loss', () => {
  for (const isReplicaAhead of [false, true]) {
    const hearer = new Hearer();
    let n = 0;
    for (; n < 3 * PROBES_EVERY; n++) {
      hearer.publish(n);
      hearer.hear(false, n);
      hearer.hear(true, n);
    }
    const first = n;
    for (; n < first + 3; n++) {
      hearer.publish(n);
      hearer.hear(isReplicaAhead, n);
    }
    assert.equal(hearer.handover.isHolding, true);
    hearer.handover.tick((hearer.nowMs += 999));
    assert.equal(hearer.handover.isHolding, true);
    hearer.handover.tick((hearer.nowMs += 1));
    assert.equal(hearer.handover.isHolding, false);
    if (isReplicaAhead) for (let late = first; late < n; late++) hearer.hear(false, late);
    assert.deepEqual(hearer.heard, rooms.slice(0, rooms.indexOf(String(n - 1)) + 1));
    assert.equal(hearer.handover.neededProofs, 6, 'the next attempt comes later');
  }
});

test('what is held is bounded in bytes', () => {
  const hearer = new Hearer();
  for (let n = 0; n <= 3 * PROBES_EVERY; n++) {
    hearer.publish(n);
    hearer.hear(false, n);
    if (n < 3 * PROBES_EVERY) hearer.hear(true, n);
  }
  const large = Buffer.alloc(1024 * 1024);
  for (let i = 0; i < 7; i++) hearer.handover.hearPrimary(ROOM, large);
  assert.equal(hearer.handover.isHolding, true);
  const before = hearer.heard.length;
  hearer.handover.hearPrimary(ROOM, large);
  assert.equal(hearer.handover.isHolding, false);
  assert.equal(hearer.heard.length, before + 8);
});
