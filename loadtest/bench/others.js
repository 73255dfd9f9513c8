// others.js: connections that get messages at a steady rate while something befalls the rest of a
// server.
//
// They belong to a client process of their own, so what differs between before and meanwhile is due
// to the server and the machine. A full server may refuse messages of theirs, each with an error.

import { percentileMs } from '../../test/harness/latency.js';
import { clean, measured, openAll } from './step.js';
import { Swarm } from './swarm.js';

const COUNT = 1000;
const ROOM = 'others';
const PER_SECOND = 10;
/** Messages are sent in runs of this length until the event is over. */
const RUN_SECONDS = 1;
/** What arrives later counts as missing; `stray` in the report says whether it came after all. */
const DRAIN_MS = 30_000;
/** For a server that is busy with a million. */
const OPEN_MS = 600_000;

/** @typedef {import('./servers.js').Target} Target */
/** @typedef {import('./step.js').Step} Step */

export class Others {
  #swarm = new Swarm({ processes: 1 });

  /** @param {Target} target @param {number} payloadBytes @param {number} [drainMs] */
  constructor(target, payloadBytes, drainMs = DRAIN_MS) {
    this.target = target;
    this.payloadBytes = payloadBytes;
    this.drainMs = drainMs;
    /** A run that nothing disturbs. @type {Step|null} */
    this.before = null;
  }

  /** Opens the connections. @param {number} sources */
  async open(sources) {
    this.#swarm.start();
    await this.#swarm.aim(this.target);
    await openAll(this.#swarm, { count: COUNT, room: ROOM, sources, timeoutMs: OPEN_MS });
    await this.#run();
  }

  /** Measures how they fare when nothing happens. */
  async rest() {
    this.before = await this.#run();
  }

  /** @param {{moving?: boolean, refusing?: boolean}} [kind] @returns {Promise<Step>} */
  #run(kind = {}) {
    return measured(this.target, () =>
      this.#swarm.run({
        perSecond: PER_SECOND,
        seconds: RUN_SECONDS,
        payloadBytes: this.payloadBytes,
        drainMs: this.drainMs,
        ...kind,
      }),
    );
  }

  /**
   * Sends messages until the event is over. If it closes connections of theirs, those come back, and
   * are judged again from the next run on.
   * @template T
   * @param {Promise<T>} event under way
   * @param {{ moving?: boolean, timeoutMs?: number }} [options] `moving`: it may close them
   */
  async during(event, { moving = false, timeoutMs = 0 } = {}) {
    let over = false;
    const ended = event.finally(() => {
      over = true;
    });
    const back = moving
      ? this.#swarm.comeBack({ timeoutMs, onReady: () => ended.then(() => {}), repeats: true })
      : null;
    // They are thrown below.
    ended.catch(() => {});
    back?.catch(() => {});
    /** @type {Step[]} */
    const runs = [];
    do runs.push(await this.#run(moving ? { moving } : { refusing: true }));
    while (!over);
    const result = await ended;
    const returned = await back;
    return { result, others: this.#report(runs, returned?.left ?? 0) };
  }

  /** @param {readonly Step[]} runs @param {number} closed */
  #report(runs, closed) {
    const { before } = this;
    return {
      count: COUNT,
      perSecond: PER_SECOND,
      beforeP50Ms: before?.p50Ms ?? Number.NaN,
      beforeP99Ms: before?.p99Ms ?? Number.NaN,
      isClean:
        // A message of a publisher that was closed has no reply.
        runs.every((run) => isUndisturbed(run) && (closed > 0 || hasReplies(run))) &&
        (before === null || clean(before)),
      closed,
      ...together(runs),
    };
  }

  close() {
    return this.#swarm.close();
  }
}

/** If all connections have moved, or all messages were refused, it has judged none. @param {Step} run */
function isUndisturbed(run) {
  const { moved, expected, wrong, lost } = run;
  const isRefused = expected === 0 && wrong === 0 && lost === 0 && hasReplies(run);
  return clean(run) || moved === COUNT || isRefused;
}

/** Has each message that nobody got its error? @param {Step} run */
function hasReplies({ refused = 0, errors = 0 }) {
  return refused <= errors;
}

/** @param {readonly Step[]} runs */
function together(runs) {
  const histogram = new Float64Array(runs[0].histogram.length);
  for (const run of runs) for (const [i, count] of run.histogram.entries()) histogram[i] += count;
  const sum = (
    /** @type {'expected'|'received'|'lost'|'refused'|'errors'|'wrong'|'stray'} */ key,
  ) => runs.reduce((total, run) => total + (run[key] ?? 0), 0);
  return {
    expected: sum('expected'),
    received: sum('received'),
    lost: sum('lost'),
    refused: sum('refused'),
    errors: sum('errors'),
    wrong: sum('wrong'),
    stray: sum('stray'),
    p50Ms: percentileMs(histogram, 0.5),
    p99Ms: percentileMs(histogram, 0.99),
    maxMs: Math.max(...runs.map((run) => run.maxMs)),
    p99MsByRun: runs.map((run) => run.p99Ms),
  };
}
