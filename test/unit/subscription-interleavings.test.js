// subscription-interleavings.test.js: channels of a worker whose slots move between two nodes of a
// cluster, while answers, looks at the slots and losses of connections come in any order: in the end
// each wanted channel is heard, and who may have missed messages has been told.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { ReplyError } from 'ioredis';
import { RedisCluster } from '../../src/backend/redis/cluster.js';
import { SLOTS, slotOf, slotOfTag } from '../../src/backend/redis/slots.js';
import { Subscriber } from '../../src/backend/redis/subscriber.js';
import { inAllOrders, settle } from '../helpers/interleavings.js';

const RUNS = 300;
const CHANNELS = ['room:{1}', 'room:{2}', 'other:{2}'];
const MOVABLE = [...new Set(CHANNELS.map(slotOf))];
const [A, B] = [7001, 7002];

/** @typedef {{resolve: (value?: unknown) => void, reject: (error: Error) => void}} Settle */
/** @typedef {Settle & {name: 'ssubscribe'|'sunsubscribe', channels: string[], left: number}} Command */
/** The end of a subscription, or the answer for one channel. @typedef {{error: string}|{push: Command['name']}} Frame */
/** @typedef {[first: number, last: number, node: [host: string, port: number]]} Range */

/**
 * @typedef {{what: 'want'|'unwant', channel: string}|{what: 'serve'|'cut'|'connect', port: number}|{what: 'read', port: number, frames: number}|{what: 'move', slot: number, to: number|null}|{what: 'bounce', slot: number}|{what: 'look'|'learn'}|{what: 'pass', ms: number}}
 *   Step
 */

const port = fc.constantFrom(A, B);
const channel = fc.constantFrom(...CHANNELS);
/** `isTogether`: nothing else of the worker runs before the next step. */
const step = fc.record({
  isTogether: fc.integer({ min: 0, max: 3 }).map((n) => n === 0),
  step: /** @type {fc.Arbitrary<Step>} */ (
    fc.oneof(
      { weight: 5, arbitrary: fc.record({ what: fc.constant('serve'), port }) },
      {
        weight: 6,
        arbitrary: fc.record({
          what: fc.constant('read'),
          port,
          frames: fc.integer({ min: 1, max: 3 }),
        }),
      },
      { weight: 4, arbitrary: fc.record({ what: fc.constantFrom('look', 'learn') }) },
      {
        weight: 6,
        arbitrary: fc.record({
          what: fc.constantFrom('want', 'want', 'unwant'),
          channel,
        }),
      },
      {
        weight: 2,
        arbitrary: fc.record({
          what: fc.constant('move'),
          slot: fc.constantFrom(...MOVABLE),
          to: fc.constantFrom(A, B, null),
        }),
      },
      {
        weight: 2,
        arbitrary: fc.record({ what: fc.constant('bounce'), slot: fc.constantFrom(...MOVABLE) }),
      },
      {
        weight: 1,
        arbitrary: fc.record({ what: fc.constant('pass'), ms: fc.constantFrom(30, 100, 2500) }),
      },
      {
        weight: 2,
        arbitrary: fc.record({ what: fc.constantFrom('cut', 'connect', 'connect'), port }),
      },
    )
  ),
});

/** The worker's connection to a node, and the node's end of it. ioredis matches answers as here. */
class Connection {
  isWritable = false;
  describe = String;
  /** What Redis has subscribed. @type {Set<string>} */
  heard = new Set();
  /** Not executed yet. @type {Command[]} */
  sent = [];
  /** Not read yet. @type {Frame[]} */
  frames = [];
  /** Not answered yet. @type {Command[]} */
  waiting = [];
  onMoved = () => {};
  redis = {
    ssubscribe: (/** @type {string[]} */ ...channels) => this.#send('ssubscribe', channels),
    sunsubscribe: (/** @type {string[]} */ ...channels) => this.#send('sunsubscribe', channels),
  };

  /** @param {Scene} scene @param {number} port */
  constructor(scene, port) {
    this.scene = scene;
    this.port = port;
    this.subscriber = new Subscriber({
      connection: /** @type {any} */ (this),
      isSharded: true,
      roomLingerMs: 2000,
      timeoutMs: 1500,
      onLive() {},
      onRefused: () => scene.cluster.stale(null),
      onMoved: (channels) => scene.tell(channels),
    });
  }

  /** @param {Command['name']} name @param {string[]} channels */
  #send(name, channels) {
    return new Promise((resolve, reject) => {
      const command = { name, channels, left: channels.length, resolve, reject };
      this.sent.push(command);
      this.waiting.push(command);
    });
  }

  /** Redis executes a command. */
  serve() {
    const command = this.sent.shift();
    if (command === undefined) return;
    const { name, channels } = command;
    if (name === 'ssubscribe' && this.scene.ownerOf(slotOf(channels[0])) !== this.port) {
      this.frames.push({ error: 'MOVED' });
      return;
    }
    for (const one of channels) {
      this.heard[name === 'ssubscribe' ? 'add' : 'delete'](one);
      this.frames.push({ push: name });
    }
  }

  /** The slot has left. @param {number} slot */
  end(slot) {
    for (const one of this.heard)
      if (slotOf(one) === slot && this.heard.delete(one))
        this.frames.push({ push: 'sunsubscribe' });
  }

  /** The worker reads some frames at once. @param {number} count */
  read(count) {
    for (const frame of this.frames.splice(0, count)) {
      const [head] = this.waiting;
      if ('error' in frame) {
        this.waiting.shift();
        this.onMoved();
        head.reject(new ReplyError(`${frame.error} 1 127.0.0.1:7001`));
      } else if (head?.name !== frame.push) this.onMoved();
      else if (--head.left === 0) {
        this.waiting.shift();
        head.resolve();
      }
    }
  }

  connect() {
    if (this.isWritable) return;
    this.isWritable = true;
    this.subscriber.restore();
  }

  destroy() {
    if (!this.isWritable) return;
    this.isWritable = false;
    this.heard.clear();
    this.sent = [];
    this.frames = [];
    this.subscriber.lose();
    for (const { reject } of this.waiting.splice(0)) reject(new Error('Connection is closed.'));
  }
}

class Scene {
  /** Owners of the slots that move. @type {Map<number, number|null>} */
  owners = new Map(MOVABLE.map((slot) => [slot, A]));
  /** @type {{resolve: (ranges: Range[]) => void, ranges: Range[]|null}[]} */
  looks = [];
  /** Is each wanted channel confirmed? @type {Map<string, {isConfirmed: boolean}>} */
  wanted = new Map();
  /** Confirmed channels with a message that the worker does not know it has missed. @type {Set<string>} */
  missed = new Set();
  isUp = false;

  /** @param {(ms: number) => void} pass */
  constructor(pass) {
    this.pass = pass;
    this.cluster = new RedisCluster({
      settings: /** @type {any} */ ({ addresses: [] }),
      timeoutMs: 1500,
      makeNode: () => assert.fail('there is no other node'),
      probeChannelOf: (tag) => `probe:{${tag}}`,
      onUpdate() {},
      onAway() {},
    });
    this.connections = [A, B].map((port) => this.#addNode(port));
  }

  /** @param {number} port */
  #addNode(port) {
    const connection = new Connection(this, port);
    const { subscriber } = connection;
    const isOurs = (/** @type {number} */ slot) =>
      !this.owners.has(slot) && this.ownerOf(slot) === port;
    let tag = 0;
    while (!isOurs(slotOfTag(String(tag)))) tag++;
    const cluster = () => new Promise((resolve) => void this.looks.push({ resolve, ranges: null }));
    const node = {
      subscriptions: subscriber,
      probeChannel: `probe:{${tag}}`,
      commands: { isWritable: true, redis: { cluster } },
      get isUp() {
        return subscriber.isLive;
      },
    };
    connection.onMoved = () => {
      subscriber.countEnded();
      this.cluster.stale(/** @type {any} */ (node));
    };
    const address = `127.0.0.1:${port}`;
    this.cluster.nodes.set(address, /** @type {any} */ (node));
    this.cluster.addresses.set(address, { host: '127.0.0.1', port });
    subscriber.subscribe(node.probeChannel).catch(() => {}); // not connected yet
    return connection;
  }

  /** @param {number} slot */
  ownerOf(slot) {
    const moved = this.owners.get(slot);
    if (moved !== undefined) return moved;
    return slot < SLOTS / 2 ? A : B;
  }

  #ranges() {
    /** @type {Range[]} */
    const ranges = [];
    let first = 0;
    for (let slot = 1; slot <= SLOTS; slot++) {
      const owner = this.ownerOf(first);
      if (slot < SLOTS && this.ownerOf(slot) === owner) continue;
      if (owner !== null) ranges.push([first, slot - 1, ['127.0.0.1', owner]]);
      first = slot;
    }
    return ranges;
  }

  /** @param {number} port */
  #connection(port) {
    return this.connections[port - A];
  }

  /** @param {string} channel */
  isHeard(channel) {
    const owner = this.ownerOf(slotOf(channel));
    return owner !== null && this.#connection(owner).heard.has(channel);
  }

  /** The worker compares these rooms with Redis. @param {Iterable<string>} channels */
  tell(channels) {
    for (const one of channels) if (this.isHeard(one)) this.missed.delete(one);
  }

  /** @param {Step} step */
  take(step) {
    switch (step.what) {
      case 'want':
        return this.#want(step.channel);
      case 'unwant':
        return this.#unwant(step.channel);
      case 'move':
        return this.#move(step.slot, step.to);
      case 'bounce': {
        const owner = this.ownerOf(step.slot);
        this.#move(step.slot, null);
        return this.#move(step.slot, owner);
      }
      case 'look': {
        const look = this.looks.find(({ ranges }) => ranges === null);
        if (look !== undefined) look.ranges = this.#ranges();
        return;
      }
      case 'learn': {
        const [look] = this.looks;
        if (!look?.ranges) return;
        this.looks.shift();
        look.resolve(look.ranges);
        return;
      }
      case 'pass':
        this.pass(step.ms);
        this.cluster.tick();
        return;
      case 'serve':
        return this.#connection(step.port).serve();
      case 'read':
        return this.#connection(step.port).read(step.frames);
      case 'cut':
        return this.#connection(step.port).destroy();
      case 'connect':
        return this.#connection(step.port).connect();
    }
  }

  /** @param {number} slot @param {number|null} to */
  #move(slot, to) {
    const from = this.ownerOf(slot);
    this.owners.set(slot, to);
    if (from !== null && from !== to) this.#connection(from).end(slot);
  }

  /** @param {string} channel */
  #want(channel) {
    if (this.wanted.has(channel)) return;
    const entry = { isConfirmed: false };
    this.wanted.set(channel, entry);
    const isCurrent = () => this.wanted.get(channel) === entry;
    this.cluster.subscribe(channel).then(
      () => {
        entry.isConfirmed = true;
      },
      () => isCurrent() && this.#unwant(channel),
    );
  }

  /** @param {string} channel */
  #unwant(channel) {
    if (!this.wanted.delete(channel)) return;
    this.missed.delete(channel);
    this.cluster.unsubscribe(channel);
  }

  /** Each channel has a message. If the cluster is up again, the worker compares all rooms. */
  publish() {
    for (const [one, { isConfirmed }] of this.wanted)
      if (isConfirmed && !this.isHeard(one)) this.missed.add(one);
    const { isUp } = this.cluster;
    if (isUp && !this.isUp) this.tell([...this.missed]);
    this.isUp = isUp;
  }

  async calm() {
    for (const [slot, owner] of this.owners) if (owner === null) this.owners.set(slot, A);
    for (let i = 0; i < 40; i++) {
      for (const connection of this.connections) {
        connection.connect();
        while (connection.sent.length > 0) connection.serve();
        connection.read(Number.POSITIVE_INFINITY);
      }
      await settle();
      for (const what of /** @type {const} */ (['look', 'learn'])) this.take({ what });
      await settle();
      this.publish();
      if (i % 4 === 3) this.take({ what: 'pass', ms: 1000 });
    }
  }

  check() {
    assert.ok(this.isUp, 'the cluster is up');
    for (const [one, { isConfirmed }] of this.wanted) {
      assert.ok(isConfirmed, `${one} is confirmed`);
      assert.ok(this.isHeard(one), `${one} is heard`);
    }
    assert.deepEqual([...this.missed], [], 'nobody was told of a missed message');
  }
}

test('each wanted channel is heard in the end, and each gap is told', async (t) => {
  const { timers } = t.mock;
  timers.enable({ apis: ['setTimeout'] });
  let nowMs = 0;
  t.mock.method(performance, 'now', () => nowMs);
  t.mock.method(Math, 'random', () => 0.5);
  await inAllOrders(
    [fc.array(step, { minLength: 20, maxLength: 80 })],
    async (_s, steps) => {
      timers.reset();
      timers.enable({ apis: ['setTimeout'] });
      const scene = new Scene((ms) => {
        nowMs += ms;
        timers.tick(ms);
      });
      scene.take({ what: 'pass', ms: 30 });
      for (const port of [A, B]) scene.take({ what: 'connect', port });
      for (const { step, isTogether } of steps) {
        scene.take(step);
        nowMs += 0.01;
        if (!isTogether) await settle(1);
        scene.publish();
      }
      await scene.calm();
      scene.check();
    },
    RUNS,
  );
});
