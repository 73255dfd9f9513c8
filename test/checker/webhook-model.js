// webhook-model.js: the users of each room, for a back end that follows docs/webhooks.md: it
// keeps the epoch and the highest sequence for each room, for each user in a room and for each user.
// It ignores lower sequences of the same epoch. After a gap it reads the state again.

/**
 * The users of each room, by the HTTP API or by the clients of a run.
 * @typedef {object} Truth
 * @property {readonly string[]} rooms with connections
 * @property {readonly string[]} members `room user`
 * @property {readonly string[]} users with a connection
 */

/** Events of arrivals. */
const COMES = new Set(['room.occupied', 'member.joined', 'user.connected']);
const LISTS = /** @type {const} */ (['rooms', 'members', 'users']);
/** @type {Readonly<Record<string, typeof LISTS[number]>>} */
const LIST_OF = Object.freeze({ room: 'rooms', member: 'members', user: 'users' });

/** @typedef {{isThere: boolean, epoch: string, sequence: number}} State */

export class WebhookModel {
  constructor() {
    /** By list, then by name. @type {Record<typeof LISTS[number], Map<string, State>>} */
    this.lists = { rooms: new Map(), members: new Map(), users: new Map() };
    /** Events that said nothing new. */
    this.ignored = 0;
  }

  /** @param {string} type @param {Record<string, any>} data */
  apply(type, data) {
    const kind = type.slice(0, type.indexOf('.'));
    const list = LIST_OF[kind];
    if (list === undefined) return;
    const name = kind === 'member' ? `${data.room} ${data.user}` : (data.room ?? data.user);
    const states = this.lists[list];
    const before = states.get(name);
    const epoch = String(data.epoch);
    const { sequence } = data;
    const isOld = before?.epoch === epoch && sequence <= before.sequence;
    if (isOld) this.ignored++;
    else states.set(name, { isThere: COMES.has(type), epoch, sequence });
  }

  /** The state was read again. Known sequences stay. @param {Truth} truth */
  replace(truth) {
    for (const list of LISTS) {
      const there = new Set(truth[list]);
      const states = this.lists[list];
      for (const [name, state] of states) state.isThere = there.delete(name);
      for (const name of there) states.set(name, { isThere: true, epoch: '', sequence: 0 });
    }
  }

  /** @returns {Truth} */
  get state() {
    const of = (/** @type {typeof LISTS[number]} */ list) =>
      [...this.lists[list]].flatMap(([name, { isThere }]) => (isThere ? [name] : [])).sort();
    return { rooms: of('rooms'), members: of('members'), users: of('users') };
  }

  /** @param {Truth} truth @returns {string[]} how the model differs */
  differences(truth) {
    const { state } = this;
    return LISTS.flatMap((list) => {
      const [mine, theirs] = [new Set(state[list]), new Set(truth[list])];
      return [
        ...truth[list].filter((name) => !mine.has(name)).map((name) => `${list}: lacks ${name}`),
        ...state[list].filter((name) => !theirs.has(name)).map((name) => `${list}: has ${name}`),
      ];
    });
  }
}
