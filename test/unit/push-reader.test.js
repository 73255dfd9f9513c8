import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { RedisPushes } from '../../src/backend/redis/fast/push-reader.js';
import { withoutPushReader } from '../helpers/hidden/fields.js';

const OPTIONS = { skip: withoutPushReader };

/**
 * A connection: what it hands over, in order: messages as `channel=body`, ioredis's frames as they
 * came.
 * @param {'message'|'smessage'} [kind]
 */
function connection(kind = 'message') {
  const stream = new PassThrough();
  /** @type {string[]} */
  const seen = [];
  let theirs = '';
  const close = () => {
    if (theirs !== '') seen.push(theirs);
    theirs = '';
  };
  stream.on('data', (/** @type {Buffer} */ bytes) => {
    theirs += bytes.toString('latin1');
  });
  const pushes = new RedisPushes({
    kind,
    onMessage: (channel, body) => {
      close();
      seen.push(`${channel}=${body}`);
      if (String(body) === 'throw') throw new Error('thrown');
    },
  });
  pushes.attach(stream);
  return {
    /** @param {string|Buffer} bytes */
    read: (bytes) => void stream.emit('data', Buffer.from(bytes)),
    seen: () => {
      close();
      return seen;
    },
    stream,
  };
}

/** @param {string} channel @param {string} body @param {string} [type] */
function push(channel, body, type = 'message') {
  return `>3\r\n$${type.length}\r\n${type}\r\n$${channel.length}\r\n${channel}\r\n$${body.length}\r\n${body}\r\n`;
}

/** One of each kind that a Redis may answer with, nested ones among them. */
const FRAMES = [
  '+OK\r\n',
  '-ERR no\r\n',
  ':-42\r\n',
  ',3.14\r\n',
  '#t\r\n',
  '_\r\n',
  '(123456789012345678901234567890\r\n',
  '$5\r\na\r\nbc\r\n',
  '$0\r\n\r\n',
  '$-1\r\n',
  '=7\r\ntxt:abc\r\n',
  '!5\r\nERR x\r\n',
  '*0\r\n',
  '*-1\r\n',
  '*2\r\n*1\r\n:1\r\n$3\r\n>3\r\r\n',
  '%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n%1\r\n:1\r\n:2\r\n',
  '~2\r\n+a\r\n+b\r\n',
  '|1\r\n+ttl\r\n:1\r\n*1\r\n:2\r\n',
  '>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n',
  '>3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$1\r\nb\r\n',
  '>4\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n',
];

test(
  'messages are read, and every other frame reaches ioredis unchanged and in order',
  OPTIONS,
  () => {
    for (const frame of FRAMES) {
      const { read, seen } = connection();
      read(
        push('a', '1') +
          frame +
          push('b', '2') +
          frame +
          frame +
          push('c', '') +
          push('d', '\r\n>3\r\n'),
      );
      assert.deepEqual(
        seen(),
        ['a=1', frame, 'b=2', frame + frame, 'c=', 'd=\r\n>3\r\n'],
        JSON.stringify(frame),
      );
    }
  },
);

test('wherever a read is cut, no message is lost, repeated or moved', OPTIONS, () => {
  const parts = FRAMES.flatMap((frame, i) => [push(`room-${i}`, 'x'.repeat(i * 7)), frame]);
  const all = parts.join('');
  const expected = FRAMES.flatMap((frame, i) => [`room-${i}=${'x'.repeat(i * 7)}`, frame]);
  for (let at = 1; at < all.length; at++) {
    const { read, seen } = connection();
    read(all.slice(0, at));
    read(all.slice(at));
    assert.deepEqual(seen(), expected, `cut at ${at}`);
  }
  for (const size of [1, 2, 3, 5, 7, 64, 1000]) {
    const { read, seen } = connection();
    for (let at = 0; at < all.length; at += size) read(all.slice(at, at + size));
    assert.deepEqual(seen(), expected, `pieces of ${size}`);
  }
});

test("a cluster's messages are smessages", OPTIONS, () => {
  const { read, seen } = connection('smessage');
  read(push('a', '1', 'smessage') + push('a', '2'));
  assert.deepEqual(seen(), ['a=1', push('a', '2')]);
});

test('a message in many pieces is assembled once', OPTIONS, (t) => {
  const { read, seen } = connection();
  const concat = t.mock.method(Buffer, 'concat');
  const message = Buffer.from(push('big', 'x'.repeat(1_000_000)));
  for (let at = 0; at < message.length; at += 1000) read(message.subarray(at, at + 1000));
  assert.equal(concat.mock.callCount(), 1);
  assert.deepEqual(
    seen().map(({ length }) => length),
    ['big='.length + 1_000_000],
  );
});

test('from the first byte that cannot be parsed, ioredis reads everything', OPTIONS, () => {
  for (const odd of [
    '?what\r\n',
    '*x\r\n',
    '>3\r\n$7\r\nmessage\r\n:1\r\n$1\r\nb\r\n',
    `>3\r\n$7\r\nmessage\r\n$${'9'.repeat(30)}\r\n`,
  ]) {
    const { read, seen, stream } = connection();
    read(push('a', '1') + odd + push('b', '2'));
    read(push('c', '3'));
    assert.deepEqual(seen(), ['a=1', odd + push('b', '2') + push('c', '3')]);
    assert.equal(stream.listenerCount('data'), 1);
  }
});

test(
  'the error of a listener that throws is reported, and later messages are read',
  OPTIONS,
  async () => {
    const { read, seen } = connection();
    const listeners = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    const thrown = new Promise((resolve) => process.once('uncaughtException', resolve));
    read(push('a', 'throw') + push('b', '2'));
    assert.equal(/** @type {Error} */ (await thrown).message, 'thrown');
    for (const listener of listeners) process.on('uncaughtException', listener);
    assert.deepEqual(seen(), ['a=throw', 'b=2']);
  },
);

test('if another listener is present, ioredis reads for itself', () => {
  const stream = new PassThrough();
  const [a, b] = [() => {}, () => {}];
  stream.on('data', a).on('data', b);
  new RedisPushes({ kind: 'message', onMessage: () => assert.fail() }).attach(stream);
  assert.deepEqual(stream.listeners('data'), [a, b]);
});
