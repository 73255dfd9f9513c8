// server.js: a model of redis-server: keys, scripts, channels, users, replicas, and the troubles in
// which a real one refuses commands. The model has no clock and no network of its own.

import { createHash } from 'node:crypto';
import { slotOf } from '../../../src/backend/redis/slots.js';
import { AclUser } from './acl.js';
import { COMMANDS } from './commands.js';
import { cloneKey, Keyspace } from './keyspace.js';
import { Failure, OK, Push } from './resp.js';
import { ScriptRunner } from './scripts.js';

/** @import { Reply } from './resp.js' */
/** @import { Session } from './session.js' */
/** @import { Key, Snapshot } from './keyspace.js' */

/**
 * @typedef {object} World what a server has from outside
 * @property {() => number} now in milliseconds
 * @property {() => number} random from 0 to 1
 */
/**
 * One change, for replicas and for what a restart finds.
 * @typedef {object} Change
 * @property {number} offset after it
 * @property {number} ms
 * @property {[name: string, key: Key|null][]} keys as they are after it
 * @property {{channel: string, message: string, isSharded: boolean}|null} publication
 */
/**
 * What a cluster's nodes agree on.
 * @typedef {object} ClusterView
 * @property {(slot: number) => RedisServer|null} ownerOf
 * @property {() => {server: RedisServer, replicas: RedisServer[], ranges: [number, number][]}[]} shards
 */

const REPLICAS = new Set(['READONLY', 'READWRITE']);

export class RedisServer {
  /**
   * @param {World} world
   * @param {object} [options]
   * @param {string} [options.version]
   * @param {{host: string, port: number}} [options.address]
   * @param {ClusterView|null} [options.cluster]
   */
  constructor(
    world,
    { version = '7.0.15', address = { host: '127.0.0.1', port: 6379 }, cluster = null } = {},
  ) {
    this.world = world;
    this.version = version;
    this.address = address;
    this.cluster = cluster;
    this.keys = new Keyspace(world.now);
    /** Of another database. @type {Map<string, Key>} */
    this.otherKeys = new Map();
    this.scripts = new ScriptRunner(this);
    /** @type {Map<string, AclUser>} */
    this.users = new Map([['default', AclUser.default()]]);
    /** @type {Set<Session>} */
    this.sessions = new Set();
    /** Who hears a channel, in the order of subscription. @type {Map<string, Set<Session>>} */
    this.channels = new Map();
    /** The same for sharded channels. @type {Map<string, Set<Session>>} */
    this.shardChannels = new Map();
    /** @type {RedisServer|null} */
    this.primary = null;
    /** @type {Set<(change: Change) => void>} */
    this.replicas = new Set();
    this.config = new Map([['maxmemory', '0']]);
    /** Why commands that write are refused; null: they are not. @type {string|null} */
    this.refusesWrites = null;
    this.isFull = false;
    this.isInScript = false;
    /** Has the script that runs written? */
    this.hasWritten = false;
    /** Why all commands are refused: LOADING, BUSY. @type {string|null} */
    this.refusesAll = null;
    this.runId = this.#id();
    this.replicationId = this.#id();
    this.secondId = '0'.repeat(40);
    this.offset = 0;
    this.startedMs = world.now();
    this.clients = 0;
    /** How often each command has run. @type {Map<string, number>} */
    this.calls = new Map();
  }

  /** @returns {string} 40 hexadecimal digits */
  #id() {
    return Array.from({ length: 40 }, () => Math.floor(this.world.random() * 16).toString(16)).join(
      '',
    );
  }

  /** An index below `items`. @param {number} items @returns {number} */
  pick = (items) => Math.floor(this.world.random() * items);

  get now() {
    return this.world.now;
  }

  /**
   * Runs a command on keys, for a client or a script.
   * @param {string[]} words
   * @param {AclUser} user
   * @returns {Reply}
   */
  run(words, user) {
    const name = words[0].toUpperCase();
    if (name === 'PUBLISH' || name === 'SPUBLISH') return this.#publish(words, user);
    if (name === 'INFO') {
      user.check(words, [], []);
      return this.info(words[1]);
    }
    const command = COMMANDS[name];
    if (command === undefined) throw unknownCommand(words);
    checkArity(words, command.arity);
    const keys = command.keysOf(words);
    user.check(words, keys, []);
    this.checkSlots(keys);
    this.countCall(name);
    // Once a script has written, nothing stops it midway.
    if (command.isWrite && !this.hasWritten) this.#checkWrite(command.addsMemory);
    if (command.isWrite && this.isInScript) this.hasWritten = true;
    const reply = command.run(this, words);
    if (this.keys.changed.size > 0) this.#record(words, null);
    return reply;
  }

  /** @template T @param {() => T} script @returns {T} */
  runScript(script) {
    this.isInScript = true;
    this.hasWritten = false;
    try {
      return script();
    } finally {
      this.isInScript = this.hasWritten = false;
    }
  }

  /** @param {string} name of a command */
  countCall(name) {
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1);
  }

  /** @param {boolean} addsMemory @throws {Failure} */
  #checkWrite(addsMemory) {
    if (this.primary !== null)
      throw new Failure("READONLY You can't write against a read only replica.");
    if (this.refusesWrites !== null) throw new Failure(this.refusesWrites);
    if (addsMemory && this.isFull)
      throw new Failure("OOM command not allowed when used memory > 'maxmemory'.");
  }

  /** @param {string[]} keys @throws {Failure} if the cluster has them elsewhere */
  checkSlots(keys) {
    if (this.cluster === null || keys.length === 0) return;
    const slots = new Set(keys.map((key) => slotOf(key)));
    if (slots.size > 1) throw new Failure("CROSSSLOT Keys in request don't hash to the same slot");
    const [slot] = slots;
    const owner = this.cluster.ownerOf(slot);
    if (owner === null) throw new Failure('CLUSTERDOWN Hash slot not served');
    if (owner === this) return;
    throw new Failure(`MOVED ${slot} ${owner.address.host}:${owner.address.port}`);
  }

  /** @param {string[]} words @param {AclUser} user @returns {Reply} */
  #publish(words, user) {
    checkArity(words, 3);
    const [given, channel, message] = words;
    user.check(words, [], [channel]);
    const isSharded = given.toUpperCase() === 'SPUBLISH';
    if (isSharded) this.checkSlots([channel]);
    const count = this.deliver({ channel, message, isSharded });
    if (this.primary === null) this.#record(words, { channel, message, isSharded });
    if (this.cluster !== null && !isSharded) {
      for (const { server } of this.cluster.shards())
        if (server !== this) server.deliver({ channel, message, isSharded });
    }
    return count;
  }

  /** @param {{channel: string, message: string, isSharded: boolean}} publication @returns {number} */
  deliver({ channel, message, isSharded }) {
    const sessions = (isSharded ? this.shardChannels : this.channels).get(channel);
    if (sessions === undefined) return 0;
    const push = new Push([isSharded ? 'smessage' : 'message', channel, message]);
    for (const session of sessions) session.send(push);
    return sessions.size;
  }

  /** @param {string[]} words @param {Change['publication']} publication */
  #record(words, publication) {
    this.offset += words.reduce((sum, word) => sum + word.length + 5, 5);
    const changed = [...this.keys.changed];
    this.keys.changed.clear();
    if (this.replicas.size === 0) return;
    const change = {
      offset: this.offset,
      ms: this.now(),
      publication,
      keys: changed.map((name) => {
        const key = this.keys.keys.get(name);
        return /** @type {[string, Key|null]} */ ([name, key === undefined ? null : cloneKey(key)]);
      }),
    };
    for (const replica of this.replicas) replica(change);
  }

  /** @param {Change} change of the primary */
  applyChange({ offset, keys, publication }) {
    for (const [name, key] of keys) this.keys.replace(name, key);
    if (publication !== null) this.deliver(publication);
    this.offset = offset;
  }

  /**
   * Follows a primary from its present state on. Whoever calls this passes the changes on.
   * @param {RedisServer} primary
   */
  follow(primary) {
    if (primary.replicas.size === 0 && primary.secondId === '0'.repeat(40)) {
      // A primary without a backlog gets another ID with its first replica.
      primary.replicationId = primary.#id();
    }
    const hadKeys = this.keys.keys.size > 0;
    this.primary = primary;
    this.keys.restore(primary.keys.snapshot());
    this.replicationId = primary.replicationId;
    this.secondId = '0'.repeat(40);
    this.offset = primary.offset;
    if (hadKeys) this.#announceEmptied();
  }

  /** Becomes a primary. */
  promote() {
    this.primary = null;
    this.secondId = this.replicationId;
    this.replicationId = this.#id();
  }

  /**
   * Starts again. All connections are gone.
   * @param {Snapshot|null} snapshot what it finds on its disk
   * @param {boolean} isRdb only a snapshot file, and no log of appended commands, names the ID that
   *   the server had
   */
  restart(snapshot = null, isRdb = true) {
    for (const session of [...this.sessions]) session.close();
    this.keys.restore(snapshot ?? new Map());
    this.scripts.flush();
    this.channels.clear();
    this.shardChannels.clear();
    this.runId = this.#id();
    this.secondId = snapshot === null || !isRdb ? '0'.repeat(40) : this.replicationId;
    this.replicationId = this.#id();
    if (snapshot === null || !isRdb) this.offset = 0;
    this.startedMs = this.now();
  }

  empty() {
    this.keys.clear();
    this.#record(['FLUSHALL'], null);
    this.#announceEmptied();
    return OK;
  }

  /** Exchanges the first database and another one. */
  swap() {
    [this.keys.keys, this.otherKeys] = [this.otherKeys, this.keys.keys];
    this.#announceEmptied();
    return OK;
  }

  #announceEmptied() {
    for (const session of this.sessions)
      if (session.isTracking) session.send(new Push(['invalidate', null]));
  }

  /** @param {string} password @param {string} name @returns {AclUser|null} */
  authenticate(name, password) {
    const user = this.users.get(name);
    return user?.accepts(password) ? user : null;
  }

  /** @param {string} [section] @returns {string} */
  info(section = 'all') {
    const { host, port } = this.primary?.address ?? { host: '', port: 0 };
    /** @type {Record<string, string[]>} */
    const sections = {
      server: [
        `redis_version:${this.version}`,
        `redis_mode:${this.cluster === null ? 'standalone' : 'cluster'}`,
        `process_id:${process.pid}`,
        `run_id:${this.runId}`,
        `tcp_port:${this.address.port}`,
        `uptime_in_seconds:${Math.floor((this.now() - this.startedMs) / 1000)}`,
      ],
      clients: [`connected_clients:${this.sessions.size}`, 'maxclients:10000'],
      memory: [
        'used_memory:1000000',
        `maxmemory:${this.config.get('maxmemory')}`,
        'maxmemory_policy:noeviction',
      ],
      persistence: [`loading:${this.refusesAll?.startsWith('LOADING') ? 1 : 0}`, 'aof_enabled:0'],
      replication: [
        `role:${this.primary === null ? 'master' : 'slave'}`,
        ...(this.primary === null
          ? []
          : [
              `master_host:${host}`,
              `master_port:${port}`,
              'master_link_status:up',
              `slave_repl_offset:${this.offset}`,
            ]),
        `connected_slaves:${this.replicas.size}`,
        `master_replid:${this.replicationId}`,
        `master_replid2:${this.secondId}`,
        `master_repl_offset:${this.offset}`,
        'second_repl_offset:-1',
      ],
      commandstats: [...this.calls].map(
        ([name, calls]) => `cmdstat_${name.toLowerCase()}:calls=${calls},usec=${calls}`,
      ),
      cluster: [`cluster_enabled:${this.cluster === null ? 0 : 1}`],
    };
    const wanted = section.toLowerCase();
    return Object.entries(sections)
      .filter(([name]) => name === wanted || ['all', 'default', 'everything'].includes(wanted))
      .map(
        ([name, lines]) =>
          `# ${name[0].toUpperCase()}${name.slice(1)}\r\n${lines.join('\r\n')}\r\n`,
      )
      .join('\r\n');
  }

  /** @param {string} name of a command @returns {boolean} is it refused at present? */
  isRefused(name) {
    return (
      this.refusesAll !== null &&
      !REPLICAS.has(name) &&
      !['AUTH', 'HELLO', 'CLIENT', 'QUIT'].includes(name)
    );
  }
}

/** @param {string} text @returns {string} */
export function sha1(text) {
  return createHash('sha1').update(text, 'latin1').digest('hex');
}

/** @param {string[]} words @param {number} arity @throws {Failure} */
export function checkArity(words, arity) {
  if (arity > 0 ? words.length === arity : words.length >= -arity) return;
  throw new Failure(`ERR wrong number of arguments for '${words[0].toLowerCase()}' command`);
}

/** @param {string[]} words @returns {Failure} */
export function unknownCommand([name, ...rest]) {
  const shown = rest.map((word) => `'${word}' `).join('');
  return new Failure(`ERR unknown command '${name}', with args beginning with: ${shown}`);
}
