import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { Crowd } from '../../src/transport/crowd.js';

/** @param {string} name */
const item = (name) => ({ name });

test('the oldest item of the address with the most items comes first', () => {
  const crowd = new Crowd();
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map(item);
  crowd.add(a, 'one');
  crowd.add(b, 'many');
  const group = crowd.add(c, 'many');
  crowd.add(d, 'many');
  assert.equal(crowd.oldest(), b);
  crowd.delete(b, group);
  assert.equal(crowd.oldest(), c);
  crowd.delete(c, group);
  assert.equal(crowd.size, 2);
  assert.equal(crowd.oldest(), a, 'of two with as many, the one that has had so many for longer');
});

test('items without an address count one by one, and the oldest of them comes first', () => {
  const crowd = new Crowd();
  const items = Array.from({ length: 5 }, (_, i) => item(String(i)));
  const groups = items.map((one) => crowd.add(one, null));
  assert.equal(crowd.largest, 1);
  for (const [i, one] of items.entries()) {
    assert.equal(crowd.oldest(), one);
    crowd.delete(one, groups[i]);
  }
  assert.equal(crowd.oldest(), undefined);
  assert.equal(crowd.size, 0);
});

test('property: the crowd agrees with a model that counts again at each step', () => {
  const step = fc.record({
    leave: fc.boolean(),
    address: fc.constantFrom('a', 'b', 'c', null),
    which: fc.nat(),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const crowd = new Crowd();
      /**
       * @type
       *   {{item: object, group: import('../../src/transport/crowd.js').Group<object>|null, address: string|object}[]}
       */
      const all = [];
      for (const { leave, address, which } of steps) {
        if (leave && all.length > 0) {
          const [gone] = all.splice(which % all.length, 1);
          crowd.delete(gone.item, gone.group);
        } else {
          const one = item(String(which));
          all.push({ item: one, group: crowd.add(one, address), address: address ?? one });
        }
        const counts = new Map();
        for (const entry of all) counts.set(entry.address, (counts.get(entry.address) ?? 0) + 1);
        const most = Math.max(0, ...counts.values());
        assert.equal(crowd.size, all.length);
        assert.equal(crowd.largest, most);
        const oldest = all.filter((entry) => counts.get(entry.address) === most);
        const firsts = [...new Set(oldest.map((entry) => entry.address))].map(
          (owner) => oldest.find((entry) => entry.address === owner)?.item,
        );
        if (most === 0) assert.equal(crowd.oldest(), undefined);
        else assert.ok(firsts.includes(crowd.oldest()));
      }
    }),
  );
});
