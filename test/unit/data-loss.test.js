import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { watchEmptying } from '../../src/backend/redis/data-loss.js';

const PUSH = '>2\r\n$10\r\ninvalidate\r\n_\r\n';

/** @param {string[]} pieces as they are read */
function read(pieces) {
  const stream = new PassThrough();
  let theirs = '';
  let emptied = 0;
  stream.on('data', (bytes) => {
    theirs += bytes;
  });
  watchEmptying(stream, () => emptied++);
  for (const piece of pieces) stream.emit('data', Buffer.from(piece));
  return { theirs, emptied };
}

test('a push is found wherever reads are cut, and no byte behind it is passed on', () => {
  const all = `:1\r\n>3\r\n$7\r\n${PUSH}:2\r\n`;
  for (let cut = 1; cut < all.length; cut++) {
    for (let next = cut; next <= all.length; next++) {
      const { theirs, emptied } = read(
        [all.slice(0, cut), all.slice(cut, next), all.slice(next)].filter(Boolean),
      );
      assert.equal(emptied, 1, `${cut} ${next}`);
      assert.ok(
        theirs.startsWith(':1\r\n>3\r\n$7\r\n') || cut < 12 || all.startsWith(theirs),
        `${cut} ${next}`,
      );
    }
  }
});

test('everything else is passed on unchanged', () => {
  const pieces = [
    ':1\r\n',
    '>2\r\n$10\r\ninvalid',
    'ated\r\n',
    '>',
    '>2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n',
    ':3\r\n',
  ];
  assert.deepEqual(read(pieces), { theirs: pieces.join(''), emptied: 0 });
});
