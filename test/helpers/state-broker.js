// state-broker.js: a broker for one worker in unit tests, whose rooms have state. The test takes each
// step, as with StreamBroker. The broker keeps the true states.

import { CompactedLog } from '../../src/protocol/compacted-log.js';
import { encodeKeyed } from '../../src/protocol/publication.js';
import { StreamBroker } from './stream-broker.js';

/** @typedef {import('../../src/backend/broker.js').HistoryPage} HistoryPage */
/** @typedef {import('../../src/backend/broker.js').ReadRequest} ReadRequest */

/** @param {string} key @param {unknown} payload null removes it */
export function change(key, payload) {
  const json = Buffer.from(JSON.stringify(payload));
  return encodeKeyed(1_760_000_000_000, 'me', key, json, 0, json.length);
}

export class StateBroker extends StreamBroker {
  /** @param {{size?: number, maxBytes?: number, isManual?: boolean}} [options] size: of keys */
  constructor({ size = 100, maxBytes = 1e6, isManual = false } = {}) {
    super({ size, isManual });
    this.maxBytes = maxBytes;
    /** @type {Map<string, CompactedLog>} */
    this.logs = new Map();
  }

  /** @param {string} room */
  log(room) {
    let log = this.logs.get(room);
    if (log === undefined) {
      log = new CompactedLog({ maxKeys: this.size, maxBytes: this.maxBytes });
      this.logs.set(room, log);
    }
    return log;
  }

  /** @override The store has lost the room. @param {string} room */
  forget(room) {
    super.forget(room);
    this.log(room).clear(0);
  }

  /**
   * @param {string} room @param {string} key @param {unknown} payload
   * @returns {{epoch: string, offset: number}|null} null: full
   */
  set(room, key, payload) {
    const publication = change(key, payload);
    if (!this.log(room).fits(publication)) return null;
    const position = this.accept(room, publication);
    this.log(room).put(position.offset, publication);
    return position;
  }

  /** @override @param {string} room @param {ReadRequest} from @returns {HistoryPage} */
  look(room, { after, limit, since, endedEpoch = '' }) {
    if (this.stream(room).epoch === endedEpoch) this.forget(room);
    const { epoch, offset } = this.stream(room);
    const log = this.log(room);
    const { floor } = log;
    const isProven =
      since !== undefined &&
      since.epoch === epoch &&
      since.offset >= floor &&
      since.offset <= offset;
    const isWhole = since !== undefined && !isProven;
    const from = isWhole ? 0 : (since?.offset ?? after);
    const { entries } = limit === 0 ? { entries: [] } : log.read(from);
    const state = {
      offsets: entries.map((entry) => entry.offset),
      floor,
      isWhole,
      hasMore: false,
    };
    const publications = entries.map(({ publication }) => publication);
    return { epoch, offset, first: offset + 1, publications, hasOlder: false, state };
  }
}
