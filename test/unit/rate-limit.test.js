import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { RateLimiter, tokensOfMembers } from '../../src/admission/rate-limit.js';
import { loadConfig } from '../../src/config/config.js';
import { createCounters } from '../../src/observability/counters.js';
import { createMeters } from '../../src/worker/api.js';

/** @typedef {import('../../src/config/settings.js').Mode} Mode */
/** @typedef {{rate: import('../../src/admission/rate-limit.js').TokenBucket|null}} Sender */

/** Small enough for the tests: each bucket has a hundred tokens. */
const HUNDRED = Object.freeze({
  MESSAGES_PER_MINUTE: 100,
  MESSAGES_BURST: 100,
  MESSAGES_PER_MINUTE_PER_IP: 100,
  MESSAGES_BURST_PER_IP: 100,
  MESSAGES_PER_MINUTE_PER_USER: 100,
  MESSAGES_BURST_PER_USER: 100,
});

/** @param {Record<string, string|number>} env */
function build(env = {}) {
  const { config, faults } = loadConfig(
    Object.fromEntries(
      Object.entries({ ...HUNDRED, ...env }).map(([name, value]) => [
        `FANFARE_${name}`,
        String(value),
      ]),
    ),
  );
  assert.ok(config, faults.join('\n'));
  const counters = createCounters();
  return { limiter: new RateLimiter(config, counters), counters };
}

/** @returns {Sender} */
const sender = () => ({ rate: null });

/**
 * @param {number} n
 * @param {() => number} each
 * @returns {number} how many passed
 */
function passed(n, each) {
  let count = 0;
  for (let i = 0; i < n; i++) if (each() === 0) count++;
  return count;
}

test('of 300 messages at once 100 pass, and the others get a retryAfter of one second', () => {
  const { limiter } = build();
  const connection = sender();
  const answers = Array.from({ length: 300 }, (_, i) =>
    limiter.admitMessage(connection, 'a', 5_000 + i / 100),
  );
  assert.equal(answers.filter((answer) => answer === 0).length, 100);
  assert.deepEqual([...new Set(answers.slice(100))], [1]);
});

test('retryAfter is the time until a message is accepted again, in whole seconds', () => {
  const { limiter } = build({
    MESSAGES_PER_MINUTE: 6,
    MESSAGES_BURST: 2,
    MESSAGES_PER_MINUTE_PER_IP_MODE: 'off',
  });
  const connection = sender();
  assert.equal(
    passed(2, () => limiter.admitMessage(connection, 'a', 0)),
    2,
  );
  assert.equal(limiter.admitMessage(connection, 'a', 0), 10);
  assert.equal(limiter.admitMessage(connection, 'a', 1), 10);
  assert.equal(limiter.admitMessage(connection, 'a', 9_000), 1);
  assert.equal(limiter.admitMessage(connection, 'a', 9_999), 1);
  assert.equal(limiter.admitMessage(connection, 'a', 10_000), 0);
});

test('the connections of one address share its bucket, and another address has its own', () => {
  const { limiter } = build({ MESSAGES_BURST_PER_IP: 10 });
  const [one, two] = [sender(), sender()];
  assert.equal(
    passed(20, () => limiter.admitMessage(one, 'a', 0)),
    10,
  );
  assert.equal(limiter.admitMessage(two, 'a', 0), 1);
  assert.equal(limiter.admitMessage(sender(), 'b', 0), 0);
});

test('a message refused by one bucket takes nothing from the other', () => {
  const { limiter } = build({ MESSAGES_BURST: 5, MESSAGES_BURST_PER_IP: 8 });
  const greedy = sender();
  assert.equal(
    passed(50, () => limiter.admitMessage(greedy, 'a', 0)),
    5,
  );
  assert.equal(
    passed(50, () => limiter.admitMessage(sender(), 'a', 0)),
    3,
  );
  const { limiter: other } = build({
    MESSAGES_BURST: 5,
    MESSAGES_BURST_PER_IP: 3,
    MESSAGES_PER_MINUTE: 1,
    MESSAGES_PER_MINUTE_PER_IP: 60,
  });
  const connection = sender();
  assert.equal(
    passed(50, () => other.admitMessage(connection, 'a', 0)),
    3,
  );
  assert.equal(
    passed(50, () => other.admitMessage(connection, 'a', 2_000)),
    2,
  );
});

test('if both buckets refuse, retryAfter is the longer wait', () => {
  const { limiter } = build({
    MESSAGES_PER_MINUTE: 60,
    MESSAGES_BURST: 1,
    MESSAGES_PER_MINUTE_PER_IP: 2,
    MESSAGES_BURST_PER_IP: 1,
  });
  const connection = sender();
  assert.equal(limiter.admitMessage(connection, 'a', 0), 0);
  assert.equal(limiter.admitMessage(connection, 'a', 0), 30);
});

test('a limit that is off keeps nothing', () => {
  const { limiter } = build({ LIMITS: 'off', MESSAGES_BURST: 1 });
  const connection = sender();
  assert.equal(
    passed(1000, () => limiter.admitMessage(connection, 'a', 0)),
    1000,
  );
  assert.equal(connection.rate, null);
  assert.equal(limiter.addresses, 0);
});

test('an observed limit lets all messages pass and counts those it would have refused', () => {
  const { limiter, counters } = build({ LIMITS: 'observe', MAX_REFUSED_MESSAGES: 1 });
  const connection = sender();
  assert.equal(
    passed(300, () => limiter.admitMessage(connection, 'a', 0)),
    300,
  );
  assert.equal(counters.observed.messages, 200);
  assert.equal(counters.observed.messages_per_ip, 200);
});

test('a developer whose limits only observe is told which would have refused', () => {
  const { config } = loadConfig({ FANFARE_LIMITS: 'observe' });
  assert.ok(config);
  /** @type {Set<string>} */
  const texts = new Set();
  const limiter = new RateLimiter(config, createCounters(), undefined, (text) => texts.add(text));
  const connection = sender();
  passed(700, () => limiter.admitMessage(connection, 'a', 0));
  assert.deepEqual(
    [...texts],
    [
      'Too many messages from this connection: 1,800 a minute, 300 at once (FANFARE_MESSAGES_RATE).',
    ],
  );
});

test('an enforced limit applies beside an observed one', () => {
  const { limiter, counters } = build({
    MESSAGES_PER_MINUTE_MODE: 'observe',
    MESSAGES_BURST: 5,
    MESSAGES_BURST_PER_IP: 20,
  });
  const connection = sender();
  assert.equal(
    passed(50, () => limiter.admitMessage(connection, 'a', 0)),
    20,
  );
  assert.equal(counters.observed.messages, 15);
  assert.equal(counters.observed.messages_per_ip, 0);
});

test('a connection that is refused too often within a minute is to be closed', () => {
  const { limiter } = build({ MESSAGES_BURST: 1, MAX_REFUSED_MESSAGES: 3, MESSAGES_PER_MINUTE: 1 });
  const connection = sender();
  const at = (/** @type {number} */ ms) => limiter.admitMessage(connection, 'a', ms);
  assert.deepEqual([at(0), at(0), at(0), at(0), at(0)], [0, 60, 60, 60, -1]);
  const patient = sender();
  const patientAt = (/** @type {number} */ ms) => limiter.admitMessage(patient, 'b', ms);
  assert.equal(patientAt(0), 0);
  assert.ok([10_000, 20_000, 30_000].every((ms) => patientAt(ms) > 0));
  // The window begins with its first refusal; the next one begins after it.
  assert.equal(patientAt(69_000), 0);
  assert.ok([70_000, 70_000, 70_000].every((ms) => patientAt(ms) > 0));
  assert.equal(patientAt(129_000), 0);
});

test('addresses whose bucket is full again are forgotten, others are not', () => {
  const { limiter } = build({ MESSAGES_BURST_PER_IP: 1 });
  for (let i = 0; i < 1000; i++) limiter.admitMessage(sender(), `a${i}`, 0);
  limiter.admitMessage(sender(), 'late', 500);
  assert.equal(limiter.addresses, 1001);
  limiter.sweep(599);
  limiter.sweep(600);
  limiter.sweep(600);
  assert.equal(limiter.addresses, 1);
  assert.equal(limiter.admitMessage(sender(), 'late', 700), 1);
});

test('the addresses remembered are bounded, and those forgotten early are counted', () => {
  const { limiter, counters } = build({ MESSAGES_BURST_PER_IP: 1 });
  for (let i = 0; i < 70_000; i++) assert.equal(limiter.admitMessage(sender(), `a${i}`, 0), 0);
  assert.equal(limiter.addresses, 65_536);
  assert.equal(counters.addressesForgotten, 70_000 - 65_536);
  assert.equal(limiter.admitMessage(sender(), 'a69999', 0), 1);
  for (let i = 0; i < 20; i++) limiter.sweep(60_000);
  assert.equal(limiter.addresses, 0);
});

test('the connections of a user share a bucket, whatever their addresses, and replies are charged to it', () => {
  const { limiter, counters } = build({ MESSAGES_BURST_PER_USER: 3 });
  const [one, two, other] = [sender(), sender(), sender()];
  assert.equal(limiter.admitMessage(one, 'a', 0, 0, 'ann'), 0);
  limiter.charge(two, 'b', 0, 8192, 'ann');
  assert.equal(limiter.admitMessage(two, 'b', 0, 0, 'ann'), 0);
  assert.equal(limiter.admitMessage(one, 'c', 0, 0, 'ann'), 1);
  assert.equal(limiter.admitMessage(other, 'a', 0, 0, 'bob'), 0);
  for (let i = 0; i < 50; i++) assert.equal(limiter.admitMessage(sender(), `x${i}`, 0), 0);
  assert.equal(limiter.users, 2);
  for (let i = 0; i < 70_000; i++) limiter.admitMessage(sender(), `y${i}`, 0, 0, `user-${i}`);
  assert.deepEqual([limiter.users, counters.usersForgotten], [65_536, 70_002 - 65_536]);
  for (let i = 0; i < 20; i++) limiter.sweep(60_000);
  assert.equal(limiter.users, 0);
});

test('a stream takes a token of its address and its user for each room, or is refused and takes none', () => {
  const { limiter } = build({ MESSAGES_BURST_PER_USER: 50 });
  const open = (/** @type {string} */ address, rooms = 8, user = '') =>
    limiter.admitStream(address, 0, rooms, user, false);
  assert.equal(
    passed(30, () => open('a')),
    12,
  );
  // Four tokens of 100 are left, and come back at 100 a minute.
  assert.equal(open('a'), 3);
  assert.equal(open('a', 4), 0);
  assert.equal(limiter.admitMessage(sender(), 'a', 0), 1);
  assert.equal(limiter.admitStream('a', 4_800, 8, '', false), 0);
  assert.equal(
    passed(30, () => open('b', 5, 'ann')),
    10,
  );
  assert.equal(limiter.admitMessage(sender(), 'c', 0, 0, 'ann'), 1);
  assert.equal(open('b', 50, 'bob'), 0, 'the refused streams took no token of the address');
  assert.equal(open('b', 1), 1);
});

test('a returning stream passes on credit, up to as much as the bucket holds', () => {
  const { limiter } = build();
  const back = (/** @type {number} */ nowMs) => limiter.admitStream('a', nowMs, 1, '', true);
  assert.equal(
    passed(100, () => limiter.admitMessage(sender(), 'a', 0)),
    100,
  );
  assert.equal(
    passed(300, () => back(0)),
    100,
  );
  assert.equal(back(0), 1);
  assert.equal(back(600), 0, 'one token comes in 600 ms');
  assert.equal(limiter.admitStream('a', 600, 1, '', false), 61);
  // A reply may have spent the credit already.
  limiter.charge(sender(), 'b', 0, 10_000_000);
  assert.equal(
    passed(200, () => limiter.admitStream('b', 0, 1, '', true)),
    100,
  );
});

test('streams above an observed limit pass and are counted, and a limit that is off counts nothing', () => {
  const observed = build({ LIMITS: 'observe' });
  assert.equal(
    passed(20, () => observed.limiter.admitStream('a', 0, 8, 'ann', false)),
    20,
  );
  const { messages_per_ip, messages_per_user } = observed.counters.observed;
  assert.deepEqual([messages_per_ip, messages_per_user], [8, 8]);
  const off = build({ LIMITS: 'off' });
  assert.equal(
    passed(500, () => off.limiter.admitStream('a', 0, 8, 'ann', false)),
    500,
  );
  assert.deepEqual([off.limiter.addresses, off.limiter.users], [0, 0]);
});

test('a message takes a token for each started 4 KB, from its connection and from its address', () => {
  for (const [bytes, fit] of [
    [0, 100],
    [1, 100],
    [4096, 100],
    [4097, 50],
    [8192, 50],
    [102_400, 4],
  ]) {
    for (const off of ['MESSAGES_PER_MINUTE_MODE', 'MESSAGES_PER_MINUTE_PER_IP_MODE']) {
      const { limiter } = build({ [off]: 'off' });
      const connection = sender();
      assert.equal(
        passed(200, () => limiter.admitMessage(connection, 'a', 0, bytes)),
        fit,
        `${bytes} bytes`,
      );
    }
  }
});

test('a message that costs more than a bucket takes a full bucket, and retryAfter is the time until it is full', () => {
  const { limiter } = build({ MESSAGES_BURST: 10, MESSAGES_PER_MINUTE: 60 });
  const connection = sender();
  assert.equal(limiter.admitMessage(connection, 'a', 0, 102_400), 0);
  assert.equal(limiter.admitMessage(connection, 'a', 0, 102_400), 10);
  assert.equal(limiter.admitMessage(connection, 'a', 0, 1), 1);
  assert.equal(limiter.admitMessage(connection, 'a', 9_999, 102_400), 1);
  assert.equal(limiter.admitMessage(connection, 'a', 10_000, 102_400), 0);
});

for (const units of [2, 9, 10, 11, 100])
  test(`an API request of ${units} units passes, and again after its retryAfter`, () => {
    const { config } = loadConfig({ FANFARE_API_MESSAGES_RATE: '60/min burst 10' });
    assert.ok(config);
    const { take } = createMeters(
      { config, counters: createCounters(), log: /** @type {any} */ (null) },
      { observe() {} },
    );
    const bucket = { fullAt: 0 };
    // One unit is taken when it comes, the others when it has been read.
    const ask = (/** @type {number} */ nowMs) =>
      take(bucket, 1, nowMs) || take(bucket, units - 1, nowMs, 1);
    assert.equal(ask(0), 0);
    for (let i = 1; i < 10; i++) take(bucket, 1, 0);
    const waitS = ask(1000);
    assert.equal(waitS, Math.min(units, 10));
    assert.equal(ask(1000 * (1 + waitS)), 0);
  });

test('a reply costs its bytes beyond the first 4 KB, and later messages wait for it', () => {
  const { limiter } = build({ MESSAGES_PER_MINUTE_PER_IP: 1000, MESSAGES_BURST_PER_IP: 1000 });
  const connection = sender();
  limiter.charge(connection, 'a', 0, 4096);
  assert.equal(connection.rate, null);
  limiter.charge(connection, 'a', 0, 102_400); // 24 tokens more
  assert.equal(
    passed(200, () => limiter.admitMessage(connection, 'a', 0)),
    76,
  );
  assert.equal(
    passed(2000, () => limiter.admitMessage(sender(), 'a', 0)),
    1000 - 24 - 76,
  );
  // However much it owes: it is as much as the bucket holds.
  for (let i = 0; i < 100; i++) limiter.charge(connection, 'b', 0, 102_400);
  assert.equal(limiter.admitMessage(connection, 'b', 0), 61);
  assert.equal(limiter.admitMessage(connection, 'b', 60_600), 0);
  const off = build({ LIMITS: 'off' });
  off.limiter.charge(connection, 'a', 0, 1e6);
  assert.equal(off.limiter.addresses, 0);
});

test('broadcasts take tokens from a separate bucket of their address', () => {
  const { limiter } = build();
  const [one, two] = [sender(), sender()];
  assert.equal(
    passed(50, () => limiter.admitBroadcast(one, 'a', 0, 50)),
    20,
  );
  assert.equal(limiter.admitBroadcast(two, 'a', 0, 50), 1);
  assert.equal(limiter.admitBroadcast(two, 'b', 0, 50), 0);
  // 100 KB would cost 25: as much as the bucket holds, one in 20 seconds.
  assert.equal(
    passed(50, () => limiter.admitBroadcast(two, 'c', 0, 102_000)),
    1,
  );
  assert.equal(limiter.admitBroadcast(two, 'c', 0, 102_000), 20);
  assert.equal(limiter.admitBroadcast(two, 'c', 20_000, 102_000), 0);
  assert.equal(limiter.admitMessage(two, 'c', 20_000, 50), 0);
});

test('broadcasts refused too often close the connection, observed ones are counted, and off keeps nothing', () => {
  const { limiter } = build({ MAX_REFUSED_MESSAGES: 2, BROADCASTS_BURST_PER_IP: 1 });
  const connection = sender();
  const answers = Array.from({ length: 4 }, () => limiter.admitBroadcast(connection, 'a', 0, 1));
  assert.deepEqual(answers, [0, 1, 1, -1]);
  const observed = build({ LIMITS: 'observe' });
  assert.equal(
    passed(50, () => observed.limiter.admitBroadcast(connection, 'a', 0, 1)),
    50,
  );
  assert.equal(observed.counters.observed.broadcasts_per_ip, 30);
  const off = build({ LIMITS: 'off' });
  assert.equal(
    passed(50, () => off.limiter.admitBroadcast(connection, 'a', 0, 1)),
    50,
  );
  assert.equal(off.limiter.addresses, 0);
});

test('an address is remembered until its bucket of broadcasts is full again', () => {
  const { limiter } = build();
  for (let i = 0; i < 20; i++) limiter.admitBroadcast(sender(), 'a', 0, 1);
  limiter.sweep(19_999);
  limiter.sweep(19_999);
  assert.equal(limiter.addresses, 1);
  limiter.sweep(20_000);
  limiter.sweep(20_000);
  assert.equal(limiter.addresses, 0);
});

test('each connection has a bucket for frames: 100 at once and ten a second', () => {
  const { limiter, counters } = build();
  const connection = { fullAt: -0.5 };
  const burst = Array.from({ length: 200 }, () => limiter.admitFrame(connection, 0)).filter(
    Boolean,
  );
  assert.equal(burst.length, 100);
  assert.equal(limiter.admitFrame(connection, 99), false);
  assert.equal(limiter.admitFrame(connection, 100), true);
  assert.equal(limiter.admitFrame({ fullAt: -0.5 }, 100), true);
  assert.equal(counters.observed.frames, 0);
});

/** A bucket as a textbook has it: exact, in fractions of a token (1/60,000). */
class NaiveBucket {
  /** @param {number} perMinute @param {number} burst */
  constructor(perMinute, burst) {
    this.perMinute = BigInt(perMinute);
    this.most = BigInt(burst) * 60_000n;
    this.tokens = this.most;
    this.at = 0n;
  }

  /** @param {number} nowMs */
  refill(nowMs) {
    const now = BigInt(nowMs);
    const refilled = this.tokens + (now - this.at) * this.perMinute;
    this.tokens = refilled < this.most ? refilled : this.most;
    this.at = now;
  }

  get has() {
    return this.tokens >= 60_000n;
  }

  get retryAfter() {
    const ms = 1000n * this.perMinute;
    return this.has ? 0 : Number((60_000n - this.tokens + ms - 1n) / ms);
  }
}

test('property: it decides like textbook buckets, in every combination of modes', () => {
  const mode = fc.constantFrom(/** @type {Mode} */ ('off'), 'observe', 'enforce');
  const bucket = fc.record({
    mode,
    perMinute: fc.integer({ min: 1, max: 5000 }),
    burst: fc.integer({ min: 1, max: 20 }),
  });
  const event = fc.record({
    afterMs: fc.oneof(
      fc.constant(0),
      fc.integer({ min: 0, max: 2000 }),
      fc.integer({ min: 0, max: 60_000 }),
    ),
    connection: fc.nat(2),
    sweep: fc.boolean(),
  });
  fc.assert(
    fc.property(
      bucket,
      bucket,
      bucket,
      fc.nat(1e9),
      fc.array(event, { maxLength: 120 }),
      (own, shared, personal, startMs, events) => {
        const { limiter, counters } = build({
          MESSAGES_PER_MINUTE: own.perMinute,
          MESSAGES_BURST: own.burst,
          MESSAGES_PER_MINUTE_MODE: own.mode,
          MESSAGES_PER_MINUTE_PER_IP: shared.perMinute,
          MESSAGES_BURST_PER_IP: shared.burst,
          MESSAGES_PER_MINUTE_PER_IP_MODE: shared.mode,
          MESSAGES_PER_MINUTE_PER_USER: personal.perMinute,
          MESSAGES_BURST_PER_USER: personal.burst,
          MESSAGES_PER_MINUTE_PER_USER_MODE: personal.mode,
        });
        // The first two connections are those of one user; the last one has no token.
        const users = ['ann', 'ann', ''];
        const naivePersonal = new NaiveBucket(personal.perMinute, personal.burst);
        const connections = [sender(), sender(), sender()];
        const naive = connections.map(() => new NaiveBucket(own.perMinute, own.burst));
        const naiveShared = new NaiveBucket(shared.perMinute, shared.burst);
        let now = startMs;
        let observed = 0;
        let observedShared = 0;
        let observedPersonal = 0;
        for (const { afterMs, connection, sweep } of events) {
          now += afterMs;
          if (sweep) limiter.sweep(now);
          const mine = naive[connection];
          mine.refill(now);
          naiveShared.refill(now);
          naivePersonal.refill(now);
          const personalMode = users[connection] === '' ? 'off' : personal.mode;
          const [ownHas, sharedHas, personalHas] = [
            own.mode === 'off' || mine.has,
            shared.mode === 'off' || naiveShared.has,
            personalMode === 'off' || naivePersonal.has,
          ];
          const allHave = ownHas && sharedHas && personalHas;
          const waits = [
            own.mode === 'enforce' ? mine.retryAfter : 0,
            shared.mode === 'enforce' ? naiveShared.retryAfter : 0,
            personalMode === 'enforce' ? naivePersonal.retryAfter : 0,
          ];
          const expected = Math.max(...waits);
          assert.equal(
            limiter.admitMessage(connections[connection], 'a', now, 0, users[connection]),
            expected,
          );
          if (expected > 0) continue;
          if (own.mode === 'enforce' || (allHave && own.mode !== 'off')) mine.tokens -= 60_000n;
          if (shared.mode === 'enforce' || (allHave && shared.mode !== 'off'))
            naiveShared.tokens -= 60_000n;
          if (personalMode === 'enforce' || (allHave && personalMode !== 'off'))
            naivePersonal.tokens -= 60_000n;
          if (!ownHas) observed++;
          if (!sharedHas) observedShared++;
          if (!personalHas) observedPersonal++;
        }
        assert.equal(counters.observed.messages, observed);
        assert.equal(counters.observed.messages_per_ip, observedShared);
        assert.equal(counters.observed.messages_per_user, observedPersonal);
      },
    ),
    { numRuns: 300 },
  );
});

test('property: after retryAfter seconds a message is accepted, and no whole second before', () => {
  const bucket = fc.record({
    perMinute: fc.integer({ min: 1, max: 200 }),
    burst: fc.integer({ min: 1, max: 5 }),
    nowMs: fc.nat(1e9),
  });
  fc.assert(
    fc.property(bucket, ({ perMinute, burst, nowMs }) => {
      const { limiter } = build({
        MESSAGES_PER_MINUTE: perMinute,
        MESSAGES_BURST: burst,
        MESSAGES_PER_MINUTE_PER_IP_MODE: 'off',
      });
      const connection = sender();
      passed(burst, () => limiter.admitMessage(connection, 'a', nowMs));
      const wait = limiter.admitMessage(connection, 'a', nowMs);
      assert.ok(wait >= 1);
      if (wait > 1) assert.ok(limiter.admitMessage(connection, 'a', nowMs + (wait - 1) * 1000) > 0);
      assert.equal(limiter.admitMessage(connection, 'a', nowMs + wait * 1000), 0);
    }),
  );
});

/** A sender with a bucket of its own. @param {ReturnType<typeof build>['limiter']} limiter */
function at(limiter, /** @type {string} */ address, user = '') {
  const connection = sender();
  return (/** @type {number} */ nowMs, bytes = 100) =>
    limiter.admitMessage(connection, address, nowMs, bytes, user);
}

test('at the defaults, two tabs with a cursor at 20 a second, typing notices and a chat pass', () => {
  const { config } = loadConfig({});
  assert.ok(config);
  const limiter = new RateLimiter(config, createCounters());
  const tabs = [at(limiter, 'office', 'ann'), at(limiter, 'office', 'ann')];
  for (let ms = 0; ms < 600_000; ms += 50)
    for (const [i, admit] of tabs.entries()) {
      assert.equal(admit(ms), 0, `tab ${i}, its cursor after ${ms} ms`);
      if (ms % 500 === 0) assert.equal(admit(ms), 0, `tab ${i}, typing after ${ms} ms`);
    }
});

test('a message to a large room costs its tokens again for each started hundred of members', () => {
  const { limiter } = build();
  assert.equal(tokensOfMembers(100, 200), 0);
  assert.equal(tokensOfMembers(101, 200), 1);
  assert.equal(tokensOfMembers(10_000, 200), 99);
  assert.equal(tokensOfMembers(1000, 5000), 18);
  const connection = sender();
  assert.equal(limiter.admitMessage(connection, 'b', 0, 200), 0);
  limiter.chargeTokens(connection, 'b', 0, tokensOfMembers(10_000, 200));
  assert.equal(limiter.admitMessage(connection, 'b', 0, 200), 1);
});

test('deliveries that an address can cause stay the same, whatever the size of the room', () => {
  const { config } = loadConfig({});
  assert.ok(config);
  for (const members of [100, 1000, 10_000, 50_000]) {
    const limiter = new RateLimiter(config, createCounters());
    let deliveries = 0;
    const senders = Array.from({ length: 100 }, sender);
    for (let ms = 0; ms < 60_000; ms += 10)
      for (const connection of senders)
        if (limiter.admitMessage(connection, 'a', ms, 100) === 0) {
          deliveries += members;
          limiter.chargeTokens(connection, 'a', ms, tokensOfMembers(members, 100));
        }
    const perSecond = deliveries / 60;
    assert.ok(perSecond < 10_000, `${perSecond} deliveries a second with ${members} members`);
  }
});

test('a refusal names the limit, its bound and its setting', () => {
  const { config } = loadConfig({});
  assert.ok(config);
  const limiter = new RateLimiter(config, createCounters());
  /** @param {() => number} act */
  const textOf = (act) => {
    while (act() === 0);
    return limiter.exceeded;
  };
  const one = at(limiter, 'a');
  assert.equal(
    textOf(() => one(0)),
    'Too many messages from this connection: 1,800 a minute, 300 at once (FANFARE_MESSAGES_RATE).',
  );
  assert.equal(
    textOf(() => at(limiter, 'b')(0)),
    'Too many messages from your address: 3,600 a minute, 600 at once (FANFARE_MESSAGES_RATE_PER_IP).',
  );
  let addresses = 0;
  assert.equal(
    textOf(() => at(limiter, `${addresses++}`, 'ann')(0)),
    'Too many messages from this user: 3,600 a minute, 600 at once (FANFARE_MESSAGES_RATE_PER_USER).',
  );
  assert.equal(
    textOf(() => limiter.admitBroadcast(sender(), 'c', 0, 100)),
    'Too many broadcasts from your address: 60 a minute, 20 at once (FANFARE_BROADCASTS_RATE_PER_IP).',
  );
  assert.equal(
    textOf(() => limiter.admitStream('d', 0, 8, '', false)),
    'Too many messages from your address: 3,600 a minute, 600 at once (FANFARE_MESSAGES_RATE_PER_IP).',
  );
});

test('free reads of an address have one allowance, full again after 140 s', () => {
  const { limiter, counters } = build({ MAX_CONNECTIONS_PER_IP: 2 });
  const takes = (/** @type {string} */ address, nowMs = 0, bytes = 64 * 1024) =>
    limiter.takeFreeRead(address, nowMs, bytes);
  // 512 KB for each of two connections.
  for (let i = 0; i < 16; i++) assert.equal(takes('a'), true, `${i}`);
  assert.equal(takes('a'), false);
  assert.equal(takes('a', 0, 0), false, 'asked');
  assert.equal(takes('b'), true);
  limiter.sweep(100_000);
  assert.equal(limiter.addresses, 1, 'b is full again');
  for (let i = 0; i < 16; i++) assert.equal(takes('a', 140_000), true);
  assert.equal(takes('a', 140_000), false);
  // The last one may take more than is left.
  assert.equal(takes('c', 0, 1_000_000), true);
  assert.equal(takes('c', 0, 1_000_000), true);
  assert.equal(takes('c', 0, 1), false);
  assert.equal(limiter.admitMessage(sender(), 'a', 140_000), 0, 'messages have their own');
  assert.equal(counters.observed.messages_per_ip, 0);
  const off = build({ LIMITS: 'messages_per_ip=off' }).limiter;
  for (let i = 0; i < 2000; i++) assert.equal(off.takeFreeRead('a', 0, 1_000_000), true);
});
