import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TOKEN_USAGE, tokenCommand } from '../../src/auth/token-command.js';
import { TokenVerifier } from '../../src/auth/verifier.js';
import { createAuthCounters } from '../../src/observability/counters.js';
import { SECRET } from '../helpers/tokens.js';

const SETTINGS = { secrets: [SECRET], audience: ['chat'], issuer: ['https://id.test'] };

/** @param {string} args */
const run = (args, settings = SETTINGS) => tokenCommand(args.split(' '), settings);

test('the printed token is one that a server with the same settings accepts', async () => {
  const { code, out, err } = await run(
    '--user alice --rooms chat.*,news --publish chat.42 --broadcast --autojoin user.7 ' +
      '--info {"name":"A"} --id t1 --expires 60 --algorithm HS512',
  );
  assert.deepEqual([code, err], [0, '']);
  const verifier = new TokenVerifier({
    settings: { ...SETTINGS, publicKeys: [], jwksUrl: '', algorithms: [], maxLifetimeS: 60 },
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
    assert.deepEqual([code, out], [64, '']);
    assert.match(err, /JWT_SECRET/);
  }
});
