// sse.js: the transport for server-sent events.
//
//   GET /sse?room=a -> admitted (http-server.js) -> token and rights -> 200, the head
//     -> a Connection in the hub, which joins its rooms -> events -> end
//
// The request names the rooms, Last-Event-ID the positions. Events are built once per room and
// shared. With one room with history, the id of an event is its position. With several, a list of
// positions follows the last event of each flush, because it differs from stream to stream.
//
// An EventSource returns after the last `retry:`. Drains, relocations and overloads send one.

import { NOBODY } from '../../operations/joins.js';
import { CLOSES } from '../../protocol/codes.js';
import { NATIVE_TEXTS } from '../../protocol/door-texts.js';
import {
  encodeJoined,
  encodeJoinedState,
  encodeLeft,
  encodeNotReplayed,
  encodeResync,
  encodeShutdown,
} from '../../protocol/encode.js';
import { COMMENT, endWithId, eventId, textEvent } from '../../protocol/event-stream.js';
import { FORMAT } from '../../protocol/format.js';
import { refusal } from '../../protocol/refusal.js';
import { Stream, StreamKind } from '../../transport/stream.js';
import {
  MAX_STREAM_ROOMS,
  NO_POSITION,
  readLastEventId,
  StreamRequest,
  streamFault,
  streamHead,
  streamRefusal,
  tooManyRooms,
} from './sse-request.js';

/** When clients return, unless another `retry:` follows. Spread, because a worker may die. */
const RETRY_MS = { min: 1000, max: 5000 };
/** An EventSource repeats the same delay until it is admitted: near 0 it would flood the server. */
const MIN_RETRY_MS = 100;
const OVERLOAD_RETRY_MS = { min: 10_000, max: 20_000 };

const NO_TOKEN =
  'A token is missing: send it as Authorization: Bearer <token>, or as the parameter token.';
const PAGE_HEADERS = 'Authorization, Cache-Control, Last-Event-ID';

/** @import { Identity } from '../../auth/claims.js' */
/** @import { Credentials } from '../../auth/credentials.js' */
/** @import { Transport } from '../../hub/connection.js' */
/** @import { Refusal } from '../../protocol/refusal.js' */
/** @import { Streams } from '../../transport/route.js' */
/** @import { IncomingMessage } from 'node:http' */
/** @import { Socket } from 'node:net' */

/** @implements {Transport} */
class EventStream extends Stream {
  /** @param {EventStreams} owner @param {Socket} socket @param {string} address */
  constructor(owner, socket, address) {
    super(owner, socket, address, FORMAT.EVENTS);
    /** Rooms with history, in the order of their positions in the id. @type {readonly string[]} */
    this.tracked = NO_ROOMS;
    /** Their positions as text, if the format is BARE_EVENTS. @type {string[]} */
    this.positions = NO_POSITIONS;
    this.hasBegun = false;
  }

  get door() {
    return NATIVE_TEXTS;
  }

  /** Ignored after the close. @param {string} text of encode.js @param {string} [id] */
  sendEvent(text, id) {
    if (this.connection.isOpen) this.write(Buffer.from(textEvent(text, id)));
  }

  /** @param {string} text */
  sendText(text) {
    // The backend has joined it to a room that the client did not ask for: not part of the id.
    if (text.startsWith(JOINED)) this.track(this.tracked);
    this.sendEvent(text);
  }

  /** @type {Transport['sendAround']} */
  sendAround(before, source, start, end, after) {
    this.sendText(`${before}${source.toString('utf8', start, end)}${after}`);
  }

  /** @type {Transport['sendShutdown']} */
  sendShutdown(reconnectAfterMs) {
    const retryMs = Math.max(reconnectAfterMs, MIN_RETRY_MS);
    this.write(Buffer.from(`retry: ${retryMs}\n${textEvent(encodeShutdown(reconnectAfterMs))}`));
    return true;
  }

  /** Gives the stream ids of its own. @param {readonly string[]} rooms with history */
  track(rooms) {
    if (this.format === FORMAT.BARE_EVENTS) return;
    this.setFormat(FORMAT.BARE_EVENTS);
    this.tracked = rooms;
    this.positions = rooms.map(() => NO_POSITION);
  }

  /** @param {number} index in `tracked` @param {string} position @returns {string} its id */
  move(index, position) {
    if (this.format === FORMAT.EVENTS) return position;
    this.positions[index] = position;
    return this.positions.join(',');
  }

  /** @param {string} room @param {Buffer} events @param {string} epoch @param {number} offset */
  withPosition(room, events, epoch, offset) {
    const index = this.tracked.indexOf(room);
    return index < 0 ? events : endWithId(events, this.move(index, eventId(epoch, offset)));
  }

  ping() {
    const { connection } = this;
    connection.markAlive();
    if (connection.isOpen && this.pendingBytes === 0) this.write(COMMENT);
  }

  /** @param {number} code @param {string} reason */
  close(code, reason) {
    const text = `{"type":"close","code":${code},"reason":"${reason}"}`;
    this.end(`${retryBefore(code)}${textEvent(text)}`);
  }
}

const JOINED = '{"type":"joined"';
/** @type {readonly string[]} */
const NO_ROOMS = Object.freeze([]);
const NOTHING = Object.freeze({ last: 0, lastSeconds: 0 });
/** @type {string[]} */
const NO_POSITIONS = [];

/**
 * Counts a stream against the rates of its address and user.
 * @callback AdmitStream
 * @param {string} address @param {string} user '': it has none
 * @param {number} rooms @param {boolean} isReturning does the client continue from a position?
 * @returns {number} 0: pass; above 0: seconds to wait
 */

/** @implements {Streams} */
export class EventStreams extends StreamKind {
  maxBodyBytes = 0;
  rules = undefined;

  /**
   * @param {object} parts @param {import('../../config/settings.js').Config} parts.config
   * @param {import('../../hub/hub.js').Hub} parts.hub
   * @param {Pick<import('../../operations/index.js').Operations, 'identities'|'joins'|'replies'>}
   *   parts.operations
   * @param {import('../../hub/heartbeat.js').Heartbeat} parts.heartbeat
   * @param {AdmitStream} [parts.admitStream]
   * @param {() => string|undefined} [parts.overRateText] names the limit that refused last
   * @param {import('../../observability/counters.js').Counters} parts.counters
   */
  constructor({
    config,
    hub,
    operations,
    heartbeat,
    admitStream = () => 0,
    overRateText = () => undefined,
    counters,
  }) {
    super({ config, hub, heartbeat, counters, pageHeaders: PAGE_HEADERS });
    this.joins = operations.joins;
    this.replies = operations.replies;
    this.identities = operations.identities;
    this.admitStream = admitStream;
    this.overRateText = overRateText;
    this.counters = counters;
  }

  /** @param {IncomingMessage} request `GET /sse` */
  read(request) {
    return new StreamRequest(request, this.corsHeaders(request));
  }

  /** @param {IncomingMessage} request @param {StreamRequest} stream */
  faultOf(request, stream) {
    return streamFault(request, stream);
  }

  withBody() {
    return null;
  }

  /** @param {StreamRequest} stream @param {Refusal} refused */
  refusalText(stream, refused) {
    return streamRefusal(stream, refused);
  }

  /**
   * Returns a promise only if there is a hook onJoin.
   * @param {StreamRequest} request @param {Socket} socket
   * @param {{address: string, credentials: Credentials|null}} admitted
   * @returns {Refusal|null|Promise<Refusal|null>}
   */
  open(request, socket, { address, credentials }) {
    const identity = credentials?.identity ?? null;
    const given = [...new Set([...request.rooms, ...(identity?.autojoin ?? [])])];
    const refused =
      this.#refusalOf(request, given, credentials) ??
      this.#rateRefusalOf(request, given, address, credentials);
    if (refused !== null) return refused;
    const stream = new EventStream(this, socket, address);
    const [named, names] = roomsFor(identity, request, given);
    // Before anything is written, because only a status stops an EventSource for good.
    const asked = this.joins.askEarly(stream.connection, credentials, names);
    if (asked !== null) return this.#beginAfter(asked, stream, named, names, credentials);
    this.#beginStream(stream, named, names, credentials);
    return null;
  }

  /**
   * @param {Promise<(Refusal|null)[]>} asked answers of onJoin @param {EventStream} stream
   * @param {StreamRequest} request @param {readonly string[]} names @param {Credentials|null} credentials
   */
  async #beginAfter(asked, stream, request, names, credentials) {
    const refusals = await asked;
    if (stream.socket.destroyed) return null;
    const isWanted = (/** @type {string} */ name) => request.rooms.includes(name);
    const wanted = refusals.find((one, i) => one !== null && isWanted(names[i]));
    const refused = wanted ?? (refusals.includes(null) ? null : refusals[0]);
    if (refused !== null) return this.#counted(refused);
    // Leaves out rooms of the token that the hook does not allow.
    const allowed = names.filter((_, i) => refusals[i] === null);
    this.#beginStream(stream, request, allowed, credentials);
    for (const [i, one] of refusals.entries()) {
      if (one === null) continue;
      this.replies.count(one);
      stream.sendEvent(encodeLeft(names[i], 'permission'));
    }
    return null;
  }

  /**
   * @param {EventStream} stream @param {StreamRequest} request @param {readonly string[]} names
   * @param {Credentials|null} credentials
   */
  #beginStream(stream, request, names, credentials) {
    const { connection } = stream;
    this.counters.eventStreams++;
    stream.hasBegun = true;
    stream.begin(`${streamHead(request.headers)}${COMMENT}retry: ${randomMs(RETRY_MS)}\n\n`);
    this.identities.enterSession(connection, credentials, () => {});
    if (!connection.isOpen) return;
    try {
      this.#join(stream, names, request);
    } catch (error) {
      connection.fail(error);
    }
  }

  /**
   * @param {StreamRequest} request
   * @param {readonly string[]} names with the rooms that the token joins
   * @param {Credentials|null} credentials @returns {Refusal|null}
   */
  #refusalOf({ rooms, latest }, names, credentials) {
    if (credentials?.refusal) return credentials.refusal;
    const identity = credentials?.identity ?? null;
    if (identity === null && this.identities.isRequired) return refusal('INVALID_TOKEN', NO_TOKEN);
    const isAllowed = (/** @type {string} */ room) =>
      identity === null ||
      (identity.mayJoin(room) && (latest?.last === 0 || identity.rights.history.has(room)));
    const denied = rooms.find((room) => !isAllowed(room));
    if (denied !== undefined)
      return this.#counted(refusal('PERMISSION_DENIED', rightText(identity, denied)));
    if (names.length === 0) return refusal('ROOM_REQUIRED');
    const refused =
      names.length > MAX_STREAM_ROOMS
        ? refusal('ROOM_LIMIT', tooManyRooms(MAX_STREAM_ROOMS))
        : this.joins.limitFault(names.length);
    return refused && this.#counted(refused);
  }

  /** @param {Refusal} refused for the rooms that it asks for @returns {Refusal} */
  #counted(refused) {
    this.replies.count(refused);
    return refused;
  }

  /**
   * @param {StreamRequest} request @param {readonly string[]} names as above
   * @param {string} address @param {Credentials|null} credentials @returns {Refusal|null}
   */
  #rateRefusalOf({ isReturning }, names, address, credentials) {
    const user = credentials?.identity?.user ?? '';
    const waitS = this.admitStream(address, user, names.length, isReturning);
    if (waitS === 0) return null;
    this.counters.errors.RATE_LIMIT_EXCEEDED++;
    return refusal('RATE_LIMIT_EXCEEDED', this.overRateText(), waitS);
  }

  /** @param {EventStream} stream @param {readonly string[]} names @param {StreamRequest} request */
  #join(stream, names, { rooms, latest, isPresent, lastEventId }) {
    const { connection } = stream;
    const tracked = names.filter((name) => this.hub.scheduler.hasHistory(name));
    const positions = readLastEventId(lastEventId, tracked.length);
    if (tracked.length > 1) stream.track(tracked);
    else stream.tracked = tracked;
    for (const [index, since] of positions.entries())
      if (since !== null && since.epoch !== '')
        stream.move(index, eventId(since.epoch, since.offset));
    for (const name of names) {
      const index = tracked.indexOf(name);
      const since = index < 0 ? null : positions[index];
      const latestOfRoom = (rooms.includes(name) && latest) || NOTHING;
      const hasLast = latestOfRoom.last > 0;
      const isListed = isPresent || !rooms.includes(name);
      this.joins.subscribe(connection, name, {
        since,
        ...latestOfRoom,
        mayReadAll: connection.session.hasRight('history', name),
        who: isListed && this.hub.tracker.covers(name) ? NOBODY : null,
        isAsked: true,
        onJoined: (joined) => {
          if (joined === null)
            return stream.sendEvent(encodeNotReplayed(name, false, hasLast, undefined));
          const { epoch, recovered, replayed, first } = joined;
          // A client that has to begin again loses its position.
          if (joined.isState) {
            const text = encodeJoinedState(name, joined, undefined);
            return recovered
              ? stream.sendEvent(text)
              : stream.sendEvent(text, stream.move(index, eventId(epoch, 0)));
          }
          const text = encodeJoined(name, joined, undefined, hasLast);
          if (recovered) return stream.sendEvent(text);
          // The messages of `last` follow, with their ids.
          const before = first - 1;
          if (since === null && replayed > 0) return stream.sendEvent(text);
          const id = stream.move(index, eventId(epoch, before));
          if (since === null) return stream.sendEvent(text, id);
          stream.sendEvent(text);
          stream.sendEvent(encodeResync(name, epoch, before, 0), id);
        },
        onRefused: (refused) => {
          this.replies.refuse(connection, refused);
          // The client cannot ask again, but it returns.
          connection.close(CLOSES.OVERLOAD);
        },
      });
    }
  }

  /** @param {EventStream} stream whose socket is closed */
  remove({ connection, hasBegun }) {
    if (hasBegun) this.counters.eventStreams--;
    this.identities.leave(connection);
    this.heartbeat.unwatchConnection(connection);
  }
}

/**
 * Translates a client's names into rooms, if it belongs to an app.
 * @param {Identity|null} identity @param {StreamRequest} request @param {readonly string[]} names
 * @returns {[StreamRequest, readonly string[]]}
 */
function roomsFor(identity, request, names) {
  if (identity === null || identity.app === null) return [request, names];
  const roomOf = identity.roomOf.bind(identity);
  return [request.forRooms(request.rooms.map(roomOf)), names.map(roomOf)];
}

/** @param {number} code @returns {string} '': the client knows already when to return */
function retryBefore(code) {
  return code === CLOSES.OVERLOAD.code ? `retry: ${randomMs(OVERLOAD_RETRY_MS)}\n` : '';
}

/** @param {{min: number, max: number}} range */
function randomMs({ min, max }) {
  return min + Math.floor(Math.random() * (max - min));
}

/** @param {import('../../auth/claims.js').Identity|null} identity @param {string} room it may not read */
function rightText(identity, room) {
  const right = identity?.mayJoin(room) ? 'history' : 'join';
  return `The token's rooms.${right} does not name the room ${room}.`;
}
