// hooks.js: where the hooks are, FANFARE_HOOKS.
//   ./hooks.js                          a JavaScript file, which each worker loads
//   https://backend.example/fanfare     a backend, asked over HTTP
//   ./hooks.json                        a JSON array of backends, each with its hooks
//
// The configuration has a digest of the JavaScript file, without its imports, so that a reload sees
// a change.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import * as json from './json-list.js';
import { areSigningSecrets, SIGNING_SECRET_RULE } from './signing-secrets.js';

/** @import { HookName } from '../observability/counters.js' */

/**
 * A backend that is asked over HTTP.
 * @typedef {object} HookBackendSettings frozen
 * @property {string} url `http:` or `https:`, without credentials and fragment
 * @property {readonly HookName[]} hooks
 * @property {readonly string[]} secrets one, or two while they rotate
 * @property {readonly string[]} headers names of those that it gets of a handshake, in lower case
 */

/**
 * @typedef {object} HookSettings frozen
 * @property {string} path of the JavaScript file, absolute; '' if there are backends
 * @property {string} digest of that file
 * @property {readonly HookBackendSettings[]} backends @property {boolean} publicOnly of their addresses
 */

/** Every hook, and whether a backend without a list is asked. @type {Record<HookName, boolean>} */
const HOOKS = {
  onConnect: true,
  onJoin: true,
  onPublish: true,
  onRpc: false,
  onSend: false,
  onDisconnect: true,
};
const NAMES = /** @type {HookName[]} */ (Object.keys(HOOKS));
const USUAL_HOOKS = Object.freeze(NAMES.filter((name) => HOOKS[name]));
const USUAL_HEADERS = Object.freeze(['cookie', 'origin', 'user-agent']);
const MAX_HEADERS = 32;
/** RFC 9110 5.1: a token. */
const HEADER = /^[-A-Za-z0-9!#$%&'*+.^_`|~]{1,64}$/;
/** Calls at once in a worker, unless FANFARE_HOOK_CALLS is set: backends have fewer processes. */
const USUAL_CALLS = 100;

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @param {(env: string) => boolean} isSet @param {import('./texts.js').ReadText} read
 * @returns {{hooks: HookSettings|null, faults: string[], hookCalls?: number}} null if there are none
 */
export function readHookSettings(values, isSet, read) {
  const given = String(values.hooksFile ?? '');
  if (given === '') return { hooks: null, faults: [] };
  const isUrl = /^https?:/i.test(given);
  if (!isUrl && !given.endsWith('.json')) return readModule(resolve(given));
  const { list, where } = isUrl
    ? { list: [{ url: given }], where: () => 'FANFARE_HOOKS' }
    : {
        list: json.readJsonList(given, 'backends', NAMES.length, read),
        where: (/** @type {number} */ index) => `FANFARE_HOOKS: ${given}: backends[${index}]`,
      };
  if (typeof list === 'string')
    return { hooks: null, faults: [`FANFARE_HOOKS: ${given}: ${list}`] };
  const publicOnly = values.webhooksPublicOnly === 'on';
  const { entries, faults } = json.readEntries(backendSchema(values, publicOnly), list, where);
  const asked = entries.flatMap(({ hooks }) => hooks);
  const twice = asked.find((hook, index) => asked.indexOf(hook) !== index);
  if (twice !== undefined) faults.push(`FANFARE_HOOKS: ${given}: two backends have ${twice}`);
  const hookCalls = isSet('FANFARE_HOOK_CALLS') ? {} : { hookCalls: USUAL_CALLS };
  if (faults.length > 0) return { hooks: null, faults };
  const backends = Object.freeze(entries);
  const hooks = Object.freeze({ path: '', digest: '', backends, publicOnly });
  return { hooks, faults: [], ...hookCalls };
}

/** @param {string} path absolute @returns {{hooks: HookSettings|null, faults: string[]}} */
function readModule(path) {
  try {
    const digest = createHash('sha256').update(readFileSync(path)).digest('hex');
    return { hooks: Object.freeze({ path, digest, backends: [], publicOnly: false }), faults: [] };
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    return { hooks: null, faults: [`FANFARE_HOOKS: cannot read ${path}: ${code}`] };
  }
}

/**
 * @param {Record<string, unknown>} values @param {boolean} publicOnly
 * @returns {json.Schema<HookBackendSettings>}
 */
function backendSchema(values, publicOnly) {
  const common = String(values.hooksSecret ?? '').split(/\s*\n\s*/);
  const secret = json.matching(areSigningSecrets, SIGNING_SECRET_RULE);
  const schema = json.record({
    url: json.endpointUrl(values),
    secret: json.optional(secret, null),
    hooks: json.optional(json.someOf(NAMES), USUAL_HOOKS),
    headers: json.optional(
      json.list(json.text(HEADER, 'not the name of a header'), 0, MAX_HEADERS),
      USUAL_HEADERS,
    ),
  });
  return (value, refuse) => {
    const { url, secret: own, hooks, headers = [] } = schema(value, refuse) ?? {};
    if (publicOnly && url?.startsWith('http:'))
      refuse('', 'http: is for private addresses, which FANFARE_WEBHOOKS_PUBLIC_ONLY refuses');
    if (own === null && !areSigningSecrets(common))
      refuse('', `FANFARE_HOOKS_SECRET is ${SIGNING_SECRET_RULE}`);
    const secrets = Object.freeze([own ?? common].flat());
    const names = Object.freeze(headers.map((name) => String(name).toLowerCase()));
    return Object.freeze({ url, hooks, secrets, headers: names });
  };
}

/** The hooks, for the banner. @param {HookSettings} settings @returns {string} without secrets */
export function describeHooks({ path, backends }) {
  return backends
    .map(({ url, hooks }) => `${new URL(url).origin} (${hooks.join(', ')})`)
    .concat(path || [])
    .join(', ');
}
