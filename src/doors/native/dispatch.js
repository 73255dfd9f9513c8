// dispatch.js: passes each message of a client to the handler of its type.
//
// A message pays its rate, is decoded, waits for earlier commands (lane.js) and is handled. Faulty
// messages are answered, too (replies.js).

import { didYouMean } from '../../config/nearest.js';
import { decode, readId } from '../../protocol/decode.js';
import { commandFault, isCommand } from '../../protocol/decode-fault.js';
import { scan } from '../../protocol/json-scan.js';
import { quoted } from '../../protocol/refusal.js';

/** Times every eighth message, because it costs 0.2 us. A power of two. */
const TIMED_EVERY = 8;
/** If a message is over its rate, its id is read from this many bytes. */
const MAX_REFUSED_BYTES = 4096;
const NO_TOKEN = 'A token is required before this command.';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { Command } from '../../protocol/decode.js' */
/** @import { CommandKind } from '../../operations/lane.js' */

/** @typedef {import('./handler.js').Handler} Handler */

/** Commands that do not wait for all others. @type {ReadonlyMap<string, CommandKind>} */
const KINDS = new Map([
  ['join', 'join'],
  ['message', 'message'],
  ['broadcast', 'message'],
  ['ping', 'passing'],
  ['echo', 'passing'],
]);

/**
 * @typedef {object} Gate
 * @property {(connection: Connection, type: string) => boolean} admits may the connection, which has not
 *   authenticated, send this type?
 */

export class Dispatcher {
  /**
   * @param {object} parts @param {ReadonlyMap<string, Handler>} parts.handlers by type
   * @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {((connection: Connection, nowMs: number, bytes: number) => number)|null}
   *   parts.admitMessage 0 if the message passes; above 0: seconds to wait; −1: close with 4005.
   *   Null if no rate is limited.
   * @param {Gate|null} parts.gate null: no tokens
   * @param {import('../../operations/lane.js').Lane} parts.lane
   * @param {import('../../observability/counters.js').Counters} parts.counters
   * @param {{observe(ms: number): void}} parts.messageDuration
   * @param {boolean} [parts.hasApps] are messages counted by app?
   */
  constructor(parts) {
    const { handlers, replies, admitMessage, gate, lane, counters, messageDuration } = parts;
    this.hasApps = parts.hasApps ?? false;
    this.handlers = handlers;
    this.replies = replies;
    this.admitMessage = admitMessage;
    this.gate = gate;
    this.lane = lane;
    this.counters = counters;
    this.messageDuration = messageDuration;
    /** @type {import('../../operations/lane.js').Resume} */
    this.resume = (connection, data) => this.handleMessage(connection, data, true);
  }

  /** @param {Connection} connection @param {Buffer} data valid UTF-8; not used after the call */
  receive(connection, data) {
    const { admitMessage } = this;
    const isTimed = (this.counters.messages++ & (TIMED_EVERY - 1)) === 0;
    const started = isTimed || admitMessage !== null ? performance.now() : 0;
    const wait = admitMessage === null ? 0 : admitMessage(connection, started, data.length);
    if (this.hasApps) this.#countFor(connection);
    if (wait !== 0) return this.#refuse(connection, data, wait);
    this.handleMessage(connection, data, false);
    if (isTimed) this.messageDuration.observe(performance.now() - started);
  }

  /**
   * An error of the server closes only this connection.
   * @param {Connection} connection @param {Buffer} data @param {boolean} hasWaited in the lane
   */
  handleMessage(connection, data, hasWaited) {
    let command;
    try {
      command = decode(data);
      if (command === null) return this.#refuseText(connection, data);
      if (!hasWaited && !this.lane.isEmpty && this.#waits(connection, command)) return;
      const handler = this.handlers.get(command.type);
      if (this.gate !== null && connection.isHeld && !this.gate.admits(connection, command.type))
        this.replies.error(connection, 'PERMISSION_DENIED', command.id, NO_TOKEN);
      else if (handler === undefined) this.#refuseType(connection, command);
      else handler(connection, command);
    } catch (error) {
      this.replies.error(connection, 'INTERNAL_ERROR', command?.id);
      connection.fail(error);
    }
  }

  /** @param {Connection} connection @param {Command} command */
  #refuseType(connection, { id, type }) {
    const types = [...this.handlers.keys()];
    const hint = didYouMean(type, types) || `. The types are ${types.join(', ')}.`;
    this.replies.error(connection, 'UNKNOWN_TYPE', id, `Unknown type ${quoted(type)}${hint}`);
  }

  /** @param {Connection} connection @param {Buffer} data which is no valid command */
  #refuseText(connection, data) {
    const { replies } = this;
    const fields = scan(data); // once for all three: it may be a long text
    const id = readId(data, fields);
    const fault = commandFault(data, fields);
    if (isCommand(data, fields)) replies.invalid(connection, id, fault);
    else replies.malformed(connection, id, fault);
  }

  /** @param {Connection} connection */
  #countFor({ session: { app } }) {
    if (app !== null) this.counters.apps.messages[app.id]++;
  }

  /** @param {Connection} connection @param {Command} command */
  #waits(connection, command) {
    return this.lane.holds(connection, KINDS.get(command.type), command, this.resume);
  }

  /** @param {Connection} connection @param {Buffer} data @param {number} wait */
  #refuse(connection, data, wait) {
    const id = wait > 0 ? readId(data.subarray(0, MAX_REFUSED_BYTES)) : undefined;
    this.replies.overRate(connection, id, wait);
  }
}
