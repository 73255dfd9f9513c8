// event-stream.test.js: publications and pushes as server-sent events, read by the standard's rules.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as encode from '../../src/protocol/encode.js';
import { endWithId, publicationEvents, textEvent } from '../../src/protocol/event-stream.js';
import { encodePublications, FORMAT } from '../../src/protocol/format.js';
import { roomPrefix } from '../../src/protocol/frame.js';
import {
  ANNOUNCEMENTS,
  encodePublication,
  KIND,
  withPosition,
} from '../../src/protocol/publication.js';
import { refusal, toReply } from '../../src/protocol/refusal.js';
import { EventReader } from '../helpers/event-stream.js';
import { messagesOf } from '../helpers/fake-transport.js';

const EPOCH = '00000000000000ab';
const prefix = roomPrefix('news');

/**
 * @param {string} payload JSON
 * @param {number} [kind]
 */
function publication(payload, kind = KIND.MESSAGE) {
  const source = Buffer.from(payload);
  return encodePublication(kind, 1_760_000_000_000, 0, 'ann', source, 0, source.length);
}

/** @param {Buffer} bytes */
const eventsOf = (bytes) => new EventReader().read(bytes);

test('an event has the text of the WebSocket message, byte for byte', () => {
  const presence = Buffer.concat([ANNOUNCEMENTS.join, Buffer.from('{"user":"ann"}')]);
  const all = [
    publication('{"a":"\\n\u2028\u2029é😀"}'),
    publication('"x"', KIND.BROADCAST),
    presence,
    withPosition(publication('[1,2]'), 9_007_199_254_740_991, EPOCH),
  ];
  const events = eventsOf(publicationEvents(prefix, all, true));
  assert.deepEqual(
    events.map(({ type }) => type),
    ['message', 'broadcast', 'presence', 'message'],
  );
  assert.deepEqual(
    events.map(({ data }) => JSON.parse(data)),
    messagesOf(encodePublications(FORMAT.FRAMES, prefix, all)),
  );
});

test('an event has the id of its position, and an event without a position leaves the id as it was', () => {
  const all = [
    withPosition(publication('1'), 7, EPOCH),
    publication('2', KIND.BROADCAST),
    withPosition(publication('3'), 8, EPOCH),
  ];
  const ids = (/** @type {boolean} */ hasIds) =>
    eventsOf(publicationEvents(prefix, all, hasIds)).map(({ id }) => id);
  assert.deepEqual(ids(true), [`${EPOCH}:7`, `${EPOCH}:7`, `${EPOCH}:8`]);
  assert.deepEqual(ids(false), ['', '', '']);
});

test('line breaks between the tokens of a payload become spaces', () => {
  const broken = '{\r\n"a":\n[1,\r2],\r\n"b":"\\r\\n"}';
  for (const one of [publication(broken), withPosition(publication(broken), 1, EPOCH)]) {
    const bytes = publicationEvents(prefix, [one, publication('2')], true);
    assert.ok(!bytes.includes('\r'));
    const [first, second] = eventsOf(bytes);
    assert.deepEqual(JSON.parse(first.data).payload, { a: [1, 2], b: '\r\n' });
    assert.equal(JSON.parse(second.data).payload, 2);
  }
  assert.equal(
    textEvent('{"type":"left",\r\n"room":"a"}'),
    'event: left\ndata: {"type":"left",  "room":"a"}\n\n',
  );
});

test('a line break in a header or a position changes nothing', () => {
  const source = Buffer.from('1');
  const one = encodePublication(KIND.MESSAGE, 0x0a0d_0a0d, 0x0a0a_0d0d, 'ann', source, 0, 1);
  const [event] = eventsOf(publicationEvents(prefix, [withPosition(one, 0x0d0a, EPOCH)], true));
  assert.equal(event.data, messageText(withPosition(one, 0x0d0a, EPOCH)));
});

/** @param {Buffer} one */
function messageText(one) {
  const frame = encodePublications(FORMAT.FRAMES, prefix, [one]);
  return frame.toString('utf8', frame[1] < 126 ? 2 : 4);
}

test('an id behind shared events belongs to the last of them', () => {
  const all = [publication('1'), publication('2')].map((one, i) => withPosition(one, i + 1, EPOCH));
  const shared = publicationEvents(prefix, all, false);
  const own = endWithId(shared, 'x:1,y:2');
  assert.equal(shared.toString('utf8', shared.length - 2), '\n\n', 'shared bytes stay as they are');
  assert.deepEqual(
    eventsOf(own).map(({ id, data }) => [id, JSON.parse(data).payload]),
    [
      ['', 1],
      ['x:1,y:2', 2],
    ],
  );
});

test('every reply and push begins with its type, which names its event', () => {
  const texts = {
    joined: encode.encodeJoined(
      'a',
      { epoch: EPOCH, offset: 1, recovered: true, replayed: 0, first: 2 },
      undefined,
      false,
    ),
    left: encode.encodeLeft('a', 'permission'),
    resync: encode.encodeResync('a', EPOCH, 2, 3),
    degraded: encode.encodeDegraded(true),
    error: toReply(refusal('UNAVAILABLE'), undefined, 1),
    SERVER_SHUTDOWN: encode.encodeShutdown(5),
    welcome: encode.encodeWelcome(
      { connectionId: 'a', serverId: 'b', heartbeatMs: 1, limits: {}, degraded: false },
      undefined,
    ),
  };
  for (const [type, text] of Object.entries(texts)) {
    assert.deepEqual(eventsOf(Buffer.from(textEvent(text, 'i'))), [{ type, data: text, id: 'i' }]);
  }
});
