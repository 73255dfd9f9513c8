// form.js: the form of an endpoint's requests: Standard Webhooks, or Pusher's webhooks.

import { fits } from '../config/room-patterns.js';
import { messageOf } from './message.js';
import { PusherForm } from './pusher-form.js';

/** @import { Endpoint } from '../config/webhooks.js' */
/** @import { Form } from './message.js' */

/** @implements {Form} */
class StandardForm {
  /** @param {Endpoint} endpoint */
  constructor({ types, rooms }) {
    /** @type {ReadonlySet<string>} */
    this.types = new Set(types);
    this.patterns = rooms.map((pattern) => pattern.split('*'));
    this.scheduleMs = [1000, 5000, 30_000, 120_000, 600_000, 1_800_000, 3_600_000];
    this.entersAtOnce = false;
    this.tellsGaps = true;
    this.batchMs = 0;
  }

  /** @type {Form['wants']} */
  wants({ type, room }) {
    if (!this.types.has(type)) return false;
    // Rooms of apps (`~`) have their own webhooks.
    return room === undefined || (room[0] !== '~' && this.patterns.some((one) => fits(one, room)));
  }

  /** @type {Form['messageOf']} */
  messageOf([event]) {
    return messageOf(event);
  }
}

/** @param {Endpoint} endpoint @returns {Form} */
export function formOf(endpoint) {
  return endpoint.pusher === null
    ? new StandardForm(endpoint)
    : new PusherForm(endpoint, endpoint.pusher);
}
