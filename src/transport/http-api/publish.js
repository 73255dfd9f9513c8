// publish.js: the routes that publish: one message, many messages, a broadcast.
//
// A request is checked as a whole before its first message is published. Then each message has its
// own result. If all fail in the same way, the request does.

import { EVERYONE } from '../../hub/hub.js';
import { encodeMessage, optionsOf } from '../../operations/message.js';
import { readAudience } from '../../protocol/audiences.js';
import { isRoom } from '../../protocol/decode.js';
import { isConnectionId, KIND } from '../../protocol/publication.js';
import { ApiFault, badValue, messageFault } from './fault.js';
import {
  A_AUDIENCE,
  A_CONNECTION,
  A_KEY,
  A_ROOM,
  audience,
  connectionId,
  expected,
  idempotencyKey,
  invalid,
  isIdempotencyKey,
  OBJECTS,
  payload,
  readFields,
  requireOne,
  room,
  rooms,
  stateKey,
  upload,
} from './fields.js';
import { BYTES_PER_UNIT, Publishing, positionOf, unitsOf } from './publishing.js';

/** The sender of messages from the API: an id or a user is never empty. */
const SENDER = '';
/** RFC 9110 8.3: a body without a type may be anything. */
const DEFAULT_TYPE = 'application/octet-stream';

/** @import { Claim } from '../../protocol/claim.js' */
/** @import { Call, Services } from './call.js' */
/** @import { Fields, Slice } from './fields.js' */
/** @import { Outcome } from './publishing.js' */

const OPTIONS = { key: stateKey, except: connectionId, expect: expected, audience };
const MESSAGE = { room, rooms, payload, upload, ...OPTIONS };
const BATCH = { messages: { items: { room, payload, ...OPTIONS, idempotencyKey } } };
const BROADCAST = { payload };

export class PublishRoutes {
  /** @param {Services} services */
  constructor(services) {
    const { broker, blobs, publisher } = services;
    this.rules = publisher.rules;
    this.broker = broker;
    this.blobs = blobs;
    this.publishing = new Publishing(services);
    const { maxBytes, maxInlineBytes } = this.rules;
    this.maxBytes = blobs === null ? maxBytes : Number.POSITIVE_INFINITY;
    // The bucket takes no broadcast: a claim belongs to a room (publication.js).
    this.maxBroadcastBytes = blobs === null ? maxBytes : maxInlineBytes;
  }

  /** `POST publish` @param {Call} call */
  publish = async (call) => {
    refuseAudienceInQuery(call);
    const fields = readFields(call.body, MESSAGE);
    const key = idempotencyHeader(call);
    requireOne(fields, 'room', 'rooms');
    requireOne(fields, 'payload', 'upload');
    if (fields.rooms !== undefined && fields.expect !== undefined)
      throw invalid('expect', 'only with room, because each room has its own position');
    /** @type {string[]} */
    const names = fields.rooms ?? [fields.room];
    call.key.requireRooms(names);
    for (const name of names) this.#checkMessage(call, name, fields, '');
    const claim = await this.#claim(call, fields, names.length);
    if (claim === null) charge(call, [fields.payload], names.length);
    // Brokers do not change it.
    const encoded = encode(call, fields, claim, key);
    const outcomes = await this.#publishAll(
      call,
      names.map((room) => ({ room, ...encoded })),
    );
    if (fields.rooms !== undefined) return resultsOf(names, outcomes);
    return positionOf(outcomes[0]);
  };

  /**
   * `POST publish?room=…`: the body is the payload, and goes into the bucket.
   * @param {Call} call @param {AsyncIterable<Buffer>} body
   */
  publishRaw = async (call, body) => {
    const query = call.readQuery(['room', 'except', 'audience']);
    const { room: name = '', except, audience: names } = query;
    const readers = names === undefined ? '' : readAudience(names.split(','));
    if (this.blobs === null) throw new ApiFault('NO_BUCKET');
    call.key.requireRight('publish');
    if (!isRoom(name)) throw badValue('room', A_ROOM);
    if (this.rules.hasState(call.key.names.roomOf(name)))
      throw badValue('room', 'it has state: send JSON with a key');
    if (except !== undefined && !isConnectionId(except)) throw badValue('except', A_CONNECTION);
    if (readers === undefined) throw badValue('audience', A_AUDIENCE);
    call.key.requireRooms([name]);
    const key = idempotencyHeader(call);
    const length = call.headers['content-length'];
    const bytes = length === undefined ? undefined : Number(length);
    if (bytes !== undefined) call.charge(Math.ceil(bytes / BYTES_PER_UNIT) - 1);
    const claim = await this.blobs.store(bytes === undefined ? charged(call, body) : body, {
      bytes,
      contentType: call.headers['content-type'] ?? DEFAULT_TYPE,
    });
    const message = { room: name, ...encode(call, { except, audience: readers }, claim, key) };
    const [outcome] = await this.#publishAll(call, [message]);
    return positionOf(outcome);
  };

  /** `POST publish/batch` @param {Call} call */
  batch = async (call) => {
    refuseAudienceInQuery(call);
    const { messages } = readFields(call.body, BATCH);
    if (messages === undefined) throw invalid('messages', OBJECTS);
    const names = [];
    /** @type {Slice[]} */
    const payloads = [];
    for (const [index, fields] of messages.entries()) {
      if (fields.room === undefined) throw invalid(`messages[${index}].room`, A_ROOM);
      if (fields.payload === undefined) throw invalid(`messages[${index}].payload`, payload.rule);
      this.#checkMessage(call, fields.room, fields, `messages[${index}].`);
      names.push(fields.room);
      payloads.push(fields.payload);
    }
    call.key.requireRooms(names);
    charge(call, payloads, 1);
    // One after the other, so that a batch has one place among the uploads.
    /** @type {(Claim|null)[]} */
    const claims = [];
    for (const slice of payloads)
      claims.push(this.#isLarge(slice) ? await this.#store(call, slice) : null);
    const outcomes = await this.#publishAll(
      call,
      messages.map((/** @type {Fields} */ fields, /** @type {number} */ index) => ({
        room: fields.room,
        ...encode(call, fields, claims[index], fields.idempotencyKey),
      })),
    );
    return resultsOf(names, outcomes);
  };

  /** `POST broadcast` @param {Call} call */
  broadcast = async (call) => {
    call.key.requireNoApp();
    refuseAudienceInQuery(call);
    const { payload: slice } = readFields(call.body, BROADCAST);
    const key = idempotencyHeader(call);
    if (slice === undefined) throw invalid('payload', payload.rule);
    const { start, end } = slice;
    const message = {
      ...{ source: call.body, start, end, sender: SENDER, except: '', key: undefined },
      ...{ idempotencyKey: key, owner: call.key.names.owner, app: null, kind: KIND.BROADCAST },
    };
    const refused = this.rules.refusalOf(EVERYONE, message, this.maxBroadcastBytes);
    if (refused !== null) throw messageFault(refused);
    charge(call, [slice], 1);
    const publication = encodeMessage(message);
    const options = optionsOf(message, publication);
    const [outcome] = await this.publishing.publishAll([{ room: EVERYONE, publication, options }]);
    if ('fault' in outcome) throw outcome.fault;
    const listenerCount = await this.broker.countConnections().catch(() => undefined);
    return { listenerCount };
  };

  /**
   * @param {Call} call
   * @param {readonly import('./publishing.js').Message[]} messages to rooms as the key names them
   */
  #publishAll({ key: { app, names } }, messages) {
    return this.publishing.publishAll(
      messages.map(({ room: name, ...message }) => ({ room: names.roomOf(name), ...message })),
      app,
    );
  }

  /**
   * Rooms with state need a key, and have no `except` and no large payloads.
   * @param {Call} call @param {string} name of the room @param {Fields} fields
   * @param {string} path of the fields
   */
  #checkMessage({ key: { app, names } }, name, fields, path) {
    const { key, payload: slice = NOTHING, except = '', upload: object, expect } = fields;
    const room = names.roomOf(name);
    const message = { ...slice, app, key, except, expect };
    const refused = this.rules.refusalOf(room, message, this.maxBytes);
    if (refused !== null) throw messageFault(refused, path);
    if (object !== undefined && this.rules.hasState(room))
      throw invalid(`${path}upload`, 'not in a room with state');
  }

  /**
   * Puts a large payload into the bucket, or looks for one that the backend has put there.
   * @param {Call} call @param {Fields} fields @param {number} copies @returns {Promise<Claim|null>}
   */
  async #claim(call, { payload: slice, upload: name }, copies) {
    const { blobs } = this;
    if (name !== undefined) {
      if (blobs === null) throw new ApiFault('NO_BUCKET');
      call.charge(copies - 1);
      return blobs.verify(name);
    }
    if (!this.#isLarge(slice)) return null;
    call.charge(unitsOf(slice.end - slice.start) + copies - 1);
    return this.#store(call, slice);
  }

  /** @param {Slice} payload @returns {boolean} whether it belongs into the bucket */
  #isLarge({ start, end }) {
    return this.blobs !== null && end - start > this.rules.maxInlineBytes;
  }

  /** @param {Call} call @param {Slice} payload a large one @returns {Promise<Claim>} */
  #store({ body }, { start, end }) {
    const blobs = /** @type {NonNullable<Services['blobs']>} */ (this.blobs);
    return blobs.store(body.subarray(start, end), { contentType: 'application/json' });
  }
}

/** @type {Slice} */
const NOTHING = Object.freeze({ start: 0, end: 0 });

/** An upload has it there. Ignored, it would make the message public. @param {Call} call */
function refuseAudienceInQuery({ query }) {
  if (query.has('audience')) throw badValue('audience', 'it belongs into the body');
}

/**
 * Takes their cost from the rate of the key.
 * @param {Call} call @param {readonly Slice[]} payloads @param {number} copies of each
 */
function charge(call, payloads, copies) {
  let units = 0;
  for (const slice of payloads) units += unitsOf(sizeOf(slice)) * copies;
  call.charge(units - 1); // the request has paid one
}

/** @param {Slice} slice */
function sizeOf({ start, end }) {
  return end - start;
}

/**
 * @param {Call} call @param {Fields} fields `payload`, and perhaps `except`, `key` or `expect`
 * @param {Claim|null} claim in place of the payload @param {string|undefined} idempotencyKey
 */
function encode({ key: holder, body }, fields, claim, idempotencyKey) {
  const { payload: slice = NOTHING, except = '', key, expect, audience: readers } = fields;
  const message = {
    ...{ ...slice, source: body, sender: SENDER, except, key, claim, audience: readers },
    ...{ idempotencyKey, owner: holder.names.owner, app: null, expect },
  };
  const publication = encodeMessage(message);
  return { publication, options: optionsOf(message, publication) };
}

/** Takes the cost while the body is read. @param {Call} call @param {AsyncIterable<Buffer>} body */
async function* charged(call, body) {
  let paid = BYTES_PER_UNIT;
  let bytes = 0;
  for await (const part of body) {
    bytes += part.length;
    if (bytes > paid) {
      const units = Math.ceil((bytes - paid) / BYTES_PER_UNIT);
      call.charge(units);
      paid += units * BYTES_PER_UNIT;
    }
    yield part;
  }
}

/** @param {Call} call @returns {string|undefined} undefined if the header is absent */
function idempotencyHeader({ headers }) {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !isIdempotencyKey(key)) throw badValue('Idempotency-Key', A_KEY);
  return key;
}

/**
 * @param {readonly string[]} names @param {readonly Outcome[]} outcomes @returns {object}
 * @throws {ApiFault} if all messages have failed with the same code
 */
function resultsOf(names, outcomes) {
  const [first] = outcomes;
  const isSame = (/** @type {Outcome} */ one) =>
    'fault' in one && 'fault' in first && one.fault.code === first.fault.code;
  if ('fault' in first && outcomes.every(isSame)) throw first.fault;
  const results = outcomes.map((outcome, index) => {
    const room = names[index];
    if (!('fault' in outcome)) return { room, ...outcome.position };
    const { code: error, message, position } = outcome.fault;
    return { room, error, message, position };
  });
  return { results, failed: outcomes.filter((outcome) => 'fault' in outcome).length };
}
