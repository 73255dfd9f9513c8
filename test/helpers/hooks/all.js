// all.js: hooks for tests. Their answers follow from the room, the payload and the query.

import { setTimeout as delay } from 'node:timers/promises';

/** Connections that are open, by the calls. */
let open = 0;

export default /** @satisfies {import('../../../src/hooks/types.js').Hooks} */ ({
  async onConnect({ headers, query, token, user, address, transport }) {
    if (query.get('is') === 'denied') return { deny: 'no such customer' };
    if (query.get('is') === 'broken') throw new Error('the database is away');
    if (query.get('is') === 'slow') await delay(60_000);
    if (user === 'banned') return { deny: 'you are banned' };
    if (user === 'unlucky') throw new Error('the database is away');
    open++;
    const name = /\bsession=(\w+)/.exec(String(headers.cookie))?.[1];
    const data = { token, user, address, transport };
    if (name === undefined) return { data };
    return { user: name, info: { colour: 'red' }, data };
  },

  async onJoin(connection, room) {
    if (room.startsWith('staff.') && connection.user !== 'ann') return { deny: 'staff only' };
    if (room.startsWith('slow.')) await delay(Number(room.split('.')[1]));
    if (room === 'broken') throw new Error('the database is away');
    return true;
  },

  async onPublish(connection, room, payload, { signal }) {
    switch (payload?.do) {
      case 'deny':
        return { deny: payload.text };
      case 'false':
        return false;
      case 'change':
        return { payload: { ...payload, by: connection.user, room, data: connection.data } };
      case 'nest':
        return { payload: nested(payload.depth) };
      case 'grow':
        return { payload: 'x'.repeat(payload.bytes) };
      case 'wait':
        await delay(payload.ms);
        return;
      case 'count':
        return { payload: open };
      case 'hang':
        return new Promise(() => {});
      case 'abortable':
        await delay(60_000, undefined, { signal });
        return;
      case 'throw':
        throw new Error('the database is away');
      case 'null':
        return /** @type {any} */ (null);
      case 'loop':
        for (;;);
    }
  },

  async onDisconnect({ user }) {
    open--;
    await delay(1);
    // A backend of a test has no output that anybody reads.
    if (process.send) process.stdout.write(`${JSON.stringify({ msg: 'onDisconnect', user })}\n`);
  },
});

/** @param {number} depth */
function nested(depth) {
  /** @type {unknown} */
  let value = 0;
  for (let i = 0; i < depth; i++) value = [value];
  return value;
}
