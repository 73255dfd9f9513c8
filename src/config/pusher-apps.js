// pusher-apps.js: reads the apps of Pusher clients: FANFARE_PUSHER_APPS, a JSON file, or one app in
// three variables.
//   [{ "id": "123", "key": "app-key", "secret": "…", "clientEvents": true }]
//
// An app that comes from soketi keeps its field names.

import { ALIASES, NUMBERS, PRESETS, REPLACED, SWITCHES } from './app-fields.js';
import * as json from './json-list.js';
import { AN_ORIGIN, normalOrigin } from './origins.js';
import { APP_EVENT_TYPES, ID_RULE, isAppId, pusherSettings } from './pusher.js';
import { historyRule, isRoomPattern, NOT_A_PATTERN, presenceRule } from './room-patterns.js';

const APP_EVENTS = /** @type {(keyof typeof APP_EVENT_TYPES)[]} */ (Object.keys(APP_EVENT_TYPES));

/** Each has a label in metrics. */
const MAX_APPS = 100;
const MAX_SECRETS = 4;
const MAX_ORIGINS = 100;
const MAX_WEBHOOKS = 10;
/** Patterns of rooms with history; and of those with presence. */
const MAX_PATTERNS = 20;
const MAX_PUBLIC_ROOMS = 100;
const MAX_HEADERS = 20;
const KEY = /^[A-Za-z0-9_-]{1,64}$/;
const SECRET = /^[\x21-\x7e]{1,256}$/;
/** Below it, a warning: somebody who has seen one signature can try out secrets. */
const GOOD_SECRET_LENGTH = 16;
/** A path without a slash at its end. */
const PATH = /^(?:\/[A-Za-z0-9._~-]{1,64}){1,8}$/;
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/;
const HEADER_VALUE = /^[\x20-\x7e]{0,1024}$/;
/** Header fields that every request has. */
const OWN_HEADERS = new RegExp(
  `^(?:(?:content|x-pusher|webhook)-.*|${[
    ...['user-agent', 'host', 'connection', 'keep-alive', 'transfer-encoding', 'te', 'trailer'],
    ...['upgrade', 'expect'],
  ].join('|')})$`,
  'i',
);
/** `enableUserAuthentication` of soketi closes connections that have not signed in by then. */
const SOKETI_AUTHORIZE_WITHIN_MS = 30_000;

/** @import { App, AppWebhook, PusherSettings } from './pusher.js' */
/** @import { PlaceOf, Refuse } from './json-list.js' */

const switches = mapped(SWITCHES, ({ value }) => {
  const isSwitch = (/** @type {unknown} */ given) => typeof given === 'boolean';
  return json.optional(json.matching(isSwitch, 'neither true nor false'), value);
});
const numbers = mapped(NUMBERS, ({ value, min, max }, field) => {
  const schema =
    field === 'quotaCode'
      ? json.matching(
          (code) => code === 4004 || code === 4100,
          'neither 4004 (clients give up) nor 4100 (they try again)',
        )
      : json.integer(min, max);
  return json.optional((given, refuse) => {
    // soketi writes some numbers as text, as in environment variables, and -1 for «no limit».
    const isText = typeof given === 'string' && /^-?\d{1,10}$/.test(given);
    return Math.max(0, schema(isText ? Number(given) : given, refuse));
  }, value);
});
const secret = json.text(SECRET, 'not 1 to 256 printable characters without a space');
const affix = json.optional(json.text(/^.{0,200}$/s, 'not at most 200 characters'), '');
const roomPattern = json.matching(isRoomPattern, NOT_A_PATTERN, String);
const isOrigin = (/** @type {unknown} */ one) =>
  typeof one === 'string' && normalOrigin(one) !== '';
const origin = json.matching(isOrigin, `not an origin: ${AN_ORIGIN}`, normalOrigin);
// soketi's file may have a number.
const isId = (/** @type {unknown} */ id) => typeof id !== 'object' && isAppId(String(id));

/** @param {Record<string, unknown>} values @returns {json.Schema<AppWebhook>} */
function webhookSchema(values) {
  const schema = json.record({
    url: json.endpointUrl(values),
    events: json.someOf(APP_EVENTS),
    startsWith: affix,
    endsWith: affix,
    batchMs: json.optional(json.integer(0, 10_000), 0),
    headers: json.optional(json.parsed(headersOf), Object.freeze({})),
  });
  return (value, refuse) =>
    Object.freeze(schema(json.isRecord(value) ? withoutWebhookAliases(value) : value, refuse));
}

/**
 * @param {Record<string, unknown>} values
 * @returns {(entry: unknown, refuse: Refuse, warn: Refuse) => App}
 */
function appSchema(values) {
  const schema = json.record({
    id: json.matching(isId, `not ${ID_RULE}`, String),
    key: json.text(KEY, 'not 1 to 64 characters of A-Z a-z 0-9 _ -'),
    secret: json.optional(secret, undefined),
    secrets: json.optional(json.list(secret, 1, MAX_SECRETS), undefined),
    preset: json.optional(json.oneOf(Object.keys(PRESETS)), 'strict'),
    origins: json.optional(json.list(origin, 0, MAX_ORIGINS), []),
    clientEventData: json.optional(json.oneOf(['string', 'asSent']), 'string'),
    history: json.optional(json.list(roomRule(historyRule), 0, MAX_PATTERNS), []),
    presence: json.optional(json.list(roomRule(presenceRule), 0, MAX_PATTERNS), []),
    publicRooms: json.optional(json.list(roomPattern, 0, MAX_PUBLIC_ROOMS), null),
    webhooks: json.optional(json.list(webhookSchema(values), 0, MAX_WEBHOOKS), []),
    ...switches,
    ...numbers,
  });
  return (entry, refuse, warn) => {
    if (!json.isRecord(entry)) return refuse('', 'not an object');
    const given = withoutAliases(entry, refuse, warn);
    const fields = schema(given, refuse);
    const { secrets = Object.freeze([fields.secret]) } = fields;
    if ((given.secret === undefined) === (given.secrets === undefined))
      refuse('', 'needs either "secret" or "secrets"');
    if (new Set(secrets).size < secrets.length) refuse('.secrets', 'has one twice');
    if (secrets.some((one) => one !== undefined && one.length < GOOD_SECRET_LENGTH))
      warn('', `a secret has fewer than ${GOOD_SECRET_LENGTH} characters, and can be guessed`);
    if (given.publicRooms !== undefined && given.shared !== true)
      refuse('.publicRooms', 'only the channels of a shared app are native rooms');
    return appOf({ ...fields, secrets });
  };
}

/** @param {Record<string, any>} fields as the schema leaves them @returns {App} */
function appOf({ preset: _, secret: __, enabled, shared, activityTimeout, cacheTtl, ...others }) {
  const seconds = { activityTimeoutS: activityTimeout, cacheTtlS: cacheTtl };
  const app = { ...others, ...seconds, isEnabled: enabled, isShared: shared };
  return /** @type {App} */ (Object.freeze(app));
}

/**
 * A rule of rooms, as texts in the settings have it.
 * @template T @param {(entry: string) => import('./room-patterns.js').Rule<T>|string} read
 */
function roomRule(read) {
  return json.parsed((entry) => {
    const rule = typeof entry === 'string' ? read(entry) : 'not a text';
    return typeof rule === 'string' || isRoomPattern(rule.pattern) ? rule : NOT_A_PATTERN;
  });
}

/** @param {unknown} value @returns {Record<string, string>|string} or a fault */
function headersOf(value) {
  const isHeader = (/** @type {[string, unknown]} */ [name, text]) =>
    HEADER_NAME.test(name) && typeof text === 'string' && HEADER_VALUE.test(text);
  const entries = json.isRecord(value) ? Object.entries(value) : null;
  if (entries === null || entries.length > MAX_HEADERS || !entries.every(isHeader))
    return `not an object with at most ${MAX_HEADERS} names and values of header fields`;
  if (entries.some(([name]) => OWN_HEADERS.test(name)))
    return "has a header field that is Fanfare's own";
  return /** @type {Record<string, string>} */ (Object.fromEntries(entries));
}

/**
 * @template T, S @param {Readonly<Record<string, T>>} table
 * @param {(row: T, field: string) => S} schemaOf
 */
function mapped(table, schemaOf) {
  return Object.fromEntries(
    Object.entries(table).map(([field, row]) => [field, schemaOf(row, field)]),
  );
}

/**
 * Gives the fields of a soketi webhook our names.
 * @param {Record<string, unknown>} webhook @returns {Record<string, unknown>}
 */
function withoutWebhookAliases({ event_types: events, filter, ...fields }) {
  const { channel_name_starts_with: startsWith, channel_name_ends_with: endsWith } = json.isRecord(
    filter,
  )
    ? filter
    : {};
  return { events, startsWith, endsWith, ...fields };
}

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {import('./texts.js').ReadText} readFile
 * @returns {{pusher: PusherSettings|null, faults: string[], warnings: string[]}} null if there are no
 *   apps
 */
export function readPusherSettings(values, readFile) {
  /** @type {string[]} */
  const faults = [];
  const pathPrefix = readPath(String(values.pusherPath ?? ''), faults);
  const { given, placeOf } = givenApps(values, faults, readFile);
  const read = json.readEntries(appSchema(values), given, placeOf);
  const { entries: apps, warnings } = read;
  faults.push(
    ...read.faults,
    ...json.twins(apps, 'id', placeOf),
    ...json.twins(apps, 'key', placeOf),
    ...boundFaults(apps, values, placeOf),
  );
  if (apps.length === 0 || faults.length > 0) return { pusher: null, faults, warnings };
  return { pusher: pusherSettings(apps, pathPrefix), faults, warnings };
}

/**
 * @param {Record<string, unknown>} values @param {string[]} faults
 * @param {import('./texts.js').ReadText} read
 * @returns {{given: unknown[], placeOf: PlaceOf}} what the file or the variables have
 */
function givenApps(values, faults, read) {
  const path = String(values.pusherAppsFile ?? '');
  const placeOf = (/** @type {number} */ index) => `FANFARE_PUSHER_APPS: ${path}: apps[${index}]`;
  const one = ['Id', 'Key', 'Secret'].map((part) => String(values[`pusherApp${part}`] ?? ''));
  const set = one.filter((text) => text !== '').length;
  if (set > 0 && path !== '')
    faults.push('FANFARE_PUSHER_APPS: FANFARE_PUSHER_APP_* is set, too; set one of them');
  else if (set > 0 && set < 3)
    faults.push('FANFARE_PUSHER_APP_ID, _KEY and _SECRET: set all of them, or none');
  if (path === '') {
    const [id, key, secrets] = one;
    const lines = secrets.split('\n').map((line) => line.trim());
    const entry = { id, key, secrets: lines.filter((line) => line !== '') };
    return { given: set === 3 ? [entry] : [], placeOf: () => 'FANFARE_PUSHER_APP_*' };
  }
  const list = json.readJsonList(path, 'apps', MAX_APPS, read);
  if (typeof list !== 'string') return { given: list, placeOf };
  faults.push(`FANFARE_PUSHER_APPS: ${path}: ${list}`);
  return { given: [], placeOf };
}

/** @param {string} path @param {string[]} faults */
function readPath(path, faults) {
  const trimmed = path.replace(/\/+$/, '');
  if (trimmed === '' || PATH.test(trimmed)) return trimmed;
  faults.push(`FANFARE_PUSHER_PATH: ${JSON.stringify(path)} is not a path, as /ws is`);
  return '';
}

/**
 * Gives the fields of a soketi app our names, and those that are absent the defaults of its preset.
 * @param {Record<string, unknown>} entry @param {Refuse} refuse @param {Refuse} warn
 */
function withoutAliases(entry, refuse, warn) {
  /** @type {Record<string, unknown>} */
  const fields = {};
  const set = (/** @type {string} */ field, /** @type {unknown} */ value) => {
    if (Object.hasOwn(fields, field)) refuse(`.${field}`, 'two names of it are set');
    fields[field] = value;
  };
  for (const [name, value] of Object.entries(entry)) {
    const alias = Object.hasOwn(ALIASES, name) ? ALIASES[name] : null;
    if (alias !== null) {
      const { field, factor = 1 } = alias;
      set(field, typeof value === 'number' ? Math.round(value * factor) : value);
    } else if (name === 'enableUserAuthentication') {
      if (value === true) set('authorizeWithinMs', SOKETI_AUTHORIZE_WITHIN_MS);
    } else if (REPLACED.includes(name)) {
      if (Number(value) >= 0)
        warn(`.${name}`, 'has no effect: FANFARE_API_MESSAGES_RATE bounds each app');
    } else set(name, value);
  }
  const { preset } = fields;
  return { ...(Object.hasOwn(PRESETS, String(preset)) ? PRESETS[String(preset)] : {}), ...fields };
}

/**
 * Limits of apps that contradict those of the server.
 * @param {readonly App[]} apps @param {Record<string, unknown>} values @param {PlaceOf} placeOf
 */
function boundFaults(apps, values, placeOf) {
  /** @type {string[]} */
  const faults = [];
  const check = (
    /** @type {'maxEventBytes'|'maxPresenceMembers'} */ field,
    /** @type {string} */ setting,
    /** @type {number} */ most,
  ) => {
    const index = apps.findIndex((one) => one[field] > most);
    if (index >= 0)
      faults.push(`${placeOf(index)}.${field}: ${apps[index][field]}, above ${setting} (${most})`);
  };
  check('maxEventBytes', 'FANFARE_MAX_MESSAGE_BYTES', Number(values.maxMessageBytes));
  check('maxEventBytes', 'FANFARE_API_MAX_BODY_BYTES', Number(values.apiMaxBodyBytes));
  check('maxPresenceMembers', 'FANFARE_PRESENCE_MAX_MEMBERS', Number(values.presenceMaxMembers));
  const open = apps.findIndex(
    ({ isShared, isEnabled, publicRooms }) => isShared && isEnabled && publicRooms === null,
  );
  if (open >= 0 && values.auth === 'required')
    faults.push(
      `${placeOf(open)}: is shared, and tokens are required: everybody who knows its key would read native rooms without one. Name the rooms that may be public in its "publicRooms", such as ["news.*"], or [] for none`,
    );
  const shared = apps.flatMap(({ isShared }, index) => (isShared ? [index] : []));
  if (shared.length > 1)
    faults.push(
      `${placeOf(shared[1])}: is shared, as apps[${shared[0]}] is, so their channels would be the same rooms`,
    );
  return faults;
}
