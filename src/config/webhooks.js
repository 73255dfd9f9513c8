// webhooks.js: the endpoints of webhooks, and which events they want. webhook-endpoints.js reads
// them.

import { CACHES } from './pusher.js';
import { RoomRules, shareSpace } from './room-patterns.js';

/** Events that the backend records. */
export const EVENT_TYPES = /** @type {const} */ ([
  'room.occupied',
  'room.vacated',
  'member.joined',
  'member.left',
  'user.connected',
  'user.disconnected',
  'message.published',
]);
/**
 * Events of doors, for the endpoints of their apps only. The last has the count that members hear.
 */
export const DOOR_TYPES = /** @type {const} */ (['client.event', 'cache.missed', 'room.counted']);
/** The count of a room with more connections than `large` is sent only once in `pauseMs`. */
export const COUNTED = Object.freeze({ large: 100, pauseMs: 5000 });
/** Characters that a channel and its room share. All others are escaped. */
const PLAIN_HEAD = /^[-A-Za-z0-9_.@]*/;

/** @import { App } from './pusher.js' */
/** @import { Rule } from './room-patterns.js' */
/** @typedef {typeof EVENT_TYPES[number]|typeof DOOR_TYPES[number]} EventType */

/**
 * @typedef {object} Endpoint frozen
 * @property {string} name in metrics, logs and the console; the URL's host, unless the file has one
 * @property {string} url `http:` or `https:`, without credentials and fragment
 * @property {readonly string[]} secrets one, or two while they rotate
 * @property {readonly EventType[]} types
 * @property {readonly string[]} rooms patterns; they do not apply to `user.*`
 * @property {number} graceMs how long a transition waits for its opposite
 * @property {number} maxAgeS age at which an event that was not delivered is dropped
 * @property {number} maxPending published messages that wait for the endpoint
 * @property {number} timeoutMs of a request
 * @property {number} concurrency requests at once, from one server
 * @property {PusherEndpoint|null} pusher the webhook of an app, in Pusher's form; null: Standard
 *   Webhooks
 */

/**
 * @typedef {object} PusherEndpoint frozen. Its `rooms` may record more events than are sent
 * @property {App} app @property {string} startsWith of the channel's name
 * @property {string} endsWith of the channel's name
 * @property {number} batchMs how long events are collected; 0: each request has one event
 * @property {Readonly<Record<string, string>>} headers additional ones, in lower case
 */

/** The endpoints, and which events they want. Comparisons see only its public fields. */
export class WebhookSettings {
  /** The first rule that matches: does any endpoint want the type in the room? */
  #rooms;

  /** @type {RoomRules<boolean>} */
  #counted;

  /**
   * @param {readonly Endpoint[]} endpoints @param {boolean} publicOnly
   * @param {readonly string[]} [countedApps] ids of apps whose subscribers hear their number
   */
  constructor(endpoints, publicOnly, countedApps = []) {
    this.endpoints = endpoints;
    this.publicOnly = publicOnly;
    this.countedApps = countedApps;
    this.#counted = new RoomRules(
      countedApps.flatMap((id) => [
        { pattern: `~${id}:presence-*`, value: false },
        { pattern: `~${id}:u:*`, value: false },
        { pattern: `~${id}:*`, value: true },
      ]),
    );
    this.#rooms = new Map(
      [...EVENT_TYPES, ...DOOR_TYPES].map((type) => [
        type,
        new RoomRules(
          endpoints
            .filter(({ types }) => types.includes(type))
            .flatMap((endpoint) => rulesOf(endpoint, type)),
        ),
      ]),
    );
    Object.freeze(this);
  }

  /** Does any endpoint exist? Otherwise rooms are only counted. */
  get hasEndpoints() {
    return this.endpoints.length > 0;
  }

  /** Do members hear the number of connections in the room? @param {string} room */
  counts(room) {
    return this.#counted.ruleFor(room) === true;
  }

  /** Is it recorded? @param {EventType} type @param {string} [room] absent for `user.*` */
  covers(type, room) {
    const rules = /** @type {RoomRules<boolean>} */ (this.#rooms.get(type));
    return room === undefined ? !rules.isEmpty : rules.ruleFor(room) === true;
  }

  /**
   * Does an endpoint want the type in every room with this prefix?
   * @param {EventType} type @param {string} prefix
   * @param {string|null} [except] prefix of rooms to ignore
   */
  coversPrefix(type, prefix, except = null) {
    const { own } = /** @type {RoomRules<boolean>} */ (this.#rooms.get(type));
    for (const { pattern, value } of own) {
      const [head, tail, ...more] = pattern.split('*');
      const isWhole = tail === '' && more.length === 0 && prefix.startsWith(head);
      if (value && isWhole && shareSpace(head, prefix)) return true;
      if (!value && except !== null && head.startsWith(except)) continue;
      if (!value && (head.startsWith(prefix) || prefix.startsWith(head))) return false;
    }
    return false;
  }
}

/** @param {Endpoint} endpoint @param {EventType} type @returns {Rule<boolean>[]} */
function rulesOf({ rooms, pusher }, type) {
  const rules = rooms.map((pattern) => ({ pattern, value: true }));
  if (pusher === null) return rules;
  const { app, startsWith } = pusher;
  const prefix = app.isShared ? '' : `~${app.id}:`;
  if (type === 'cache.missed')
    return CACHES.filter((kind) => kind.startsWith(startsWith) || startsWith.startsWith(kind)).map(
      (kind) => ({
        pattern: `${prefix}${headOf(startsWith.startsWith(kind) ? startsWith : kind)}*`,
        value: true,
      }),
    );
  // Rooms of signed-in users are not channels.
  return app.isShared ? rules : [{ pattern: `${prefix}u:*`, value: false }, ...rules];
}

/** @param {string} text of a channel @returns {string} prefix of its room */
export function headOf(text) {
  return /** @type {RegExpExecArray} */ (PLAIN_HEAD.exec(text))[0];
}
