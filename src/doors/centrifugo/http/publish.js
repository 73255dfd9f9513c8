// publish.js: the methods that publish: to one channel, or to many.

import { onceOnly } from '../../../hub/publisher.js';
import { isPayload } from '../../../protocol/decode.js';
import { asTransient, encodePublication, KIND } from '../../../protocol/publication.js';
import { isIdempotencyKey, payload } from '../../../transport/http-api/fields.js';
import { Publishing, positionOf, unitsOf } from '../../../transport/http-api/publishing.js';
import { DoorError } from '../errors.js';
import { errorOf } from './answers.js';
import { flag, roomOfChannel, text, texts, unsupported } from './fields.js';

/** The sender of messages from an API: an id or a user is never empty. */
const SENDER = '';
/** The owner of idempotency keys: that of the native HTTP API, whose rooms these are. */
const API = '';
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

const MESSAGE = {
  data: payload,
  b64data: text,
  skip_history: flag,
  idempotency_key: text,
  ...unsupported('tags', 'version', 'version_epoch'),
};

/** @import { Method, MethodServices } from './method.js' */
/** @typedef {import('../../../transport/http-api/fields.js').Fields} Fields */

export class PublishMethods {
  /** @param {MethodServices} services */
  constructor(services) {
    const { maxInlineBytes, maxMessageBytes } = services.config;
    this.maxDataBytes = Math.min(maxInlineBytes, maxMessageBytes);
    this.publishing = new Publishing(services);
    this.log = services.log;
  }

  /** @type {Method} */
  publish = {
    route: 'centrifugo_publish',
    shape: { ...MESSAGE, channel: text },
    run: async (fields, call, body) => {
      const room = roomOfChannel(fields.channel);
      const data = this.#dataOf(fields, body);
      const encoded = encode(fields, data);
      call.charge(unitsOf(data.length) - 1);
      const [outcome] = await this.publishing.publishAll([{ room, ...encoded }]);
      return positionOf(outcome);
    },
  };

  /** @type {Method} */
  broadcast = {
    route: 'centrifugo_broadcast',
    shape: { ...MESSAGE, channels: texts },
    run: async (fields, call, body) => {
      /** @type {string[]} */
      const channels = fields.channels ?? [];
      if (channels.length === 0) throw new DoorError(107, 'channels are required');
      const data = this.#dataOf(fields, body);
      const encoded = encode(fields, data);
      call.charge(unitsOf(data.length) * channels.length - 1);
      const rooms = channels.map((channel) => this.#try(() => roomOfChannel(channel)));
      const messages = rooms.flatMap((room) =>
        typeof room === 'string' ? [{ room, ...encoded }] : [],
      );
      const outcomes = await this.publishing.publishAll(messages);
      let next = 0;
      const responses = rooms.map((room) => {
        if (typeof room !== 'string') return room;
        const result = this.#try(() => positionOf(outcomes[next++]));
        return 'error' in result ? result : { result };
      });
      return { responses };
    },
  };

  /** @param {Fields} fields @param {Buffer} body with the slices @returns {Buffer} JSON */
  #dataOf(fields, body) {
    const data = readData(fields, body);
    if (data.length > this.maxDataBytes)
      throw new DoorError(107, `data has more than ${this.maxDataBytes} bytes`);
    return data;
  }

  /** @template T @param {() => T} act @returns {T|{error: import('./answers.js').ErrorBody}} */
  #try(act) {
    try {
      return act();
    } catch (error) {
      return { error: errorOf(error, this.log) };
    }
  }
}

/** @param {Fields} fields @param {Buffer} body */
function readData({ data, b64data = '' }, body) {
  if (b64data === '') {
    if (data === undefined) throw new DoorError(107, 'data is required');
    return body.subarray(data.start, data.end);
  }
  const decoded = BASE64.test(b64data) ? Buffer.from(b64data, 'base64') : null;
  if (decoded === null || !isPayload(decoded))
    throw new DoorError(107, 'b64data is not JSON in base64; binary data is not supported');
  return decoded;
}

/** @param {Fields} fields @param {Buffer} data */
function encode({ skip_history: isTransient = false, idempotency_key: key = '' }, data) {
  if (key !== '' && !isIdempotencyKey(key))
    throw new DoorError(107, 'idempotency_key is not 1 to 128 visible ASCII characters');
  const now = Date.now();
  const publication = encodePublication(KIND.MESSAGE, now, 0, SENDER, data, 0, data.length);
  const options = onceOnly(API, key === '' ? undefined : key, publication);
  if (!isTransient) return { publication, options };
  return { publication: asTransient(publication), options: { ...options, isTransient } };
}
