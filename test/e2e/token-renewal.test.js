// token-renewal.test.js: what a new connection applies of a token, the renewal of an older
// connection applies, too. Each row has the claims before and after: a connection that has renewed
// its token behaves as one that begins with the new token, and a token that opens no connection
// renews none. A stream of server-sent events has no renewal: it ends with its token (e2e/sse).

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  connectionToken,
  openRaw,
  sharedCentrifugo,
  subscriptionToken,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';
import { centrifugoApiOf, KEY } from '../helpers/centrifugo-api.js';
import { connect } from '../helpers/clients.js';
import { token } from '../helpers/tokens.js';

/** @typedef {import('node:test').TestContext} TestContext */
/** @typedef {Record<string, unknown>} Claims */
/** Claims of a token; each connection has its own `name`. @typedef {(name: string) => Claims} ClaimsOf */

const OPTIONS = { timeout: 60_000 };
const started = sharedCentrifugo({
  ...WITH_TOKENS,
  FANFARE_CENTRIFUGO_API_KEY: KEY,
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:hall:*',
  FANFARE_CENTRIFUGO_PERSONAL: '#',
  FANFARE_PRESENCE: 'hall:*',
  FANFARE_HISTORY: 'kept*=10/60s,hall:*=10/60s',
  FANFARE_MAX_ROOMS_PER_CONNECTION: '6',
  FANFARE_LIMITS: 'off,rooms=enforce',
});
let connections = 0;
const inSeconds = (/** @type {number} */ seconds) => Math.floor(Date.now() / 1000) + seconds;

/** @param {string} name @param {string[]} allow @returns {Claims} */
const caps = (name, allow) => ({ caps: [{ channels: [`hall:${name}`, `other:${name}`], allow }] });
/** @param {string} name @param {string} right @returns {Claims} */
const rooms = (name, right) => ({ rooms: { [right]: [`hall:${name}`] } });
const none = () => ({});

describe('Centrifugo', () => {
  /** @type {[what: string, before: ClaimsOf, after: ClaimsOf][]} */
  const ROWS = [
    [
      'channels',
      (name) => ({ channels: [`$${name}-old`, `${name}-both`] }),
      (name) => ({ channels: [`$${name}-new`, `${name}-both`, `kept-${name}`] }),
    ],
    [
      'subs',
      (name) => ({ subs: { [`$${name}-old`]: {}, [`${name}-both`]: {} } }),
      (name) => ({ subs: { [`$${name}-new`]: { data: { a: 1 } }, [`${name}-both`]: {} } }),
    ],
    [
      'channels that are allowed to all',
      (name) => ({ channels: [`hall:${name}-1`] }),
      (name) => ({ channels: [`hall:${name}-2`] }),
    ],
    ['channels that begin', none, (name) => ({ channels: [`${name}-new`] })],
    ['channels that end', (name) => ({ channels: [`${name}-old`] }), none],
    ['a personal channel among channels', (name) => ({ channels: [`#${name}`] }), none],
    ...['sub', 'pub', 'prs', 'hst'].flatMap((right) => [
      /** @type {[string, ClaimsOf, ClaimsOf]} */
      ([`caps that give ${right}`, () => ({ caps: [] }), (name) => caps(name, [right])]),
      /** @type {[string, ClaimsOf, ClaimsOf]} */
      ([`caps that take ${right}`, (name) => caps(name, [right]), () => ({ caps: [] })]),
    ]),
    ...['publish', 'presence', 'history'].map(
      (right) =>
        /** @type {[string, ClaimsOf, ClaimsOf]} */
        ([`rooms.${right}`, (name) => rooms(name, right), none]),
    ),
    ['info', () => ({ info: { n: 1 } }), () => ({ info: { n: 2 } })],
    ['info that begins', none, () => ({ b64info: btoa('{"n":3}') })],
    ['info that ends', () => ({ info: { n: 4 } }), none],
    ['exp', () => ({ exp: inSeconds(100) }), () => ({ exp: inSeconds(900) })],
    ['expire_at', none, () => ({ expire_at: inSeconds(300) })],
    ['no end', none, () => ({ expire_at: 0 })],
  ];

  for (const [what, before, after] of ROWS)
    test(`${what}: a refreshed client has what a new client has`, OPTIONS, async (t) => {
      const expected = await observe(t, [after]);
      assert.deepEqual(await observe(t, [before, after]), expected);
      const unchanged = await observe(t, [before]);
      const isPersonal = what.startsWith('a personal');
      assert.equal(isDeepEqual(unchanged, expected), isPersonal, 'the row could not fail');
    });

  /**
   * Connects, renews, and returns what the client may do, without its name.
   * @param {TestContext} t @param {ClaimsOf[]} tokens one after the other
   */
  async function observe(t, [first, ...renewals]) {
    const { connect: open, port } = await started(t);
    const name = `n${++connections}`;
    const tokenOf = (/** @type {ClaimsOf} */ claims) =>
      connectionToken({ sub: name, exp: inSeconds(600), ...claims(name) });
    const client = await open({ token: tokenOf(first) });
    const own = `hall:${name}-own`;
    await client.call('subscribe', { channel: own });
    let { expires, ttl, subs } = client.welcome;
    const channels = new Map(Object.entries(subs ?? {}));
    for (const claims of renewals) {
      const { refresh } = await client.call('refresh', { token: tokenOf(claims) });
      ({ expires, ttl } = refresh);
    }
    await client.call('ping'); // after the joins
    for (const { push } of client.all(({ push }) => push !== undefined)) {
      if (push.subscribe) channels.set(push.channel, push.subscribe);
      if (push.unsubscribe) channels.delete(push.channel);
    }
    const api = centrifugoApiOf(port);
    const { result } = await api('channels', { pattern: `*${name}*` });
    const { result: shown } = await api('presence', { channel: own });
    /** @type {Record<string, number|undefined>} */
    const errors = {};
    for (const [command, data] of Object.entries({ publish: 1, presence: 0, history: 0 }))
      errors[command] = await client.errorOf(command, {
        channel: `hall:${name}`,
        ...(data === 1 ? { data } : {}),
      });
    errors.subscribe = await client.errorOf('subscribe', { channel: `other:${name}` });
    const seen = {
      expires,
      ttlMinutes: Math.round((ttl ?? 0) / 60),
      rooms: result.channels,
      subscribed: [...channels].sort(),
      info: shown.presence[`u:${name}`]?.conn_info,
      errors,
    };
    client.socket.close();
    return JSON.parse(
      JSON.stringify(seen)
        .replaceAll(name, 'N')
        .replace(/"epoch":"\w+"/g, '"e":1'),
    );
  }

  /** @type {[what: string, claims: Claims, close: number][]} */
  const REFUSED = [
    ['more channels than a connection may have', { channels: [...'abcdefg'] }, 3505],
    ['an unknown app', { app: '1' }, 3500],
    ['a subscription token', { channel: 'a' }, 3500],
    ['a future nbf', { nbf: inSeconds(600) }, 3500],
    ['channels in another form', { channels: 'a' }, 3500],
    ['caps with regular expressions', { caps: [{ channels: ['.'], match: 'regex' }] }, 3500],
    ['a lifetime that is too long', { exp: inSeconds(1e8) }, 3500],
    ['an info that is too large', { info: 'x'.repeat(2000) }, 3500],
  ];

  for (const [what, claims, close] of REFUSED)
    test(`${what}: refused by refresh as by connect`, OPTIONS, async (t) => {
      const { connect: open, port } = await started(t);
      const refused = await openRaw(t, port);
      refused.command('connect', { token: connectionToken(claims) });
      assert.equal(await refused.closeCode(), close);
      const client = await open({ token: connectionToken() });
      client.command('refresh', { token: connectionToken(claims) });
      assert.equal(await client.closeCode(), close);
    });

  test('another user: refused by refresh', OPTIONS, async (t) => {
    const { connect: open } = await started(t);
    const client = await open({ token: connectionToken() });
    client.command('refresh', { token: connectionToken({ sub: 'bob' }) });
    assert.equal(await client.closeCode(), 3500);
  });

  test('sub_refresh applies the end of its token as subscribe does', OPTIONS, async (t) => {
    const { connect: open } = await started(t);
    const client = await open({ token: connectionToken() });
    const channel = '$ends';
    for (const claims of [
      { exp: inSeconds(100) },
      { exp: inSeconds(100), expire_at: inSeconds(500) },
      { expire_at: 0 },
    ]) {
      const request = { channel, token: subscriptionToken(channel, claims) };
      const endOf = (/** @type {any} */ { expires, ttl = 0 }) => [expires, Math.round(ttl / 60)];
      const { subscribe } = await client.call('subscribe', request);
      const { sub_refresh: renewed } = await client.call('sub_refresh', request);
      assert.deepEqual(endOf(renewed), endOf(subscribe), JSON.stringify(claims));
      await client.call('unsubscribe', { channel });
    }
  });

  test('a channel that the backend subscribed outlives the tokens', OPTIONS, async (t) => {
    const { connect: open, port } = await started(t);
    const api = centrifugoApiOf(port);
    const named = { sub: 'kept', channels: ['first'] };
    const client = await open({ token: connectionToken(named) });
    for (const channel of ['first', 'second']) await api('subscribe', { user: 'kept', channel });
    await client.call('refresh', { token: connectionToken({ sub: 'kept' }) });
    await client.call('ping');
    assert.deepEqual(
      client.all(({ push }) => push?.unsubscribe !== undefined),
      [],
    );
  });
});

describe('native', () => {
  const ALL = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };
  const NO_RIGHT = { join: ['hall:*'] };
  const give = (/** @type {object} */ more) => () => ({ rooms: { ...NO_RIGHT, ...more } });
  /** @type {[what: string, before: ClaimsOf, after: ClaimsOf][]} */
  const ROWS = [
    [
      'autojoin',
      (name) => ({ ...give({})(), autojoin: [`${name}-old`, `${name}-both`] }),
      (name) => ({ ...give({})(), autojoin: [`${name}-new`, `${name}-both`] }),
    ],
    ...['join', 'publish', 'presence', 'history'].flatMap((right) => [
      /** @type {[string, ClaimsOf, ClaimsOf]} */
      ([`rooms.${right} that begins`, give({}), give({ [right]: ['*'] })]),
      /** @type {[string, ClaimsOf, ClaimsOf]} */
      ([`rooms.${right} that ends`, give({ [right]: ['*'] }), give({})]),
    ]),
    ['broadcast', give({}), () => ({ rooms: NO_RIGHT, broadcast: true })],
    ['info', () => ({ ...give({})(), info: 1 }), () => ({ ...give({})(), info: { n: 2 } })],
    ['info that ends', () => ({ ...give({})(), info: 1 }), give({})],
    ['exp', give({}), () => ({ rooms: NO_RIGHT, exp: inSeconds(900) })],
  ];

  for (const [what, before, after] of ROWS)
    test(`${what}: after auth a client has what a new client has`, OPTIONS, async (t) => {
      const expected = await observe(t, [after]);
      assert.deepEqual(await observe(t, [before, after]), expected);
      assert.notDeepEqual(await observe(t, [before]), expected, 'the row could not fail');
    });

  /** As above. @param {TestContext} t @param {ClaimsOf[]} tokens */
  async function observe(t, [first, ...renewals]) {
    const { port } = await started(t);
    const name = `n${++connections}`;
    const tokenOf = (/** @type {ClaimsOf} */ claims) => token({ sub: name, ...claims(name) });
    const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${tokenOf(first)}`);
    const own = `hall:${name}`;
    await client.join(own);
    let { expiresAt } = await client.ask({ type: 'auth', token: tokenOf(first) }, 'authenticated');
    for (const claims of renewals)
      ({ expiresAt } = await client.ask({ type: 'auth', token: tokenOf(claims) }, 'authenticated'));
    /** @type {Record<string, string>} */
    const answers = {};
    for (const [type, command] of Object.entries({
      publish: { type: 'message', room: 'x', payload: 1 },
      presence: { type: 'presence', room: own },
      history: { type: 'history', room: 'kept' },
      broadcast: { type: 'broadcast', payload: 1 },
      join: { type: 'join', room: `other-${name}` },
    })) {
      client.send({ ...command, id: type });
      const { type: kind, error } = await client.next(({ id }) => id === type);
      answers[type] = error ?? kind;
    }
    const api = centrifugoApiOf(port);
    const { result } = await api('channels', { pattern: `*${name}*` });
    const { result: shown } = await api('presence', { channel: own });
    const { conn_info: info } = shown.presence[`u:${name}`];
    const minutes = Math.round((expiresAt - Date.now()) / 60_000);
    client.socket.close();
    const seen = { minutes, answers, info, rooms: result.channels };
    return JSON.parse(JSON.stringify(seen).replaceAll(name, 'N'));
  }

  test('a token that is refused leaves the old one in force', OPTIONS, async (t) => {
    const { port } = await started(t);
    const client = await connect(t, `ws://127.0.0.1:${port}/ws?token=${token({ rooms: ALL })}`);
    for (const claims of [{ sub: 'bob' }, { exp: inSeconds(-60) }, { rooms: 1 }, { channel: 'a' }])
      assert.equal(
        (await client.ask({ type: 'auth', token: token(claims) }, 'authenticated')).type,
        'error',
        JSON.stringify(claims),
      );
    await client.join('still');
  });
});

/** @param {unknown} one @param {unknown} other */
function isDeepEqual(one, other) {
  try {
    assert.deepEqual(one, other);
    return true;
  } catch {
    return false;
  }
}
