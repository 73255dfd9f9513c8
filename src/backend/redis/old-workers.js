// old-workers.js: the fleet's messages in the forms of v0.2.0, while servers of that version may be
// present. The version after this one no longer needs this file.
//   census   =<connections> <worker>   a report, expected every two seconds
//            ?<worker>   a worker has started or is back   -<worker>   a worker leaves
//            #<rules>    rules for rooms with history, as in FANFARE_HISTORY   #?   asks for them
//   limits   u8 version, 8 bytes server, then for each key: u8 length, key, u32 connections
//
// Workers of this version mark their names with a semicolon, and know each other from their own
// channels. They report here while a worker of v0.2.0 is a member.

import { encodeEnvelope } from '../membership.js';

const LEASE_MS = 6000;
export const OLD_HEARTBEAT_MS = 2000;
/** Between two answers: after an outage the whole fleet asks at once. */
const MIN_RULES_INTERVAL_MS = 20;
/** Random waits end at different times, so that one worker answers, and the others hear it. */
const MAX_ANSWER_MS = 30;
const MARK = ';';
const MAX_RULES_BYTES = 32 * 1024;
const MAX_BYTES = 512;
const MESSAGE = /^(?:([?-])|=(\d{1,9}) )(.+)$/;
const QUESTION = '#?';

const REPORT_VERSION = 1;
const SERVER_BYTES = 8;
const HEAD_BYTES = 1 + SERVER_BYTES;
const COUNT_BYTES = 4;
const MAX_REPORT_BYTES = 65_536;
const SERVER_LEASE_MS = 5000;

/** @import { SharedRules } from './shared-rules.js' */

/**
 * What the fleet does with messages of workers of v0.2.0.
 * @typedef {object} OldFleet
 * @property {(worker: string, connections: number, leaseMs: number) => void} heard
 * @property {(worker: string) => void} left
 */

export class OldWorkers {
  #count = 0;
  /** When any worker last told these rules. */
  #rulesToldMs = Number.NEGATIVE_INFINITY;
  /** @type {NodeJS.Timeout|null} */
  #answering = null;

  /**
   * @param {object} parts @param {string} parts.id of this worker
   * @param {(text: string) => void} parts.send to all, on `census`; best effort
   * @param {SharedRules} parts.rules @param {OldFleet} parts.fleet
   */
  constructor({ id, send, rules, fleet }) {
    this.name = id + MARK;
    this.send = send;
    this.rules = rules;
    this.fleet = fleet;
  }

  /** Those that are members of the fleet. */
  get count() {
    return this.#count;
  }

  onNew() {
    this.#count++;
  }

  onGone() {
    this.#count--;
  }

  /** Workers of v0.2.0 answer, if there are any. */
  join() {
    this.send(`?${this.name}`);
    this.send(QUESTION);
  }

  /** @param {number} connections of this worker */
  tell(connections) {
    if (this.#count === 0) return;
    this.send(`=${connections} ${this.name}`);
    if (performance.now() - this.#rulesToldMs >= OLD_HEARTBEAT_MS) this.#tellRules();
  }

  /** Messages would be lost. */
  pause() {
    if (this.#answering !== null) clearTimeout(this.#answering);
    this.#answering = null;
  }

  leave() {
    if (this.#count > 0) this.send(`-${this.name}`);
  }

  /**
   * @param {Buffer} message on `census` @param {number} connections of this worker
   * @returns {boolean} false if it is malformed
   */
  receive(message, connections) {
    if (message.length > MAX_RULES_BYTES) return false;
    const text = message.toString();
    if (text.startsWith('#')) return this.#receiveRules(text);
    const [, kind, count, worker] = MESSAGE.exec(text) ?? [];
    if (worker === undefined || message.length > MAX_BYTES) return false;
    if (worker.endsWith(MARK)) return true;
    if (kind === '-') this.fleet.left(worker);
    else if (kind === '?') this.send(`=${connections} ${this.name}`);
    else this.fleet.heard(worker, Number(count), LEASE_MS);
    return true;
  }

  /** @param {string} text */
  #receiveRules(text) {
    if (text === QUESTION) {
      const earliest = this.#rulesToldMs + MIN_RULES_INTERVAL_MS - performance.now();
      const wait = Math.max(earliest, Math.random() * MAX_ANSWER_MS);
      if (this.#count > 0) this.#answering ??= setTimeout(() => this.#tellRules(), wait).unref();
      return true;
    }
    if (text === this.#rulesText()) {
      this.pause();
      this.#rulesToldMs = performance.now();
      return true;
    }
    return this.rules.read({ history: text.slice(1).split(','), state: [], stateBytes: 0 });
  }

  #tellRules() {
    this.pause();
    if (this.rules.own.history.length === 0) return;
    this.#rulesToldMs = performance.now();
    this.send(this.#rulesText());
  }

  #rulesText() {
    return `#${this.rules.own.history}`;
  }
}

/** @param {Readonly<Record<string, number>>} places @param {string} server its id in hex */
export function encodeOldReport(server, places) {
  const entries = Object.entries(places);
  let bytes = HEAD_BYTES;
  for (const [key] of entries) bytes += 1 + key.length + COUNT_BYTES;
  const report = Buffer.allocUnsafe(bytes);
  report[0] = REPORT_VERSION;
  let at = 1 + report.write(server, 1, 'hex');
  for (const [key, connections] of entries) {
    report[at] = key.length;
    at += 1 + report.write(key, at + 1, 'latin1');
    at = report.writeUInt32BE(connections, at);
  }
  return report;
}

/** @param {Buffer} report @returns {Buffer|null} the same in an envelope; null if malformed */
export function renewOldReport(report) {
  const { length } = report;
  if (length < HEAD_BYTES || length > MAX_REPORT_BYTES || report[0] !== REPORT_VERSION) return null;
  /** @type {[key: string, connections: number][]} */
  const places = [];
  for (let at = HEAD_BYTES; at < length; ) {
    const keyEnd = at + 1 + report[at];
    if (keyEnd + COUNT_BYTES > length) return null;
    places.push([report.toString('latin1', at + 1, keyEnd), report.readUInt32BE(keyEnd)]);
    at = keyEnd + COUNT_BYTES;
  }
  const server = report.toString('hex', 1, HEAD_BYTES);
  return encodeEnvelope('places', server, SERVER_LEASE_MS, { places: Object.fromEntries(places) });
}
