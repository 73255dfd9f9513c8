// audiences.js: rooms whose messages are partly for audiences, at a point of a record.

import { Held } from './held.js';

/** @typedef {import('./record.js').AudienceEvent} AudienceEvent */

export class AddressedMessage {
  /** @param {Extract<AudienceEvent, {what: 'put'}>} event */
  constructor({ value, audience, client = -1, t }) {
    this.value = value;
    this.room = value.slice(value.indexOf(':', value.indexOf(':') + 1) + 1);
    /** Who may see it; empty: everybody. */
    this.audience = audience;
    /** It has published it without an echo; -1: none. */
    this.client = client;
    this.putAt = t;
    this.epoch = '';
    this.offset = 0;
    this.okAt = Number.POSITIVE_INFINITY;
  }
}

/** A client in a room. */
export class AudienceMember {
  /** @param {number} client @param {string} room */
  constructor(client, room) {
    this.client = client;
    this.room = room;
    this.held = new Held();
    this.isOpen = false;
    this.openedAt = 0;
    /** When it asked for what comes now. */
    this.askedAt = 0;
    /** When it asked for a page of the history. */
    this.readAt = 0;
    /** @type {import('./record.js').Position|undefined} */
    this.since = undefined;
    this.isToldPositions = false;
    /** When its connection ended, or it left. */
    this.closedAt = 0;
    /** It has come back, and nothing has come yet. */
    this.isBack = false;
    /** What was put before may have been passed before it came back, as for others then. */
    this.putFrom = Number.NEGATIVE_INFINITY;
    this.epoch = '';
    /** The last offset that it got or passed; null: the messages of a join with `last` begin. */
    this.last = /** @type {number|null} */ (0);
    /** A replay with `last` ends there. */
    this.until = 0;
    /** What it missed while it was away ends there. */
    this.missedUntil = 0;
    /** The same when it came back before: what it might not see then is past. */
    this.missedBefore = 0;
    /** Of a room without positions. @type {Set<string>} */
    this.got = new Set();
  }

  toString() {
    return `client ${this.client} in ${this.room}`;
  }
}

/**
 * An offset that a member did not get. `putFrom`: a message of before may have been passed on the
 * connection before, as one that was for others then.
 * @typedef {{member: string, client: number, held: Held, askedAt: number, putFrom: number, place: string}} Skipped
 */

export class Audiences {
  constructor() {
    /** @type {Map<string, AddressedMessage>} */
    this.messages = new Map();
    /** By room, epoch and offset. @type {Map<string, AddressedMessage>} */
    this.places = new Map();
    /** By client and room. @type {Map<string, AudienceMember>} */
    this.members = new Map();
    /** @type {Skipped[]} */
    this.skipped = [];
    /** Two messages at one place. @type {string[]} */
    this.clashes = [];
  }

  /** @param {number} client @param {string} room */
  member(client, room) {
    const name = `${client} ${room}`;
    const member = this.members.get(name) ?? new AudienceMember(client, room);
    this.members.set(name, member);
    return member;
  }

  /** @param {AudienceEvent} event */
  see(event) {
    TAKEN[event.what](this, /** @type {never} */ (event));
  }

  /** @param {{value: string, epoch?: string, offset?: number}} event */
  place({ value, epoch, offset }) {
    const message = this.messages.get(value);
    if (message === undefined || epoch === undefined || offset === undefined) return message;
    const place = placeOf(message.room, epoch, offset);
    const other = this.places.get(place);
    if (other !== undefined && other !== message)
      this.clashes.push(`${value} is at ${place}, and ${other.value} is there`);
    Object.assign(message, { epoch, offset });
    this.places.set(place, message);
    return message;
  }

  /**
   * @param {AudienceMember} member @param {string} epoch
   * @param {number} from @param {number} to the first and the last offset that it did not get
   */
  skip(member, epoch, from, to) {
    const { client, room, held, askedAt, isBack } = member;
    const putFrom = isBack ? member.putFrom : Number.NEGATIVE_INFINITY;
    const about = { member: `${member}`, client, held: held.copy(), askedAt, putFrom };
    for (let offset = from; offset <= to; offset++)
      this.skipped.push({ ...about, place: placeOf(room, epoch, offset) });
  }
}

/** @param {string} room @param {string} epoch @param {number} offset */
const placeOf = (room, epoch, offset) => `${room} ${epoch}:${offset}`;

/** @type {{[W in AudienceEvent['what']]: (audiences: Audiences, event: Extract<AudienceEvent, {what: W}>) => void}} */
const TAKEN = {
  put({ messages }, event) {
    messages.set(event.value, new AddressedMessage(event));
  },

  ok(audiences, event) {
    const message = audiences.place(event);
    if (message !== undefined) message.okAt = event.t;
  },

  holds(audiences, { t, client, room, may, surely }) {
    audiences.member(client, room).held.become(may, surely, t);
  },

  asks(audiences, { t, client, room, since, tellsPositions = false }) {
    const member = audiences.member(client, room);
    Object.assign(member, { since, askedAt: t, isToldPositions: tellsPositions });
  },

  joined(audiences, { t, client, room, epoch, offset, recovered, last }) {
    const member = audiences.member(client, room);
    const isBack = recovered && !member.isToldPositions;
    const putFrom = isBack ? member.closedAt : Number.NEGATIVE_INFINITY;
    Object.assign(member, { isOpen: true, openedAt: t, isBack, putFrom });
    member.got.clear();
    // A replay follows.
    const { missedUntil } = member;
    member.missedBefore = recovered ? missedUntil : 0;
    member.missedUntil = recovered ? (offset ?? 0) : 0;
    if (recovered || epoch === undefined) return;
    Object.assign(member, { epoch, last: last === undefined ? offset : null, until: offset });
  },

  got(audiences, event) {
    const { client, room, epoch, offset, value } = event;
    const member = audiences.member(client, room);
    if (epoch === undefined || offset === undefined) return void member.got.add(value);
    audiences.place(event);
    const before = member.last ?? (offset <= member.until ? offset - 1 : member.until);
    if (epoch === member.epoch) audiences.skip(member, epoch, before + 1, offset - 1);
    Object.assign(member, { epoch, last: offset, isBack: false });
  },

  passed(audiences, { client, room, epoch, offset }) {
    const member = audiences.member(client, room);
    if (epoch === member.epoch)
      audiences.skip(member, epoch, (member.last ?? member.until) + 1, offset);
    Object.assign(member, { epoch, last: offset });
  },

  resync(audiences, { client, room, epoch, offset }) {
    Object.assign(audiences.member(client, room), { epoch, last: offset });
  },

  reads(audiences, { t, client, room }) {
    audiences.member(client, room).readAt = t;
  },

  page(audiences, { client, room, epoch, rows }) {
    const { held, isOpen, readAt: askedAt } = audiences.member(client, room);
    const page = Object.assign(new AudienceMember(client, room), { held, askedAt });
    for (const [i, [offset, value]] of rows.entries()) {
      audiences.place({ value, epoch, offset });
      // If it has left meanwhile, it holds less.
      if (i > 0 && isOpen) audiences.skip(page, epoch, rows[i - 1][0] + 1, offset - 1);
    }
  },

  again(audiences, { value, epoch, offset }) {
    const message = audiences.messages.get(value);
    if (message?.epoch === epoch && message?.offset === offset)
      audiences.clashes.push(`${value} for others was taken for a repeat`);
  },

  saw() {},

  recorded() {},

  left(audiences, { t, client, room }) {
    Object.assign(audiences.member(client, room), { isOpen: false, closedAt: t });
  },

  close({ members }, { t, client }) {
    for (const member of members.values())
      if (member.client === client && member.isOpen)
        Object.assign(member, { isOpen: false, closedAt: t });
  },
};
