// courier-interleavings.test.js: couriers that share a partition of events, while the queue is slow
// or loses answers, the receiver fails, and couriers die, close and stand still past their leases,
// in any order: only the owner sends, and in the end the receiver knows the truth.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import pino from 'pino';
import { WebhookDelivery } from '../../src/webhooks/delivery.js';
import { partitionOf } from '../../src/webhooks/queue.js';
import { BUSY, CRASHED, FAILED, joined, left, message, OK } from '../helpers/courier.js';
import { inAllOrders, inOrder } from '../helpers/interleavings.js';
import { MemoryQueue } from '../helpers/memory-queue.js';

const RUNS = 60;
/** The first partition has this room. */
const ROOM = Array.from({ length: 200 }, (_, i) => `r${i}`).find((room) => partitionOf(room) === 0);
const USERS = ['ann', 'bob'];
const STEP_MS = 250;
/** Leases end, and events that failed are due again, up to 30 s apart. */
const CALM_STEPS = 480;
const START = 1_700_000_000_000;
const SCHEDULED = /** @type {const} */ (['acquire', 'renew', 'release', 'load', 'read', 'commit']);
const ENDPOINT = {
  name: 'one',
  url: 'http://localhost/',
  secrets: ['whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'],
  types: /** @type {any} */ (['member.joined', 'member.left', 'message.published']),
  rooms: ['*'],
  graceMs: 500,
  maxAgeS: 86_400,
  maxPending: 10_000,
  timeoutMs: 15_000,
  concurrency: 4,
  pusher: null,
};

/** @typedef {import('../helpers/interleavings.js').Scheduler} Scheduler */
/** @typedef {{next: () => {value?: number}}} Draws */
/** @typedef {'flips'|'publishes'|'passes'|'stalls'|'dies'|'closes'|'down'} What */
/** @typedef {{what: What, user: string}} Step */

/** @type {What[]} */
const OFTEN = ['flips', 'flips', 'flips', 'publishes', 'passes', 'passes', 'passes'];
/** @type {fc.Arbitrary<Step>} */
const step = fc.record({
  what: fc.constantFrom(...OFTEN, ...OFTEN, 'stalls', 'dies', 'closes', 'down'),
  user: fc.constantFrom('ann', 'ann', ...USERS),
});

/** What the receiver has of events, as docs/webhooks.md asks: each id once, the latest wins. */
class Receiver {
  constructor() {
    /** @type {Set<string>} */
    this.ids = new Set();
    /** @type {Map<string, number>} */
    this.sequences = new Map();
    /** @type {Set<string>} */
    this.users = new Set();
    /** @type {number[]} */
    this.messages = [];
    /** The first rule that was broken. @type {string|undefined} */
    this.fault = undefined;
  }

  /** @param {string} id @param {string} type @param {Record<string, any>} data */
  take(id, type, data) {
    if (this.ids.has(id)) return;
    this.ids.add(id);
    // One that has failed three times comes later.
    if (type === 'message.published') return void this.messages.push(data.payload);
    const { user, sequence } = data;
    const before = this.sequences.get(user) ?? 0;
    if (sequence <= before) this.fault ??= `${type} ${user}: ${sequence} after ${before}`;
    this.sequences.set(user, sequence);
    this.users[type === 'member.joined' ? 'add' : 'delete'](user);
  }
}

class Courier {
  /** @param {Scene} scene @param {string} name */
  constructor(scene, name) {
    this.scene = scene;
    this.name = name;
    this.isDead = false;
    this.fence = 0;
    const { queue, s } = scene;
    const connected = /** @type {any} */ (queue.connect());
    for (const call of SCHEDULED) {
      const method = connected[call];
      connected[call] = (/** @type {any[]} */ ...args) =>
        this.#call(s, call, () => method(...args));
    }
    this.delivery = new WebhookDelivery({
      queue: connected,
      endpoints: [ENDPOINT],
      requester: { post: (_settings, sent) => this.#post(sent) },
      now: () => Date.now() - START,
      random: () => 0.5,
      log: pino({ level: 'silent' }),
    });
    this.delivery.partitions.splice(1);
    this.delivery.start();
  }

  /**
   * The call reaches the queue in one step, and its answer the courier in another.
   * @param {Scheduler} s @param {string} call @param {() => Promise<any>} act
   */
  async #call(s, call, act) {
    await s.schedule(Promise.resolve(), `${this.name}: ${call} arrives`);
    if (this.isDead) return new Promise(() => {});
    const answer = await act();
    const isLost = !this.scene.isCalm && this.scene.draws(12) === 0;
    await s.schedule(Promise.resolve(), `${this.name}: ${call} is ${isLost ? 'lost' : 'answered'}`);
    if (this.isDead) return new Promise(() => {});
    if (isLost) throw new Error('the connection is lost');
    if (call === 'acquire' && answer !== null) this.fence = answer;
    return answer;
  }

  /** @param {import('../../src/webhooks/message.js').Message} message @returns {Promise<any>} */
  async #post({ id, body }) {
    const { scene, name } = this;
    if (this.isDead) return new Promise(() => {});
    const [partition] = scene.queue.partitions;
    const isOwner = partition.fence === this.fence && Date.now() < partition.leaseEnd;
    if (!isOwner) scene.receiver.fault ??= `${name} sends without a lease`;
    const { type, data } = JSON.parse(body);
    const outcome = scene.isCalm ? OK : [OK, OK, OK, OK, FAILED, BUSY, CRASHED][scene.draws(7)];
    // A receiver that crashes may have taken the event.
    if (outcome === OK || (outcome === CRASHED && scene.draws(2) === 0))
      scene.receiver.take(id, type, data);
    await scene.s.schedule(
      Promise.resolve(),
      `${name}: ${type} ${data.user ?? ''} ${outcome.outcome}`,
    );
    return this.isDead ? new Promise(() => {}) : outcome;
  }
}

class Scene {
  /** @param {Scheduler} s @param {Draws} draws @param {(ms: number) => void} pass */
  constructor(s, draws, pass) {
    this.s = s;
    this.pass = pass;
    this.isCalm = false;
    this.queue = new MemoryQueue();
    this.receiver = new Receiver();
    /** @type {Set<string>} */
    this.users = new Set();
    this.messages = 0;
    /** @param {number} below */
    this.draws = (below) => Number(draws.next().value) % below;
    this.started = 0;
    this.couriers = [this.#start(), this.#start()];
  }

  #start() {
    return new Courier(this, `courier ${++this.started}`);
  }

  /** @param {Step} step */
  take({ what, user }) {
    const { queue, users, couriers } = this;
    this.pass(STEP_MS);
    if (what === 'flips') {
      const isIn = users.has(user);
      users[isIn ? 'delete' : 'add'](user);
      queue.record(isIn ? left(user, ROOM) : joined(user, ROOM));
    } else if (what === 'publishes') queue.record(message(++this.messages, ROOM));
    else if (what === 'passes') this.pass(3 * STEP_MS);
    else if (what === 'stalls') for (let i = 0; i < 48; i++) this.pass(STEP_MS);
    else if (what === 'down') {
      queue.isDown = true;
      inOrder(this.s, [['the queue is back', () => void (queue.isDown = false)]]);
    } else {
      const courier = /** @type {Courier} */ (couriers.shift());
      if (what === 'dies') courier.isDead = true;
      else courier.delivery.close();
      couriers.push(this.#start());
    }
  }

  async calm() {
    this.isCalm = true;
    for (let i = 0; i < CALM_STEPS && !this.isDone; i++) {
      this.pass(STEP_MS);
      await this.s.waitIdle();
    }
  }

  get isDone() {
    const [{ entries }] = this.queue.partitions;
    return entries.length === 0 && this.queue.pending === 0;
  }

  check() {
    const { receiver, users, messages } = this;
    assert.equal(receiver.fault, undefined);
    assert.ok(this.isDone, 'all is delivered');
    assert.deepEqual([...receiver.users].sort(), [...users].sort());
    const all = Array.from({ length: messages }, (_, i) => i + 1);
    assert.deepEqual(
      receiver.messages.toSorted((a, b) => a - b),
      all,
    );
  }
}

test('only the owner of a partition sends, and the receiver ends with the truth', async (t) => {
  const { timers } = t.mock;
  const pass = (/** @type {number} */ ms) => timers.tick(ms);
  await inAllOrders(
    [fc.infiniteStream(fc.nat(999)), fc.array(step, { maxLength: 40, size: 'max' })],
    async (s, draws, steps) => {
      timers.reset();
      timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: START });
      const scene = new Scene(s, draws, pass);
      inOrder(
        s,
        steps.map((one) => [`${one.what} ${one.user}`, () => scene.take(one)]),
      );
      await s.waitIdle();
      await scene.calm();
      scene.check();
      for (const courier of scene.couriers) courier.isDead = true;
    },
    RUNS,
  );
});
