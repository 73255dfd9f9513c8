// checker.test.js: the checker has no finding for a correct run, and finds each planted fault by its
// invariant and no other.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { Checker } from '../checker/checker.js';
import { INVARIANTS } from '../checker/invariants.js';
import { Model } from '../checker/model.js';
import { PLANTS } from '../checker/plants.js';
import { PLANTS_OF_APPENDS } from '../checker/plants-of-appends.js';
import { PLANTS_OF_AUDIENCES } from '../checker/plants-of-audiences.js';
import { PLANTS_OF_CLIENTS } from '../checker/plants-of-clients.js';
import { PLANTS_OF_STATES } from '../checker/plants-of-states.js';
import { PLANTS_OF_WEBHOOKS } from '../checker/plants-of-webhooks.js';
import { Recorder, readRecord } from '../checker/record.js';
import { checkRecord } from '../checker/report.js';
import { accepted, calm, checked, story, tell, violated } from '../checker/story.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const VALID_RUNS = 100;
const RUNS_OF_EACH_PLANT = 15;
const CHECK = fileURLToPath(new URL('../checker/check.js', import.meta.url));

/** @typedef {import('../checker/record.js').Event} Event */
const ALL_PLANTS = [
  ...PLANTS,
  ...PLANTS_OF_CLIENTS,
  ...PLANTS_OF_STATES,
  ...PLANTS_OF_APPENDS,
  ...PLANTS_OF_WEBHOOKS,
  ...PLANTS_OF_AUDIENCES,
];

test('a correct cluster has no findings, whatever faults happen', () => {
  /** @type {Map<string, number>} */
  const checks = new Map();
  fc.assert(
    fc.property(story, (acts) => {
      const report = checked(tell(new Model({ isMixed: true }), acts).end());
      for (const finding of report.findings) {
        assert.deepEqual(finding.examples, [], finding.id);
        checks.set(finding.id, (checks.get(finding.id) ?? 0) + finding.checks);
      }
      assert.ok(report.isClean);
    }),
    { numRuns: VALID_RUNS },
  );
  // An invariant that is never put to the test would hold as well. The rarest comes some 50 times.
  for (const { id } of INVARIANTS)
    assert.ok((checks.get(id) ?? 0) > VALID_RUNS / 10, `${id}: ${checks.get(id)}`);
});

describe('a planted fault is found by its invariant and no other:', () => {
  for (const { fault, expected, isMixed, act, edit } of ALL_PLANTS) {
    test(`${fault}: ${expected.join(', ')}`, () => {
      fc.assert(
        fc.property(story, fc.nat(), (acts, pick) => {
          const model = tell(new Model({ isMixed }), acts);
          calm(model);
          act?.(model);
          const events = model.end();
          edit?.(events, pick);
          const report = checked(events);
          assert.deepEqual(
            violated(report).sort(),
            [...expected].sort(),
            JSON.stringify(
              report.findings.flatMap(({ id, examples }) =>
                examples.map((text) => `${id} ${text}`),
              ),
            ),
          );
        }),
        { numRuns: RUNS_OF_EACH_PLANT },
      );
    });
  }

  test('each invariant has a planted fault', () => {
    const planted = new Set(ALL_PLANTS.map(({ expected }) => expected[0]));
    assert.deepEqual(
      INVARIANTS.map(({ id }) => id).filter((id) => !planted.has(id)),
      [],
    );
  });
});

test('messages of an earlier connection of a publisher may come late, and do not count as overtaken', () => {
  const model = new Model();
  const late = model.publish('a', 'h.0', 'lost');
  const plain = model.publish('a', 'p.0', 'lost');
  const before = model.events.length;
  model.publish('a', 'h.0');
  model.publish('a', 'p.0');
  for (const event of model.events.slice(before)) if (event.type === 'invoke') event.via = 1;
  model.announce(model.place(late));
  model.announce(plain);
  model.settle();
  assert.deepEqual(violated(checked(model.end())), []);
});

test('a client that got the notice of an outage in time, or that connected later, is no finding', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.emit({ type: 'degraded', client: 0, degraded: true });
  model.publish('a', 'p.0', 'fail');
  for (const waited of [4_500_000, 4_500_000]) {
    model.t += waited;
    model.publish('a', 'p.0', 'fail');
  }
  for (const client of [1, 2]) model.emit({ type: 'degraded', client, degraded: true });
  model.emit({ type: 'degraded', client: 2, degraded: false });
  model.close(3);
  model.open(3, 1);
  model.wait(true);
  const asIs = model.events.length;
  assert.deepEqual(violated(checked(model.end())), []);
  const untold = model.events.filter(
    (event, i) => i > asIs || event.type !== 'degraded' || event.client !== 1,
  );
  assert.deepEqual(violated(checked(untold)), ['I15']);
});

test('a client that is in no room during an outage need not be told', () => {
  for (const leaves of [true, false]) {
    const model = new Model();
    model.faults.hidesOutages = true;
    for (const client of [0, 2, 3]) model.emit({ type: 'degraded', client, degraded: true });
    const { joined } = model.clients[1];
    if (leaves) for (const room of joined) model.emit({ type: 'leave', client: 1, room });
    model.publish('a', 'p.0', 'fail');
    model.wait(true);
    model.publish('a', 'p.0');
    const checker = new Checker();
    for (const event of model.events) checker.see(event);
    const found = checker.findings.filter(({ violations }) => violations > 0);
    assert.deepEqual(
      found.map(({ id }) => id),
      leaves ? [] : ['I15'],
    );
  }
});

test('refusals without any in between for long are two outages, each too short to be told', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.publish('a', 'p.0', 'fail');
  model.wait(false);
  model.publish('a', 'p.0', 'fail');
  assert.deepEqual(violated(checked(model.end())), []);
});

test('an outage of one server must be announced to the clients of that server only', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.wait(true);
  const events = model.end();
  const outageOf = (/** @type {number} */ server) =>
    events.map((event) =>
      event.type === 'invoke' && event.value.startsWith('a:') ? { ...event, server } : event,
    );
  assert.deepEqual(violated(checked(outageOf(0))), ['I15']);
  assert.deepEqual(violated(checked(outageOf(1))), []);
});

test('a revoked token that a fault lets in for a moment is no finding, if its connection is closed', () => {
  const model = new Model({ isMixed: true });
  model.revoke(13);
  model.emit({ type: 'start', name: 'a server is cut off' });
  model.t += 4_000_000;
  model.faults.ignoresRevocations = true;
  model.enter(13);
  model.emit({ type: 'stop', name: 'a server is cut off' });
  model.t += 5_000_000;
  model.exit(13);
  model.faults.ignoresRevocations = false;
  assert.deepEqual(violated(checked(model.end())), []);
});

test('an own message of unknown outcome may come to the next connection', () => {
  const model = new Model({ isMixed: true });
  model.speak(2, 'h.0');
  const events = model.events.length;
  model.close(2);
  model.faults.echoes = true;
  model.open(2, 0);
  const unknown = model
    .end()
    .map((event, i) =>
      i < events && event.type === 'ok' && event.value.startsWith('q2')
        ? { t: event.t, type: /** @type {const} */ ('info'), value: event.value, reason: 'closed' }
        : event,
    );
  assert.deepEqual(violated(checked(unknown)), []);
});

test('a resync with the messages of `last` names the position before them', () => {
  const model = new Model({ isMixed: true });
  accepted(model, 'h.0', 5);
  model.visit(0, 'h.0', 4);
  accepted(model, 'h.0', 1);
  const events = model.end();
  const at = events.findLastIndex((event) => event.type === 'reply' && event.client === 0);
  const { epoch = '', offset = 0, t } = /** @type {any} */ (events[at]);
  const withResync = (/** @type {number} */ to) => [
    ...events.slice(0, at + 1),
    { t, type: /** @type {const} */ ('resync'), client: 0, room: 'h.0', epoch, offset: to },
    // Messages that a client drops if it believes this.
    ...events.slice(at + 1).map((event) => {
      const isOld = event.type === 'deliver' && event.client === 0 && Number(event.offset) <= to;
      return isOld && event.room === 'h.0'
        ? { ...event, type: /** @type {const} */ ('repeat') }
        : event;
    }),
  ];
  assert.deepEqual(violated(checked(withResync(offset - 4))), []);
  assert.notDeepEqual(violated(checked(withResync(offset))), []);
});

test('one refusal, followed by no publish to that server for a while, is not an outage', () => {
  const model = new Model();
  model.faults.hidesOutages = true;
  model.publish('a', 'p.0', 'fail');
  model.wait(false);
  assert.deepEqual(violated(checked(model.end())), []);
});

test('a record that no run can produce is refused, not judged', () => {
  const of = (/** @type {Event[]} */ ...events) =>
    assert.throws(() => checked(events), /the record is wrong/);
  of({ t: 1, type: 'ok', value: 'a:1:p.0' });
  of({ t: 1, type: 'invoke', value: 'a:1:p.0' }, { t: 2, type: 'invoke', value: 'a:1:p.0' });
  of({ t: 2, type: 'connect', client: 1 }, { t: 1, type: 'connect', client: 2 });
  of(
    { t: 1, type: 'run', history: ['h.0'], plain: [] },
    { t: 2, type: 'subscribe', client: 1, room: 'h.0', since: { epoch: 'e', offset: 1 } },
  );
});

test('a truncated record is not reported as clean', () => {
  const events = new Model().end();
  const end = events.findIndex(({ type }) => type === 'end');
  const report = checked(events.slice(0, end));
  assert.deepEqual(violated(report), []);
  assert.equal(report.isComplete, false);
  assert.equal(report.isClean, false);
});

test('the figures have the length of the interruption and the time of the recovery', () => {
  const model = new Model();
  accepted(model, 'h.0', 1);
  model.close(0);
  model.t += 2_000_000;
  accepted(model, 'h.0', 1);
  model.open(0, 0);
  const figures = new Map(checked(model.end()).figures.rows());
  assert.match(String(figures.get('no publish accepted')), /^2,0\d\d ms at the longest/);
  assert.match(String(figures.get('close to caught up')), /p99 20\d\d\.\d ms/);
  assert.match(String(figures.get('recovered')), /^2 true, 0 false; 0 resync/);
});

test('in plain rooms, publications that members did not get are counted as lost', () => {
  const model = new Model();
  accepted(model, 'p.0', 9);
  model.workers[1].isMute = true;
  accepted(model, 'p.0', 1);
  model.workers[1].isMute = false;
  const figures = new Map(checked(model.end()).figures.rows());
  // Two of four clients, one message; two markers go to all four.
  assert.equal(figures.get('plain rooms lost'), '2 of 48 (4.167 %)');
});

test('the command checks a record that was written and read back', (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'record.jsonl');
  const recorder = new Recorder(path);
  const events = new Model().end();
  for (const { t: _, ...what } of events)
    recorder.write(/** @type {import('../checker/record.js').What} */ (what));
  recorder.close();
  recorder.write({ type: 'end' });
  const back = [...readRecord(path)];
  assert.deepEqual(
    back.map(({ t: _, ...what }) => what),
    events.map(({ t: _, ...what }) => what),
  );
  assert.ok(checkRecord(path).isClean);
  assert.match(
    execFileSync(process.execPath, [CHECK, path], { encoding: 'utf8' }),
    /ok: 0 violations/,
  );

  appendFileSync(path, '{"t":1,"type":"connect","client":1}\n');
  assert.throws(() => execFileSync(process.execPath, [CHECK, path], { stdio: 'pipe' }), {
    status: 1,
  });
  appendFileSync(path, 'x\n');
  assert.throws(() => [...readRecord(path)], /is no JSON: x/);
});
