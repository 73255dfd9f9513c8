// audience-model.js: a room with messages for an audience, in memory, for the tests of the checker.

const EPOCH = 'a'.repeat(16);
/** Members, and whether they hold the audience. */
export const AUDIENCE_MEMBERS = Object.freeze([
  { client: 40, holds: true },
  { client: 41, holds: false },
]);

export class AudienceModel {
  /** @param {(what: import('./record.js').What) => void} emit */
  constructor(emit) {
    this.emit = emit;
    /** @type {{value: string, isRestricted: boolean}[]} */
    this.log = [];
    /** Positions of those who are in, and of those who left. */
    this.open = new Map();
    this.left = new Map();
    /** Faults that a test can plant. */
    this.leaks = false;
    this.hides = false;
    this.forgets = false;
    for (const { client } of AUDIENCE_MEMBERS) this.toggle(client);
  }

  /** @param {boolean} isRestricted */
  publish(isRestricted) {
    const offset = this.log.length + 1;
    const value = `s0:${offset}:h.staff`;
    this.log.push({ value, isRestricted });
    this.emit({ type: 'audience', what: 'put', value, isRestricted });
    this.emit({ type: 'audience', what: 'ok', value, epoch: EPOCH, offset });
    for (const client of this.open.keys()) this.#hand(client, offset);
  }

  /** A member leaves, or returns. @param {number} client */
  toggle(client) {
    if (this.open.has(client)) {
      this.left.set(client, this.open.get(client));
      this.open.delete(client);
      return this.emit({ type: 'audience', what: 'close', client });
    }
    const last = this.left.get(client);
    const since = last !== undefined && { since: { epoch: EPOCH, offset: last } };
    const place = { client, epoch: EPOCH, offset: this.log.length, ...since };
    const recovered = last !== undefined && !this.forgets;
    const { holds = false } = AUDIENCE_MEMBERS.find((one) => one.client === client) ?? {};
    this.emit({ type: 'audience', what: 'joined', ...place, holds, recovered });
    this.open.set(client, recovered ? last : this.log.length);
    if (recovered)
      for (let offset = last + 1; offset <= this.log.length; offset++) this.#hand(client, offset);
  }

  /** @param {number} client @param {number} offset */
  #hand(client, offset) {
    if (this.hides) return;
    const { holds = false } = AUDIENCE_MEMBERS.find((one) => one.client === client) ?? {};
    const { value, isRestricted } = this.log[offset - 1];
    const place = { client, epoch: EPOCH, offset };
    if (isRestricted && !holds && !this.leaks)
      this.emit({ type: 'audience', what: 'passed', ...place });
    else this.emit({ type: 'audience', what: 'got', ...place, holds, value });
    this.open.set(client, offset);
  }
}
