// pusher-apps.js: reads the apps of Pusher clients: FANFARE_PUSHER_APPS, a JSON file, or one app in
// three variables.
//   [{ "id": "123", "key": "app-key", "secret": "…", "clientEvents": true }]
//
// An app that comes from soketi keeps its field names. No fault quotes a secret, or a webhook's
// URL, whose path or query may be one.

import { ALIASES, FIELDS, NUMBERS, PRESETS, REPLACED, SWITCHES } from './app-fields.js';
import { fieldsOf, isRecord, readJsonList, readList, readUrl } from './json-list.js';
import { AN_ORIGIN, normalOrigin } from './origins.js';
import { APP_EVENT_TYPES, ID_RULE, isAppId, pusherSettings } from './pusher.js';
import { isRoomPattern, parseHistoryRules, parsePresenceRules } from './room-patterns.js';

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
/** `enableUserAuthentication` of soketi closes connections that have not signed in by then. */
const SOKETI_AUTHORIZE_WITHIN_MS = 30_000;

/** @import { Refuse } from './json-list.js' */
/** @import { App, AppWebhook, PusherSettings } from './pusher.js' */
/** @import { Rule } from './room-patterns.js' */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {import('./texts.js').ReadText} read
 * @returns {{pusher: PusherSettings|null, faults: string[], warnings: string[]}} null if there are no
 *   apps
 */
export function readPusherSettings(values, read) {
  /** @type {string[]} */
  const faults = [];
  /** @type {string[]} */
  const warnings = [];
  const pathPrefix = readPath(String(values.pusherPath ?? ''), faults);
  const entries = entriesOf(values, faults, read);
  const apps = entries.map(([where, entry]) =>
    readApp(
      entry,
      (fault) => faults.push(`${where}: ${fault}`),
      (warning) => warnings.push(`${where}: ${warning}`),
    ),
  );
  for (const field of /** @type {const} */ (['id', 'key']))
    if (new Set(apps.map((app) => app[field])).size < apps.length && faults.length === 0)
      faults.push(`FANFARE_PUSHER_APPS: two apps have the same ${field}`);
  faults.push(...boundFaults(apps, values));
  if (apps.length === 0 || faults.length > 0) return { pusher: null, faults, warnings };
  return { pusher: pusherSettings(apps, pathPrefix), faults, warnings };
}

/**
 * @param {Record<string, unknown>} values @param {string[]} faults
 * @param {import('./texts.js').ReadText} read @returns {[where: string, entry: unknown][]}
 */
function entriesOf(values, faults, read) {
  const path = String(values.pusherAppsFile ?? '');
  const one = ['Id', 'Key', 'Secret'].map((part) => String(values[`pusherApp${part}`] ?? ''));
  const given = one.filter((text) => text !== '').length;
  if (given > 0 && path !== '')
    faults.push('FANFARE_PUSHER_APPS: FANFARE_PUSHER_APP_* is set, too; set one of them');
  else if (given > 0 && given < 3)
    faults.push('FANFARE_PUSHER_APP_ID, _KEY and _SECRET: set all of them, or none');
  if (path === '') {
    const [id, key, secrets] = one;
    const lines = secrets.split('\n').map((line) => line.trim());
    const entry = { id, key, secrets: lines.filter((line) => line !== '') };
    return given === 3 ? [['FANFARE_PUSHER_APP_*', entry]] : [];
  }
  const list = readJsonList(path, 'apps', MAX_APPS, read);
  if (typeof list === 'string') {
    faults.push(`FANFARE_PUSHER_APPS: ${path}: ${list}`);
    return [];
  }
  return list.map((entry, index) => [`FANFARE_PUSHER_APPS, app ${index + 1}`, entry]);
}

/** @param {string} path @param {string[]} faults */
function readPath(path, faults) {
  const trimmed = path.replace(/\/+$/, '');
  if (trimmed === '' || PATH.test(trimmed)) return trimmed;
  faults.push(`FANFARE_PUSHER_PATH: ${JSON.stringify(path)} is not a path, as /ws is`);
  return '';
}

/**
 * @param {unknown} entry @param {Refuse} refuse @param {(warning: string) => void} warn
 * @returns {App} with defaults where the entry is at fault
 */
function readApp(entry, refuse, warn) {
  const named = isRecord(entry) ? withoutAliases(entry, refuse, warn) : entry;
  const given = fieldsOf(named, FIELDS, refuse);
  const preset = given.preset ?? 'strict';
  const usual = PRESETS[String(preset)];
  if (usual === undefined) refuse(`"preset": not one of ${Object.keys(PRESETS).join(', ')}`);
  const fields = { ...usual, ...given };
  // soketi's file may have a number.
  const id = String(fields.id ?? '');
  if (!isAppId(id)) refuse(`"id": not ${ID_RULE}`);
  const key = String(fields.key ?? '');
  if (!KEY.test(key)) refuse('"key": not 1 to 64 characters of A-Z a-z 0-9 _ -');
  const { clientEventData = 'string' } = fields;
  if (clientEventData !== 'string' && clientEventData !== 'asSent')
    refuse('"clientEventData": neither "string" nor "asSent"');
  return Object.freeze({
    id,
    key,
    secrets: readSecrets(fields, refuse, warn),
    origins: readOrigins(fields.origins, refuse),
    clientEventData: clientEventData === 'asSent' ? 'asSent' : 'string',
    ...readNumbers(fields, refuse),
    ...readSwitches(fields, refuse),
    history: readRules('history', fields.history, parseHistoryRules, refuse),
    presence: readRules('presence', fields.presence, parsePresenceRules, refuse),
    publicRooms: readPublicRooms(fields, refuse),
    webhooks: readWebhooks(fields.webhooks, refuse),
  });
}

/** @param {Record<string, unknown>} fields @param {Refuse} refuse @returns {App['publicRooms']} */
function readPublicRooms({ publicRooms, shared }, refuse) {
  if (publicRooms === undefined) return null;
  if (shared !== true) refuse('"publicRooms": only the channels of a shared app are native rooms');
  const rule = `"publicRooms": not an array of at most ${MAX_PUBLIC_ROOMS} patterns of room names`;
  return Object.freeze([
    ...readList(publicRooms, rule, [0, MAX_PUBLIC_ROOMS], isRoomPattern, refuse),
  ]);
}

/**
 * @template T @param {string} field @param {unknown} value
 * @param {(entries: readonly string[]) => {rules: Rule<T>[], faults: string[]}} parse
 * @param {Refuse} refuse @returns {readonly Rule<T>[]}
 */
function readRules(field, value = [], parse, refuse) {
  const rule = `${JSON.stringify(field)}: not an array of at most ${MAX_PATTERNS} texts`;
  const { rules, faults } = parse(readList(value, rule, [0, MAX_PATTERNS], isText, refuse));
  for (const fault of faults) refuse(`${JSON.stringify(field)}: ${fault}`);
  return Object.freeze(rules);
}

/**
 * Gives the fields of a soketi app our names.
 * @param {Record<string, unknown>} entry @param {Refuse} refuse
 * @param {(warning: string) => void} warn
 */
function withoutAliases(entry, refuse, warn) {
  /** @type {Record<string, unknown>} */
  const fields = {};
  const set = (/** @type {string} */ field, /** @type {unknown} */ value) => {
    if (Object.hasOwn(fields, field)) refuse(`${JSON.stringify(field)}: two names of it are set`);
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
        warn(`${JSON.stringify(name)} has no effect: FANFARE_API_MESSAGES_RATE bounds each app`);
    } else set(name, value);
  }
  return fields;
}

/**
 * @param {Record<string, unknown>} fields @param {Refuse} refuse
 * @param {(warning: string) => void} warn @returns {readonly string[]}
 */
function readSecrets({ secret, secrets }, refuse, warn) {
  const list = secrets ?? (secret === undefined ? [] : [secret]);
  if (secrets !== undefined && secret !== undefined)
    refuse('"secret" and "secrets" are set; set one of them');
  const isValid = (/** @type {unknown} */ one) => typeof one === 'string' && SECRET.test(one);
  if (
    !Array.isArray(list) ||
    list.length < 1 ||
    list.length > MAX_SECRETS ||
    !list.every(isValid) ||
    new Set(list).size < list.length
  ) {
    refuse(
      `"secret": not 1 to 256 printable characters without a space; "secrets": not an array of 1 to ${MAX_SECRETS} different ones`,
    );
    return Object.freeze([]);
  }
  if (list.some((one) => one.length < GOOD_SECRET_LENGTH))
    warn(`a secret has fewer than ${GOOD_SECRET_LENGTH} characters, and can be guessed`);
  return Object.freeze([...list]);
}

/** @param {unknown} value @returns {value is string} */
function isText(value) {
  return typeof value === 'string';
}

/** @param {unknown} value @param {Refuse} refuse @returns {readonly string[]} */
function readOrigins(value = [], refuse) {
  const rule = `"origins": not an array of at most ${MAX_ORIGINS} origins: ${AN_ORIGIN}`;
  /** @returns {one is string} */
  const isOrigin = (/** @type {unknown} */ one) => isText(one) && normalOrigin(one) !== '';
  return Object.freeze(readList(value, rule, [0, MAX_ORIGINS], isOrigin, refuse).map(normalOrigin));
}

/**
 * @param {Record<string, unknown>} fields @param {Refuse} refuse
 * @returns {Record<keyof typeof NUMBERS, number>}
 */
function readNumbers(fields, refuse) {
  const names = /** @type {(keyof typeof NUMBERS)[]} */ (Object.keys(NUMBERS));
  const entries = names.map((name) => {
    const { field, value, min, max } = NUMBERS[name];
    const given = fields[field] ?? value;
    // soketi writes some numbers as text, as environment variables have them.
    const number = typeof given === 'string' && /^-?\d{1,10}$/.test(given) ? Number(given) : given;
    const isFault = !Number.isInteger(number) || Number(number) < min || Number(number) > max;
    if (name === 'quotaCode' && number !== 4004 && number !== 4100)
      refuse('"quotaCode": neither 4004 (clients give up) nor 4100 (they try again)');
    else if (isFault) refuse(`${JSON.stringify(field)}: not an integer from ${min} to ${max}`);
    // soketi writes -1 for «no limit».
    return [name, isFault ? value : Math.max(0, Number(number))];
  });
  return Object.fromEntries(entries);
}

/**
 * @param {Record<string, unknown>} fields @param {Refuse} refuse
 * @returns {Record<keyof typeof SWITCHES, boolean>}
 */
function readSwitches(fields, refuse) {
  const names = /** @type {(keyof typeof SWITCHES)[]} */ (Object.keys(SWITCHES));
  const entries = names.map((name) => {
    const { field, value } = SWITCHES[name];
    const given = fields[field] ?? value;
    if (typeof given !== 'boolean') refuse(`${JSON.stringify(field)}: neither true nor false`);
    return [name, given === true];
  });
  return Object.fromEntries(entries);
}

/** @param {unknown} value @param {Refuse} refuse @returns {readonly AppWebhook[]} */
function readWebhooks(value = [], refuse) {
  const rule = `"webhooks": not an array of at most ${MAX_WEBHOOKS} objects`;
  return Object.freeze(
    readList(value, rule, [0, MAX_WEBHOOKS], isRecord, refuse).map((entry, index) =>
      readWebhook(entry, (fault) => refuse(`webhook ${index + 1}: ${fault}`)),
    ),
  );
}

const WEBHOOK_FIELDS = Object.freeze([
  ...['url', 'events', 'startsWith', 'endsWith', 'batchMs', 'headers'],
  ...['event_types', 'filter'],
]);

/** @param {unknown} entry @param {Refuse} refuse @returns {AppWebhook} */
function readWebhook(entry, refuse) {
  const given = fieldsOf(entry, WEBHOOK_FIELDS, refuse);
  // soketi's names.
  const filter = isRecord(given.filter) ? given.filter : {};
  const rule = `"events": not an array of ${APP_EVENTS.join(', ')}`;
  const named = given.events ?? given.event_types;
  const events = readList(named, rule, [1, Number.POSITIVE_INFINITY], isAppEvent, refuse);
  const { batchMs = 0 } = given;
  if (!Number.isInteger(batchMs) || Number(batchMs) < 0 || Number(batchMs) > 10_000)
    refuse('"batchMs": not an integer from 0 to 10000');
  return Object.freeze({
    url: readUrl(given.url, refuse)?.href ?? '',
    // In the table's order: the same events in another order are no change.
    events: Object.freeze(APP_EVENTS.filter((one) => events.includes(one))),
    startsWith: affix(given.startsWith ?? filter.channel_name_starts_with, 'startsWith', refuse),
    endsWith: affix(given.endsWith ?? filter.channel_name_ends_with, 'endsWith', refuse),
    batchMs: Number(batchMs),
    headers: readHeaders(given.headers, refuse),
  });
}

/** @param {unknown} event @returns {event is keyof typeof APP_EVENT_TYPES} */
function isAppEvent(event) {
  return /** @type {readonly unknown[]} */ (APP_EVENTS).includes(event);
}

/** @param {unknown} value @param {string} field @param {Refuse} refuse */
function affix(value, field, refuse) {
  if (value === undefined || (typeof value === 'string' && value.length <= 200)) return value ?? '';
  refuse(`${JSON.stringify(field)}: not at most 200 characters`);
  return '';
}

/** @param {unknown} value @param {Refuse} refuse @returns {Readonly<Record<string, string>>} */
function readHeaders(value, refuse) {
  if (value === undefined) return Object.freeze({});
  const entries = isRecord(value) ? Object.entries(value) : [];
  const isValid =
    isRecord(value) &&
    entries.length <= MAX_HEADERS &&
    entries.every(
      ([name, text]) =>
        HEADER_NAME.test(name) && typeof text === 'string' && HEADER_VALUE.test(text),
    );
  if (isValid) return Object.freeze(/** @type {Record<string, string>} */ ({ ...value }));
  refuse(`"headers": not an object with at most ${MAX_HEADERS} names and values of header fields`);
  return Object.freeze({});
}

/**
 * Limits of apps that contradict those of the server.
 * @param {readonly App[]} apps @param {Record<string, unknown>} values
 */
function boundFaults(apps, values) {
  /** @type {string[]} */
  const faults = [];
  const check = (
    /** @type {'maxEventBytes'|'maxPresenceMembers'} */ field,
    /** @type {string} */ setting,
    /** @type {number} */ most,
  ) => {
    const app = apps.find((one) => one[field] > most);
    if (app !== undefined)
      faults.push(
        `FANFARE_PUSHER_APPS: ${field} of app ${app.id} is ${app[field]}, above ${setting} (${most})`,
      );
  };
  check('maxEventBytes', 'FANFARE_MAX_MESSAGE_BYTES', Number(values.maxMessageBytes));
  check('maxEventBytes', 'FANFARE_API_MAX_BODY_BYTES', Number(values.apiMaxBodyBytes));
  check('maxPresenceMembers', 'FANFARE_PRESENCE_MAX_MEMBERS', Number(values.presenceMaxMembers));
  const shared = apps.filter(({ isShared }) => isShared);
  const open = shared.find(({ isEnabled, publicRooms }) => isEnabled && publicRooms === null);
  if (open !== undefined && values.auth === 'required')
    faults.push(
      `FANFARE_PUSHER_APPS: app ${open.id} is shared, and tokens are required: everybody who knows its key would read native rooms without one. Name the rooms that may be public in its "publicRooms", such as ["news.*"], or [] for none`,
    );
  if (shared.length > 1)
    faults.push(
      `FANFARE_PUSHER_APPS: apps ${shared.map(({ id }) => id).join(' and ')} are shared, so their channels would be the same rooms`,
    );
  return faults;
}
