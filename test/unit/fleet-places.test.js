// fleet-places.test.js: the limits over all servers, on relays without processes, with a clock that
// the test turns.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FleetPlaces, MAX_KEYS, split, TICK_MS } from '../../src/backend/embedded/fleet-places.js';
import {
  decodeReport,
  encodeReport,
  LEASE_MS,
  SERVER_BYTES,
} from '../../src/backend/embedded/place-report.js';
import { ServerPlaces } from '../../src/backend/embedded/server-places.js';
import { fleetRulesOf } from '../../src/backend/places.js';
import { loadConfig } from '../../src/config/config.js';
import { appPlaceKey, USER_PREFIX } from '../../src/protocol/place-keys.js';

const CAP = 100;
const ADDRESS = '192.0.2.1';
const USER = `${USER_PREFIX}alice`;

/** @typedef {import('../../src/backend/places.js').FleetRules} FleetRules */
/** @typedef {import('../../src/config/settings.js').Mode} Mode */

/** @param {Mode} [mode] @param {number} [cap] @returns {FleetRules} */
const rules = (mode = 'enforce', cap = CAP) => ({
  address: { cap, mode },
  user: { cap, mode },
  app: { mode },
});

/** A worker of a server, with connections that it closes when it is asked to. */
class Worker {
  /** @param {Server} server */
  constructor(server) {
    this.server = server;
    /** @type {Map<string, number>} */
    this.addresses = new Map();
    this.isCarrier = false;
    this.closed = 0;
  }

  /** @param {boolean} isCarrier */
  carry(isCarrier) {
    this.isCarrier = isCarrier;
  }

  /** @param {Buffer} report */
  report(report) {
    assert.ok(this.isCarrier);
    if (this.server.isConnected) this.server.network.deliver(report);
  }

  /** @param {string} key @param {number} connections */
  keep(key, connections) {
    const excess = (this.addresses.get(key) ?? 0) - connections;
    assert.ok(excess > 0);
    this.closed += excess;
    this.server.add(this, key, -excess);
  }
}

class Server {
  /** Reports reach it, and leave it. */
  isConnected = true;
  /** @type {Map<string, number>} */
  counts = new Map();

  /** @param {Network} network @param {FleetRules} limits @param {number} workers */
  constructor(network, limits, workers = 1) {
    this.network = network;
    this.fleet = new FleetPlaces(this.counts);
    this.workers = Array.from({ length: workers }, () => new Worker(this));
    for (const worker of this.workers) this.fleet.volunteer(worker, limits);
  }

  /** As the relay does it. @param {Worker} worker @param {string} key @param {number} connections */
  add(worker, key, connections) {
    for (const counts of [this.counts, worker.addresses]) {
      const left = (counts.get(key) ?? 0) + connections;
      if (left > 0) counts.set(key, left);
      else counts.delete(key);
    }
    this.fleet.changed(key, this.counts.get(key) ?? 0);
  }

  /** @param {string} key */
  held(key) {
    return this.counts.get(key) ?? 0;
  }

  /**
   * One more connection, as the relay decides.
   * @param {string} key @param {number} [cap] @returns {boolean} admitted?
   */
  admit(key, cap = CAP) {
    if (this.held(key) >= cap || this.fleet.refuses(key, this.held(key), false, cap)) return false;
    this.add(this.workers[0], key, 1);
    return true;
  }
}

class Network {
  nowMs = 0;
  /** @type {Server[]} */
  servers = [];
  reports = 0;

  /** @param {FleetRules} [limits] @param {number} [workers] */
  join(limits = rules(), workers) {
    const server = new Server(this, limits, workers);
    this.servers.push(server);
    return server;
  }

  /** @param {Buffer} report */
  deliver(report) {
    this.reports++;
    for (const { isConnected, fleet } of this.servers) if (isConnected) fleet.receive(report);
  }

  /** @param {number} ms */
  pass(ms) {
    for (const endMs = this.nowMs + ms; this.nowMs < endMs; ) {
      this.nowMs += TICK_MS;
      for (const { fleet } of this.servers) fleet.step(this.nowMs);
    }
  }

  /** @param {string} key */
  total(key) {
    return this.servers.reduce((sum, server) => sum + server.held(key), 0);
  }
}

test('an excess that two servers admitted at once is closed within a second, half by each', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  a.add(a.workers[0], ADDRESS, CAP);
  b.add(b.workers[0], ADDRESS, CAP);
  network.pass(1000);
  assert.deepEqual([a.held(ADDRESS), b.held(ADDRESS)], [50, 50]);
  assert.equal(a.admit(ADDRESS), false);
  assert.equal(b.fleet.figures().excess.address, 0);
  network.pass(10_000);
  assert.equal(network.total(ADDRESS), CAP);
});

test('a server refuses a connection if the others hold the rest of the cap', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  for (const key of [ADDRESS, USER]) {
    a.add(a.workers[0], key, CAP - 1);
    network.pass(2 * TICK_MS);
    assert.equal(b.admit(key), true);
    assert.equal(b.admit(key), false);
    assert.equal(b.admit('192.0.2.2'), true);
  }
  assert.equal(b.fleet.figures().decisions.refused, 2);
  assert.equal(b.fleet.figures().servers, 2);
});

test('each app has a cap of its own, to which every connection counts', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  const [small, large] = [appPlaceKey('1'), appPlaceKey('2')];
  for (let i = 0; i < 3; i++) assert.equal(a.admit(small, 4), true);
  assert.equal(a.admit(large, 1000), true);
  network.pass(2 * TICK_MS);
  assert.equal(b.admit(small, 4), true, 'the fourth');
  assert.equal(b.admit(small, 4), false);
  assert.equal(b.admit(large, 1000), true);
  assert.equal(b.admit(large, 1), false);
});

test('an excess of an app is not closed: its clients would not come back', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  const key = appPlaceKey('1');
  for (const server of [a, b]) for (let i = 0; i < 5; i++) assert.equal(server.admit(key, 5), true);
  network.pass(10_000);
  assert.equal(network.total(key), 10);
  assert.deepEqual([a.admit(key, 5), b.admit(key, 5)], [false, false]);
  assert.deepEqual(a.fleet.figures().excess, { address: 0, user: 0 });
});

test('a server reports only keys with a fifth of the cap, and no connection sends a message', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  for (let i = 0; i < 20_000; i++) a.add(a.workers[0], `10.0.${i >> 8}.${i & 255}`, 1);
  a.add(a.workers[0], ADDRESS, CAP / 5 - 1);
  assert.equal(network.reports, 0);
  network.pass(10_000);
  // One in a second of each server.
  assert.ok(network.reports <= 22, `${network.reports}`);
  assert.equal(a.fleet.figures().keys.reported, 0);
  a.add(a.workers[0], ADDRESS, 1);
  network.pass(2 * TICK_MS);
  assert.equal(a.fleet.figures().keys.reported, 1);
  assert.equal(b.admit(ADDRESS), true);
});

test('connections that a server does not report yield to those that others report', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  b.add(b.workers[0], ADDRESS, 19);
  a.add(a.workers[0], ADDRESS, CAP);
  network.pass(1000);
  assert.deepEqual([a.held(ADDRESS), b.held(ADDRESS)], [CAP, 0]);
});

test('the share of a dead server is free when its lease has ended', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  a.add(a.workers[0], ADDRESS, CAP);
  network.pass(1000);
  network.servers.shift();
  network.pass(LEASE_MS - 1000);
  assert.equal(b.admit(ADDRESS), false);
  network.pass(1500);
  assert.equal(b.admit(ADDRESS), true);
  assert.equal(b.fleet.figures().servers, 1);
});

test('a server that drains gives up its places at once', () => {
  const network = new Network();
  const [a, b] = [network.join(rules(), 2), network.join()];
  a.add(a.workers[0], ADDRESS, CAP);
  network.pass(1000);
  a.fleet.resign(a.workers[0]);
  network.pass(1000);
  assert.equal(b.admit(ADDRESS), false);
  a.fleet.resign(a.workers[1]);
  assert.equal(b.admit(ADDRESS), true);
  network.pass(2000);
  assert.equal(network.total(ADDRESS), CAP + 1);
});

test('a server whose reports do not return is alone, also if it receives those of others', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  a.add(a.workers[0], ADDRESS, CAP);
  network.pass(1000);
  b.workers[0].report = () => {};
  network.pass(LEASE_MS);
  assert.equal(b.fleet.figures().servers, 0);
  assert.equal(b.admit(ADDRESS), true);
});

test('without Redis each server applies the cap to its own connections, and counts them', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  a.add(a.workers[0], ADDRESS, 60);
  network.pass(1000);
  for (const server of network.servers) server.isConnected = false;
  network.pass(LEASE_MS + 1000);
  assert.equal(b.fleet.figures().servers, 0);
  while (b.admit(ADDRESS));
  assert.equal(b.held(ADDRESS), CAP);
  // The first 20 were too few to be reported.
  assert.equal(b.fleet.figures().decisions.alone, CAP - CAP / 5);
  for (const server of network.servers) server.isConnected = true;
  network.pass(2000);
  assert.deepEqual([a.held(ADDRESS), b.held(ADDRESS)], [50, 50]);
});

test('a count that has just fallen on another server closes no connection', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  a.add(a.workers[0], ADDRESS, 60);
  network.pass(1000);
  // Its report is on its way when b looks at its connections.
  a.add(a.workers[0], ADDRESS, -60);
  b.add(b.workers[0], ADDRESS, 60);
  b.fleet.step((network.nowMs += TICK_MS));
  network.pass(2000);
  assert.equal(b.held(ADDRESS), 60);
});

test('in mode observe the excess is counted, and no connection is refused or closed', () => {
  const network = new Network();
  const [a, b] = [network.join(rules('observe')), network.join(rules('observe'))];
  a.add(a.workers[0], ADDRESS, CAP);
  network.pass(1000);
  for (let i = 0; i < 30; i++) assert.equal(b.admit(ADDRESS), true);
  network.pass(2000);
  assert.equal(network.total(ADDRESS), CAP + 30);
  assert.equal(b.fleet.figures().decisions.observed, 30);
  const { excess } = a.fleet.figures();
  assert.equal(excess.address + b.fleet.figures().excess.address, 30);
});

test('in mode off there are no reports', () => {
  const network = new Network();
  const off = network.join(rules('off'));
  off.add(off.workers[0], ADDRESS, CAP);
  network.pass(2000);
  assert.equal(off.fleet.figures().keys.reported, 0);
});

test('the workers of a server share its part of the excess', () => {
  const network = new Network();
  const [a, b] = [network.join(rules(), 3), network.join()];
  for (const [i, held] of [10, 30, 60].entries()) a.add(a.workers[i], ADDRESS, held);
  b.add(b.workers[0], ADDRESS, CAP);
  network.pass(1000);
  assert.deepEqual(
    a.workers.map(({ addresses }) => addresses.get(ADDRESS)),
    [10, 20, 20],
  );
});

test('if the reports of a worker do not return, another worker carries them', () => {
  const network = new Network();
  const a = network.join(rules(), 2);
  network.pass(1000);
  assert.deepEqual(
    a.workers.map(({ isCarrier }) => isCarrier),
    [true, false],
  );
  a.isConnected = false;
  network.pass(4000);
  assert.deepEqual(
    a.workers.map(({ isCarrier }) => isCarrier),
    [false, true],
  );
  a.fleet.leave(a.workers[1]);
  assert.equal(a.workers[0].isCarrier, true);
  a.fleet.leave(a.workers[0]);
  assert.equal(a.fleet.figures().servers, 0);
});

test('a report has room for the 1,000 keys with the most connections', () => {
  const network = new Network();
  const [a, b] = [network.join(), network.join()];
  for (let i = 0; i < 3 * MAX_KEYS; i++) a.add(a.workers[0], `few-${i}`, CAP / 5);
  for (let i = 0; i < MAX_KEYS / 2; i++) a.add(a.workers[0], `many-${i}`, CAP);
  network.pass(1000);
  assert.deepEqual(a.fleet.figures().keys, { reported: MAX_KEYS, left_out: 2.5 * MAX_KEYS });
  for (let i = 0; i < MAX_KEYS / 2; i++) assert.equal(b.admit(`many-${i}`), false);
});

test('with 1,000 servers a lease outlives the loss of two reports of changes', () => {
  const network = new Network();
  const server = network.join();
  for (let i = 1; i < 1000; i++) {
    const id = i.toString(16).padStart(2 * SERVER_BYTES, '0');
    server.fleet.receive(encodeReport({ server: id, places: new Map() }));
  }
  assert.equal(server.fleet.servers, 1000);
  for (let ms = 0; ms < LEASE_MS; ms += TICK_MS) {
    server.add(server.workers[0], `key-${ms}`, CAP);
    network.pass(TICK_MS);
  }
  assert.ok(network.reports >= 3, `${network.reports} reports`);
});

test('malformed reports, and those of other versions, are counted and change nothing', () => {
  const network = new Network();
  const a = network.join();
  const report = encodeReport({ server: '00'.repeat(8), places: new Map([[ADDRESS, CAP]]) });
  const message = JSON.parse(`${report}`);
  const changed = (/** @type {object} */ fields) =>
    Buffer.from(JSON.stringify({ ...message, ...fields }));
  const newer = changed({ v: 2 });
  const broken = [
    report.subarray(0, -1),
    Buffer.alloc(0),
    changed({ kind: 'beat' }),
    changed({ from: 'no-server' }),
    changed({ places: null }),
    changed({ places: { [ADDRESS]: '5' } }),
    changed({ places: { [ADDRESS]: -1 } }),
    changed({ places: { ['x'.repeat(256)]: 1 } }),
    changed({ padding: 'x'.repeat(128 * 1024) }),
  ];
  for (const one of [newer, ...broken]) a.fleet.receive(one);
  const { malformed, unknown_version } = a.fleet.figures().reports;
  assert.deepEqual([malformed, unknown_version], [broken.length, 1]);
  assert.equal(a.admit(ADDRESS), true);
  a.fleet.receive(report);
  assert.equal(a.admit(ADDRESS), false);
});

test('a report is read as it was written, and no bytes make the reader throw', () => {
  const key = fc.string({ unit: 'grapheme-ascii', minLength: 1, maxLength: 60 });
  const places = fc.array(fc.tuple(key, fc.integer({ min: 1, max: 1e7 })), { maxLength: 50 });
  fc.assert(
    fc.property(places, (entries) => {
      const report = { server: '0123456789abcdef', places: new Map(entries) };
      assert.deepEqual(decodeReport(encodeReport(report)), { ...report, leaseMs: LEASE_MS });
    }),
  );
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      decodeReport(Buffer.from(bytes));
    }),
  );
});

test('a cap is split exactly, and each gets at most what it holds', () => {
  const held = fc.array(fc.integer({ min: 0, max: 500 }), { minLength: 1, maxLength: 20 });
  fc.assert(
    fc.property(held, fc.integer({ min: 0, max: 500 }), (counts, cap) => {
      const shares = split(counts, cap);
      const sum = (/** @type {number[]} */ numbers) => numbers.reduce((a, b) => a + b, 0);
      assert.equal(sum(shares), Math.min(cap, sum(counts)));
      const cut = shares.filter((share, i) => share < counts[i]);
      for (const [i, share] of shares.entries()) {
        assert.ok(share >= 0 && share <= counts[i]);
        // Only the largest lose.
        if (cut.length > 0) assert.ok(share <= Math.min(...cut) + 1);
      }
    }),
  );
});

test('whatever servers admitted at once, a second later they hold the cap together', () => {
  const arrivals = fc.array(fc.integer({ min: CAP / 5, max: CAP }), { minLength: 2, maxLength: 8 });
  fc.assert(
    fc.property(arrivals, (counts) => {
      const network = new Network();
      for (const count of counts) {
        const server = network.join(rules(), 2);
        server.add(server.workers[0], ADDRESS, Math.ceil(count / 2));
        server.add(server.workers[1], ADDRESS, Math.floor(count / 2));
      }
      network.pass(1000);
      const wanted = Math.min(
        CAP,
        counts.reduce((a, b) => a + b, 0),
      );
      assert.equal(network.total(ADDRESS), wanted);
      network.pass(3000);
      assert.equal(network.total(ADDRESS), wanted);
    }),
  );
});

test('the weaker mode counts, and without tokens no user is counted', () => {
  const modesOf = (/** @type {Record<string, string>} */ env) => {
    const { config } = loadConfig(env);
    assert.ok(config);
    const { address, user, app } = fleetRulesOf(config);
    assert.equal(app?.mode, 'off');
    return [address.mode, user.mode];
  };
  const tokens = { JWT_SECRET: '0123456789abcdef0123456789abcdef' };
  assert.deepEqual(modesOf({}), ['enforce', 'off']);
  assert.deepEqual(modesOf(tokens), ['enforce', 'enforce']);
  const signIn = {
    FANFARE_PUSHER_APP_ID: '1',
    FANFARE_PUSHER_APP_KEY: 'k',
    FANFARE_PUSHER_APP_SECRET: '0123456789abcdef',
  };
  assert.deepEqual(modesOf(signIn), ['enforce', 'enforce'], 'users sign in');
  assert.deepEqual(modesOf({ ...tokens, FANFARE_LIMITS: 'observe' }), ['observe', 'observe']);
  assert.deepEqual(modesOf({ ...tokens, FANFARE_FLEET_LIMITS_MODE: 'off' }), ['off', 'off']);
  assert.deepEqual(modesOf({ ...tokens, FANFARE_MAX_CONNECTIONS_PER_IP_MODE: 'off' }), [
    'off',
    'enforce',
  ]);
});

test('a rest that ends early counts towards the time until a server knows that it is alone', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let nowMs = 1000;
  t.mock.method(performance, 'now', () => nowMs);
  const pass = (/** @type {number} */ ms) => {
    for (let i = 0; i < ms; i += 10) {
      nowMs += 10;
      t.mock.timers.tick(10);
    }
  };
  const log = /** @type {any} */ ({ warn() {}, info() {} });
  const places = new ServerPlaces(log);
  t.after(() => places.close());
  const worker = { addresses: new Map(), carry() {}, report() {}, keep() {} };
  places.fleet.volunteer(worker, rules());
  places.stepLater();
  while (!places.fleet.isAlone && nowMs < 20_000) {
    // A key becomes heavy in a rest, and is reported; then it is gone.
    places.fleet.changed(ADDRESS, CAP);
    places.stepLater();
    pass(300);
    places.fleet.changed(ADDRESS, 0);
    places.stepLater();
    pass(1000);
  }
  assert.ok(nowMs - 1000 <= LEASE_MS + 1500, `${nowMs - 1000} ms without a report that came back`);
});
