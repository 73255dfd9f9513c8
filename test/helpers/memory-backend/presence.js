// presence.js: presence for workers in one process: they share a Members.

/** @implements {Presence} */
export class MemoryPresence {
  /** @param {import('../../../src/backend/embedded/members.js').Members<MemoryPresence>} members */
  constructor(members) {
    this.members = members;
  }

  async start() {}

  async close() {
    this.members.remove(this);
  }

  /** @param {string} room @param {string} user @param {Buffer} member */
  join(room, user, member) {
    this.members.join(this, room, user, member);
  }

  /** @param {string} room @param {string} user */
  leave(room, user) {
    this.members.leave(this, room, user);
  }

  async recorded() {}

  /** @param {string} room @param {boolean} [isCount] */
  async read(room, isCount = false) {
    return this.members.read(room, isCount);
  }
}

/** @typedef {import('../../../src/backend/presence.js').Presence} Presence */
