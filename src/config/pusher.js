// pusher.js: the apps of Pusher clients, as the server uses them. pusher-apps.js reads them.

import { NUMBERS } from './app-fields.js';

/** The events that an app's webhooks may ask for, and their types in webhooks.js. */
export const APP_EVENT_TYPES = Object.freeze({
  channel_occupied: 'room.occupied',
  channel_vacated: 'room.vacated',
  member_added: 'member.joined',
  member_removed: 'member.left',
  client_event: 'client.event',
  cache_miss: 'cache.missed',
  subscription_count: 'room.counted',
});
/** Channels that keep their last event. */
export const CACHES = ['cache-', 'private-cache-', 'private-encrypted-cache-', 'presence-cache-'];

/**
 * Pusher has digits, soketi also names such as `app-id`. A room of the app begins with `~` and the
 * id, and one of Centrifugo's door with `~c:`, so a name has two characters at least.
 */
const ID = /^(?:\d|[A-Za-z0-9][A-Za-z0-9-]{1,63})$/;
export const ID_RULE = 'a number, or a name of 2 to 64 letters, digits and dashes, as app-id is';

/** @param {string} id */
export function isAppId(id) {
  return ID.test(id);
}
/**
 * One app. Frozen.
 * @typedef {object} App
 * @property {string} id digits, or a name of two characters at least
 * @property {string} key @property {readonly string[]} secrets the first signs, all verify
 * @property {boolean} isEnabled @property {boolean} isShared its channels are native rooms
 * @property {readonly string[]} origins as browsers send them; empty: all
 * @property {number} maxConnections over all servers; 0: no limit
 * @property {number} quotaCode close code of connections above it: 4004 or 4100
 * @property {number} activityTimeoutS after which a silent client pings
 * @property {boolean} tlsOnly @property {boolean} clientEvents
 * @property {number} clientEventsPerSecond of one connection; 0: no limit
 * @property {boolean} subscriptionCount are subscribers told how many there are?
 * @property {number} authorizeWithinMs time in which a connection has to sign in or to subscribe to a
 *   private or presence channel; 0: no limit
 * @property {number} maxEventBytes of an event's data
 * @property {number} maxChannelsPerEvent @property {number} maxBatch events of one request
 * @property {number} maxChannelLength @property {number} maxEventNameLength
 * @property {number} maxPresenceMembers of a channel
 * @property {number} maxMemberBytes of the user_info of a member
 * @property {number} cacheTtlS how long a cache channel keeps its last event
 * @property {boolean} extraChannelInfo the HTTP API tells subscription_count and more for all channels
 * @property {'string'|'asSent'} clientEventData the form in which `data` of a client event is relayed
 * @property {readonly Rule<HistoryRule>[]} history patterns are about names in the app
 * @property {readonly Rule<true>[]} presence the same
 * @property {readonly string[]|null} publicRooms of a shared app: patterns of the rooms whose channels
 *   need no signature; null: all
 * @property {readonly AppWebhook[]} webhooks
 */

/**
 * @typedef {object} AppWebhook frozen
 * @property {string} url `http:` or `https:`, without credentials and fragment
 * @property {readonly (keyof typeof APP_EVENT_TYPES)[]} events
 * @property {string} startsWith of the channel's name
 * @property {string} endsWith of the channel's name
 * @property {number} batchMs for which events are collected; 0: one event in each request
 * @property {Readonly<Record<string, string>>} headers
 */

/**
 * @typedef {object} PusherSettings frozen
 * @property {readonly App[]} apps @property {ReadonlyMap<string, App>} byKey
 * @property {ReadonlyMap<string, App>} byId
 * @property {string} pathPrefix before `/app/…` and `/apps/…`, which work without it too; '' or `/…`
 */

/** @import { HistoryRule, Rule } from './room-patterns.js' */

/** @param {readonly App[]} apps @param {string} pathPrefix @returns {PusherSettings} */
export function pusherSettings(apps, pathPrefix) {
  return Object.freeze({
    apps: Object.freeze(apps),
    byKey: new Map(apps.map((app) => [app.key, app])),
    byId: new Map(apps.map((app) => [app.id, app])),
    pathPrefix,
  });
}

/**
 * The rules of apps for their own rooms, and those that give cache channels their last event, and
 * presence channels their members. Those of apps with the usual `cacheTtl` do not name the app, so
 * that a reload can add apps: the primary reads rules once.
 * @param {PusherSettings|null} pusher
 * @returns {{history: Rule<HistoryRule>[], presence: Rule<true>[]}}
 */
export function roomRulesOf(pusher) {
  /** @type {Rule<HistoryRule>[]} */
  const history = [];
  /** @type {Rule<true>[]} */
  const presence = [];
  if (pusher === null) return { history, presence };
  const addCache = (/** @type {string} */ head, /** @type {number} */ ttlS) => {
    for (const kind of CACHES)
      history.push({
        pattern: `${head}${kind}*`,
        value: Object.freeze({ size: 1, ttlMs: ttlS * 1000 }),
      });
  };
  for (const { id, isShared, ...app } of pusher.apps) {
    // A colon in a name is a `~` in its room (protocol/app-names.js).
    const own = (/** @type {string} */ pattern) =>
      isShared ? pattern : `~${id}:${pattern.replaceAll(':', '~')}`;
    for (const { pattern, value } of app.history) history.push({ pattern: own(pattern), value });
    for (const { pattern, value } of app.presence) presence.push({ pattern: own(pattern), value });
  }
  const usual = NUMBERS.cacheTtl.value;
  for (const { id, isShared, cacheTtlS } of pusher.apps)
    if (!isShared && cacheTtlS !== usual) addCache(`~${id}:`, cacheTtlS);
  addCache('~*:', usual);
  // Users who have signed in are in a room of their own: who is in it is online.
  for (const pattern of ['~*:presence-*', '~*:u:*'])
    presence.push({ pattern, value: /** @type {const} */ (true) });
  const shared = pusher.apps.find(({ isShared }) => isShared);
  if (shared !== undefined) {
    addCache('', shared.cacheTtlS);
    presence.push({ pattern: 'presence-*', value: /** @type {const} */ (true) });
  }
  return { history, presence };
}
