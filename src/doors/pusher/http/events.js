// events.js: routes that publish one event to several channels, or a batch of events.
//
// The whole request is checked first. Its events go to the broker together, which accepts them
// before the answer is sent. If the broker refuses one, the request fails with 503, although others
// may have been published.

import { encodeMessage, optionsOf } from '../../../operations/message.js';
import { isChannel, kindOf, roomOf } from '../../../protocol/pusher-channels.js';
import { messageFault } from '../../../transport/http-api/fault.js';
import {
  isIdempotencyKey,
  isText,
  nullable,
  payload,
  present,
  readFields,
  textAt,
} from '../../../transport/http-api/fields.js';
import { Publishing, unitsOf } from '../../../transport/http-api/publishing.js';
import { encodePayload } from '../codec/frames.js';
import { isReserved } from '../codec/messages.js';
import { connectionIdOf, isSocketId } from '../codec/socket-id.js';
import { badRequest } from './answers.js';
import { readInfo } from './app-call.js';

/** @import { App } from '../../../config/pusher.js' */
/** @import { Fields } from '../../../transport/http-api/fields.js' */
/** @import { AppCall, RouteServices } from './app-call.js' */
/** @import { ChannelRoutes } from './channels.js' */

/** The sender of API messages. Ids and users are never empty. */
const SENDER = '';
const QUOTE = 0x22;

const text = nullable('a string', isText);
const texts = nullable(
  'an array of strings',
  (value) => Array.isArray(value) && value.every(isText),
);
const EVENT = { name: text, data: payload, channel: text, socket_id: text, info: text };
const EVENTS = { ...EVENT, channels: texts };
const BATCH = { batch: { items: EVENT } };
const LENIENT = Object.freeze({ ignoresUnknown: true });

/**
 * An event to be published.
 * @typedef {object} Event
 * @property {readonly string[]} channels
 * @property {Omit<import('../../../operations/message.js').Message, 'idempotencyKey'>} message
 * @property {ReadonlySet<string>} info attributes of the channels for the answer
 */

export class EventRoutes {
  /** @param {RouteServices} services @param {Pick<ChannelRoutes, 'infoOf'>} channels */
  constructor(services, channels) {
    this.publishing = new Publishing(services);
    this.channels = channels;
    this.rules = services.publisher.rules;
  }

  /** `POST events` @param {AppCall} call */
  publish = async (call) => {
    const { app, body } = call;
    const fields = readFields(body, EVENTS, LENIENT);
    const { channel, channels = channel === undefined ? undefined : [channel] } = present(fields);
    if (channels === undefined) throw badRequest('channels: an array of channels is required.');
    const names = [...new Set(/** @type {string[]} */ (channels))];
    if (names.length < 1 || names.length > app.maxChannelsPerEvent)
      throw badRequest(`channels: 1 to ${app.maxChannelsPerEvent} channels are allowed.`);
    const event = readEvent(app, body, fields, names);
    await this.#publishAll(call, [event]);
    if (event.info.size === 0) return {};
    const infos = await this.channels.infoOf(app, names, event.info);
    return { channels: Object.fromEntries(names.map((name, index) => [name, infos[index]])) };
  };

  /** `POST batch_events` @param {AppCall} call */
  publishBatch = async (call) => {
    const { app, body } = call;
    const { batch } = readFields(body, BATCH, LENIENT);
    if (batch === undefined || batch.length > app.maxBatch)
      throw badRequest(`batch: an array of 1 to ${app.maxBatch} events is required.`);
    const events = /** @type {Fields[]} */ (batch).map((fields) => {
      const { channel } = present(fields);
      if (channel === undefined) throw badRequest('channel: each event of a batch needs one.');
      return readEvent(app, body, fields, [channel]);
    });
    await this.#publishAll(call, events);
    if (events.every(({ info }) => info.size === 0)) return {};
    const infos = events.map(async ({ channels, info }) =>
      info.size === 0 ? {} : (await this.channels.infoOf(app, channels, info))[0],
    );
    return { batch: await Promise.all(infos) };
  };

  /** @param {AppCall} call @param {readonly Event[]} events */
  async #publishAll(call, events) {
    const { app } = call;
    const key = idempotencyKeyOf(call);
    const all = events.map(({ message, channels }, index) => ({
      rooms: channels.map((name) => roomOf(app, name)),
      message: {
        ...message,
        idempotencyKey: key === undefined || index === 0 ? key : `${key}#${index}`,
      },
    }));
    let units = 0;
    for (const { rooms, message } of all) {
      for (const room of rooms) {
        const refused = this.rules.refusalOf(room, message);
        if (refused !== null) throw messageFault(refused);
      }
      units += unitsOf(message.end) * rooms.length;
    }
    call.charge(units - 1); // the request has paid one
    const messages = all.flatMap(({ rooms, message }) => {
      const publication = encodeMessage(message);
      const options = optionsOf(message, publication);
      return rooms.map((room) => ({ room, publication, options }));
    });
    const outcomes = await this.publishing.publishAll(messages, app);
    for (const outcome of outcomes) if ('fault' in outcome) throw outcome.fault;
  }
}

/**
 * @param {App} app @param {Buffer} body
 * @param {Fields} fields of the event @param {readonly string[]} channels
 * @returns {Event} @throws {ApiFault}
 */
function readEvent(app, body, fields, channels) {
  const { name, data: slice, socket_id: socketId, info } = present(fields);
  const { maxEventNameLength: maxName } = app;
  if (name === undefined || name === '' || name.length > maxName)
    throw badRequest(`name: 1 to ${maxName} characters are required.`);
  if (isReserved(name)) throw badRequest('name: pusher: and pusher_internal: are reserved.');
  if (slice === undefined) throw badRequest('data: it is required.');
  for (const channel of channels)
    if (!isChannel(channel) || channel.length > app.maxChannelLength)
      throw badRequest('channels: a name is not that of a channel.');
  if (channels.length > 1 && channels.map(kindOf).some(isAlone))
    throw badRequest(
      'channels: an encrypted channel, or that of a user, must be the only one of a request.',
    );
  if (socketId !== undefined && !isSocketId(socketId))
    throw badRequest('socket_id: it is not that of a connection.');
  const data =
    body[slice.start] === QUOTE
      ? /** @type {string} */ (textAt(body, slice.start, slice.end))
      : body.toString('utf8', slice.start, slice.end);
  const except = socketId === undefined ? null : connectionIdOf(socketId);
  const source = encodePayload(name, data);
  const message = {
    ...{ source, start: 0, end: source.length, bytes: Buffer.byteLength(data), sender: SENDER },
    ...{ except: except ?? '', key: undefined, owner: `~${app.id}`, app },
  };
  return { channels, message, info: readInfo(info) };
}

/** @param {import('../../../protocol/pusher-channels.js').Kind} kind */
function isAlone({ isEncrypted, isUser }) {
  return isEncrypted || isUser;
}

/** @param {AppCall} call */
function idempotencyKeyOf({ headers }) {
  const key = headers['idempotency-key'];
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !isIdempotencyKey(key))
    throw badRequest('Idempotency-Key: 1 to 128 visible ASCII characters.');
  return key;
}
