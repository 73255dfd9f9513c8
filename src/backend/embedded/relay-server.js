// relay-server.js: the embedded broker and the places of the workers (server-places.js), hosted by
// the primary. Publications go through this Unix socket, not through the cluster's IPC channel.
//   worker --PUBLISH--> relay --PUBLICATION--> every worker subscribed to the room
//                                            (the publisher too)
//   worker --APPEND--> relay, which stores it --PUBLICATION--> the same workers, in rooms with history
// - A worker sends the publications of a tick to one room as a batch. The relay does not parse it:
//   it changes the type byte (and writes the position) in place, and copies the bytes once for each
//   receiving worker, in one write a tick.
// - When a link ends, the relay releases everything its worker held, so a crash leaves nothing
//   behind. Its users leave only as fast as the other workers read the events, at most
//   READ_AHEAD_BYTES ahead. Reads of history have the same bound, so live publications are not
//   delayed for long.
// - A worker that reads too slowly must not fill the primary's memory. Above MAX_BACKLOG_BYTES the
//   relay drops publications and counts them: plain rooms are at most once, and rooms with history
//   find the gap and read it. Above MAX_PENDING_BYTES, reached only if the worker does not read its
//   answers, the relay closes the link and reports the worker as hung.

import { rmSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { countPublications, HEAD_BYTES as ITEM_HEAD_BYTES, POSITION_ITEM_BYTES } from '../batch.js';
import { copyOf, Histories } from './histories.js';
import { IdempotencyKeys, isConflict } from './idempotency-keys.js';
import { Members } from './members.js';
import { Occupancy } from './occupancy.js';
import {
  ACCEPTED,
  batchAt,
  CONFLICT,
  FULL,
  HEAD_BYTES,
  KEY_LENGTH,
  MAX_OUTCOMES,
  MalformedMessage,
  MessageReader,
  MessageWriter,
  makePublication,
  OP,
  RELAY_VERSION,
  readBatchRoom,
  readControl,
  readNumber,
  readOp,
  readText,
  setPosition,
} from './relay-wire.js';
import { PlaceHolder, ServerPlaces } from './server-places.js';
import { Subscriptions } from './subscriptions.js';

const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** Queued publications. With one more of the largest size, still below MAX_PENDING_BYTES. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;
const LEFT_OUT_LOG_MS = 60_000;
/**
 * Reads, and the users of dead workers, wait while a worker has more pending bytes. Above the
 * high-water mark of sockets, so `drain` follows.
 */
const READ_AHEAD_BYTES = 1024 * 1024;
/** Reads of one worker that wait for `drain`. */
const MAX_WAITING_READS = 100_000;
const SWEEP_INTERVAL_MS = 1000;
/** unix(7): sun_path has 108 bytes on Linux and 104 on macOS, the closing NUL included. */
const MAX_PATH_BYTES = 103;
const SHORT_TMPDIR = '/tmp';
/** As named by mkdtemp. */
const FOLDER_NAME = /^fanfare-[A-Za-z0-9]{6}$/;
const STALE_FOLDER_MS = 60_000;
const MAX_SWEPT_FOLDERS = 100;
const NOT_OURS = { uid: -1, mtimeMs: 0 };
const MAX_GONE = 64;

export class RelayServer {
  /** Sessions of workers that died when no other worker was left. @type {string[]} */
  gone = [];
  /** null: nothing is recorded for webhooks. @type {EventRecorder|null} */
  recorder = null;
  streams = new Histories();
  keys = new IdempotencyKeys();
  /** @type {NodeJS.Timeout|undefined} */
  sweeper = undefined;
  /** Of the socket; empty before `start`. */
  path = '';
  /** @type {import('node:net').Server|null} */
  server = null;
  folder = '';
  /** Removes folders left behind by killed primaries. @type {Promise<void>} */
  swept = Promise.resolve();
  /** @type {Set<Link>} */
  links = new Set();
  /** Links with something to write at the end of this tick. @type {Link[]} */
  writing = [];
  /** @type {Subscriptions<Link>} */
  rooms = new Subscriptions();
  /** Users of dead workers. @type {Iterator<void>[]} */
  leaving = [];
  connections = 0;
  droppedLinks = 0;
  refusedReads = 0;
  leftOut = { plain: 0, history: 0 };
  leftOutToldMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts @param {import('pino').Logger} parts.log
   * @param {HistoryOf} [parts.historyOf] the same as the workers'
   * @param {number} [parts.maxBacklogBytes] publications queued for one worker
   * @param {number} [parts.maxPendingBytes] everything queued for one worker
   * @param {(pid: number) => void} [parts.onHung] a worker does not read its answers
   * @param {number} [parts.maxWaitingReads] of one worker
   * @param {{maxMembers: number, announcements: import('../presence.js').Announcements}}
   *   [parts.presence]
   */
  constructor({
    log,
    historyOf = () => null,
    maxBacklogBytes = MAX_BACKLOG_BYTES,
    maxPendingBytes = MAX_PENDING_BYTES,
    onHung = () => {},
    maxWaitingReads = MAX_WAITING_READS,
    presence = NO_PRESENCE,
  }) {
    this.log = log;
    this.historyOf = historyOf;
    this.places = new ServerPlaces(log);
    /** The users of each room. @type {Members<Link>} */
    this.members = new Members({
      ...presence,
      publish: (room, head, member) => this.#event(room, head, member),
      onEdge: (...edge) => this.recorder?.member(...edge),
    });
    /** The rooms and users with connections on each worker. @type {Occupancy<Link>} */
    this.edges = new Occupancy({
      onEdge: (event, tag) => this.recorder?.edge(event, tag),
      onCount: (room, connections) => {
        this.#event(room, presence.announcements.count, Buffer.from(String(connections)));
        this.recorder?.count(room, connections);
      },
    });
    this.maxBacklogBytes = maxBacklogBytes;
    this.maxPendingBytes = maxPendingBytes;
    this.onHung = onHung;
    this.maxWaitingReads = maxWaitingReads;
    this.flush = this.flush.bind(this);
    this.removeFolder = this.removeFolder.bind(this);
  }

  /** Records for webhooks from now on. @param {EventRecorder} recorder */
  recordBy(recorder) {
    this.recorder = recorder;
  }

  /** Listens on a socket in a folder that only this user can enter. */
  async start() {
    const prefix = join(tmpdir(), 'fanfare-');
    const isShort = Buffer.byteLength(join(`${prefix}XXXXXX`, 'relay')) <= MAX_PATH_BYTES;
    // mkdtemp creates a new folder with mode 0700, so leftovers of a killed primary do no harm.
    this.folder = await mkdtemp(isShort ? prefix : join(SHORT_TMPDIR, 'fanfare-'));
    process.once('exit', this.removeFolder);
    this.swept = sweepFolders(dirname(this.folder)).catch((error) =>
      this.log.debug({ err: error }, 'relay: cannot remove old temporary folders'),
    );
    this.path = join(this.folder, 'relay');
    const server = createServer((socket) => this.links.add(new Link(this, socket)));
    this.server = server;
    await new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.path, () => resolve(undefined));
    });
    server.on('error', (error) => this.log.error({ err: error }, 'relay: server error'));
    this.sweeper = setInterval(() => {
      this.streams.sweep(performance.now());
      this.keys.sweep(performance.now());
    }, SWEEP_INTERVAL_MS).unref();
    this.places.start();
  }

  /** Ends all links and removes the socket. May be called twice. */
  async close() {
    const { server } = this;
    this.server = null;
    if (server === null) return;
    clearInterval(this.sweeper);
    this.places.close();
    this.flush();
    const closed = new Promise((resolve) => server.close(resolve));
    for (const link of this.links) link.socket.destroy();
    await closed;
    process.off('exit', this.removeFolder);
    this.removeFolder();
  }

  removeFolder() {
    rmSync(this.folder, { recursive: true, force: true });
  }

  counters() {
    let pendingBytes = 0;
    for (const link of this.links) pendingBytes += link.pendingBytes;
    return {
      workers: this.links.size,
      rooms: this.rooms.size,
      addresses: this.places.counts.byKey.size,
      connections: this.connections,
      pendingBytes,
      droppedLinks: this.droppedLinks,
      leftOut: { ...this.leftOut },
      reconciledPlaces: this.places.reconciled,
    };
  }

  history() {
    const { bytes, publications, lostPublications, lostPositions } = this.streams;
    return {
      bytes,
      publications,
      lost: {
        publications: lostPublications,
        positions: lostPositions,
        keys: this.keys.lost,
        reads: this.refusedReads,
      },
    };
  }

  /** @param {Link} link with something to write */
  schedule(link) {
    if (this.writing.length === 0) setImmediate(this.flush);
    this.writing.push(link);
  }

  flush() {
    const { writing } = this;
    this.writing = [];
    for (const link of writing) link.flush();
  }

  /**
   * Passes a PUBLISH or a stored APPEND on to every worker subscribed to the room.
   * @param {string} room @param {'plain'|'history'} kind @param {Buffer} buffer
   * @param {number} start @param {number} end
   */
  publish(room, kind, buffer, start, end) {
    const links = this.rooms.of(room);
    if (links === undefined) return;
    const count = readNumber(buffer, start + HEAD_BYTES);
    makePublication(buffer, start + HEAD_BYTES);
    for (const link of links) if (!link.pass(buffer, start, end)) this.#leaveOut(link, kind, count);
  }

  /**
   * Passes a PUBLISH on unless its key has been used in the room.
   * @param {string} room @param {string} text the key and the fingerprint
   * @param {Buffer} buffer @param {number} start @param {number} end @returns {Position}
   */
  publishOnce(room, text, buffer, start, end) {
    const { key, fingerprint } = readKey(text);
    const nowMs = performance.now();
    const first = this.keys.find(room, key, nowMs);
    if (first !== null) return isConflict(first, fingerprint) ? CONFLICT : ACCEPTED;
    this.keys.set(room, key, { position: null, fingerprint }, nowMs);
    this.publish(room, 'plain', buffer, start, end);
    return ACCEPTED;
  }

  /**
   * @param {Link} link of a worker that reads too slowly
   * @param {'plain'|'history'} kind @param {number} count
   */
  #leaveOut(link, kind, count) {
    this.leftOut[kind] += count;
    const nowMs = performance.now();
    if (nowMs - this.leftOutToldMs < LEFT_OUT_LOG_MS) return;
    this.leftOutToldMs = nowMs;
    this.log.warn(
      { workerPid: link.pid, pendingBytes: link.pendingBytes, leftOut: this.leftOut },
      'relay: worker reads too slowly, dropping publications',
    );
  }

  /** For webhooks, once for each key. @param {import('./relay-wire.js').Recorded} message */
  record(message) {
    const { room, key } = message;
    if (key === '' || this.keys.recordOnce(room, key, performance.now()))
      this.recorder?.message(room, message);
  }

  /** @param {string} room @param {Buffer} head @param {Buffer} member */
  #event(room, head, member) {
    const links = this.rooms.of(room);
    if (links === undefined) return;
    const event = Buffer.concat([head, member]);
    for (const link of links) link.out().publication(OP.PUBLICATION, room, event);
  }

  /** Lets a live worker remove the users of a dead one from Redis. @param {string} name */
  #died(name) {
    if (this.links.size > 0)
      for (const link of this.links) link.out().control({ type: 'gone', name });
    else if (this.gone.length < MAX_GONE) this.gone.push(name);
  }

  /**
   * @param {string} room @param {string} keyText the key and the fingerprint, or empty
   * @param {Buffer} buffer @param {number} start @param {number} end
   * @returns {Position} of its first publication
   */
  append(room, keyText, buffer, start, end) {
    const rule = this.historyOf(room);
    if (rule === null) throw new MalformedMessage('append to a room without history');
    const { keys } = this;
    const nowMs = performance.now();
    const { key, fingerprint } = readKey(keyText);
    const used = key === '' ? null : keys.find(room, key, nowMs);
    if (used !== null)
      return used.position === null || isConflict(used, fingerprint) ? CONFLICT : used.position;
    const itemsAt = batchAt(buffer, start + HEAD_BYTES);
    const from = itemsAt + POSITION_ITEM_BYTES;
    const count = readNumber(buffer, start + HEAD_BYTES);
    if (count === 0 || countPublications(buffer, from, end) !== count)
      throw new MalformedMessage('wrong number of publications in a batch');
    const run = buffer.subarray(from, end);
    const position = this.#keep(room, rule, run, count, nowMs);
    if (position === null) return FULL;
    if (key !== '') keys.set(room, key, { position, fingerprint }, nowMs);
    setPosition(buffer, itemsAt, position);
    this.publish(room, 'history', buffer, start, end);
    return position;
  }

  /**
   * @param {string} room @param {HistoryRule} rule
   * @param {Buffer} run publications, each after its length
   * @param {number} count of them @param {number} nowMs
   * @returns {Position|null} of the first one; null if the room's state is full
   */
  #keep(room, rule, run, count, nowMs) {
    if (rule.state !== undefined) {
      if (count !== 1) throw new MalformedMessage('several publications for a room with state');
      return this.streams.set(
        room,
        /** @type {StateRule} */ (rule),
        run.subarray(ITEM_HEAD_BYTES),
        nowMs,
      );
    }
    const { epoch, offset } = this.streams.append(room, rule, run, count, nowMs);
    return { epoch, offset: offset - count + 1 };
  }

  /** Removes all users of a worker. @param {Link} link */
  dismiss(link) {
    this.leaving.push(this.members.removal(link));
    this.continueLeaving();
  }

  /** Stops while any worker has too much to read. */
  continueLeaving() {
    const { leaving, links } = this;
    const isFull = () => {
      for (const link of links) if (link.pendingBytes >= READ_AHEAD_BYTES) return true;
      return false;
    };
    while (leaving.length > 0 && !isFull()) if (leaving[0].next().done) leaving.shift();
  }

  /** Releases everything a worker held. @param {Link} link */
  remove(link) {
    if (!this.links.delete(link)) return;
    this.rooms.leave(link);
    this.places.leave(link.holder);
    this.connections -= link.connections;
    this.dismiss(link);
    this.edges.remove(link);
    if (link.name !== '') this.#died(link.name);
    this.log.debug({ pid: link.pid }, 'relay: worker disconnected');
  }
}

/** Removes folders of primaries that were killed with their workers. @param {string} parent */
async function sweepFolders(parent) {
  const names = (await readdir(parent))
    .filter((name) => FOLDER_NAME.test(name))
    .slice(0, MAX_SWEPT_FOLDERS);
  for (const name of names) {
    const folder = join(parent, name);
    const { uid, mtimeMs } = await stat(folder).catch(() => NOT_OURS);
    // A recent folder may belong to a primary that does not listen yet.
    if (uid !== process.getuid?.() || Date.now() - mtimeMs < STALE_FOLDER_MS) continue;
    if (await isDeserted(join(folder, 'relay')))
      await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

/** Has the socket no listener? @param {string} path @returns {Promise<boolean>} */
function isDeserted(path) {
  return new Promise((resolve) => {
    const socket = connect(path, () => {
      socket.destroy();
      resolve(false);
    });
    socket.on('error', (error) =>
      resolve(/** @type {NodeJS.ErrnoException} */ (error).code === 'ECONNREFUSED'),
    );
  });
}

const NO_PRESENCE = {
  maxMembers: 0,
  announcements: { join: Buffer.alloc(0), leave: Buffer.alloc(0), count: Buffer.alloc(0) },
};

/** @param {string} text a key and its fingerprint; may be empty */
function readKey(text) {
  return { key: text.slice(0, KEY_LENGTH), fingerprint: text.slice(KEY_LENGTH) };
}

/** @import { HistoryRule, StateRule } from '../../config/room-patterns.js' */
/** @import { HistoryOf, Position } from '../broker.js' */
/** @import { HistoryRead } from './relay-wire.js' */

/** The primary's end of one worker's link. */
class Link {
  /** @param {RelayServer} relay @param {import('node:net').Socket} socket */
  constructor(relay, socket) {
    this.relay = relay;
    this.socket = socket;
    this.pid = 0;
    /** Its session in a shared store, if it has users there. */
    this.name = '';
    this.connections = 0;
    this.holder = new PlaceHolder((message) => this.out().control(message));
    this.writer = new MessageWriter();
    this.isScheduled = false;
    /** Bytes that the writer may collect in this tick before publications are dropped. */
    this.allowance = 0;
    /** Since it last asked for them. @type {Position[]} */
    this.outcomes = [];
    /** The KEY for the next PUBLISH or APPEND; empty if it has none. */
    this.key = '';
    /** Reads that wait until the worker has read earlier bytes. @type {HistoryRead[]} */
    this.reads = [];
    const reader = new MessageReader((buffer, start, end) => this.receive(buffer, start, end));
    socket.on('data', (chunk) => this.#socketOnData(reader, chunk));
    socket.on('drain', () => {
      this.#serveReads();
      relay.continueLeaving();
    });
    // `close` follows, and the supervisor reports a worker's crash.
    socket.on('error', (error) =>
      relay.log.debug({ err: error, pid: this.pid }, 'relay: link error'),
    );
    socket.on('close', () => relay.remove(this));
  }

  get pendingBytes() {
    return this.socket.writableLength + this.writer.length;
  }

  /** @returns what is written to it leaves at the end of this tick */
  out() {
    if (!this.isScheduled) {
      this.isScheduled = true;
      this.allowance = this.relay.maxBacklogBytes - this.socket.writableLength;
      this.relay.schedule(this);
    }
    return this.writer;
  }

  /**
   * @param {Buffer} buffer @param {number} start @param {number} end
   * @returns false if it was dropped, because too many bytes wait
   */
  pass(buffer, start, end) {
    const writer = this.out();
    if (writer.length >= this.allowance) return false;
    writer.pass(buffer, start, end);
    return true;
  }

  flush() {
    this.isScheduled = false;
    const { socket, relay } = this;
    if (!socket.writable) return;
    if (this.pendingBytes > relay.maxPendingBytes) {
      relay.droppedLinks++;
      relay.log.error(
        { pid: this.pid, pendingBytes: this.pendingBytes },
        'relay: worker does not read its answers, closing its link',
      );
      socket.destroy();
      relay.onHung(this.pid);
      return;
    }
    this.writer.writeTo(socket);
  }

  /** @param {number} op @param {Buffer} buffer @param {number} start @param {number} end */
  #publish(op, buffer, start, end) {
    const { relay, key, outcomes } = this;
    const room = readBatchRoom(buffer, start + HEAD_BYTES, end);
    if (op === OP.PUBLISH && key === '') {
      relay.publish(room, 'plain', buffer, start, end);
      return;
    }
    this.key = '';
    if (outcomes.length >= MAX_OUTCOMES)
      throw new MalformedMessage('too many outcomes in one answer');
    outcomes.push(
      op === OP.APPEND
        ? relay.append(room, key, buffer, start, end)
        : relay.publishOnce(room, key, buffer, start, end),
    );
  }

  /** @param {HistoryRead} read */
  #askRead(read) {
    if (this.reads.length >= this.relay.maxWaitingReads) {
      this.relay.refusedReads++;
      this.out().reply(read.request, false, 0);
      return;
    }
    this.reads.push(read);
    if (this.reads.length === 1) this.#serveReads();
  }

  #serveReads() {
    const { reads, relay } = this;
    let served = 0;
    const nowMs = performance.now();
    while (served < reads.length && this.pendingBytes < READ_AHEAD_BYTES) {
      const read = reads[served++];
      this.out().page(read.request, relay.streams.page(read.room, read, nowMs));
    }
    if (served > 0) this.reads = reads.slice(served);
  }

  /** @param {MessageReader} reader @param {Buffer} chunk */
  #socketOnData(reader, chunk) {
    try {
      reader.read(chunk);
    } catch (error) {
      if (!(error instanceof MalformedMessage) && !(error instanceof RangeError)) throw error;
      this.relay.log.error(
        { err: error, pid: this.pid },
        'relay: malformed message, closing the link',
      );
      this.relay.droppedLinks++;
      this.socket.destroy();
    }
  }

  /** @param {Buffer} buffer @param {number} start @param {number} end */
  receive(buffer, start, end) {
    const op = readOp(buffer, start);
    const at = start + HEAD_BYTES;
    switch (op) {
      case OP.PUBLISH:
      case OP.APPEND:
        this.#publish(op, buffer, start, end);
        return;
      case OP.KEY:
        this.key = readText(buffer, at, end);
        return;
      case OP.OUTCOMES:
        this.out().positions(readNumber(buffer, at), this.outcomes);
        this.outcomes = [];
        return;
      case OP.SYNC:
        // Messages are handled in order, so all earlier ones have been accepted.
        this.out().reply(readNumber(buffer, at), true, 0);
        return;
      case OP.CONTROL:
        this.#control(readControl(buffer, at, end));
        return;
      case OP.HELLO:
        this.#hello(readNumber(buffer, at));
        this.pid = end - at < 8 ? 0 : readNumber(buffer, at + 4);
        return;
      default:
        throw new MalformedMessage(`unknown message type: ${op}`);
    }
  }

  /** @param {import('./relay-wire.js').ToRelay} message */
  #control(message) {
    const { relay } = this;
    switch (message.type) {
      case 'subscribe':
        relay.rooms.subscribe(message.room, this);
        this.out().reply(message.request, true, 0);
        return;
      case 'unsubscribe':
        relay.rooms.unsubscribe(message.room, this);
        return;
      case 'acquire': {
        const { key, cap, force, request } = message;
        const { admitted, connections } = relay.places.acquire(this.holder, key, cap, force);
        this.out().reply(request, admitted, connections);
        return;
      }
      case 'release':
        relay.places.release(this.holder, message.key);
        return;
      case 'enter': {
        // A copy, because it is kept.
        const member = copyOf(Buffer.from(message.member, 'base64'));
        relay.members.join(this, message.room, message.user, member);
        return;
      }
      case 'exit':
        relay.members.leave(this, message.room, message.user);
        return;
      case 'who': {
        const { count, members } = relay.members.read(message.room, message.isCount);
        this.out().members(message.request, count, members);
        return;
      }
      case 'occupy':
        relay.edges.join(this, message.tag, message.connections, message.isTold);
        return;
      case 'vacate':
        relay.edges.leave(this, message.tag);
        return;
      case 'connections':
        relay.connections += message.connections - this.connections;
        this.connections = message.connections;
        return;
      case 'count':
        this.out().reply(message.request, true, relay.connections);
        return;
      case 'workers':
        this.out().reply(message.request, true, relay.rooms.subscriberCount);
        return;
      case 'held':
        relay.places.compare(this.holder, message);
        return;
      case 'places':
        relay.places.reconcile(this.holder, new Map(message.places), this.pid);
        return;
      case 'volunteer':
        relay.places.fleet.volunteer(this.holder, message.rules);
        return;
      case 'resign':
        relay.places.fleet.resign(this.holder);
        return;
      case 'report':
        relay.places.fleet.receive(Buffer.from(message.report, 'base64'));
        return;
      case 'exit-all':
        relay.dismiss(this);
        return;
      case 'record':
        relay.record(message);
        return;
      case 'connections-in':
        this.out().reply(message.request, true, relay.edges.connectionsIn(message.room));
        return;
      case 'occupied':
        this.#list(message);
        return;
      case 'read':
        this.#askRead(message);
        return;
      case 'name':
        this.name = message.name;
        for (const name of relay.gone.splice(0)) this.out().control({ type: 'gone', name });
        return;
      default:
        throw new MalformedMessage('control message for workers, not for the relay');
    }
  }

  /** @param {import('./relay-wire.js').Occupied} page with a request */
  async #list({ request, ...page }) {
    const rooms = await this.relay.edges.list(page);
    if (!this.socket.writable) return;
    if (rooms === null) this.out().reply(request, false, 0);
    else {
      const rows = rooms.map(({ room, connections }) => Buffer.from(`${room} ${connections}`));
      this.out().members(request, rows.length, rows);
    }
  }

  /** A worker of another version ends the link itself. @param {number} version */
  #hello(version) {
    this.out().number(OP.HELLO, RELAY_VERSION);
    if (version === RELAY_VERSION) return;
    this.relay.log.warn({ version, expected: RELAY_VERSION }, 'relay: worker of another version');
  }
}
/** @import { EventRecorder } from './event-recorder.js' */
