// redis-slots.test.js: slots as the cluster specification gives them.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { slotOf, slotOfTag } from '../../src/backend/redis/slots.js';

test('a slot is the CRC16 of the hash tag, or of the whole name', () => {
  // The specification's own vector: CRC16 of 123456789 is 31C3.
  assert.equal(slotOf('123456789'), 0x31c3 % 16_384);
  assert.equal(slotOf('foo'), 12_182);
  assert.equal(slotOf('x:{foo}:y'), slotOfTag('foo'));
  assert.equal(slotOf('{foo}{bar}'), slotOf('foo'));
  assert.equal(slotOf('foo{}{bar}'), slotOfTag('foo{}{bar}'));
  assert.equal(slotOf('foo{{bar}}zap'), slotOfTag('{bar'));
  assert.equal(slotOf('foo{bar'), slotOfTag('foo{bar'));
  assert.equal(slotOf('Straße'), slotOf(Buffer.from('Straße').toString('utf8')));
});
