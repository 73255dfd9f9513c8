// replies.js: reads replies of either protocol version, and compares those of two servers.

/** Reads replies from the pieces in which they arrive. Pushes count as replies. */
export class ReplyReader {
  constructor() {
    this.rest = '';
  }

  /** @param {string} piece @returns {unknown[]} replies that are complete */
  read(piece) {
    const text = this.rest + piece;
    const replies = [];
    let at = 0;
    for (;;) {
      const found = readReply(text, at);
      if (found === null) break;
      replies.push(found.value);
      at = found.end;
    }
    this.rest = text.slice(at);
    return replies;
  }
}

/** @param {string} text @param {number} at @returns {{value: unknown, end: number}|null} */
function readReply(text, at) {
  const lineEnd = text.indexOf('\r\n', at);
  if (lineEnd < 0) return null;
  const line = text.slice(at + 1, lineEnd);
  const end = lineEnd + 2;
  switch (text[at]) {
    case '+':
      return { value: { status: line }, end };
    case '-':
      return { value: { error: line }, end };
    case ':':
      return { value: Number(line), end };
    case ',':
      return { value: { double: line }, end };
    case '_':
      return { value: null, end };
    case '$': {
      const size = Number(line);
      if (size < 0) return { value: null, end };
      if (text.length < end + size + 2) return null;
      return { value: text.slice(end, end + size), end: end + size + 2 };
    }
    default:
      return readItems(text, end, text[at] === '%' ? 2 * Number(line) : Number(line), text[at]);
  }
}

/** @param {string} text @param {number} at @param {number} count @param {string} kind */
function readItems(text, at, count, kind) {
  if (count < 0) return { value: null, end: at };
  /** @type {unknown[]} */
  const items = [];
  let end = at;
  for (let i = 0; i < count; i++) {
    const found = readReply(text, end);
    if (found === null) return null;
    items.push(found.value);
    end = found.end;
  }
  if (kind !== '%') return { value: items, end };
  return { value: items.flatMap((name, i) => (i % 2 === 0 ? [[name, items[i + 1]]] : [])), end };
}

/** Times within this many milliseconds are equal. */
const NEAR_MS = 5000;

/**
 * Are two replies equal? Times may differ a little, and an error of a script names its place in
 * Redis's own way.
 * @param {any} a @param {any} b @returns {boolean}
 */
export function same(a, b) {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((item, i) => same(item, b[i]));
  if (typeof a === 'number' && typeof b === 'number') return isNearTime(a, b) || isNearRest(a, b);
  if (typeof a === 'string' && typeof b === 'string') return sameText(a, b);
  if (a === null || b === null || typeof a !== 'object' || typeof b !== 'object') return false;
  if ('error' in a && 'error' in b) return errorOf(a.error) === errorOf(b.error);
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => same(a[name], b[name]));
}

/** @param {number} a @param {number} b @returns {boolean} */
function isNearTime(a, b) {
  return a > 1.6e12 && a < 3e12 && Math.abs(a - b) < NEAR_MS;
}

/** What is left of a lifetime. @param {number} a @param {number} b @returns {boolean} */
function isNearRest(a, b) {
  return a > NEAR_MS && b > NEAR_MS && Math.abs(a - b) < NEAR_MS;
}

/** A number of Lua: Redis 7 writes 17 digits, later ones as many as are needed. */
const FRACTION = /^-?\d+(\.\d+)?(e[+-]\d+)?$/;

/** @param {string} a @param {string} b @returns {boolean} */
function sameText(a, b) {
  if (/[.e]/.test(a) && FRACTION.test(a) && FRACTION.test(b)) return Number(a) === Number(b);
  if (a.startsWith('ERR') && b.startsWith('ERR')) return errorOf(a) === errorOf(b);
  // The second part of an id that is a time counts within a millisecond.
  const [x, y] = [a, b].map((text) =>
    text.replace(/^(\d{13})-\d+$/, '$1').split(/(\d{13}|\d{10})/),
  );
  return (
    x.length === y.length &&
    x.every((part, i) => {
      if (part === y[i]) return true;
      if (i % 2 === 0) return false;
      const unit = part.length === 10 ? 1000 : 1;
      return part.length === y[i].length && isNearTime(Number(part) * unit, Number(y[i]) * unit);
    })
  );
}

/**
 * An error without its place in a script, and without the word that Valkey leaves out.
 * @param {string} text @returns {string}
 */
function errorOf(text) {
  if (/user_script:\d+: /.test(text)) return 'an error of the script itself';
  return text
    .replace(/ script: ([0-9a-f]{40}, )?on @user_script:\d+\.$/, '')
    .replace('Redis command', 'command');
}
