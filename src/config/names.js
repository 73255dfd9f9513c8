// names.js: recognises settings in the environment, and misspelt ones.
//
// A server that ignored JWT_SECERT would be open to everyone, so a probable mistake is a fault. But
// names of the platform and of other programs must not keep the server from starting.

import { isWithin, MAX_STEPS, nearest } from './nearest.js';
import { oldNamesOf, RATES } from './rates.js';
import { LIMIT_MODES, SETTINGS } from './settings.js';

/** Settings of other versions. */
const FOREIGN_NAMES = /** @type {Readonly<Record<string, string>>} */ ({
  JWKS_URL: 'is called JWT_JWKS_URL',
});

/**
 * The settings that may be read from a file, by the name that gives its path: JWT_SECRET_FILE of
 * JWT_SECRET. API_KEYS_FILE has a row of its own, because its keys are added to API_KEYS.
 * @type {ReadonlyMap<string, string>}
 */
export const SECRET_FILES = new Map(
  SETTINGS.filter(
    ({ env, secret }) => secret && !SETTINGS.some((other) => other.env === `${env}_FILE`),
  ).map(({ env }) => [`${env}_FILE`, env]),
);

const NAMES = [...SETTINGS.map(({ env }) => env), ...SECRET_FILES.keys()];

/** Names that only the commands of cli/ read. A developer's shell may have them. */
const COMMAND_NAMES = new Set(['FANFARE_URL', 'FANFARE_API_KEY', 'FANFARE_TOKEN']);

/** Names of older versions that are still read. */
const OLD_NAMES = /** @type {readonly string[]} */ ([
  ...LIMIT_MODES.map(({ old }) => old),
  ...RATES.flatMap(({ env }) => oldNamesOf(env)),
]);

/** A server without these settings is open, speaks plain text or is alone. */
const GUARDED = NAMES.filter((name) =>
  /^(?:JWT_|API_KEYS|TLS_|REDIS_|ALLOWED_ORIGINS|TRUST_PROXY)/.test(name),
);
/** Shorter names resemble those of other programs: API_KEYS and APP_KEYS (Strapi). */
const SHORT_LENGTH = 10;
const SHORT_HEAD = 6;
/** The end of a name that says what its number counts. */
const UNIT = /_(?:MS|S|BYTES|PERCENT)$/;
/** What a platform (Railway) and other programs set beside their own names. */
const INNOCENT = new Set(['REDISHOST', 'REDISPORT', 'REDISPASSWORD', 'REDIS_TTL']);

/**
 * Kubernetes puts the address of each service into the environment of its pods. A service named
 * `fanfare` gives FANFARE_SERVICE_HOST, FANFARE_PORT=tcp://… and FANFARE_PORT_3000_TCP_ADDR.
 */
const SERVICE_LINK =
  /^[A-Z][A-Z0-9_]*_(?:SERVICE_(?:HOST|PORT(?:_[A-Z0-9_]+)?)|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$/;
const SERVICE_LINK_URL = /^(?:tcp|udp|sctp):\/\//;

/** Did Kubernetes set this value of a `…_PORT`? @param {string} text */
export const isServiceLinkUrl = (text) => SERVICE_LINK_URL.test(text);

/** Is it the name of a setting? @param {string} name */
export const isKnown = (name) =>
  Object.hasOwn(FOREIGN_NAMES, name) || NAMES.includes(name) || OLD_NAMES.includes(name);

/** @param {string} name @param {(name: string) => string} textOf @returns the fault or '' */
export function nameFault(name, textOf) {
  if (Object.hasOwn(FOREIGN_NAMES, name))
    return textOf(name) === '' ? '' : `${name}: ${FOREIGN_NAMES[name]}`;
  if (isKnown(name) || COMMAND_NAMES.has(name) || SERVICE_LINK.test(name)) return '';
  if (name.endsWith('_PORT') && isServiceLinkUrl(textOf(name))) return '';
  if (/^FANFARE_/i.test(name)) return `${name}: unknown setting${suggestion(name)}`;
  if (textOf(name) === '') return '';
  // Unlike the others, JWT_ is a prefix of few programs, and each of its settings is about access.
  if (/^JWT_/i.test(name)) return `${name}: unknown setting${suggestion(name)}`;
  const meant = misspelt(name.toUpperCase());
  // If the right one is set, too, this one belongs to another program, or does no harm.
  return meant === undefined || textOf(meant) !== ''
    ? ''
    : `${name}: unknown setting; did you mean ${meant}?`;
}

/** @param {string} name in capitals @returns {string|undefined} what it seems to mean */
function misspelt(name) {
  if (INNOCENT.has(name)) return undefined;
  return GUARDED.find((known) => {
    if (known === `${name}_FILE` || name === `${known}_FILE`) return true;
    if (known.length < SHORT_LENGTH)
      return known.startsWith(name.slice(0, SHORT_HEAD)) && isWithin(1, name, known);
    return isWithin(MAX_STEPS, name, known);
  });
}

/** @param {string} name @returns {string} a hint with the nearest name, if one is near, or '' */
export function suggestion(name) {
  const upper = name.toUpperCase();
  const meant =
    NAMES.find((known) => isSameName(upper, known) || isSameName(known, upper)) ??
    nearest(upper, NAMES);
  return meant === '' ? '' : `; did you mean ${meant}?`;
}

/**
 * Is the prefix or the unit missing? These are the likeliest mistakes, and take more steps.
 * @param {string} short @param {string} long
 */
function isSameName(short, long) {
  return long === `FANFARE_${short}` || (long.startsWith(`${short}_`) && UNIT.test(long));
}
