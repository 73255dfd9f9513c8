// audience-clients.js: members of rooms whose messages are partly for audiences.
//
// A member knows what it holds: by its token, by hooks, and by what the HTTP API has given to its
// user. It writes each change to the record, also while it is not sure yet (held.js).

import { token } from '../helpers/tokens.js';
import { audienceOnPublish, givenOnConnect, givenOnJoin } from './audience-hooks.js';
import { HANDLERS, RecoveringClient } from './client.js';
import { valueIn } from './payloads.js';
import { STATE_HANDLERS, StateClient } from './state-clients.js';

/** Values of publishers to these rooms, in any bytes. */
const VALUES = /s\d+:\d+:(?:[hkp]\.|private-)\w+/g;
/** Rooms of the second list of a token. */
const PATTERN = 'h.t*';
const PATTERN_PREFIX = 'h.t';
/** Rooms with state. */
const STATE_PREFIX = 'k.';
/** In front of the ids of its commands. */
const COMMAND = /^(renew|given|page|own):/;
/** A revocation counts for the tokens of earlier seconds. */
const ISSUED_AGO_S = 10;
/** A request without an answer may still have an effect for so long. */
const FLOATING_MS = 30_000;
/** What a member is told whose token was revoked, or is of a clock that is ahead. */
const REFUSALS = new Set(['INVALID_TOKEN', 'TOKEN_NOT_YET_VALID', 'PERMISSION_DENIED']);

/** @typedef {import('./record.js').Recorder} Recorder */
/** What a token names: in all rooms, and in those of a pattern. @typedef {{everywhere: string[], some: string[]}} Named */

/**
 * @param {string} user @param {Named} named @param {number} [issuedAgoS]
 * @param {readonly string[]} [channels] of Centrifugo's protocol to which it subscribes the connection
 */
export function audienceToken(user, { everywhere, some }, issuedAgoS = ISSUED_AGO_S, channels) {
  const iat = Math.floor(Date.now() / 1000) - issuedAgoS;
  const all = ['*'];
  const rights = { join: all, publish: all, history: all, audience: all };
  const rooms = { ...rights, ...(some.length > 0 && { [PATTERN]: { audiences: some } }) };
  return token({ sub: user, iat, exp: iat + 3600, audiences: everywhere, rooms, channels });
}

/** What one client holds. */
export class Holder {
  /**
   * @param {object} parts @param {number} parts.client @param {string|undefined} parts.user
   * @param {readonly string[]} parts.hooks that are asked
   * @param {'audience'|'state'} parts.type of its events @param {Recorder} parts.recorder
   * @param {() => Named} parts.draw
   */
  constructor({ client, user, hooks, type, recorder, draw }) {
    this.client = client;
    this.user = user;
    this.hooks = hooks;
    this.type = type;
    this.recorder = recorder;
    this.draw = draw;
    /** Of the token with which it connects next. */
    this.next = draw();
    /** What its tokens may name now, with what onConnect gave. @type {Named[]} */
    this.named = [];
    /** What it may have been given in a room. @type {Map<string, (readonly string[])[]>} */
    this.given = new Map();
    /** Requests without an answer. @type {{room: string, names: readonly string[], untilMs: number}[]} */
    this.floating = [];
    this.issuedAgoS = ISSUED_AGO_S;
    /** To which its token subscribes it. @type {readonly string[]|undefined} */
    this.channels = undefined;
  }

  /** @returns {string} the token with which it connects */
  get token() {
    return audienceToken(String(this.user), this.next, this.issuedAgoS, this.channels);
  }

  /** A connection has opened. */
  begin() {
    const { next, hooks, user } = this;
    const everywhere = [...next.everywhere, ...givenOnConnect(hooks, user)];
    this.named = [{ ...next, everywhere }];
    this.next = this.draw();
    this.given.clear();
  }

  /** It asks to enter a room. @param {string} room */
  enter(room) {
    this.given.set(room, [givenOnJoin(this.hooks, room)]);
    this.write(room);
  }

  /** It has left a room, and may read the history. Then onJoin is asked again. @param {string} room */
  leave(room) {
    this.given.set(room, [[], givenOnJoin(this.hooks, room)]);
    this.write(room);
  }

  /** @param {string} room */
  write(room) {
    if (this.user === undefined) return this.#record(room, [], []);
    const now = performance.now();
    this.floating = this.floating.filter(({ untilMs }) => now < untilMs);
    const floating = this.floating.flatMap((one) => (one.room === room ? [one.names] : []));
    const sets = this.named.flatMap(({ everywhere, some }) =>
      [...(this.given.get(room) ?? [[]]), ...floating].map((names) => [
        ...new Set([...everywhere, ...(room.startsWith(PATTERN_PREFIX) ? some : []), ...names]),
      ]),
    );
    const may = [...new Set(sets.flat())];
    this.#record(
      room,
      may,
      may.filter((name) => sets.every((set) => set.includes(name))),
    );
  }

  /** @param {string} room @param {string[]} may @param {string[]} surely */
  #record(room, may, surely) {
    const { client, type } = this;
    this.recorder.write(/** @type {any} */ ({ type, what: 'holds', client, room, may, surely }));
  }
}

/**
 * Records what a client of these rooms does as AudienceEvents.
 * @param {Recorder} recorder @param {object} [options]
 * @param {readonly string[]} [options.hooks] that are asked
 * @param {boolean} [options.tellsPositions] is the client told of messages for others?
 * @param {(room: string) => void} [options.onConnected] writes what a client holds in a room that it
 *   asks for: its door has no other way to say when
 */
export function audienceRecorder(recorder, { hooks = [], tellsPositions, onConnected } = {}) {
  /** Of the joins under way. @type {Map<string, number|undefined>} */
  const lasts = new Map();
  const write = (/** @type {object} */ what) =>
    recorder.write(/** @type {any} */ ({ type: 'audience', ...what }));
  /** @type {Record<string, (event: any) => void>} */
  const taken = {
    invoke: ({ value, audience = [] }) => {
      const own = audience.length === 0 ? [] : audience;
      const other = audienceOnPublish(hooks, value);
      write({ what: 'put', value, audience: other.length > 0 ? other : own });
    },
    ok: ({ value, epoch, offset }) => write({ what: 'ok', value, epoch, offset }),
    subscribe: ({ client, room, since, last }) => {
      onConnected?.(room);
      lasts.set(room, last);
      write({ what: 'asks', client, room, since, tellsPositions });
    },
    reply: ({ client, room, epoch, offset, recovered = false }) =>
      write({ what: 'joined', client, room, epoch, offset, recovered, last: lasts.get(room) }),
    deliver: ({ client, room, value, epoch, offset }) =>
      write({ what: 'got', client, room, value, epoch, offset }),
    repeat: ({ client, room, value }) => write({ what: 'saw', client, room, value }),
    leave: ({ client, room }) => write({ what: 'left', client, room }),
    close: ({ client }) => write({ what: 'close', client }),
    passed: ({ client, room, epoch, offset }) =>
      write({ what: 'passed', client, room, epoch, offset }),
    resync: ({ client, room, epoch, offset }) =>
      write({ what: 'resync', client, room, epoch, offset }),
  };
  return /** @type {Recorder} */ (
    /** @type {unknown} */ ({ write: (/** @type {any} */ event) => taken[event.type]?.(event) })
  );
}

/** @typedef {RecoveringClient & {holder: Holder, mayRead: boolean}} Holding */

/**
 * What a client of the native door does about its audiences.
 * @template {new (...args: any[]) => RecoveringClient} T @param {T} Base
 */
function holding(Base) {
  return class extends Base {
    /** @type {Holder} */
    holder = /** @type {any} */ (null);
    /** Which messages its present connection has begun with. @type {import('ws').WebSocket|null} */
    begun = null;
    /** Commands without a reply, by id. @type {Map<string, (reply: any) => void>} */
    asked = new Map();
    /** What it awaits the HTTP API for. */
    isGiven = false;
    /** @type {Set<string>} */
    leaving = new Set();
    /** Rooms that the back end joined it to before its own join was answered. @type {Set<string>} */
    entered = new Set();
    number = 0;
    last = 0;

    /** @param {Holder} holder */
    with(holder) {
      this.holder = holder;
      const { handlers } = /** @type {RecoveringClient} */ (this);
      this.handlers = { ...handlers, ...HELD_HANDLERS(handlers) };
      Object.defineProperty(this, 'token', {
        get: () => (holder.user === undefined ? undefined : holder.token),
      });
      return this;
    }

    /** @override @param {import('./client.js').Place} place */
    join(place) {
      const { socket } = this;
      if (socket !== this.begun) {
        this.begun = socket;
        this.asked.clear();
        this.leaving.clear();
        this.entered.clear();
        this.holder.begin();
        socket?.on('message', (data) => this.#sniff(String(data)));
      }
      this.holder.enter(place.room);
      super.join(place);
    }

    /** @override @param {import('./record.js').Position|null} position */
    beginning(position) {
      return position === null && this.last > 0 ? { last: this.last } : super.beginning(position);
    }

    /**
     * Sends a command.
     * @param {'renew'|'given'|'page'|'own'} name @param {object} command
     * @param {(reply: any) => void} answered
     */
    ask(name, command, answered) {
      const id = `${name}:${++this.number}`;
      this.asked.set(id, answered);
      this.socket?.send(JSON.stringify({ ...command, id }));
    }

    get isUp() {
      return this.socket?.readyState === 1 && this.socket === this.begun;
    }

    /** Shows another token. */
    renew() {
      const { holder } = this;
      const { user, named, issuedAgoS } = holder;
      if (!this.isUp || user === undefined || named.length > 1) return;
      const next = holder.draw();
      const before = named[0];
      holder.named = [before, next];
      this.writeAll();
      const jwt = audienceToken(user, next, issuedAgoS);
      this.ask('renew', { type: 'auth', token: jwt }, ({ type }) => {
        holder.named = [type === 'authenticated' ? next : before];
        this.writeAll();
      });
    }

    writeAll() {
      for (const room of this.places.keys()) this.holder.write(room);
    }

    /**
     * The back end gives its user audiences in a room.
     * @param {string} room @param {readonly string[]} names
     * @param {() => Promise<boolean>} give by the HTTP API @returns {Promise<void>}
     */
    async receive(room, names, give) {
      const { holder, socket } = this;
      if (!this.isUp || this.isGiven || !this.places.get(room)?.isJoined) return;
      const floating = { room, names, untilMs: performance.now() + FLOATING_MS };
      const before = holder.given.get(room);
      this.isGiven = true;
      holder.floating.push(floating);
      holder.write(room);
      const isDone = await give();
      this.isGiven = false;
      const isSame = () => this.socket === socket && holder.given.get(room) === before;
      if (!isDone || !isSame() || !this.isUp) return;
      // Bytes that were on their way come before the reply.
      this.ask('given', { type: 'ping' }, () => {
        if (!isSame()) return;
        holder.floating = holder.floating.filter((one) => one !== floating);
        holder.given.set(room, [names]);
        holder.write(room);
      });
    }

    /** Leaves a room on the same connection, and joins it again. @param {string} room @param {number} ms */
    stepOut(room, ms) {
      if (!this.isUp || !this.places.get(room)?.isJoined || this.leaving.has(room)) return;
      this.leaving.add(room);
      this.socket?.send(JSON.stringify({ type: 'leave', room }));
      this.retry(room, ms / 1000);
    }

    /**
     * A page of the history, perhaps of a room that it has left.
     * @param {string} room @param {object} query @param {Recorder} recorder
     */
    read(room, query, recorder) {
      if (!this.isUp) return;
      const { id: client } = this;
      recorder.write({ type: 'audience', what: 'reads', client, room });
      this.ask('page', { type: 'history', room, ...query }, ({ messages, epoch }) => {
        if (messages === undefined || epoch === undefined) return;
        const rows = messages.map((/** @type {any} */ { offset, payload }) => [
          offset,
          valueIn(payload),
        ]);
        recorder.write({ type: 'audience', what: 'page', client, room, epoch, rows });
      });
    }

    /** Publishes without an echo. @param {string} room @param {string[]|undefined} audience @param {Recorder} recorder */
    say(room, audience, recorder) {
      if (!this.isUp || this.holder.user === undefined) return;
      const value = `s${1000 + this.id}:${++this.number}:${room}`;
      const put = { what: /** @type {const} */ ('put'), value, audience: audience ?? [] };
      recorder.write({ type: 'audience', ...put, client: this.id });
      const command = { type: 'message', room, payload: value, audience, echo: false };
      this.ask('own', command, ({ type, epoch, offset }) => {
        if (type === 'ack') recorder.write({ type: 'audience', what: 'ok', value, epoch, offset });
      });
    }

    /** @param {string} text what it got */
    #sniff(text) {
      if (text.startsWith('{"type":"message"') || text.startsWith('{"type":"history"')) return;
      const { id: client, holder } = this;
      for (const [value] of text.matchAll(VALUES)) {
        const room = value.slice(value.lastIndexOf(':') + 1);
        holder.recorder.write({ type: 'audience', what: 'saw', client, room, value });
      }
    }
  };
}

/**
 * @param {import('./client.js').Handlers} former @returns {import('./client.js').Handlers}
 */
const HELD_HANDLERS = (former) => ({
  authenticated: (client, reply) => answer(client, reply),
  pong: (client, reply) => answer(client, reply),
  history: (client, reply) => answer(client, reply),
  ack: (client, reply) => answer(client, reply),

  joined(client, message) {
    const { id, room } = message;
    const { entered } = /** @type {any} */ (client);
    if (id !== undefined && entered.delete(room)) {
      if (!room.startsWith(STATE_PREFIX)) return;
      // The state follows once more.
      leave(client, room);
    }
    // A request of the back end that was long under way.
    if (id === undefined && !client.places.get(room)?.isJoined) entered.add(room);
    former.joined?.(client, message);
  },

  left(client, { room }) {
    const place = client.places.get(room);
    const { leaving, entered } = /** @type {any} */ (client);
    leaving.delete(room);
    entered.delete(room);
    if (place?.isJoined) leave(client, room);
  },

  error(client, message) {
    const { error, id } = message;
    if (COMMAND.test(`${id}`)) return answer(client, message);
    if (REFUSALS.has(error) && /** @type {any} */ (client).mayBeRefused) return;
    // The back end was faster.
    if (error === 'ALREADY_JOINED' && /** @type {any} */ (client).entered.delete(id)) return;
    former.error?.(client, message);
  },
});

/** @param {RecoveringClient} client @param {string} room that it is in */
function leave(client, room) {
  /** @type {import('./client.js').Place} */ (client.places.get(room)).isJoined = false;
  client.recorder.write({ type: 'leave', client: client.id, room });
  /** @type {any} */ (client).holder.leave(room);
}

/** @param {RecoveringClient} client @param {any} reply */
function answer(client, reply) {
  const { asked } = /** @type {any} */ (client);
  asked.get(reply.id)?.(reply);
  asked.delete(reply.id);
}

/** A member of rooms with history and of plain rooms. */
export class AudienceClient extends holding(RecoveringClient) {
  /** Its token may be revoked. */
  mayBeRefused = false;

  /** @param {any} parts */
  constructor(parts) {
    super(parts);
    this.handlers = { ...HANDLERS, position: passed };
  }
}

/** A member of rooms with state. */
export class AudienceStateClient extends holding(StateClient) {
  /** Its token may be revoked. */
  mayBeRefused = false;

  /** @param {any} parts */
  constructor(parts) {
    super(parts);
    this.handlers = { ...STATE_HANDLERS, position() {} };
  }
}

/** @param {RecoveringClient} client @param {import('./client.js').Message} message */
function passed({ id, places, recorder }, { room, epoch, offset }) {
  const place = places.get(room);
  if (place === undefined) return;
  const { position } = place;
  if (position !== null && position.epoch === epoch && offset <= position.offset) return;
  recorder.write(/** @type {any} */ ({ type: 'passed', client: id, room, epoch, offset }));
  place.position = { epoch, offset };
}
