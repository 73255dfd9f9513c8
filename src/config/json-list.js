// json-list.js: reads a file with a JSON array, of apps or endpoints, by a schema.
//
// A schema is a function that gets a value of the file and returns what it becomes. Of a wrong one
// it tells `refuse` the place, from its own place on, and what belongs there.
//
// A fault names the file, the place in it and what belongs there. The file has secrets, perhaps in
// wrong places, so no fault quotes its text (test/unit/settings-secrets.test.js).

import { didYouMean } from './nearest.js';

const MAX_FILE_BYTES = 1_048_576;
/** A field name that may be quoted: it is too plain for a secret in a wrong place. */
const SHOWN = /^[A-Za-z_]{1,32}$/;

/** @import { RedisSettings } from './redis.js' */
/** @typedef {(place: string, rule: string) => any} Refuse */
/** @template T @typedef {(value: unknown, refuse: Refuse) => T} Schema undefined if it is refused */
/** An entry's place, as faults name it. @typedef {(index: number) => string} PlaceOf */

/**
 * @param {string} path @param {string} what the array has, for faults @param {number} max entries
 * @param {import('./texts.js').ReadText} read
 * @returns {unknown[]|string} a fault, without any text of the file
 */
export function readJsonList(path, what, max, read) {
  let text;
  try {
    text = read(path);
  } catch (error) {
    return `cannot be read: ${/** @type {NodeJS.ErrnoException} */ (error).code}`;
  }
  if (text.length > MAX_FILE_BYTES) return `larger than ${MAX_FILE_BYTES} bytes`;
  let list;
  try {
    list = JSON.parse(text);
  } catch (error) {
    return `not JSON${lineOf(text, /** @type {Error} */ (error).message)}`;
  }
  if (!Array.isArray(list))
    return `${isRecord(list) ? 'an object' : 'a value'}, not a JSON array of ${what}`;
  if (list.length === 0) return `has no ${what}`;
  if (list.length > max) return `${list.length} ${what}, at most ${max}`;
  return list;
}

/**
 * The line of a syntax error. The parser's message quotes the text.
 * @param {string} text @param {string} message of JSON.parse
 */
function lineOf(text, message) {
  const at = / at position (\d+)/.exec(message);
  if (at === null) return /end of JSON input/.test(message) ? ': it ends too early' : '';
  return `: line ${text.slice(0, Number(at[1])).split('\n').length}`;
}

/**
 * @template T @param {(entry: unknown, refuse: Refuse, warn: Refuse) => T} schema
 * @param {readonly unknown[]} given @param {PlaceOf} placeOf
 * @returns {{entries: readonly T[], faults: string[], warnings: string[]}} no entries if there is a
 *   fault
 */
export function readEntries(schema, given, placeOf) {
  /** @type {string[]} */
  const faults = [];
  /** @type {string[]} */
  const warnings = [];
  const entries = given.map((entry, index) => {
    const into =
      (/** @type {string[]} */ lines) =>
      (/** @type {string} */ place, /** @type {string} */ rule) =>
        void lines.push(`${placeOf(index)}${place}: ${rule}`);
    return schema(entry, into(faults), into(warnings));
  });
  return { entries: faults.length > 0 ? [] : entries, faults, warnings };
}

/**
 * The faults of entries whose field has the value of an earlier one.
 * @template T @param {readonly T[]} entries @param {keyof T & string} field @param {PlaceOf} placeOf
 */
export function twins(entries, field, placeOf) {
  return entries.flatMap((entry, index) => {
    const first = entries.findIndex((one) => one[field] === entry[field]);
    const place = placeOf(first).split(' ').at(-1);
    return first === index ? [] : [`${placeOf(index)}.${field}: the same as in ${place}`];
  });
}

/**
 * Is it a JSON object, and neither null nor a list?
 * @param {unknown} value @returns {value is Record<string, unknown>}
 */
export function isRecord(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * An object with these fields and no others.
 * @template {Record<string, Schema<any>>} T @param {T} fields
 * @returns {Schema<{[K in keyof T]: ReturnType<T[K]>}>}
 */
export function record(fields) {
  const known = Object.keys(fields);
  return (value, refuse) => {
    if (!isRecord(value)) return refuse('', 'not an object');
    for (const name of Object.keys(value))
      if (!known.includes(name)) refuse('', unknownField(name, known));
    const read = (/** @type {string} */ name) =>
      fields[name](value[name], (place, rule) => refuse(`.${name}${place}`, rule));
    return Object.fromEntries(known.map((name) => [name, read(name)]));
  };
}

/** @param {string} name @param {readonly string[]} known */
function unknownField(name, known) {
  const meant = didYouMean(name, known);
  const isShown = meant !== '' || SHOWN.test(name);
  const shown = isShown ? JSON.stringify(name) : '(its name may be a secret)';
  return `unknown field ${shown}${meant || `; there are ${known.join(', ')}`}`;
}

/** @template T, D @param {Schema<T>} schema @param {D} usual @returns {Schema<T|D>} */
export function optional(schema, usual) {
  return (value, refuse) => (value === undefined ? usual : schema(value, refuse));
}

/**
 * @template T @param {Schema<T>} item @param {number} min @param {number} max
 * @returns {Schema<readonly T[]>}
 */
export function list(item, min, max) {
  return (value, refuse) => {
    if (!Array.isArray(value) || value.length < min || value.length > max)
      return refuse('', `not an array of ${min} to ${max}`);
    return Object.freeze(
      value.map((one, index) => item(one, (place, rule) => refuse(`[${index}]${place}`, rule))),
    );
  };
}

/**
 * @template [T=any] @param {(value: any) => boolean} isValid @param {string} rule what it is not
 * @param {(value: any) => T} [become] @returns {Schema<T>}
 */
export function matching(isValid, rule, become = (value) => value) {
  return (value, refuse) => (isValid(value) ? become(value) : refuse('', rule));
}

/** @param {RegExp} pattern @param {string} rule @returns {Schema<string>} */
export function text(pattern, rule) {
  return matching((value) => typeof value === 'string' && pattern.test(value), rule);
}

/** @param {number} min @param {number} max @returns {Schema<number>} */
export function integer(min, max) {
  const isValid = (/** @type {any} */ n) => Number.isInteger(n) && n >= min && n <= max;
  return matching(isValid, `not an integer from ${min} to ${max}`);
}

/** @template {string} const T @param {readonly T[]} values @returns {Schema<T>} */
export function oneOf(values) {
  return matching((value) => values.includes(value), `not one of ${values.join(', ')}`);
}

/**
 * Some of the values. They get the order of `values`: the same in another order are no change.
 * @template {string} const T @param {readonly T[]} values @returns {Schema<readonly T[]>}
 */
export function someOf(values) {
  const given = list(oneOf(values), 1, 100);
  return (value, refuse) => {
    const chosen = given(value, refuse);
    return Object.freeze(values.filter((one) => chosen?.includes(one)));
  };
}

/**
 * @template {object} T
 * @param {(value: any) => T|string} read returns a fault, which does not quote the value
 * @returns {Schema<T>}
 */
export function parsed(read) {
  return (value, refuse) => {
    const result = read(value);
    return typeof result === 'string' ? refuse('', result) : Object.freeze(result);
  };
}

/**
 * The URL of an endpoint, without a fragment.
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them: an
 *   endpoint has no port of the server's own
 * @returns {Schema<string>}
 */
export function endpointUrl({ redis, metricsPort }) {
  const { addresses = [] } = /** @type {Partial<RedisSettings>} */ (redis ?? {});
  const ownPorts = new Map(addresses.map(({ port }) => [String(port), 'Redis']));
  ownPorts.set(String(metricsPort), 'METRICS_PORT');
  return (value, refuse) => {
    if (value === undefined) return refuse('', 'missing');
    if (typeof value !== 'string' || !URL.canParse(value)) return refuse('', 'not a URL');
    const url = new URL(value);
    if (!/^https?:$/.test(url.protocol)) return refuse('', 'neither https: nor http:');
    if (url.username !== '' || url.password !== '')
      return refuse('', 'has a user name or a password');
    if (ownPorts.has(url.port)) return refuse('', `its port is that of ${ownPorts.get(url.port)}`);
    url.hash = '';
    return url.href;
  };
}
