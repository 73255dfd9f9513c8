// redis-fleet.test.js: the workers of a fleet without Redis: counts, leases, rules for rooms, and
// workers of v0.2.0. Messages reach the others at once, or when the test turns the clock.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decodeEnvelope, encodeEnvelope } from '../../src/backend/membership.js';
import { RedisFleet } from '../../src/backend/redis/fleet.js';
import { CHANNEL_KIND, Keys } from '../../src/backend/redis/keys.js';
import { encodeOldReport, renewOldReport } from '../../src/backend/redis/old-workers.js';
import { parseHistoryRules, parseStateRules, RoomRules } from '../../src/config/room-patterns.js';

const KINDS = new Map([
  ['workers', CHANNEL_KIND.FLEET],
  ['census', CHANNEL_KIND.OLD_FLEET],
  ['servers', CHANNEL_KIND.REPORTS],
  ['limits', CHANNEL_KIND.OLD_REPORTS],
]);

/** @typedef {{channel: string, text: string, kind: string, fields: Record<string, any>}} Sent */

/**
 * A fleet on a clock that the test turns.
 * @param {import('node:test').TestContext} t
 */
function fleet(t) {
  t.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  let ms = 0;
  t.mock.method(performance, 'now', () => ms);
  /** @type {Map<string, RedisFleet>} */
  const workers = new Map();
  const clock = { nowMs: 0 };
  const seen = {
    workers,
    /** @type {Sent[]} */
    sent: [],
    /** @type {string[]} */
    faults: [],
    /** @type {string[]} */
    adopted: [],
    /** @param {string} channel @param {Buffer|string} message */
    deliver(channel, message) {
      const bytes = Buffer.from(message);
      const [kind = -1] = [KINDS.get(channel)];
      for (const worker of workers.values()) worker.receive(kind, bytes);
    },
    /** @param {number} forMs @param {number} [stepMs] */
    pass(forMs, stepMs = 50) {
      for (let end = ms + forMs; ms < end; ) {
        const step = Math.min(stepMs, end - ms);
        ms += step;
        clock.nowMs += step;
        t.mock.timers.tick(step);
        for (const worker of workers.values()) worker.membership.tick(clock.nowMs);
      }
    },
    /** Messages about connections or rules since the last call. @param {string} channel */
    take(channel) {
      const taken = seen.sent.filter((one) => one.channel === channel);
      seen.sent = seen.sent.filter((one) => one.channel !== channel);
      return taken;
    },
    /** @param {string} id @param {{history?: string, state?: string}} [texts] */
    join(id, { history = '', state = '' } = {}) {
      const rules = new RoomRules([
        ...(state === '' ? [] : parseStateRules([state], 1000).rules),
        ...(history === '' ? [] : parseHistoryRules([history]).rules),
      ]);
      const worker = new RedisFleet({
        id,
        rules,
        keys: new Keys(''),
        clock,
        bus: {
          send(channel, message) {
            const envelope = decodeEnvelope(message, 1e6);
            const { kind, fields } =
              typeof envelope === 'string' ? { kind: '', fields: {} } : envelope;
            seen.sent.push({ channel, text: `${message}`, kind, fields });
            const to = /^probe:(.*)$/.exec(channel)?.[1];
            if (to === undefined) seen.deliver(channel, message);
            else workers.get(to)?.receive(CHANNEL_KIND.PROBE, message);
          },
          subscribe() {},
          unsubscribe() {},
          tag: () => '',
        },
        onFault: (fault, channel) => seen.faults.push(`${channel} ${fault}`),
        onAdopted: (kind, patterns) => seen.adopted.push(`${id} ${kind} ${patterns}`),
      });
      workers.set(id, worker);
      worker.setLive(true);
      return { worker, rules };
    },
  };
  return seen;
}

/** @param {RedisFleet} worker */
const total = (worker) => worker.connections.total;
/** @param {RedisFleet} worker */
const others = (worker) => worker.membership.others.size;
/** @param {Sent[]} sent */
const counts = (sent) => sent.map(({ kind, fields }) => `${kind} ${fields.connections}`);

test('a new worker learns all counts, and a change reaches all workers at once', (t) => {
  const { join, pass } = fleet(t);
  const a = join('a').worker;
  a.reportConnections(3);
  const b = join('b').worker;
  b.reportConnections(5);
  pass(100);
  assert.deepEqual([total(a), total(b)], [8, 8]);
});

test('many changes within a moment make two reports: the first at once, the last soon after', (t) => {
  const { join, pass, take } = fleet(t);
  const [a, b] = [join('a').worker, join('b').worker];
  pass(1000);
  take('workers');
  for (let i = 1; i <= 100; i++) a.reportConnections(i);
  assert.deepEqual(counts(take('workers')), ['beat 1']);
  pass(60);
  assert.deepEqual(counts(take('workers')), ['beat 100']);
  assert.equal(total(b), 100);
});

test('a count taken while another worker is still reporting waits for its last report', async (t) => {
  const { join, pass } = fleet(t);
  const [a, b] = [join('a').worker, join('b').worker];
  pass(1000);
  assert.equal(await b.countConnections(), 0);
  for (let i = 1; i <= 100; i++) a.reportConnections(i);
  const count = b.countConnections();
  assert.equal(total(b), 1);
  pass(100);
  assert.equal(await count, 100);
});

test('a silent worker counts until its lease ends, a leaving worker no longer', (t) => {
  const { join, pass, workers } = fleet(t);
  const [a, b, c] = ['a', 'b', 'c'].map((id) => join(id).worker);
  b.reportConnections(2);
  c.reportConnections(4);
  pass(100);
  assert.equal(total(a), 6);
  c.leave();
  assert.deepEqual([total(a), others(a)], [2, 1]);
  workers.delete('b');
  pass(5800);
  assert.equal(total(a), 2);
  pass(400);
  assert.deepEqual([total(a), others(a)], [0, 0]);
});

test('a worker that joins a large fleet is answered alone, and learns all counts', (t) => {
  const { join, pass, take } = fleet(t);
  const workers = Array.from({ length: 8 }, (_, i) => join(`w${i}`).worker);
  workers[0].reportConnections(3);
  pass(1000);
  take('workers');
  take('probe:late');
  const late = join('late').worker;
  pass(100);
  assert.deepEqual(counts(take('workers')), ['join 0']);
  const answers = counts(take('probe:late'));
  assert.equal(answers.length, 8);
  assert.ok(answers.includes('beat 3'), answers.join());
  assert.equal(total(late), 3);
});

test('the heartbeat is slower in a large fleet, and no worker is left out in between', (t) => {
  const { join, pass, take, workers } = fleet(t);
  const all = Array.from({ length: 40 }, (_, i) => join(`w${i}`).worker);
  pass(1000);
  all[1].reportConnections(1);
  // The fleet grows at once. The last reports promised the next one within two seconds.
  for (let i = 40; i < 130; i++) {
    all.push(join(`w${i}`).worker);
    if (i % 10 === 9) pass(60, 60);
  }
  for (let i = 0; i < 20; i++) {
    pass(1000, 1000);
    assert.ok(all.every((worker) => others(worker) === 129));
  }
  take('workers');
  pass(21_000, 1000);
  assert.equal(take('workers').length, 3 * 130);
  workers.delete('w1');
  pass(22_000, 1000);
  assert.deepEqual([total(all[0]), others(all[0])], [0, 128]);
});

test('a malformed message counts nothing, one of a later version neither, and both are reported', (t) => {
  const { join, deliver, faults } = fleet(t);
  const a = join('a').worker;
  const sound = { v: 1, kind: 'beat', from: 'b', leaseS: 6, connections: 1, knows: '' };
  const malformed = [
    '',
    'hello',
    'null',
    '[]',
    '{"v":1}',
    ...[
      { v: 0 },
      { v: '1' },
      { from: '' },
      { from: 'x'.repeat(1000) },
      { leaseS: 0 },
      { leaseS: 1.5 },
      { connections: -1 },
      { connections: 1e10 },
      { connections: '1' },
    ].map((fault) => JSON.stringify({ ...sound, ...fault })),
  ];
  for (const text of malformed) deliver('workers', text);
  assert.deepEqual(
    faults,
    malformed.map(() => 'workers malformed'),
  );
  deliver('workers', JSON.stringify({ ...sound, v: 2 }));
  assert.equal(faults.at(-1), 'workers unknown_version');
  assert.deepEqual([total(a), others(a)], [0, 0]);
  deliver('workers', JSON.stringify({ ...sound, kind: 'other' }));
  assert.equal(others(a), 0);
  deliver('workers', JSON.stringify({ ...sound, more: 1 }));
  assert.deepEqual([total(a), others(a)], [1, 1]);
});

test('a worker with rules that this one cannot read is a member all the same', (t) => {
  const { join, deliver, faults, adopted } = fleet(t);
  const a = join('a').worker;
  const beat = { v: 1, kind: 'beat', from: 'b', leaseS: 6, connections: 2, knows: '' };
  const malformed = [
    {},
    null,
    { history: ['h.*=1'], state: [], stateBytes: 0 },
    { history: [], state: ['s.*=1/1h'], stateBytes: 0 },
    { history: Array(101).fill('h.*=5/60s'), state: [], stateBytes: 0 },
  ];
  for (const rules of malformed) deliver('workers', JSON.stringify({ ...beat, rules }));
  assert.deepEqual(faults, Array(malformed.length).fill('workers malformed'));
  assert.deepEqual([total(a), others(a), adopted.length], [2, 1, 0]);
});

test('the number of forged workers is bounded, and their leases are', (t) => {
  const { join, deliver, pass, faults } = fleet(t);
  const a = join('a').worker;
  const fields = { connections: 1, knows: a.rules.knows };
  for (let i = 0; i < 10_100; i++)
    deliver('workers', encodeEnvelope('beat', `invented-${i}`, 1e12, fields));
  assert.equal(others(a), 10_000);
  assert.equal(faults.length, 100);
  deliver('workers', encodeEnvelope('beat', 'invented-0', 1e12, { ...fields, connections: 5 }));
  assert.equal(total(a), 10_004);
  pass(181_000, 1000);
  assert.deepEqual([total(a), others(a)], [0, 0]);
});

test('workers adopt the rules that they lack, then nobody tells rules', (t) => {
  const { join, pass, take, deliver, adopted } = fleet(t);
  const a = join('a', { history: 'h.*=50/60s', state: 's.*=10/1h' });
  join('b', { history: 'h.*=50/60s', state: 's.*=10/1h' });
  pass(1000);
  take('workers');
  const late = join('late', { history: 'other.*=5/60s' });
  pass(80);
  assert.deepEqual(adopted.sort(), [
    'a history other.*',
    'b history other.*',
    'late history h.*',
    'late state s.*',
  ]);
  assert.equal(late.rules.ruleFor('h.1')?.size, 50);
  assert.equal(late.rules.ruleFor('s.1')?.state?.maxBytes, 1000);
  assert.equal(a.rules.ruleFor('other.1')?.size, 5);
  const told = take('workers').filter(({ fields }) => fields.rules !== undefined);
  assert.deepEqual(
    told.map(({ kind }) => kind),
    ['join', 'beat'],
    'those of the newcomer, and those of the two others once',
  );
  deliver('census', '=4 old');
  pass(10_000);
  assert.ok(take('workers').every(({ fields }) => fields.rules === undefined));
});

test('adopted rules for state apply before rules for history, and there are at most 100', (t) => {
  const { join, deliver } = fleet(t);
  const { rules } = join('a', { history: 'x.*=50/60s' });
  const told = (/** @type {string[]} */ history, /** @type {string[]} */ state) =>
    deliver(
      'workers',
      encodeEnvelope('beat', 'b', 6000, {
        connections: 0,
        knows: '',
        rules: { history, state, stateBytes: 1000 },
      }),
    );
  told([], ['x.*=5/1h']);
  assert.equal(rules.ruleFor('x.1')?.state?.maxBytes, 1000);
  told(['x.*=7/60s'], []);
  assert.equal(rules.ruleFor('x.1')?.size, 5);
  for (const from of [0, 90])
    told(
      Array.from({ length: 90 }, (_, i) => `r${from + i}.*=5/60s`),
      [],
    );
  const adopted = Array.from({ length: 180 }, (_, i) => rules.ruleFor(`r${i}.1`)).filter(Boolean);
  assert.equal(adopted.length, 99);
});

test('rules that were lost on their way are told again with a heartbeat', (t) => {
  const { join, pass, workers, adopted } = fleet(t);
  join('a', { history: 'h.*=50/60s' });
  const { worker, rules } = join('b');
  // The answer is lost on its way, and frequent messages do not repeat it.
  workers.delete('b');
  pass(100);
  workers.set('b', worker);
  for (let i = 1; i <= 5; i++) {
    workers.get('a')?.reportConnections(i);
    pass(100);
  }
  assert.equal(total(worker), 5);
  assert.deepEqual(adopted, []);
  pass(4100);
  assert.deepEqual(adopted, ['b history h.*']);
  assert.equal(rules.ruleFor('h.1')?.size, 50);
});

test('a worker that is back from an outage tells its rules to those that joined meanwhile', (t) => {
  const { join, pass, workers, adopted } = fleet(t);
  const a = join('a', { history: 'h.*=50/60s' }).worker;
  pass(1000);
  a.setLive(false);
  workers.delete('a');
  join('b');
  pass(10_000);
  workers.set('a', a);
  a.setLive(true);
  assert.deepEqual(adopted, ['b history h.*']);
});

test('if a whole fleet joins at once, the rules are told once more', (t) => {
  const { join, pass, take } = fleet(t);
  for (let i = 0; i < 50; i++) join(`w${i}`, { history: 'h.*=50/60s' });
  pass(1000);
  take('workers');
  join('without');
  join('too');
  pass(100);
  const told = take('workers').filter(({ fields }) => fields.rules !== undefined);
  assert.equal(told.length, 1);
});

test('a worker that starts waits for the rules of others', async (t) => {
  const { join, pass } = fleet(t);
  join('a', { history: 'h.*=50/60s' });
  const { worker, rules } = join('b');
  let isSettled = false;
  const settled = worker.membership.awaitAnswers().then(() => {
    isSettled = true;
  });
  await Promise.resolve();
  assert.equal(isSettled, false);
  pass(100);
  await settled;
  assert.equal(rules.ruleFor('h.1')?.size, 50);
});

test('with a worker of v0.2.0 all report every two seconds, in its form, too', (t) => {
  const { join, pass, take, deliver } = fleet(t);
  const workers = Array.from({ length: 100 }, (_, i) => join(`w${i}`).worker);
  workers[7].reportConnections(7);
  pass(6000, 500);
  take('census');
  for (const text of ['?old', '=2 old', '=4 old']) deliver('census', text);
  assert.ok(take('census').some(({ text }) => text === '=7 w7;'));
  assert.deepEqual([total(workers[0]), others(workers[0])], [11, 100]);
  pass(6500, 500);
  const told = take('census').filter(({ text }) => text === '=7 w7;');
  assert.ok(told.length >= 2, `${told.length} reports`);
  // It leaves without notice.
  assert.deepEqual([total(workers[0]), others(workers[0])], [7, 99]);
  pass(20_000, 1000);
  assert.deepEqual(take('census'), []);
});

test('workers of v0.2.0 and of this version take rules from each other', (t) => {
  const { join, pass, take, deliver, adopted } = fleet(t);
  join('a', { history: 'h.*=50/60s' });
  pass(1000);
  assert.deepEqual(
    take('census').map(({ text }) => text),
    ['?a;', '#?'],
  );
  deliver('census', '#?');
  pass(100);
  assert.deepEqual(take('census'), [], 'a worker of this version has asked');
  for (const text of ['?old', '=4 old', '#?', '#o.*=5/60000ms']) deliver('census', text);
  pass(100);
  const texts = take('census').map(({ text }) => text);
  assert.equal(texts.filter((text) => text === '#h.*=50/60000ms').length, 1);
  assert.deepEqual(adopted, ['a history o.*']);
  for (let i = 0; i < 100; i++) deliver('census', '#?');
  pass(50);
  assert.equal(take('census').filter(({ text }) => text.startsWith('#h')).length, 1);
});

test('of workers with the same rules, one tells them to workers of v0.2.0', (t) => {
  const { join, pass, take, deliver } = fleet(t);
  for (let i = 0; i < 20; i++) join(`w${i}`, { history: 'h.*=50/60s' });
  pass(1000);
  deliver('census', '=4 old');
  const told = () => take('census').filter(({ text }) => text === '#h.*=50/60000ms').length;
  told();
  deliver('census', '#?');
  pass(50, 1);
  assert.equal(told(), 1);
  for (let s = 0; s < 10; s += 2) {
    deliver('census', '=4 old');
    pass(2000);
  }
  const all = told();
  assert.ok(all >= 3 && all <= 5, `${all} in 10 s`);
});

test('a malformed message of v0.2.0 is reported', (t) => {
  const { join, deliver, faults } = fleet(t);
  const a = join('a').worker;
  const texts = ['', '=', '=x b', '=-1 b', '=99999999999 b', '5 b', '=1', '=1 ', 'hello', '#h.*'];
  for (const text of [...texts, `=1 ${'x'.repeat(1000)}`]) deliver('census', text);
  assert.equal(others(a), 0);
  assert.equal(faults.length, texts.length + 1);
});

test('reports of places reach servers of v0.2.0 in their form, and come from them', (t) => {
  const { join, take, deliver } = fleet(t);
  const a = join('a').worker;
  /** @type {Buffer[]} */
  const reports = [];
  a.receiveReports((report) => reports.push(report));
  const places = { '192.0.2.1': 3, __proto__: 1 };
  const report = encodeEnvelope('places', '0123456789abcdef', 5000, { places });
  a.sendReport(report);
  assert.deepEqual(take('limits'), []);
  deliver('census', '=4 old');
  a.sendReport(report);
  assert.equal(take('limits').length, 1);
  assert.deepEqual(
    reports.map((one) => JSON.parse(`${one}`)),
    Array(3).fill(JSON.parse(`${report}`)),
  );
});

test('a report in the form of v0.2.0 is read as it was written, and no bytes make its reader throw', () => {
  const key = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 60 });
  fc.assert(
    fc.property(fc.dictionary(key, fc.integer({ min: 1, max: 1e7 })), (places) => {
      const report = renewOldReport(encodeOldReport('0123456789abcdef', places));
      assert.deepEqual(JSON.parse(`${report}`).places, JSON.parse(JSON.stringify(places)));
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      renewOldReport(Buffer.from([1, ...bytes]));
      decodeEnvelope(Buffer.from(bytes), 1000);
    }),
  );
});
