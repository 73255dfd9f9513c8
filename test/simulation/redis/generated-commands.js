// generated-commands.js: random commands and scripts for the differential fuzz. They use few keys
// and few values, so that they meet.

import { readFileSync } from 'node:fs';

/** @typedef {() => number} Random from 0 to 1 */

const LUA = new URL('../../../src/backend/redis/lua/', import.meta.url);

/** @param {...string} names of files @returns {string} */
function scriptOf(...names) {
  return names.map((name) => readFileSync(new URL(`${name}.lua`, LUA), 'latin1')).join('');
}

/** @param {Random} random */
function picker(random) {
  const below = (/** @type {number} */ count) => Math.floor(random() * count);
  const pick = (/** @type {readonly any[]} */ list) => list[below(list.length)];
  return { below, pick };
}

const NAMES = ['a', 'b', 'c'];
const MEMBERS = ['x', 'y', 'z', '', 'ü\0', '10', 'a longer member'];
const NUMBERS = ['0', '1', '-1', '5', '300', '-70000', '4611686018427', 'x', '1.5', ''];
const SCORES = ['0', '1', '-1', '2.5', '1e3', 'inf', '-inf', '12345678901234', 'x'];
const IDS = ['1', '5-1', '70', '300', '1000000', '0', '-', '+', '9-9', 'x'];

/**
 * @param {Random} random @param {string} fence of the server (stream.lua)
 * @param {readonly string[]} [trims] exact or not: how much `~` leaves is up to the server
 * @returns {() => string[]} the next command
 */
export function commandsOf(random, fence, trims = ['~', '=']) {
  const { below, pick } = picker(random);
  const many = (/** @type {() => string} */ make, most = 4) =>
    Array.from({ length: 1 + below(most) }, make);
  /** Mostly a key of the wanted type. @param {string} type */
  const key = (type) =>
    `${random() < 0.03 ? pick(['s', 'h', 'l', 't', 'z', 'x']) : type}:${pick(NAMES)}`;
  const member = () => pick(MEMBERS);
  const number = () => (random() < 0.7 ? String(below(20) - 3) : pick(NUMBERS));
  const score = () => (random() < 0.7 ? String(below(20)) : pick(SCORES));
  const bound = () => (random() < 0.3 ? pick(['-inf', '+inf', '(3', '(-inf', 'x']) : score());
  const lex = () => (random() < 0.4 ? pick(['-', '+', 'x']) : `${pick(['[', '('])}${member()}`);
  const limit = () => (random() < 0.4 ? ['LIMIT', String(below(4)), number()] : []);
  const id = () => (random() < 0.6 ? `${below(400)}` : pick(IDS));
  let nextId = 1;

  /** @type {(() => string[])[]} */
  const makers = [
    () => ['GET', key('s')],
    () => [
      'SET',
      key('s'),
      random() < 0.5 ? number() : member(),
      ...pick([[], [], ['NX'], ['PX', '100000'], ['XX'], ['PX', '0'], ['Q']]),
    ],
    () => ['INCRBY', key('s'), number()],
    () => [pick(['DEL', 'UNLINK', 'EXISTS']), ...many(() => key(pick(['s', 'h', 't'])), 2)],
    () => ['TYPE', key('s')],
    () => ['PEXPIRE', key(pick(['s', 'h', 'z'])), pick(['100000', '100000', '-1', 'x'])],
    () => ['PTTL', key(pick(['s', 'h']))],
    () => ['HSET', key('h'), ...many(() => member(), 2).flatMap((field) => [field, number()])],
    () => ['HSET', key('h'), 'x'],
    () => ['HGET', key('h'), member()],
    () => ['HMGET', key('h'), ...many(member)],
    () => ['HDEL', key('h'), ...many(member)],
    () => ['HINCRBY', key('h'), member(), number()],
    () => ['HSETNX', key('h'), member(), number()],
    () => [pick(['HGETALL', 'HKEYS', 'HVALS', 'HLEN']), key('h')],
    () => [pick(['HEXISTS', 'HSTRLEN']), key('h'), member()],
    () => ['HSCAN', key('h'), '0', 'COUNT', '1000'],
    () => [pick(['SADD', 'SREM']), key('t'), ...many(member)],
    () => [pick(['SCARD', 'SMEMBERS']), key('t')],
    () => ['SISMEMBER', key('t'), member()],
    () => ['SPOP', key('t'), pick(['100', '0', '-1'])],
    () => [pick(['RPUSH', 'LPUSH']), key('l'), ...many(member)],
    () => [pick(['LPOP', 'LLEN']), key('l')],
    () => [pick(['LRANGE', 'LTRIM']), key('l'), number(), number()],
    () => [
      'ZADD',
      key('z'),
      ...pick([[], [], ['NX'], ['XX'], ['CH']]),
      ...many(member, 3).flatMap((one) => [score(), one]),
    ],
    () => ['ZREM', key('z'), ...many(member)],
    () => ['ZSCORE', key('z'), member()],
    () => ['ZCARD', key('z')],
    () => ['ZRANGE', key('z'), number(), number(), ...pick([[], ['WITHSCORES']])],
    () => ['ZRANGEBYSCORE', key('z'), bound(), bound(), ...pick([[], ['WITHSCORES']]), ...limit()],
    () => ['ZADD', 'y', '0', member()],
    () => ['ZRANGEBYLEX', 'y', lex(), lex(), ...limit()],
    () => ['ZCOUNT', key('z'), bound(), bound()],
    () => ['ZREMRANGEBYSCORE', key('z'), bound(), bound()],
    () => ['ZPOPMIN', key('z')],
    () => [
      'XADD',
      key('x'),
      random() < 0.9 ? String((nextId += 1 + below(3))) : id(),
      ...many(() => member(), 2).flatMap((one) => ['m', one.repeat(1 + below(40))]),
    ],
    () => [
      pick(['XRANGE', 'XREVRANGE']),
      key('x'),
      `${pick(['', '', '('])}${id()}`,
      `${pick(['', '', '('])}${id()}`,
      ...pick([[], ['COUNT', '3'], ['COUNT', number()]]),
    ],
    () => ['XRANGE', key('x'), '-', '+', 'COUNT', '5'],
    () => ['XREVRANGE', key('x'), '+', '-', 'COUNT', '5'],
    () => [
      'XTRIM',
      key('x'),
      pick(['MAXLEN', 'MINID']),
      pick(trims),
      String(Math.max(0, nextId - below(500))),
    ],
    () => ['XLEN', key('x')],
    () => ['XDEL', key('x'), String(Math.max(1, nextId - below(100)))],
    // From Redis 7.4 on, `+` stands for the last entry.
    () => ['XREAD', 'COUNT', '3', 'STREAMS', key('x'), id().replace('+', 'x')],
    () => ['PUBLISH', 'channel', member()],
    () => [pick(['GET', 'HGET', 'ZADD', 'XADD', 'NONE']), key('s')],
    ...expressionMakers(random),
    ...scriptMakers(random, fence),
  ];
  return () => pick(makers)();
}

/** Scripts of one expression: what Lua itself does. @param {Random} random */
function expressionMakers(random) {
  const { below, pick } = picker(random);
  const number = () =>
    pick([
      '0',
      '1',
      '-7',
      '2.5',
      '1e15',
      '123456789012345',
      '900719925474099',
      "'12'",
      "'0x1F'",
      '1/3',
      '-0.5',
      '1e300',
      '100',
    ]);
  const text = () =>
    pick(["'abc:12'", "'ü\\0x'", "''", "'12'", '\'{"type":"a","seq":3}\'', 'ARGV[1]', "'a,b,c'"]);
  const pattern = () =>
    pick([
      "'^(%a+):(%d+)$'",
      "'%d+'",
      "'.-:'",
      "'^[^:]*'",
      "'(.-),(.*)'",
      "'()b()'",
      "'[%w_]+'",
      "'%s*$'",
      '\'^{"type":"([^"]*)"\'',
      "'[%z\\1-\\127]+'",
      "'a-'",
      "'[a-c]'",
      "'^(%x+):(%d+):?([^:]*)'",
    ]);
  /** @type {(() => string)[]} */
  const expressions = [
    () => `tostring(${number()} ${pick(['+', '-', '*', '/', '%'])} ${number()})`,
    () => `${number()} .. ':' .. ${number()}`,
    () => `string.format('%.0f', ${number()})`,
    () => `string.format('%s %.14g|%%', ${text()}, ${number()})`,
    () => `string.match(${text()}, ${pattern()})`,
    () => `{string.find(${text()}, ${pattern()}, ${pick(['1', '2', '-1', '10'])})}`,
    () => `{string.find(${text()}, ${text()}, 1, true)}`,
    () =>
      `string.sub(${text()}, ${pick(['1', '2', '-2', '0', '9'])}, ${pick(['-1', '2', '0', '-3', '9'])})`,
    () => `#${text()}`,
    () => `tonumber(${pick([text(), number(), "' 12 '", "'1e3'", "'x'", 'nil'])})`,
    () => `math.${pick(['max', 'min'])}(${number()}, ${number()}, 3)`,
    () => `math.floor(${number()})`,
    () => `{${number()}, ${pick(['nil', 'false', 'true', text()])}, ${number()}}`,
    () => `{unpack({1, 2, ${number()}}, ${1 + below(3)})}`,
    () => `${text()} < ${text()} and ${number()} or ${text()}`,
    () => `(${number()} ~= ${number()}) == not nil`,
    () => `struct.pack('>I8', ${pick(['1', '258', '4294967296'])}) .. struct.pack('>I4', 7)`,
    () => `{struct.unpack('>I8', '\\0\\0\\0\\0\\0\\1\\0\\2\\3', ${1 + below(3)})}`,
    () => `table.concat({${text()}, 'b', ${number()}}, ${text()})`,
    () => `redis.call('SET', KEYS[1], ${number()})`,
    () => `redis.call('INCRBY', KEYS[1], ${number()})`,
    () => `{redis.pcall('${pick(['GET', 'HGET', 'NONE', 'HGETALL'])}', KEYS[1]), 1}`,
    () => `redis.pcall('HSET', KEYS[1], 'a').err`,
    () => `type(redis.call('GET', 'absent'))`,
    () => `redis.call('ZRANGE', 'z:a', 0, -1, 'WITHSCORES')`,
  ];
  /** @type {(() => string)[]} */
  const statements = [
    () => `local t = {} for i = 1, ${below(6)} do t[#t + 1] = i * ${number()} end return t`,
    () => `local t = {} for i = ${below(5)}, 0, -1 do t[i + 1] = tostring(i) end return #t`,
    () => `local a, b, c = (function() return 1, ${number()} end)() return {a, b, c == nil}`,
    () => `local t = {} t[#t + 1], t[#t + 2] = 'a', 'b' return t`,
    () => `local n = 0 repeat local x = n n = n + 1 until x >= ${below(4)} return n`,
    () => `local s = '' for _, v in ipairs({'a', ${text()}, nil, 'd'}) do s = s .. v end return s`,
    () => `local n = 0 while true do n = n + 1 if n > ${below(9)} then break end end return n`,
    () => `local x = 1 local x = x + ${number()} do local x = 5 end return tostring(x)`,
    () =>
      `return ${pick(['nothing', '{} + 1', "'x' + 1", 'nil .. 1', 'nil < 1', '#5', 'KEYS.a.b'])}`,
    () => `return redis.error_reply(${pick(["'MY own'", "'own'"])})`,
    () =>
      `local key = KEYS[1] local function f(...) local a, b = ... return b, a end return {f(key, ARGV[1])}`,
  ];
  const evaluated = (/** @type {string} */ body) => [
    'EVAL',
    body,
    '1',
    pick(['s:a', 's:b', 'h:a']),
    pick(MEMBERS),
  ];
  return [
    ...Array.from({ length: 4 }, () => () => evaluated(`return ${pick(expressions)()}`)),
    ...Array.from({ length: 2 }, () => () => evaluated(pick(statements)())),
  ];
}

const STATE_KEYS = ['smeta', 'values', 'log', 'removed', 'sums'];

/** Fanfare's own scripts, with arguments like those of its workers. @param {Random} random @param {string} fence */
function scriptMakers(random, fence) {
  const { below, pick } = picker(random);
  const record = `local IS_SHARDED, MAX_ENTRIES, MAX_PAYLOADS = ${pick(['true', 'false'])}, 50, 20\n${scriptOf('record')}`;
  const events = record + scriptOf('events');
  const publishHistory = scriptOf('batch', 'stream', 'publishing', 'publish-history');
  const readHistory = scriptOf('batch', 'stream', 'reading', 'read-history');
  const publishState = scriptOf('batch', 'stream', 'publishing', 'state', 'publish-state');
  const readState = scriptOf('stream', 'reading', 'state', 'read-state');
  const epoch = () => `00000000000000${pick(['0a', '0b', '0c'])}`;
  const incarnation = () => {
    const begin = pick([fence, fence, '0'.repeat(32)]);
    return random() < 0.02
      ? ''
      : random() < 0.05
        ? 'trust'
        : random() < 0.2
          ? begin
          : begin + epoch();
  };
  const epochs = () => epoch() + (random() < 0.05 ? epoch() : '');
  const expected = () =>
    random() < 0.5 ? '' : `${pick(['', '', epoch()])}:${below(random() < 0.5 ? 3 : 300)}`;
  const keeping = () => `100000 ${pick(['', 'f1', 'f2'])}`;
  const occupancy = scriptOf('batch') + record + scriptOf('occupancy');
  const room = () => pick(['r1', 'r2']);
  const publication = () => `\0\0\0\x05${pick(['hello', 'world'])}`;
  // Kind, six bytes, the lengths of the audience, the key and the sender, and these.
  const addressed = (/** @type {string} */ audience) =>
    `${audience === '' ? '\x01' : '\x07'}\0\0\0\0\0\0\0${String.fromCharCode(audience.length)}\0\x01\x02me${audience}k1`;
  const ofState = () => (random() < 0.5 ? publication() : addressed(pick(['', 'a', 'a,b'])));
  const user = () => pick(['"ann"', '"bob"', '"cid"', '"dot"']);
  const session = () => pick(['w1', 'w2', 'w3']);
  return [
    () => {
      const name = room();
      const keys = [`{${name}}:members`, `{${name}}:owners`, `{${name}}:users:${session()}`];
      const changes = Array.from({ length: 1 + below(4) }, () => {
        const one = user();
        return [
          pick(['join', 'leave', 'restore', 'announceJoin', 'leaveLost', 'announceLeave']),
          one,
          `{"user":${one}}`,
        ];
      });
      return [
        'EVAL',
        scriptOf('batch') + scriptOf('members'),
        '3',
        ...keys,
        `room:${name}`,
        'PUBLISH',
        '+',
        '-',
        pick(['2', '100']),
        pick(['0', '0', '256']),
        ...changes.flat(),
      ];
    },
    () => {
      const name = room();
      const keys = [
        `{${name}}:meta`,
        `{${name}}:stream`,
        ...pick([[], [`{${name}}:once${below(3)}`]]),
      ];
      const count = pick(['0', '1', '1', '2']);
      const body = count === '0' ? '' : publication().repeat(Number(count));
      return [
        'EVAL',
        publishHistory,
        String(keys.length),
        ...keys,
        incarnation(),
        epochs(),
        `room:${name}`,
        count,
        body,
        keeping(),
        ...pick([[], [expected()], [expected(), '100', '600000', '700000']]),
      ];
    },
    () => {
      const name = room();
      const [after, limit] = [String(below(300)), pick(['1', '10', '1000'])];
      const before = random() < 0.3 ? epoch() + String(below(300)) : '';
      return [
        'EVAL',
        readHistory,
        '2',
        `{${name}}:meta`,
        `{${name}}:stream`,
        incarnation(),
        epochs(),
        after,
        limit,
        pick(['10', '1000', '100000']),
        '600000',
        pick(['', '1']),
        pick(['', '1']),
        pick(['', '1']),
        before,
        '100',
      ];
    },
    () => {
      const name = room();
      const keys = [
        ...STATE_KEYS.map((key) => `{${name}}:${key}`),
        ...pick([[], [`{${name}}:sonce${below(3)}`]]),
      ];
      const changes = Array.from({ length: keys.length === 6 ? 1 : 1 + below(3) }, () => [
        pick(MEMBERS),
        ofState(),
        pick(['', '', '1']),
      ]);
      return [
        'EVAL',
        publishState,
        String(keys.length),
        ...keys,
        incarnation(),
        epochs(),
        `room:${name}`,
        keeping(),
        pick(['3', '100']),
        pick(['60', '10000']),
        '600000',
        expected(),
        ...changes.flat(),
      ];
    },
    () => {
      const name = room();
      const since = random() < 0.3 ? [epoch(), String(below(100))] : ['', ''];
      return [
        'EVAL',
        readState,
        '5',
        ...STATE_KEYS.map((key) => `{${name}}:${key}`),
        incarnation(),
        epochs(),
        String(below(20)),
        pick(['0', '2', '100']),
        pick(['10', '10000']),
        pick(['', '1']),
        pick(['', '1']),
        ...since,
        ...pick([[], [], [pick(MEMBERS), pick(MEMBERS)]]),
      ];
    },
    () => [
      'EVAL',
      scriptOf('read-members'),
      '1',
      `{${room()}}:members`,
      pick(['1', '100']),
      '16777216',
    ],
    () => [
      'EVAL',
      scriptOf('sessions'),
      '3',
      'workers',
      'dead',
      'mark',
      session(),
      '600000',
      '15000',
      'm1',
      pick(['0', '1']),
      ...pick([[], [session()]]),
    ],
    () => ['EVAL', scriptOf('cleared'), '2', 'dead', 'cleared', session()],
    () => [
      'EVAL',
      scriptOf('once'),
      '1',
      `once:${room()}${below(3)}`,
      'channel',
      publication(),
      pick(['', 'f1', 'f2']),
      '100000',
    ],
    () => [
      'EVAL',
      scriptOf('revoke'),
      '3',
      'revoked',
      'expiry',
      'version',
      user(),
      String(Date.now()),
      String(Date.now() + 1e6),
      String(Date.now()),
      pick(['3', '100']),
      '1',
    ],
    () => [
      'EVAL',
      scriptOf('visits'),
      '1',
      'visits',
      pick(['claim', 'done']),
      session(),
      '10000',
      'p:1',
      `m:${Date.now() + 60_000}`,
      `n:${Date.now() - 900000}`,
    ],
    () => ['EVAL', scriptOf('shard'), '1', 'shard'],
    () => [
      'EVAL',
      scriptOf('count-connections'),
      '2',
      'index',
      'counts',
      pick(['add', 'count', 'remove']),
      `${room()} ${session()}`,
      String(below(5)),
    ],
    () => [
      'EVAL',
      scriptOf('occupied-rooms'),
      '2',
      'index',
      'counts',
      '-',
      '+',
      String(1 + below(3)),
    ],
    () => [
      'EVAL',
      scriptOf('lease'),
      '2',
      'lease',
      'state',
      pick(['acquire', 'renew', 'release']),
      '100000',
      '1',
      '',
      pick(['', 'first']),
    ],
    () => {
      const name = room();
      return [
        'EVAL',
        events,
        '3',
        `${name}:sequence`,
        `${name}:out`,
        `${name}:state`,
        'message.published',
        pick(['', '', `epoch:${below(5)}`]),
        `"room":"${name}","payload":{"a":1}`,
        '',
      ];
    },
    () => {
      const name = room();
      const counts = pick([
        ['', '', '', '', '', '', ''],
        [String(1 + below(3)), 'channel', 'PUBLISH', 'h', pick(['', 'room.count']), '100', '1000'],
      ]);
      return [
        'EVAL',
        occupancy,
        '5',
        `${name}:sessions`,
        `${name}:sequence`,
        `${name}:out`,
        `${name}:state`,
        `${name}:counts`,
        session(),
        pick(['in', 'out']),
        pick(['', 'room.occupied']),
        pick(['', 'room.vacated']),
        `"room":"${name}"`,
        ...counts,
      ];
    },
  ];
}
