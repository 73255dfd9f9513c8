// history.js: the command history.

import { isRoom, readSince } from '../protocol/decode.js';
import { historyPrefix, historySuffix } from '../protocol/encode.js';
import { isLimit } from './pending-reads.js';

/** @import { Handler } from './handler.js' */

export class HistoryCommand {
  /**
   * @param {object} parts
   * @param {import('../recovery/history-reader.js').HistoryReader} parts.historyReader
   * @param {Pick<import('./hook-gate.js').HookGate, 'enter'>|null} parts.gate null if there are no
   *   hooks
   * @param {import('./replies.js').Replies} parts.replies
   * @param {import('./pending-reads.js').PendingReads} parts.pendingReads
   */
  constructor({ historyReader, gate, replies, pendingReads }) {
    this.historyReader = historyReader;
    this.gate = gate;
    this.replies = replies;
    this.pendingReads = pendingReads;
  }

  /** @type {Handler} */
  history(connection, command) {
    const { id, room: name, limit } = command;
    if (!isRoom(name)) return this.replies.error(connection, 'INVALID_ROOM', id);
    const { session } = connection;
    if (!session.mayReadHistory(name))
      return this.replies.error(connection, 'PERMISSION_DENIED', id);
    if (!isLimit(limit)) return this.replies.malformed(connection, id);
    const since = readSince(command.since);
    const read = () =>
      this.pendingReads.answer(
        connection,
        id,
        () => this.historyReader.read(name, limit, since),
        ({ messages, position }) => ({
          before: historyPrefix(name),
          text: messages,
          after: historySuffix(position, id),
        }),
      );
    if (this.gate === null) return read();
    // Whoever may not join a room may not read it either.
    this.gate.enter(connection, name, (refusal) => {
      if (refusal === null) read();
      else this.replies.error(connection, refusal.code, id, refusal.message);
    });
  }
}
