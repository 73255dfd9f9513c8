// audiences.js: the room whose messages are partly for an audience, at a point of a record.

/** @typedef {import('./record.js').AudienceEvent} AudienceEvent */

class RestrictedMessage {
  /** @param {string} value @param {boolean} isRestricted */
  constructor(value, isRestricted) {
    this.value = value;
    this.isRestricted = isRestricted;
    this.epoch = '';
    this.offset = 0;
    this.okAt = Number.POSITIVE_INFINITY;
  }
}

class AudienceSegment {
  constructor() {
    this.holds = false;
    this.isOpen = false;
    this.openedAt = 0;
    this.epoch = '';
    /** The last offset that it got or passed. */
    this.last = 0;
  }
}

export class Audiences {
  constructor() {
    /** @type {Map<string, RestrictedMessage>} */
    this.messages = new Map();
    /** By epoch and offset. @type {Map<string, RestrictedMessage>} */
    this.places = new Map();
    /** By client. @type {Map<number, AudienceSegment>} */
    this.members = new Map();
    /** Offsets that members did not get. @type {{client: number, holds: boolean, place: string}[]} */
    this.skipped = [];
  }

  /** @param {AudienceEvent} event */
  see(event) {
    if (event.what === 'put') {
      const { value, isRestricted } = event;
      this.messages.set(value, new RestrictedMessage(value, isRestricted));
    } else if (event.what === 'ok') {
      const message = this.#place(event);
      if (message !== undefined) message.okAt = event.t;
    } else this.#seeMember(event);
  }

  /** @param {Exclude<AudienceEvent, {what: 'put'|'ok'}>} event */
  #seeMember(event) {
    const { client } = event;
    let member = this.members.get(client);
    if (member === undefined) this.members.set(client, (member = new AudienceSegment()));
    if (event.what === 'close') {
      member.isOpen = false;
      return;
    }
    const { epoch, offset } = event;
    if (event.what === 'joined') {
      Object.assign(member, { holds: event.holds, isOpen: true, openedAt: event.t });
      // A replay follows.
      if (event.recovered) return;
    } else if (event.what !== 'resync' && epoch === member.epoch) {
      for (let skipped = member.last + 1; skipped < offset; skipped++)
        this.skipped.push({ client, holds: member.holds, place: `${epoch}:${skipped}` });
      if (event.what === 'passed')
        this.skipped.push({ client, holds: member.holds, place: `${epoch}:${offset}` });
    }
    if (event.what === 'got') this.#place(event);
    Object.assign(member, { epoch, last: offset });
  }

  /** @param {{value: string, epoch: string, offset: number}} event */
  #place({ value, epoch, offset }) {
    const message = this.messages.get(value);
    if (message === undefined) return undefined;
    Object.assign(message, { epoch, offset });
    this.places.set(`${epoch}:${offset}`, message);
    return message;
  }
}
