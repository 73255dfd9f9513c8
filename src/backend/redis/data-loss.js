// data-loss.js: detects, before the answer to any later command, that Redis has lost its data.
//
// After FLUSHALL, or when a primary becomes a replica and a primary again, Redis pushes
// `invalidate` without keys to a RESP3 connection with CLIENT TRACKING. With OPTIN it tracks no
// key, so this costs nothing (https://redis.io/docs/latest/commands/client-tracking/). The push
// does not name the database: after a FLUSHDB of another one, workers reconnect without need.
//
// ioredis drops the push, so the bytes are searched first. A payload can't contain it: JSON has no
// line breaks in strings and no `>` outside of them. If Redis does not know the command or the ACL
// user may not use it, identity.js and the heartbeat of presence detect the loss later.

const PUSH = Buffer.from('>2\r\n$10\r\ninvalidate\r\n_\r\n', 'latin1');
const FIRST = PUSH[0];
const NOTHING = Buffer.alloc(0);

/** @import { Duplex as Stream } from 'node:stream' */

/** @param {import('ioredis').Redis} redis whose connection is ready */
export function trackEmptying(redis) {
  redis.call('CLIENT', 'TRACKING', 'ON', 'OPTIN').catch(() => {}); // see above
}

/**
 * Reads the bytes before ioredis. Call it when ioredis listens and before any read.
 * @param {Stream} stream
 * @param {() => void} onEmptied must end the connection: bytes after the push are dropped
 */
export function watchEmptying(stream, onEmptied) {
  const listeners = /** @type {((this: Stream, bytes: Buffer) => void)[]} */ (
    stream.listeners('data')
  );
  // An unknown version of ioredis is left alone.
  if (listeners.length !== 1) return;
  const [theirs] = listeners;
  /** The end of the bytes read so far, if the push may begin there. */
  let tail = NOTHING;
  stream.removeListener('data', theirs);
  stream.on('data', (/** @type {Buffer} */ bytes) => {
    const seam = tail.length === 0 ? bytes : Buffer.concat([tail, bytes]);
    const at = seam.indexOf(PUSH);
    const theirsBytes = at < 0 ? bytes.length : Math.max(0, at - tail.length);
    const begin = seam.lastIndexOf(FIRST);
    tail = begin > seam.length - PUSH.length ? Buffer.from(seam.subarray(begin)) : NOTHING;
    if (theirsBytes > 0)
      theirs.call(stream, theirsBytes === bytes.length ? bytes : bytes.subarray(0, theirsBytes));
    if (at >= 0) onEmptied();
  });
}
