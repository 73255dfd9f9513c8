// app-names.js: names of the rooms and users of an app, on the wire and inside the server.
//
//   on the wire     chat      chat:42       user ann
//   in app 123      ~123:chat ~123:chat~42  ~123:ann
//
// Native clients and API keys of an app give bare names, and a session or a key maps them once, on
// their way in. What the native protocol writes goes through `wireName`, so all readers of a room
// share its frames. Pusher's door maps channels to the same rooms (pusher-channels.js).
//
// No native name has a `~`, so the mapping is injective, and no client reaches a room outside its
// app. After the prefix, `:` becomes `~`: doors keep rooms of their own there (`~123:u:7`). The
// mapping is character by character, so the room of a prefix is the prefix of the rooms. A shared
// app has native rooms; its users have the prefix all the same.

const TILDE = 0x7e;
/** The rooms of Centrifugo's door begin with `~c:`. */
const OWN_NAME = /^~(?!c:)[A-Za-z0-9-]+:/;

/**
 * The part of an app that names need.
 * @typedef {{readonly id: string, readonly isShared: boolean}} NamedApp
 */

/** @param {NamedApp} app @returns {string} starts the names of its rooms; '': shared */
export function roomPrefixOf({ id, isShared }) {
  return isShared ? '' : `~${id}:`;
}

/** The user's name for tokens, limits and the API. @param {Pick<NamedApp, 'id'>} app @param {string} user */
export function sessionUserOf({ id }, user) {
  return `~${id}:${user}`;
}

/** Does it look like a name inside an app? Others must not have it. @param {string} name */
export function isOfApp(name) {
  return OWN_NAME.test(name);
}

/** @param {string} room @returns {string} as native clients in it name it */
export function wireName(room) {
  if (room.charCodeAt(0) !== TILDE) return room;
  return room.slice(room.indexOf(':') + 1).replaceAll('~', ':');
}

/** The names of one app, or of none. */
export class AppNames {
  #rooms;
  #users;
  /** Starts the rooms that doors keep for its users. */
  #ofUsers;

  /** @param {NamedApp} app */
  constructor(app) {
    /** Owner of idempotency keys of its backends. */
    this.owner = `~${app.id}`;
    this.#rooms = roomPrefixOf(app);
    this.#users = sessionUserOf(app, '');
    this.#ofUsers = `~${app.id}:u:`;
  }

  /** @param {string} name a native room's, or the beginning of one; '': of all @returns {string} */
  roomOf = (name) => (this.#rooms === '' ? name : this.#rooms + name.replaceAll(':', '~'));

  /** @param {string} room @returns {string|null} null: clients of the app cannot name it */
  nameOf = (room) => {
    if (this.#rooms === '') return room.charCodeAt(0) === TILDE ? null : room;
    if (!room.startsWith(this.#rooms) || room.startsWith(this.#ofUsers)) return null;
    return wireName(room);
  };

  /** @param {string} name @returns {string} */
  userOf = (name) => this.#users + name;

  /** @param {string} user @returns {string} the same if it is not the app's */
  nameOfUser = (user) => (user.startsWith(this.#users) ? user.slice(this.#users.length) : user);

  /** Rooms with this prefix have no name in the app. */
  get unnamed() {
    return this.#rooms === '' ? '~' : this.#ofUsers;
  }
}

/** @type {WeakMap<NamedApp, AppNames>} */
const known = new WeakMap();

/** @param {NamedApp} app @returns {AppNames} */
export function namesOf(app) {
  let names = known.get(app);
  if (names === undefined) {
    names = new AppNames(app);
    known.set(app, names);
  }
  return names;
}
