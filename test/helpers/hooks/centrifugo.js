// centrifugo.js: hooks for tests of the Centrifugo door.

import { setTimeout as delay } from 'node:timers/promises';

/** What clients have sent. @type {unknown[]} */
const sent = [];

export default /** @satisfies {import('../../../src/hooks/types.js').Hooks} */ ({
  onConnect({ token, transport, headers, data }) {
    if (transport !== 'centrifugo') return { deny: transport };
    if (token === 'denied') return { deny: 'no such customer' };
    if (data?.deny) return { deny: data.deny };
    if (token === 'broken') throw new Error('the database is unavailable');
    return headers['x-user'] === undefined ? undefined : { user: String(headers['x-user']) };
  },

  onJoin({ id, user }, room) {
    if (room === 'broken') throw new Error('the database is unavailable');
    if (room.startsWith('own-') && (id === '' || room !== `own-${user}`))
      return { deny: 'not own' };
    return room.startsWith('staff') ? { deny: 'staff only' } : undefined;
  },

  onPublish(connection, _room, payload) {
    if (payload === 'deny') return { deny: 'not that' };
    return payload === 'change' ? { payload: { by: connection.user } } : undefined;
  },

  async onRpc(connection, method, data) {
    switch (method) {
      case 'sum':
        return { data: data.reduce((/** @type {number} */ a, /** @type {number} */ b) => a + b) };
      case 'slow':
        await delay(50);
        return { data: connection.user };
      case 'sent':
        return { data: sent };
      case 'deny':
        return { deny: 'not you' };
      case 'throw':
        throw new Error('a fault');
      case 'large':
        return { data: 'x'.repeat(200_000) };
      default:
        return undefined;
    }
  },

  onSend(_connection, data) {
    sent.push(data);
    return data !== 'deny';
  },
});
