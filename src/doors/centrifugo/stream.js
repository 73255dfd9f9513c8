// stream.js: reads a channel's stream as Centrifugo's `history` does.
//   forward: oldest first, above `since`       reverse: newest first, below `since`

import { DoorError } from './codec/errors.js';

/** The bound for backends. They ask again from the end of an answer. */
const MAX_BYTES = 4 * 1024 * 1024;
/** Pages without a publication for the reader. One more, and the stream is unfinished. */
const MAX_EMPTY = 8;
/** Publications of the pages after such a page, at least. */
const MIN_AFTER_EMPTY = 300;

/** @import { HistoryReader, Reader } from '../../recovery/history-reader.js' */

/**
 * @typedef {object} StreamQuery
 * @property {number} limit publications; 0: the position alone
 * @property {{offset: number, epoch: string}|null} since epoch '': that of the stream
 * @property {boolean} isReverse
 * @property {number} [maxBytes] of an answer with more than one
 */

/**
 * @typedef {object} Stream
 * @property {{offset: number, publication: Buffer}[]} publications in the order of the query
 * @property {string} epoch @property {number} offset of the newest publication
 * @property {number} searchedBytes of publications for others
 * @property {boolean} isUnfinished too many of them: without an error, the answer would look like the
 *   end of the stream
 */

/**
 * @param {Pick<HistoryReader, 'page'>} reader @param {string} room @param {StreamQuery} query
 * @param {Reader} forWhom
 * @returns {Promise<Stream>} @throws {DoorError} 107, 108 or 112; or an error of the broker
 */
export async function readStream(reader, room, query, forWhom) {
  const { limit, since, isReverse, maxBytes = MAX_BYTES } = query;
  if (isReverse && since?.offset === 0) throw new DoorError(107, 'nothing is below offset 0');
  const top = await reader.page(room, { limit: 0 }, forWhom);
  if (top === null) throw new DoorError(108, 'the channel has no history');
  const { epoch, offset } = top;
  if (since !== null && since.epoch !== '' && since.epoch !== epoch) throw new DoorError(112);
  const publications = [];
  let bytes = 0;
  let place = since?.offset ?? (isReverse ? offset + 1 : 0);
  // A backend may give a stream without publications another epoch at each look.
  const most = offset === 0 ? 0 : limit;
  let searchedBytes = 0;
  let empty = 0;
  while (publications.length < most && bytes < maxBytes) {
    const from = { epoch, offset: place };
    const rest = Math.max(most - publications.length, empty === 0 ? 0 : MIN_AFTER_EMPTY);
    const page = await reader.page(
      room,
      isReverse
        ? { limit: rest, before: from }
        : { limit: rest, since: { ...from, connectionId: '' } },
      forWhom,
    );
    // The history has been deleted meanwhile, or another stream has begun.
    if (page === null || page.epoch !== epoch) throw new DoorError(112);
    const { rows } = page;
    searchedBytes += page.searchedBytes;
    if (isReverse) rows.reverse();
    for (const row of rows) {
      bytes += row.publication.length;
      if (publications.length === most || (bytes > maxBytes && publications.length > 0)) break;
      publications.push(row);
    }
    place = isReverse ? page.first : page.last;
    if (!page.hasMore || page.last < page.first) break;
    if (rows.length === 0 && ++empty > MAX_EMPTY) break;
  }
  const isUnfinished = empty > MAX_EMPTY;
  return { publications, epoch, offset, searchedBytes, isUnfinished };
}
