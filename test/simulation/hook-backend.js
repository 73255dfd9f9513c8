// hook-backend.js: the back end that simulated servers ask as their hooks say. It allows everything,
// but for what a script says.

import { createServer } from 'node:http';
import { isLike } from './checks.js';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/**
 * How questions like `question` are answered.
 * @typedef {object} Rule
 * @property {object} question @property {unknown} [answer] without it: allowed
 * @property {number} [status] @property {number} [delayMs]
 * @property {number} [times] so often; without it: always
 */

export class HookBackend {
  /** @type {Rule[]} */
  rules = [];

  /** @param {(line: string) => void} note writes a line of the trace */
  constructor(note) {
    this.note = note;
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
    return rule ?? {};
  }
}
