// history.js: the command history.

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
   * @param {import('../../operations/replies.js').Replies} parts.replies
   * @param {import('../../operations/reads.js').Reads} parts.reads
   */
  constructor({ historyReader, replies, reads }) {
    this.historyReader = historyReader;
    this.replies = replies;
    this.reads = reads;
  }

  /** @type {Handler} */
  history(connection, command) {
    const { id, limit } = command;
    const { session } = connection;
    const name = session.validRoomOf(command.room);
    if (name === null) return this.replies.invalidRoom(connection, id, command.room);
    const since = readSince(command.since);
    const before = readBefore(command.before);
    const sinceTimeMs = readSinceTime(command.sinceTime);
    if (!isLimit(limit) || before === undefined || sinceTimeMs === undefined)
      return this.replies.invalid(connection, id, BAD_PLACE);
    const places = [since, before, sinceTimeMs].filter((place) => place !== null);
    if (places.length > 1) return this.replies.invalid(connection, id, ONE_PLACE);
    const { historyReader } = this;
    const query = { limit, since, before, sinceTimeMs };
    const reader = () => connection.audiencesIn(name);
    this.reads.read(connection, id, name, {
      right: 'history',
      mayRead: session.hasRight('history', name),
      read: () => historyReader.page(name, query, reader),
      send(page) {
        const answer = historyReader.answerOf(page, reader());
        const { messages, position, hasMore, searchedBytes, next } = answer;
        const after = historySuffix(position, hasMore, next, id);
        connection.sendAround(historyPrefix(name), messages, 0, messages.length, after);
        return messages.length + searchedBytes;
      },
    });
  }
}

/** @param {unknown} limit @returns {limit is number|undefined} */
export function isLimit(limit) {
  return limit === undefined || (Number.isSafeInteger(limit) && /** @type {number} */ (limit) > 0);
}
