// audit-log.js: who changed what through an API: one line for each action, whichever API it came
// through, and one line a minute for each address without a valid key.
//
//   API action       api, key, app, action, user, room, …, address, outcome
//   API key refused  api, address, reason, unsaid
//
// Lines have names, never secrets, payloads or positions in them. Publishing and reading are not
// actions: they are a backend's daily work, and metrics count them.

import { RareLog } from './rare-log.js';

/** The fields of a request that name what it acts on. */
const SUBJECTS = [
  'user',
  'connectionId',
  'tokenId',
  'room',
  'rooms',
  'client',
  'channel',
  'whitelist',
  'endpoint',
];
/** Characters of a logged name. A room has at most 200; a longer name has been refused. */
const MAX_NAME_LENGTH = 200;
/** Names of a logged list. */
const MAX_NAMES = 20;

/** @typedef {{info(fields: object, text: string): void, warn(fields: object, text: string): void}} Log */
/** @typedef {'http'|'pusher'|'centrifugo'|'console'} ApiName */

/**
 * @typedef {object} Action
 * @property {ApiName} api
 * @property {string|undefined} key name of the API key; undefined: the console is open on loopback
 * @property {string|undefined} [app] id of the app whose key or signature it was
 * @property {string} action
 * @property {object} subject the fields of the request, as far as it could be read. Only names of
 *   SUBJECTS are logged
 * @property {string} address of the client @property {string|number} outcome `done`, or the error
 */

export class AuditLog {
  /** @param {Log} log @param {() => number} [clock] ms, monotonic */
  constructor(log, clock) {
    this.log = log;
    this.rareLog = new RareLog(log, clock);
  }

  /** @param {Action} action */
  acted({ api, key, app, action, subject, address, outcome }) {
    this.log.info({ api, key, app, action, ...namesIn(subject), address, outcome }, 'API action');
  }

  /** @param {{api: ApiName, address: string, reason: string}} attempt without a valid key */
  refused({ api, address, reason }) {
    this.rareLog.warn({ api, address, reason }, 'API key refused', address);
  }
}

/** @param {object} subject */
function namesIn(subject) {
  return Object.fromEntries(
    Object.entries(subject)
      .filter(([name]) => SUBJECTS.includes(name))
      .map(([name, value]) => [name, logged(value)]),
  );
}

/**
 * A name, or a list of names, as the log takes it: a body of 4 MB must not become a line of 4 MB.
 * @param {unknown} value of a body that nobody may have checked
 */
function logged(value) {
  if (!Array.isArray(value)) return shortened(value);
  const names = value.slice(0, MAX_NAMES).map(shortened);
  return value.length > names.length
    ? [...names, `and ${value.length - names.length} more`]
    : names;
}

/** @param {unknown} value */
function shortened(value) {
  if (typeof value !== 'string') return typeof value === 'number' ? value : undefined;
  if (value.length <= MAX_NAME_LENGTH) return value;
  return `${value.slice(0, MAX_NAME_LENGTH)}… (${value.length} characters)`;
}
