// state-model.js: a room with state that does as it should, and writes the record of it, for the
// tests of the checker.

/** @typedef {import('./record.js').StateWhat} StateWhat */

export const STATE_ROOM = 'k.0';
export const STATE_KEYS = Object.freeze(['a', 'b', 'c']);
/** Clients. */
export const STATE_MEMBERS = Object.freeze([30, 31, 32]);

/** @typedef {{offset: number, value: string|null}} Entry */

class Follower {
  isOpen = false;
  /** It reads nothing. */
  isPaused = false;
  epoch = '';
  offset = 0;
  /** @type {Map<string, string>} */
  map = new Map();
}

export class StateModel {
  /** Changes that are not sent to this member. @type {number|undefined} */
  deaf = undefined;
  /** The backend acknowledges what it does not store. */
  isForgetful = false;
  epochs = 0;
  sequence = 0;
  top = 0;
  /** Oldest change first. @type {Map<string, Entry>} */
  log = new Map();
  /** Every change of this epoch. @type {{key: string, entry: Entry}[]} */
  changes = [];
  /** @type {Map<number, Follower>} */
  members = new Map(STATE_MEMBERS.map((client) => [client, new Follower()]));

  /** @param {(what: StateWhat & {type: 'state'}) => void} emit */
  constructor(emit) {
    this.emit = (/** @type {StateWhat} */ what) => emit({ type: 'state', ...what });
    for (const client of STATE_MEMBERS) this.open(client);
  }

  get epoch() {
    return `s${this.epochs}`;
  }

  get position() {
    return { room: STATE_ROOM, epoch: this.epoch, offset: this.top };
  }

  /**
   * @param {string} key
   * @param {{removes?: boolean, outcome?: 'ok'|'fail'|'lost'|'stored'}} [how] the last two: nothing is
   *   known, and it was lost or stored
   */
  put(key, { removes = false, outcome = 'ok' } = {}) {
    const value = `k:${++this.sequence}:${STATE_ROOM}`;
    this.emit({ what: 'put', value, room: STATE_ROOM, key, ...(removes && { removes }) });
    const isStored = outcome === 'ok' || outcome === 'stored';
    if (isStored) this.store(key, removes ? null : value);
    if (outcome === 'ok') this.emit({ what: 'ok', value, epoch: this.epoch, offset: this.top });
    else
      this.emit({ what: outcome === 'fail' ? 'fail' : 'info', value, reason: 'OUTCOME_UNKNOWN' });
    return value;
  }

  /** @param {string} key @param {string|null} value */
  store(key, value) {
    const entry = { offset: ++this.top, value };
    if (this.isForgetful) return;
    this.log.delete(key);
    this.log.set(key, entry);
    this.changes.push({ key, entry });
    for (const [client, { isOpen, isPaused }] of this.members)
      if (isOpen && !isPaused && client !== this.deaf) this.hand(client, key, entry);
  }

  /** @param {number} client @param {string} key @param {Entry} entry */
  hand(client, key, { offset, value }) {
    const member = this.member(client);
    const { room, epoch } = this.position;
    this.emit({ what: 'change', client, room, key, value, epoch, offset });
    member.offset = offset;
    if (value === null) member.map.delete(key);
    else member.map.set(key, value);
  }

  /** @param {number} client */
  close(client) {
    const member = this.member(client);
    if (!member.isOpen) return;
    member.isOpen = member.isPaused = false;
    this.emit({ what: 'close', client });
  }

  /** @param {number} client */
  open(client) {
    const member = this.member(client);
    if (member.isOpen) return;
    member.isOpen = true;
    const recovered = member.epoch === this.epoch;
    this.emit({ what: 'joined', client, ...this.position, recovered, since: member.offset });
    if (!recovered) this.forget(member);
    this.catchUp(client);
  }

  /** @param {number} client */
  pause(client) {
    const member = this.member(client);
    member.isPaused = member.isOpen;
  }

  /** @param {number} client */
  resume(client) {
    const member = this.member(client);
    if (!member.isPaused) return;
    member.isPaused = false;
    if (member.epoch !== this.epoch) this.reset(client);
    else this.catchUp(client);
  }

  /** @param {number} client */
  reset(client) {
    this.emit({ what: 'reset', client, ...this.position });
    this.forget(this.member(client));
    this.catchUp(client);
  }

  /**
   * The backend comes back without its newest changes. What it has is the state of a new epoch.
   * @param {number} lost
   */
  crash(lost) {
    const kept = [...this.log].slice(0, Math.max(0, this.log.size - lost));
    this.epochs++;
    this.log = new Map(kept);
    this.changes = kept.map(([key, entry]) => ({ key, entry }));
    this.top = Math.max(0, ...kept.map(([, { offset }]) => offset));
    for (const [client, { isOpen, isPaused }] of this.members)
      if (isOpen && !isPaused) this.reset(client);
  }

  /** All members are in, and read. */
  settle() {
    for (const client of STATE_MEMBERS) {
      this.open(client);
      this.resume(client);
    }
  }

  /** In calm: the map of the backend, and those of the members. */
  survey() {
    /** @type {[string, string, number][]} */
    const entries = [];
    for (const [key, { value, offset }] of this.log)
      if (value !== null) entries.push([key, value, offset]);
    this.emit({ what: 'truth', ...this.position, entries });
    for (const [client, { map }] of this.members)
      this.emit({ what: 'map', client, room: STATE_ROOM, entries: [...map], hearsAll: true });
  }

  /** @param {number} client */
  catchUp(client) {
    const member = this.member(client);
    const since = member.offset;
    const isWhole = since === 0;
    for (const [key, entry] of this.log)
      if (entry.offset > since && !(isWhole && entry.value === null)) this.hand(client, key, entry);
    member.offset = this.top;
    this.emit({ what: 'synced', client, ...this.position });
  }

  /** @param {Follower} member */
  forget(member) {
    member.epoch = this.epoch;
    member.offset = 0;
    member.map = new Map();
  }

  /** @param {number} client */
  member(client) {
    return /** @type {Follower} */ (this.members.get(client));
  }
}
