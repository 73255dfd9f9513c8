// pusher-names.test.js: channels and rooms, socket ids, signatures of the Pusher door.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { connectionIdOf, isSocketId, socketIdOf } from '../../src/doors/pusher/codec/socket-id.js';
import { Connection, numberOf } from '../../src/hub/connection.js';
import { isRoom } from '../../src/protocol/decode.js';
import {
  appIdOf,
  channelOf,
  channelOfUser,
  isChannel,
  kindOf,
  roomOf,
  roomOfUser,
} from '../../src/protocol/pusher-channels.js';
import {
  channelText,
  checkAuth,
  isSigned,
  sign,
  userText,
} from '../../src/protocol/pusher-signature.js';

const own = { id: '123', isShared: false };
const shared = { id: '123', isShared: true };

const ALPHABET = [...'abcxyzABCXYZ0189-_=@,.;'];
const channels = fc.string({ unit: fc.constantFrom(...ALPHABET), minLength: 1, maxLength: 200 });
const apps = fc.record({
  id: fc.string({ unit: fc.constantFrom(...'0123456789'), minLength: 1, maxLength: 6 }),
  isShared: fc.boolean(),
});
const users = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 40 })
  .map((text) => Buffer.from(text).toString());

test('a channel is of the kind of its prefix, dash included', () => {
  const traits = (/** @type {string} */ channel) =>
    Object.entries(kindOf(channel))
      .filter(([, value]) => value === true)
      .map(([name]) => name);
  assert.deepEqual(
    {
      news: traits('news'),
      cachestuff: traits('cachestuff'),
      privatestuff: traits('privatestuff'),
      presence: traits('presence'),
      'cache-a': traits('cache-a'),
      'private-a': traits('private-a'),
      'private-cache': traits('private-cache'),
      'private-cache-a': traits('private-cache-a'),
      'private-encrypted-a': traits('private-encrypted-a'),
      'private-encrypted-cache-a': traits('private-encrypted-cache-a'),
      'presence-a': traits('presence-a'),
      'presence-cache-a': traits('presence-cache-a'),
      '#server-to-user-7': traits('#server-to-user-7'),
    },
    {
      news: [],
      cachestuff: [],
      privatestuff: [],
      presence: [],
      'cache-a': ['isCache'],
      'private-a': ['isPrivate'],
      'private-cache': ['isPrivate'],
      'private-cache-a': ['isPrivate', 'isCache'],
      'private-encrypted-a': ['isPrivate', 'isEncrypted'],
      'private-encrypted-cache-a': ['isPrivate', 'isEncrypted', 'isCache'],
      'presence-a': ['isPrivate', 'isPresence'],
      'presence-cache-a': ['isPrivate', 'isPresence', 'isCache'],
      '#server-to-user-7': ['isUser'],
    },
  );
});

test('a channel has characters of its alphabet, and # only before a user', () => {
  for (const name of ['a', 'a-b_c=d@e,f.g;h', '__proto__', '#server-to-user-7', 'x'.repeat(500)])
    assert.equal(isChannel(name), true, name);
  for (const name of ['', 'a b', 'a:b', 'a/b', '~a', '#a', '#server-to-user-', 'ä', 'a\n', 7, null])
    assert.equal(isChannel(name), false, String(name));
  assert.equal(isChannel(`#server-to-user-${'x'.repeat(184)}`), true);
  assert.equal(isChannel(`#server-to-user-${'x'.repeat(185)}`), false);
});

test('rooms of channels and users: examples', () => {
  assert.equal(roomOf(own, 'a=b,c;d'), '~123:a/eb/cc/sd');
  assert.equal(roomOf(shared, 'a=b'), 'a/eb');
  assert.equal(roomOf(own, '#server-to-user-7=8'), '~123:u:7/e8');
  assert.equal(roomOf(shared, '#server-to-user-7'), '~123:u:7');
  assert.equal(roomOfUser(own, 'é:/'), '~123:u:/xc3/xa9/x3a/x2f');
  assert.equal(channelOf('chat:1'), null, 'a native room that no channel has');
  assert.equal(channelOf('a/b'), null);
  assert.equal(channelOf('a/x61'), null, 'an escape that nothing has');
  assert.equal(appIdOf('~123:a'), '123');
  assert.equal(appIdOf('a'), null);
});

test('a room names its channel and app, and no native client can name it', () => {
  fc.assert(
    fc.property(apps, channels, (app, channel) => {
      const room = roomOf(app, channel);
      assert.equal(channelOf(room), channel);
      assert.equal(appIdOf(room), app.isShared ? null : app.id);
      if (!app.isShared) assert.equal(isRoom(room), false);
      else if (room.length <= 200) assert.equal(isRoom(room), true);
    }),
  );
});

test('a room of a user names that user, and no channel has it', () => {
  fc.assert(
    fc.property(apps, users, channels, (app, user, channel) => {
      const room = roomOfUser(app, user);
      assert.equal(channelOf(room), channelOfUser(user));
      assert.match(room, /^[!-~]+$/);
      assert.equal(isRoom(room), false);
      assert.notEqual(room, roomOf(app, channel));
    }),
  );
});

test('names of two apps, channels or users never meet in a room', () => {
  const named = fc.oneof(
    fc.tuple(apps, channels).map(([app, channel]) => ({
      name: `${app.isShared ? '' : app.id} ${channel}`,
      room: roomOf(app, channel),
    })),
    fc.tuple(apps, users).map(([app, user]) => ({
      name: `${app.id} u ${user}`,
      room: roomOfUser(app, user),
    })),
  );
  fc.assert(
    fc.property(named, named, (a, b) => assert.equal(a.room === b.room, a.name === b.name)),
    { numRuns: 2000 },
  );
});

test('a socket id is another form of the id of a connection', () => {
  const ids = fc
    .tuple(fc.uint8Array({ minLength: 6, maxLength: 6 }), fc.integer({ min: 1, max: 2 ** 53 - 1 }))
    .map(([bytes, number]) => Buffer.from(bytes).toString('base64url') + number.toString(36));
  fc.assert(
    fc.property(ids, (id) => {
      const socketId = socketIdOf(id);
      assert.match(socketId, /^\d+\.\d+$/);
      assert.equal(isSocketId(socketId), true);
      assert.equal(connectionIdOf(socketId), id);
    }),
  );
  const { id, number } = new Connection(/** @type {any} */ (null), '');
  const back = connectionIdOf(socketIdOf(id));
  assert.equal(numberOf(/** @type {string} */ (back)), number);
});

test('a socket id that no connection has leads to none', () => {
  for (const text of ['1234.0', '01.1', '1.01', '281474976710656.1', `1.${2 ** 53}`, '1', 'a.b'])
    assert.equal(connectionIdOf(text), null, text);
  assert.equal(connectionIdOf('281474976710655.1')?.length, 9);
  for (const text of ['1.0', '0001.0002', '1234.5678']) assert.equal(isSocketId(text), true, text);
  for (const text of ['', '1', '1.', '.1', '1.1\n', '1.1:a', '1.1.1', `${'1'.repeat(64)}.1`, 1.5])
    assert.equal(isSocketId(text), false, String(text));
});

/** The example app of Pusher's documentation. */
const app = { key: '278d425bdf160c739803', secrets: ['7ad3773142a6692b25b8'] };

test('signatures equal those of the SDKs', () => {
  const rows = [
    [
      channelText('1234.1234', 'private-foobar', ''),
      '58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4',
    ],
    [
      channelText('1234.1234', 'private-foobar', '{"a":1}'),
      '3f4243af5e27f47d11116e80a4b762a3b672c9b83f9e82645a0ba883c2592b09',
    ],
    [
      channelText(
        '1234.1234',
        'presence-foobar',
        '{"user_id":10,"user_info":{"name":"Mr. Channels"}}',
      ),
      '31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80',
    ],
    [
      userText('1234.1234', '{"id":"12345"}'),
      '4708d583dada6a56435fb8bc611c77c359a31eebde13337c16ab43aa6de336ba',
    ],
    [
      '{"time_ms":1327078148132,"events":[{"name":"channel_occupied","channel":"test_channel"}]}',
      '709fdb84c03664445f7698120b0edf0acc1ab1c8c6e93a0368c61841d6b998aa',
    ],
  ];
  for (const [text, signature] of rows) {
    assert.equal(sign(app, text), signature);
    assert.equal(checkAuth(app, `${app.key}:${signature}`, text), 'ok');
    assert.equal(checkAuth(app, `${app.key}:${signature.toUpperCase()}`, text), 'ok');
  }
});

test('every secret of an app verifies, the first signs', () => {
  const secrets = [randomBytes(16).toString('hex'), 'old'];
  const changing = { key: 'k', secrets };
  assert.equal(isSigned(changing, 'a', sign({ key: 'k', secrets: ['old'] }, 'a')), true);
  assert.equal(sign(changing, 'a'), sign({ key: 'k', secrets: secrets.slice(0, 1) }, 'a'));
  assert.equal(isSigned({ secrets: ['old'] }, 'a', sign(changing, 'a')), false);
});

test('an auth of another app, of another text or of another form is refused', () => {
  const text = channelText('1.1', 'private-a', '');
  const signature = sign(app, text);
  const fault = (/** @type {unknown} */ auth) => checkAuth(app, auth, text);
  assert.equal(fault(`other:${signature}`), 'key');
  assert.equal(fault(signature), 'key');
  assert.equal(fault(''), 'key');
  assert.equal(fault(`${app.key}:${sign(app, 'else')}`), 'signature');
  assert.equal(fault(`${app.key}:${signature}00`), 'signature');
  assert.equal(fault(`${app.key}:${signature}:`), 'signature');
  assert.equal(fault(`${app.key}:`), 'signature');
  assert.equal(fault(undefined), 'signature');
  assert.equal(fault([`${app.key}:${signature}`]), 'signature');
});
