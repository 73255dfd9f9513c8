// centrifugo-channels.test.js: subscriptions and the other commands about channels over the
// Centrifugo door: names, rights, tokens, presence, history, subscriptions by the server.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  connectionToken,
  sharedCentrifugo,
  subscriptionToken,
  WITH_TOKENS,
} from '../helpers/centrifugo.js';
import { centrifugoApiOf, KEY } from '../helpers/centrifugo-api.js';
import { connect as connectNative } from '../helpers/clients.js';

const OPTIONS = { timeout: 60_000 };
const HISTORY = { FANFARE_HISTORY: 'h*=100/300s,personal:*=10/60s' };
const withTokens = sharedCentrifugo({
  ...WITH_TOKENS,
  ...HISTORY,
  FANFARE_PRESENCE: 'p*,hall:*',
  FANFARE_CENTRIFUGO_ALLOW:
    'subscribe:open:*, history:hopen, ' +
    'subscribe:hall:*, publish:hall:*, presence:hall:*, history:hall:*',
  FANFARE_CENTRIFUGO_PERSONAL: 'personal:#',
});
/** Who has no token may do everything. */
const started = sharedCentrifugo({
  ...WITH_TOKENS,
  FANFARE_AUTH: 'optional',
  FANFARE_CENTRIFUGO_API_KEY: KEY,
  FANFARE_PRESENCE: 'p*,hall:*',
  ...HISTORY,
  FANFARE_MAX_ROOMS_PER_CONNECTION: '4',
  FANFARE_MAX_INLINE_BYTES: '1000',
  FANFARE_LIMITS: 'enforce,messages=off',
});
const inSeconds = (/** @type {number} */ seconds) => Math.floor(Date.now() / 1000) + seconds;

/** @param {Record<string, unknown>} claims @returns {{token: string}} */
const asking = (claims) => ({ token: connectionToken(claims) });

/** @param {string[]} channels @param {string[]} allow */
const caps = (channels, allow) => ({ caps: [{ channels, match: 'wildcard', allow }] });

describe('subscribe', () => {
  test('errors of names, kinds and limits', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const client = await connect();
    for (const [channel, code] of /** @type {[string, number][]} */ ([
      ['x'.repeat(256), 107],
      ['a b', 102],
      ['a/b', 102],
      ['a*', 102],
      ['a&b', 102],
      ['ä', 102],
      ['$private', 103],
      ['news:$private', 103],
      ['dialog#42,43', 103],
    ]))
      assert.equal(await client.errorOf('subscribe', { channel }), code, channel);
    const kinds = { channel: 'a', type: 1 };
    assert.equal(await client.errorOf('subscribe', kinds), 108, 'a map');
    assert.equal(await client.errorOf('subscribe', { channel: 'a', tf: { key: 'k' } }), 107);
    const { subscribe } = await client.call('subscribe', { channel: 'a', delta: 'fossil' });
    assert.deepEqual(subscribe, {}, 'without a delta');
    assert.equal(await client.errorOf('subscribe', { channel: 'a' }), 105);
    for (const channel of ['x'.repeat(255), '__proto__', 'a(b)!^|~'])
      assert.deepEqual((await client.call('subscribe', { channel })).subscribe, {}, channel);
    assert.equal(await client.errorOf('subscribe', { channel: 'b' }), 106);
    assert.deepEqual((await client.call('unsubscribe', { channel: 'a' })).unsubscribe, {});
    assert.deepEqual((await client.call('unsubscribe', { channel: 'a' })).unsubscribe, {}, 'again');
    assert.deepEqual((await client.call('subscribe', { channel: 'b' })).subscribe, {});
  });

  test(
    'channels of special characters are theirs alone, others are native rooms',
    OPTIONS,
    async (t) => {
      const { connect, port } = await withTokens(t);
      const everything = caps(['*'], ['sub', 'pub']);
      const client = await connect(asking(everything));
      const token = subscriptionToken('$a#alice');
      assert.equal(await client.errorOf('subscribe', { channel: '$a#alice', token }), undefined);
      assert.deepEqual((await client.call('subscribe', { channel: 'news:1' })).subscribe, {});
      const native = await connectNative(
        t,
        `ws://127.0.0.1:${port}/?token=${connectionToken({ iat: inSeconds(0), rooms: { join: ['*'], publish: ['*'] } })}`,
      );
      await native.join('news:1');
      for (const room of ['~c:/da/halice', '/da/halice', '$a#alice'])
        native.send({ type: 'message', room, payload: 'stolen' });
      native.send({ type: 'message', room: 'news:1', payload: { text: 'native\n' } });
      const { channel, pub } = await client.push('pub');
      assert.deepEqual([channel, pub.data], ['news:1', { text: 'native\n' }]);
      assert.deepEqual(pub.info, { user: 'alice' });
      assert.ok(Math.abs(pub.time - Date.now()) < 60_000);
      await client.call('publish', { channel: 'news:1', data: 'theirs' });
      assert.equal((await native.next(({ payload }) => payload === 'theirs')).from, 'alice');
      assert.deepEqual(client.publications('$a#alice'), []);
    },
  );

  test('a subscription token is for one user and one channel', OPTIONS, async (t) => {
    const { connect } = await withTokens(t);
    const client = await connect(asking({}));
    const channel = '$secret';
    const subscribe = (/** @type {string} */ token) => client.call('subscribe', { channel, token });
    const old = await subscribe(subscriptionToken(channel, { exp: inSeconds(-60) }));
    assert.equal(old.error.code, 109);
    for (const token of ['nonsense', `${subscriptionToken(channel).slice(0, -4)}AAAA`])
      assert.equal((await subscribe(token)).error.code, 103, 'it may be fetched again');
    const { subscribe: result } = await subscribe(
      subscriptionToken(channel, { exp: inSeconds(100), data: { a: 1 } }),
    );
    assert.ok(result.expires && result.ttl > 90, JSON.stringify(result));
    assert.deepEqual(result.data, { a: 1 });
    for (const token of [
      subscriptionToken('$other'),
      subscriptionToken(channel, { sub: 'bob' }),
      subscriptionToken(channel, { sub: undefined }),
    ]) {
      const other = await connect(asking({}));
      other.command('subscribe', { channel, token });
      assert.equal(await other.closeCode(), 3500, token);
    }
  });

  test('sub_refresh prolongs a subscription, and 2501 ends it', OPTIONS, async (t) => {
    const { connect } = await withTokens(t);
    const client = await connect(asking({}));
    const channel = '$secret';
    const until = (/** @type {number} */ seconds) => ({
      channel,
      token: subscriptionToken(channel, { exp: inSeconds(3600), expire_at: inSeconds(seconds) }),
    });
    assert.equal(await client.errorOf('sub_refresh', until(9)), 103, 'not subscribed');
    await client.call('subscribe', until(10));
    const { sub_refresh: result } = await client.call('sub_refresh', until(300));
    assert.ok(result.expires && result.ttl > 290, JSON.stringify(result));
    // Its time is over already, and so is the time for a new token.
    await client.call('sub_refresh', until(-30));
    assert.deepEqual(await client.push('unsubscribe'), {
      channel,
      unsubscribe: { code: 2501, reason: 'subscription expired' },
    });
    assert.equal((await client.call('subscribe', until(10))).error, undefined, 'it has left');
  });

  test('a sub_refresh by an expired token is closed with 3006', OPTIONS, async (t) => {
    const { connect } = await withTokens(t);
    const client = await connect(asking({}));
    const channel = '$secret';
    const token = subscriptionToken(channel, { exp: inSeconds(300) });
    await client.call('subscribe', { channel, token });
    const expired = subscriptionToken(channel, { exp: inSeconds(-60) });
    client.command('sub_refresh', { channel, token: expired });
    assert.equal(await client.closeCode(), 3006);
  });

  test(
    'rights: caps, the native rooms, FANFARE_CENTRIFUGO_ALLOW, users of a channel',
    OPTIONS,
    async (t) => {
      const { connect } = await withTokens(t);
      const nobody = await connect(asking({}));
      assert.equal(await nobody.errorOf('subscribe', { channel: 'news' }), 103);
      assert.equal(await nobody.errorOf('subscribe', { channel: 'open:1' }), undefined);
      assert.equal(await nobody.errorOf('subscribe', { channel: 'open:#bob' }), 103);
      assert.equal(await nobody.errorOf('subscribe', { channel: 'dialog#bob,alice' }), undefined);
      assert.equal(await nobody.errorOf('publish', { channel: 'open:1', data: 1 }), 103);
      assert.equal(await nobody.errorOf('history', { channel: 'h1' }), 103);
      assert.equal(await nobody.errorOf('history', { channel: 'hopen' }), undefined);
      assert.equal(await nobody.errorOf('presence', { channel: 'p1' }), 103);
      const able = await connect(asking(caps(['p*', 'h*', 'a:(*)'], ['sub', 'pub', 'prs', 'hst'])));
      for (const channel of ['p1', 'h1', 'a:(1)']) {
        assert.equal(await able.errorOf('subscribe', { channel }), undefined, channel);
        assert.equal(await able.errorOf('publish', { channel, data: 1 }), undefined, channel);
      }
      assert.equal(await able.errorOf('history', { channel: 'h1' }), undefined);
      assert.equal(await able.errorOf('presence', { channel: 'p1' }), undefined);
      assert.equal(await able.errorOf('presence_stats', { channel: 'h1' }), 108);
      const native = await connect(asking({ rooms: { join: ['n.*'], publish: ['n.1'] } }));
      assert.equal(await native.errorOf('subscribe', { channel: 'n.2' }), undefined);
      assert.equal(await native.errorOf('publish', { channel: 'n.1', data: 1 }), undefined);
      assert.equal(await native.errorOf('publish', { channel: 'n.2', data: 1 }), 103);
    },
  );
});

describe('guarded channels', () => {
  const ALL = ['subscribe', 'history', 'presence', 'presence_stats', 'publish'];
  const USE = ALL.filter((command) => command !== 'subscribe');
  const BOARD = 'hall:$board';
  /**
   * What FANFARE_CENTRIFUGO_ALLOW and FANFARE_AUTH=optional let a client do in each kind of
   * channel. `claims` null: it has no token.
   * @type {{who: string, claims: Record<string, unknown>|null, subscribes?: string,
   *   permits: Record<string, string[]>}[]}
   */
  const ROWS = [
    {
      who: 'a user whose token names no right',
      claims: {},
      permits: {
        'hall:1': ALL,
        [BOARD]: [],
        'hall:dialog#alice,bob': ALL,
        'hall:dialog#bob,carl': [],
        'hall:#bob': [],
        'hall:$dialog#alice': [],
      },
    },
    { who: 'a client without a token', claims: null, permits: { 'hall:1': ALL, [BOARD]: [] } },
    {
      who: 'a client without a token',
      claims: null,
      permits: { 'hall:dialog#bob,carl': [], 'hall:dialog#': [] },
    },
    {
      who: 'a user whose token names a right in the channel',
      claims: caps([BOARD, 'hall:dialog#bob'], ['sub', 'hst']),
      permits: { [BOARD]: ['history'], 'hall:dialog#bob': ['history'] },
    },
    {
      who: 'a user whose token names all rights in the namespace',
      claims: caps(['hall:*'], ['sub', 'pub', 'prs', 'hst']),
      permits: { [BOARD]: USE, 'hall:dialog#bob': USE, 'hall:1': ALL },
    },
    {
      who: 'a subscriber',
      claims: {},
      subscribes: BOARD,
      permits: { [BOARD]: USE, 'hall:$other': [] },
    },
  ];

  for (const { who, claims, subscribes, permits } of ROWS)
    for (const [channel, commands] of Object.entries(permits))
      test(`${channel}: ${who} may ${commands.join(', ') || 'do nothing'}`, OPTIONS, async (t) => {
        const { connect } = claims === null ? await started(t) : await withTokens(t);
        const client = await connect(claims === null ? {} : asking(claims));
        const isIn = subscribes === channel;
        if (subscribes !== undefined) {
          const token = subscriptionToken(subscribes);
          await client.call('subscribe', { channel: subscribes, token });
        }
        for (const command of ALL) {
          const data = command === 'publish' ? { data: 1 } : {};
          const expected = commands.includes(command) ? undefined : isIn ? 105 : 103;
          assert.equal(await client.errorOf(command, { channel, ...data }), expected, command);
        }
        if (!isIn) return;
        await client.call('unsubscribe', { channel });
        assert.equal(await client.errorOf('history', { channel }), 103, 'after it has left');
      });
});

describe('publish', () => {
  test('data has to be there, and within the size; keys are of maps', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const client = await connect();
    const error = (/** @type {Record<string, unknown>} */ request) =>
      client.errorOf('publish', { channel: 'a', ...request });
    assert.equal(await error({}), 107);
    assert.equal(await error({ data: 'x'.repeat(1001) }), 107);
    assert.equal(await error({ data: 1, key: 'k' }), 108);
    assert.equal(await error({ channel: 'a b', data: 1 }), 102);
    await client.call('subscribe', { channel: 'a' });
    for (const data of [null, 0, '', false, [], { a: { b: ['ü', 1.5e300] } }])
      assert.deepEqual((await client.call('publish', { channel: 'a', data })).publish, {});
    await client.collect(({ push }) => push?.pub !== undefined, 6);
    assert.deepEqual(
      client.publications('a').map(({ data }) => data),
      [null, 0, '', false, [], { a: { b: ['ü', 1.5e300] } }],
    );
    const { info } = client.publications('a')[0];
    assert.deepEqual(info, { client: client.welcome.client });
  });
});

describe('presence', () => {
  test('users count once, clients without a user for themselves', OPTIONS, async (t) => {
    const { connect, port } = await started(t);
    const rights = caps(['p'], ['sub', 'prs']);
    const watcher = await connect();
    await watcher.call('subscribe', { channel: 'p' });
    const [one, two] = [
      await connect(asking({ ...rights, info: { name: 'A' } })),
      await connect(asking({ ...rights, info: { name: 'A' } })),
    ];
    await one.call('subscribe', { channel: 'p' });
    await watcher.next(({ push }) => push?.join?.info.user === 'alice');
    await two.call('subscribe', { channel: 'p' });
    const { presence } = (await two.call('presence', { channel: 'p' })).presence;
    const { client } = watcher.welcome;
    assert.deepEqual(presence, {
      'u:alice': { user: 'alice', client: 'u:alice', conn_info: { name: 'A' } },
      [client]: { client },
    });
    // Clients without a user are one user together, for backends too.
    await (await connect()).call('subscribe', { channel: 'p' });
    const stats = { num_clients: 3, num_users: 2 };
    const { presence_stats: own } = await two.call('presence_stats', { channel: 'p' });
    assert.deepEqual(own, stats);
    const api = centrifugoApiOf(port);
    assert.deepEqual((await api('presence_stats', { channel: 'p' })).result, stats);
    one.socket.close();
    await two.call('unsubscribe', { channel: 'p' });
    const { leave } = await watcher.push('leave');
    assert.deepEqual(leave.info, {
      user: 'alice',
      client: 'u:alice',
      conn_info: { name: 'A' },
    });
    assert.equal(watcher.all(({ push }) => push?.join?.info.user === 'alice').length, 1);
    assert.equal(await watcher.errorOf('presence', { channel: 'other' }), 108);
    assert.equal(await watcher.errorOf('presence_stats', { channel: 'other' }), 108);
  });
});

describe('history', () => {
  test('forward, reverse, from a position, and the position alone', OPTIONS, async (t) => {
    const { connect } = await started(t);
    const client = await connect();
    for (let data = 1; data <= 10; data++) await client.call('publish', { channel: 'h1', data });
    const read = async (/** @type {Record<string, unknown>} */ request = {}) =>
      (await client.call('history', { channel: 'h1', ...request })).history;
    const dataOf = async (/** @type {Record<string, unknown>} */ request) =>
      (await read(request)).publications.map((/** @type {any} */ { data }) => data);
    const { epoch, ...top } = await read();
    assert.deepEqual(top, { publications: [], offset: 10 });
    assert.deepEqual(await dataOf({ limit: 3 }), [1, 2, 3]);
    assert.deepEqual(await dataOf({ limit: -1 }), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    assert.deepEqual(await dataOf({ limit: 3, reverse: true }), [10, 9, 8]);
    assert.deepEqual(await dataOf({ limit: 2, since: { offset: 4, epoch } }), [5, 6]);
    assert.deepEqual(await dataOf({ limit: 2, since: { offset: 4 } }), [5, 6]);
    assert.deepEqual(
      await dataOf({ limit: 2, since: { offset: 4, epoch }, reverse: true }),
      [3, 2],
    );
    assert.deepEqual(await dataOf({ limit: 2, since: { offset: 10, epoch } }), []);
    const [first] = (await read({ limit: 1 })).publications;
    assert.deepEqual([first.offset, first.info], [1, { client: client.welcome.client }]);
    const error = (/** @type {Record<string, unknown>} */ request) =>
      client.errorOf('history', { channel: 'h1', ...request });
    assert.equal(await error({ limit: 1, since: { offset: 1, epoch: 'other' } }), 112);
    assert.equal(await error({ limit: 1, since: { offset: 0, epoch }, reverse: true }), 107);
    assert.equal(await error({ channel: 'none' }), 108);
  });
});

describe('subscriptions by the server', () => {
  test(
    'their results are in the reply of connect, and nothing is pushed before',
    OPTIONS,
    async (t) => {
      const { connect } = await withTokens(t);
      const publisher = await connect(asking(caps(['*'], ['pub'])));
      await publisher.call('publish', { channel: 'h3', data: 'before' });
      let isOver = false;
      const flood = (async () => {
        for (let data = 0; !isOver; data++)
          await publisher.call('publish', { channel: 'plain', data });
      })();
      const channels = ['h3', 'plain'];
      const subs = { $private: { data: { a: 1 } }, h4: {} };
      const clients = await Promise.all(
        Array.from({ length: 10 }, () => connect(asking({ channels, subs }))),
      );
      isOver = true;
      await flood;
      for (const { messages, welcome } of clients) {
        assert.equal(messages[0].id, 1);
        assert.deepEqual(Object.keys(welcome.subs).sort(), [
          '$private',
          'h3',
          'h4',
          'personal:#alice',
          'plain',
        ]);
        assert.deepEqual(welcome.subs.$private, { data: { a: 1 } });
        assert.equal(welcome.subs.h3.offset, 1);
      }
      const [client] = clients;
      assert.equal(await client.errorOf('subscribe', { channel: 'h3' }), 105);
      await publisher.call('publish', { channel: 'h3', data: 'after' });
      const { pub } = (await client.next(({ push }) => push?.channel === 'h3')).push;
      assert.deepEqual([pub.data, pub.offset], ['after', 2]);
    },
  );

  test("each user's personal channel is among them, if it is configured", OPTIONS, async (t) => {
    const { connect, open } = await withTokens(t);
    const own = 'personal:#42';
    const client = await connect(asking({ sub: '42', channels: ['news'] }));
    assert.deepEqual(Object.keys(client.welcome.subs).sort(), ['news', own]);
    const { epoch } = client.welcome.subs[own];
    assert.equal(await client.errorOf('subscribe', { channel: own }), 105);
    const other = await connect(asking({ sub: '43', channels: [own] }));
    assert.deepEqual(Object.keys(other.welcome.subs).sort(), [own, 'personal:#43']);
    const publisher = await connect(asking({ sub: 'p', ...caps(['*'], ['pub']) }));
    await publisher.call('publish', { channel: own, data: 1 });
    assert.equal((await client.next(({ push }) => push?.pub)).push.channel, own);
    const again = await connect({
      ...asking({ sub: '42' }),
      subs: { [own]: { recover: true, offset: 0, epoch } },
    });
    assert.equal(again.welcome.subs[own].publications.length, 1);
    // Their channels would be of others, or have no valid name.
    for (const sub of ['42,43', 'a#42', 'a b', 'ä', 'a/b']) {
      const { welcome } = await connect(asking({ sub }));
      assert.equal(welcome.subs, undefined, sub);
    }
    const anonymous = await open();
    anonymous.command('connect');
    assert.equal(await anonymous.closeCode(), 3501);
  });

  test('positions in connect are recovered', OPTIONS, async (t) => {
    const { connect } = await withTokens(t);
    const publisher = await connect(asking(caps(['*'], ['pub'])));
    const first = await connect(asking({ channels: ['h5', 'h6'] }));
    for (const data of [1, 2, 3]) await publisher.call('publish', { channel: 'h5', data });
    const { epoch } = first.welcome.subs.h5;
    const again = await connect({
      ...asking({ channels: ['h5', 'h6'] }),
      subs: { h5: { recover: true, offset: 1, epoch }, h6: { recover: true, offset: 1, epoch } },
    });
    const { h5, h6 } = again.welcome.subs;
    assert.deepEqual(
      [
        h5.recovered,
        h5.was_recovering,
        h5.offset,
        h5.publications.map((/** @type {any} */ { data }) => data),
      ],
      [true, true, 1, [2, 3]],
    );
    assert.deepEqual([h6.recovered, h6.was_recovering], [undefined, true]);
  });

  test('more of them than rooms are allowed are closed with 3505', OPTIONS, async (t) => {
    const { open } = await started(t);
    const client = await open();
    client.command('connect', asking({ channels: ['a', 'b', 'c', 'd', 'e'] }));
    assert.equal(await client.closeCode(), 3505);
  });
});
