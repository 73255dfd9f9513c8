// lua-library.js: the operators of Lua 5.1 and the part of its library that scripts of Redis use,
// on strings in Latin-1. Functions return arrays of their results.

import { regExpOf } from './lua-patterns.js';
import { LuaTable } from './lua-table.js';

/** An error of a script. Redis raises tables with the field `err`. */
export class LuaError extends Error {
  /** @param {any} value */
  constructor(value) {
    super(typeof value === 'string' ? value : String(value.get?.('err')));
    this.value = value;
  }
}

/** @param {any} value @returns {number|undefined} */
function toNumber(value) {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string') return undefined;
  const text = value.trim();
  if (/^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(text)) return Number(text);
  if (/^[+-]?0[xX][0-9a-fA-F]+$/.test(text))
    return text[0] === '-' ? -Number(text.slice(1)) : Number(text.replace('+', ''));
  return undefined;
}

/** @param {string} operator @param {any} a @param {any} b @returns {number} */
export function arithmetic(operator, a, b) {
  const [x, y] = [toNumber(a), toNumber(b)];
  if (x === undefined || y === undefined)
    throw new LuaError(
      `attempt to perform arithmetic on a ${typeOf(x === undefined ? a : b)} value`,
    );
  switch (operator) {
    case '+':
      return x + y;
    case '-':
      return x - y;
    case '*':
      return x * y;
    case '/':
      return x / y;
    case '%':
      return x - Math.floor(x / y) * y;
    default:
      return x ** y;
  }
}

/** @param {any} a @param {any} b @returns {string} */
export function concat(a, b) {
  for (const value of [a, b])
    if (typeof value !== 'string' && typeof value !== 'number')
      throw new LuaError(`attempt to concatenate a ${typeOf(value)} value`);
  return toText(a) + toText(b);
}

/** @param {any} a @param {any} b @returns {boolean} */
export function less(a, b) {
  if (typeof a === typeof b && (typeof a === 'number' || typeof a === 'string')) return a < b;
  throw new LuaError(`attempt to compare ${typeOf(a)} with ${typeOf(b)}`);
}

/** @param {any} a @param {any} b @returns {boolean} */
export function lessOrEqual(a, b) {
  if (typeof a === typeof b && (typeof a === 'number' || typeof a === 'string')) return a <= b;
  throw new LuaError(`attempt to compare ${typeOf(a)} with ${typeOf(b)}`);
}

/** @param {any} value @returns {number} */
export function lengthOf(value) {
  if (typeof value === 'string' || value instanceof LuaTable) return value.length;
  throw new LuaError(`attempt to get length of a ${typeOf(value)} value`);
}

/** @param {any} base @param {any} key @returns {any} */
export function indexOf(base, key) {
  if (base instanceof LuaTable) return base.get(key);
  if (typeof base === 'string') return STRING.get(key);
  throw new LuaError(`attempt to index a ${typeOf(base)} value`);
}

/** @param {any} value @returns {string} */
function typeOf(value) {
  if (value === undefined) return 'nil';
  if (value instanceof LuaTable) return 'table';
  return typeof value;
}

/** @param {any} value @returns {string} as `tostring` of Lua 5.1 */
function toText(value) {
  if (typeof value === 'string') return value;
  if (typeof value === 'number') return general(value, 14);
  if (value === undefined) return 'nil';
  return typeof value === 'boolean' ? String(value) : `${typeOf(value)}: 0x0`;
}

/**
 * A number as `%.<digits>g` of C.
 * @param {number} value @param {number} digits @returns {string}
 */
export function general(value, digits) {
  if (Number.isInteger(value) && Math.abs(value) < 10 ** Math.min(digits, 15))
    return Object.is(value, -0) ? '-0' : String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? '-nan' : value > 0 ? 'inf' : '-inf';
  const { sign, text, power } = significant(value, digits);
  if (power >= -4 && power < digits) {
    const padded = power < 0 ? text.padStart(digits - power, '0') : text;
    const point = power < 0 ? 1 : power + 1;
    return sign + strip(`${padded.slice(0, point)}.${padded.slice(point)}`);
  }
  const size = String(Math.abs(power)).padStart(2, '0');
  return `${sign}${strip(`${text[0]}.${text.slice(1)}`)}e${power < 0 ? '-' : '+'}${size}`;
}

/**
 * The first digits of a number, a half rounded to the even digit as C does.
 * @param {number} value @param {number} digits
 * @returns {{sign: string, text: string, power: number}} `text` has as many digits; the first one
 *   counts 10 ** power
 */
function significant(value, digits) {
  const [mantissa, exponent] = Math.abs(value).toExponential(100).split('e');
  const all = mantissa.replace('.', '');
  const kept = BigInt(all.slice(0, digits));
  const rest = all.slice(digits);
  const half = `5${'0'.repeat(rest.length - 1)}`;
  const isUp = rest > half || (rest === half && kept % 2n === 1n);
  const text = String(isUp ? kept + 1n : kept).padStart(digits, '0');
  const isLonger = text.length > digits;
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  return { sign, text: text.slice(0, digits), power: Number(exponent) + (isLonger ? 1 : 0) };
}

/** @param {string} text @returns {string} without zeros at the end of its fraction */
function strip(text) {
  return text.replace(/\.?0*$/, '');
}

/** @param {any} value @param {string} name of the function @returns {string} */
function textArgument(value, name) {
  if (typeof value === 'string' || typeof value === 'number') return toText(value);
  throw new LuaError(`bad argument to '${name}' (string expected, got ${typeOf(value)})`);
}

/** @param {any} value @param {string} name of the function @returns {number} */
function numberArgument(value, name) {
  const number = toNumber(value);
  if (number === undefined)
    throw new LuaError(`bad argument to '${name}' (number expected, got ${typeOf(value)})`);
  return number;
}

/** @param {number} value @returns {string} as `%.0f`, which rounds a half to the even number */
function rounded(value) {
  if (!Number.isFinite(value)) return general(value, 14);
  const size = Math.abs(value);
  const floor = Math.floor(size);
  const isHalf = size - floor === 0.5;
  const text = BigInt(isHalf ? floor + (floor % 2) : Math.round(size)).toString();
  return value < 0 || Object.is(value, -0) ? `-${text}` : text;
}

/** @param {string} spec after the `%` @param {any} value @returns {string} */
function formatOne(spec, value) {
  const kind = spec.at(-1);
  if (spec === 's') {
    // Lua 5.1 leaves shorter strings to C, where a zero ends them.
    const text = toText(value);
    return text.length < 100 ? text.split('\0')[0] : text;
  }
  if (spec === 'd') return BigInt(Math.trunc(numberArgument(value, 'format'))).toString();
  if (spec === '.0f') return rounded(numberArgument(value, 'format'));
  if (kind === 'g') return general(numberArgument(value, 'format'), Number(spec.slice(1, -1)));
  if (spec === 'x') return Math.trunc(numberArgument(value, 'format')).toString(16);
  throw new LuaError(`the format %${spec} is unknown here`);
}

/** @param {RegExpExecArray} match @returns {any[]} its captures, or all of it */
function capturesOf(match) {
  if (match.length === 1) return [match[0]];
  const { indices } = match;
  return match
    .slice(1)
    .map((text, i) => (text === '' && indices ? (indices[i + 1]?.[0] ?? 0) + 1 : text));
}

/** @param {string} text @param {number} [from] @returns {number} an index of JavaScript */
function startOf(text, from = 1) {
  return from > 0
    ? Math.min(from - 1, text.length)
    : from < 0
      ? Math.max(0, text.length + from)
      : 0;
}

/** @param {any} text @param {any} pattern @param {any} from @returns {RegExpExecArray|null} */
function find(text, pattern, from) {
  const regExp = regExpOf(textArgument(pattern, 'find'));
  const string = textArgument(text, 'find');
  regExp.lastIndex = startOf(string, from);
  return regExp.exec(string);
}

const STRING = tableOf({
  sub: (/** @type {any} */ value, /** @type {any} */ from, /** @type {any} */ to = -1) => {
    const text = textArgument(value, 'sub');
    const last = numberArgument(to, 'sub');
    return [
      text.slice(
        startOf(text, numberArgument(from, 'sub')),
        last < 0 ? text.length + last + 1 : last,
      ),
    ];
  },
  rep: (/** @type {any} */ text, /** @type {any} */ count) => [
    textArgument(text, 'rep').repeat(Math.max(0, numberArgument(count, 'rep'))),
  ],
  match: (/** @type {any} */ text, /** @type {any} */ pattern, /** @type {any} */ from) => {
    const match = find(text, pattern, from);
    return match === null ? [undefined] : capturesOf(match);
  },
  find: (
    /** @type {any} */ value,
    /** @type {any} */ pattern,
    /** @type {any} */ from,
    /** @type {any} */ isPlain,
  ) => {
    if (isPlain !== undefined && isPlain !== false) {
      const text = textArgument(value, 'find');
      const wanted = textArgument(pattern, 'find');
      const at = text.indexOf(wanted, startOf(text, from));
      return at < 0 ? [undefined] : [at + 1, at + wanted.length];
    }
    const match = find(value, pattern, from);
    if (match === null) return [undefined];
    const captures = match.length === 1 ? [] : capturesOf(match);
    return [match.index + 1, match.index + match[0].length, ...captures];
  },
  format: (/** @type {any} */ form, /** @type {any[]} */ ...values) => {
    let i = 0;
    const text = textArgument(form, 'format');
    return [
      text.replace(/%(%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])/g, (_, spec) =>
        spec === '%' ? '%' : formatOne(spec, values[i++]),
      ),
    ];
  },
  byte: (/** @type {any} */ text, /** @type {any} */ at = 1) => {
    const code = textArgument(text, 'byte').charCodeAt(at - 1);
    return Number.isNaN(code) ? [] : [code];
  },
  char: (/** @type {any[]} */ ...codes) => [
    String.fromCharCode(...codes.map((one) => numberArgument(one, 'char'))),
  ],
  len: (/** @type {any} */ text) => [textArgument(text, 'len').length],
});

const TABLE = tableOf({
  concat: (/** @type {LuaTable} */ table, /** @type {any} */ between = '') => [
    table.items.map((item) => textArgument(item, 'concat')).join(textArgument(between, 'concat')),
  ],
  insert: (/** @type {LuaTable} */ table, /** @type {any} */ value) => {
    table.set(table.length + 1, value);
    return [];
  },
});

const MATH = tableOf({
  floor: (/** @type {any} */ value) => [Math.floor(numberArgument(value, 'floor'))],
  max: (/** @type {any[]} */ ...values) => [
    Math.max(...values.map((one) => numberArgument(one, 'max'))),
  ],
  min: (/** @type {any[]} */ ...values) => [
    Math.min(...values.map((one) => numberArgument(one, 'min'))),
  ],
});

/** @type {Record<string, number>} */
const SIZES = { I8: 8, I4: 4, I2: 2 };

const STRUCT = tableOf({
  pack: (/** @type {string} */ form, /** @type {any} */ value) => {
    const size = sizeOf(form);
    let rest = BigInt(Math.trunc(numberArgument(value, 'pack')));
    let text = '';
    for (let i = 0; i < size; i++) {
      text = String.fromCharCode(Number(rest & 255n)) + text;
      rest >>= 8n;
    }
    return [text];
  },
  unpack: (/** @type {string} */ form, /** @type {string} */ text, /** @type {any} */ at = 1) => {
    const size = sizeOf(form);
    if (text.length < at - 1 + size) throw new LuaError('data string too short');
    let value = 0n;
    for (let i = 0; i < size; i++) value = (value << 8n) | BigInt(text.charCodeAt(at - 1 + i));
    return [Number(value), at + size];
  },
});

/** @param {string} form of one number with the most significant byte first @returns {number} */
function sizeOf(form) {
  const size = SIZES[form.slice(1)];
  if (form[0] !== '>' || size === undefined) throw new LuaError(`the form ${form} is unknown here`);
  return size;
}

/** The next item of `ipairs`. @param {LuaTable} table @param {number} at @returns {any[]} */
function nextItem(table, at) {
  const value = table.get(at + 1);
  return value === undefined ? [undefined] : [at + 1, value];
}

/** Functions that are not in a table. @type {Record<string, unknown>} */
export const LIBRARY = {
  string: STRING,
  table: TABLE,
  math: MATH,
  struct: STRUCT,
  ipairs: (/** @type {LuaTable} */ table) => [nextItem, table, 0],
  pairs: (/** @type {LuaTable} */ table) => {
    const entries = table.entries().values();
    return [() => entries.next().value ?? [undefined], table, undefined];
  },
  unpack: (
    /** @type {LuaTable} */ table,
    /** @type {any} */ from = 1,
    /** @type {any} */ to = table.length,
  ) => {
    const values = [];
    for (let i = from; i <= to; i++) values.push(table.get(i));
    return values;
  },
  tonumber: (/** @type {any} */ value) => [toNumber(value)],
  tostring: (/** @type {any} */ value) => [toText(value)],
  type: (/** @type {any} */ value) => [typeOf(value)],
  error: (/** @type {any} */ value) => {
    throw new LuaError(value);
  },
};

/** @param {Record<string, unknown>} entries @returns {LuaTable} */
export function tableOf(entries) {
  const table = new LuaTable();
  for (const [name, value] of Object.entries(entries)) table.set(name, value);
  return table;
}
