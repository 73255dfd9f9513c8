// session.js: one client's connection to the model: its requests, its user, its subscriptions.

import { AclUser } from './acl.js';
import { COMMANDS, globOf, integer } from './commands.js';
import { encodeReply, Failure, OK, Pairs, Push, RequestReader, Status } from './resp.js';
import { checkArity, unknownCommand } from './server.js';

/** @import { Reply } from './resp.js' */
/** @import { RedisServer } from './server.js' */

/** Commands that a transaction does not queue. */
const AT_ONCE = new Set(['MULTI', 'EXEC', 'DISCARD', 'WATCH', 'QUIT']);

export class Session {
  /**
   * @param {RedisServer} server
   * @param {object} wire
   * @param {(text: string) => void} wire.write
   * @param {() => void} wire.close called when the server ends the connection
   */
  constructor(server, wire) {
    this.server = server;
    this.wire = wire;
    this.reader = new RequestReader();
    this.id = ++server.clients;
    /** @type {2|3} */
    this.version = 2;
    this.name = '';
    const user = /** @type {AclUser} */ (server.users.get('default'));
    /** @type {AclUser|null} */
    this.user = user.isOn && !user.needsPassword ? user : null;
    this.isTracking = false;
    /** The next command may use a slot that is moving here. */
    this.isAsking = false;
    /** @type {Set<string>} */
    this.channels = new Set();
    /** @type {Set<string>} */
    this.shardChannels = new Set();
    /** @type {string[][]|null} null: no transaction */
    this.queue = null;
    this.isAborted = false;
    server.sessions.add(this);
  }

  /** @param {string} text in Latin-1, in any pieces */
  receive(text) {
    for (const words of this.reader.read(text)) {
      const reply = this.#answer(words);
      if (reply !== undefined) this.send(reply);
    }
  }

  /** @param {Reply} reply */
  send(reply) {
    this.wire.write(encodeReply(reply, this.version));
  }

  get isSubscriber() {
    return this.channels.size + this.shardChannels.size > 0;
  }

  /** The server ends the connection. */
  close() {
    this.end();
    this.wire.close();
  }

  /** The connection is gone. */
  end() {
    const { server } = this;
    server.sessions.delete(this);
    for (const channel of this.channels) drop(server.channels, channel, this);
    for (const channel of this.shardChannels) drop(server.shardChannels, channel, this);
  }

  /** @param {string[]} words @returns {Reply|undefined} undefined if it has been answered */
  #answer(words) {
    const name = words[0].toUpperCase();
    try {
      if (this.queue !== null && !AT_ONCE.has(name)) return this.#enqueue(words, name);
      return this.#run(words, name);
    } catch (error) {
      if (error instanceof Failure) return error;
      throw error;
    }
  }

  /** @param {string[]} words @param {string} name @returns {Reply} */
  #enqueue(words, name) {
    try {
      const command = COMMANDS[name];
      if (command === undefined && !(name in SESSION)) throw unknownCommand(words);
      if (command !== undefined) {
        checkArity(words, command.arity);
        this.#user(words).check(words, command.keysOf(words), []);
        this.server.checkSlots(command.keysOf(words));
      }
    } catch (error) {
      this.isAborted = true;
      throw error;
    }
    /** @type {string[][]} */ (this.queue).push(words);
    return new Status('QUEUED');
  }

  /** @param {string[]} words @param {string} name @returns {Reply|undefined} */
  #run(words, name) {
    const { server } = this;
    server.isAsking = this.isAsking;
    this.isAsking = false;
    if (server.isRefused(name)) throw new Failure(/** @type {string} */ (server.refusesAll));
    const own = SESSION[name];
    if (own === undefined) {
      const user = this.#user(words);
      return server.run(words, user);
    }
    checkArity(words, own.arity);
    if (name !== 'AUTH' && name !== 'HELLO') {
      const user = this.#user(words);
      user.check(words, own.keysOf?.(words) ?? [], own.channelsOf?.(words) ?? []);
      server.checkSlots(own.keysOf?.(words) ?? []);
    }
    server.countCall(name);
    return own.run(this, words);
  }

  /** @param {string[]} words @returns {AclUser} @throws {Failure} without a user */
  #user(words) {
    if (this.user !== null) return this.user;
    throw new Failure(
      words[0].toUpperCase() === 'HELLO'
        ? 'NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time'
        : 'NOAUTH Authentication required.',
    );
  }

  /** @param {string} name @param {string} password */
  login(name, password) {
    const user = this.server.authenticate(name, password);
    if (user === null)
      throw new Failure('WRONGPASS invalid username-password pair or user is disabled.');
    this.user = user;
  }

  /** @param {string[]} channels @param {boolean} isSharded */
  subscribe(channels, isSharded) {
    const own = isSharded ? this.shardChannels : this.channels;
    const all = isSharded ? this.server.shardChannels : this.server.channels;
    if (isSharded) this.server.checkChannels(channels);
    for (const channel of channels) {
      own.add(channel);
      const those = all.get(channel);
      if (those === undefined) all.set(channel, new Set([this]));
      else those.add(this);
      this.send(new Push([isSharded ? 'ssubscribe' : 'subscribe', channel, own.size]));
    }
  }

  /** @param {string[]} channels none: all @param {boolean} isSharded */
  unsubscribe(channels, isSharded) {
    const own = isSharded ? this.shardChannels : this.channels;
    const all = isSharded ? this.server.shardChannels : this.server.channels;
    const kind = isSharded ? 'sunsubscribe' : 'unsubscribe';
    const those = channels.length === 0 ? [...own] : channels;
    for (const channel of those) {
      if (own.delete(channel)) drop(all, channel, this);
      this.send(new Push([kind, channel, own.size]));
    }
    if (those.length === 0) this.send(new Push([kind, null, 0]));
  }

  /** @returns {Reply[]} */
  execute() {
    const queue = /** @type {string[][]} */ (this.queue);
    this.queue = null;
    return queue.map((words) => {
      try {
        return this.#run(words, words[0].toUpperCase()) ?? null;
      } catch (error) {
        if (error instanceof Failure) return error;
        throw error;
      }
    });
  }
}

/** @param {Map<string, Set<Session>>} channels @param {string} channel @param {Session} session */
function drop(channels, channel, session) {
  const those = channels.get(channel);
  those?.delete(session);
  if (those?.size === 0) channels.delete(channel);
}

/**
 * @typedef {object} SessionCommand
 * @property {number} arity
 * @property {(words: string[]) => string[]} [keysOf]
 * @property {(words: string[]) => string[]} [channelsOf]
 * @property {(session: Session, words: string[]) => Reply|undefined} run undefined if it has answered
 */

const rest = (/** @type {string[]} */ words) => words.slice(1);
const keysOfScript = (/** @type {string[]} */ words) => words.slice(3, 3 + Number(words[2]));

/** @param {Session} session @param {string[]} words @param {string} sha @returns {Reply} */
function evaluate({ server, user }, words, sha) {
  const count = integer(words[2]);
  if (count > words.length - 3)
    throw new Failure("ERR Number of keys can't be greater than number of args");
  return server.scripts.run(
    sha,
    words.slice(3, 3 + count),
    words.slice(3 + count),
    /** @type {AclUser} */ (user),
  );
}

/** Commands of a connection. @type {Record<string, SessionCommand>} */
const SESSION = {
  PING: {
    arity: -1,
    run: (_, [, text]) => text ?? new Status('PONG'),
  },
  ECHO: { arity: 2, run: (_, [, text]) => text },
  SELECT: { arity: 2, run: () => OK },
  READONLY: { arity: 1, run: () => OK },
  READWRITE: { arity: 1, run: () => OK },
  ASKING: {
    arity: 1,
    run: (session) => {
      session.isAsking = true;
      return OK;
    },
  },
  QUIT: {
    arity: 1,
    run: (session) => {
      session.send(OK);
      session.close();
      return undefined;
    },
  },
  AUTH: {
    arity: -2,
    run: (session, words) => {
      session.login(words.length > 2 ? words[1] : 'default', /** @type {string} */ (words.at(-1)));
      return OK;
    },
  },
  HELLO: {
    arity: -1,
    run: (session, words) => {
      const version = words[1] ?? String(session.version);
      if (version !== '2' && version !== '3')
        throw new Failure('NOPROTO unsupported protocol version');
      for (let i = 2; i < words.length; i++) {
        const option = words[i].toUpperCase();
        if (option === 'AUTH') {
          session.login(words[i + 1], words[i + 2]);
          i += 2;
        } else if (option === 'SETNAME') session.name = words[++i];
        else throw new Failure(`ERR Syntax error in HELLO option '${words[i]}'`);
      }
      if (session.user === null)
        throw new Failure(
          'NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time',
        );
      session.version = version === '3' ? 3 : 2;
      const { server } = session;
      const pairs = ['server', 'redis', 'version', server.version, 'proto', session.version];
      const role = server.primary === null ? 'master' : 'replica';
      const about = ['id', session.id, 'mode', server.mode, 'role', role, 'modules', []];
      return new Pairs([...pairs, ...about]);
    },
  },
  CLIENT: {
    arity: -2,
    run: (session, [, given, ...words]) => {
      const sub = given.toUpperCase();
      if (sub === 'ID') return session.id;
      if (sub === 'GETNAME') return session.name || null;
      if (sub === 'TRACKING') session.isTracking = words[0].toUpperCase() === 'ON';
      else if (sub === 'SETNAME') session.name = words[0];
      else if (sub === 'KILL') return killClients(session, words);
      else if (sub === 'LIST')
        return [...session.server.sessions]
          .map(({ id, name, user }) => `id=${id} name=${name} user=${user?.name}`)
          .join('\n');
      else if (!['SETINFO', 'NO-EVICT', 'NO-TOUCH', 'REPLY'].includes(sub))
        throw new Failure(`ERR unknown subcommand '${given}'. Try CLIENT HELP.`);
      return OK;
    },
  },

  MULTI: {
    arity: 1,
    run: (session) => {
      if (session.queue !== null) throw new Failure('ERR MULTI calls can not be nested');
      session.queue = [];
      session.isAborted = false;
      return OK;
    },
  },
  EXEC: {
    arity: 1,
    run: (session) => {
      if (session.queue === null) throw new Failure('ERR EXEC without MULTI');
      if (!session.isAborted) return session.execute();
      session.queue = null;
      throw new Failure('EXECABORT Transaction discarded because of previous errors.');
    },
  },
  DISCARD: {
    arity: 1,
    run: (session) => {
      if (session.queue === null) throw new Failure('ERR DISCARD without MULTI');
      session.queue = null;
      return OK;
    },
  },

  SUBSCRIBE: {
    arity: -2,
    channelsOf: rest,
    run: (session, [, ...channels]) => void session.subscribe(channels, false),
  },
  UNSUBSCRIBE: {
    arity: -1,
    run: (session, [, ...channels]) => void session.unsubscribe(channels, false),
  },
  SSUBSCRIBE: {
    arity: -2,
    channelsOf: rest,
    run: (session, [, ...channels]) => void session.subscribe(channels, true),
  },
  SUNSUBSCRIBE: {
    arity: -1,
    run: (session, [, ...channels]) => void session.unsubscribe(channels, true),
  },
  PUBSUB: {
    arity: -2,
    run: ({ server }, [, given, ...words]) => {
      const sub = given.toUpperCase();
      const channels = sub.startsWith('SHARD') ? server.shardChannels : server.channels;
      if (sub.endsWith('NUMSUB'))
        return words.flatMap((channel) => [channel, channels.get(channel)?.size ?? 0]);
      if (sub === 'NUMPAT') return 0;
      const glob = globOf(words[0] ?? '*');
      return [...channels.keys()].filter((channel) => glob.test(channel));
    },
  },

  SCRIPT: {
    arity: -2,
    run: ({ server }, [, given, ...words]) => {
      const sub = given.toUpperCase();
      if (sub === 'LOAD') return server.scripts.load(words[0]);
      if (sub === 'EXISTS') return words.map((sha) => (server.scripts.scripts.has(sha) ? 1 : 0));
      if (sub === 'FLUSH') server.scripts.flush();
      else if (sub === 'KILL') throw new Failure('NOTBUSY No scripts in execution right now.');
      return OK;
    },
  },
  EVAL: {
    arity: -3,
    keysOf: keysOfScript,
    run: (session, words) => evaluate(session, words, session.server.scripts.load(words[1])),
  },
  EVALSHA: {
    arity: -3,
    keysOf: keysOfScript,
    run: (session, words) => evaluate(session, words, words[1]),
  },

  ACL: {
    arity: -2,
    run: (session, [, given, name, ...rules]) => {
      const { server } = session;
      const sub = given.toUpperCase();
      if (sub === 'WHOAMI') return session.user?.name ?? null;
      if (sub === 'SETUSER') {
        const user = server.users.get(name) ?? new AclUser(name);
        for (const rule of rules) user.apply(rule);
        server.users.set(name, user);
        if (!user.isOn)
          for (const one of [...server.sessions])
            if (one.user === user && one !== session) one.close();
        return OK;
      }
      if (sub !== 'DELUSER') throw new Failure(`ERR unknown subcommand '${given}'. Try ACL HELP.`);
      server.users.delete(name);
      for (const one of [...server.sessions]) if (one.user?.name === name) one.close();
      return 1;
    },
  },
  CONFIG: {
    arity: -2,
    run: ({ server }, [, given, ...words]) => {
      const sub = given.toUpperCase();
      if (sub === 'GET') {
        const glob = globOf(words[0]);
        return new Pairs([...server.config].filter(([name]) => glob.test(name)).flat());
      }
      if (sub === 'SET')
        for (let i = 0; i < words.length; i += 2)
          configure(server, words[i].toLowerCase(), words[i + 1]);
      return OK;
    },
  },
  CLUSTER: {
    arity: -2,
    run: ({ server }, [, given]) => {
      const sub = given.toUpperCase();
      if (server.cluster === null)
        throw new Failure('ERR This instance has cluster support disabled');
      if (sub === 'INFO')
        return `cluster_enabled:1\r\ncluster_state:${server.cluster.isUp ? 'ok' : 'fail'}\r\ncluster_slots_ok:16384\r\n`;
      if (sub === 'SLOTS') return slotsOf(server);
      throw new Failure(`ERR unknown subcommand '${given}'. Try CLUSTER HELP.`);
    },
  },
  SENTINEL: {
    arity: -2,
    run: ({ server: { sentinel } }, words) => {
      const [, given, name] = words;
      if (sentinel === null) throw unknownCommand(words);
      const primary = sentinel.primaryOf(name);
      const sub = given.toUpperCase();
      if (sub === 'GET-MASTER-ADDR-BY-NAME')
        return primary === null ? null : [primary.host, String(primary.port)];
      if (primary === null) throw new Failure('ERR No such master with that name');
      if (sub === 'SENTINELS') return sentinel.sentinels().map(instance('sentinel'));
      if (sub === 'REPLICAS' || sub === 'SLAVES') return sentinel.replicas().map(instance('slave'));
      throw new Failure(`ERR Unknown sentinel subcommand '${given}'`);
    },
  },
  MEMORY: {
    arity: -2,
    keysOf: (words) => words.slice(2, 3),
    run: ({ server }, [, , name]) => server.keys.sizeOf(name),
  },
  ROLE: {
    arity: 1,
    run: ({ server }) =>
      server.primary === null
        ? ['master', server.offset, []]
        : [
            'slave',
            server.primary.address.host,
            server.primary.address.port,
            'connected',
            server.offset,
          ],
  },
  SWAPDB: { arity: 3, run: ({ server }) => server.swap() },
  FLUSHALL: { arity: -1, run: ({ server }) => server.empty() },
  FLUSHDB: { arity: -1, run: ({ server }) => server.empty() },
};

/** What a Sentinel says of a server. @param {'sentinel'|'slave'} flags */
function instance(flags) {
  return (/** @type {{host: string, port: number}} */ { host, port }) =>
    new Pairs(['name', `${host}:${port}`, 'ip', host, 'port', String(port), 'flags', flags]);
}

/** @param {Session} session @param {string[]} words @returns {Reply} */
function killClients({ server }, words) {
  const [filter, value] = [words[0]?.toUpperCase(), words[1]];
  const those = [...server.sessions].filter((session) => {
    if (filter === 'ID') return String(session.id) === value;
    if (filter === 'USER') return session.user?.name === value;
    if (filter !== 'TYPE') return false;
    const isSubscriber = session.channels.size + session.shardChannels.size > 0;
    return value === 'pubsub' ? isSubscriber : value === 'normal' && !isSubscriber;
  });
  for (const session of those) session.close();
  return those.length;
}

/** @param {RedisServer} server @param {string} name @param {string} value */
function configure(server, name, value) {
  server.config.set(name, value);
  if (name === 'maxmemory') server.isFull = value !== '0' && Number(value) < 1_000_000;
  if (name === 'min-replicas-to-write')
    server.refusesWrites =
      Number(value) > server.replicas.size ? 'NOREPLICAS Not enough good replicas to write.' : null;
  if (name === 'requirepass') {
    const user = /** @type {AclUser} */ (server.users.get('default'));
    user.passwords.clear();
    user.apply(value === '' ? 'nopass' : `>${value}`);
  }
}

/** @param {RedisServer} server @returns {Reply} */
function slotsOf({ cluster }) {
  const node = (/** @type {RedisServer} */ { address, runId }) => [
    address.host,
    address.port,
    runId,
    [],
  ];
  return /** @type {import('./server.js').ClusterView} */ (cluster)
    .shards()
    .flatMap(({ server, replicas, ranges }) =>
      ranges.map(([from, to]) => [from, to, node(server), ...replicas.map(node)]),
    );
}
