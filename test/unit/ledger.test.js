// The check of the Artillery scenarios must find every loss of a message that was due, and report no
// other message as lost.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Ledger } from '../../loadtest/artillery/ledger.js';

const ROOM = 'general';

test('a member that got every message sent during its membership misses nothing', () => {
  const ledger = new Ledger();
  ledger.accept(ROOM, 'ada', 1, 10);
  const member = ledger.join(ROOM, 20);
  ledger.accept(ROOM, 'ada', 2, 30);
  ledger.accept(ROOM, 'bob', 1, 31);
  assert.equal(member.outstanding(), 2);
  assert.equal(member.receive('ada', 2), 0);
  assert.equal(member.receive('bob', 1), 0);
  assert.equal(member.outstanding(), 0);
});

test('a gap in a publisher’s messages counts as lost when a later message arrives', () => {
  const ledger = new Ledger();
  const member = ledger.join(ROOM, 0);
  for (const n of [1, 2, 3, 4]) ledger.accept(ROOM, 'ada', n, n);
  assert.equal(member.receive('ada', 1), 0);
  assert.equal(member.receive('ada', 4), 2);
  assert.equal(member.outstanding(), 0);
});

test('messages missing at the beginning, at the end, or altogether are outstanding', () => {
  const ledger = new Ledger();
  const member = ledger.join(ROOM, 0);
  for (const n of [1, 2, 3, 4]) ledger.accept(ROOM, 'ada', n, n);
  assert.equal(member.outstanding(), 4);
  member.receive('ada', 3);
  assert.equal(member.outstanding(), 3);
  ledger.accept(ROOM, 'bob', 1, 9);
  assert.equal(member.outstanding(), 4);
});

test('messages sent before the member got its join reply are optional', () => {
  const ledger = new Ledger();
  const [here, there] = [ledger.join(ROOM, 20), ledger.join(ROOM, 20)];
  ledger.accept(ROOM, 'ada', 1, 19);
  ledger.accept(ROOM, 'ada', 2, 21);
  assert.equal(here.receive('ada', 1), 0);
  for (const member of [here, there]) assert.equal(member.receive('ada', 2), 0);
  assert.deepEqual([here.outstanding(), there.outstanding()], [0, 0]);
});

test('a delivery that arrives before its ack is neither lost nor a duplicate', () => {
  const ledger = new Ledger();
  const member = ledger.join(ROOM, 0);
  assert.equal(member.receive('ada', 1), 0);
  assert.equal(member.outstanding(), 0);
  ledger.accept(ROOM, 'ada', 1, 5);
  assert.equal(member.outstanding(), 0);
});

test('a repeated or reordered delivery is reported', () => {
  const ledger = new Ledger();
  const member = ledger.join(ROOM, 0);
  assert.equal(member.receive('ada', 1), 0);
  assert.equal(member.receive('ada', 1), -1);
  assert.equal(member.receive('ada', 3), 1);
  assert.equal(member.receive('ada', 2), -1);
});

test('an ended publisher is forgotten when no member still waits for its messages', () => {
  const ledger = new Ledger();
  const member = ledger.join(ROOM, 0);
  ledger.accept(ROOM, 'ada', 1, 1);
  const late = ledger.join(ROOM, 5);
  ledger.accept(ROOM, 'bob', 1, 6);
  for (const publisher of ['ada', 'bob']) ledger.end(ROOM, publisher);
  late.leave();
  assert.equal(member.outstanding(), 2);
  const last = ledger.join(ROOM, 7);
  member.leave();
  assert.equal(ledger.rooms.get(ROOM)?.publishers.size, 0);
  assert.equal(last.outstanding(), 0);
});

test('property: while members join and leave, the lost messages are those that were due and dropped', () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.nat(99)), fc.boolean(), (stream, isFaulty) => {
      const ledger = new Ledger();
      const next = () => /** @type {number} */ (stream.next().value);
      /** @type {{name: string, n: number}[]} */
      const publishers = [];
      /**
       * @type
       *   {{member: ReturnType<Ledger['join']>, found: number, dropped: number, repeated: number}[]}
       */
      let present = [];
      /** @type {{found: number, dropped: number, repeated: number}[]} */
      const gone = [];
      for (let ms = 0; ms < 200; ms++) {
        const dice = next();
        if (dice < 10) {
          publishers.push({ name: `p${ms}`, n: 0 });
        } else if (dice < 20) {
          present.push({ member: ledger.join(ROOM, ms), found: 0, dropped: 0, repeated: 0 });
        } else if (dice < 30 && present.length > 0) {
          const [one] = present.splice(next() % present.length, 1);
          one.found += one.member.outstanding();
          one.member.leave();
          gone.push(one);
        } else if (dice < 34 && publishers.length > 0) {
          ledger.end(ROOM, publishers.splice(next() % publishers.length, 1)[0].name);
        } else if (publishers.length > 0) {
          const publisher = publishers[next() % publishers.length];
          publisher.n++;
          const isAckedFirst = next() < 50;
          if (isAckedFirst) ledger.accept(ROOM, publisher.name, publisher.n, ms);
          for (const one of present) {
            if (isFaulty && next() < 5) {
              one.dropped++;
              continue;
            }
            const lost = one.member.receive(publisher.name, publisher.n);
            if (lost > 0) one.found += lost;
            if (lost < 0) one.repeated++;
          }
          if (!isAckedFirst) ledger.accept(ROOM, publisher.name, publisher.n, ms);
        }
      }
      for (const one of present) gone.push({ ...one, found: one.found + one.member.outstanding() });
      present = [];
      for (const { found, dropped, repeated } of gone) {
        assert.equal(found, dropped);
        assert.equal(repeated, 0);
        if (!isFaulty) assert.equal(found, 0);
      }
    }),
    { numRuns: 200 },
  );
});
