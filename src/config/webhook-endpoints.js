// webhook-endpoints.js: reads the endpoints of FANFARE_WEBHOOKS, a JSON file.
//   [{ "url": "https://example.com/fanfare", "secret": "whsec_…", "rooms": ["chat.*"] }]
//
// The `webhooks` of Pusher apps are endpoints, too (pusher-apps.js). No request can change
// endpoints. No fault quotes a secret, or a URL, whose path or query may be one.

import { fieldsOf, readJsonList, readList, readUrl } from './json-list.js';
import { APP_EVENT_TYPES } from './pusher.js';
import { isRoomPattern } from './room-patterns.js';
import { EVENT_TYPES, headOf, WebhookSettings } from './webhooks.js';

/** `user.*` and `message.published` have to be asked for: they are many. */
const DEFAULT_TYPES = EVENT_TYPES.slice(0, 4);
const MAX_ENDPOINTS = 20;
const MAX_PATTERNS = 100;
const NAME = /^[A-Za-z0-9_.:-]{1,64}$/;
/** Standard Webhooks 1.0: 24 to 64 random bytes, in Base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;
const SECRET_BYTES = Object.freeze({ min: 24, max: 64 });

/** The fields that are integers, with their defaults and bounds. */
const NUMBERS = Object.freeze({
  graceMs: { value: 3000, min: 0, max: 60_000 },
  maxAgeS: { value: 86_400, min: 60, max: 604_800 },
  maxPending: { value: 10_000, min: 1, max: 100_000 },
  timeoutMs: { value: 15_000, min: 100, max: 30_000 },
  concurrency: { value: 4, min: 1, max: 64 },
});
const FIELDS = Object.freeze([
  'name',
  'url',
  'secret',
  'types',
  'rooms',
  .../** @type {(keyof typeof NUMBERS)[]} */ (Object.keys(NUMBERS)),
]);

/** For an app's endpoint instead: receivers refuse events older than five minutes. */
const APP_NUMBERS = Object.freeze({
  graceMs: 3000,
  maxAgeS: 290,
  maxPending: 10_000,
  timeoutMs: 15_000,
  concurrency: 4,
});
/** Header fields that every request has. */
const OWN_HEADERS = new RegExp(
  `^(?:(?:content|x-pusher|webhook)-.*|${[
    ...['user-agent', 'host', 'connection', 'keep-alive', 'transfer-encoding', 'te', 'trailer'],
    ...['upgrade', 'expect'],
  ].join('|')})$`,
);

/** @import { Refuse } from './json-list.js' */
/** @import { App, AppWebhook, PusherSettings } from './pusher.js' */
/** @import { RedisSettings } from './redis.js' */
/** @import { Endpoint, EventType } from './webhooks.js' */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {PusherSettings|null} pusher whose apps may have webhooks
 * @param {import('./texts.js').ReadText} read
 * @returns {{webhooks: WebhookSettings|null, faults: string[]}} null: no endpoints and no rooms to
 *   count
 */
export function readWebhookSettings(values, pusher, read) {
  const path = String(values.webhooksFile ?? '');
  const publicOnly = values.webhooksPublicOnly === 'on';
  const faults = [];
  const ownPorts = portsOf(values);
  const file = path === '' ? [] : readJsonList(path, 'endpoints', MAX_ENDPOINTS, read);
  if (typeof file === 'string') faults.push(`FANFARE_WEBHOOKS: ${path}: ${file}`);
  const endpoints = (typeof file === 'string' ? [] : file).map((entry, index) =>
    readEndpoint(entry, ownPorts, (fault) =>
      faults.push(`FANFARE_WEBHOOKS, endpoint ${index + 1}: ${fault}`),
    ),
  );
  const names = new Set();
  for (const { name } of endpoints) {
    if (names.has(name) && name !== '')
      faults.push(`FANFARE_WEBHOOKS: two endpoints are called ${name}: give each a "name"`);
    names.add(name);
  }
  endpoints.push(...readAppEndpoints(pusher, names, ownPorts, faults));
  if (publicOnly && endpoints.length === 0 && faults.length === 0)
    faults.push('FANFARE_WEBHOOKS_PUBLIC_ONLY: has no effect without FANFARE_WEBHOOKS');
  // The channels of a shared app are native rooms, whose native members would not understand it.
  const counted = (pusher?.apps ?? []).filter((app) => app.subscriptionCount && !app.isShared);
  if (faults.length > 0 || endpoints.length + counted.length === 0)
    return { webhooks: null, faults };
  const countedApps = Object.freeze(counted.map(({ id }) => id));
  const webhooks = new WebhookSettings(Object.freeze(endpoints), publicOnly, countedApps);
  return { webhooks, faults };
}

/**
 * @param {PusherSettings|null} pusher @param {Set<string>} names that are taken
 * @param {ReadonlyMap<string, string>} ownPorts @param {string[]} faults @returns {Endpoint[]}
 */
function readAppEndpoints(pusher, names, ownPorts, faults) {
  return (pusher?.apps ?? []).flatMap((app) =>
    app.webhooks.map((webhook, index) => {
      const where = `FANFARE_PUSHER_APPS, app ${app.id}, webhook ${index + 1}`;
      const { host, port } = new URL(webhook.url);
      if (ownPorts.has(port))
        faults.push(`${where}: "url": its port is that of ${ownPorts.get(port)}`);
      const own = Object.keys(webhook.headers).find((name) => OWN_HEADERS.test(name.toLowerCase()));
      if (own !== undefined) faults.push(`${where}: "headers": ${own} is Fanfare's own`);
      const base = `pusher:${app.id}:${host}`;
      let name = base;
      for (let n = 2; names.has(name); n++) name = `${base}:${n}`;
      names.add(name);
      return appEndpoint(name, app, webhook);
    }),
  );
}

/** @param {string} name @param {App} app @param {AppWebhook} webhook @returns {Endpoint} */
function appEndpoint(name, app, { url, events, startsWith, endsWith, batchMs, headers }) {
  const prefix = app.isShared ? '' : `~${app.id}:`;
  return Object.freeze({
    name,
    url,
    // Pusher's secrets are text, those of Standard Webhooks bytes in Base64.
    secrets: Object.freeze(
      app.secrets.map((secret) => `whsec_${Buffer.from(secret).toString('base64')}`),
    ),
    types: Object.freeze(events.map((event) => APP_EVENT_TYPES[event])),
    rooms: Object.freeze([`${prefix}${headOf(startsWith)}*`]),
    ...APP_NUMBERS,
    pusher: Object.freeze({
      app,
      startsWith,
      endsWith,
      batchMs,
      headers: Object.freeze(
        Object.fromEntries(
          Object.entries(headers).map(([field, value]) => [field.toLowerCase(), value]),
        ),
      ),
    }),
  });
}

/**
 * Ports that no endpoint may have, on any host.
 * @param {Record<string, unknown>} values @returns {Map<string, string>} what each of them is
 */
function portsOf({ redis, metricsPort }) {
  const { addresses = [] } = /** @type {Partial<RedisSettings>} */ (redis ?? {});
  return new Map([
    ...addresses.map(({ port }) => /** @type {[string, string]} */ ([String(port), 'Redis'])),
    [String(metricsPort), 'METRICS_PORT'],
  ]);
}

/**
 * @param {unknown} entry @param {ReadonlyMap<string, string>} ownPorts @param {Refuse} refuse
 * @returns {Endpoint} with defaults where the entry is at fault
 */
function readEndpoint(entry, ownPorts, refuse) {
  const given = fieldsOf(entry, FIELDS, refuse);
  const url = readUrl(given.url, refuse);
  if (url !== null && ownPorts.has(url.port))
    refuse(`"url": its port is that of ${ownPorts.get(url.port)}`);
  const types = readTypes(given.types, refuse);
  const rooms = readRooms(given.rooms, refuse);
  if (types.includes('message.published') && given.rooms === undefined)
    refuse('"types": message.published needs "rooms", the patterns of the rooms that it is for');
  const name = given.name ?? url?.host ?? '';
  if (given.name !== undefined && (typeof name !== 'string' || !NAME.test(name)))
    refuse('"name": not 1 to 64 characters of A-Z a-z 0-9 _ . : -');
  return Object.freeze({
    name: String(name),
    url: url?.href ?? '',
    secrets: readSecrets(given.secret, refuse),
    types,
    rooms,
    ...readNumbers(given, refuse),
    pusher: null,
  });
}

/** @param {unknown} value @param {Refuse} refuse @returns {readonly string[]} */
function readSecrets(value, refuse) {
  const secrets = Array.isArray(value) ? value : [value];
  const { min, max } = SECRET_BYTES;
  const areValid = secrets.every((secret) => {
    const text = typeof secret === 'string' ? SECRET.exec(secret)?.[1] : undefined;
    const bytes = text === undefined ? 0 : Buffer.from(text, 'base64').length;
    return bytes >= min && bytes <= max;
  });
  if (!areValid || secrets.length < 1 || secrets.length > 2)
    refuse(
      `"secret": not "whsec_" and ${min} to ${max} random bytes in Base64, or an array of two while they rotate`,
    );
  return Object.freeze(secrets);
}

/** @param {unknown} value @param {Refuse} refuse @returns {readonly EventType[]} */
function readTypes(value = DEFAULT_TYPES, refuse) {
  const rule = `"types": not an array of ${EVENT_TYPES.join(', ')}`;
  const types = readList(value, rule, [1, Number.POSITIVE_INFINITY], isEventType, refuse);
  // In the table's order: the same types in another order are no change.
  return Object.freeze(EVENT_TYPES.filter((type) => types.includes(type)));
}

/** @param {unknown} type @returns {type is EventType} */
function isEventType(type) {
  return /** @type {readonly unknown[]} */ (EVENT_TYPES).includes(type);
}

/** @param {unknown} value @param {Refuse} refuse @returns {readonly string[]} */
function readRooms(value = ['*'], refuse) {
  const rule = `"rooms": not an array of 1 to ${MAX_PATTERNS} patterns of room names, as chat.* is`;
  return Object.freeze(readList(value, rule, [1, MAX_PATTERNS], isRoomPattern, refuse));
}

/**
 * @param {Record<string, unknown>} given @param {Refuse} refuse
 * @returns {Record<keyof typeof NUMBERS, number>}
 */
function readNumbers(given, refuse) {
  const names = /** @type {(keyof typeof NUMBERS)[]} */ (Object.keys(NUMBERS));
  const entries = names.map((name) => {
    const { value, min, max } = NUMBERS[name];
    const number = given[name] ?? value;
    if (Number.isInteger(number) && Number(number) >= min && Number(number) <= max)
      return [name, Number(number)];
    refuse(`${JSON.stringify(name)}: not an integer from ${min} to ${max}`);
    return [name, value];
  });
  return Object.fromEntries(entries);
}
