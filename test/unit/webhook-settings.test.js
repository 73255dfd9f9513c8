import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { describeConfig, loadConfig } from '../../src/config/config.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const URL = 'https://example.com/hook';

/**
 * @param {import('node:test').TestContext} t
 * @param {unknown} content an object is one endpoint, with a URL and a secret unless it has its own
 * @param {Record<string, string>} [env]
 */
function load(t, content, env = {}) {
  const path = join(temporaryFolder(t), 'webhooks.json');
  const isEndpoint = typeof content === 'object' && !Array.isArray(content);
  const list = isEndpoint ? [{ url: URL, secret: SECRET, ...content }] : content;
  writeFileSync(path, typeof list === 'string' ? list : JSON.stringify(list));
  return loadConfig({ FANFARE_WEBHOOKS: path, ...env });
}

/** @param {Parameters<typeof load>} args */
function valid(...args) {
  const { config, faults } = load(...args);
  assert.deepEqual(faults, []);
  assert.ok(config?.webhooks);
  return config.webhooks;
}

/** @param {Parameters<typeof load>} args @returns {string} its only fault */
function fault(...args) {
  const { config, faults } = load(...args);
  assert.equal(config, null);
  assert.equal(faults.length, 1, faults.join('\n'));
  return faults[0];
}

test('an endpoint has the defaults, and no webhooks are the default', (t) => {
  assert.equal(loadConfig({}).config?.webhooks, null);
  assert.deepEqual(valid(t, {}).endpoints, [
    {
      name: 'example.com',
      url: URL,
      secrets: [SECRET],
      types: ['room.occupied', 'room.vacated', 'member.joined', 'member.left'],
      rooms: ['*'],
      graceMs: 3000,
      maxAgeS: 86_400,
      maxPending: 10_000,
      timeoutMs: 15_000,
      concurrency: 4,
      pusher: null,
    },
  ]);
});

test('the banner has the number of endpoints', (t) => {
  /** @param {Parameters<typeof load>} args */
  const shown = (...args) => {
    const { config } = load(...args);
    assert.ok(config);
    return describeConfig(config).webhooks;
  };
  assert.equal(shown(t, {}, { FANFARE_WEBHOOKS: '' }), '');
  assert.equal(shown(t, {}), '1 endpoint');
  const [url, secret] = [URL, SECRET];
  const two = [
    { url, secret },
    { url, secret, name: 'b' },
  ];
  assert.equal(shown(t, two), '2 endpoints');
});

test('an event is covered if an endpoint has its type and a pattern of its room', (t) => {
  const webhooks = valid(t, [
    { name: 'a', url: URL, secret: SECRET, types: ['member.joined'], rooms: ['chat.*'] },
    {
      name: 'b',
      url: URL,
      secret: SECRET,
      types: ['room.occupied', 'user.connected'],
      rooms: ['x'],
    },
  ]);
  assert.equal(webhooks.covers('member.joined', 'chat.1'), true);
  assert.equal(webhooks.covers('member.joined', 'x'), false);
  assert.equal(webhooks.covers('room.occupied', 'x'), true);
  assert.equal(webhooks.covers('room.occupied', 'chat.1'), false);
  assert.equal(webhooks.covers('member.left', 'chat.1'), false);
  assert.equal(webhooks.covers('user.connected'), true);
  assert.equal(webhooks.covers('user.disconnected'), false);
  assert.equal(valid(t, {}).covers('room.occupied', '*'), false, 'the room of all connections');
  for (const room of ['~7:a', '~c:/dprivate'])
    assert.equal(valid(t, {}).covers('room.occupied', room), false, room);
});

test('a reload sees a changed file, and none where nothing has changed', (t) => {
  assert.ok(isDeepStrictEqual(valid(t, {}), valid(t, {})));
  assert.ok(!isDeepStrictEqual(valid(t, {}), valid(t, { rooms: ['chat.*'] })));
  const types = ['room.vacated', 'room.occupied'];
  assert.ok(isDeepStrictEqual(valid(t, { types }), valid(t, { types: types.slice().reverse() })));
});

test('each fault of the file has a clear message, without secrets', (t) => {
  const absent = loadConfig({ FANFARE_WEBHOOKS: '/no/such.json' });
  assert.deepEqual(absent.faults, ['FANFARE_WEBHOOKS: /no/such.json: cannot be read: ENOENT']);
  assert.match(fault(t, '[{"secret": "hunter2'), /: not JSON: line 1$/);
  assert.match(fault(t, []), /has no endpoints$/);
  assert.match(fault(t, '{}'), /not a JSON array of endpoints$/);
  assert.match(fault(t, Array(21).fill({})), /21 endpoints, at most 20$/);
  const first = (/** @type {object} */ content) =>
    fault(t, content).replace(/^FANFARE_WEBHOOKS: \S+: endpoints\[0\](?:\.|: )/, '');
  assert.match(
    first({ colour: 1 }),
    /^unknown field "colour"; there are name, url, secret, types,/,
  );
  assert.match(first({ url: undefined }), /^url: missing$/);
  assert.match(first({ url: 'example.com' }), /^url: not a URL$/);
  assert.match(first({ url: 'ftp://example.com' }), /^url: neither https: nor http:$/);
  assert.match(first({ url: 'http://a@b' }), /^url: has a user name or a password$/);
  for (const secret of ['hunter2', 'whsec_c2hvcnQ=', [], [SECRET, SECRET, SECRET], 3]) {
    assert.match(first({ secret }), /^secret: not "whsec_" and 24 to 64 random bytes in Base64/);
    assert.doesNotMatch(first({ secret }), /hunter2|c2hvcnQ/);
  }
  assert.match(first({ url: 'http://10.0.0.1:9090/' }), /^url: its port is that of METRICS_PORT$/);
  const redis = { REDIS_URL: 'redis://cache:6380' };
  assert.match(fault(t, { url: 'http://cache:6380/' }, redis), /its port is that of Redis$/);
  assert.match(first({ types: ['webhook.gap'] }), /^types\[0\]: not one of room\.occupied, /);
  assert.match(first({ types: ['message.published'] }), /^types: message\.published needs "rooms"/);
  assert.match(first({ rooms: ['chat ?'] }), /^rooms\[0\]: not a pattern of room names/);
  assert.match(first({ graceMs: -1 }), /^graceMs: not an integer from 0 to 60000$/);
  assert.match(first({ concurrency: '4' }), /^concurrency: not an integer from 1 to 64$/);
  assert.match(first({ name: 'two words' }), /^name: not 1 to 64 characters/);
  const twice = { url: URL, secret: SECRET };
  assert.match(
    fault(t, [twice, twice]),
    /endpoints\[1\]\.name: the same as in endpoints\[0\]: give each a "name"$/,
  );
  assert.equal(
    loadConfig({ FANFARE_WEBHOOKS_PUBLIC_ONLY: 'on' }).faults[0],
    'FANFARE_WEBHOOKS_PUBLIC_ONLY: has no effect without FANFARE_WEBHOOKS or hooks over HTTP',
  );
});
