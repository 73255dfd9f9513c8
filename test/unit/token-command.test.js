import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TOKEN_USAGE, tokenCommand } from '../../src/auth/token-command.js';
import { TokenVerifier } from '../../src/auth/verifier.js';
import { connectionReader, subscriptionReader } from '../../src/doors/centrifugo/codec/tokens.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { OTHER_SECRET, SECRET, token } from '../helpers/tokens.js';

const SETTINGS = {
  ...{ secrets: [SECRET], publicKeys: [], jwksUrl: '', algorithms: [], maxLifetimeS: 604_800 },
  ...{ audience: ['chat'], issuer: ['https://id.test'] },
};

/** @param {string} args */
const run = (args, settings = SETTINGS) => tokenCommand(args.split(' '), settings);

test('the printed token is one that a server with the same settings accepts', async () => {
  const { code, out, err } = await run(
    '--user alice --rooms chat.*,news --publish chat.42 --broadcast --autojoin user.7 ' +
      '--info {"name":"A"} --id t1 --expires 60 --algorithm HS512',
  );
  assert.deepEqual([code, err], [0, '']);
  const verifier = new TokenVerifier({
    settings: { ...SETTINGS, maxLifetimeS: 60 },
    revocations: { isRevoked: () => false },
    counters: createAuthCounters(),
    log: { info() {}, warn() {} },
  });
  await verifier.start();
  const { user, tokenId, rights, mayBroadcast, autojoin, info } = await verifier.verify(out.trim());
  assert.deepEqual(
    [user, tokenId, autojoin, `${info}`],
    ['alice', 't1', ['user.7'], '{"name":"A"}'],
  );
  assert.ok(rights.join.has('news') && rights.history.has('chat.1') && mayBroadcast);
  assert.ok(rights.publish.has('chat.42') && !rights.publish.has('news'));
});

for (const [name, args] of [
  ['no user', '--join a'],
  ['an unknown option', '--user a --rights b'],
  ['a room pattern that is not valid', '--user a --join b%'],
  ['a lifetime that is no number', '--user a --expires 1h'],
  ['info that is not JSON', '--user a --info {x'],
  ['an algorithm without a secret', '--user a --algorithm RS256'],
]) {
  test(`${name} is answered with the usage and exit code 64`, async () => {
    const { code, out, err } = await run(args);
    assert.deepEqual([code, out], [64, '']);
    assert.ok(err.endsWith(TOKEN_USAGE));
    assert.ok(!err.includes(SECRET));
  });
}

test('without a secret no token is printed', async () => {
  for (const settings of [null, { ...SETTINGS, secrets: [] }]) {
    const { code, out, err } = await tokenCommand(['--user', 'a'], settings);
    assert.deepEqual([code, out], [78, '']);
    assert.match(err, /JWT_SECRET/);
  }
});

/** @param {string[]} args @param {string} [input] @param {object} [more] */
const check = (args, input = '', more = {}) =>
  tokenCommand(
    ['--check', ...args],
    { ...SETTINGS, audience: [], issuer: [] },
    {
      readInput: async () => input,
      ...more,
    },
  );

test('--check says that a token is accepted, for whom and for what', async () => {
  const nowMs = 1_800_000_000_000;
  const nowS = nowMs / 1000;
  const rooms = { join: ['chat.*', 'news'], publish: [], subscribe: ['a'] };
  const text = token({ sub: 42, iat: nowS - 5, exp: nowS + 60, jti: '\u001b\u202e', rooms });
  for (const given of [await check([text], '', { nowMs }), await check([], `${text}\n`, { nowMs })])
    assert.deepEqual(given, {
      code: 0,
      err: '',
      out: `native: accepted
  user "42"
  issued 5 s ago, expires in 60 s
  id "\\u001b\\u202e"
  rooms: join chat.*, news
  rooms.subscribe is no right: there are join, publish, presence, history, audience
`,
    });
});

test('--check says why each door refuses a token', async () => {
  const doors = [
    { name: 'native' },
    { name: 'connection', read: connectionReader(true) },
    { name: 'subscription', read: subscriptionReader(true) },
  ];
  const text = token({ exp: undefined, iat: undefined });
  const { code, out } = await check([text], '', { doors });
  assert.equal(code, 0, 'one door accepts it');
  assert.equal(
    out,
    `native: refused (INVALID_TOKEN): claim exp: it is missing
connection: accepted
  user "alice"
  issued at an unknown time, expires never
  rooms: none
subscription: refused (INVALID_TOKEN): claim channel: it is missing, and a subscription token names its channel
`,
  );
  const foreign = await check([token({}, OTHER_SECRET)]);
  assert.deepEqual(foreign, {
    code: 77,
    out: 'native: refused (INVALID_TOKEN): it was not signed with a configured key\n',
    err: '',
  });
});

test('--check names the channel of a subscription token, whose rooms nobody has read', async () => {
  const doors = [{ name: 'subscription', read: subscriptionReader(true) }];
  for (const rooms of [null, { join: 'news' }, 7]) {
    const { code, out } = await check([token({ channel: 'news', rooms })], '', { doors });
    assert.equal(code, 0);
    assert.equal(out.split('\n').at(-2), '  channel "news"');
  }
});

test('--check needs one token and a key', async () => {
  for (const given of [check([]), check(['a', 'b'])]) assert.equal((await given).code, 64);
  assert.equal((await tokenCommand(['--check', 'a'], null)).code, 78);
});
