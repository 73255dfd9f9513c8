// deflate.js: the cost of compressing a publication, and the bytes it saves, by size:
// `node loadtest/bench/deflate.js`.
//
// Shared: once a publication, as Fanfare does it. Each: once a receiver, as a server does that
// leaves it to its WebSocket library (zlib's asynchronous calls cost more still). For 1,000
// receivers the second is 1,000 times the first.

import { deflateFrames } from '../../src/protocol/deflate.js';
import { publicationFrames, roomPrefix } from '../../src/protocol/frame.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';

const ROUNDS = 400;
const prefix = roomPrefix('bench');

console.log(
  '| payload | bytes a frame | compressed | ratio | CPU to compress once, µs | a receiver of 1,000, µs |',
);
console.log('|---:|---:|---:|---:|---:|---:|');
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
  const once = micros.sort((a, b) => a - b)[2];
  const { length } = deflateFrames(frames);
  const ratio = (length / frames.length).toFixed(2);
  console.log(
    `| ${bytes} B | ${frames.length} | ${length} | ${ratio} | ${once.toFixed(1)} | ${(once / 1000).toFixed(3)} |`,
  );
}

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
