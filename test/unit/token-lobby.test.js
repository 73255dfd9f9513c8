import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asciiJson } from '../../src/auth/claims.js';
import { ExpiryWheel } from '../../src/auth/expiry-wheel.js';
import { Lobby } from '../../src/auth/lobby.js';
import { Revocations } from '../../src/auth/revocations.js';
import { Sessions } from '../../src/auth/sessions.js';
import { Connection } from '../../src/hub/connection.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { NATIVE_TEXTS } from '../../src/protocol/door-texts.js';
import {
  encodePublication,
  isPublication,
  KIND,
  senderOf,
} from '../../src/protocol/publication.js';

/** A connection that records its close code. */
function connect() {
  const codes = /** @type {number[]} */ ([]);
  const transport = /** @type {any} */ ({
    door: NATIVE_TEXTS,
    close: (/** @type {number} */ code) => codes.push(code),
  });
  return { connection: new Connection(transport, ''), codes };
}

/** @param {number} max */
function buildLobby(max) {
  const clock = { nowMs: 0 };
  const counters = createAuthCounters();
  return {
    lobby: new Lobby({ max, timeoutMs: 5000, counters, now: () => clock.nowMs }),
    clock,
    counters,
  };
}

test('a connection above the bound ends the oldest', () => {
  const { lobby, counters } = buildLobby(2);
  const clients = [connect(), connect(), connect()];
  for (const { connection } of clients) lobby.admitGuest(connection);
  assert.deepEqual(
    clients.map(({ codes }) => codes),
    [[4011], [], []],
  );
  assert.deepEqual([lobby.size, counters.unauthenticated, counters.closes.timeout], [2, 2, 1]);
});

test('a connection has 5 s to authenticate: it returns, unless it spoke without a token', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const { lobby, clock } = buildLobby(9);
  const turnTo = (/** @type {number} */ ms) => {
    const passed = ms - clock.nowMs;
    clock.nowMs = ms;
    t.mock.timers.tick(passed);
  };
  const [early, late] = [connect(), connect()];
  const [tokenless, slowlyChecked] = [connect(), connect()];
  for (const { connection } of [tokenless, slowlyChecked]) {
    lobby.admitGuest(connection);
    lobby.received(connection, false);
  }
  lobby.received(slowlyChecked.connection, true);
  lobby.admitGuest(early.connection);
  turnTo(1000);
  lobby.admitGuest(late.connection);
  turnTo(4999);
  assert.deepEqual([early.codes, late.codes], [[], []]);
  turnTo(5000);
  assert.deepEqual([early.codes, late.codes], [[4011], []]);
  assert.deepEqual([tokenless.codes, slowlyChecked.codes], [[4502], [4011]]);
  assert.equal(lobby.size, 1);
  turnTo(5999);
  assert.deepEqual(late.codes, []);
  turnTo(6000);
  assert.deepEqual(late.codes, [4011]);
});

/** @type {import('../../src/worker/close-all.js').CloseAll} */
const closeAll = (connections, close) => {
  for (const connection of connections) connection.close(close);
};

/** @param {number} startMs */
function buildSessions(startMs) {
  const clock = { nowMs: startMs };
  const counters = createAuthCounters();
  const now = () => clock.nowMs;
  const revocations = new Revocations({ maxLifetimeS: 3600, counters, now });
  return {
    sessions: new Sessions({ revocations, counters, closeAll, now }),
    revocations,
    clock,
    counters,
  };
}

/** @param {object} [parts] @returns {import('../../src/auth/claims.js').Identity} */
const identity = (parts) =>
  /** @type {any} */ ({ user: 'alice', tokenId: null, issuedAtMs: 0, expiresAtMs: 0, ...parts });

test('a session ends with its token, a renewed one with its newer token', () => {
  const { sessions, clock, counters } = buildSessions(100_000);
  const [a, b, c] = [connect(), connect(), connect()];
  for (const { connection } of [a, b])
    sessions.begin(connection, identity({ expiresAtMs: 110_000 }), null);
  // Accepted within its leeway: it ends at the next look.
  sessions.begin(c.connection, identity({ expiresAtMs: 98_000 }), null);
  sessions.renewSession(b.connection, identity({ expiresAtMs: 120_000 }));
  clock.nowMs = 101_000;
  sessions.sweep();
  assert.deepEqual([a.codes, b.codes, c.codes], [[], [], [4001]]);
  clock.nowMs = 110_000;
  sessions.sweep();
  assert.deepEqual([a.codes, b.codes], [[4001], []]);
  clock.nowMs = 999_000;
  sessions.sweep();
  assert.deepEqual(b.codes, [4001]);
  for (const { connection } of [a, b, c]) sessions.end(connection);
  assert.deepEqual([sessions.users, counters.sessions, counters.closes.expired], [0, 0, 3]);
});

test('a connection is closed in the second in which its token expires', () => {
  const { sessions, clock } = buildSessions(1_000_000);
  // Two for each second of some minutes, and one that ends hours later.
  const clients = Array.from({ length: 400 }, (_, i) => ({ ...connect(), endS: 1002 + (i >> 1) }));
  clients.push({ ...connect(), endS: 9000 });
  for (const { connection, endS } of clients)
    sessions.begin(connection, identity({ expiresAtMs: endS * 1000 }), null);
  // The clock goes on by a second, jumps by some, goes back, and jumps by hours.
  for (const nowS of [1001, 1002, 1003, 1019, 1020, 1021, 1100, 1090, 1101, 1190, 8999, 9000]) {
    clock.nowMs = nowS * 1000;
    sessions.sweep();
    for (const { codes, endS } of clients) {
      const isDue = endS <= nowS || (nowS === 1090 && endS <= 1100);
      assert.deepEqual(codes, isDue ? [4001] : [], `${endS} at ${nowS}`);
    }
  }
  for (const { connection } of clients) sessions.end(connection);
  assert.equal(sessions.users, 0);
});

test('after the clock was ahead for some time, sessions end with their tokens', () => {
  const { sessions, clock } = buildSessions(1_000_000);
  const moveTo = (/** @type {number} */ nowMs) => {
    clock.nowMs = nowMs;
    sessions.sweep();
  };
  moveTo(5_000_000);
  moveTo(1_001_000);
  const { connection, codes } = connect();
  sessions.begin(connection, identity({ expiresAtMs: 1_060_000 }), null);
  moveTo(1_059_000);
  assert.deepEqual(codes, []);
  moveTo(1_060_000);
  assert.deepEqual(codes, [4001]);
});

test('the connections of a user are found, whether there is one or there are several', () => {
  const { sessions } = buildSessions(100_000);
  const [a, b, c] = [connect().connection, connect().connection, connect().connection];
  const of = (/** @type {string} */ user) => [...sessions.connectionsOf(user)];
  assert.deepEqual(of('alice'), []);
  for (const [count, connection] of [a, b, c].entries()) {
    sessions.begin(connection, identity(), null);
    assert.equal(of('alice').length, count + 1);
  }
  assert.deepEqual(
    [sessions.users, of('alice').every((one) => [a, b, c].includes(one))],
    [1, true],
  );
  for (const connection of [b, a]) sessions.end(connection);
  assert.deepEqual(of('alice'), [c]);
  sessions.end(c);
  assert.deepEqual([of('alice'), sessions.users], [[], 0]);
  sessions.begin(a, identity(), null);
  sessions.end(b); // has ended before
  assert.deepEqual(of('alice'), [a]);
  sessions.end(a);
  assert.equal(sessions.users, 0);
});

test('a revocation closes the connections of its tokens and no others', () => {
  const { sessions, revocations } = buildSessions(100_000);
  const [old, fresh, bob, byId] = [connect(), connect(), connect(), connect()];
  const expiresAtMs = 900_000;
  sessions.begin(old.connection, identity({ expiresAtMs, issuedAtMs: 50_000 }), null);
  sessions.begin(fresh.connection, identity({ expiresAtMs, issuedAtMs: 90_000 }), null);
  sessions.begin(bob.connection, identity({ expiresAtMs, user: 'bob' }), null);
  sessions.begin(byId.connection, identity({ expiresAtMs, user: 'eve', tokenId: 't' }), null);
  for (const target of [{ user: 'alice', issuedBeforeMs: 60_000 }, { tokenId: 't' }]) {
    const revocation = revocations.create(target);
    revocations.add(revocation);
    sessions.revoked(revocation);
  }
  const codes = [old, fresh, bob, byId].map((client) => client.codes);
  assert.deepEqual(codes, [[4503], [], [], [4503]]);
});

test('a place of a user is given back once, when its session ends', () => {
  const { sessions } = buildSessions(100_000);
  const { connection } = connect();
  let released = 0;
  sessions.begin(connection, identity(), { key: 'user:a', release: () => released++ });
  sessions.renewSession(connection, identity({ expiresAtMs: 900_000 }));
  sessions.end(connection);
  sessions.end(connection);
  assert.equal(released, 1);
});

test('a publication carries any name of a user, and none that would break its frame', () => {
  const payload = Buffer.from('1');
  const publish = (/** @type {string} */ sender) =>
    encodePublication(KIND.MESSAGE, 0, 0, sender, payload, 0, 1);
  for (const user of ['alice', 'auth0|1', 'a"b\\c', 'Ünï', '日本語', '😀', "o'neil@x.org"]) {
    const publication = publish(asciiJson(user));
    assert.ok(isPublication(publication), user);
    assert.equal(JSON.parse(`"${senderOf(publication)}"`), user);
  }
  for (const sender of ['a"', 'a\\', '\\x', '","to":"', '\\u12', 'a\u0007', '\u00fc', 'a","b":"c'])
    assert.ok(!isPublication(publish(sender)), JSON.stringify(sender));
});

test('an item is due once, also if it is not removed, whatever the period', () => {
  for (const periodS of [1, 60]) {
    let nowS = 1000;
    /** @type {ExpiryWheel<number>} */
    const wheel = new ExpiryWheel({ endOf: (endS) => endS, periodS, now: () => nowS * 1000 });
    for (const atS of [900, 1005, 1019.5, 1090]) wheel.addItem(wheel.secondAfter(atS));
    const dueAt = (/** @type {number} */ second) => {
      nowS = second;
      return wheel.takeDue();
    };
    assert.deepEqual([1001, 1004, 1005, 1010, 1200, 1201].map(dueAt), [
      [1001],
      [],
      [1005],
      [],
      [1020, 1090],
      [],
    ]);
  }
});
