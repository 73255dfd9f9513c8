// fleet-figures.js: what all servers say of themselves, how it grows, and which servers have gone.
//   Console, every sample --> a survey of all workers, if one is due --> FleetFigures
//   FleetFigures --> history, servers
//
// The surveys of the last minute stay here, so a page that opens has rates at once. While no page
// is open, there are fewer surveys: a server that dies at night is an event all the same. A server
// that misses two surveys counts as dead, unless its workers were draining when they last answered.

/** Surveys kept: the growth of rare events is shown for this time. */
const WINDOW_MS = 60_000;
/** Rates are measured over this time, if there are surveys enough. */
const RATE_MS = 10_000;
/** Between two surveys while no page is open, in a small fleet. */
const IDLE_MS = 10_000;
/** Each server asks all workers, so in a large fleet they ask less often: for no more than this. */
const ANSWERS_PER_S = 200;
/** A page that has not asked for this time is closed. */
const WATCHED_MS = 15_000;
/** One may be missed by a worker that was busy for a second. */
const MISSED = 2;
const FORGET_MS = 15 * 60_000;
const MAX_SERVERS = 200;

/**
 * `messages`, `deliveries`, `refused` and `errors` have counted since the start of the worker. A
 * worker of an older version does not send them.
 * @typedef {{server: string, version: string, slot: number, pid: number, state: string, connections: number, rooms: number, lagMs: number, memoryBytes: number, uptimeS: number, messages?: number, deliveries?: number, refused?: number, errors?: number}}
 *   WorkerInfo
 * @typedef {'messages'|'deliveries'|'refused'|'errors'} Counter
 */

/**
 * @typedef {object} Member a server
 * @property {string} name @property {number} seenMs since 1970: its last answer
 * @property {'here'|'late'|'dead'|'left'} state `late`: it missed the last survey; `left`: it drained
 * @property {Sums|null} sums null unless it is here
 */

/**
 * @typedef {object} Sums of a server, or of all
 * @property {number} workers @property {number} ready @property {number} connections
 * @property {number|null} messages a second; null: unknown
 * @property {number|null} deliveries a second
 * @property {number|null} refused in the last minute
 * @property {number|null} errors in the last minute
 */

/**
 * @typedef {object} Overview for the page
 * @property {string} fault why the last survey failed; '': it did not
 * @property {boolean} isPartial a worker has not answered the last survey
 * @property {Sums|null} sums of all servers @property {Member[]} servers by name
 */

/** @typedef {{workers: WorkerInfo[], seenMs: number, missed: number}} Seen */

export class FleetFigures {
  /** @type {{atMs: number, workers: Map<string, WorkerInfo>}[]} */
  #surveys = [];
  /** @type {Map<string, Seen>} */
  #servers = new Map();
  #fault = '';
  #isPartial = false;
  /** The survey under way. @type {Promise<void>|null} */
  #asking = null;
  #askedMs = Number.NEGATIVE_INFINITY;
  #watchedMs = Number.NEGATIVE_INFINITY;

  /**
   * @param {object} parts
   * @param {() => Promise<{workers: WorkerInfo[], partial: boolean}>} parts.survey rejects with a
   *   text for the operator
   * @param {(timeMs: number, kind: 'gone'|'returned', text: string) => void} parts.onChange
   */
  constructor({ survey, onChange }) {
    this.survey = survey;
    this.onChange = onChange;
  }

  /** A page is open. @param {number} nowMs since 1970 */
  pageAsked(nowMs) {
    const wasWatched = this.#isWatched(nowMs);
    this.#watchedMs = nowMs;
    // The page asks again a sample later, and gets figures of now.
    if (!wasWatched) this.update(nowMs, true);
  }

  /** @param {number} nowMs */
  #isWatched(nowMs) {
    return nowMs < this.#watchedMs + WATCHED_MS;
  }

  /** Has a server missed the last survey, and not the one before? */
  get #isDoubtful() {
    return [...this.#servers.values()].some(({ missed }) => missed === 1);
  }

  /** Is somebody watching, or should the next survey come soon? @param {number} nowMs since 1970 */
  wantsSamples(nowMs) {
    return this.#isWatched(nowMs) || this.#isDoubtful;
  }

  /**
   * Asks all workers if it is time.
   * @param {number} nowMs since 1970 @param {boolean} isShared are there other servers?
   */
  async update(nowMs, isShared) {
    // A little less, because samples are not exactly in time.
    const isDue = nowMs > this.#askedMs + this.#idleMs() - 500;
    if (!(this.#isWatched(nowMs) || (isShared && (isDue || this.#isDoubtful)))) return;
    this.#asking ??= this.#askServers(nowMs).finally(() => {
      this.#asking = null;
    });
    await this.#asking;
  }

  #idleMs() {
    const workers = this.#surveys.at(-1)?.workers.size ?? 0;
    return Math.max(IDLE_MS, (1000 * this.#servers.size * workers) / ANSWERS_PER_S);
  }

  /** Waits for a survey if there is no recent one: the view has nothing else to show. */
  async refresh(nowMs = Date.now()) {
    this.pageAsked(nowMs);
    const lastMs = this.#surveys.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY;
    if (nowMs > lastMs + 2 * IDLE_MS) await this.update(nowMs, true);
  }

  /** @param {number} nowMs */
  async #askServers(nowMs) {
    this.#askedMs = nowMs;
    try {
      const { workers, partial } = await this.survey();
      this.addSurvey(nowMs, workers, partial);
    } catch (error) {
      this.#fault = /** @type {Error} */ (error).message;
    }
  }

  /** @param {number} atMs @param {readonly WorkerInfo[]} workers @param {boolean} isPartial */
  addSurvey(atMs, workers, isPartial) {
    this.#fault = '';
    this.#isPartial = isPartial;
    this.#surveys.push({ atMs, workers: new Map(workers.map((one) => [workerKey(one), one])) });
    this.#surveys = this.#surveys.filter((survey) => survey.atMs >= atMs - WINDOW_MS - RATE_MS);
    const sorted = [...workers].sort((one, other) => one.slot - other.slot);
    const names = new Set(sorted.map(({ server }) => server));
    for (const name of names) {
      const before = this.#servers.get(name);
      const members = sorted.filter(({ server }) => server === name);
      this.#servers.set(name, { workers: members, seenMs: atMs, missed: 0 });
      if (before !== undefined && stateOf(before) === 'dead')
        this.onChange(atMs, 'returned', `${name} answers again`);
    }
    for (const [name, seen] of this.#servers) {
      if (!names.has(name)) seen.missed++;
      if (seen.missed === MISSED)
        this.onChange(
          atMs,
          'gone',
          stateOf(seen) === 'dead' ? `${name} does not answer` : `${name} has left after a drain`,
        );
      if (seen.seenMs < atMs - FORGET_MS || this.#servers.size > MAX_SERVERS)
        this.#servers.delete(name);
    }
  }

  /** @returns {Overview} */
  overview() {
    const servers = this.#sorted().map(([name, seen]) => ({
      name,
      seenMs: seen.seenMs,
      state: stateOf(seen),
      sums: this.sums(name),
    }));
    return { fault: this.#fault, isPartial: this.#isPartial, sums: this.sums(null), servers };
  }

  /** @returns {(Omit<Member, 'sums'> & {workers: WorkerInfo[]})[]} by name, as they last answered */
  servers() {
    return this.#sorted().map(([name, seen]) => ({
      name,
      seenMs: seen.seenMs,
      state: stateOf(seen),
      workers: seen.workers,
    }));
  }

  #sorted() {
    return [...this.#servers].sort(([one], [other]) => one.localeCompare(other));
  }

  /** @param {string|null} server null: all @returns {Sums|null} null: no answer */
  sums(server) {
    const last = this.#surveys.at(-1);
    const workers = [...(last?.workers.values() ?? [])].filter(
      (one) => server === null || one.server === server,
    );
    if (workers.length === 0) return null;
    return {
      workers: workers.length,
      ready: workers.filter(({ state }) => state === 'ready').length,
      connections: workers.reduce((sum, one) => sum + one.connections, 0),
      messages: this.#growth(workers, 'messages', RATE_MS, 1000),
      deliveries: this.#growth(workers, 'deliveries', RATE_MS, 1000),
      refused: this.#growth(workers, 'refused', WINDOW_MS, WINDOW_MS),
      errors: this.#growth(workers, 'errors', WINDOW_MS, WINDOW_MS),
    };
  }

  /**
   * @param {readonly WorkerInfo[]} workers of the last survey
   * @param {Counter} counter @param {number} spanMs the time that is looked back, if surveys are
   *   not further apart @param {number} perMs the time for which the growth is given, at most the
   *   time looked back
   */
  #growth(workers, counter, spanMs, perMs) {
    const last = this.#surveys[this.#surveys.length - 1];
    const first = this.#surveys.find(({ atMs }) => atMs >= last.atMs - spanMs);
    const base = first === last ? this.#surveys.at(-2) : first;
    if (base === undefined) return null;
    const forMs = last.atMs - base.atMs;
    let growth = 0;
    let isKnown = false;
    for (const one of workers) {
      const now = one[counter];
      if (now === undefined) continue;
      const before = base.workers.get(workerKey(one));
      // A worker that has started since has counted from 0.
      const isNew = before === undefined && one.uptimeS * 1000 <= forMs;
      if (!isNew && before?.[counter] === undefined) continue;
      isKnown = true;
      growth += now - (before?.[counter] ?? 0);
    }
    return isKnown ? (growth * Math.min(perMs, forMs)) / forMs : null;
  }
}

/** @param {Seen} server @returns {Member['state']} */
function stateOf({ workers, missed }) {
  if (missed === 0) return 'here';
  if (workers.every(({ state }) => state === 'draining')) return 'left';
  return missed < MISSED ? 'late' : 'dead';
}

/** @param {WorkerInfo} worker */
function workerKey({ server, slot, pid }) {
  return `${server} ${slot} ${pid}`;
}
