// snapshot-file.js: the keys of the model as a text, for a restart of its process.

import { SortedSet, Stream } from './values.js';

/** @import { Key, Snapshot } from './keyspace.js' */

/** @param {Snapshot} snapshot @returns {string} */
export function encodeSnapshot(snapshot) {
  return JSON.stringify(
    [...snapshot].map(([name, { type, value, expiresMs }]) => [
      name,
      type,
      plain(value),
      expiresMs,
    ]),
  );
}

/** @param {string} text @returns {Snapshot} */
export function decodeSnapshot(text) {
  return new Map(
    JSON.parse(text).map((/** @type {any[]} */ [name, type, value, expiresMs]) => [
      name,
      /** @type {Key} */ ({ type, value: RESTORE[type](value), expiresMs }),
    ]),
  );
}

/** @param {any} value @returns {unknown} */
function plain(value) {
  if (typeof value === 'string' || Array.isArray(value)) return value;
  if (value instanceof SortedSet) return [...value.scores];
  if (value instanceof Stream) return { last: value.last, entries: [...value.entries()] };
  return [...value];
}

/** @type {Record<string, (value: any) => unknown>} */
const RESTORE = {
  string: (value) => value,
  list: (value) => value,
  hash: (value) => new Map(value),
  set: (value) => new Set(value),
  zset: (value) => {
    const zset = new SortedSet();
    for (const [member, score] of value) zset.put(member, score);
    return zset;
  },
  stream: (value) => {
    const stream = new Stream();
    for (const { ms, seq, fields } of value.entries) stream.append({ ms, seq }, fields);
    stream.last = value.last;
    return stream;
  },
};
