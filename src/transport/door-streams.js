// door-streams.js: streams of a door beside the native one.
//
//   POST with a first message, or GET with it in the query -> admitted (http-server.js)
//     -> the head, a Connection -> the door, with the first message -> messages -> the last one
//
// The clients' libraries return by themselves after a status, so refusals are plain HTTP.

import { refusal, toHttp } from '../protocol/refusal.js';
import { headFault } from './handshake.js';
import { responseText } from './http-answers.js';
import { headText, Stream, StreamKind } from './stream.js';

const PAGE_HEADERS = 'Authorization, Cache-Control, Content-Type';

/** @import { AdmissionLease } from '../admission/admission.js' */
/** @import { Transport } from '../hub/connection.js' */
/** @import { StreamDoor, StreamForm } from '../hub/door.js' */
/** @import { Refusal } from '../protocol/refusal.js' */
/** @import { Streams } from './route.js' */
/** @import { Headers } from './cors.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */

/**
 * @typedef {object} Wanted
 * @property {IncomingMessage} request @property {Headers} headers for every answer
 * @property {Buffer} first the client's first message
 */

/** @implements {Transport} */
class DoorStream extends Stream {
  /**
   * @param {DoorStreams} owner @param {Socket} socket @param {string} address
   * @param {StreamForm} form
   */
  constructor(owner, socket, address, form) {
    super(owner, socket, address, form.format);
    this.form = form;
    this.rules = owner.door;
  }

  get door() {
    return this.form.texts;
  }

  /** @param {string} text */
  sendText(text) {
    this.sendBytes(Buffer.from(text));
  }

  /** @param {Buffer} message */
  sendBytes(message) {
    this.write(this.form.frame(message));
  }

  /** @type {Transport['sendAround']} */
  sendAround(before, source, start, end, after) {
    this.sendBytes(Buffer.concat([before, source.subarray(start, end), Buffer.from(after)]));
  }

  /** @param {number} reconnectAfterMs */
  sendShutdown(reconnectAfterMs) {
    const text = this.door.encodeShutdown(reconnectAfterMs);
    if (text !== null) this.sendText(text);
    return text !== null;
  }

  ping() {
    const { connection } = this;
    // Unsent bytes test the peer as well.
    if (this.pendingBytes > 0) connection.markAlive();
    else if (connection.isOpen && !this.rules.ping(connection)) connection.markAlive();
  }

  /** @param {number} code @param {string} reason */
  close(code, reason) {
    this.end(this.form.ending(code, reason));
  }
}

/** @implements {Streams} */
export class DoorStreams extends StreamKind {
  /**
   * @param {object} parts @param {import('../config/settings.js').Config} parts.config
   * @param {import('../hub/hub.js').Hub} parts.hub
   * @param {import('../hub/heartbeat.js').Heartbeat} parts.heartbeat @param {StreamDoor} parts.door
   * @param {import('../observability/counters.js').Counters} parts.counters
   */
  constructor({ config, hub, heartbeat, door, counters }) {
    const { allowsCredentials } = door;
    super({ config, hub, heartbeat, counters, pageHeaders: PAGE_HEADERS, allowsCredentials });
    this.door = door;
    this.rules = door.rules;
    this.allow = door.allow;
    this.maxBodyBytes = door.maxBodyBytes;
  }

  /** @param {IncomingMessage} request @returns {Wanted} */
  read(request) {
    return { request, headers: this.corsHeaders(request), first: NOTHING };
  }

  /** @param {IncomingMessage} request @returns {Refusal|null} */
  faultOf(request) {
    const isEncoded = request.headers['content-encoding'] !== undefined;
    return headFault(request) ?? (isEncoded ? refusal('UNSUPPORTED_MEDIA_TYPE') : null);
  }

  /** @param {Wanted} wanted @param {Buffer} body @returns {Refusal|null} */
  withBody(wanted, body) {
    const first = this.door.firstOf(wanted.request, body);
    if (!Buffer.isBuffer(first)) return first;
    wanted.first = first;
    return null;
  }

  /** @param {Wanted} wanted @param {Refusal} refused */
  refusalText({ headers: common }, refused) {
    const { status, headers, body } = toHttp(refused);
    return responseText(status, { ...common, 'Cache-Control': 'no-store', ...headers }, body);
  }

  /** @param {Wanted} wanted @param {Socket} socket @param {AdmissionLease} admitted */
  open({ request, headers, first }, socket, { address, credentials }) {
    const form = this.door.formOf(request);
    const stream = new DoorStream(this, socket, address, form);
    const { connection } = stream;
    const head = headText(200, {
      'Content-Type': form.contentType,
      'Cache-Control': 'private, no-cache, no-store, must-revalidate, max-age=0',
      Pragma: 'no-cache',
      'X-Accel-Buffering': 'no', // nginx
      ...headers,
    });
    stream.begin(head + form.opening);
    try {
      this.door.openStream(connection, request, credentials, first);
    } catch (error) {
      connection.fail(error);
    }
    return null;
  }

  /** @param {DoorStream} stream whose socket is closed */
  remove({ connection }) {
    connection.markClosed();
    this.door.closed(connection);
    this.heartbeat.unwatchConnection(connection);
  }
}

const NOTHING = Buffer.alloc(0);
