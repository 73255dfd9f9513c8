// swarm.js: steers the client processes: several, each with many connections.
//
// Commands go to all processes at once, as lines on stdin; answers come back as lines of JSON
// (client/client.c lists them). The processes share one clock (CLOCK_MONOTONIC), so a run starts at
// one time for all, and one process can time a message that another one sent.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { addHistogram, BUCKETS } from '../../test/harness/latency.js';
import { endUnused } from '../../test/harness/options.js';
import { compile, hasCompiler } from './compile.js';
import { profileArguments } from './profiles.js';

/** A run whose messages may be refused; 1 is one whose connections may move. Of client.c. */
const REFUSING = 2;

/** @typedef {Record<string, any>} Answer one line of a client process, as it wrote it */

/**
 * The result of a run, over all processes.
 * @typedef {object} RunResult
 * @property {number} open connections at its end
 * @property {number} expected deliveries
 * @property {number} received
 * @property {number} inWindow of these, within the time in which messages were sent
 * @property {number} wrong connections whose count or sum of sequence numbers is not what their
 *   room was sent
 * @property {number} lost connections
 * @property {number} sent messages
 * @property {number} [refused] of a run with `moving` or `refusing`: messages that nobody got
 * @property {number} [errors] replies that refuse a command
 * @property {number} [moved] of a run with `moving`: connections that it does not judge
 * @property {number} stray deliveries that belong to no run under way
 * @property {number} maxMs
 * @property {number} frames
 * @property {number} bytes
 * @property {number} reads
 * @property {number} cpuSeconds of all client processes
 * @property {number} busiest processor time of the busiest client process as a share of the time
 *   that passed
 * @property {Float64Array} histogram of latencies
 */

/**
 * The path of the client program, which is built if it is missing or older than its source. A tool
 * ends here if the machine cannot build it.
 */
export function clientProgram() {
  if (!hasCompiler())
    endUnused(
      'the load client is a C program: install a C compiler named cc, such as gcc or clang',
    );
  return compile('client/client.c');
}

export class Swarm {
  #count;
  /**
   * @type
   *   {{ child: import('node:child_process').ChildProcessWithoutNullStreams, waiting: Map<number, (answer: Answer) => void> }[]}
   */
  #processes = [];
  #lastId = 0;
  #lastStep = 0;
  /** @type {Error | null} */
  #failure = null;
  /** @type {((error: Error) => void)[]} */
  #rejections = [];

  /**
   * @param {object} options
   * @param {number} options.processes
   */
  constructor({ processes }) {
    this.#count = processes;
  }

  /** @param {number} processes @returns {Swarm} another one of the same client, not started */
  another(processes) {
    return new Swarm({ processes });
  }

  /** Starts the processes. */
  start() {
    const program = clientProgram();
    for (let i = 0; i < this.#count; i++) {
      const child = spawn(program, { stdio: ['pipe', 'pipe', 'pipe'] });
      /** @type {Map<number, (answer: Answer) => void>} */
      const waiting = new Map();
      createInterface({ input: child.stdout }).on('line', (line) => {
        const answer = JSON.parse(line);
        waiting.get(answer.id)?.(answer);
        waiting.delete(answer.id);
      });
      child.stderr.on('data', (text) => process.stderr.write(`client: ${text}`));
      child.stdin.on('error', () => {}); // its exit says it
      child.on('exit', (code, signal) => {
        if (this.#processes.length === 0) return; // closed by us
        this.#failure = new Error(`a client process ended: ${signal ?? code}`);
        for (const reject of this.#rejections.splice(0)) reject(this.#failure);
      });
      this.#processes.push({ child, waiting });
    }
    return this;
  }

  async close() {
    const processes = this.#processes;
    this.#processes = [];
    await Promise.all(
      processes.map(
        ({ child }) =>
          new Promise((resolve) => {
            if (child.exitCode !== null || child.signalCode !== null) return resolve(null);
            child.once('exit', resolve);
            child.stdin.end();
          }),
      ),
    );
  }

  get size() {
    return this.#count;
  }

  get pids() {
    return this.#processes.map(({ child }) => /** @type {number} */ (child.pid));
  }

  /**
   * Sends one command to every process and waits for all answers.
   * @param {string} name
   * @param {(process: number) => Record<string, string | number>} argumentsOf
   * @returns {Promise<Answer[]>}
   */
  #all(name, argumentsOf) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#rejections.push(reject);
      Promise.all(
        this.#processes.map(
          ({ child, waiting }, i) =>
            new Promise((answered) => {
              waiting.set(id, answered);
              const args = Object.entries(argumentsOf(i)).map(
                ([key, value]) => `${key}=${encodeURIComponent(value)}`,
              );
              child.stdin.write(`${name} id=${id} ${args.join(' ')}\n`);
            }),
        ),
      ).then((answers) => {
        this.#rejections.splice(this.#rejections.indexOf(reject), 1);
        resolve(/** @type {Answer[]} */ (answers));
      });
    });
  }

  /** This process's part of `total` things. @param {number} total @param {number} process */
  #part(total, process) {
    return Math.floor(total / this.#count) + (process < total % this.#count ? 1 : 0);
  }

  /**
   * Says whom to talk to, and how.
   * @param
   *   {{ host: string, port: number, profile: import('./profiles.js').Profile, echo?: boolean }}
   *   target
   */
  async aim({ host, port, profile, echo = false }) {
    const args = profileArguments(profile, echo);
    await this.#all('profile', (i) => ({ ...args, host, port, sourceOffset: i }));
  }

  /**
   * Opens connections; done when each is ready or has failed.
   * @param {object} options
   * @param {number} options.count over all processes, without `ownRooms`
   * @param {number} [options.group] groups are run apart from each other
   * @param {string} [options.room]
   * @param {number} [options.rooms] more than 1: that many rooms, `room` followed by a number
   * @param {{rooms: number, members: number}|null} [options.ownRooms] opens all members of that many
   *   rooms, or those that are missing; the members of a room belong to one process
   * @param {number} [options.concurrency] handshakes under way at a time, over all processes
   * @param {number} [options.sources] source addresses 127.0.0.2 …; 0 lets the kernel choose
   * @param {number} [options.perSecond] at most this many a second; 0: as fast as it goes
   * @param {boolean} [options.read] false: stops reading once it has joined
   * @param {number} [options.timeoutMs]
   */
  async open({
    count,
    group = 0,
    room = 'bench',
    rooms = 1,
    ownRooms = null,
    concurrency = 200,
    sources = 4,
    perSecond = 0,
    read = true,
    timeoutMs = 60_000,
  }) {
    const answers = await this.#all('open', (i) => ({
      group,
      ...(ownRooms === null
        ? { count: this.#part(count, i), room, rooms }
        : this.#ownRooms(ownRooms, room, i)),
      concurrency: Math.max(1, Math.floor(concurrency / this.#count)),
      sources,
      perSecond: Math.ceil(perSecond / this.#count),
      read: read ? 1 : 0,
      timeoutMs,
    }));
    return {
      open: sum(answers, 'open'),
      failed: sum(answers, 'failed'),
      seconds: Math.max(...answers.map((answer) => answer.seconds)),
      cpuSeconds: sum(answers, 'cpuSeconds'),
    };
  }

  /**
   * The arguments of a process that has rooms of its own.
   * @param {{rooms: number, members: number}} all @param {string} room @param {number} process
   */
  #ownRooms(all, room, process) {
    const rooms = this.#part(all.rooms, process);
    return { count: rooms * all.members, upTo: 1, room: `${room}${process}-`, rooms };
  }

  /**
   * Publishes in an open loop and counts the deliveries.
   * @param {object} options
   * @param {number} options.perSecond messages, over all rooms
   * @param {number} options.seconds
   * @param {number} [options.group]
   * @param {number} [options.from] the group that publishes, if it is another one of the same room
   * @param {number} [options.payloadBytes]
   * @param {number} [options.drainMs] how long to wait for deliveries in flight
   * @param {boolean} [options.everyProcess] all of them publish, not only the first
   * @param {boolean} [options.inOwnRooms] each process publishes its share in its own rooms
   * @param {number} [options.publishers] members of each room that take turns, in each publishing
   *   process
   * @param {boolean} [options.moving] connections may be closed and come back meanwhile: those that
   *   stay are judged, by the messages that anybody got. For a swarm of one process
   * @param {boolean} [options.refusing] the same, if no connection moves: each message that nobody
   *   gets must have its error, and the run waits for either
   * @returns {Promise<RunResult>}
   */
  async run({
    perSecond,
    seconds,
    group = 0,
    from = group,
    payloadBytes = 100,
    drainMs = 2000,
    everyProcess = false,
    inOwnRooms = false,
    publishers = 4,
    moving = false,
    refusing = false,
  }) {
    const step = this.#nextStep();
    const messages = Math.max(1, Math.round(perSecond * seconds));
    const groups = [...new Set([group, from])];
    for (const one of groups)
      await this.#all('run', (i) => ({
        group: one,
        step,
        messages: inOwnRooms ? this.#part(messages, i) : messages,
        perSecond: inOwnRooms ? perSecond / this.#count : perSecond,
        payload: payloadBytes,
        drainMs,
        process: inOwnRooms ? 0 : one === from && (everyProcess || i === 0) ? i : -1,
        processes: everyProcess ? this.#count : 1,
        publishers,
        moving: moving ? 1 : refusing ? REFUSING : 0,
      }));
    // Only when all of them are ready to count may one begin to send.
    const started = performance.now();
    const startUs = Number(process.hrtime.bigint() / 1000n) + 20_000;
    const inTurn = inOwnRooms ? Math.round(1e6 / perSecond) : 0;
    const answers = await Promise.all(
      groups.map((one) => this.#all('go', (i) => ({ group: one, startUs: startUs + inTurn * i }))),
    );
    const result = combine(answers[0], (performance.now() - started) / 1000);
    return { ...result, sent: sum(/** @type {Answer[]} */ (answers.at(-1)), 'sent') };
  }

  /**
   * Each connection sends its message again as soon as it is back.
   * @param {{ seconds: number, payloadBytes?: number }} options
   */
  async echo({ seconds, payloadBytes = 100 }) {
    const step = this.#nextStep();
    const answers = await this.#all('echo', () => ({
      step,
      durationMs: Math.round(seconds * 1000),
      payload: payloadBytes,
    }));
    return combine(answers, seconds + 0.2);
  }

  /**
   * Connects, joins and leaves again, over and over.
   * @param
   *   {{ count: number, concurrency: number, rooms?: number, sources?: number, timeoutMs: number }}
   *   options
   */
  async cycle({ count, concurrency, rooms = 100, sources = 8, timeoutMs }) {
    const answers = await this.#all('cycle', (i) => ({
      count: this.#part(count, i),
      concurrency: this.#part(concurrency, i),
      room: 'churn',
      rooms,
      sources,
      timeoutMs,
    }));
    return {
      cycles: sum(answers, 'cycles'),
      failed: sum(answers, 'failed'),
      seconds: Math.max(...answers.map((answer) => answer.seconds)),
    };
  }

  /**
   * Waits until the server has closed all connections of a group, and connects each again, by the
   * rules of docs/protocol.md. Aim first at the server that they are to return to. Only the C
   * client can.
   * @param {object} options
   * @param {number} options.timeoutMs
   * @param {boolean} [options.obey] false: a client returns at once, whatever delay the server named
   * @param {number} [options.group]
   * @param {() => Promise<void>|void} options.onReady called when all processes wait for the closes
   * @param {boolean} [options.repeats] a connection may be closed again, or not at all, until the
   *   promise of `onReady` resolves. Without, it ends when each has been closed and is back
   */
  async comeBack({ timeoutMs, obey = true, group = 0, onReady, repeats = false }) {
    const back = this.#all('return', () => ({
      ...{ group, timeoutMs, obey: obey ? 1 : 0 },
      untilSettled: repeats ? 1 : 0,
    }));
    // A process obeys one command after the other, so its next answer shows that it waits.
    await this.#all('status', () => ({ group }));
    const cause = onReady();
    if (repeats) {
      await cause;
      await this.#all('settle', () => ({ group }));
    }
    const answers = await back;
    return {
      open: sum(answers, 'open'),
      left: sum(answers, 'left'),
      back: sum(answers, 'back'),
      retries: sum(answers, 'retries'),
      lastLeftSeconds: Math.max(...answers.map((answer) => answer.lastLeftUs)) / 1e6,
      lastBackSeconds: Math.max(...answers.map((answer) => answer.lastBackUs)) / 1e6,
      maxSeconds: Math.max(...answers.map((answer) => answer.maxUs)) / 1e6,
      cpuSeconds: sum(answers, 'cpuSeconds'),
      leftBySecond: sumBySecond(answers, 'leftBySecond'),
      backBySecond: sumBySecond(answers, 'backBySecond'),
      histogram: addedHistograms(answers),
    };
  }

  /**
   * Members join another room in turn and leave it as soon as they are in.
   * @param {{ perSecond: number, seconds: number, rooms: number, timeoutMs: number }} options
   */
  async visit({ perSecond, seconds, rooms, timeoutMs }) {
    const visits = Math.round(perSecond * seconds);
    const answers = await this.#all('visit', (i) => ({
      visits: this.#part(visits, i),
      perSecond: perSecond / this.#count,
      ...{ rooms, timeoutMs, room: 'visited-' },
      ...{ join: '{"type":"join","room":"$ROOM"}', joined: '"joined"' },
      ...{ leave: '{"type":"leave","room":"$ROOM"}', left: '"left"' },
    }));
    return {
      visits,
      joined: sum(answers, 'joined'),
      left: sum(answers, 'left'),
      lost: sum(answers, 'lost'),
      seconds: Math.max(...answers.map((answer) => answer.seconds)),
      maxMs: Math.max(...answers.map((answer) => answer.maxUs)) / 1000,
      histogram: addedHistograms(answers),
    };
  }

  /**
   * Hangs up, from the last opened on, until `keep` are left.
   * @param {{ group?: number, keep?: number }} [options]
   */
  async hangUp({ group = 0, keep = 0 } = {}) {
    await this.#all('close', (i) => ({ group, keep: this.#part(keep, i) }));
  }

  /** @param {number} [group] */
  async status(group = 0) {
    const answers = await this.#all('status', () => ({ group }));
    return {
      open: sum(answers, 'open'),
      lost: sum(answers, 'lost'),
      cpuSeconds: sum(answers, 'cpuSeconds'),
    };
  }

  #nextStep() {
    this.#lastStep = (this.#lastStep % 250) + 1;
    return this.#lastStep;
  }
}

/** @param {Answer[]} answers @param {string} key @returns {number} */
function sum(answers, key) {
  return answers.reduce((total, answer) => total + answer[key], 0);
}

/**
 * @param {Answer[]} answers
 * @param {string} key of arrays
 * @returns {number[]}
 */
function sumBySecond(answers, key) {
  const length = Math.max(...answers.map((answer) => answer[key].length));
  return Array.from({ length }, (_, second) =>
    answers.reduce((total, answer) => total + (answer[key][second] ?? 0), 0),
  );
}

/** @param {Answer[]} answers */
function addedHistograms(answers) {
  const histogram = new Float64Array(BUCKETS);
  for (const answer of answers) addHistogram(histogram, answer.histogram);
  return histogram;
}

/** @param {Answer[]} answers @param {number} seconds @returns {RunResult} */
function combine(answers, seconds) {
  return {
    open: sum(answers, 'open'),
    expected: sum(answers, 'expected'),
    received: sum(answers, 'received'),
    inWindow: sum(answers, 'inWindow'),
    wrong: sum(answers, 'wrong'),
    lost: sum(answers, 'lost'),
    sent: sum(answers, 'sent'),
    stray: sum(answers, 'stray'),
    refused: answers.reduce((total, { refused = 0 }) => total + refused, 0),
    moved: answers.reduce((total, { moved = 0 }) => total + moved, 0),
    errors: answers.reduce((total, { errors = 0 }) => total + errors, 0),
    maxMs: Math.max(...answers.map((answer) => answer.maxUs)) / 1000,
    frames: sum(answers, 'frames'),
    bytes: sum(answers, 'bytes'),
    reads: sum(answers, 'reads'),
    cpuSeconds: sum(answers, 'cpuSeconds'),
    busiest: Math.max(...answers.map((answer) => answer.cpuSeconds)) / seconds,
    histogram: addedHistograms(answers),
  };
}
