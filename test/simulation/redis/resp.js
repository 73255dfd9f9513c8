// resp.js: reads requests and writes replies of Redis's protocol, in both versions. All strings are
// Latin-1, one character for each byte.

/** A reply such as OK. */
export class Status {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
}

/** An error, as a reply or thrown by a command. */
export class Failure extends Error {}

/** Names and values in turn: a map in version 3, an array in version 2. */
export class Pairs {
  /** @param {Reply[]} items */
  constructor(items) {
    this.items = items;
  }
}

/** A number with a fraction: a type of its own in version 3, a string in version 2. */
export class Double {
  /** @param {number} value */
  constructor(value) {
    this.value = value;
  }

  get text() {
    return doubleText(this.value);
  }
}

/** Members with scores: pairs in version 3, one list in version 2. */
export class Scored {
  /** @param {[string, number][]} members */
  constructor(members) {
    this.members = members;
  }
}

/** Streams with their entries: a map in version 3, a list of pairs in version 2. */
export class Streams extends Pairs {}

/** A message that answers no request. */
export class Push {
  /** @param {Reply[]} items */
  constructor(items) {
    this.items = items;
  }
}

/** @typedef {string|number|null|Status|Failure|Pairs|Double|Scored|Push|Reply[]} Reply */

export const OK = new Status('OK');

/** @param {number} value @returns {string} as Redis writes scores */
export function doubleText(value) {
  if (value === Infinity) return 'inf';
  if (value === -Infinity) return '-inf';
  return Object.is(value, -0) ? '-0' : String(value);
}

/** @param {Reply} reply @param {2|3} version @returns {string} */
export function encodeReply(reply, version) {
  if (typeof reply === 'string') return `$${reply.length}\r\n${reply}\r\n`;
  if (typeof reply === 'number') return `:${reply}\r\n`;
  if (reply === null) return version === 3 ? '_\r\n' : '$-1\r\n';
  if (Array.isArray(reply)) return encodeItems('*', reply.length, reply, version);
  if (reply instanceof Status) return `+${reply.text}\r\n`;
  if (reply instanceof Failure) return `-${reply.message}\r\n`;
  if (reply instanceof Double)
    return version === 3 ? `,${reply.text}\r\n` : encodeReply(reply.text, version);
  if (reply instanceof Scored) {
    const pairs = reply.members.map(([member, score]) => [member, new Double(score)]);
    const list = version === 3 ? pairs : pairs.flat();
    return encodeItems('*', list.length, list, version);
  }
  const { items } = reply;
  if (reply instanceof Streams && version === 2) {
    const pairs = items.flatMap((name, i) => (i % 2 === 0 ? [[name, items[i + 1]]] : []));
    return encodeItems('*', pairs.length, pairs, version);
  }
  if (version === 2) return encodeItems('*', items.length, items, version);
  return reply instanceof Push
    ? encodeItems('>', items.length, items, version)
    : encodeItems('%', items.length / 2, items, version);
}

/** @param {string} head @param {number} count @param {Reply[]} items @param {2|3} version */
function encodeItems(head, count, items, version) {
  let text = `${head}${count}\r\n`;
  for (const item of items) text += encodeReply(item, version);
  return text;
}

/** Reads requests from the pieces in which they arrive. */
export class RequestReader {
  constructor() {
    this.rest = '';
  }

  /** @param {string} piece @returns {string[][]} requests that are complete */
  read(piece) {
    const text = this.rest + piece;
    const requests = [];
    let at = 0;
    for (;;) {
      const found = readRequest(text, at);
      if (found === null) break;
      if (found.words.length > 0) requests.push(found.words);
      at = found.end;
    }
    this.rest = text.slice(at);
    return requests;
  }
}

/** @param {string} text @param {number} at @returns {{words: string[], end: number}|null} */
function readRequest(text, at) {
  let end = text.indexOf('\r\n', at);
  if (end < 0) return null;
  if (text[at] !== '*') {
    return {
      words: text
        .slice(at, end)
        .split(' ')
        .filter((word) => word !== ''),
      end: end + 2,
    };
  }
  const words = [];
  for (let left = Number(text.slice(at + 1, end)); left > 0; left--) {
    const head = end + 2;
    end = text.indexOf('\r\n', head);
    if (end < 0) return null;
    const from = end + 2;
    end = from + Number(text.slice(head + 1, end));
    if (text.length < end + 2) return null;
    words.push(text.slice(from, end));
  }
  return { words, end: end + 2 };
}
