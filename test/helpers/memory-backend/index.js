// index.js: a third backend, for tests: the workers are objects in one process.
//
// It shows that a backend is a folder with an index.js (src/backend/backend.js), and lets unit tests
// run without a relay. Workers whose configurations have the same `serverId` share a store.

import { Members } from '../../../src/backend/embedded/members.js';
import { MemoryBroker, MemoryStore } from './broker.js';
import { MemoryPresence } from './presence.js';

/** @typedef {import('../../../src/backend/revocations.js').Revocation} Revocation */
/** @typedef {{store: MemoryStore, members: Members<MemoryPresence>, revocations: Map<string, Revocation>, workers: number}} Server */

/** By `serverId`. @type {Map<string, Server>} */
const servers = new Map();

/** @type {import('../../../src/backend/backend.js').CreateBackend} */
export function createBackend({ config, historyRules, announcements }) {
  const { serverId, presenceMaxMembers } = config;
  let server = servers.get(serverId);
  if (server === undefined) {
    const store = new MemoryStore((room) => historyRules.ruleFor(room));
    /** @type {Members<MemoryPresence>} */
    const members = new Members({
      maxMembers: presenceMaxMembers,
      announcements,
      publish: (room, head, member) => store.announce(room, Buffer.concat([head, member]), 0, ''),
    });
    servers.set(serverId, (server = { store, members, revocations: new Map(), workers: 0 }));
  }
  const { store, members } = server;
  const shared = server;
  shared.workers++;
  let isClosed = false;
  const broker = new MemoryBroker(store);
  const presence = config.presence.length > 0 ? new MemoryPresence(members) : null;
  return {
    broker,
    presence,
    revocations: {
      add: async (revocation) => {
        shared.revocations.set(JSON.stringify([revocation.user, revocation.tokenId]), revocation);
        return true;
      },
      read: async () => [...shared.revocations.values()],
    },
    close: async () => {
      await presence?.close();
      await broker.close();
      if (isClosed) return;
      isClosed = true;
      if (--shared.workers === 0) servers.delete(serverId);
    },
  };
}
