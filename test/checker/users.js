// users.js: the users in a record: which connections and rooms each has, since when,
// and whose tokens are revoked.

/** Answers of servers that did not know of a revocation yet are no finding for so long. */
const SPREAD_US = 2_000_000;
/** Time after which the users of a server that died have left, and some to notice it. */
const GHOST_US = 75_000_000;

/** A client while it is connected, or after a reply, while it is in a room. */
class Session {
  /** @param {string} user @param {number} openedAt */
  constructor(user, openedAt) {
    this.user = user;
    this.openedAt = openedAt;
    /** @type {Set<string>} */
    this.rooms = new Set();
  }
}

/** A user in a room. */
class Stay {
  constructor() {
    this.connections = 0;
    /** When it came, or went. */
    this.since = 0;
    /** Nothing was done to the servers since then, when it went. */
    this.calmSince = 0;
  }
}

export class Users {
  constructor() {
    /** @type {Map<string, {allowed: number, wanted: number}>} */
    this.capped = new Map();
    /** Rooms with presence. @type {Set<string>} */
    this.presence = new Set();
    /** By client. @type {Map<number, Session>} */
    this.sessions = new Map();
    /** When each was confirmed. @type {Map<string, number>} */
    this.revoked = new Map();
    /** By room, then user. @type {Map<string, Map<string, Stay>>} */
    this.stays = new Map();
  }

  /** @param {number} client @param {string|undefined} user @param {number} t */
  connect(client, user, t) {
    if (user !== undefined) this.sessions.set(client, new Session(user, t));
  }

  /** @param {number} client @param {string} room @param {number} t */
  join(client, room, t) {
    const session = this.sessions.get(client);
    if (session === undefined || session.rooms.has(room)) return;
    session.rooms.add(room);
    let stays = this.stays.get(room);
    if (stays === undefined) this.stays.set(room, (stays = new Map()));
    let stay = stays.get(session.user);
    if (stay === undefined) stays.set(session.user, (stay = new Stay()));
    if (stay.connections++ === 0) stay.since = t;
  }

  /**
   * @param {number} client
   * @param {string} room
   * @param {number} t
   * @param {number} calmSince NaN while something is done to the servers
   */
  leave(client, room, t, calmSince) {
    const session = this.sessions.get(client);
    if (!session?.rooms.delete(room)) return;
    const stay = this.stays.get(room)?.get(session.user);
    if (stay === undefined || --stay.connections > 0) return;
    stay.since = t;
    stay.calmSince = calmSince;
  }

  /** Connections of a user that are in a room. @param {string} user */
  connections(user) {
    let count = 0;
    for (const session of this.sessions.values())
      if (session.user === user && session.rooms.size > 0) count++;
    return count;
  }

  /**
   * Has a server let in a client whose token it had to know as revoked?
   * @param {number} client @param {number} calmSince @param {boolean} isSettled
   */
  isWronglyIn(client, calmSince, isSettled) {
    const session = this.sessions.get(client);
    const revokedAt = this.revoked.get(session?.user ?? '');
    if (session === undefined || revokedAt === undefined) return null;
    if (session.openedAt <= revokedAt + SPREAD_US) return null;
    // Servers that cannot be reached learn of it later.
    return isSettled || calmSince <= revokedAt ? session.user : null;
  }

  /**
   * The faults of a list of users, when all is settled.
   * @param {string} room
   * @param {readonly string[]} users
   * @param {number} t
   * @param {number} settleUs
   * @returns {string} '': nothing
   */
  faultOf(room, users, t, settleUs) {
    const listed = new Set(users);
    const stays = this.stays.get(room) ?? new Map();
    const missing = [...stays].filter(
      ([user, { connections, since }]) =>
        connections > 0 && t - since >= settleUs && !listed.has(user),
    );
    const ghosts = [...listed].filter((user) => {
      const stay = stays.get(user);
      if (stay === undefined) return true;
      const { connections, since, calmSince } = stay;
      const wentInCalm = calmSince <= since;
      return connections === 0 && t - since >= (wentInCalm ? settleUs : GHOST_US);
    });
    const parts = [];
    if (missing.length > 0) parts.push(`without ${missing.map(([user]) => user)}`);
    if (ghosts.length > 0) parts.push(`with ${ghosts}, who left`);
    return parts.join(', and ');
  }
}
