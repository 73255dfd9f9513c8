// order.js: keeps the commands of a connection in order while hooks are awaited.
//
// Hooks of one kind overlap: while a message waits for its hook, the hook of the next message may
// run. They take effect in the order of sending. Any other command waits until all before it have
// taken effect, and a `join` until it has been answered. So no message overtakes a `join` or a
// `leave`. Only `ping` and `echo` pass.
//
// Bounded: calls of a connection, its waiting bytes, and those of all connections. Above a bound a
// command is refused, and counted.

/** Bytes of one connection that wait; a larger message may wait alone. */
const MAX_BYTES = 256 * 1024;
/** The same of all connections of the worker. */
const MAX_ALL_BYTES = 32 * 1024 * 1024;
/** Memory of one waiting command, beside its bytes. */
const COMMAND_BYTES = 512;

/** @typedef {import('../hub/connection.js').Connection} Connection */
/** @typedef {import('../protocol/decode.js').Command} Command */
/** @typedef {'onJoin'|'onPublish'} Kind */

/**
 * The hook that a command calls.
 * @type {ReadonlyMap<string, Kind>}
 */
const KINDS = new Map([
  ['join', 'onJoin'],
  ['message', 'onPublish'],
  ['broadcast', 'onPublish'],
]);
const PASSING = new Set(['ping', 'echo']);

/**
 * A command whose hook has been called.
 * @template T
 * @typedef {object} Step
 * @property {T|null} verdict null: awaited
 * @property {Act<T>} act
 * @property {number} bytes
 */

/**
 * @template T
 * @callback Act
 * @param {T} verdict
 * @param {() => void} done to be called once, when the command has taken effect
 * @returns {void}
 */

/**
 * @template T
 * @typedef {object} Line
 * @property {Kind} kind of the steps
 * @property {Step<T>[]} steps in the order of sending
 * @property {number} acting steps that have begun to act, and have not taken effect
 * @property {{type: string, data: Buffer}[]} waiting behind them
 * @property {number} bytes of both
 * @property {boolean} isMoving it is being worked on
 */

/** @template T the verdict of a hook */
export class CommandOrder {
  /** Connections with a hook that is awaited. @type {Map<Connection, Line<T>>} */
  #lines = new Map();
  #bytes = 0;
  /** The line whose waiting command is being handled now. @type {Line<T>|null} */
  #resumed = null;

  /** @param {number} maxSteps calls of one connection that run at once */
  constructor(maxSteps) {
    this.maxSteps = maxSteps;
    /** @type {(connection: Connection, data: Buffer) => void} */
    this.handle = () => {};
  }

  /** @param {(connection: Connection, data: Buffer) => void} handle for commands that have waited */
  resumeWith(handle) {
    this.handle = handle;
  }

  /** True if no command waits. */
  get isEmpty() {
    return this.#lines.size === 0;
  }

  /** True if all connections together have as many waiting bytes as allowed. */
  get isFull() {
    return this.#bytes >= MAX_ALL_BYTES;
  }

  /**
   * Keeps a command back if it has to wait for those before it.
   * @param {Connection} connection
   * @param {Command} command
   * @returns {'passes'|'waits'|Kind} the hook that it waits for, if there is no room for it: refuse it
   */
  hold(connection, { type, source }) {
    const line = this.#lines.get(connection);
    if (line === undefined || line === this.#resumed || PASSING.has(type)) return 'passes';
    if (line.waiting.length === 0 && this.#mayStart(line, type)) return 'passes';
    const bytes = source.length + COMMAND_BYTES;
    if (line.bytes + bytes > MAX_BYTES || this.isFull) return line.kind;
    // The source is a slice of a read.
    line.waiting.push({ type, data: Buffer.from(source) });
    this.#add(line, bytes);
    return 'waits';
  }

  /**
   * Acts when the hook has answered, and all commands before have taken effect.
   * @param {Connection} connection
   * @param {Kind} kind
   * @param {number} bytes that the command holds
   * @param {T|Promise<T>} verdict the promise never rejects
   * @param {Act<T>} act
   */
  after(connection, kind, bytes, verdict, act) {
    let line = this.#lines.get(connection);
    if (line === undefined) {
      line = { kind, steps: [], acting: 0, waiting: [], bytes: 0, isMoving: false };
      this.#lines.set(connection, line);
    }
    line.kind = kind;
    /** @type {Step<T>} */
    const step = { verdict: null, act, bytes: bytes + COMMAND_BYTES };
    line.steps.push(step);
    this.#add(line, step.bytes);
    if (!(verdict instanceof Promise)) {
      step.verdict = verdict;
      return this.#move(connection, line);
    }
    const moved = line;
    verdict
      .then((answer) => {
        step.verdict = answer;
        this.#move(connection, moved);
      })
      .catch((error) => connection.fail(error));
  }

  /**
   * @param {Connection} connection
   * @param {Line<T>} line
   */
  #move(connection, line) {
    if (line.isMoving) return;
    line.isMoving = true;
    try {
      while (this.#moveOne(connection, line));
    } finally {
      line.isMoving = false;
      if (line.steps.length + line.acting + line.waiting.length === 0)
        this.#lines.delete(connection);
    }
  }

  /**
   * @param {Connection} connection
   * @param {Line<T>} line
   * @returns {boolean} false: there is nothing to do now
   */
  #moveOne(connection, line) {
    const [step] = line.steps;
    if (step !== undefined && step.verdict !== null) {
      line.steps.shift();
      this.#add(line, -step.bytes);
      line.acting++;
      step.act(step.verdict, () => {
        line.acting--;
        this.#move(connection, line);
      });
      return true;
    }
    const [next] = line.waiting;
    if (next === undefined || !this.#mayStart(line, next.type)) return false;
    line.waiting.shift();
    this.#add(line, -next.data.length - COMMAND_BYTES);
    // A closed connection has no rights: its waiting commands are lost, like bytes on the wire.
    if (!connection.isOpen) return true;
    this.#resumed = line;
    try {
      this.handle(connection, next.data);
    } finally {
      this.#resumed = null;
    }
    return true;
  }

  /**
   * @param {Line<T>} line
   * @param {string} type of a command
   */
  #mayStart({ kind, steps, acting, bytes }, type) {
    if (steps.length + acting === 0) return true;
    return KINDS.get(type) === kind && steps.length < this.maxSteps && bytes < MAX_BYTES;
  }

  /**
   * @param {Line<T>} line
   * @param {number} bytes
   */
  #add(line, bytes) {
    line.bytes += bytes;
    this.#bytes += bytes;
  }
}
