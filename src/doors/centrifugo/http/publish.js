// publish.js: the methods that publish: to one channel, or to many.

import { encodeMessage, optionsOf } from '../../../operations/message.js';
import { isPayload } from '../../../protocol/decode.js';
import { isIdempotencyKey, payload } from '../../../transport/http-api/fields.js';
import { Publishing, positionOf, unitsOf } from '../../../transport/http-api/publishing.js';
import { DoorError } from '../codec/errors.js';
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

/** @import { Message } from '../../../operations/message.js' */
/** @import { Method, MethodServices } from './method.js' */
/** @typedef {import('../../../transport/http-api/fields.js').Fields} Fields */

export class PublishMethods {
  /** @param {MethodServices} services */
  constructor(services) {
    this.rules = services.publisher.rules;
    this.publishing = new Publishing(services);
    this.log = services.log;
  }

  /** @type {Method} */
  publish = {
    route: 'centrifugo_publish',
    shape: { ...MESSAGE, channel: text },
    run: async (fields, call, body) => {
      const room = roomOfChannel(fields.channel);
      const message = messageToPublish(fields, readData(fields, body));
      this.#check(room, message);
      const encoded = encode(message);
      call.charge(unitsOf(message.end) - 1);
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
      const message = messageToPublish(fields, readData(fields, body));
      const encoded = encode(message);
      call.charge(unitsOf(message.end) * channels.length - 1);
      const rooms = channels.map((channel) =>
        this.#try(() => this.#check(roomOfChannel(channel), message)),
      );
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

  /** @param {string} room @param {Message} message @returns {string} the room */
  #check(room, message) {
    const refused = this.rules.refusalOf(room, message);
    if (refused !== null) throw new DoorError(107, refused.message);
    return room;
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

/** @param {Fields} fields @param {Buffer} data @returns {Message} */
function messageToPublish({ skip_history: isTransient = false, idempotency_key: key = '' }, data) {
  if (key !== '' && !isIdempotencyKey(key))
    throw new DoorError(107, 'idempotency_key is not 1 to 128 visible ASCII characters');
  return {
    ...{ source: data, start: 0, end: data.length, sender: SENDER, except: '', key: undefined },
    ...{ idempotencyKey: key === '' ? undefined : key, owner: API, app: null, isTransient },
  };
}

/** @param {Message} message */
function encode(message) {
  const publication = encodeMessage(message);
  return { publication, options: optionsOf(message, publication) };
}
