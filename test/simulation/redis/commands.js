// commands.js: the commands on keys that Fanfare and its scripts use, and some for tests.

import { Double, Failure, OK, Pairs, Scored, Status, Streams } from './resp.js';
import { idText, LARGEST_SEQ, parseBound, parseId } from './values.js';

/** @import { Reply } from './resp.js' */
/** @import { Keyspace } from './keyspace.js' */

/**
 * @typedef {object} Context
 * @property {Keyspace} keys
 * @property {() => number} now in milliseconds
 * @property {(items: number) => number} pick an index below `items`, for SPOP
 */
/**
 * @typedef {object} Command
 * @property {number} arity words with the name; if negative, at least so many
 * @property {boolean} isWrite
 * @property {boolean} addsMemory is it refused if the memory is full?
 * @property {(words: string[]) => string[]} keysOf
 * @property {(context: Context, words: string[]) => Reply} run
 */

/** @param {string[]} words */
const first = (words) => [words[1]];
/** @param {string[]} words */
const all = (words) => words.slice(1);

/** @param {string} text @returns {number} */
export function integer(text) {
  if (!/^(?:0|-?[1-9]\d{0,18})$/.test(text)) {
    throw new Failure('ERR value is not an integer or out of range');
  }
  return Number(text);
}

/** @param {string} text @returns {number} a score */
function float(text) {
  const lower = text.toLowerCase();
  if (lower === '+inf' || lower === 'inf') return Infinity;
  if (lower === '-inf') return -Infinity;
  if (!/^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/.test(lower)) {
    throw new Failure('ERR value is not a valid float');
  }
  return Number(text);
}

const SYNTAX = 'ERR syntax error';

/** @param {string} text @returns {(score: number) => boolean} @param {boolean} isMin */
function boundOf(text, isMin) {
  const isOpen = text[0] === '(';
  let value;
  try {
    value = float(isOpen ? text.slice(1) : text);
  } catch {
    throw new Failure('ERR min or max is not a float');
  }
  if (isMin) return isOpen ? (score) => score > value : (score) => score >= value;
  return isOpen ? (score) => score < value : (score) => score <= value;
}

/** @param {string} text @param {boolean} isMin @returns {(member: string) => boolean} */
function lexBoundOf(text, isMin) {
  if (text === '-') return () => isMin;
  if (text === '+') return () => !isMin;
  const value = text.slice(1);
  if (text[0] !== '[' && text[0] !== '(')
    throw new Failure('ERR min or max not valid string range item');
  const isOpen = text[0] === '(';
  if (isMin) return isOpen ? (member) => member > value : (member) => member >= value;
  return isOpen ? (member) => member < value : (member) => member <= value;
}

/** @param {string[]} words @param {number} from @returns {{offset: number, count: number, hasScores: boolean}} */
function rangeOptions(words, from) {
  const options = { offset: 0, count: Infinity, hasScores: false };
  for (let i = from; i < words.length; i++) {
    const word = words[i].toUpperCase();
    if (word === 'WITHSCORES') options.hasScores = true;
    else if (word === 'LIMIT' && i + 2 < words.length) {
      options.offset = integer(words[i + 1]);
      options.count = integer(words[i + 2]);
      if (options.count < 0) options.count = Infinity;
      i += 2;
    } else throw new Failure(SYNTAX);
  }
  return options;
}

/** @param {[string, number][]} found @param {boolean} hasScores @returns {Reply} */
function scoredReply(found, hasScores) {
  if (!hasScores) return found.map(([member]) => member);
  return new Scored(found);
}

/** @param {string} pattern @returns {RegExp} of a glob */
export function globOf(pattern) {
  const source = pattern.replace(/\\?[\s\S]/g, (part) => {
    if (part === '*') return '[\\s\\S]*';
    if (part === '?') return '[\\s\\S]';
    if (part === '[' || part === ']') return part;
    const char = part.at(-1) ?? '';
    return /\w/.test(char) || char === '-'
      ? char
      : `\\x${char.charCodeAt(0).toString(16).padStart(2, '0')}`;
  });
  return new RegExp(`^${source}$`);
}

/** @param {Context} context @param {string} name @param {number} expiresMs @returns {number} */
function expire({ keys }, name, expiresMs) {
  return keys.expireAt(name, expiresMs) ? 1 : 0;
}

/** @param {Context} context @param {string[]} words @returns {Reply} */
function set({ keys, now }, words) {
  const [, name, value, ...options] = words;
  let expiresMs = 0;
  let isKept = false;
  let condition = '';
  for (let i = 0; i < options.length; i++) {
    const word = options[i].toUpperCase();
    if (word === 'PX' || word === 'EX' || word === 'PXAT') {
      const given = integer(options[++i] ?? '');
      if (given <= 0) throw new Failure("ERR invalid expire time in 'set' command");
      expiresMs = word === 'PXAT' ? given : now() + given * (word === 'EX' ? 1000 : 1);
    } else if (word === 'NX' || word === 'XX') condition = word;
    else if (word === 'KEEPTTL') isKept = true;
    else throw new Failure(SYNTAX);
  }
  const was = keys.find(name);
  if (condition !== '' && (condition === 'NX') === (was !== undefined)) return null;
  if (isKept) expiresMs = was?.expiresMs ?? 0;
  keys.setString(name, value, expiresMs);
  return OK;
}

/** @param {Context} context @param {string} name @param {number} by @returns {number} */
function increase({ keys }, name, by) {
  const was = keys.read(name, 'string') ?? '0';
  const value = integer(was) + by;
  keys.setString(name, String(value), keys.find(name)?.expiresMs ?? 0);
  return value;
}

/** @param {Context} context @param {string[]} words @returns {Reply} */
function zadd({ keys }, words) {
  let at = 2;
  let condition = '';
  let countsChanges = false;
  for (; at < words.length; at++) {
    const word = words[at].toUpperCase();
    if (word === 'NX' || word === 'XX') condition = word;
    else if (word === 'CH') countsChanges = true;
    else break;
  }
  const pairs = words.slice(at);
  if (pairs.length === 0 || pairs.length % 2 !== 0) throw new Failure(SYNTAX);
  const scores = pairs.filter((_, i) => i % 2 === 0).map(float);
  const zset = keys.write(words[1], 'zset');
  let count = 0;
  for (const [i, score] of scores.entries()) {
    const member = pairs[2 * i + 1];
    const was = zset.scores.get(member);
    if (condition !== '' && (condition === 'NX') === (was !== undefined)) continue;
    const isNew = zset.put(member, score);
    if (isNew || (countsChanges && was !== score)) count += 1;
  }
  keys.removeIfEmpty(words[1]);
  return count;
}

/** @param {Context} context @param {string[]} words @returns {Reply} */
function xadd({ keys, now }, words) {
  const [, name, id, ...fields] = words;
  if (fields.length === 0 || fields.length % 2 !== 0)
    throw new Failure("ERR wrong number of arguments for 'xadd' command");
  const given = id === '*' ? null : parseId(id);
  if (given?.ms === 0 && given.seq === 0)
    throw new Failure('ERR The ID specified in XADD must be greater than 0-0');
  const was = keys.read(name, 'stream');
  let next;
  if (given === null) {
    const last = was?.last ?? { ms: 0, seq: 0 };
    const ms = now();
    next = ms > last.ms ? { ms, seq: 0 } : { ms: last.ms, seq: last.seq + 1 };
  } else next = given;
  if (was === undefined) keys.write(name, 'stream').append(next, fields);
  else {
    was.append(next, fields);
    keys.write(name, 'stream');
  }
  return idText(next);
}

/** @param {Context} context @param {string[]} words @returns {Reply} */
function xtrim({ keys }, words) {
  const [, name, strategy, ...rest] = words;
  const isExact = rest[0] !== '~';
  const threshold = rest[0] === '~' || rest[0] === '=' ? rest[1] : rest[0];
  const kind = strategy.toUpperCase();
  if (kind === 'MINID') {
    const least = parseId(threshold, 0);
    return trim((entry) => entry.ms < least.ms || (entry.ms === least.ms && entry.seq < least.seq));
  }
  if (kind !== 'MAXLEN') throw new Failure(SYNTAX);
  const most = integer(threshold);
  return trim((_, length) => length > most);
  /** @param {(oldest: import('./values.js').Entry, length: number) => boolean} isTooOld */
  function trim(isTooOld) {
    if (keys.read(name, 'stream') === undefined) return 0;
    return keys.write(name, 'stream').trim(isTooOld, isExact);
  }
}

/** @param {boolean} isReversed @returns {(context: Context, words: string[]) => Reply} */
function xrange(isReversed) {
  return ({ keys }, words) => {
    const [, name, a, b, option, count] = words;
    const [from, to] = isReversed ? [b, a] : [a, b];
    if (option !== undefined && option.toUpperCase() !== 'COUNT') throw new Failure(SYNTAX);
    const ids = [rangeStart(from), rangeEnd(to)];
    const most = count === undefined ? Infinity : integer(count);
    const stream = keys.read(name, 'stream');
    if (stream === undefined) return [];
    if (most <= 0) return null;
    return stream
      .range(ids[0], ids[1], most, isReversed)
      .map((entry) => [idText(entry), [...entry.fields]]);
  };
}

/** @param {string} text `(` before an ID leaves it out */
function rangeStart(text) {
  if (text[0] !== '(') return parseBound(text, 0);
  const { ms, seq } = parseId(text.slice(1), 0);
  return seq === LARGEST_SEQ ? { ms: ms + 1, seq: 0 } : { ms, seq: seq + 1 };
}

/** @param {string} text */
function rangeEnd(text) {
  if (text[0] !== '(') return parseBound(text, LARGEST_SEQ);
  const { ms, seq } = parseId(text.slice(1), LARGEST_SEQ);
  return seq === 0 ? { ms: ms - 1, seq: LARGEST_SEQ } : { ms, seq: seq - 1 };
}

/** @param {number} index @param {number} size @returns {number} */
function fromEnd(index, size) {
  return index < 0 ? size + index : index;
}

/**
 * @param {number} arity
 * @param {(words: string[]) => string[]} keysOf
 * @param {Command['run']} run
 * @returns {Command}
 */
function reads(arity, keysOf, run) {
  return { arity, isWrite: false, addsMemory: false, keysOf, run };
}

/** A command that may add data. @type {typeof reads} */
function adds(arity, keysOf, run) {
  return { arity, isWrite: true, addsMemory: true, keysOf, run };
}

/** A command that changes or removes data. @type {typeof reads} */
function changes(arity, keysOf, run) {
  return { arity, isWrite: true, addsMemory: false, keysOf, run };
}

/** @type {Record<string, Command>} */
export const COMMANDS = {
  GET: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'string') ?? null),
  SET: adds(-3, first, set),
  DEL: changes(
    -2,
    all,
    ({ keys }, [, ...names]) => names.filter((name) => keys.remove(name)).length,
  ),
  UNLINK: changes(
    -2,
    all,
    ({ keys }, [, ...names]) => names.filter((name) => keys.remove(name)).length,
  ),
  EXISTS: reads(
    -2,
    all,
    ({ keys }, [, ...names]) => names.filter((name) => keys.find(name)).length,
  ),
  TYPE: reads(2, first, ({ keys }, [, name]) => new Status(keys.find(name)?.type ?? 'none')),
  PEXPIRE: changes(3, first, (context, [, name, ms]) =>
    expire(context, name, context.now() + integer(ms)),
  ),
  EXPIRE: changes(3, first, (context, [, name, seconds]) =>
    expire(context, name, context.now() + integer(seconds) * 1000),
  ),
  PEXPIREAT: changes(3, first, (context, [, name, ms]) => expire(context, name, integer(ms))),
  PTTL: reads(2, first, ({ keys, now }, [, name]) => {
    const key = keys.find(name);
    if (key === undefined) return -2;
    return key.expiresMs === 0 ? -1 : key.expiresMs - now();
  }),
  PERSIST: changes(2, first, ({ keys }, [, name]) => {
    const key = keys.find(name);
    if (key === undefined || key.expiresMs === 0) return 0;
    keys.touch(name);
    key.expiresMs = 0;
    return 1;
  }),
  INCRBY: adds(3, first, (context, [, name, by]) => increase(context, name, integer(by))),
  INCR: adds(2, first, (context, [, name]) => increase(context, name, 1)),

  HSET: adds(-4, first, ({ keys }, [, name, ...pairs]) => {
    if (pairs.length % 2 !== 0)
      throw new Failure("ERR wrong number of arguments for 'hset' command");
    const hash = keys.write(name, 'hash');
    const before = hash.size;
    for (let i = 0; i < pairs.length; i += 2) hash.set(pairs[i], pairs[i + 1]);
    return hash.size - before;
  }),
  HSETNX: adds(4, first, ({ keys }, [, name, field, value]) => {
    if (keys.read(name, 'hash')?.has(field)) return 0;
    keys.write(name, 'hash').set(field, value);
    return 1;
  }),
  HGET: reads(3, first, ({ keys }, [, name, field]) => keys.read(name, 'hash')?.get(field) ?? null),
  HMGET: reads(-3, first, ({ keys }, [, name, ...fields]) => {
    const hash = keys.read(name, 'hash');
    return fields.map((field) => hash?.get(field) ?? null);
  }),
  HGETALL: reads(
    2,
    first,
    ({ keys }, [, name]) => new Pairs([...(keys.read(name, 'hash') ?? [])].flat()),
  ),
  HKEYS: reads(2, first, ({ keys }, [, name]) => [...(keys.read(name, 'hash')?.keys() ?? [])]),
  HVALS: reads(2, first, ({ keys }, [, name]) => [...(keys.read(name, 'hash')?.values() ?? [])]),
  HDEL: changes(-3, first, ({ keys }, [, name, ...fields]) => {
    if (keys.read(name, 'hash') === undefined) return 0;
    const hash = keys.write(name, 'hash');
    const count = fields.filter((field) => hash.delete(field)).length;
    keys.removeIfEmpty(name);
    return count;
  }),
  HLEN: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'hash')?.size ?? 0),
  HEXISTS: reads(3, first, ({ keys }, [, name, field]) =>
    keys.read(name, 'hash')?.has(field) ? 1 : 0,
  ),
  HSTRLEN: reads(
    3,
    first,
    ({ keys }, [, name, field]) => keys.read(name, 'hash')?.get(field)?.length ?? 0,
  ),
  HINCRBY: adds(4, first, ({ keys }, [, name, field, by]) => {
    const amount = integer(by);
    const was = keys.read(name, 'hash')?.get(field) ?? '0';
    if (!/^-?\d+$/.test(was)) throw new Failure('ERR hash value is not an integer');
    const value = Number(was) + amount;
    keys.write(name, 'hash').set(field, String(value));
    return value;
  }),
  HSCAN: reads(-3, first, ({ keys }, [, name]) => [
    '0',
    [...(keys.read(name, 'hash') ?? [])].flat(),
  ]),

  SADD: adds(-3, first, ({ keys }, [, name, ...members]) => {
    const those = keys.write(name, 'set');
    const before = those.size;
    for (const member of members) those.add(member);
    return those.size - before;
  }),
  SREM: changes(-3, first, ({ keys }, [, name, ...members]) => {
    if (keys.read(name, 'set') === undefined) return 0;
    const those = keys.write(name, 'set');
    const count = members.filter((member) => those.delete(member)).length;
    keys.removeIfEmpty(name);
    return count;
  }),
  SCARD: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'set')?.size ?? 0),
  SMEMBERS: reads(2, first, ({ keys }, [, name]) => [...(keys.read(name, 'set') ?? [])]),
  SISMEMBER: reads(3, first, ({ keys }, [, name, member]) =>
    keys.read(name, 'set')?.has(member) ? 1 : 0,
  ),
  SSCAN: reads(-3, first, ({ keys }, [, name]) => ['0', [...(keys.read(name, 'set') ?? [])]]),
  SRANDMEMBER: reads(-2, first, ({ keys, pick }, [, name, count]) => {
    const those = [...(keys.read(name, 'set') ?? [])];
    if (count === undefined) return those[pick(those.length)] ?? null;
    const most = integer(count);
    if (most < 0)
      return Array.from({ length: those.length && -most }, () => those[pick(those.length)]);
    while (those.length > most) those.splice(pick(those.length), 1);
    return those;
  }),
  SPOP: changes(-2, first, ({ keys, pick }, [, name, count]) => {
    const most = count === undefined ? 1 : integer(count);
    if (most < 0) throw new Failure('ERR value is out of range, must be positive');
    if (keys.read(name, 'set') === undefined) return count === undefined ? null : [];
    const those = keys.write(name, 'set');
    const popped = [];
    while (those.size > 0 && popped.length < most) {
      const member = [...those][pick(those.size)];
      those.delete(member);
      popped.push(member);
    }
    keys.removeIfEmpty(name);
    return count === undefined ? popped[0] : popped;
  }),

  RPUSH: adds(-3, first, ({ keys }, [, name, ...items]) => keys.write(name, 'list').push(...items)),
  LPUSH: adds(-3, first, ({ keys }, [, name, ...items]) =>
    keys.write(name, 'list').unshift(...items.reverse()),
  ),
  LPOP: changes(2, first, ({ keys }, [, name]) => {
    if (keys.read(name, 'list') === undefined) return null;
    const item = keys.write(name, 'list').shift() ?? null;
    keys.removeIfEmpty(name);
    return item;
  }),
  LLEN: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'list')?.length ?? 0),
  LRANGE: reads(4, first, ({ keys }, [, name, from, to]) => {
    const [start, end] = [integer(from), integer(to)];
    const list = keys.read(name, 'list') ?? [];
    return list.slice(Math.max(0, fromEnd(start, list.length)), fromEnd(end, list.length) + 1);
  }),
  LTRIM: changes(4, first, ({ keys }, [, name, from, to]) => {
    const [start, end] = [integer(from), integer(to)];
    if (keys.read(name, 'list') === undefined) return OK;
    const list = keys.write(name, 'list');
    const kept = list.slice(
      Math.max(0, fromEnd(start, list.length)),
      Math.max(0, fromEnd(end, list.length) + 1),
    );
    list.splice(0, list.length, ...kept);
    keys.removeIfEmpty(name);
    return OK;
  }),

  ZADD: adds(-4, first, zadd),
  ZREM: changes(-3, first, ({ keys }, [, name, ...members]) => {
    if (keys.read(name, 'zset') === undefined) return 0;
    const zset = keys.write(name, 'zset');
    const count = members.filter((member) => zset.drop(member)).length;
    keys.removeIfEmpty(name);
    return count;
  }),
  ZCARD: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'zset')?.size ?? 0),
  ZSCORE: reads(3, first, ({ keys }, [, name, member]) => {
    const score = keys.read(name, 'zset')?.scores.get(member);
    return score === undefined ? null : new Double(score);
  }),
  ZRANGE: reads(-4, first, ({ keys }, [, name, from, to, ...options]) => {
    const [start, end] = [integer(from), integer(to)];
    const { hasScores } = rangeOptions(options, 0);
    const list = keys.read(name, 'zset')?.list() ?? [];
    const found = list.slice(
      Math.max(0, fromEnd(start, list.length)),
      Math.max(0, fromEnd(end, list.length) + 1),
    );
    return scoredReply(found, hasScores);
  }),
  ZRANGEBYSCORE: reads(-4, first, ({ keys }, words) => {
    const { offset, count, hasScores } = rangeOptions(words, 4);
    const [isAbove, isBelow] = [boundOf(words[2], true), boundOf(words[3], false)];
    const list = keys.read(words[1], 'zset')?.list() ?? [];
    const found = list.filter(([, score]) => isAbove(score) && isBelow(score));
    return scoredReply(offset < 0 ? [] : found.slice(offset, offset + count), hasScores);
  }),
  ZRANGEBYLEX: reads(-4, first, ({ keys }, words) => {
    const { offset, count } = rangeOptions(words, 4);
    const [isAbove, isBelow] = [lexBoundOf(words[2], true), lexBoundOf(words[3], false)];
    const list = keys.read(words[1], 'zset')?.list() ?? [];
    return list
      .map(([member]) => member)
      .filter((member) => isAbove(member) && isBelow(member))
      .slice(offset, offset + count);
  }),
  ZCOUNT: reads(4, first, ({ keys }, [, name, min, max]) => {
    const [isAbove, isBelow] = [boundOf(min, true), boundOf(max, false)];
    const list = keys.read(name, 'zset')?.list() ?? [];
    return list.filter(([, score]) => isAbove(score) && isBelow(score)).length;
  }),
  ZREMRANGEBYSCORE: changes(4, first, ({ keys }, [, name, min, max]) => {
    const [isAbove, isBelow] = [boundOf(min, true), boundOf(max, false)];
    if (keys.read(name, 'zset') === undefined) return 0;
    const zset = keys.write(name, 'zset');
    const found = zset.list().filter(([, score]) => isAbove(score) && isBelow(score));
    for (const [member] of found) zset.drop(member);
    keys.removeIfEmpty(name);
    return found.length;
  }),
  ZPOPMIN: changes(-2, first, ({ keys }, [, name]) => {
    if (keys.read(name, 'zset') === undefined) return [];
    const zset = keys.write(name, 'zset');
    const [member, score] = zset.list()[0];
    zset.drop(member);
    keys.removeIfEmpty(name);
    return [member, new Double(score)];
  }),

  XADD: adds(-5, first, xadd),
  XTRIM: changes(-4, first, xtrim),
  XLEN: reads(2, first, ({ keys }, [, name]) => keys.read(name, 'stream')?.length ?? 0),
  XRANGE: reads(-4, first, xrange(false)),
  XREVRANGE: reads(-4, first, xrange(true)),
  XREAD: reads(
    -4,
    (words) => {
      const at = words.findIndex((word) => word.toUpperCase() === 'STREAMS') + 1;
      return words.slice(at, at + (words.length - at) / 2);
    },
    ({ keys }, words) => {
      const at = words.findIndex((word) => word.toUpperCase() === 'STREAMS') + 1;
      const most = words[1].toUpperCase() === 'COUNT' ? integer(words[2]) : Infinity;
      const count = (words.length - at) / 2;
      const found = words.slice(at, at + count).flatMap((name, i) => {
        const stream = keys.read(name, 'stream');
        const { ms, seq } = parseId(words[at + count + i]);
        const entries = stream?.range({ ms, seq: seq + 1 }, parseBound('+', 0), most, false) ?? [];
        if (entries.length === 0) return [];
        return [name, entries.map((entry) => [idText(entry), [...entry.fields]])];
      });
      return found.length === 0 ? null : new Streams(found);
    },
  ),
  XDEL: changes(-3, first, ({ keys }, [, name, ...ids]) => {
    const wanted = ids.map((id) => parseId(id, 0));
    if (keys.read(name, 'stream') === undefined) return 0;
    const stream = keys.write(name, 'stream');
    return wanted.filter((id) => stream.drop(id)).length;
  }),

  TIME: reads(
    1,
    () => [],
    ({ now }) => {
      const ms = now();
      return [String(Math.floor(ms / 1000)), String(Math.round((ms % 1000) * 1000))];
    },
  ),
  DBSIZE: reads(
    1,
    () => [],
    ({ keys }) => keys.names().length,
  ),
  KEYS: reads(
    2,
    () => [],
    ({ keys }, [, pattern]) => {
      const glob = globOf(pattern);
      return keys.names().filter((name) => glob.test(name));
    },
  ),
  SCAN: reads(
    -2,
    () => [],
    ({ keys }, words) => {
      const at = words.findIndex((word, i) => i > 1 && word.toUpperCase() === 'MATCH');
      const glob = at < 0 ? null : globOf(words[at + 1]);
      return ['0', keys.names().filter((name) => glob?.test(name) ?? true)];
    },
  ),
};
