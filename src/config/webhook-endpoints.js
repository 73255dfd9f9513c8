// webhook-endpoints.js: reads the endpoints of FANFARE_WEBHOOKS, a JSON file.
//   [{ "url": "https://example.com/fanfare", "secret": "whsec_…", "rooms": ["chat.*"] }]
//
// The `webhooks` of Pusher apps are endpoints, too (pusher-apps.js). No request can change
// endpoints.

import * as json from './json-list.js';
import { APP_EVENT_TYPES } from './pusher.js';
import { isRoomPattern, NOT_A_PATTERN } from './room-patterns.js';
import { areSigningSecrets, SIGNING_SECRET_RULE } from './signing-secrets.js';
import { EVENT_TYPES, headOf, WebhookSettings } from './webhooks.js';

/** `user.*` and `message.published` have to be asked for: they are many. */
const DEFAULT_TYPES = Object.freeze(EVENT_TYPES.slice(0, 4));
const MAX_ENDPOINTS = 20;
const MAX_PATTERNS = 100;
const NAME = /^[A-Za-z0-9_.:-]{1,64}$/;
const roomPattern = json.matching(isRoomPattern, NOT_A_PATTERN, String);
/** An app's endpoint has these instead: receivers refuse events older than five minutes. */
const APP_NUMBERS = Object.freeze({
  graceMs: 3000,
  maxAgeS: 290,
  maxPending: 10_000,
  timeoutMs: 15_000,
  concurrency: 4,
});

/** @import { App, AppWebhook, PusherSettings } from './pusher.js' */
/** @import { Endpoint } from './webhooks.js' */

/** @param {Record<string, unknown>} values @returns {json.Schema<Endpoint>} */
function endpointSchema(values) {
  const schema = json.record({
    name: json.optional(json.text(NAME, 'not 1 to 64 characters of A-Z a-z 0-9 _ . : -'), null),
    url: json.endpointUrl(values),
    secret: json.matching(areSigningSecrets, SIGNING_SECRET_RULE),
    types: json.optional(json.someOf(EVENT_TYPES), DEFAULT_TYPES),
    rooms: json.optional(json.list(roomPattern, 1, MAX_PATTERNS), null),
    graceMs: json.optional(json.integer(0, 60_000), 3000),
    maxAgeS: json.optional(json.integer(60, 604_800), 86_400),
    maxPending: json.optional(json.integer(1, 100_000), 10_000),
    timeoutMs: json.optional(json.integer(100, 30_000), 15_000),
    concurrency: json.optional(json.integer(1, 64), 4),
  });
  return (value, refuse) => {
    const { name, url, secret, rooms, ...fields } = schema(value, refuse) ?? {};
    if (rooms === null && fields.types.includes('message.published'))
      refuse('.types', 'message.published needs "rooms", the patterns of the rooms that it is for');
    return Object.freeze({
      name: name ?? (url && new URL(url).host),
      url,
      secrets: Object.freeze([secret].flat()),
      rooms: rooms ?? Object.freeze(['*']),
      ...fields,
      pusher: null,
    });
  };
}

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {PusherSettings|null} pusher whose apps may have webhooks
 * @param {import('./texts.js').ReadText} read
 * @returns {{webhooks: WebhookSettings|null, faults: string[]}} null: no endpoints and no rooms to
 *   count
 */
export function readWebhookSettings(values, pusher, read) {
  const publicOnly = values.webhooksPublicOnly === 'on';
  const { entries, faults } = readFile(values, read);
  const endpoints = [...entries, ...appEndpoints(pusher, new Set(entries.map(({ name }) => name)))];
  const hooks = /** @type {import('./hooks.js').HookSettings|null} */ (values.hooks);
  const asksBackends = hooks === null ? values.hooksFile !== '' : hooks.backends.length > 0;
  if (publicOnly && endpoints.length === 0 && !asksBackends && faults.length === 0)
    faults.push(
      'FANFARE_WEBHOOKS_PUBLIC_ONLY: has no effect without FANFARE_WEBHOOKS or hooks over HTTP',
    );
  // The channels of a shared app are native rooms, whose native members would not understand it.
  const counted = (pusher?.apps ?? []).filter((app) => app.subscriptionCount && !app.isShared);
  if (faults.length > 0 || endpoints.length + counted.length === 0)
    return { webhooks: null, faults };
  const countedApps = Object.freeze(counted.map(({ id }) => id));
  const webhooks = new WebhookSettings(Object.freeze(endpoints), publicOnly, countedApps);
  return { webhooks, faults };
}

/**
 * @param {Record<string, unknown>} values @param {import('./texts.js').ReadText} read
 * @returns {{entries: readonly Endpoint[], faults: string[]}}
 */
function readFile(values, read) {
  const path = String(values.webhooksFile ?? '');
  if (path === '') return { entries: [], faults: [] };
  const where = `FANFARE_WEBHOOKS: ${path}:`;
  const list = json.readJsonList(path, 'endpoints', MAX_ENDPOINTS, read);
  if (typeof list === 'string') return { entries: [], faults: [`${where} ${list}`] };
  const placeOf = (/** @type {number} */ index) => `${where} endpoints[${index}]`;
  const { entries, faults } = json.readEntries(endpointSchema(values), list, placeOf);
  for (const fault of json.twins(entries, 'name', placeOf))
    faults.push(`${fault}: give each a "name"`);
  return { entries, faults };
}

/**
 * @param {PusherSettings|null} pusher @param {Set<string>} names that are taken
 * @returns {Endpoint[]}
 */
function appEndpoints(pusher, names) {
  return (pusher?.apps ?? []).flatMap((app) =>
    app.webhooks.map((webhook) => {
      const base = `pusher:${app.id}:${new URL(webhook.url).host}`;
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
