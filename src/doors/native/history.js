// history.js: the command history.

import { isLimit } from '../../operations/pending-reads.js';
import { readBefore, readSince, readSinceTime } from '../../protocol/decode.js';
import { historyPrefix, historySuffix } from '../../protocol/encode.js';

/** @import { Handler } from './handler.js' */

const BAD_PLACE =
  'limit is a whole number from 1, before is an object with epoch and offset, ' +
  'and sinceTime is in ms since 1970.';
const ONE_PLACE = 'A read has only one of since, before and sinceTime.';

export class HistoryCommand {
  /**
   * @param {object} parts
   * @param {import('../../recovery/history-reader.js').HistoryReader} parts.historyReader
   * @param {Pick<import('../../operations/joins.js').Joins, 'askFor'>} parts.joins
   * @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {import('../../operations/pending-reads.js').PendingReads} parts.pendingReads
   */
  constructor({ historyReader, joins, replies, pendingReads }) {
    this.historyReader = historyReader;
    this.joins = joins;
    this.replies = replies;
    this.pendingReads = pendingReads;
  }

  /** @type {Handler} */
  history(connection, command) {
    const { id, limit } = command;
    const { session } = connection;
    const name = session.roomOf(command.room);
    if (name === null) return this.replies.invalidRoom(connection, id, command.room);
    if (!session.mayReadHistory(name)) return this.replies.forbidden(connection, id, 'history');
    const since = readSince(command.since);
    const before = readBefore(command.before);
    const sinceTimeMs = readSinceTime(command.sinceTime);
    if (!isLimit(limit) || before === undefined || sinceTimeMs === undefined)
      return this.replies.invalid(connection, id, BAD_PLACE);
    const places = [since, before, sinceTimeMs].filter((place) => place !== null);
    if (places.length > 1) return this.replies.invalid(connection, id, ONE_PLACE);
    this.joins.askFor(connection, name, id, () =>
      this.pendingReads.answer(
        connection,
        id,
        () => this.historyReader.read(name, { limit, since, before, sinceTimeMs }),
        ({ messages, position, hasMore, searchedBytes }) => ({
          before: historyPrefix(name),
          text: messages,
          after: historySuffix(position, hasMore, id),
          readBytes: searchedBytes,
        }),
      ),
    );
  }
}
