// deflate.js: the cost of compressing a publication, and the bytes it saves, by size:
// `node loadtest/bench/deflate.js`.
//
// Fanfare compresses each publication once. A server that leaves compression to its WebSocket
// library compresses once for each receiver, and zlib's asynchronous calls cost more still.

import { deflateFrames } from '../../src/protocol/deflate.js';
import { publicationFrames, roomPrefix } from '../../src/protocol/frame.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { experiment } from '../lib/experiment.js';
import { markdownTable, median, show } from '../lib/figures.js';

const CALLS = 400;
const ROUNDS = 5;

await experiment({
  question: 'Measures the CPU that compressing a publication costs, and the bytes that it saves.',
  variants: () => ['100', '1024', '10240'],

  setup({ variant }) {
    const payload = Buffer.from(sample(Number(variant)));
    const publication = encodePublication(
      KIND.MESSAGE,
      Date.now(),
      0,
      'sender-1',
      payload,
      0,
      payload.length,
    );
    return publicationFrames(roomPrefix('bench'), [publication]);
  },

  async measure(frames, { variant }) {
    const micros = [];
    for (let round = 0; round < ROUNDS; round++) {
      const before = process.cpuUsage();
      for (let i = 0; i < CALLS; i++) deflateFrames(frames);
      const { user, system } = process.cpuUsage(before);
      micros.push((user + system) / CALLS);
    }
    const { length } = deflateFrames(frames);
    return { bytes: variant, plain: frames.length, length, us: median(micros) };
  },

  report([sizes]) {
    const head = ['payload', 'bytes a frame', 'compressed', 'ratio', 'CPU to compress once, µs'];
    return {
      title: 'The cost of compressing a publication',
      lines: markdownTable(
        [...head, 'a receiver of 1,000, µs'],
        sizes.map(({ bytes, plain, length, us }) => [
          `${bytes} B`,
          ...[show(plain), show(length), (length / plain).toFixed(2)],
          ...[show(us, 1), show(us / 1000, 3)],
        ]),
      ),
      data: { sizes },
    };
  },
});

/**
 * JSON of about this many bytes, as applications send it: few names, many values.
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
