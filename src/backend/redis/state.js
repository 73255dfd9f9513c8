// state.js: rooms with state. lua/publish-state.lua publishes to them, and lua/read-state.lua reads
// them.
//
// Calls, fences, ended epochs, position checks and the turns of reads are those of history.js. The
// stored data differs, and the answer: a publish of a tick has single publications refused if the
// state is full.

import { EPOCH_BYTES } from '../../protocol/position.js';
import { isRemoval, keyBytes, keyTextIn, writeKey } from '../../protocol/publication.js';
import { IDEMPOTENCY_MS } from '../broker.js';
import { conflict, full } from '../errors.js';
import { HistoryPublish, HistoryRead, newEpoch, RedisHistory, unreadableKey } from './history.js';
import { bulk, publishScriptOf, scriptOf } from './scripts.js';

const SCRIPTS = {
  publish: publishScriptOf('batch', 'stream', 'publishing', 'state', 'publish-state'),
  read: scriptOf('stream', 'reading', 'state', 'read-state'),
};
/** RESP of an argument in addition to its bytes: `$`, its length, two line ends. */
const ARGUMENT_BYTES = 16;
/** In the place of flags. */
const CONFLICT = 'x';

/** @import { HistoryRule, StateRule } from '../../config/room-patterns.js' */
/** @import { HistoryPage, ReadRequest } from '../broker.js' */

export class RedisState extends RedisHistory {
  /** @override */
  get scripts() {
    return SCRIPTS;
  }

  /** @override @param {string} room */
  metaOf(room) {
    return this.keys.stateOf(room, 'meta');
  }

  /** @override @param {string} room */
  keysOf(room) {
    const { keys } = this;
    return ['meta', 'values', 'log', 'removed', 'sums']
      .map((part) => bulk(keys.stateOf(room, part)))
      .join('');
  }

  /** @override @param {import('./scripts.js').LoadedScript} script @param {string} room */
  maxCallBytes(script, room) {
    return 2 * super.maxCallBytes(script, room);
  }

  /** @override @param {string} room @param {HistoryRule} rule @param {ReadRequest} from */
  createRead(room, rule, from) {
    return new StateRead(this, room, rule, from);
  }

  /** @override @param {Buffer} publication */
  bytesOf(publication) {
    return super.bytesOf(publication) + keyBytes(publication) + 3 * ARGUMENT_BYTES;
  }

  /** Values are never announced by reference. @override */
  isLarge() {
    return false;
  }

  /** @override @param {import('./history.js').PublishParts} parts */
  createPublish(parts) {
    return new StatePublish(this, parts);
  }
}

class StatePublish extends HistoryPublish {
  /** One for each publication; 0: refused. @type {number[]} */
  offsets = [];

  /** @override @param {number} place */
  async positionOf(place) {
    const { epoch } = await this.done.promise;
    const offset = this.offsets[place];
    if (offset === 0) throw full();
    return { epoch, offset };
  }

  /** @override @param {Buffer} buffer @param {number} start */
  write(buffer, start) {
    const { history, room, key, publications } = this;
    const rule = /** @type {StateRule} */ (this.rule);
    const cache = this.begin();
    const hasKey = key !== '';
    const head =
      history.publishScript.head(hasKey ? 6 : 5, 8 + 3 * publications.length) +
      history.keysOf(room) +
      (hasKey ? bulk(key) : '') +
      bulk(cache.incarnation || history.fence) +
      bulk(newEpoch() + cache.ended) +
      bulk(this.channel) +
      bulk(hasKey ? `${IDEMPOTENCY_MS} ${this.fingerprint}` : '') +
      bulk(String(rule.size)) +
      bulk(String(rule.state.maxBytes)) +
      bulk(String(rule.ttlMs)) +
      bulk(this.expected);
    let at = start + buffer.write(head, start);
    for (const publication of publications) {
      at += buffer.write(`$${keyBytes(publication)}\r\n`, at, 'latin1');
      at += writeKey(publication, buffer, at);
      at += buffer.write(`\r\n$${publication.length}\r\n`, at, 'latin1');
      at += publication.copy(buffer, at);
      at += buffer.write(`\r\n$1\r\n${isRemoval(publication) ? '1' : '0'}\r\n`, at, 'latin1');
    }
    return at;
  }

  /** @override @param {any} reply incarnation, offset of the last one, flags */
  resolve(reply) {
    this.leave();
    this.answered();
    const [bytes, last, flags] = /** @type {[Buffer, number, Buffer]} */ (reply);
    const incarnation = bytes.toString('latin1');
    if (flags.toString('latin1') === CONFLICT) return this.conflictAt(incarnation, last);
    const { history, room, done, publications } = this;
    if (incarnation === '') {
      done.reject(last === 0 ? conflict() : unreadableKey());
      return;
    }
    const epoch = incarnation.slice(-EPOCH_BYTES);
    // For a repeated idempotency key Redis answers with the epoch alone.
    if (incarnation.length === EPOCH_BYTES) return this.#settle(epoch, [last]);
    if (incarnation !== this.incarnation) history.learn(room, incarnation);
    const accepted = flags.toString('latin1');
    let next = last;
    for (const flag of accepted) if (flag === '1') next--;
    if (history.isCutShort(room, epoch, next, this.floor)) return this.cutShort();
    history.see(room, last, epoch);
    this.#settle(
      epoch,
      publications.map((_, i) => (accepted[i] === '1' ? ++next : 0)),
    );
  }

  /** @param {string} epoch @param {number[]} offsets */
  #settle(epoch, offsets) {
    this.offsets = offsets;
    this.done.resolve({ epoch, offset: offsets[0] });
  }
}

class StateRead extends HistoryRead {
  /** @param {RedisState} history @param {string} room @param {HistoryRule} rule @param {ReadRequest} from */
  constructor(history, room, rule, from) {
    super(history, room, rule, from);
    this.limit = from.limit;
    this.since = from.since;
    this.named = from.keys;
  }

  /** @override */
  get maxWireBytes() {
    let bytes = super.maxWireBytes;
    for (const key of this.named ?? []) bytes += ARGUMENT_BYTES + 3 * keyTextIn(key).length;
    return bytes;
  }

  /** @override @type {HistoryRead['callOf']} */
  callOf(cache) {
    const { history, room, since, named = [] } = this;
    return (
      history.readScript.head(5, 9 + named.length) +
      history.keysOf(room) +
      bulk(cache?.incarnation || history.fence) +
      bulk(newEpoch() + (cache?.ended ?? '')) +
      bulk(String(this.after)) +
      bulk(String(this.limit)) +
      bulk(String(this.maxBytes)) +
      bulk(this.isGlance ? '1' : '') +
      bulk(this.limit > 0 && !history.isTrusting ? '1' : '') +
      bulk(since?.epoch ?? '') +
      bulk(String(since?.offset ?? '')) +
      named.map((key) => bulk(keyTextIn(key))).join('')
    );
  }

  /** @override @param {any} reply */
  resolve(reply) {
    if (!Array.isArray(reply)) return super.resolve(reply);
    const [incarnation, offset, floor, isWhole, hasMore, ...entries] = reply;
    const epoch = this.scriptAnswered(incarnation, offset);
    const offsets = [];
    const publications = [];
    for (let i = 0; i + 1 < entries.length; i += 2) {
      offsets.push(entries[i]);
      publications.push(entries[i + 1]);
    }
    const state = { offsets, floor, isWhole: isWhole === 1, hasMore: hasMore === 1 };
    this.finish({ epoch, offset, first: offset + 1, publications, hasOlder: false, state });
  }

  /** @override @param {HistoryPage} page */
  finish(page) {
    // HGET has read the position.
    const state = page.state ?? { offsets: [], floor: 0, isWhole: false, hasMore: false };
    super.finish({ ...page, state });
  }
}
