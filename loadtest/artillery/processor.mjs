// processor.mjs: the steps that the scenarios of loadtest/*.yml name, and the check of every
// delivery.
//
// Artillery's WebSocket engine counts the messages that it sends. These functions number them, wait
// for their answers, check every delivery (ledger.js has the rules) and report metrics, which the
// scenarios' `ensure` compares with thresholds. A step that fails throws, so that Artillery counts
// its user as failed.
//
// Artillery runs one thread for each processor but one, each with its own copy of this module. The
// threads exchange which messages were accepted, so that a member in one thread is checked against
// the publishers in all.
//
// ".mjs": Artillery 2.0 takes any other name for CommonJS.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { BroadcastChannel } from 'node:worker_threads';
import { WebSocket } from 'ws';
import { Ledger } from './ledger.js';

/** How long an answer may take. */
const REPLY_TIMEOUT_MS = 10_000;
/**
 * Seconds that a missing message may take when its member wants to leave; then it is lost.
 * `{{ settleSeconds }}` overrides it.
 */
const SETTLE_SECONDS = 10;
const SETTLE_POLL_MS = 50;
const LAG_RESOLUTION_MS = 10;
const DIALS = 5;

/**
 * All of them are there from the start, so that a threshold can name one that nothing has happened
 * to.
 */
const COUNTERS = [
  'joined', // members that came
  'accepted', // messages acknowledged
  'refused', // messages answered with an error: certainly not accepted
  'unknown', // messages whose outcome the server does not know
  'delivered', // messages that arrived, at each member
  'lost', // messages that should have
  'repeated', // messages that came again, or out of order
  'closed', // connections closed by the server that were to stay open
  'slow_closed', // connections that did not read, and were closed for it
  'slow_kept', // … and were not
  'dial_failed', // attempts to come back that failed
];

/**
 * @typedef {object} Context the state that Artillery passes from step to step of a user
 * @property {Record<string, any>} vars the scenario's `variables` and Artillery's own
 * @property {WebSocket} ws
 * @property {User} [user]
 */
/**
 * @typedef {{emit: (kind: 'counter' | 'histogram', name: string, value: number) => void}} Metrics
 *   Artillery's, shared by a thread's users
 */
/**
 * @typedef {{room: string, publisher?: string, n?: number, sentMs?: number}} News to the other
 *   threads; without a publisher: the room's one publisher is found
 */

const ledger = new Ledger();
/** Rooms whose one publisher is found. @type {Set<string>} */
const elected = new Set();
const threads = new BroadcastChannel('fanfare-loadtest');
threads.unref();
threads.onmessage = (/** @type {unknown} */ event) =>
  hear(/** @type {{data: News}} */ (event).data);

/** Milliseconds of a clock that is the same in all threads. */
const nowMs = () => Number(process.hrtime.bigint() / 1000n) / 1000;

/** @param {News} news */
function hear({ room, publisher, n, sentMs }) {
  if (publisher === undefined) elected.add(room);
  else if (n === undefined || sentMs === undefined) ledger.end(room, publisher);
  else ledger.accept(room, publisher, n, sentMs);
}

/** Into our own ledger, and into those of the other threads. @param {News} news */
function tell(news) {
  hear(news);
  threads.postMessage(news);
}

/** One user's stay in one room, on one connection. */
class User {
  /**
   * @param {Context} context
   * @param {Metrics} metrics
   */
  constructor({ ws, vars }, metrics) {
    this.ws = ws;
    this.metrics = metrics;
    this.room = String(vars.room ?? 'general');
    /** Deliveries of another run, or of another program, do not count. */
    this.run = String(vars.$testId);
    this.settleMs = Number(vars.settleSeconds ?? SETTLE_SECONDS) * 1000;
    /** @type {ReturnType<Ledger['join']>|null} null while nothing is due */
    this.member = null;
    this.uuid = String(vars.$uuid);
    this.name = this.#newName();
    this.accepted = 0;
    this.lastId = 0;
    /**
     * @type
     *   {Map<number, {resolve: (reply: Record<string, any>) => void, reject: (error: Error) => void}>}
     */
    this.waiting = new Map();
    /** It may be closed without that being a fault. */
    this.isOver = false;
    this.#noteHangUp();
    this.closeCode = 0;
    ws.on('message', (/** @type {Buffer} */ data) => this.#read(data.toString()));
    /** @type {Promise<void>} */
    this.closed = new Promise((resolve) => {
      ws.once('close', (/** @type {number} */ code) => {
        this.#ended(code);
        resolve();
      });
    });
  }

  /**
   * Artillery hangs up by itself when a step has failed, and at the end of a flow. ws calls `close`
   * as well, to answer the server's close frame; it has noted the frame by then.
   */
  #noteHangUp() {
    const ws = /** @type {WebSocket & {_closeFrameReceived?: boolean}} */ (this.ws);
    const close = ws.close.bind(ws);
    ws.close = (...args) => {
      if (!ws._closeFrameReceived) this.isOver = true;
      close(...args);
    };
  }

  /**
   * @param
   *   {'joined' | 'accepted' | 'refused' | 'unknown' | 'delivered' | 'lost' | 'repeated' | 'closed'}
   *   name
   * @param {number} [by]
   */
  count(name, by = 1) {
    this.metrics.emit('counter', `fanfare.${name}`, by);
  }

  /**
   * Sends a command and waits for its answer.
   * @param {Record<string, unknown>} command
   * @returns {Promise<Record<string, any>>} an `error` too; rejects if none comes
   */
  async request(command) {
    if (this.closeCode !== 0) throw new Error(`closed ${this.closeCode}`);
    const id = ++this.lastId;
    /** @type {NodeJS.Timeout|undefined} */
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        timer = setTimeout(
          () => reject(new Error(`${command.type} not answered`)),
          REPLY_TIMEOUT_MS,
        );
        this.waiting.set(id, { resolve, reject });
        this.ws.send(JSON.stringify({ ...command, id }));
      });
    } catch (error) {
      this.isOver = true; // the engine closes it
      throw error;
    } finally {
      clearTimeout(timer);
      this.waiting.delete(id);
    }
  }

  async join() {
    const askedMs = nowMs();
    const reply = await this.request({ type: 'join', room: this.room });
    if (reply.type !== 'joined') throw new Error(`join: ${reply.error}`);
    // The member's time begins in #read, with the answer itself: deliveries may stand right behind
    // it.
    this.metrics.emit('histogram', 'fanfare.join_ms', nowMs() - askedMs);
    this.count('joined');
  }

  /** @param {number} payloadBytes */
  async say(payloadBytes) {
    const n = this.accepted + 1;
    const sentMs = nowMs();
    const payload = { by: this.name, n, sentMs, text: 'x'.repeat(payloadBytes) };
    const reply = await this.request({ type: 'message', room: this.room, payload });
    if (reply.type === 'ack') {
      this.accepted = n;
      tell({ room: this.room, publisher: this.name, n, sentMs });
      this.metrics.emit('histogram', 'fanfare.ack_ms', nowMs() - sentMs);
      this.count('accepted');
    } else if (reply.error === 'OUTCOME_UNKNOWN') {
      // Number n may come or not: the next message begins a row of its own.
      this.#endName();
      this.name = this.#newName();
      this.count('unknown');
    } else {
      this.count('refused');
    }
  }

  /** Waits for the messages that are due. Those that do not arrive are lost. */
  async settle() {
    const { member } = this;
    if (member === null) return;
    const deadlineMs = nowMs() + this.settleMs;
    let missing = member.outstanding();
    while (missing > 0 && nowMs() < deadlineMs && this.closeCode === 0) {
      await sleep(SETTLE_POLL_MS);
      missing = member.outstanding();
    }
    // This process may be late, not the server: messages that the server has sent come before its
    // next answer.
    if (missing > 0) {
      await this.request({ type: 'ping' });
      missing = member.outstanding();
    }
    if (missing > 0) this.count('lost', missing);
  }

  /** From now on nothing is due to it. */
  forget() {
    this.member?.leave();
    this.member = null;
    this.#endName();
  }

  #newName() {
    return `${this.run} ${this.uuid} ${++lastName}`;
  }

  #endName() {
    if (this.accepted > 0) tell({ room: this.room, publisher: this.name });
    this.accepted = 0;
  }

  /** @param {string} text */
  #read(text) {
    const message = JSON.parse(text);
    if (message.type === 'message') {
      this.#receive(message.payload);
      return;
    }
    if (message.type === 'joined') this.member = ledger.join(this.room, nowMs());
    this.waiting.get(message.id)?.resolve(message);
  }

  /** @param {{by?: unknown, n: number, sentMs: number}} payload */
  #receive({ by, n, sentMs }) {
    if (this.member === null || typeof by !== 'string' || !by.startsWith(this.run)) return;
    const lost = this.member.receive(by, n);
    this.count('delivered');
    this.metrics.emit('histogram', 'fanfare.delivery_ms', nowMs() - sentMs);
    if (lost > 0) this.count('lost', lost);
    else if (lost < 0) this.count('repeated');
  }

  /** @param {number} code */
  #ended(code) {
    this.closeCode = code;
    if (!this.isOver) this.count('closed');
    this.forget();
    for (const { reject } of this.waiting.values()) reject(new Error(`closed ${code}`));
  }
}
let lastName = 0;

/**
 * Joins the room `{{ room }}`. Everything else comes after it.
 * @param {Context} context @param {Metrics} metrics
 */
export async function join(context, metrics) {
  watch(metrics);
  context.user = new User(context, metrics);
  await context.user.join();
}

/**
 * Says one message, of `{{ payloadBytes }}` and a little, and waits until it is acknowledged.
 * @param {Context} context
 */
export async function say(context) {
  await userOf(context).say(Number(context.vars.payloadBytes ?? 20));
}

/**
 * Waits until everything due has come, then leaves the room.
 * @param {Context} context
 */
export async function leave(context) {
  const user = userOf(context);
  await user.settle();
  user.forget();
  const reply = await user.request({ type: 'leave', room: user.room });
  if (reply.type !== 'left') throw new Error(`leave: ${reply.error}`);
  user.isOver = true;
}

/**
 * Makes the first user that asks the room's one publisher: `{{ messages }}` is `{{ publications }}`
 * for it and 0 for all others, `{{ stay }}` is 0 for it and the seconds in `{{ memberSeconds }}`
 * for them.
 * @param {Context} context
 */
export async function elect({ vars, user }) {
  const room = user?.room ?? '';
  const isPublisher = !elected.has(room);
  if (isPublisher) tell({ room });
  vars.messages = isPublisher ? vars.publications : 0;
  vars.stay = isPublisher ? 0 : vars.memberSeconds;
}

/**
 * Waits for the next full `{{ stormEverySeconds }}` of the clock, the same moment for all users,
 * drops the connection without a word and dials at once. `join` must follow.
 * @param {Context} context @param {Metrics} metrics
 */
export async function storm(context, metrics) {
  const user = userOf(context);
  await user.settle();
  user.forget();
  const periodMs = Number(context.vars.stormEverySeconds) * 1000;
  await sleep(periodMs - (Date.now() % periodMs));
  if (user.closeCode !== 0) throw new Error(`closed ${user.closeCode}`);
  user.isOver = true;
  const droppedMs = nowMs();
  context.ws.terminate();
  context.user = undefined;
  context.ws = await redial(String(context.vars.target), metrics);
  metrics.emit('histogram', 'fanfare.reconnect_ms', nowMs() - droppedMs);
}

/**
 * Reads nothing any more. Nothing is due to it from now on.
 * @param {Context} context
 */
export async function stopReading(context) {
  const user = userOf(context);
  user.isOver = true;
  user.forget();
  socketOf(context).pause();
}

/**
 * Reads again, and looks whether the server has closed the connection meanwhile.
 * @param {Context} context @param {Metrics} metrics
 */
export async function readAgain(context, metrics) {
  const user = userOf(context);
  socketOf(context).resume();
  // The answer stands behind all that was kept for it; where the connection was given up, the end
  // stands there.
  await user.request({ type: 'ping' }).catch(() => {});
  metrics.emit('counter', user.closeCode === 0 ? 'fanfare.slow_kept' : 'fanfare.slow_closed', 1);
}

/** Artillery brings ws 7, which can't be paused itself. @param {Context} context */
function socketOf({ ws }) {
  return /** @type {{_socket: import('node:net').Socket}} */ (/** @type {unknown} */ (ws))._socket;
}

/**
 * @param {Context} context
 * @returns {User}
 */
function userOf({ user }) {
  if (user === undefined) throw new Error('this step needs a `join` before it');
  return user;
}

/**
 * Dials as a client does: at once, then after full jitter of 1 s, 2 s, 4 s …
 * @param {string} target @param {Metrics} metrics
 * @returns {Promise<WebSocket>}
 */
async function redial(target, metrics) {
  for (let attempt = 1; ; attempt++) {
    const ws = new WebSocket(target);
    try {
      await new Promise((resolve, reject) => {
        ws.once('open', resolve);
        ws.once('error', reject);
      });
      return ws;
    } catch (error) {
      metrics.emit('counter', 'fanfare.dial_failed', 1);
      if (attempt === DIALS) throw error;
      await sleep(Math.random() * 1000 * 2 ** (attempt - 1));
    }
  }
}

let isWatching = false;

/**
 * Once a second: how late this thread's event loop was, and the processor time of the whole
 * process. If these are high, Artillery is the limit, and its other figures describe itself.
 * @param {Metrics} metrics
 */
function watch(metrics) {
  if (isWatching) return;
  isWatching = true;
  for (const name of COUNTERS) metrics.emit('counter', `fanfare.${name}`, 0);
  const lag = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
  lag.enable();
  let cpu = process.cpuUsage();
  let sinceMs = nowMs();
  const sample = () => {
    const { user, system } = process.cpuUsage(cpu);
    const ms = nowMs() - sinceMs;
    metrics.emit(
      'histogram',
      'fanfare.client_lag_ms',
      Math.max(0, lag.max / 1e6 - LAG_RESOLUTION_MS),
    );
    metrics.emit('histogram', 'fanfare.client_cpu_percent', (user + system) / 10 / ms);
    cpu = process.cpuUsage();
    sinceMs = nowMs();
    lag.reset();
  };
  setInterval(sample, 1000).unref();
}
