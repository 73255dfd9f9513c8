// changes.js: keeps a room with state equal to a map of yours, and publishes only what has changed.
// Copy this file.

/** @typedef {{key: string, payload: unknown}} Change a `payload` of null removes the key */

/**
 * @param {object} parts
 * @param {() => Promise<Map<string, unknown>>} parts.read your values by key
 * @param {() => Promise<Map<string, unknown>>} parts.published those of the room
 * @param {(changes: Change[]) => Promise<unknown>} parts.publish
 * @returns {() => void} call it whenever your values may have changed
 */
export function followChanges({ read, published, publish }) {
  /** What the room has; null: unknown. @type {Map<string, unknown>|null} */
  let sent = null;
  let isBusy = false;
  let isDue = false;

  async function update() {
    const wanted = await read();
    sent ??= await published();
    const before = sent;
    const gone = [...before.keys()].filter((key) => !wanted.has(key));
    const changed = [...wanted].filter(
      ([key, value]) => JSON.stringify(before.get(key)) !== JSON.stringify(value),
    );
    if (gone.length + changed.length === 0) return;
    // If the publish fails, the room may have some of it.
    sent = null;
    await publish([
      ...gone.map((key) => ({ key, payload: null })),
      ...changed.map(([key, payload]) => ({ key, payload })),
    ]);
    sent = wanted;
  }

  return async () => {
    // There is no queue: the next update has the newest values.
    isDue = true;
    if (isBusy) return;
    isBusy = true;
    while (isDue) {
      isDue = false;
      await update().catch((error) => console.error('no update:', error));
    }
    isBusy = false;
  };
}
