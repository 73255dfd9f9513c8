// lane.js: keeps the commands of a connection in order, for every door.
//
// While a token, a hook or a join is awaited, later commands wait here. Commands of the same kind
// overlap: hooks of several messages run at once, and so do joins; answers take effect in order.
// `ping` and `echo` never wait, once the connection has authenticated.
//
// Bounded: concurrent hooks of a connection, and waiting bytes of a connection and of the worker.
// Above a bound a command is refused with UNAVAILABLE, and counted.

/** The bound of one connection; a larger message may wait alone. */
const MAX_BYTES = 256 * 1024;
/** The bound of all connections of the worker. Unauthenticated ones may fill half. */
const MAX_ALL_BYTES = 32 * 1024 * 1024;
/** Memory of a waiting command, without its bytes. */
const COMMAND_BYTES = 512;

/** @import { Connection } from '../hub/connection.js' */
/** @import { Id } from './replies.js' */

/** What is awaited. Nothing overlaps with a token. @typedef {'token'|'join'|'message'} Kind */

/** Undefined: waits for all others. @typedef {'join'|'message'|'passing'|undefined} CommandKind */

/** Handles a waiting command. @typedef {(connection: Connection, data: Buffer) => void} Resume */

/**
 * @typedef {object} Step
 * @property {(() => void)|null} act null: the answer is awaited
 * @property {number} bytes
 */

/**
 * @typedef {object} Line
 * @property {Kind} kind of what is awaited; `token` also if the kinds differ
 * @property {Step[]} steps in order @property {number} joins begun, but not answered
 * @property {{kind: CommandKind, data: Buffer, resume: Resume}[]} waiting commands
 * @property {number} bytes of the steps and the waiting commands @property {boolean} isMoving
 */

export class Lane {
  /** Connections with something awaited. @type {Map<Connection, Line>} */
  #lines = new Map();
  #bytes = 0;

  /**
   * @param {object} parts @param {number} parts.maxSteps concurrent hooks of one connection
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ maxSteps, replies, counters }) {
    this.maxSteps = maxSteps;
    this.replies = replies;
    this.counters = counters;
  }

  get isEmpty() {
    return this.#lines.size === 0;
  }

  get queuedBytes() {
    return this.#bytes;
  }

  get isFull() {
    return this.#bytes >= MAX_ALL_BYTES;
  }

  /** Does it wait for a token, a hook or a join? @param {Connection} connection */
  isWaiting(connection) {
    return this.#lines.has(connection);
  }

  /**
   * @param {Connection} connection @param {CommandKind} kind
   * @param {{id?: Id, source: Buffer}} command @param {Resume} resume shared by all commands
   * @returns {boolean} true: the command waits, or was refused for lack of space
   */
  holds(connection, kind, { id, source }, resume) {
    const line = this.#lines.get(connection);
    if (line === undefined || (kind === 'passing' && !connection.isHeld)) return false;
    if (line.waiting.length === 0 && this.#mayStart(line, kind)) return false;
    const bytes = source.length + COMMAND_BYTES;
    const max = connection.isHeld ? MAX_ALL_BYTES / 2 : MAX_ALL_BYTES;
    if ((line.bytes > 0 && line.bytes + bytes > MAX_BYTES) || this.#bytes + bytes > max) {
      this.refuse(connection, id);
    } else {
      // The source is a slice of a read.
      line.waiting.push({ kind, data: Buffer.from(source), resume });
      this.#count(line, bytes);
    }
    return true;
  }

  /** @param {Connection} connection @param {Id} id */
  refuse(connection, id) {
    this.counters.readsRefused++;
    this.replies.error(connection, 'UNAVAILABLE', id);
  }

  /**
   * Acts when the answer is there and all earlier commands have acted.
   * @template T @param {Connection} connection @param {Kind} kind
   * @param {number} bytes that the command keeps meanwhile
   * @param {T|Promise<T>} answer @param {(answer: T) => void} act
   */
  after(connection, kind, bytes, answer, act) {
    const isThere = !(answer instanceof Promise);
    if (isThere && !this.#lines.get(connection)?.steps.length) return act(answer);
    const line = this.#lineOf(connection, kind);
    /** @type {Step} */
    const step = { act: isThere ? () => act(answer) : null, bytes: bytes + COMMAND_BYTES };
    line.steps.push(step);
    this.#count(line, step.bytes);
    if (isThere) return; // the line moves with the steps before it
    const settle = (/** @type {() => void} */ ready) => {
      step.act = ready;
      this.#move(connection, line);
    };
    answer.then(
      (value) => settle(() => act(value)),
      (error) => settle(() => connection.fail(error)),
    );
  }

  /**
   * Delays commands, except joins, until a join is answered.
   * @param {Connection} connection @param {Promise<unknown>} answered may reject
   * @param {boolean} [isRepeat] the join waits for another one of its room. The room limit does not
   *   bound these, so their memory counts
   */
  awaitJoin(connection, answered, isRepeat = false) {
    const line = this.#lineOf(connection, 'join');
    const bytes = isRepeat ? COMMAND_BYTES : 0;
    line.joins++;
    this.#count(line, bytes);
    const end = () => {
      line.joins--;
      this.#count(line, -bytes);
      this.#move(connection, line);
    };
    answered.then(end, end);
  }

  /** Drops the waiting commands of a closed connection. @param {Connection} connection */
  forget(connection) {
    const line = this.#lines.get(connection);
    if (line === undefined) return;
    for (const { data } of line.waiting) this.#count(line, -data.length - COMMAND_BYTES);
    line.waiting = [];
  }

  /** @param {Connection} connection @param {Kind} kind */
  #lineOf(connection, kind) {
    let line = this.#lines.get(connection);
    if (line === undefined) {
      line = { kind, steps: [], joins: 0, waiting: [], bytes: 0, isMoving: false };
      this.#lines.set(connection, line);
    } else if (line.kind !== kind) line.kind = isIdle(line) ? kind : 'token';
    return line;
  }

  /** @param {Connection} connection @param {Line} line */
  #move(connection, line) {
    if (line.isMoving) return;
    line.isMoving = true;
    while (this.#moveOne(connection, line));
    line.isMoving = false;
    if (isIdle(line)) this.#lines.delete(connection);
  }

  /** @param {Connection} connection @param {Line} line @returns {boolean} false: nothing to do */
  #moveOne(connection, line) {
    const [step] = line.steps;
    if (step !== undefined && step.act !== null) {
      line.steps.shift();
      this.#count(line, -step.bytes);
      try {
        step.act();
      } catch (error) {
        connection.fail(error);
      }
      return true;
    }
    const [next] = line.waiting;
    if (next === undefined || !this.#mayStart(line, next.kind)) return false;
    line.waiting.shift();
    this.#count(line, -next.data.length - COMMAND_BYTES);
    // Waiting commands of a closed connection are lost, like bytes on the wire.
    if (connection.isOpen) next.resume(connection, next.data);
    return true;
  }

  /** @param {Line} line @param {CommandKind} kind */
  #mayStart(line, kind) {
    if (isIdle(line)) return true;
    return kind === line.kind && line.steps.length < this.maxSteps && line.bytes < MAX_BYTES;
  }

  /** @param {Line} line @param {number} bytes */
  #count(line, bytes) {
    line.bytes += bytes;
    this.#bytes += bytes;
  }
}

/** Is nothing awaited? @param {Line} line */
function isIdle({ steps, joins }) {
  return steps.length + joins === 0;
}
