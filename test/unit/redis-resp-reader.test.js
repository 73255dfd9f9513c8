import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeError, MalformedCommand, RespReader } from '../../src/backend/redis/resp-reader.js';

const COMMANDS = [
  ['HELLO', '3'],
  ['SUBSCRIBE', 'one', 'zw\xc3\xb6lf', ''],
  ['PING'],
  ['SUBSCRIBE', ...Array.from({ length: 200 }, (_, i) => `channel-${i}`)],
];
const BYTES = Buffer.from(
  COMMANDS.map(
    (args) => `*${args.length}\r\n${args.map((arg) => `$${arg.length}\r\n${arg}\r\n`).join('')}`,
  ).join(''),
  'latin1',
);

function reader() {
  /** @type {string[][]} */
  const seen = [];
  return { reader: new RespReader((args) => seen.push(args)), seen };
}

test('commands are read in whatever pieces their bytes arrive', () => {
  for (let cut = 0; cut <= BYTES.length; cut++) {
    const { reader: r, seen } = reader();
    r.read(BYTES.subarray(0, cut));
    r.read(BYTES.subarray(cut));
    assert.deepEqual(seen, COMMANDS, `cut at ${cut}`);
  }
  const { reader: r, seen } = reader();
  for (let i = 0; i < BYTES.length; i++) r.read(BYTES.subarray(i, i + 1));
  assert.deepEqual(seen, COMMANDS);
});

test('a command is not read before its last byte', () => {
  const { reader: r, seen } = reader();
  r.read(Buffer.from('*1\r\n$4\r\nPING\r'));
  assert.deepEqual(seen, []);
  r.read(Buffer.from('\n'));
  assert.deepEqual(seen, [['PING']]);
});

test('bytes that are no command, and commands without a bound, are refused', () => {
  for (const text of [
    'PING\r\n',
    '*0\r\n',
    '*-1\r\n',
    '*1\r\n+OK\r\n',
    '*1\r\n$-1\r\n',
    '*1\r\n$\r\n',
    '*1\r\n$x\r\n',
    '*1\r\n$4\rxPING\r\n',
    '*1\r\n$4\r\nPINGxx',
    '*10001\r\n',
    '*99999999999\r\n',
    '*1\r\n$99999999\r\n',
    '\x00',
  ]) {
    const { reader: r, seen } = reader();
    assert.throws(() => r.read(Buffer.from(text, 'latin1')), MalformedCommand, text);
    assert.deepEqual(seen, []);
  }
});

test('an error is one line', () => {
  assert.equal(encodeError(new Error('ERR a\r\nb')), '-ERR a  b\r\n');
});
