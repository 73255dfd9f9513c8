// recovery-model.test.js: recovery under random faults, beside a model of what each client must receive.
//
// One room, a broker and clients, with random events. The broker loses, delays and swaps
// announcements, answers reads early, late or never, goes away and comes back, and begins new epochs.
// Clients join, leave and come back with their last position. Each client is checked as its
// application would see it.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { build, publication, settle, TEN_SECONDS } from '../helpers/recovery.js';
import { away } from '../helpers/stream-broker.js';

/** @typedef {ReturnType<typeof build>} Built */
/** @typedef {{kind: string, a: number, b: number}} Step */
/** @typedef {{epoch: string, offset: number}} Position */

const KINDS = [
  ...[
    'publish',
    'publish',
    'publish',
    'publish',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
    'deliver',
  ],
  ...['lose', 'swap', 'newEpoch', 'join', 'join', 'rejoin', 'rejoin', 'rejoin', 'leave', 'close'],
  ...[
    'subscribed',
    'subscribed',
    'subscribed',
    'refuse',
    'answer',
    'answer',
    'answer',
    'answer',
    'executeFirst',
  ],
  ...['failRead', 'away', 'back', 'turn', 'turn', 'turn', 'tick', 'evict', 'full', 'repeat'],
];

/** Counts of a random run. */
const NO_COUNTS = Object.freeze({
  recovered: 0,
  insufficient: 0,
  resyncs: 0,
  messages: 0,
  omitted: 0,
  latest: 0,
});

class Model {
  constructor() {
    this.built = build({ isManual: true, size: 8 });
    this.built.outbox.isFull = (room) => room.waiting.length >= this.maxWaiting;
    this.maxWaiting = 1000;
    this.next = 0;
    /** By epoch and offset. @type {Map<string, {payload: unknown, except: string}>} */
    this.truth = new Map();
    /**
     * @type
     *   {({client: ReturnType<Built['connect']>, at: Position|null, since: any, last: number, seen: number, isIn: boolean, replayed: number, latest: {left: number, offset: number, isFirst: boolean}|null}|null)[]}
     */
    this.clients = [null, null, null, null];
    this.counts = { ...NO_COUNTS };
  }

  /** @param {Step} step */
  async run({ kind, a, b }) {
    const { broker, hub, outageNotice, scheduler } = this.built;
    const i = a % this.clients.length;
    const one = this.clients[i];
    switch (kind) {
      case 'publish': {
        for (let left = a % 10 === 0 ? 10 : 1; left > 0; left--) {
          const payload = ++this.next;
          // Now and then a client leaves itself out.
          const except = b % 3 === 0 ? (one?.client.connection.id ?? '') : '';
          const { epoch, offset } = broker.accept('h', publication(payload, except));
          this.truth.set(`${epoch}:${offset}`, { payload, except });
        }
        break;
      }
      case 'repeat':
        broker.announcements.unshift(...this.delivered.slice(-1 - (a % 4)));
        break;
      case 'deliver':
        this.delivered = broker.announcements.slice(0, 1 + (a % 3));
        return broker.deliver(1 + (a % 3));
      case 'lose':
        return void broker.announcements.splice(0, 1 + (a % 12));
      case 'swap':
        if (broker.announcements.length > 1)
          broker.announcements.push(/** @type {any} */ (broker.announcements.shift()));
        break;
      case 'newEpoch':
        return broker.forget('h');
      case 'join':
      case 'rejoin':
        if (one === null) this.join(i, kind === 'rejoin' ? a : b);
        break;
      case 'leave':
        one?.client.say({ type: 'leave', room: 'h' });
        break;
      case 'close':
        if (one === null) break;
        this.check(i);
        hub.removeConnection(one.client.connection);
        this.keep(i, one);
        this.clients[i] = null;
        break;
      case 'subscribed':
        return broker.subscribing.shift()?.resolve();
      case 'refuse':
        if (a % 4 === 0) broker.subscribing.shift()?.reject(away());
        break;
      case 'answer':
        return broker.answer();
      case 'executeFirst': {
        // The store has answered, and the answer is under way.
        const read = broker.reads[0];
        if (read === undefined) break;
        const page = broker.look(read.room, read);
        broker.look = (
          (look) => (room, from) =>
            from === read ? page : look.call(broker, room, from)
        )(broker.look);
        break;
      }
      case 'failRead':
        return broker.reads.shift()?.reject(away());
      case 'away':
        return outageNotice.onState('degraded');
      case 'back':
        return outageNotice.onState('up');
      case 'turn':
        return settle();
      case 'tick':
        return this.built.tick(1 + (a % 4));
      case 'evict':
        for (const buffer of [...scheduler.replayBudget.used]) buffer.evict();
        break;
      case 'full':
        this.maxWaiting = a % 3 === 0 ? 2 : 1000;
        break;
    }
  }

  /** The latest announcements. @type {import('../helpers/stream-broker.js').Announcement[]} */
  delivered = [];

  /** @type {Record<number, (Position & {connectionId?: string})|null>} */
  past = {};

  /**
   * A client stores its position; every other client stores its connection too.
   * @param {number} i @param {{client: ReturnType<Built['connect']>, at: Position|null}} one
   */
  keep(i, { client, at }) {
    const named = i % 2 === 0 ? {} : { connectionId: client.connection.id };
    this.past = { ...this.past, [i]: at === null ? null : { ...at, ...named } };
  }

  /**
   * Skips the messages behind a client's position that it must not get.
   * @param {{client: ReturnType<Built['connect']>, at: Position|null, since: any}} one
   * @param {number} [replayed] up to this offset a replay also leaves out those of the connection
   *   that `since` names
   */
  skip({ client, at, since }, replayed = 0) {
    for (;;) {
      if (at === null) return;
      const except = this.truth.get(`${at.epoch}:${at.offset + 1}`)?.except ?? '';
      const isFormer = at.offset < replayed && except === since?.connectionId;
      if (except === '' || !(except === client.connection.id || isFormer)) return;
      at.offset++;
      this.counts.omitted++;
    }
  }

  /** @param {number} i @param {number} how */
  join(i, how) {
    const { broker } = this.built;
    const client = this.built.connect();
    const { epoch, offset } = broker.stream('h');
    const kept = this.past[i] ?? null;
    // The client's last position; or nothing; or a position from another worker, as far as the
    // store; or a lie.
    const since = [
      kept,
      kept,
      kept,
      null,
      { epoch, offset },
      { epoch, offset: Math.max(0, offset - (how % 11)) },
    ][how % 6];
    const told = how % 17 === 0 ? { epoch, offset: offset + 5 } : since;
    const last = how % 5 === 0 ? 1 + (how % 13) : 0;
    this.clients[i] = {
      client,
      at: null,
      since: told,
      last,
      seen: 0,
      isIn: false,
      replayed: 0,
      latest: null,
    };
    const sent = { ...(told === null ? {} : { since: told }), ...(last === 0 ? {} : { last }) };
    client.say({ type: 'join', room: 'h', ...sent });
  }

  /** The events of the client's application that were not looked at yet. @param {number} i */
  check(i) {
    const one = this.clients[i];
    if (one === null) return;
    const messages = one.client.transport.messages();
    for (const message of messages.slice(one.seen)) {
      const { type, epoch, offset } = message;
      if (type === 'joined') {
        assert.equal(one.isIn, false);
        one.isIn = true;
        if (message.recovered) {
          this.counts.recovered++;
          assert.equal(epoch, one.since.epoch, 'recovered in another epoch');
          assert.ok(one.since.offset <= offset, 'recovered from the future');
          one.at = { epoch, offset: one.since.offset };
          one.replayed = offset;
        } else {
          this.counts.insufficient++;
          one.at = { epoch, offset };
          one.replayed = 0;
          const { replayed = 0 } = message;
          assert.ok(replayed <= one.last, 'more than it asked for');
          // The latest messages begin somewhere, and end at the position.
          if (replayed > 0) one.latest = { left: replayed, offset, isFirst: true };
        }
      } else if (type === 'message') {
        assert.ok(one.isIn && one.at, 'a message outside the room');
        this.counts.messages++;
        const { latest } = one;
        if (latest?.isFirst) {
          assert.ok(offset > latest.offset - one.last, 'older than the latest');
          one.at.offset = offset - 1;
          latest.isFirst = false;
        }
        this.skip(one, one.replayed);
        assert.deepEqual([epoch, offset], [one.at.epoch, one.at.offset + 1]);
        assert.equal(message.payload, this.truth.get(`${epoch}:${offset}`)?.payload);
        one.at.offset = offset;
        if (latest !== null && --latest.left === 0) {
          this.counts.latest++;
          assert.ok(offset <= latest.offset, 'a live message among the latest');
          this.skip(one);
          assert.ok(one.at.offset >= latest.offset, 'not up to the position');
          one.latest = null;
        }
      } else if (type === 'resync') {
        assert.ok(one.isIn && one.latest === null, 'resync outside the room, or in a replay');
        this.counts.resyncs++;
        one.at = { epoch, offset };
      } else if (type === 'left') {
        one.isIn = false;
        this.keep(i, one);
      }
    }
    one.seen = messages.length;
  }

  /** All faults end. After some time all clients are at the position of the store. */
  async heal() {
    const { broker, outageNotice, scheduler, tick, hub } = this.built;
    this.maxWaiting = 1000;
    outageNotice.onState('up');
    broker.isManual = false;
    for (let round = 0; round < 3; round++) {
      for (const { resolve } of broker.subscribing.splice(0)) resolve();
      while (broker.reads.length > 0) broker.answer();
      broker.deliver();
      await tick(TEN_SECONDS + 8);
    }
    assert.ok(broker.allReads.length < 1000, `${broker.allReads.length} reads`);
    assert.equal(scheduler.waitingJoins, 0, 'a join was never answered');
    assert.equal(outageNotice.isOn, false);
    const { epoch, offset } = broker.stream('h');
    for (const [i, one] of this.clients.entries()) {
      this.check(i);
      if (one !== null) this.skip(one, one.replayed);
      if (one?.isIn) assert.deepEqual(one.at, { epoch, offset }, `client ${i} is left behind`);
    }
    for (const one of this.clients) if (one !== null) hub.removeConnection(one.client.connection);
    assert.deepEqual(
      [hub.rooms.size, this.built.counters.replayBufferBytes, this.built.counters.queueDepth],
      [1, 0, 0],
    );
  }
}

test('under any faults no client has a gap, a repeat or a false recovery, and all end at the position of the store', async () => {
  const totals = { ...NO_COUNTS };
  const step = fc.record({ kind: fc.constantFrom(...KINDS), a: fc.nat(1000), b: fc.nat(1000) });
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { minLength: 60, maxLength: 250, size: 'max' }),
      async (steps) => {
        const model = new Model();
        for (const one of steps) {
          await model.run(one);
          for (let i = 0; i < model.clients.length; i++) model.check(i);
        }
        await model.heal();
        for (const key of /** @type {(keyof typeof totals)[]} */ (Object.keys(totals)))
          totals[key] += model.counts[key];
      },
    ),
    {
      numRuns: Number(process.env.RUNS ?? 400),
      // fast-check shrinks a failure. It stops before the file's time-out, because the time-out would
      // hide the failure.
      plugins: [fc.interruptAfterTimeLimit(60_000, { failOnInterrupt: true })],
    },
  );
  // The runs must have reached the interesting states.
  assert.ok(
    totals.messages > 500 && Object.values(totals).every((total) => total > 50),
    JSON.stringify(totals),
  );
});
