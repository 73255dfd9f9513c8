// pusher-settings.test.js: the apps of Pusher clients, from a file and from variables.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { changedFixed, loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { codeWith } from '../helpers/doc-code.js';
import { temporaryFolder } from '../helpers/temporary-folder.js';

const APP = { id: '123', key: 'app-key', secret: 'a-secret-of-twenty-c' };

/**
 * @param {import('node:test').TestContext} t
 * @param {unknown} content an object is one app, with id, key and secret unless it has its own
 * @param {Record<string, string>} [env]
 */
function load(t, content, env = {}) {
  const path = join(temporaryFolder(t), 'apps.json');
  const isApp = typeof content === 'object' && !Array.isArray(content);
  const list = isApp ? [{ ...APP, ...content }] : content;
  writeFileSync(path, typeof list === 'string' ? list : JSON.stringify(list));
  return loadConfig({ FANFARE_PUSHER_APPS: path, ...env });
}

/** @param {Parameters<typeof load>} args */
function valid(...args) {
  const { config, faults, warnings } = load(...args);
  assert.deepEqual(faults, []);
  assert.ok(config?.pusher);
  return { config, pusher: config.pusher, app: config.pusher.apps[0], warnings };
}

/** @param {Parameters<typeof load>} args @returns {string} its only fault */
function fault(...args) {
  const { config, faults } = load(...args);
  assert.equal(config, null);
  assert.equal(faults.length, 1, faults.join('\n'));
  return faults[0];
}

test('an app has the limits of Pusher by default, and there are no apps by default', (t) => {
  assert.equal(loadConfig({}).config?.pusher, null);
  const { pusher, app, warnings } = valid(t, {});
  assert.deepEqual(app, {
    id: '123',
    key: 'app-key',
    secrets: ['a-secret-of-twenty-c'],
    isEnabled: true,
    isShared: false,
    origins: [],
    maxConnections: 0,
    quotaCode: 4004,
    activityTimeoutS: 120,
    tlsOnly: false,
    clientEvents: false,
    clientEventsPerSecond: 10,
    subscriptionCount: false,
    authorizeWithinMs: 0,
    maxEventBytes: 10_240,
    maxChannelsPerEvent: 100,
    maxBatch: 10,
    maxChannelLength: 200,
    maxEventNameLength: 200,
    maxPresenceMembers: 100,
    maxMemberBytes: 1024,
    cacheTtlS: 1800,
    extraChannelInfo: false,
    clientEventData: 'string',
    history: [],
    presence: [],
    publicRooms: null,
    webhooks: [],
  });
  assert.ok(Object.isFrozen(app));
  assert.equal(pusher.byKey.get('app-key'), app);
  assert.equal(pusher.byId.get('123'), app);
  assert.equal(pusher.pathPrefix, '');
  assert.deepEqual(warnings, []);
});

test('three variables are one app, and its secrets may be lines', () => {
  const env = {
    FANFARE_PUSHER_APP_ID: '7',
    FANFARE_PUSHER_APP_KEY: 'key',
    FANFARE_PUSHER_APP_SECRET: 'one-secret-of-16-c\n another-one-of-16',
    FANFARE_PUSHER_PATH: '/ws/',
  };
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.deepEqual(config?.pusher?.apps[0].secrets, ['one-secret-of-16-c', 'another-one-of-16']);
  assert.equal(config?.pusher?.pathPrefix, '/ws');
  for (const missing of Object.keys(env).slice(0, 3))
    assert.deepEqual(loadConfig({ ...env, [missing]: '' }).faults, [
      'FANFARE_PUSHER_APP_ID, _KEY and _SECRET: set all of them, or none',
    ]);
});

test("-1 is no limit of connections and client events, as in soketi's file", (t) => {
  const { app } = valid(t, { maxConnections: -1, maxClientEventsPerSecond: -1 });
  assert.deepEqual([app.maxConnections, app.clientEventsPerSecond], [0, 0]);
});

test("an app of soketi's file is taken as it is", (t) => {
  const { app, warnings } = valid(t, {
    preset: 'soketi',
    id: 5,
    enabled: true,
    maxConnections: '-1',
    enableClientMessages: false,
    enableUserAuthentication: true,
    maxBackendEventsPerSecond: -1,
    maxReadRequestsPerSecond: 50,
    maxClientEventsPerSecond: 3,
    maxPresenceMembersPerChannel: 50,
    maxPresenceMemberSizeInKb: 4,
    maxChannelNameLength: 150,
    maxEventChannelsAtOnce: 20,
    maxEventNameLength: 100,
    maxEventPayloadInKb: 0.5,
    maxEventBatchSize: 5,
    webhooks: [
      {
        url: 'https://example.com/hook',
        event_types: ['member_added', 'channel_occupied'],
        filter: { channel_name_starts_with: 'a-', channel_name_ends_with: '-z' },
        headers: { 'X-One': '1' },
      },
    ],
  });
  const { id, maxConnections, clientEvents, authorizeWithinMs, quotaCode, extraChannelInfo } = app;
  assert.deepEqual(
    { id, maxConnections, clientEvents, authorizeWithinMs, quotaCode, extraChannelInfo },
    {
      id: '5',
      maxConnections: 0,
      clientEvents: false,
      authorizeWithinMs: 30_000,
      quotaCode: 4100,
      extraChannelInfo: true,
    },
  );
  assert.deepEqual(
    [app.clientEventsPerSecond, app.maxPresenceMembers, app.maxMemberBytes, app.maxChannelLength],
    [3, 50, 4096, 150],
  );
  assert.deepEqual([app.maxChannelsPerEvent, app.maxEventBytes, app.maxBatch], [20, 512, 5]);
  assert.deepEqual(app.webhooks, [
    {
      url: 'https://example.com/hook',
      events: ['channel_occupied', 'member_added'],
      startsWith: 'a-',
      endsWith: '-z',
      batchMs: 0,
      headers: { 'X-One': '1' },
    },
  ]);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /apps\[0\]\.maxReadRequestsPerSecond: has no effect/);
});

test('a fault names the app and the field, and quotes no secret', (t) => {
  const faults = /** @type {[object, RegExp][]} */ ([
    [{ id: 'x' }, /apps\[0\]\.id: not a number, or a name of 2 to 64 letters/],
    [{ id: 'a_b' }, /apps\[0\]\.id: not a number/],
    [{ id: '-a' }, /apps\[0\]\.id: not a number/],
    [{ id: 'a:b' }, /apps\[0\]\.id: not a number/],
    [{ key: 'a:b' }, /apps\[0\]\.key: not/],
    [{ secret: 'two words' }, /\.secret: not 1 to 256 printable/],
    [{ secret: undefined }, /apps\[0\]: needs either "secret" or "secrets"/],
    [{ secrets: ['a', 'b'] }, /needs either "secret" or "secrets"/],
    [{ preset: 'reverb' }, /\.preset: not one of strict, soketi/],
    [{ quotaCode: 4005 }, /\.quotaCode: neither 4004/],
    [{ activityTimeout: 0 }, /\.activityTimeout: not an integer from 1/],
    [{ maxBatch: 0 }, /\.maxBatch: not an integer from 1/],
    [{ enabled: 'yes' }, /\.enabled: neither true nor false/],
    [{ origins: ['example.com'] }, /\.origins\[0\]: not an origin: scheme/],
    [{ clientEvents: true, enableClientMessages: true }, /\.clientEvents: two names of it/],
    [{ clientEventData: 'object' }, /\.clientEventData: not one of string, asSent/],
    [{ maxEventByte: 1 }, /unknown field "maxEventByte"/],
    [{ __proto__: null, constructor: 1 }, /unknown field "constructor"/],
    [
      { webhooks: [{ url: 'ftp://x', events: ['cache_miss'] }] },
      /apps\[0\]\.webhooks\[0\]\.url: neither https: nor http:$/,
    ],
    [
      { webhooks: [{ url: 'http://x', events: ['x'] }] },
      /webhooks\[0\]\.events\[0\]: not one of channel_occupied, /,
    ],
    [{ maxEventBytes: 200_000 }, /maxEventBytes: 200000, above FANFARE_MAX_MESSAGE_/],
    [{ maxPresenceMembers: 2000 }, /above FANFARE_PRESENCE_MAX_MEMBERS \(1000\)/],
  ]);
  for (const [app, text] of faults) {
    const found = fault(t, app);
    assert.match(found, text);
    assert.doesNotMatch(found, /two words|secret-of/);
  }
  assert.match(fault(t, 'no JSON'), /not JSON/);
  assert.match(fault(t, []), /has no apps$/);
  assert.match(
    fault(t, {}, { FANFARE_PUSHER_APP_ID: '1' }),
    /FANFARE_PUSHER_APPS: .* set one of them/,
  );
  assert.match(fault(t, {}, { FANFARE_PUSHER_PATH: 'ws' }), /FANFARE_PUSHER_PATH/);
  const small = { FANFARE_API_MAX_BODY_BYTES: '10000' };
  assert.match(fault(t, {}, small), /10240, above FANFARE_API_MAX_BODY_BYTES \(10000\)/);
  assert.match(fault(t, [APP, { ...APP, id: '9' }]), /apps\[1\]\.key: the same as in apps\[0\]$/);
  const shared = { ...APP, shared: true };
  assert.match(
    fault(t, [shared, { ...shared, id: '9', key: 'k' }]),
    /apps\[1\]: is shared, as apps\[0\] is/,
  );
  const tokens = { JWT_SECRET: 's'.repeat(32) };
  assert.match(fault(t, shared, tokens), /apps\[0\]: is shared, and tokens are/);
  for (const publicRooms of ['news', ['a b'], [1], Array(101).fill('a')])
    assert.match(
      fault(t, { ...shared, publicRooms }),
      /\.publicRooms(?:: not an array of 0 to 100|\[0\]: not a pattern of room names)/,
    );
  assert.match(fault(t, { publicRooms: [] }), /only the channels of a shared app/);
  assert.equal(valid(t, shared, { ...tokens, FANFARE_AUTH: 'optional' }).app.publicRooms, null);
  assert.deepEqual(valid(t, { ...shared, publicRooms: [] }, tokens).app.publicRooms, []);
  valid(t, { ...shared, enabled: false }, tokens);
});

test('origins are compared in the form that browsers send', (t) => {
  const { app } = valid(t, { origins: ['HTTPS://Chat.Example:443', 'capacitor://localhost'] });
  assert.deepEqual(app.origins, ['https://chat.example', 'capacitor://localhost']);
  const { warnings } = valid(
    t,
    { origins: ['https://a.example', 'https://B.example'] },
    { ALLOWED_ORIGINS: 'https://a.example' },
  );
  assert.deepEqual(
    warnings.filter((one) => one.includes('origins')),
    [
      'FANFARE_PUSHER_APPS: "origins" of app 123: https://b.example cannot connect, because ALLOWED_ORIGINS does not list it',
    ],
  );
});

test('a short secret is a warning', (t) => {
  assert.match(valid(t, { secret: 'app-secret' }).warnings[0], /fewer than 16 characters/);
});

test('cache channels have a history of one event, and presence channels presence', (t) => {
  const apps = [APP, { ...APP, id: '9', key: 'nine', cacheTtl: 60 }];
  const { config } = valid(t, apps, { FANFARE_HISTORY: '*=5/1h', FANFARE_PRESENCE: '*' });
  const history = new RoomRules(config.history);
  const presence = new RoomRules(config.presence);
  for (const kind of ['cache-', 'private-cache-', 'private-encrypted-cache-', 'presence-cache-']) {
    assert.deepEqual(history.ruleFor(`~123:${kind}x`), { size: 1, ttlMs: 1_800_000 }, kind);
    assert.deepEqual(history.ruleFor(`~9:${kind}x`), { size: 1, ttlMs: 60_000 }, kind);
  }
  for (const room of ['~123:x', '~123:private-x', '~123:u:1'])
    assert.equal(history.ruleFor(room), null);
  assert.equal(presence.ruleFor('~123:presence-x'), true);
  assert.equal(presence.ruleFor('~123:u:1'), true);
  assert.equal(presence.ruleFor('~123:x'), null, 'the rules of native rooms do not apply');
  assert.deepEqual(history.ruleFor('cache-x'), { size: 5, ttlMs: 3_600_000 });
});

test('the rooms of a shared app have rules under their own names', (t) => {
  const { config } = valid(t, { shared: true, cacheTtl: 60 }, { FANFARE_HISTORY: 'cache-a=9/1h' });
  const history = new RoomRules(config.history);
  assert.deepEqual(history.ruleFor('cache-x'), { size: 1, ttlMs: 60_000 });
  assert.deepEqual(
    history.ruleFor('cache-a'),
    { size: 9, ttlMs: 3_600_000 },
    'FANFARE_HISTORY wins',
  );
  const presence = new RoomRules(config.presence);
  assert.equal(presence.ruleFor('presence-x'), true);
  assert.equal(presence.ruleFor('~123:u:1'), true);
});

test('an app has rules of its own for its rooms, and none for others', (t) => {
  const rules = { history: ['chat:*=9/1h', 'news=5/1m'], presence: ['team:*'] };
  const apps = [
    { ...APP, ...rules },
    { ...APP, id: '9', key: 'nine' },
  ];
  const { config } = valid(t, apps);
  const history = new RoomRules(config.history);
  assert.deepEqual(history.ruleFor('~123:chat~1'), { size: 9, ttlMs: 3_600_000 });
  assert.deepEqual(history.ruleFor('~123:news'), { size: 5, ttlMs: 60_000 });
  for (const room of ['~9:chat~1', 'chat:1', '~9:news', 'news', '~123:u:news'])
    assert.equal(history.ruleFor(room), null, room);
  const presence = new RoomRules(config.presence);
  assert.equal(presence.ruleFor('~123:team~a'), true);
  for (const room of ['~9:team~a', 'team:a']) assert.equal(presence.ruleFor(room), null, room);
  const shared = valid(t, { ...rules, shared: true }).config;
  assert.deepEqual(new RoomRules(shared.history).ruleFor('chat:1'), { size: 9, ttlMs: 3_600_000 });
  for (const history of ['a=1/1h', [7], ['a'], ['~1:a=1/1h'], Array(21).fill('a=1/1h')])
    assert.match(fault(t, { history }), /\.history(?:: not an array of 0 to 20$|\[0\]: not )/);
  assert.match(fault(t, { presence: ['a b'] }), /\.presence\[0\]: not a pattern/);
});

test('a reload adds and changes apps, but not the rules of their channels', (t) => {
  const old = valid(t, {}).config;
  const more = { ...APP, id: '9', key: 'nine' };
  assert.deepEqual(changedFixed(old, valid(t, [{ ...APP, clientEvents: true }, more]).config), []);
  const rules = ['The first app, or "cacheTtl", "history", "presence" or "shared" of apps'];
  assert.deepEqual(changedFixed(old, valid(t, { cacheTtl: 60 }).config), rules);
  assert.deepEqual(changedFixed(old, valid(t, { shared: true }).config), rules);
  const none = loadConfig({}).config;
  assert.ok(none);
  assert.deepEqual(changedFixed(none, old), rules);
  const history = valid(t, {}, { FANFARE_HISTORY: 'a=1/1h' }).config;
  assert.deepEqual(changedFixed(old, history), ['FANFARE_HISTORY']);
});

test('histories of doors and rooms together are bounded', (t) => {
  const FANFARE_HISTORY = Array.from({ length: 97 }, (_, i) => `r${i}=1/1h`).join();
  assert.match(fault(t, {}, { FANFARE_HISTORY }), /there are 101 rules for histories, at most 100/);
});

test("the documentation's example is valid", (t) => {
  const { app } = valid(t, codeWith('docs/configuration.md', '"app-key"'));
  assert.deepEqual([app.id, app.clientEvents], ['123', true]);
});

test("soketi's own app is taken as it is, and so are ids of letters and dashes", (t) => {
  for (const id of ['app-id', 'a1', '0', '7', '1234567890', 'constructor', 'A'.repeat(64)]) {
    const { pusher } = valid(t, [{ id, key: 'app-key', secret: 'app-secret' }]);
    assert.equal(pusher.byId.get(id)?.key, 'app-key');
  }
  // `~c:` begins the rooms of Centrifugo's door.
  for (const id of ['c', '', 'x'.repeat(65)]) assert.match(fault(t, { id }), /\.id: /, id);
});
