// webhook-receiver.js: a back end that receives webhooks over HTTP, verifies each of them, and fails
// on purpose.
//
// It keeps the model of webhook-model.js, and every attempt, for the checks:
//
//   repeated      an id that had been answered with 2xx comes again
//   disordered    the states of a room, its messages, or the transitions of a user do not ascend
//   overlapping   one of these begins while another one of its order is under way
//
// A failing answer is a status, none at all, or a reset. In half of the last two the receiver has
// handled the event: its answer is lost.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { pause } from '../harness/run.js';
import { WebhookModel } from './webhook-model.js';

export const WEBHOOK_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
/**
 * An event fails so often at most. The pause after a fourth failure is 2 minutes, more than the
 * calm at the end of a run.
 */
const MAX_FAILURES = 3;
/** After this many failures an event steps aside: later ones of its room overtake it. */
const STEPS_ASIDE = 3;
/** While requests fail, some that succeed take long, but end before the courier gives up. */
const SLOW_SHARE = 0.15;
const SLOW_MS = /** @type {const} */ ([50, 1500]);
/** A request is under way for so long, unless it ends before: less than a courier waits for it. */
const UNDER_WAY_MS = 1500;
/** The courier may learn of an answer so long after it was given, or not at all. */
const ANSWER_MS = 2000;
/** Of ten failures. `503` and `reset` pause the endpoint for a second. */
const FAILURES = Object.freeze([...Array(6).fill('500'), '503', ...Array(2).fill('late'), 'reset']);

/** @typedef {'204'|'500'|'503'|'late'|'reset'} Answer */
/** @typedef {{type: string, timestamp: string, data: Record<string, any>}} WebhookBody */

/**
 * One request.
 * @typedef {object} Attempt
 * @property {string} id
 * @property {string} type
 * @property {Record<string, any>} data
 * @property {Answer} answer
 * @property {number} recordedMs by performance.now(), as all times here
 * @property {number} atMs
 */

/**
 * A request without an answer.
 * @typedef {object} UnderWay
 * @property {string} what @property {Known} known @property {number} atMs
 * @property {() => void} end it is answered, or its sender has given up
 */

/** An id's history. */
class Known {
  /** @param {Known|undefined} before the event before it of the same user in the same room */
  constructor(before) {
    this.before = before;
    this.failures = 0;
    /** When it was answered with 2xx last; NaN: it was not. */
    this.acceptedMs = Number.NaN;
    /** It was recorded while `before`, which had stepped aside, was under way: it waited for that
     * event, and not for its room. */
    this.follows = false;
  }

  get isAside() {
    return this.failures >= STEPS_ASIDE || this.follows;
  }

  /** Has it left the order of its room, or may it with the one before it? */
  get mayOvertake() {
    return this.isAside || this.before?.isAside === true;
  }

  /** @param {number} recordedMs by performance.now() */
  accept(recordedMs) {
    const { before } = this;
    this.follows = before?.isAside === true && !(recordedMs > before.acceptedMs + ANSWER_MS);
    this.before = undefined;
  }
}

export class WebhookReceiver {
  /**
   * @param {object} parts
   * @param {import('./random.js').Random} parts.random
   * @param {() => Promise<import('./webhook-model.js').Truth>} [parts.readTruth] how it reads the
   *   state again after a gap
   */
  constructor({ random, readTruth = async () => ({ rooms: [], members: [], users: [] }) }) {
    this.random = random;
    this.readTruth = readTruth;
    /** The share of requests that fail. */
    this.failing = 0;
    /** Chooses another answer than chance. @type {((body: WebhookBody) => Answer|null)|null} */
    this.answerOf = null;
    /** Is told of messages and gaps. @type {Pick<import('./record.js').Recorder, 'write'>|null} */
    this.recorder = null;
    /** Is told of each answer. @type {(line: string) => void} */
    this.note = () => {};
    this.model = new WebhookModel();
    /** @type {Attempt[]} */
    this.attempts = [];
    /** @type {Map<string, Known>} */
    this.ids = new Map();
    /** The latest of each user in each room. @type {Map<string, Known>} */
    this.latestOf = new Map();
    /** @type {{id: string, type: string, acceptedMs: number, againMs: number}[]} */
    this.repeated = [];
    /** @type {string[]} */
    this.disordered = [];
    /** @type {{atMs: number, text: string}[]} */
    this.overlapping = [];
    /** Requests without an answer, by order. @type {Map<string, Set<UnderWay>>} */
    this.underWay = new Map();
    /** Requests whose signature is wrong. */
    this.unverified = 0;
    this.gaps = 0;
    /** Events that overtook others of their room because these had stepped aside. */
    this.aside = 0;
    /**
     * The latest of each order, and the gaps before it.
     * @type {Map<string, {epoch: string, sequence: number, gaps: number}>}
     */
    this.latest = new Map();
    /** The latest reading of the state: events wait for it. @type {Promise<void>} */
    this.reading = Promise.resolve();
    /** The same, if it has not begun. @type {Promise<void>|null} */
    this.nextReading = null;
    this.webhook = new Webhook(WEBHOOK_SECRET);
    this.server = createServer((request, response) => {
      this.#receive(request, response);
    });
    this.url = '';
  }

  /** @param {{after: (fn: () => unknown) => void}} t */
  async start(t) {
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    t.after(() => {
      this.server.closeAllConnections();
      this.server.close();
    });
    const { port } = /** @type {import('node:net').AddressInfo} */ (this.server.address());
    this.url = `http://127.0.0.1:${port}/fanfare`;
    return this;
  }

  /** Events that were accepted, each once. */
  get accepted() {
    const seen = new Set();
    return this.attempts.filter(
      ({ id, answer }) => answer === '204' && !seen.has(id) && seen.add(id),
    );
  }

  /**
   * @param {import('node:http').IncomingMessage} request
   * @param {import('node:http').ServerResponse} response
   */
  async #receive(request, response) {
    let text = '';
    try {
      for await (const part of request.setEncoding('utf8')) text += part;
    } catch {
      return; // the courier was killed while it sent
    }
    const headers = /** @type {Record<string, string>} */ (request.headers);
    /** @type {WebhookBody} */
    let body;
    try {
      body = /** @type {WebhookBody} */ (this.webhook.verify(text, headers));
    } catch {
      this.unverified++;
      response.writeHead(401).end();
      return;
    }
    const id = headers['webhook-id'];
    const { type, timestamp, data } = body;
    const known = this.#meet(id, body);
    const underWay = this.#begin(known, body, request.socket);
    /** @type {Attempt} */
    const attempt = {
      id,
      type,
      data,
      answer: this.#choose(known, body),
      recordedMs: Date.parse(timestamp) - performance.timeOrigin,
      atMs: performance.now(),
    };
    this.attempts.push(attempt);
    const { answer } = attempt;
    if (answer === '204' || (isLost(answer) && this.random.below(2) === 0))
      // It answers a gap when it has read the state, so a failed reading is asked for again.
      await this.#handle(body).catch(() => {
        attempt.answer = '503';
      });
    if (this.failing > 0 && answer === '204' && this.random.next() < SLOW_SHARE)
      await pause(this.random.between(...SLOW_MS));
    if (attempt.answer !== 'late') underWay?.end();
    this.#answer(attempt, known, request.socket, response);
  }

  /**
   * The events of an order come one after the other. A courier that stands still leaves its
   * connection open, and its successor begins when the lease has ended.
   * @param {Known} known @param {WebhookBody} body @param {import('node:net').Socket} socket
   */
  #begin(known, { type, data }, socket) {
    const order = orderOf(type, data);
    if (order === null) return null;
    const atMs = performance.now();
    const what = `${type} ${data.sequence}`;
    const all = this.underWay.get(order) ?? new Set();
    this.underWay.set(order, all);
    for (const other of all)
      if (atMs < other.atMs + UNDER_WAY_MS && !known.mayOvertake && !other.known.mayOvertake)
        this.overlapping.push({ atMs, text: `${order}: ${what} while ${other.what} is under way` });
    /** @type {UnderWay} */
    const one = {
      ...{ what, known, atMs },
      end() {
        socket.off('close', one.end);
        all.delete(one);
      },
    };
    all.add(one);
    socket.once('close', one.end);
    return one;
  }

  /** @param {string} id @param {WebhookBody} body */
  #meet(id, { type, data }) {
    let known = this.ids.get(id);
    if (known === undefined) {
      const subject = JSON.stringify([data.room, data.user]);
      known = new Known(this.latestOf.get(subject));
      this.ids.set(id, known);
      this.latestOf.set(subject, known);
    }
    const { acceptedMs } = known;
    if (!Number.isNaN(acceptedMs)) {
      this.repeated.push({ id, type, acceptedMs, againMs: performance.now() });
      known.failures++; // the answer came too late for its sender
    }
    return known;
  }

  /** @param {Known} known @param {WebhookBody} body @returns {Answer} */
  #choose({ failures }, body) {
    const { random } = this;
    const fails = failures < MAX_FAILURES && random.next() < this.failing;
    return this.answerOf?.(body) ?? (fails ? random.pick(FAILURES) : '204');
  }

  /**
   * @param {Attempt} attempt
   * @param {Known} known
   * @param {import('node:net').Socket} socket
   * @param {import('node:http').ServerResponse} response
   */
  #answer(attempt, known, socket, response) {
    // The sender waited too long for the state to be read, or was killed.
    if (socket.destroyed) attempt.answer = 'late';
    const { answer, type, data } = attempt;
    const what = `${type} ${data.room ?? ''} ${data.user ?? ''} ${data.epoch}:${data.sequence}`;
    this.note(`webhook ${what}: ${answer}`);
    if (answer === '204') {
      if (Number.isNaN(known.acceptedMs)) {
        known.accept(attempt.recordedMs);
        this.#follow(known, type, data);
        this.#record(attempt);
      }
      known.acceptedMs = performance.now();
    } else known.failures++;
    if (answer === 'reset') socket.resetAndDestroy();
    else if (answer !== 'late') response.writeHead(Number(answer)).end();
  }

  /** @param {Attempt} attempt the first that was accepted of its event */
  #record({ id, type, data: { payload, offset, audience } }) {
    if (this.recorder === null) return;
    // While many wait, events have no payload. They say no more than that some are missing.
    if (type === 'webhook.gap' || (type === 'message.published' && payload === undefined))
      this.recorder.write({ type: 'gap' });
    else if (type === 'message.published')
      this.recorder.write({
        ...{ type: 'recorded', value: payload.value ?? payload, offset, id },
        ...(audience && { audience }),
      });
  }

  /** @param {Known} known @param {string} type @param {Record<string, any>} data */
  #follow({ isAside }, type, data) {
    const { epoch, sequence } = data;
    const order = orderOf(type, data);
    if (order === null) return;
    const { gaps } = this;
    const before = this.latest.get(order);
    // If Redis came back with an older state, events wait there that later ones had replaced. A gap
    // comes before them.
    const isOfOrder = before !== undefined && before.epoch === epoch && before.gaps === gaps;
    if (isOfOrder && sequence < before.sequence) {
      if (isAside) this.aside++;
      else this.disordered.push(`${order}: ${type} ${sequence} after ${before.sequence}`);
    } else this.latest.set(order, { epoch, sequence, gaps });
  }

  /** @param {WebhookBody} body */
  async #handle({ type, data }) {
    if (type === 'webhook.gap') {
      this.gaps++;
      return this.#readAnew();
    }
    await this.reading.catch(() => {});
    this.model.apply(type, data);
  }

  /**
   * Up to 16 gaps come one after another. A reading under way may be too early for this one; the
   * next reading answers all gaps that wait for it.
   */
  #readAnew() {
    this.nextReading ??= this.reading
      .catch(() => {})
      .then(async () => {
        this.nextReading = null;
        this.model.replace(await this.readTruth());
      });
    this.reading = this.nextReading;
    return this.reading;
  }
}

/** @param {string} type @param {Record<string, any>} data @returns {string|null} null: it has none */
function orderOf(type, { room, user, epoch }) {
  if (epoch === undefined) return null;
  return `${type === 'message.published' ? 'messages' : 'states'} ${room ?? `u:${user}`}`;
}

/** Handled or not: the sender does not know. @param {Answer} answer */
function isLost(answer) {
  return answer === 'late' || answer === 'reset';
}
