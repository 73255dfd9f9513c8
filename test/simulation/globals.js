// globals.js: the global objects of simulated processes: clocks, timers, chance, `process`.
//
// All processes share the main context, so objects of Node and of the code under test have the same
// classes. Each global serves the process whose event runs. Node's own modules keep the real ones.

import { Random } from '../checker/random.js';

/** The longest delay of a timer, as in Node. */
const MAX_DELAY_MS = 2 ** 31 - 1;

/** @import { Simulator } from './simulator.js' */
/** @import { SimulatedProcess } from './simulated-process.js' */

/** A timer of a process, with the methods of Node's. */
class Timer {
  /**
   * @param {Simulator} simulator @param {number} delayMs 0: as `setImmediate`
   * @param {boolean} repeats @param {Function} act @param {unknown[]} args
   */
  constructor(simulator, delayMs, repeats, act, args) {
    this.simulator = simulator;
    this.owner = simulator.current;
    this.delayMs = delayMs;
    this.repeats = repeats;
    this.act = act;
    this.args = args;
    this.fire = this.fire.bind(this);
    this.event = simulator.schedule(this.delayMs, this.owner, this.fire);
  }

  fire() {
    if (this.repeats) this.event = this.simulator.schedule(this.delayMs, this.owner, this.fire);
    this.act(...this.args);
  }

  refresh() {
    this.simulator.cancel(this.event);
    this.event = this.simulator.schedule(this.delayMs, this.owner, this.fire);
    return this;
  }

  close() {
    this.simulator.cancel(this.event);
    return this;
  }

  ref() {
    return this;
  }

  unref() {
    return this;
  }

  hasRef() {
    return true;
  }
}

/** @param {number} ms @returns {number} the delay that Node takes for it */
function delayOf(ms) {
  return ms >= 1 && ms <= MAX_DELAY_MS ? Math.trunc(ms) : 1;
}

/** @param {unknown} timer */
function clear(timer) {
  if (timer instanceof Timer) timer.close();
}

/**
 * Replaces the global objects.
 * @param {Simulator} simulator @returns {() => void} puts the real ones back
 */
export function replaceGlobals(simulator) {
  const RealDate = Date;
  const now = () => Math.floor(simulator.unixMs + skewOf(simulator));
  /** @this {unknown} @param {any[]} args */
  function SimulatedDate(...args) {
    if (!new.target) return new RealDate(now()).toString();
    // @ts-expect-error: a Date takes one to seven arguments
    return args.length === 0 ? new RealDate(now()) : new RealDate(...args);
  }
  SimulatedDate.prototype = RealDate.prototype;
  const chance = new Random(simulator.seed ^ 0x5bd1e995);
  const random = () => (presentProcess(simulator)?.random ?? chance).next();
  const abortAfter = (/** @type {number} */ ms) => {
    const controller = new AbortController();
    const reason = () =>
      new DOMException('The operation was aborted due to timeout', 'TimeoutError');
    new Timer(simulator, delayOf(ms), false, () => controller.abort(reason()), []);
    return controller.signal;
  };
  const timer =
    (/** @type {boolean} */ repeats) =>
    (/** @type {Function} */ act, /** @type {number} */ ms, /** @type {unknown[]} */ ...args) =>
      new Timer(simulator, delayOf(ms), repeats, act, args);
  const soon = (/** @type {Function} */ act, /** @type {unknown[]} */ ...args) =>
    new Timer(simulator, 0, false, act, args);
  const undo = [
    replace(globalThis, {
      Date: Object.assign(SimulatedDate, { now, UTC: RealDate.UTC, parse: RealDate.parse }),
      setTimeout: timer(false),
      setInterval: timer(true),
      setImmediate: soon,
      clearTimeout: clear,
      clearInterval: clear,
      clearImmediate: clear,
      fetch: (/** @type {any} */ url, /** @type {any} */ options) =>
        presentProcess(simulator)?.fetch(url, options),
    }),
    replace(performance, { now: () => simulator.read(isServer(simulator)) }),
    replace(Math, { random }),
    replace(AbortSignal, { timeout: abortAfter }),
    replaceProcess(simulator),
  ];
  return () => {
    for (const act of undo) act();
  };
}

/** @param {Simulator} simulator @returns {SimulatedProcess|null} */
function presentProcess({ current }) {
  return 'machine' in current ? /** @type {SimulatedProcess} */ (current) : null;
}

/** Does a program of the deployment run? @param {Simulator} simulator */
function isServer(simulator) {
  return presentProcess(simulator)?.machine.isServer === true;
}

/** @param {Simulator} simulator */
function skewOf(simulator) {
  return presentProcess(simulator)?.machine.skewMs ?? 0;
}

/** @param {any} object @param {Record<string, unknown>} members @returns {() => void} */
function replace(object, members) {
  const before = Object.keys(members).map((name) => [
    name,
    Object.getOwnPropertyDescriptor(object, name),
  ]);
  for (const [name, value] of Object.entries(members))
    Object.defineProperty(object, name, { value, configurable: true, writable: true });
  return () => {
    for (const [name, descriptor] of /** @type {[string, PropertyDescriptor|undefined][]} */ (
      before
    )) {
      if (descriptor === undefined) delete object[name];
      else Object.defineProperty(object, name, descriptor);
    }
  };
}

/** @param {Simulator} simulator @returns {() => void} */
function replaceProcess(simulator) {
  const before = /** @type {PropertyDescriptor} */ (
    Object.getOwnPropertyDescriptor(globalThis, 'process')
  );
  const real = process;
  Object.defineProperty(globalThis, 'process', {
    configurable: true,
    get: () => presentProcess(simulator)?.object ?? real,
    set() {},
  });
  const fault = (/** @type {unknown} */ error) => simulator.current.fault(error);
  real.on('uncaughtException', fault);
  real.on('unhandledRejection', fault);
  return () => {
    Object.defineProperty(globalThis, 'process', before);
    real.removeListener('uncaughtException', fault);
    real.removeListener('unhandledRejection', fault);
  };
}
