// call.js: a request of the HTTP API under way, and the contract between the API and its worker.

import { partsOf } from '../../protocol/url-parts.js';
import { NOSNIFF } from '../http-answers.js';
import { ApiFault, badValue, unknownText } from './fault.js';

/** @import { Broker, HistoryOf } from '../../backend/broker.js' */
/** @import { Counters } from '../../observability/counters.js' */
/** @import { Claim } from '../../protocol/claim.js' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { Holder } from './holder.js' */
/** @typedef {{error(fields: object, text: string): void}} Log */
/** @typedef {typeof import('../../observability/counters.js').API_ROUTES[number]} RouteName */

/**
 * The parts of a worker that the routes use.
 * @typedef {object} Services
 * @property {import('../../config/settings.js').Config} config
 * @property {Pick<Broker, 'countConnections'>} broker
 * @property {Pick<import('../../operations/publisher.js').Publisher, 'publish'|'rules'>} publisher
 * @property {HistoryOf} historyOf @property {HistoryOf} stateOf the rules of rooms with state
 * @property {Pick<import('../../recovery/state-reader.js').StateReader, 'read'>} stateReader
 * @property {Pick<import('../../recovery/history-reader.js').HistoryReader, 'read'>} historyReader
 * @property {Pick<import('../../hub/room-users.js').Tracker, 'covers'|'read'>} tracker
 * @property {FleetControl} fleet @property {{readonly isDraining: boolean}} phase of the worker
 * @property
 *   {((target: RevocationTarget) => Promise<{keptUntilMs: number|null}|null>)|null}
 *   revoke null if no tokens are configured; `keptUntilMs` null: it has no end
 * @property {BlobStore|null} blobs null if there is no bucket
 * @property {Counters} counters @property {Log} log
 */

/**
 * The API's part of the contract of blobs/uploads.js. Rejects with an error whose `code` the API
 * has a row for.
 * @typedef {object} BlobStore
 * @property {boolean} isBusy would another upload be refused?
 * @property {number} maxBytes
 * @property
 *   {(body: AsyncIterable<Buffer>|Buffer, options: {bytes?: number, contentType: string}) => Promise<Claim>}
 *   store
 * @property
 *   {(payload: {bytes: number, sha256: string, contentType: string}) => {upload: string, method: 'PUT', url: string, headers: Record<string, string>, expires: number}}
 *   announce
 * @property {(upload: string) => Promise<Claim>} verify
 */

/** @typedef {{user: string, issuedBeforeMs?: number}|{tokenId: string}} RevocationTarget */

/** @typedef {{user: string}|{room: string}|{address: string}|{connectionId: string}} ConnectionTarget */
/** A row of a list, as a worker writes it. @typedef {{user?: string, app?: string, address: string, rooms: readonly string[], roomCount: number}} SeenConnection */

/** Connections of a user: `only` one, or all but some. @typedef {{user: string, only?: string|null, except?: readonly string[]}} Whom */
/** @typedef {{server: string, version: string, slot: number, pid: number, state: string, connections: number, rooms: number, lagMs: number, memoryBytes: number, uptimeS: number}} SeenWorker */

/**
 * The API's part of the contract of worker/fleet.js. All of them reject with a BrokerError.
 * @typedef {object} FleetControl
 * @property {(page: {prefix?: string, after?: string, limit?: number, except?: string|null}) =>
 *   Promise<{rooms: {room: string, connections: number}[], isPartial: boolean}>} rooms
 * @property {(room: string) => Promise<{connections: number, users: number|null, position:
 *   import('../../protocol/position.js').Position|null, isPartial: boolean}>} room
 * @property {(users: readonly string[]) => Promise<{users: string[], isPartial: boolean}>} online
 * @property {(target: ConnectionTarget, limit?: number) => Promise<{count: number, listed:
 *   SeenConnection[], isPartial: boolean}>} connections
 * @property {(target: Whom|{connectionId: string}, code?: number, reason?: string) =>
 *   Promise<number>}
 *   disconnect
 * @property {(whom: string|Whom, rooms: readonly string[], audiences?: readonly string[]) => Promise<number>}
 *   join
 * @property {(whom: string|Whom, rooms: readonly string[]) => Promise<number>} leave
 * @property {(whom: Whom, expiresAtMs: number) => Promise<number>} renew
 * @property {() => Promise<{workers: SeenWorker[], isPartial: boolean}>} workers
 * @property {(room: string) => Promise<unknown>} deleteHistory
 */

/**
 * Takes units of a key's rate: 0 if it has them, else the seconds until it has those of the whole
 * request. `paid`: units taken before, for the same. Both together are at most the burst, because
 * otherwise a large request would never pass.
 * @typedef {(bucket: {fullAt: number}, units: number, nowMs: number, paid?: number) => number} TakeUnits
 */

/**
 * @typedef {object} Meters
 * @property {TakeUnits} take @property {(seconds: number) => void} observe the time of a request
 * @property {Counters} counters
 * @property {Pick<import('../../observability/audit-log.js').AuditLog, 'acted'|'refused'>} audit
 * @property {(request: IncomingMessage) => string} addressOf the client, as limits count it
 * @property {string} [overText] for requests that `take` refuses
 */

const NOTHING = Buffer.alloc(0);
/** Characters of an unknown name that an answer repeats. */
const MAX_NAME = 64;

/** @template {Holder} [K=import('./keys.js').Key] */
export class Call {
  /** @type {RouteName} */
  route = 'unknown';
  /** Parameters of the path. @type {Readonly<Record<string, string>>} */
  params = {};
  /** @type {Buffer} */
  body = NOTHING;
  /** What it acts on, for the log: parameters of the path, and fields of the body. @type {object} */
  subject = {};
  /** The answer is the last of its connection. */
  isLast = false;
  /** The body is a payload, and is not read into memory. */
  isRaw = false;
  /** Units of the key's rate that it has taken. */
  #paid = 1;
  /** @type {(bytes: number) => void} */
  #onUnsent = () => {};

  /**
   * @param {Meters} meters @param {Pick<IncomingMessage, 'headers'|'url'>} request @param {K} key
   */
  constructor(meters, request, key) {
    this.meters = meters;
    // Now, because a socket that is closed before the answer has no address any more.
    this.address = meters.addressOf(/** @type {IncomingMessage} */ (request));
    this.headers = request.headers;
    this.key = key;
    this.startedMs = performance.now();
    this.query = new URLSearchParams(partsOf(request.url).query);
  }

  /**
   * @param {readonly string[]} names that the route has
   * @param {readonly string[]} [repeatable] those that may occur more than once
   * @returns {Record<string, string|undefined>}
   * @throws {ApiFault} INVALID_REQUEST if there are others, or one occurs twice
   */
  readQuery(names, repeatable = []) {
    /** @type {Record<string, string>} */
    const values = {};
    for (const [name, value] of this.query) {
      const field = name.slice(0, MAX_NAME);
      if (!names.includes(name))
        throw new ApiFault('INVALID_REQUEST', {
          field,
          message: unknownText('parameter', field, names),
        });
      if (name in values && !repeatable.includes(name)) throw badValue(name, 'it occurs twice');
      values[name] = value;
    }
    return values;
  }

  takeRawBody() {
    this.isRaw = true;
  }

  /** @param {(bytes: number) => void} onUnsent the kernel has not taken the whole answer */
  whenUnsent(onUnsent) {
    this.#onUnsent = onUnsent;
  }

  endConnection() {
    this.isLast = true;
  }

  /** @param {Buffer} body */
  received(body) {
    this.body = body;
  }

  /** @param {RouteName} name @param {Readonly<Record<string, string>>} params of the path */
  routed(name, params) {
    this.route = name;
    this.params = params;
    this.subject = params;
  }

  /** @param {object} fields that name what it acts on, besides parameters of the path */
  actsOn(fields) {
    this.subject = { ...this.params, ...fields };
  }

  /** Takes units from the key's rate. @param {number} units @throws {ApiFault} RATE_LIMIT_EXCEEDED */
  charge(units) {
    if (units <= 0) return;
    const { take, counters, overText } = this.meters;
    const waitS = take(this.key.bucket, units, performance.now(), this.#paid);
    if (waitS === 0) {
      this.#paid += units;
      return;
    }
    counters.api.refused.rate++;
    throw new ApiFault('RATE_LIMIT_EXCEEDED', { retryAfterS: waitS, message: overText });
  }

  /** Counts the answer. @param {number} status */
  count(status) {
    const { counters, observe } = this.meters;
    counters.api.requests[this.route]++;
    counters.api.responses[status]++;
    observe((performance.now() - this.startedMs) / 1000);
  }

  /**
   * @param {ServerResponse} response @param {number} status
   * @param {Readonly<Record<string, string>>} headers @param {string|Buffer} body JSON text
   */
  answer(response, status, headers, body) {
    this.count(status);
    for (const name in headers) response.setHeader(name, headers[name]);
    if (this.isLast) response.setHeader('Connection', 'close');
    response.setHeader('Content-Type', 'application/json');
    const bytes = Buffer.byteLength(body);
    response.setHeader('Content-Length', bytes);
    response.setHeader('Cache-Control', 'no-store');
    response.setHeader(...NOSNIFF);
    response.statusCode = status;
    response.end(body);
    if (response.writableLength > 0) this.#onUnsent(bytes);
  }
}
