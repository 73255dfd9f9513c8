// deflate.js: the cost of compressing a publication, and the bytes it saves, by size:
// `node loadtest/bench/deflate.js`.
//
// Fanfare compresses once a publication. A server that leaves compression to its WebSocket library
// compresses once a receiver, and zlib's asynchronous calls cost more still.

import { deflateFrames } from '../../src/protocol/deflate.js';
import { publicationFrames, roomPrefix } from '../../src/protocol/frame.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { markdownTable, median, show } from '../lib/figures.js';

const ROUNDS = 400;
const prefix = roomPrefix('bench');

/** @type {string[][]} */
const rows = [];
for (const bytes of [100, 1024, 10_240]) {
  const payload = Buffer.from(sample(bytes));
  const publication = encodePublication(
    KIND.MESSAGE,
    Date.now(),
    0,
    'sender-1',
    payload,
    0,
    payload.length,
  );
  const frames = publicationFrames(prefix, [publication]);
  const micros = [];
  for (let round = 0; round < 5; round++) {
    const before = process.cpuUsage();
    for (let i = 0; i < ROUNDS; i++) deflateFrames(frames);
    const { user, system } = process.cpuUsage(before);
    micros.push((user + system) / ROUNDS);
  }
  const once = median(micros);
  const { length } = deflateFrames(frames);
  const ratio = (length / frames.length).toFixed(2);
  rows.push([
    `${bytes} B`,
    ...[show(frames.length), show(length), ratio, show(once, 1), show(once / 1000, 3)],
  ]);
}
const head = ['payload', 'bytes a frame', 'compressed', 'ratio', 'CPU to compress once, µs'];
console.log(markdownTable([...head, 'a receiver of 1,000, µs'], rows).join('\n'));

/**
 * JSON of about so many bytes, as applications send it: few names, many values.
 * @param {number} bytes
 */
function sample(bytes) {
  const items = [];
  let random = 42;
  while (JSON.stringify(items).length < bytes) {
    random = (random * 48_271) % 2_147_483_647;
    items.push({
      id: random,
      user: `user-${random % 997}`,
      price: (random % 100_000) / 100,
      open: random % 2 === 0,
    });
  }
  return JSON.stringify(items);
}
