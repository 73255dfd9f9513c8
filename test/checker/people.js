// people.js: subscribers with a token, and visitors.
//
// A person follows the users of rooms with presence as docs/presence.md says: it asks for the list
// after each join and after `degraded: false`, and from then on it follows the events.

import { HANDLERS, RecoveringClient } from './client.js';

const LIST_RETRY_MS = 1000;
/** In front of the id of a question for a list: its number and the room follow. */
const LIST = 'list:';

/** @typedef {import('./client.js').Message} Message */
/** @typedef {import('./client.js').Handlers} Handlers */
/** @typedef {ConstructorParameters<typeof RecoveringClient>[0]} Parts */

/** The users of a room, as one connection knows them. */
class Roster {
  constructor() {
    /** The id of the last question. */
    this.asked = '';
    this.questions = 0;
    /** null: the list has not come yet. @type {Set<string>|null} */
    this.users = null;
  }

  /** @param {string} room @returns {string} the id of the question */
  ask(room) {
    this.users = null;
    this.asked = `${LIST}${++this.questions}:${room}`;
    return this.asked;
  }

  /** @param {Message[]} members */
  answered(members) {
    this.users = new Set(members.map(({ user }) => user));
  }

  /** A list includes the events that came before it. @param {Message} event */
  change({ event, member: { user } }) {
    if (event === 'join') this.users?.add(user);
    else this.users?.delete(user);
  }
}

export class Person extends RecoveringClient {
  /** @param {Parts} parts */
  constructor(parts) {
    super(parts);
    this.handlers = PERSONS;
    /** Its token may be revoked, or its user have too many connections: then it is refused. */
    this.mayBeRefused = false;
    /** @type {Map<string, Roster>} */
    this.rosters = new Map();
    /** Rooms whose `left` has not come, and after how many ms they are joined again. @type {Map<string, number>} */
    this.leaving = new Map();
  }

  /** Asks for the users of a room. @param {string} room */
  ask(room) {
    const { socket } = this;
    if (!this.places.get(room)?.isJoined || socket?.readyState !== 1) return;
    let roster = this.rosters.get(room);
    if (roster === undefined) this.rosters.set(room, (roster = new Roster()));
    socket.send(JSON.stringify({ type: 'presence', id: roster.ask(room), room }));
  }

  /** Repeats a question, unless there was another one since. @param {string} id of the question */
  askAgain(id) {
    const room = id.slice(id.indexOf(':', LIST.length) + 1);
    if (this.rosters.get(room)?.asked === id) this.ask(room);
  }

  /** Leaves a room on the same connection, and joins it again. @param {string} room @param {number} ms */
  stepOut(room, ms) {
    if (!this.places.get(room)?.isJoined || this.leaving.has(room)) return;
    this.leaving.set(room, ms);
    this.socket?.send(JSON.stringify({ type: 'leave', room }));
  }

  /** Records the users that it knows of. */
  list() {
    for (const [room, { isJoined }] of this.places) {
      if (!isJoined) continue;
      const users = this.rosters.get(room)?.users ?? null;
      this.recorder.write({ type: 'list', client: this.id, room, users: users && [...users] });
    }
  }
}

/** @type {Handlers} */
const PERSONS = {
  ...HANDLERS,

  joined(client, reply) {
    HANDLERS.joined?.(client, reply);
    const person = /** @type {Person} */ (client);
    person.leaving.delete(reply.room);
    person.ask(reply.room);
  },

  left(client, { room }) {
    const place = client.places.get(room);
    if (place === undefined) return;
    if (!place.isJoined) return void client.oddities.push(`left ${room} before it had joined`);
    place.isJoined = false;
    client.recorder.write({ type: 'leave', client: client.id, room });
    const { leaving } = /** @type {Person} */ (client);
    // Without it, the back end has removed the user, who comes back.
    const ms = leaving.get(room) ?? 0;
    leaving.delete(room);
    const { socket } = client;
    client.later(ms, () => {
      if (!place.isJoined && client.socket === socket) client.join(place);
    });
  },

  presence(client, message) {
    const roster = /** @type {Person} */ (client).rosters.get(message.room);
    if (roster === undefined) return;
    if (message.event !== undefined) roster.change(message);
    else if (message.id === roster.asked) roster.answered(message.members);
  },

  degraded(client, message) {
    HANDLERS.degraded?.(client, message);
    if (message.degraded) return;
    for (const room of client.places.keys()) /** @type {Person} */ (client).ask(room);
  },

  error(client, message) {
    const { error, id, retryAfter } = message;
    const person = /** @type {Person} */ (client);
    if (typeof id === 'string' && id.startsWith(LIST)) {
      const delayMs = Math.max(LIST_RETRY_MS, 1000 * (retryAfter ?? 0));
      client.later(delayMs, () => person.askAgain(id));
    } else if (error === 'NOT_IN_ROOM' && id === undefined) {
      // It leaves a room from which the back end has just removed it; `left` is on its way.
    } else if (!(person.mayBeRefused && REFUSALS.has(error))) HANDLERS.error?.(client, message);
  },
};

/** Of a token that is revoked, and of a user with too many connections. */
const REFUSALS = new Set(['INVALID_TOKEN', 'PERMISSION_DENIED', 'CONNECTION_LIMIT']);

/** Knows no positions: each of its joins asks for the newest messages, and live ones follow. */
export class Visitor extends RecoveringClient {
  /** @param {Parts & {last: number}} parts `last`: the maximum number */
  constructor({ last, ...parts }) {
    super(parts);
    this.most = last;
  }

  /** @override */
  beginning() {
    return { last: 1 + this.random.below(this.most) };
  }
}
