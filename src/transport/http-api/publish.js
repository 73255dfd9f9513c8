// publish.js: the routes that publish: one message, many messages, a broadcast.
//
// A request is checked as a whole before its first message is published. After that each message
// has a result of its own. If all of them fail in the same way, the request does.

import { EVERYONE } from '../../hub/hub.js';
import { fingerprintOf } from '../../protocol/fingerprint.js';
import { encodePublication, KIND } from '../../protocol/publication.js';
import { ApiFault, faultOf } from './fault.js';
import {
  connectionId,
  idempotencyKey,
  invalid,
  isIdempotencyKey,
  payload,
  readFields,
  room,
  rooms,
} from './fields.js';

/**
 * Publications of one request that wait for the broker at once, in bytes. The others of the request
 * follow when these are answered.
 */
const MAX_WAITING_BYTES = 4_194_304;
/** A message costs one unit of the rate for each started block of this size, as on the socket. */
const BYTES_PER_UNIT = 4096;
/** The sender of messages from the API: an id or a user is never empty. */
const SENDER = '';

/** @typedef {import('./call.js').Call} Call */
/** @typedef {import('./call.js').Services} Services */
/** @typedef {import('./fields.js').Slice} Slice */
/** @typedef {import('../../protocol/position.js').Position} Position */

/**
 * One message to one room.
 * @typedef {object} Message
 * @property {string} room
 * @property {Buffer} publication
 * @property {string} idempotencyKey '' if there is none
 * @property {string|undefined} fingerprint of the payload; undefined if there is no key
 */

/** @typedef {{position: Position|void}|{fault: ApiFault}} Outcome */

const MESSAGE = { room, rooms, payload, except: connectionId };
const BATCH = { messages: { items: { room, payload, except: connectionId, idempotencyKey } } };
const BROADCAST = { payload };

export class PublishRoutes {
  /** @param {Services} services */
  constructor({ config, broker, counters, log }) {
    this.maxPayloadBytes = config.maxMessageBytes;
    this.broker = broker;
    this.counters = counters;
    this.log = log;
  }

  /** `POST publish` @param {Call} call */
  publish = async (call) => {
    const fields = readFields(call.body, MESSAGE);
    const key = idempotencyHeader(call);
    if ((fields.room === undefined) === (fields.rooms === undefined)) throw invalid('room');
    if (fields.payload === undefined) throw invalid('payload');
    /** @type {string[]} */
    const names = fields.rooms ?? [fields.room];
    call.key.requireRooms(names);
    this.#charge(call, [fields.payload], names.length);
    const encoded = this.#encode(call.body, fields, key); // brokers do not change it
    const outcomes = await this.#publishAll(names.map((name) => ({ room: name, ...encoded })));
    if (fields.rooms !== undefined) return resultsOf(names, outcomes);
    const [outcome] = outcomes;
    if ('fault' in outcome) throw outcome.fault;
    return outcome.position ?? {};
  };

  /** `POST publish/batch` @param {Call} call */
  batch = async (call) => {
    const { messages } = readFields(call.body, BATCH);
    if (messages === undefined) throw invalid('messages');
    /** @type {string[]} */
    const names = [];
    /** @type {Slice[]} */
    const payloads = [];
    for (const [index, fields] of messages.entries()) {
      if (fields.room === undefined) throw invalid(`messages[${index}].room`);
      if (fields.payload === undefined) throw invalid(`messages[${index}].payload`);
      names.push(fields.room);
      payloads.push(fields.payload);
    }
    call.key.requireRooms(names);
    this.#charge(call, payloads, 1);
    const outcomes = await this.#publishAll(
      messages.map((/** @type {import('./fields.js').Fields} */ fields) => ({
        room: fields.room,
        ...this.#encode(call.body, fields, fields.idempotencyKey ?? ''),
      })),
    );
    return resultsOf(names, outcomes);
  };

  /** `POST broadcast` @param {Call} call */
  broadcast = async (call) => {
    const { payload: slice } = readFields(call.body, BROADCAST);
    const key = idempotencyHeader(call);
    if (slice === undefined) throw invalid('payload');
    this.#charge(call, [slice], 1);
    const { start, end } = slice;
    const publication = encodePublication(
      KIND.BROADCAST,
      Date.now(),
      0,
      SENDER,
      call.body,
      start,
      end,
    );
    const fingerprint = key === '' ? undefined : fingerprintOf(publication);
    const message = { room: EVERYONE, publication, idempotencyKey: key, fingerprint };
    const [outcome] = await this.#publishAll([message]);
    if ('fault' in outcome) throw outcome.fault;
    const listenerCount = await this.broker.countConnections().catch(() => undefined);
    return { listenerCount };
  };

  /**
   * Checks the sizes of the payloads, and takes their cost from the rate of the key.
   * @param {Call} call
   * @param {readonly Slice[]} payloads
   * @param {number} copies of each
   */
  #charge(call, payloads, copies) {
    let units = 0;
    for (const { start, end } of payloads) {
      if (end - start > this.maxPayloadBytes) throw new ApiFault('PAYLOAD_TOO_LARGE');
      units += Math.ceil((end - start) / BYTES_PER_UNIT) * copies;
    }
    call.charge(units - 1); // the request has paid one
  }

  /**
   * @param {Buffer} body
   * @param {import('./fields.js').Fields} fields `payload`, and perhaps `except`
   * @param {string} key
   */
  #encode(body, { payload: slice, except }, key) {
    const { start, end } = slice;
    const now = Date.now();
    const publication = encodePublication(KIND.MESSAGE, now, 0, SENDER, body, start, end, except);
    const fingerprint = key === '' ? undefined : fingerprintOf(publication);
    return { publication, idempotencyKey: key, fingerprint };
  }

  /**
   * Publishes in order. If the broker fails, the messages that follow are not tried.
   * @param {readonly Message[]} messages
   * @returns {Promise<Outcome[]>} in the order of `messages`
   */
  async #publishAll(messages) {
    /** @type {Outcome[]} */
    const outcomes = [];
    for (let from = 0; from < messages.length; ) {
      let to = from;
      let bytes = 0;
      do bytes += messages[to++].publication.length;
      while (to < messages.length && bytes + messages[to].publication.length <= MAX_WAITING_BYTES);
      const next = await Promise.all(
        messages.slice(from, to).map((message) => this.#publishOne(message)),
      );
      outcomes.push(...next);
      from = to;
      if (next.some((outcome) => 'fault' in outcome && outcome.fault.status >= 500)) break;
    }
    while (outcomes.length < messages.length) outcomes.push({ fault: new ApiFault('UNAVAILABLE') });
    return outcomes;
  }

  /**
   * @param {Message} message
   * @returns {Promise<Outcome>}
   */
  async #publishOne({ room: name, publication, idempotencyKey: key, fingerprint }) {
    this.counters.api.messages++;
    this.counters.publications++;
    const options = key === '' ? undefined : { idempotencyKey: key, fingerprint };
    try {
      return { position: await this.broker.publish(name, publication, options) };
    } catch (error) {
      return { fault: faultOf(error, this.log) };
    }
  }
}

/**
 * @param {Call} call
 * @returns {string} '' if the header is absent
 */
function idempotencyHeader({ headers }) {
  const key = headers['idempotency-key'];
  if (key === undefined) return '';
  if (typeof key !== 'string' || !isIdempotencyKey(key)) throw new ApiFault('INVALID_REQUEST');
  return key;
}

/**
 * @param {readonly string[]} names
 * @param {readonly Outcome[]} outcomes
 * @returns {object}
 * @throws {ApiFault} if all messages have failed with the same code
 */
function resultsOf(names, outcomes) {
  const [first] = outcomes;
  const isSame = (/** @type {Outcome} */ one) =>
    'fault' in one && 'fault' in first && one.fault.code === first.fault.code;
  if ('fault' in first && outcomes.every(isSame)) throw first.fault;
  const results = outcomes.map((outcome, index) =>
    'fault' in outcome
      ? { room: names[index], error: outcome.fault.code, message: outcome.fault.message }
      : { room: names[index], ...outcome.position },
  );
  return { results, failed: outcomes.filter((outcome) => 'fault' in outcome).length };
}
