// hooks.js: calls the hooks of a worker, and bounds the calls.
//
//   call -> runs, if fewer than `concurrency` calls run; otherwise it waits in line
//        -> answer            allowed, denied, changed
//        -> deadline, throw   refused, because a check has failed
//
// Time in line counts against the deadline. When a call times out, it fails and frees its place.
// JavaScript cannot stop it, so `running` counts it until it ends; only the supervisor can end an
// endless loop. A hook that returns no promise costs no timer and no promise here.

import { RareLog } from '../observability/rare-log.js';
import { refusal, sizeText } from '../protocol/refusal.js';
import { ALLOWED, AnswerError, HookError, readAnswer } from './answer.js';

const MAX_WAITING = 10_000;
/** Many more, because a drain closes all connections within seconds. */
const MAX_WAITING_DISCONNECTS = 100_000;

/** @typedef {import('../observability/counters.js').HookName} HookName */
/** @import { About } from '../operations/hook-gate.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { HookFailure } from '../observability/counters.js' */
/** @import { Answer } from './answer.js' */

/**
 * @typedef {object} Verdict
 * @property {Refusal|null} refusal null: allowed
 * @property {Answer} answer
 */

/** @type {Verdict} */
const PASSED = Object.freeze({ refusal: null, answer: ALLOWED });
/** @type {Verdict} */
const FAILED = Object.freeze({ refusal: refusal('HOOK_FAILED'), answer: ALLOWED });

class Call {
  /** @type {AbortController|null} */
  #abort = null;

  /**
   * @param {HookName} hook @param {readonly unknown[]} args
   * @param {number} deadlineMs by performance.now() @param {About} [about] the message
   */
  constructor(hook, args, deadlineMs, about) {
    this.hook = hook;
    this.about = about;
    this.args = args;
    this.deadlineMs = deadlineMs;
    this.startedMs = 0; // 0 while it waits in line
    /** @type {((verdict: Verdict) => void)|null} */
    this.resolve = null;
    this.isOver = false;
    this.context = lazyContext(this);
  }

  get signal() {
    this.#abort ??= new AbortController();
    if (this.isOver) this.#abort.abort();
    return this.#abort.signal;
  }

  /** @param {Verdict} verdict */
  end(verdict) {
    this.isOver = true;
    this.args = NO_ARGS; // or a hook that hangs would keep them in memory
    this.resolve?.(verdict);
    this.resolve = null;
  }

  abort() {
    this.#abort?.abort();
  }
}

/** @type {readonly unknown[]} */
const NO_ARGS = Object.freeze([]);

/** Creates no signal until a hook reads it. @param {Call} call */
function lazyContext(call) {
  return {
    key: call.about?.key,
    audience: call.about?.audience,
    get signal() {
      return call.signal;
    },
  };
}

export class Hooks {
  /** Calls with a deadline, running or in line, earliest deadline first. @type {Set<Call>} */
  #open = new Set();
  /** Calls in line. @type {Set<Call>} */
  #line = new Set();
  /** Calls of onDisconnect in line. They have no deadline until they start. @type {Set<Call>} */
  #disconnects = new Set();
  /** Running calls that have not timed out. */
  #places = 0;
  /** @type {NodeJS.Timeout|undefined} */
  #timer;
  /** Bounds how many calls one turn starts: hooks without a promise take no place. */
  #slot;

  /**
   * @param {object} parts @param {import('./types.js').Hooks} parts.functions
   * @param {number} parts.timeoutMs @param {number} parts.concurrency
   * @param {number} parts.maxPayloadBytes of a changed payload or a result
   * @param {import('../observability/counters.js').HookCounters} parts.counters
   * @param {(hook: HookName, seconds: number) => void} parts.observe
   * @param {import('../worker/turn.js').Turn} parts.turn
   * @param {import('../observability/rare-log.js').Log} parts.log
   */
  constructor({
    functions,
    timeoutMs,
    concurrency,
    maxPayloadBytes,
    counters,
    observe,
    turn,
    log,
  }) {
    this.functions = functions;
    this.timeoutMs = timeoutMs;
    this.concurrency = concurrency;
    this.maxPayloadBytes = maxPayloadBytes;
    const made = sizeText(
      'What a hook made of it',
      null,
      maxPayloadBytes,
      'FANFARE_MAX_MESSAGE_BYTES',
    );
    /** @type {Verdict} */
    this.tooLarge = { refusal: refusal('MESSAGE_TOO_LARGE', made), answer: ALLOWED };
    this.counters = counters;
    this.observe = observe;
    this.#slot = turn.slot('hooks', this.#startSome.bind(this));
    this.rareLog = new RareLog(log);
  }

  /** @param {HookName} hook */
  has(hook) {
    return this.functions[hook] !== undefined;
  }

  /** True if no call runs or waits, except those that timed out. */
  get isIdle() {
    return this.#open.size === 0 && this.#disconnects.size === 0;
  }

  /**
   * @param {HookName} hook which exists @param {readonly unknown[]} args without the context
   * @param {About} [about] the message
   * @returns {Verdict|Promise<Verdict>} a promise if the hook returns one or the call waits in line.
   *   It never rejects
   */
  call(hook, args, about) {
    this.counters.calls[hook]++;
    const call = new Call(hook, args, performance.now() + this.timeoutMs, about);
    if (this.#places < this.concurrency && this.#line.size === 0) {
      const verdict = this.#start(call);
      if (verdict !== null) return verdict;
    } else {
      if (this.#line.size >= MAX_WAITING) return this.#failCall(call, 'busy', undefined);
      this.#line.add(call);
    }
    this.#watchDeadline(call);
    return new Promise((resolve) => {
      call.resolve = resolve;
    });
  }

  /** Calls onDisconnect, in line as long as needed. @param {readonly unknown[]} args */
  disconnected(args) {
    this.counters.calls.onDisconnect++;
    const call = new Call('onDisconnect', args, 0);
    this.#disconnects.add(call);
    if (this.#disconnects.size > MAX_WAITING_DISCONNECTS) {
      this.#disconnects.delete(call);
      this.#failCall(call, 'busy', undefined);
    } else this.#startNextCall();
  }

  /** @param {Call} call @returns {Verdict|null} null: the hook returned a promise */
  #start(call) {
    call.startedMs = performance.now();
    const hook = /** @type {(...args: unknown[]) => unknown} */ (this.functions[call.hook]);
    /** @type {unknown} */
    let returned;
    let isLater = false;
    try {
      returned = hook(...call.args, call.context);
      isLater = isThenable(returned);
    } catch (error) {
      return this.#failCall(call, reasonOf(error), error);
    }
    if (!isLater) return this.#readAnswer(call, returned);
    this.#places++;
    this.counters.running++;
    // Another library's `then` may throw, or call back twice.
    Promise.resolve(returned).then(
      (answer) => this.#ended(call, () => this.#readAnswer(call, answer)),
      (error) => this.#ended(call, () => this.#failCall(call, reasonOf(error), error)),
    );
    return null;
  }

  /** Watches the deadline of a call. @param {Call} call */
  #watchDeadline(call) {
    this.#open.add(call);
    this.#arm();
  }

  /** @param {Call} call whose promise has settled @param {() => Verdict} conclude */
  #ended(call, conclude) {
    this.counters.running--;
    if (call.isOver) return; // timed out
    this.#places--;
    this.#open.delete(call);
    call.end(conclude());
    this.#startNextCall();
  }

  #startNextCall() {
    if (!this.#slot.isAwake && this.#startSome()) this.#slot.wake();
  }

  /** Starts calls in line, onDisconnect last. @returns {boolean} could more start? */
  #startSome() {
    while (this.#places < this.concurrency) {
      const call = first(this.#line) ?? first(this.#disconnects);
      if (call === undefined) return false;
      if (this.#slot.isSpent()) return true;
      this.#line.delete(call);
      this.#disconnects.delete(call);
      const verdict = this.#start(call);
      if (verdict !== null) {
        this.#open.delete(call);
        call.end(verdict);
      } else if (call.hook === 'onDisconnect') {
        call.deadlineMs = call.startedMs + this.timeoutMs;
        this.#watchDeadline(call);
      }
    }
    return false;
  }

  /** @param {Call} call @param {unknown} returned @returns {Verdict} */
  #readAnswer(call, returned) {
    const { hook } = call;
    this.observe(hook, (performance.now() - call.startedMs) / 1000);
    let answer;
    try {
      answer = readAnswer(hook, returned, this.maxPayloadBytes);
    } catch (error) {
      if (!(error instanceof AnswerError)) return this.#countFailure(hook, 'throw', error); // a getter has thrown
      const verdict = this.#countFailure(hook, 'answer', error);
      return error.isTooLarge ? this.tooLarge : verdict;
    }
    if (answer === ALLOWED) return PASSED;
    if (answer.deny === null) return { refusal: null, answer };
    this.counters.denied[hook]++;
    return { refusal: refusal('DENIED', answer.deny || undefined), answer };
  }

  /** @param {Call} call @param {HookFailure} reason @param {unknown} error @returns {Verdict} */
  #failCall(call, reason, error) {
    const { hook, startedMs } = call;
    if (startedMs > 0) this.observe(hook, (performance.now() - startedMs) / 1000);
    return this.#countFailure(hook, reason, error);
  }

  /** @param {HookName} hook @param {HookFailure} reason @param {unknown} error */
  #countFailure(hook, reason, error) {
    this.counters.failures[`${hook},${reason}`]++;
    this.rareLog.warn({ hook, reason, err: error }, `${hook} failed: ${reason}`);
    return FAILED;
  }

  /** Refuses an answer that cannot be used. @param {HookName} hook @param {string} fault */
  reject(hook, fault) {
    return /** @type {Refusal} */ (
      this.#countFailure(hook, 'answer', new AnswerError(fault)).refusal
    );
  }

  /** Sets the timer, which all calls share, to the earliest deadline. */
  #arm() {
    if (this.#timer !== undefined) return;
    const call = first(this.#open);
    if (call === undefined) return;
    const delayMs = Math.max(1, Math.ceil(call.deadlineMs - performance.now()));
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#sweep();
    }, delayMs).unref();
  }

  #sweep() {
    const nowMs = performance.now();
    for (const call of this.#open) {
      if (call.deadlineMs > nowMs) break;
      this.#open.delete(call);
      const waited = this.#line.delete(call);
      if (!waited) this.#places--;
      call.end(this.#failCall(call, waited ? 'busy' : 'timeout', undefined));
      call.abort();
    }
    this.#arm();
    this.#startNextCall();
  }
}

/** @template T @param {Set<T>} set @returns {T|undefined} */
function first(set) {
  for (const one of set) return one;
  return undefined;
}

/** @param {unknown} error that a hook has thrown @returns {HookFailure} */
function reasonOf(error) {
  return error instanceof HookError ? error.reason : 'throw';
}

/** @param {unknown} value @returns {value is PromiseLike<unknown>} */
function isThenable(value) {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof (/** @type {{then?: unknown}} */ (value).then) === 'function'
  );
}
