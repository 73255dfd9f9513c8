// audience-model.js: a room with messages for an audience, in memory, for the tests of the checker.

const EPOCH = 'a'.repeat(16);
const ROOM = 'h.staff';
const AUDIENCE = 'staff';
/** Members; the first one holds the audience. */
export const AUDIENCE_MEMBERS = Object.freeze([40, 41]);
const HOLDERS = new Set([40]);

export class AudienceModel {
  /** @param {(what: import('./record.js').What) => void} emit */
  constructor(emit) {
    this.emit = emit;
    /** @type {{value: string, isRestricted: boolean}[]} */
    this.log = [];
    /** Positions of those who are in, and of those who left. */
    this.open = new Map();
    this.left = new Map();
    /** What each member holds. @type {Map<number, string[]>} */
    this.held = new Map();
    /** Faults that a test can plant. */
    this.leaks = false;
    this.hides = false;
    this.forgets = false;
    for (const client of AUDIENCE_MEMBERS) this.toggle(client);
  }

  /** @param {boolean} isRestricted */
  publish(isRestricted) {
    const offset = this.log.length + 1;
    const value = `s0:${offset}:${ROOM}`;
    this.log.push({ value, isRestricted });
    this.#say({ what: 'put', value, audience: isRestricted ? [AUDIENCE] : [] });
    this.#say({ what: 'ok', value, epoch: EPOCH, offset });
    for (const client of this.open.keys()) this.#hand(client, offset);
  }

  /** A member leaves, or returns. @param {number} client */
  toggle(client) {
    if (this.open.has(client)) {
      this.left.set(client, this.open.get(client));
      this.open.delete(client);
      return this.#say({ what: 'close', client });
    }
    const last = this.left.get(client);
    const since = last !== undefined && { since: { epoch: EPOCH, offset: last } };
    const place = { client, room: ROOM, epoch: EPOCH, offset: this.log.length };
    const recovered = last !== undefined && !this.forgets;
    this.hold(client, HOLDERS.has(client) ? [AUDIENCE] : []);
    this.#say({ what: 'asks', client, room: ROOM, ...since });
    this.#say({ what: 'joined', ...place, recovered });
    this.open.set(client, recovered ? last : this.log.length);
    if (recovered)
      for (let offset = last + 1; offset <= this.log.length; offset++) this.#hand(client, offset);
  }

  /** @param {number} client @param {string[]} names */
  hold(client, names) {
    this.held.set(client, names);
    this.#say({ what: 'holds', client, room: ROOM, may: names, surely: names });
  }

  /** A page of the history. @param {number} client @param {(place: number) => boolean} has */
  read(client, has) {
    this.#say({ what: 'reads', client, room: ROOM });
    const rows = this.log.flatMap(({ value }, i) =>
      has(i) ? [/** @type {[number, string]} */ ([i + 1, value])] : [],
    );
    this.#say({ what: 'page', client, room: ROOM, epoch: EPOCH, rows });
  }

  /** What webhooks say of the last message. @param {string[]} audience */
  report(audience) {
    this.#say({ what: 'recorded', value: `${this.log.at(-1)?.value}`, audience });
  }

  /** The last message was accepted again, for others, at its own place. */
  repeat() {
    const { length: offset } = this.log;
    this.#say({ what: 'again', value: `${this.log.at(-1)?.value}`, epoch: EPOCH, offset });
  }

  /** @param {number} client @param {number} offset */
  #hand(client, offset) {
    if (this.hides) return;
    const { value, isRestricted } = this.log[offset - 1];
    const place = { client, room: ROOM, epoch: EPOCH, offset };
    const sees = !isRestricted || this.held.get(client)?.includes(AUDIENCE) || this.leaks;
    this.#say(sees ? { what: 'got', ...place, value } : { what: 'passed', ...place });
    this.open.set(client, offset);
  }

  /** @param {import('./record.js').AudienceWhat} what */
  #say(what) {
    this.emit({ type: 'audience', ...what });
  }
}
