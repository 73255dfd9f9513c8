// app-fields.js: the table of the fields that an app of Pusher clients may have in its file.

const KIB = 1024;

/** The integers of an app by their fields: default, bounds. */
// biome-ignore format: one line each
export const NUMBERS = /** @type {const} */ ({
  maxConnections: { value: 0, min: -1, max: 1e9, meaning: 'Connections [over all servers](pusher.md#close-codes). 0 or -1: no limit.' },
  quotaCode: { value: 4004, min: 4004, max: 4100, meaning: 'Close code of connections above it: after 4004 clients give up, after 4100 they try again.' },
  activityTimeout: { value: 120, min: 1, max: 3600, meaning: 'Seconds of silence after which a client sends a ping.' },
  clientEventsPerSecond: { value: 10, min: -1, max: 100_000, meaning: 'Client events of one connection. 0 or -1: no limit of the app.' },
  authorizeWithinMs: { value: 0, min: 0, max: 3_600_000, meaning: 'Time in which a connection has to sign in, or to subscribe to a private or presence channel. 0: no limit.' },
  maxEventBytes: { value: 10_240, min: 1, max: 16_777_216, meaning: 'Bytes of the data of an event. At most `FANFARE_MAX_MESSAGE_BYTES`.' },
  maxChannelsPerEvent: { value: 100, min: 1, max: 1000, meaning: 'Channels of one event.' },
  maxBatch: { value: 10, min: 1, max: 1000, meaning: 'Events of one `batch_events`.' },
  maxChannelLength: { value: 200, min: 1, max: 200, meaning: "Characters of a channel's name." },
  maxEventNameLength: { value: 200, min: 1, max: 200, meaning: "Characters of an event's name." },
  maxPresenceMembers: { value: 100, min: 1, max: 10_000, meaning: 'Members of a presence channel. At most `FANFARE_PRESENCE_MAX_MEMBERS`. Members that come to several workers at once may exceed it by a few.' },
  maxMemberBytes: { value: 1024, min: 2, max: 65_536, meaning: "Bytes of a member's `user_info`. Those of a channel have at most 16 MB together." },
  cacheTtl: { value: 1800, min: 1, max: 604_800, meaning: 'Seconds for which a cache channel keeps its last event. A reload cannot change it.' },
});

/** The switches of an app by their fields: default. */
// biome-ignore format: one line each
export const SWITCHES = /** @type {const} */ ({
  enabled: { value: true, meaning: 'If false, clients and requests of the app are refused.' },
  shared: { value: false, meaning: 'Its channels are native rooms of the same name, for one app at most. A reload cannot change it.' },
  tlsOnly: { value: false, meaning: 'Refuse connections without TLS.' },
  clientEvents: { value: false, meaning: 'Whether clients may send events (`client-…`, whispers of Echo).' },
  subscriptionCount: { value: false, meaning: 'Whether subscribers, and requests to the HTTP API, get the number of subscribers of a channel.' },
  extraChannelInfo: { value: false, meaning: 'Whether answers of the HTTP API have `subscription_count` and `occupied` without being asked.' },
});

/** Defaults of a preset, by the field's name. @type {Readonly<Record<string, Record<string, unknown>>>} */
export const PRESETS = Object.freeze({
  strict: {},
  soketi: {
    maxEventBytes: 100 * KIB,
    maxMemberBytes: 2 * KIB,
    quotaCode: 4100,
    extraChannelInfo: true,
    clientEvents: true,
    clientEventData: 'asSent',
  },
});

/** soketi's names of fields: ours, and how many of ours one of theirs is. */
export const ALIASES = /** @type {Readonly<Record<string, {field: string, factor?: number}>>} */ (
  Object.freeze({
    enableClientMessages: { field: 'clientEvents' },
    maxClientEventsPerSecond: { field: 'clientEventsPerSecond' },
    maxPresenceMembersPerChannel: { field: 'maxPresenceMembers' },
    maxPresenceMemberSizeInKb: { field: 'maxMemberBytes', factor: KIB },
    maxChannelNameLength: { field: 'maxChannelLength' },
    maxEventChannelsAtOnce: { field: 'maxChannelsPerEvent' },
    maxEventPayloadInKb: { field: 'maxEventBytes', factor: KIB },
    maxEventBatchSize: { field: 'maxBatch' },
  })
);
/** soketi's limits for each app that a rate for all apps replaces here. */
export const REPLACED = Object.freeze(['maxBackendEventsPerSecond', 'maxReadRequestsPerSecond']);

/** The fields of an app that are neither integers nor switches. */
// biome-ignore format: one line each
const OTHERS = /** @type {const} */ ([
  { field: 'id', allowed: 'a number, or 2 to 64 of A-Z a-z 0-9 -', meaning: 'Names the app in the paths of the HTTP API. Digits work with all SDKs: that for Python, and `forURL` of others, accept nothing else.' },
  { field: 'key', allowed: '1 to 64 of A-Z a-z 0-9 _ -', meaning: 'Names the app for clients.' },
  { field: 'secret', allowed: '1 to 256 characters', meaning: 'Signs channels, users, requests and webhooks.' },
  { field: 'secrets', allowed: '1 to 4', meaning: 'Several secrets, instead of `secret`: the first signs, all are accepted.' },
  { field: 'preset', value: 'strict', allowed: 'strict, soketi', meaning: 'Whose defaults apply: those of Pusher (`strict`) or of soketi.' },
  { field: 'origins', value: '[]', allowed: 'up to 100', meaning: 'Origins whose pages may use the app (`https://*.shop.example` for one label), of those that `ALLOWED_ORIGINS` admits. Empty: all of these.' },
  { field: 'clientEventData', value: 'string', allowed: 'string, asSent', meaning: 'Whether `data` of a client event is relayed as a string, as Pusher does, or as the client sent it.' },
  { field: 'history', value: '[]', allowed: 'up to 20', meaning: 'Rooms of the app with [history](history-and-recovery.md), each as `chat.*=100/300s`. A reload cannot change it.' },
  { field: 'presence', value: '[]', allowed: 'up to 20', meaning: 'Rooms of the app with presence, each as `chat.*`; `presence-…` has it anyway. A reload cannot change it.' },
  { field: 'publicRooms', allowed: 'up to 100', meaning: 'Rooms of a shared app whose channels need no signature, each as `news.*`; `private-…` and `presence-…` need one anyway. Absent: all rooms, which is a fault if tokens are required.' },
  { field: 'webhooks', value: '[]', allowed: 'up to 10', meaning: 'Endpoints of [webhooks](webhooks.md#in-pushers-form).' },
]);

/**
 * @typedef {object} AppField for the documentation
 * @property {string} field @property {string} value the default; '' if it has none
 * @property {string} soketi the default of the preset; '' if it is the same
 * @property {string} alias soketi's own name; '' if it is the same
 * @property {string} allowed @property {string} meaning
 */

/** @type {readonly AppField[]} */
export const APP_FIELDS = Object.freeze(
  [...OTHERS, ...rowsOf(SWITCHES), ...rowsOf(NUMBERS)].map((row) => {
    const { field, meaning } = row;
    const aliased = Object.entries(ALIASES).find(([, other]) => other.field === field);
    const allowed =
      'allowed' in row
        ? row.allowed
        : 'min' in row
          ? field === 'quotaCode'
            ? '4004, 4100'
            : `${row.min} to ${row.max}`
          : 'true, false';
    return Object.freeze({
      field,
      value: 'value' in row ? String(row.value) : '',
      soketi: String(PRESETS.soketi[field] ?? ''),
      alias: aliased?.[0] ?? '',
      allowed,
      meaning,
    });
  }),
);

/**
 * @template T @param {Readonly<Record<string, T>>} table
 * @returns {(T & {field: string})[]}
 */
function rowsOf(table) {
  return Object.entries(table).map(([field, row]) => ({ field, ...row }));
}
