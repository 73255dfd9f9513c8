// frames.js: this door's formats of publications.
//
// A codec turns a publication into a message, once for all members with the format, and a framing
// turns messages into bytes. Replays have their own format: they are part of the reply, and clients
// that return to the same position share the bytes.

import { FORMAT, registerFormat } from '../../../protocol/format.js';
import { roomOfPrefix } from '../../../protocol/frame.js';
import {
  eventOf,
  KIND,
  kindOf,
  offsetOf,
  payloadEnd,
  payloadOf,
  payloadStart,
  senderOf,
  timestampOf,
} from '../../../protocol/publication.js';
import { channelOf } from './channels.js';
import { isClient } from './client-id.js';
import { UNSUBSCRIBED } from './codes.js';
import { FRAMINGS } from './framing.js';
import { jsonCodec } from './json.js';
import { readMember } from './members.js';
import { protobufCodec } from './protobuf.js';

/** @import { Format } from '../../../protocol/format.js' */
/** @import { Framing } from './framing.js' */
/** @import { ClientInfo, Codec, Published } from './messages.js' */

const NOTHING = Buffer.alloc(0);
/** Cached fields of senders, because most send several messages. */
const MAX_SENDERS = 1024;

export function registerFormats() {
  const { text, binary, lines, events, delimited } = FRAMINGS;
  const json = new Publications(jsonCodec);
  const protobuf = new Publications(protobufCodec);
  const jsonList = FORMAT.CENTRIFUGO_JSON_LIST;
  const protobufList = FORMAT.CENTRIFUGO_PROTOBUF_LIST;
  registerFormat(FORMAT.CENTRIFUGO_JSON, createFormat(json, text, jsonList));
  registerFormat(FORMAT.CENTRIFUGO_PROTOBUF, createFormat(protobuf, binary, protobufList));
  registerFormat(FORMAT.CENTRIFUGO_LINES, createFormat(json, lines, jsonList));
  registerFormat(FORMAT.CENTRIFUGO_EVENTS, createFormat(json, events, jsonList));
  registerFormat(FORMAT.CENTRIFUGO_DELIMITED, createFormat(protobuf, delimited, protobufList));
  registerFormat(jsonList, createListFormat(json));
  registerFormat(protobufList, createListFormat(protobuf));
}

/** What pushes of a room share. @typedef {{channel: string, field: Buffer}} Head */

/**
 * @param {Publications} form @param {Framing} framing @param {number} replyFormat @returns {Format}
 */
function createFormat(form, framing, replyFormat) {
  const { codec } = form;
  /** By native prefix, which each open room has once. @type {WeakMap<Buffer, Head|null>} */
  const heads = new WeakMap();
  return {
    encode(prefix, publications) {
      let head = heads.get(prefix);
      if (head === undefined) {
        const channel = channelOf(roomOfPrefix(prefix));
        head = channel === null ? null : { channel, field: codec.channelField(channel) };
        heads.set(prefix, head);
      }
      const messages = [];
      for (const publication of publications) {
        const message = form.messageOf(head, publication);
        if (message !== null) messages.push(message);
      }
      return messages.length === 0 ? NOTHING : framing.frame(messages);
    },
    // Some publications have no message.
    endOf: null,
    encodeResync(room) {
      const channel = channelOf(room);
      if (channel === null) return NOTHING;
      return framing.frame([
        codec.encode({ push: { channel, unsubscribe: UNSUBSCRIBED.INSUFFICIENT } }),
      ]);
    },
    leavesAtResync: true,
    replyFormat,
  };
}

/** @param {Publications} form @returns {Format} */
function createListFormat(form) {
  return {
    encode: (_prefix, publications) =>
      form.codec.publicationList(publications.map((publication) => form.publishedOf(publication))),
    endOf: null,
    encodeResync: () => NOTHING,
  };
}

/** Publications in the form of one codec. */
class Publications {
  /** Infos by sender. @type {Map<string, Buffer>} */
  #infos = new Map();

  /** @param {Codec} codec */
  constructor(codec) {
    this.codec = codec;
  }

  /**
   * @param {Head|null} head null: not a channel's room
   * @param {Buffer} publication @returns {Buffer|null} null: not for clients
   */
  messageOf(head, publication) {
    const { codec } = this;
    const kind = kindOf(publication);
    if (kind === KIND.BROADCAST)
      return codec.encode({ push: { message: { data: payloadOf(publication) } } });
    if (head === null) return null;
    if (kind === KIND.MESSAGE || kind === KIND.POSITIONED)
      return codec.publicationMessage(head.field, this.publishedOf(publication));
    if (kind !== KIND.PRESENCE) return null;
    const event = eventOf(publication);
    if (event === 'count') return null;
    const info = readMember(publication.subarray(payloadStart(publication)));
    return info === null
      ? null
      : codec.encode({ push: { channel: head.channel, [event]: { info } } });
  }

  /** @param {Buffer} publication @returns {Published} */
  publishedOf(publication) {
    return {
      source: publication,
      start: payloadStart(publication),
      end: payloadEnd(publication),
      offset: kindOf(publication) === KIND.POSITIONED ? offsetOf(publication) : 0,
      timeMs: timestampOf(publication),
      info: this.#infoOf(senderOf(publication)),
    };
  }

  /** @param {string} sender */
  #infoOf(sender) {
    const known = this.#infos.get(sender);
    if (known !== undefined) return known;
    const info = infoOfSender(sender);
    if (info === null) return null;
    const field = this.codec.infoField(info);
    if (this.#infos.size >= MAX_SENDERS) this.#infos.clear();
    this.#infos.set(sender, field);
    return field;
  }
}

/**
 * The publisher: a client of this door without a user, or a name.
 * @param {Buffer} publication @returns {ClientInfo|null} null: the server or an HTTP API
 */
export function infoOf(publication) {
  return infoOfSender(senderOf(publication));
}

/** @param {string} sender @returns {ClientInfo|null} */
function infoOfSender(sender) {
  if (sender === '') return null;
  if (isClient(sender)) return { client: sender };
  return { user: sender.includes('\\') ? JSON.parse(`"${sender}"`) : sender };
}
