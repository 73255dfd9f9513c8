// publishing.js: publishes the messages of one request, in order, and what they cost.

import { toHttp } from '../../protocol/refusal.js';
import { ApiFault, faultOf } from './fault.js';

/** Unanswered bytes of one request's publications. The others follow the answers. */
const MAX_WAITING_BYTES = 4_194_304;
/** A message costs one unit of the rate for each started block of this size, as on the socket. */
export const BYTES_PER_UNIT = 4096;

/** @import { Position } from '../../protocol/position.js' */
/** @import { Services } from './call.js' */

/**
 * One message to one room.
 * @typedef {object} Message
 * @property {string} room
 * @property {Buffer} publication several messages may share it: brokers do not change it
 * @property {import('../../backend/broker.js').PublishOptions|undefined} options
 */

/** @typedef {{position: Position|void}|{fault: ApiFault}} Outcome */

/** @param {number} bytes of a message */
export function unitsOf(bytes) {
  return Math.ceil(bytes / BYTES_PER_UNIT);
}

/** @param {Outcome} outcome @returns {object} empty without history @throws {ApiFault} */
export function positionOf(outcome) {
  if ('fault' in outcome) throw outcome.fault;
  return outcome.position ?? {};
}

/** @param {Outcome} outcome */
const isPublished = (outcome) => !('fault' in outcome);

export class Publishing {
  /** @param {Pick<Services, 'publisher'|'counters'|'log'>} services */
  constructor({ publisher, counters, log }) {
    this.publisher = publisher;
    this.counters = counters;
    this.log = log;
  }

  /**
   * Publishes in order. If the broker fails, the messages that follow are not tried. A message that
   * depends on the room's position waits for the earlier ones to its room: if one of them was
   * refused, another publisher's message might have brought the room there.
   * @param {readonly Message[]} messages
   * @param {{id: string}|null} [app] whose events these are; null: they are in native rooms
   * @returns {Promise<Outcome[]>} in the order of `messages`
   */
  async publishAll(messages, app = null) {
    const outcomes = [];
    /** @type {Map<string, ApiFault>} */
    const refused = new Map();
    for (let from = 0; from < messages.length; ) {
      let to = from;
      let bytes = 0;
      const rooms = new Set();
      do {
        const { room, publication } = messages[to++];
        bytes += publication.length;
        rooms.add(room);
      } while (
        to < messages.length &&
        bytes + messages[to].publication.length <= MAX_WAITING_BYTES &&
        !(messages[to].options?.expect !== undefined && rooms.has(messages[to].room))
      );
      const next = await Promise.all(
        messages.slice(from, to).map((message) => this.#publishOne(message, refused)),
      );
      outcomes.push(...next);
      from = to;
      if (next.some((outcome) => 'fault' in outcome && toHttp(outcome.fault).status >= 500)) break;
    }
    if (app !== null)
      this.counters.apps.events[`${app.id},api`] += outcomes.filter(isPublished).length;
    while (outcomes.length < messages.length) outcomes.push({ fault: new ApiFault('UNAVAILABLE') });
    return outcomes;
  }

  /**
   * @param {Message} message @param {Map<string, ApiFault>} refused why earlier ones were, by room
   * @returns {Promise<Outcome>}
   */
  async #publishOne({ room, publication, options }, refused) {
    this.counters.api.messages++;
    const earlier = options?.expect === undefined ? undefined : refused.get(room);
    if (earlier !== undefined) return { fault: earlier };
    try {
      return { position: await this.publisher.publish(room, publication, options) };
    } catch (error) {
      const fault = faultOf(error, this.log);
      refused.set(room, fault);
      return { fault };
    }
  }
}
