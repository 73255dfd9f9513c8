// stream-interleavings.test.js: streams of server-sent events of several rooms with history, whose
// clients read slowly, break off and return, while announcements are lost, reads fail and epochs
// end, in any order: no client has a gap that it does not know of.

import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import fc from 'fast-check';
import { EventStreams } from '../../src/doors/native/sse.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from '../helpers/config.js';
import { EventReader } from '../helpers/event-stream.js';
import { buildHub } from '../helpers/hub.js';
import { inAllOrders, inOrder, Pipe, settle } from '../helpers/interleavings.js';
import { away, StreamBroker } from '../helpers/stream-broker.js';

const RUNS = 50;
const ROOMS = ['h1', 'h2'];
const CLIENTS = 2;
const ENV = {
  FANFARE_MAX_UNSENT_BYTES: '65536',
  FANFARE_MAX_MESSAGE_BYTES: '30000',
  FANFARE_FAST_PATHS: 'off',
};
const SIZE = 8;

/** @typedef {import('../helpers/interleavings.js').Scheduler} Scheduler */
/** @typedef {{next: () => {value?: number}}} Draws */
/**
 * `takes`: the first client takes one write of those that wait; `returns`: a client breaks off, and
 * returns.
 * @typedef {'publish'|'lose'|'forget'|'evict'|'tick'|'takes'|'returns'} What
 */
/** @typedef {{what: What, room: string, bytes: number, client: number}} Step */

/** @type {What[]} */
const OFTEN = ['publish', 'publish', 'publish', 'publish', 'takes', 'takes'];
/** @type {fc.Arbitrary<Step>} */
const step = fc.record({
  what: fc.constantFrom(...OFTEN, ...OFTEN, 'returns', 'lose', 'forget', 'evict', 'tick'),
  room: fc.constantFrom(...ROOMS),
  bytes: fc.constantFrom(10, 25_000),
  client: fc.nat(CLIENTS - 1),
});

/** A socket whose peer takes bytes when it reads. */
class SlowSocket extends Duplex {
  /** @param {(bytes: Buffer) => void} onBytes */
  constructor(onBytes) {
    super();
    this.onBytes = onBytes;
    this.bytesRead = 0;
    this.isReading = false;
    /** Takes the write that waits. @type {(() => void)|null} */
    this.taken = null;
  }

  setTimeout() {}

  /** @override */
  _read() {}

  /** @override @param {Buffer} bytes @param {string} _encoding @param {() => void} taken */
  _write(bytes, _encoding, taken) {
    const take = () => {
      this.taken = null;
      this.onBytes(bytes);
      taken();
    };
    if (this.isReading) take();
    else this.taken = take;
  }

  /** @param {boolean} isReading does the peer read? */
  turnReading(isReading) {
    this.isReading = isReading;
    if (isReading) this.taken?.();
  }
}

/** An EventSource: it returns with the id of its last event. The first one reads slowly. */
class Client {
  /** @param {Scene} scene @param {number} index */
  constructor(scene, index) {
    this.scene = scene;
    this.index = index;
    this.lastEventId = '';
    /** @type {SlowSocket|undefined} */
    this.socket = undefined;
    /** What this connection has brought last of each room. @type {Map<string, number>} */
    this.heard = new Map();
    /** The positions that it has reached. @type {Map<string, {epoch: string, offset: number}>} */
    this.positions = new Map();
    this.connect();
  }

  connect() {
    const reader = new EventReader();
    const socket = new SlowSocket((bytes) => {
      if (this.socket !== socket) return;
      for (const { data, id } of reader.read(bytes)) {
        this.lastEventId = id;
        this.hear(JSON.parse(data));
        this.checkId(id);
      }
    });
    this.socket = socket;
    this.heard.clear();
    const headers = { 'last-event-id': this.lastEventId, accept: 'text/event-stream' };
    const query = ROOMS.map((room) => `room=${room}`).join('&');
    if (this.index > 0) socket.turnReading(true);
    const { streams } = this.scene;
    const request = streams.read(/** @type {any} */ ({ url: `/sse?${query}`, headers }));
    const admitted = { address: '127.0.0.1', credentials: null };
    const refused = streams.open(request, /** @type {any} */ (socket), admitted);
    assert.equal(refused, null);
  }

  /** @param {Record<string, any>} message */
  hear({ type, room, epoch, offset, recovered }) {
    const at = this.positions.get(room);
    if (type === 'joined') {
      this.heard.set(room, 0);
      // Where it was is proved: the messages after it follow.
      if (!recovered) this.positions.set(room, { epoch, offset });
    } else if (type === 'resync') {
      this.heard.set(room, offset);
      this.positions.set(room, { epoch, offset });
    } else if (type === 'message') {
      const before = Number(this.heard.get(room)); // NaN: it has not joined
      assert.ok(offset > before, `client ${this.index} hears ${room} ${offset} after ${before}`);
      this.heard.set(room, offset);
      assert.ok(at?.epoch === epoch, `client ${this.index}: another epoch of ${room}`);
      const reached = Number(at?.offset);
      // Of several rooms, a stream that breaks off may bring messages again, but leave out none.
      assert.ok(
        offset <= reached + 1,
        `client ${this.index} lacks ${room} ${reached + 1} to ${offset - 1}`,
      );
      this.positions.set(room, { epoch, offset: Math.max(offset, reached) });
    }
  }

  /** The stream may break off after each event. @param {string} id with a position of each room */
  checkId(id) {
    for (const [i, text] of id.split(',').entries()) {
      const at = this.positions.get(ROOMS[i]);
      const [epoch, offset] = text.split(':');
      const isProved = epoch !== at?.epoch || Number(offset) <= at.offset;
      assert.ok(isProved, `client ${this.index} has ${ROOMS[i]} up to ${at?.offset}, its id ${id}`);
    }
  }

  back() {
    const former = this.socket;
    this.socket = undefined;
    former?.destroy();
    this.scene.remove(former);
    this.connect();
  }
}

/** A worker with streams, and a broker that answers when the scheduler says. */
class Scene {
  /** @param {Scheduler} s @param {Draws} draws */
  constructor(s, draws) {
    this.s = s;
    this.broker = new StreamBroker({ size: SIZE });
    this.clock = { now: 1000 };
    this.isCalm = false;
    this.deliveries = new Pipe(s, 'an announcement arrives');
    const { broker } = this;
    const later = (/** @type {string} */ label, /** @type {() => any} */ answer) => {
      const isRefused = !this.isCalm && Number(draws.next().value) === 0;
      return s.schedule(Promise.resolve(), isRefused ? `${label}: fails` : label).then(() => {
        if (isRefused) throw away();
        return answer();
      });
    };
    this.parts = buildHub({
      config: configOf(ENV),
      broker: {
        subscribe: async () => {},
        unsubscribe() {},
        reportConnections() {},
        history: (/** @type {string} */ room, /** @type {any} */ from) =>
          later(`a read of ${room}`, () => broker.look(room, from)),
      },
      historyOf: (room) => (ROOMS.includes(room) ? { size: SIZE, ttlMs: 60_000 } : null),
      clock: () => this.clock.now,
    });
    const { hub, operations, counters } = this.parts;
    this.parts.turn.clock = () => this.clock.now;
    const heartbeat = /** @type {any} */ ({ watchConnection() {}, unwatchConnection() {} });
    this.streams = new EventStreams({
      config: configOf(ENV),
      hub,
      operations,
      heartbeat,
      counters,
    });
    this.clients = Array.from({ length: CLIENTS }, (_, index) => new Client(this, index));
  }

  /** @param {SlowSocket|undefined} socket that is closed */
  remove(socket) {
    for (const { transport } of [...this.parts.hub.connections])
      if (/** @type {any} */ (transport).socket === socket) /** @type {any} */ (transport).closed();
  }

  /** @param {Step} step */
  take({ what, room, bytes, client }) {
    if (what === 'publish' || what === 'lose') this.#publish(room, bytes, what === 'lose');
    else if (what === 'forget') this.broker.forget(room);
    else if (what === 'takes') this.clients[0].socket?.taken?.();
    else if (what === 'returns') this.clients[client].back();
    else if (what === 'evict') this.parts.scheduler.syncs.get(room)?.replayBuffer.evict();
    else this.tick();
  }

  /** @param {string} room @param {number} bytes @param {boolean} isLost its announcement */
  #publish(room, bytes, isLost) {
    const json = Buffer.from(JSON.stringify('x'.repeat(bytes)));
    const publication = encodePublication(KIND.MESSAGE, 1, 0, 'me', json, 0, json.length);
    const { offset, epoch } = this.broker.accept(room, publication);
    this.broker.announcements = [];
    if (!isLost)
      this.deliveries.push(() => this.parts.hub.broadcast(room, publication, offset, epoch));
  }

  tick() {
    this.clock.now += 250;
    this.parts.scheduler.wheel.tick();
  }

  async calm() {
    this.isCalm = true;
    for (let i = 0; i < 44; i++) {
      for (const client of this.clients) {
        client.socket?.turnReading(true);
        // A worker that is too full closes a stream, and the client returns.
        if (client.socket?.writableEnded) client.back();
      }
      this.tick();
      await settle(3);
      if (this.s.count() > 0) await this.s.waitIdle();
    }
  }

  check() {
    for (const room of ROOMS) {
      const { epoch, offset } = this.broker.stream(room);
      for (const { index, positions } of this.clients)
        assert.deepEqual(positions.get(room), { epoch, offset }, `client ${index}, ${room}`);
    }
    const { counters, hub } = this.parts;
    assert.deepEqual([counters.laggingMembers, counters.eventStreams], [0, CLIENTS]);
    assert.equal(counters.connectionFailures, 0);
    for (const { connection } of hub.connections.map((one) => ({ connection: one })))
      assert.equal(connection.lags, 0);
  }

  end() {
    for (const { socket } of this.clients) socket?.destroy();
  }
}

test('a slow stream of two rooms has no gap that it does not know of', () =>
  inAllOrders(
    [fc.infiniteStream(fc.nat(7)), fc.array(step, { maxLength: 60, size: 'max' })],
    async (s, draws, steps) => {
      const scene = new Scene(s, draws);
      inOrder(
        s,
        steps.map((one) => [JSON.stringify(one), () => scene.take(one)]),
      );
      await s.waitIdle();
      await scene.calm();
      scene.check();
      scene.end();
    },
    RUNS,
  ));
