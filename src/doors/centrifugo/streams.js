// streams.js: clients without a WebSocket, on a response that does not end.
//
//   POST /connection/http_stream, the body is their connect    lines of JSON, or protobuf messages
//   GET /connection/sse?cf_connect=…                           server-sent events, always JSON
//
// The reply to connect has a session and the name of this worker. The client names both in the
// requests with its further commands (emulation.js), which may arrive at any worker.

import { isUtf8 } from 'node:buffer';
import { FORMAT } from '../../protocol/format.js';
import { refusal } from '../../protocol/refusal.js';
import { partsOf } from '../../protocol/url-parts.js';
import { FRAMINGS } from './codec/framing.js';
import { jsonCodec } from './codec/json.js';
import { protobufCodec } from './codec/protobuf.js';

const HTTP_STREAM = '/connection/http_stream';
const SSE = '/connection/sse';
export const MAX_BODY_BYTES = 65_536;
const PROTOBUF = 'application/octet-stream';

/** @import { Connection } from '../../hub/connection.js' */
/** @import { StreamDoor, StreamForm } from '../../hub/door.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { Framing } from './codec/framing.js' */
/** @import { Codec } from './codec/messages.js' */

/** @typedef {StreamForm & {codec: Codec, framing: Framing}} Form */

/** @implements {StreamDoor} */
export class CentrifugoStreams {
  allow = 'GET, POST';
  maxBodyBytes = MAX_BODY_BYTES;
  allowsCredentials = true;
  /** Pending until other workers reach this one by its name. @type {Promise<unknown>|null} */
  #listening = null;

  /** @param {DoorServices} services @param {CentrifugoConnections} connections */
  constructor(services, connections) {
    this.services = services;
    this.connections = connections;
    const { lines, events, delimited } = FRAMINGS;
    const json = { codec: jsonCodec, texts: connections.textsOf(jsonCodec) };
    const protobuf = { codec: protobufCodec, texts: connections.textsOf(protobufCodec) };
    this.rules = json.texts;
    this.lines = formOf(json, lines, FORMAT.CENTRIFUGO_LINES, 'application/json');
    // Not CR LF, as Centrifugo begins: eventsource 2 would miss the event in the same chunk.
    this.events = formOf(json, events, FORMAT.CENTRIFUGO_EVENTS, 'text/event-stream', '\n');
    this.delimited = formOf(protobuf, delimited, FORMAT.CENTRIFUGO_DELIMITED, PROTOBUF);
  }

  /** @param {string} path without the configured prefix */
  isPath(path) {
    return path === HTTP_STREAM || path === SSE;
  }

  /** @param {Pick<IncomingMessage, 'url'|'headers'>} request @returns {Form} */
  formOf({ url = '', headers }) {
    if (partsOf(url).path.endsWith(SSE)) return this.events;
    return isProtobuf(headers) ? this.delimited : this.lines;
  }

  /** @type {StreamDoor['firstOf']} */
  firstOf(request, body) {
    const { url = '', method } = request;
    const { path, query } = partsOf(url);
    const isInQuery = path.endsWith(SSE) && method === 'GET';
    const first = isInQuery
      ? Buffer.from(new URLSearchParams(query).get('cf_connect') ?? '')
      : body;
    // Later commands are checked, too. Here the answer can say it.
    if (!this.formOf(request).codec.isBinary && !isUtf8(first))
      return refusal('bad_request', 'The commands are not UTF-8.');
    if (first.length > 0) return first;
    const place = isInQuery ? 'The parameter cf_connect' : 'The body';
    return refusal('bad_request', `${place} must be a command to connect.`);
  }

  /** @type {StreamDoor['openStream']} */
  openStream(connection, request, credentials, first) {
    const { upstreams } = this.services;
    const { fleet } = this.services.api;
    const session = upstreams.openSession(connection, this.#receive);
    const upstream = { session, node: fleet.name };
    this.connections.open(connection, request, credentials, this.formOf(request), upstream);
    // If the broker is unavailable, commands that arrive here still count.
    this.#listening ??= fleet.listenForReplies().catch(() => {
      this.#listening = null;
    });
    this.#listening.then(() => upstreams.deliver(session, first));
  }

  /** @param {Connection} connection @param {Buffer} messages */
  #receive = (connection, messages) => this.connections.receiveUnchecked(connection, messages);

  /** @type {StreamDoor['ping']} */
  ping(connection) {
    const isExpected = this.connections.expectPong(connection);
    const codec = this.connections.clientOf(connection)?.codec;
    if (isExpected && codec !== undefined) connection.send(codec.ping);
    // No request with a pong arrives if all workers of the server drain.
    return isExpected && !this.services.phase.isDraining;
  }

  /** @type {StreamDoor['closed']} */
  closed(connection) {
    this.services.upstreams.closeSession(connection);
    this.connections.closed(connection);
  }
}

/**
 * @param {Pick<Form, 'codec'|'texts'>} base @param {Framing} framing @param {number} format
 * @param {string} contentType @param {string} [opening] @returns {Form}
 */
function formOf({ codec, texts }, framing, format, contentType, opening = '') {
  return {
    ...{ codec, framing, texts, format, contentType, opening },
    frame: (message) => framing.frame([message]),
    ending: (code, reason) =>
      framing.frame([codec.encode({ push: { disconnect: { code, reason } } })]),
  };
}

/** @param {import('node:http').IncomingHttpHeaders} headers */
export function isProtobuf({ 'content-type': type = '' }) {
  return type.split(';', 1)[0].trim().toLowerCase() === PROTOBUF;
}
