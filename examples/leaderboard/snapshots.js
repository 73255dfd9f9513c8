// snapshots.js: publishes the latest value of each key, and no older one. Copy this file.

/** A value that has not changed is repeated for readers that have come since. */
const REPEAT_MS = 2000;

/**
 * Reads all values at each interval and publishes those that have changed. There is no queue: if a
 * publish takes long or fails, the next interval publishes newer values.
 * @param {() => Promise<Record<string, unknown>>} read values by key; a key is a room
 * @param {(messages: {room: string, payload: unknown}[]) => Promise<void>} publish
 * @param {number} [everyMs]
 */
export function publishSnapshots(read, publish, everyMs = 250) {
  /** @type {Map<string, {text: string, atMs: number}>} */
  const sent = new Map();
  let isBusy = false;
  return setInterval(async () => {
    if (isBusy) return;
    isBusy = true;
    try {
      const atMs = Date.now();
      const changed = Object.entries(await read()).filter(([room, value]) => {
        const last = sent.get(room);
        return last?.text !== JSON.stringify(value) || atMs - last.atMs >= REPEAT_MS;
      });
      if (changed.length > 0)
        await publish(changed.map(([room, value]) => ({ room, payload: { atMs, value } })));
      for (const [room, value] of changed) sent.set(room, { text: JSON.stringify(value), atMs });
    } catch (error) {
      console.error('no snapshot:', error);
    }
    isBusy = false;
  }, everyMs);
}
