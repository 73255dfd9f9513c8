import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { Hmac } from '../../src/auth/hmac.js';

/** Longer than two blocks of every hash. */
const MAX_BYTES = 300;
const KEY_BYTES = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200];
const TEXT = Array.from({ length: MAX_BYTES }, (_, i) =>
  String.fromCharCode(33 + ((i * 31) % 94)),
).join('');

/** @param {number} bytes @param {number} [first] every value of a byte occurs in long ones */
const keyOf = (bytes, first = 0x80) =>
  Buffer.from(Array.from({ length: bytes }, (_, i) => first + i * 7));

for (const name of /** @type {const} */ (['sha256', 'sha384', 'sha512'])) {
  test(`the ${name} signatures of node:crypto are accepted, whatever the sizes`, () => {
    for (const bytes of KEY_BYTES) {
      const key = keyOf(bytes);
      const hmac = new Hmac(name, key, MAX_BYTES);
      for (let length = 0; length <= MAX_BYTES; length++) {
        const mac = createHmac(name, key).update(TEXT.slice(0, length)).digest('base64url');
        assert.ok(hmac.verify(TEXT, length, mac), `key of ${bytes}, text of ${length} bytes`);
      }
    }
  });

  test(`a ${name} signature with any bit changed is refused`, () => {
    const hmac = new Hmac(name, keyOf(40), MAX_BYTES);
    const mac = createHmac(name, keyOf(40)).update(TEXT.slice(0, 100)).digest();
    for (let bit = 0; bit < mac.length * 8; bit++) {
      const wrong = Buffer.from(mac);
      wrong[bit >> 3] ^= 1 << (bit & 7);
      assert.ok(!hmac.verify(TEXT, 100, wrong.toString('base64url')), `bit ${bit}`);
    }
    assert.ok(hmac.verify(TEXT, 100, mac.toString('base64url')));
  });

  test(`a ${name} signature that is too short or too long is refused`, () => {
    const hmac = new Hmac(name, keyOf(40), MAX_BYTES);
    const mac = createHmac(name, keyOf(40)).update(TEXT).digest();
    for (let length = 0; length < mac.length * 3; length++) {
      if (length === mac.length) continue;
      // The longer ones begin with the valid one.
      const wrong = Buffer.concat([mac, mac, mac]).subarray(0, length).toString('base64url');
      assert.ok(!hmac.verify(TEXT, MAX_BYTES, wrong), `${length} bytes`);
    }
    assert.ok(hmac.verify(TEXT, MAX_BYTES, mac.toString('base64url')));
  });
}

test('a signature of another key or of another text is refused', () => {
  const hmac = new Hmac('sha256', keyOf(40), MAX_BYTES);
  const sign = (/** @type {Buffer} */ key, /** @type {string} */ text) =>
    createHmac('sha256', key).update(text).digest('base64url');
  assert.ok(!hmac.verify(TEXT, 100, sign(keyOf(40, 1), TEXT.slice(0, 100))));
  assert.ok(!hmac.verify(TEXT, 100, sign(keyOf(40), TEXT.slice(0, 99))));
  assert.ok(!hmac.verify(TEXT, 100, sign(keyOf(40), TEXT.slice(0, 101))));
});

test('a text above the bound throws, so that its first part is never taken for all of it', () => {
  const hmac = new Hmac('sha256', keyOf(40), 50);
  const mac = createHmac('sha256', keyOf(40)).update(TEXT.slice(0, 50)).digest('base64url');
  assert.ok(hmac.verify(TEXT, 50, mac));
  assert.throws(() => hmac.verify(TEXT, 51, mac), RangeError);
});
