// server.js: a model of redis-server: keys, scripts, channels, users, replicas, and the troubles in
// which a real one refuses commands. The model has no clock and no network of its own.

import { createHash } from 'node:crypto';
import { slotOf } from '../../../src/backend/redis/slots.js';
import { AclUser } from './acl.js';
import { COMMANDS } from './commands.js';
import { Keyspace } from './keyspace.js';
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
 * @typedef {{channel: string, message: string, isSharded: boolean}} Publication
 */
/**
 * What a command has changed, for replicas.
 * @typedef {object} Change
 * @property {string[]} names of keys
 * @property {Publication|null} publication
 * @property {boolean} isEmptied all keys are gone
 */
/**
 * Changes that a replica applies at once: those of a script, or of the commands of one read.
 * @typedef {object} Batch
 * @property {number} offset after it
 * @property {[name: string, key: Key|null][]} keys as they are after it
 * @property {Publication[]} publications
 * @property {boolean} isEmptied all other keys are gone
 */
/**
 * The state of a primary when a replica begins to follow it.
 * @typedef {object} Beginning
 * @property {Snapshot} snapshot
 * @property {string} replicationId @property {number} offset
 * @property {boolean} isContinued the replica lacks only what the primary still has in its backlog
 * @property {Publication[]} publications those that it lacks, if so
 */
/**
 * What a node of a cluster believes about it.
 * @typedef {object} ClusterView
 * @property {boolean} isUp
 * @property {(slot: number) => RedisServer|null} ownerOf
 * @property {(slot: number) => boolean} serves channels of this slot: it is a node of the shard
 * @property {(slot: number) => RedisServer|null} leavesTo where this node's slot is moving
 * @property {(slot: number) => boolean} isArriving is this slot moving here?
 * @property {() => {server: RedisServer, replicas: RedisServer[], ranges: [number, number][]}[]} shards
 * @property {(publication: Publication) => void} relay passes it to other nodes
 */
/**
 * What makes a server a Sentinel.
 * @typedef {object} SentinelView
 * @property {(name: string) => {host: string, port: number}|null} primaryOf
 * @property {() => {host: string, port: number}[]} replicas
 * @property {() => {host: string, port: number}[]} sentinels the others
 */

const NO_ID = '0'.repeat(40);
const BACKLOG_BYTES = 1_048_576;

const REPLICAS = new Set(['READONLY', 'READWRITE']);

export class RedisServer {
  /**
   * @param {World} world
   * @param {object} [options]
   * @param {string} [options.version]
   * @param {{host: string, port: number}} [options.address]
   * @param {SentinelView|null} [options.sentinel]
   */
  constructor(
    world,
    { version = '7.0.15', address = { host: '127.0.0.1', port: 6379 }, sentinel = null } = {},
  ) {
    this.world = world;
    this.version = version;
    this.address = address;
    this.sentinel = sentinel;
    /** @type {ClusterView|null} */
    this.cluster = null;
    /** The present command came after ASKING. */
    this.isAsking = false;
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
    /** Too few replicas are near (`min-replicas-to-write`). */
    this.lacksReplicas = false;
    this.isFull = false;
    this.isInScript = false;
    /** Has the script that runs written? */
    this.hasWritten = false;
    /** Why all commands are refused: LOADING, BUSY. @type {string|null} */
    this.refusesAll = null;
    this.runId = this.#id();
    this.replicationId = this.#id();
    this.secondId = NO_ID;
    /** It keeps what replicas may lack when they return. */
    this.hasBacklog = false;
    this.backlogBytes = BACKLOG_BYTES;
    /** Publications in it, with the offset after each. @type {{offset: number, publication: Publication}[]} */
    this.backlog = [];
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
    if (this.lacksReplicas) throw new Failure('NOREPLICAS Not enough good replicas to write.');
    if (this.refusesWrites !== null) throw new Failure(this.refusesWrites);
    if (addsMemory && this.isFull)
      throw new Failure("OOM command not allowed when used memory > 'maxmemory'.");
  }

  /** @param {string[]} keys @throws {Failure} if the cluster has them elsewhere */
  checkSlots(keys) {
    const { cluster } = this;
    if (cluster === null || keys.length === 0) return;
    const slot = onlySlotOf(keys);
    const owner = cluster.isUp ? cluster.ownerOf(slot) : null;
    if (owner === null) throw new Failure('CLUSTERDOWN Hash slot not served');
    const target = owner === this ? cluster.leavesTo(slot) : null;
    const isGuest = owner !== this && this.isAsking && cluster.isArriving(slot);
    if (owner !== this && !isGuest) throw redirection('MOVED', slot, owner);
    if (target === null && !isGuest) return;
    const missing = keys.filter((key) => this.keys.find(key) === undefined).length;
    if (missing === 0 || (isGuest && keys.length === 1)) return;
    if (isGuest || missing < keys.length)
      throw new Failure('TRYAGAIN Multiple keys request during rehashing of slot');
    throw redirection('ASK', slot, /** @type {RedisServer} */ (target));
  }

  /** @param {string[]} channels sharded ones @throws {Failure} if another shard has them */
  checkChannels(channels) {
    const { cluster } = this;
    if (cluster === null) return;
    const slot = onlySlotOf(channels);
    const owner = cluster.isUp ? cluster.ownerOf(slot) : null;
    if (owner === null) throw new Failure('CLUSTERDOWN Hash slot not served');
    if (!cluster.serves(slot)) throw redirection('MOVED', slot, owner);
  }

  /** Ends the subscriptions to channels that another shard has now. */
  dropMovedChannels() {
    const { cluster } = this;
    if (cluster === null) return;
    for (const [channel, sessions] of this.shardChannels)
      if (!cluster.serves(slotOf(channel)))
        for (const session of sessions) session.unsubscribe([channel], true);
  }

  /** @param {string[]} words @param {AclUser} user @returns {Reply} */
  #publish(words, user) {
    checkArity(words, 3);
    const [given, channel, message] = words;
    user.check(words, [], [channel]);
    const publication = { channel, message, isSharded: given.toUpperCase() === 'SPUBLISH' };
    if (publication.isSharded) this.checkChannels([channel]);
    const count = this.deliver(publication);
    // Nodes of a cluster hear of it over their bus.
    if (this.primary === null) this.#record(words, this.cluster === null ? publication : null);
    this.cluster?.relay(publication);
    return count;
  }

  /** @param {Publication} publication @returns {number} */
  deliver({ channel, message, isSharded }) {
    const sessions = (isSharded ? this.shardChannels : this.channels).get(channel);
    if (sessions === undefined) return 0;
    const push = new Push([isSharded ? 'smessage' : 'message', channel, message]);
    for (const session of sessions) session.send(push);
    return sessions.size;
  }

  /** @param {string[]} words @param {Publication|null} publication @param {boolean} [isEmptied] */
  #record(words, publication, isEmptied = false) {
    this.offset += words.reduce((sum, word) => sum + word.length + 5, 5);
    const names = [...this.keys.changed];
    this.keys.changed.clear();
    if (publication !== null) this.#keep(publication);
    for (const replica of this.replicas) replica({ names, publication, isEmptied });
  }

  /** @param {Publication} publication */
  #keep(publication) {
    const { backlog } = this;
    backlog.push({ offset: this.offset, publication });
    while (backlog[0].offset < this.offset - this.backlogBytes) backlog.shift();
  }

  /** Keys have come from another server, or have gone there. @param {string[]} names */
  recordMoved(names) {
    for (const name of names) this.keys.touch(name);
    this.#record(names, null);
  }

  /** @param {Batch} batch of the primary */
  applyBatch({ offset, keys, publications, isEmptied }) {
    if (isEmptied) this.keys.clear();
    for (const [name, key] of keys) this.keys.replace(name, key);
    this.offset = offset;
    for (const publication of publications) {
      this.#keep(publication);
      this.deliver(publication);
    }
    if (isEmptied) this.#announceEmptied();
  }

  /** Becomes a replica: from now on it refuses writes. @param {RedisServer} primary */
  follow(primary) {
    this.primary = primary;
  }

  /**
   * What a replica with this history gets first.
   * @param {string} replicationId @param {number} offset @returns {Beginning}
   */
  beginningFor(replicationId, offset) {
    // A primary without a backlog gets another ID with its first replica.
    if (!this.hasBacklog) this.replicationId = this.#id();
    const isContinued =
      this.hasBacklog &&
      offset <= this.offset &&
      offset >= this.offset - this.backlogBytes &&
      (replicationId === this.replicationId || replicationId === this.secondId);
    this.hasBacklog = true;
    return {
      snapshot: this.keys.snapshot(),
      replicationId: this.replicationId,
      offset: this.offset,
      isContinued,
      publications: this.backlog
        .filter((kept) => isContinued && kept.offset > offset)
        .map(({ publication }) => publication),
    };
  }

  /** Takes over the data of its primary. @param {Beginning} beginning */
  synchronise({ snapshot, replicationId, offset, isContinued, publications }) {
    const hadKeys = this.keys.keys.size > 0;
    this.keys.restore(snapshot);
    this.replicationId = replicationId;
    this.secondId = NO_ID;
    this.hasBacklog = true;
    this.offset = offset;
    if (!isContinued) this.backlog = [];
    for (const publication of publications) {
      this.#keep(publication);
      this.deliver(publication);
    }
    if (hadKeys && !isContinued) this.#announceEmptied();
  }

  /** Becomes a primary. */
  promote() {
    if (this.primary === null) return;
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
    this.secondId = snapshot === null || !isRdb ? NO_ID : this.replicationId;
    this.hasBacklog = false;
    this.backlog = [];
    this.replicationId = this.#id();
    if (snapshot === null || !isRdb) this.offset = 0;
    this.startedMs = this.now();
  }

  /** @param {string} name of a key that it drops to have memory */
  evict(name) {
    this.keys.remove(name);
    this.#record(['DEL', name], null);
  }

  empty() {
    this.keys.clear();
    this.#record(['FLUSHALL'], null, true);
    this.#announceEmptied();
    return OK;
  }

  /** Exchanges the first database and another one. */
  swap() {
    this.otherKeys = this.keys.exchange(this.otherKeys);
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
        `redis_mode:${this.mode}`,
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

  get mode() {
    if (this.sentinel !== null) return 'sentinel';
    return this.cluster === null ? 'standalone' : 'cluster';
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

/** @param {string[]} names of keys or channels @returns {number} @throws {Failure} */
function onlySlotOf(names) {
  const slot = slotOf(names[0]);
  if (names.some((name) => slotOf(name) !== slot))
    throw new Failure("CROSSSLOT Keys in request don't hash to the same slot");
  return slot;
}

/** @param {'MOVED'|'ASK'} kind @param {number} slot @param {RedisServer} to @returns {Failure} */
function redirection(kind, slot, { address: { host, port } }) {
  return new Failure(`${kind} ${slot} ${host}:${port}`);
}
