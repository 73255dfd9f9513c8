// centrifugo-names.test.js: the rooms of Centrifugo's channels, rules for them, and what presence and
// streams show (config/channel-names.js, doors/centrifugo/codec/members.js, stream.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { escapeChannel, isNativeName, unescapeChannel } from '../../src/config/channel-names.js';
import { changedFixed, loadConfig } from '../../src/config/config.js';
import { RoomRules } from '../../src/config/room-patterns.js';
import { clientOf } from '../../src/doors/centrifugo/codec/client-id.js';
import { membersOf, statsOf } from '../../src/doors/centrifugo/codec/members.js';
import { readStream } from '../../src/doors/centrifugo/stream.js';
import { NO_AUDIENCES } from '../../src/protocol/audiences.js';
import { encodeMember } from '../../src/protocol/encode.js';
import { encodePublication, KIND, payloadText } from '../../src/protocol/publication.js';

/** @param {Record<string, string>} env */
function configOf(env) {
  const { config, faults } = loadConfig(env);
  assert.deepEqual(faults, []);
  assert.ok(config);
  return config;
}

test('each visible character of a channel is escaped in a way of its own', () => {
  const visible = Array.from({ length: 0x5e }, (_, i) => String.fromCharCode(0x21 + i)).join('');
  assert.equal(unescapeChannel(escapeChannel(visible)), visible);
  for (const one of visible)
    for (const other of ['a', '1', 'd', 'h', 's', '2f'])
      assert.equal(unescapeChannel(escapeChannel(one + other)), one + other);
  assert.equal(escapeChannel('dialog#42,43'), 'dialog/h42/2c43');
  assert.equal(escapeChannel('$a*'), '/da/s');
  for (const text of ['/', '/x', '/2', '/61', '/D', 'a/', '/dd/2F']) {
    const channel = unescapeChannel(text);
    assert.ok(channel === null || escapeChannel(channel) === text, text);
  }
  assert.equal(unescapeChannel('/61'), null);
  assert.ok(isNativeName('news:42') && isNativeName('a@b'));
  for (const name of ['$a', 'a#1', 'a/b', 'a*', '', 'a'.repeat(201)])
    assert.ok(!isNativeName(name), name);
});

test('rules of rooms are rules of channels, too, if the door is on', () => {
  const env = {
    FANFARE_CENTRIFUGO: 'on',
    FANFARE_HISTORY: '$chat:*=7/60s, news*=5/60s, one=3/60s',
  };
  const { history } = configOf(env);
  const rules = new RoomRules(history);
  const sizeOf = (/** @type {string} */ room) => rules.ruleFor(room)?.size;
  assert.equal(sizeOf(`~c:${escapeChannel('$chat:1')}`), 7);
  assert.equal(sizeOf(`~c:${escapeChannel('news#42')}`), 5);
  assert.equal(sizeOf('news:1'), 5);
  assert.equal(sizeOf('one'), 3);
  assert.equal(sizeOf('~c:/dother'), undefined);
  assert.equal(history.length, 4);
  const presence = configOf({ FANFARE_CENTRIFUGO: 'on', FANFARE_PRESENCE: '*' });
  assert.ok(new RoomRules(presence.presence).ruleFor('~c:/dx'));
  assert.equal(loadConfig({ FANFARE_HISTORY: '$chat:*=7/60s' }).config, null);
  assert.equal(
    loadConfig({ FANFARE_CENTRIFUGO: 'on', FANFARE_PRESENCE: '$'.repeat(150) }).config,
    null,
  );
});

test('a reload turns the door on, unless the primary has rules of channels', () => {
  const on = { FANFARE_CENTRIFUGO: 'on' };
  assert.deepEqual(changedFixed(configOf({}), configOf(on)), []);
  const rules = { FANFARE_HISTORY: 'a*=1/60s' };
  assert.deepEqual(changedFixed(configOf(rules), configOf({ ...rules, ...on })), [
    'FANFARE_CENTRIFUGO',
  ]);
});

test('too many rules of channels are a fault', () => {
  const list = Array.from({ length: 60 }, (_, i) => `r${i}.*=1/60s`).join(',');
  const { faults } = loadConfig({ FANFARE_CENTRIFUGO: 'on', FANFARE_HISTORY: list });
  assert.deepEqual(faults, [
    'FANFARE_HISTORY: with those of channels there are 120 rules, at most 100',
  ]);
});

test('members show users once, connections without a user by their client, and nothing malformed', () => {
  const members = [
    '{"user":"ann","info":{"n":1.0}}',
    '{"user":"__proto__"}',
    '{"user":"AbC1","info":null,"client":"a-b-c"}',
    '{"user":1}',
    '{"user":"x"',
    'nothing',
    '{"user":"x"} ',
  ].map((text) => Buffer.from(text));
  const shown = [...membersOf([...members, Buffer.from([0x7b, 0xff])])].map(
    ([key, { conn_info: info, ...rest }]) => [key, { ...rest, info: info?.toString() }],
  );
  assert.deepEqual(shown, [
    ['u:ann', { user: 'ann', client: 'u:ann', info: '{"n":1.0}' }],
    ['u:__proto__', { user: '__proto__', client: 'u:__proto__', info: undefined }],
    ['a-b-c', { user: '', client: 'a-b-c', info: 'null' }],
  ]);
});

test('clients without a user count as one user, whatever the info of users contains', () => {
  const client = clientOf('Xb2kQ9_z1f');
  const members = [
    encodeMember('ann', null),
    encodeMember('bob', Buffer.from(`{"x":1,"client":"${client}"}`)),
    encodeMember('cid', Buffer.from(JSON.stringify(`,"client":"${client}`))),
    ...['A', 'B'].map((id) => Buffer.from(`{"user":"${id}","info":{},"client":"${client}"}`)),
  ];
  assert.deepEqual(statsOf({ count: 5, members }), { num_clients: 5, num_users: 4 });
  assert.deepEqual(statsOf({ count: 9, members: null }), { num_clients: 9, num_users: 9 });
});

/**
 * A stream of ten messages in pages of three, the first two of which are no longer kept.
 * @param {{epoch?: string}} [parts] epoch: of pages after the first
 */
function readerOf({ epoch = 'e' } = {}) {
  let pages = 0;
  /** @type {import('../../src/recovery/history-reader.js').HistoryReader['page']} */
  const page = async (room, { limit = 100, since, before }) => {
    if (room === 'none') return null;
    const count = Math.min(limit, 3);
    const low = Math.max(since?.offset ?? 0, 2) + 1;
    const first = since ? low : Math.max(3, Number(before?.offset) - count);
    const end = since ? Math.min(11, first + count) : Number(before?.offset);
    const offsets = Array.from({ length: Math.max(0, limit && end - first) }, (_, i) => first + i);
    const publications = offsets.map((one) => {
      const payload = Buffer.from(String(one));
      return encodePublication(KIND.MESSAGE, 1, 0, '', payload, 0, payload.length);
    });
    const hasMore = since ? end <= 10 : first > 3;
    return {
      rows: publications.map((publication, i) => ({ publication, offset: first + i })),
      first,
      last: end - 1,
      isForward: since != null,
      epoch: pages++ === 0 ? 'e' : epoch,
      offset: 10,
      hasMore,
      searchedBytes: 0,
    };
  };
  return { page };
}

/** @param {Partial<import('../../src/doors/centrifugo/stream.js').StreamQuery>} query */
async function offsetsOf(query) {
  const all = { limit: 100, since: null, isReverse: false, ...query };
  const { publications, ...rest } = await readStream(readerOf(), 'r', all, () => NO_AUDIENCES);
  assert.deepEqual(rest, { epoch: 'e', offset: 10, searchedBytes: 0, isUnfinished: false });
  for (const { offset, publication } of publications)
    assert.equal(payloadText(publication), String(offset));
  return publications.map(({ offset }) => offset);
}

test('a stream is read forward and in reverse, over pages', async () => {
  const all = [3, 4, 5, 6, 7, 8, 9, 10];
  assert.deepEqual(await offsetsOf({}), all);
  assert.deepEqual(await offsetsOf({ limit: 0 }), []);
  assert.deepEqual(await offsetsOf({ limit: 4 }), [3, 4, 5, 6]);
  assert.deepEqual(await offsetsOf({ limit: 4, isReverse: true }), [10, 9, 8, 7]);
  assert.deepEqual(await offsetsOf({ isReverse: true }), [...all].reverse());
  assert.deepEqual(await offsetsOf({ since: { offset: 8, epoch: 'e' } }), [9, 10]);
  assert.deepEqual(await offsetsOf({ since: { offset: 8, epoch: '' } }), [9, 10]);
  const below = { since: { offset: 5, epoch: '' }, isReverse: true };
  assert.deepEqual(await offsetsOf(below), [4, 3]);
});

test('a stream that cannot be read as asked is refused with its code', async () => {
  const query = { limit: 10, since: null, isReverse: false };
  const other = { offset: 1, epoch: 'other' };
  for (const [code, room, more, reader] of /** @type {[number, string, object, any][]} */ ([
    [108, 'none', {}, readerOf()],
    [112, 'r', { since: other }, readerOf()],
    [107, 'r', { since: { offset: 0, epoch: '' }, isReverse: true }, readerOf()],
    [112, 'r', {}, readerOf({ epoch: 'forked' })],
  ]))
    await assert.rejects(
      readStream(reader, room, { ...query, ...more }, () => NO_AUDIENCES),
      { code },
    );
});
