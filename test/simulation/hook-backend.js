// hook-backend.js: the back end that simulated servers ask as their hooks say. It allows everything,
// but for what a script says. Without a script it gives audiences (test/checker/audience-hooks.js), and
// until all is to be calm some answers are late or fail.

import { createServer } from 'node:http';
import { answerAboutAudiences } from '../checker/audience-hooks.js';
import { isLike } from './checks.js';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/**
 * How questions like `question` are answered.
 * @typedef {object} Rule
 * @property {object} question @property {unknown} [answer] without it: allowed
 * @property {number} [status] @property {number} [delayMs]
 * @property {number} [times] so often; without it: always
 */

/** Some of them are too late: a server waits for a second. */
const LATE_MS = /** @type {const} */ ([100, 1400]);

export class HookBackend {
  /** @type {Rule[]} */
  rules = [];
  /** No answer is late any more, and none fails. */
  isCalm = true;

  /**
   * @param {(line: string) => void} note writes a line of the trace
   * @param {NonNullable<import('./simulation.js').Plan['hooks']>} hooks
   * @param {import('../checker/random.js').Random} random
   */
  constructor(note, { names, late = 0, failing = 0 }, random) {
    this.note = note;
    this.names = names;
    this.late = late;
    this.failing = failing;
    this.random = random;
    this.server = createServer((request, response) => this.#receive(request, response));
  }

  /** @param {IncomingMessage} request @param {ServerResponse} response */
  async #receive(request, response) {
    let text = '';
    try {
      for await (const part of request.setEncoding('utf8')) text += part;
    } catch {
      return; // the server that asked is gone
    }
    const { answer, status = answer === undefined ? 204 : 200, delayMs = 0 } = this.#ruleFor(text);
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    this.note(`hook ${text.slice(0, 200)}: ${status} ${JSON.stringify(answer)}`);
    response.writeHead(status, { 'Content-Type': 'application/json' });
    response.end(answer === undefined ? undefined : JSON.stringify(answer));
  }

  /** @param {string} text @returns {Partial<Rule>} */
  #ruleFor(text) {
    const asked = JSON.parse(text);
    const rule = this.rules.find(({ question, times = 1 }) => times > 0 && isLike(asked, question));
    if (rule?.times !== undefined) rule.times--;
    return rule ?? this.#chance(asked);
  }

  /** @param {any} asked @returns {Partial<Rule>} */
  #chance(asked) {
    const { isCalm, random, late, failing } = this;
    const answer = answerAboutAudiences(this.names, asked);
    if (isCalm) return { answer };
    if (random.next() < failing) return { status: 500 };
    return { answer, delayMs: random.next() < late ? random.between(...LATE_MS) : 0 };
  }
}
