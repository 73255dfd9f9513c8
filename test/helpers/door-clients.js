// door-clients.js: the clients of every door with one face, so that a test asks all of them the same.
//
// An answer is 'ok', or what the door says in its own words (`words`). What the clients of a door
// cannot ask is declared in `without`, with the reason.

import { apiOf } from './api.js';
import { CentrifugoClient, connectionToken } from './centrifugo.js';
import { centrifugoApiOf } from './centrifugo-api.js';
import { ProtobufClient } from './centrifugo-protobuf.js';
import { StreamClient } from './centrifugo-stream.js';
import { Client } from './clients.js';
import { EventClient } from './event-stream.js';
import { APP, PusherClient, apiOf as pusherApiOf } from './pusher.js';
import { token } from './tokens.js';

/** @typedef {{after: (fn: () => unknown) => void}} Owner */
/** @typedef {import('../../src/protocol/codes.js').ErrorCode} ErrorCode */
/** @typedef {import('../../src/protocol/position.js').Position} Position */
/** @typedef {Record<string, any>} Message */

/**
 * Who the client is.
 * @typedef {object} Who
 * @property {string} [user] '' or absent: it has none, and no token
 * @property {Record<string, string[]>} [rooms] rights of its token; all if absent
 * @property {unknown} [info] for presence
 */

/**
 * @typedef {object} DoorClient
 * @property {(rooms: string[], since?: Map<string, Position>|null) => Promise<string[]>} join answers
 *   by room. With positions the client continues from them
 * @property {(room: string, payload: unknown, options?: Message) => Promise<string>} publish
 * @property {(room: string) => Promise<void>} leave
 * @property {(room: string) => Promise<string>} history @property {(room: string) => Promise<string>} presence
 * @property {(room: string) => unknown[]} received payloads of the room's messages so far
 * @property {(room: string) => string[]} moves `joined` and `left`, which the client has not asked for
 * @property {() => Promise<void>} sync all that the server has sent before has arrived
 * @property {() => number|null} closeCode null: it is open
 * @property {() => void} end closes its socket
 */

/**
 * @typedef {'join'|'publish'|'leave'|'history'|'presence'|'recover'|'state'|'rejoin'|'rights'|'echo'|'idempotency'|'user'|'moves'}
 *   Ability
 */

/**
 * @typedef {object} DoorRow
 * @property {string} name
 * @property {Partial<Record<ErrorCode, string>>} words what the door says; absent: the code itself
 * @property {Partial<Record<ErrorCode, string>>} [publishWords] what it says of a publish, if that differs
 * @property {Partial<Record<Ability, string>>} without what its clients cannot ask, and why
 * @property {boolean} [isWhole] all rooms are asked for at once, and refused together
 * @property {boolean} [postpones] a join for which there is no room now is answered later
 * @property {number} [joinCosts] messages that a join counts as
 * @property {(t: Owner, port: number, who?: Who) => Promise<DoorClient>} open
 */

/** The secret of a key that may do everything. */
export const API_SECRET = 'f'.repeat(64);
const ALL = { join: ['*'], publish: ['*'], presence: ['*'], history: ['*'] };

/** @param {Who} who @param {Record<string, unknown>} [claims] */
function tokenOf({ user = '', rooms = ALL, info }, claims) {
  return user === '' ? null : token({ sub: user, rooms, info, ...claims });
}

/** @param {Message} message of the native protocol */
const nativeAnswer = ({ type, error, reason }) =>
  type === 'error'
    ? error
    : type === 'left' && reason === 'permission'
      ? 'PERMISSION_DENIED'
      : 'ok';

/**
 * @param {Client} client @param {Message} command
 * @returns {Promise<string>}
 */
async function answerTo(client, command) {
  const id = `${++lastId}`;
  client.send({ ...command, id });
  const find = () => client.messages.find((one) => one.id === id);
  await client.until(() => client.close !== null || find() !== undefined, 10_000, id);
  const answer = find();
  return answer === undefined ? `closed ${client.close?.code}` : nativeAnswer(answer);
}

let lastId = 0;
const MOVES = new Set(['joined', 'left']);

/** @param {Client} client @returns {DoorClient} */
function native(client) {
  const ask = (/** @type {Message} */ command) => answerTo(client, command);
  return {
    async join(rooms, since) {
      const answers = [];
      for (const room of rooms)
        answers.push(await ask({ type: 'join', room, since: since?.get(room) }));
      return answers;
    },
    publish: (room, payload, options) => ask({ type: 'message', room, payload, ...options }),
    leave: async (room) => void (await ask({ type: 'leave', room })),
    history: (room) => ask({ type: 'history', room }),
    presence: (room) => ask({ type: 'presence', room }),
    received: (room) =>
      client
        .all(({ type, room: of }) => type === 'message' && of === room)
        .map(({ payload }) => payload),
    moves: (room) =>
      client
        .all(({ type, room: of, id }) => MOVES.has(type) && of === room && id === undefined)
        .map(({ type }) => type),
    sync: async () => void (client.close === null && (await ask({ type: 'ping' }))),
    closeCode: () => client.close?.code ?? null,
    end: () => client.socket.terminate(),
  };
}

/**
 * Its token names the rooms that it joins.
 * @param {Owner} t @param {number} port @param {Who} who @param {boolean} isByUrl
 * @returns {DoorClient}
 */
function autojoin(t, port, who, isByUrl) {
  /** @type {Client|null} */
  let client = null;
  const joined = () => native(/** @type {Client} */ (client));
  return {
    async join(rooms, since = null) {
      const text = tokenOf(who, { autojoin: rooms });
      const own = (client = new Client(
        `ws://127.0.0.1:${port}/ws${isByUrl ? `?token=${text}` : ''}`,
      ));
      t.after(() => own.socket.terminate());
      await own.opened;
      if (!isByUrl)
        own.send({ type: 'hello', token: text, since: Object.fromEntries(since ?? []) });
      const isAnswer = (/** @type {Message} */ { type, room }) =>
        type === 'error' || ((type === 'joined' || type === 'left') && rooms.includes(room));
      await own.until(
        () => own.close !== null || own.all(isAnswer).length >= rooms.length,
        10_000,
        'the answers to all rooms',
      );
      return own.all(isAnswer).map(nativeAnswer);
    },
    ...NO_COMMAND,
    leave: (room) => joined().leave(room),
    received: (room) => joined().received(room),
    moves: (room) => joined().moves(room),
    sync: () => joined().sync(),
    closeCode: () => joined().closeCode(),
    end: () => joined().end(),
  };
}

/** What clients whose row declares it cannot ask. */
const NO_COMMAND = Object.freeze({
  publish: async () => 'none',
  history: async () => 'none',
  presence: async () => 'none',
});

/** @param {Owner} t @param {number} port @param {Who} who @param {boolean} isByToken @returns {DoorClient} */
function eventStream(t, port, who, isByToken) {
  /** @type {EventClient|null} */
  let client = null;
  return {
    async join(rooms, since) {
      const text = tokenOf(who, isByToken ? { autojoin: rooms } : {});
      const query = new URLSearchParams({ presence: 'true' });
      if (!isByToken) for (const room of rooms) query.append('room', room);
      if (text !== null) query.set('token', text);
      if (since)
        query.set('lastEventId', rooms.map((room) => positionText(since.get(room))).join(','));
      const own = (client = new EventClient(port, `?${query}`, {}));
      t.after(() => own.close());
      await own.until(() => own.status !== 0 || own.isClosed, 'an answer');
      if (own.status !== 200) return rooms.map(() => String(own.headers['fanfare-error']));
      const answers = () => [...own.all('joined'), ...own.all('left'), ...own.all('error')];
      await own.until(() => own.isClosed || answers().length >= rooms.length, 'the answers');
      return answers().map(nativeAnswer);
    },
    ...NO_COMMAND,
    leave: async () => {},
    received: (room) =>
      (client?.all('message') ?? [])
        .filter((one) => one.room === room)
        .map(({ payload }) => payload),
    moves: (room) =>
      (client?.events ?? [])
        .filter(({ type, data }) => MOVES.has(type) && JSON.parse(data).room === room)
        .map(({ type }) => type),
    async sync() {},
    closeCode: () => client?.all('close')[0]?.code ?? null,
    end: () => client?.close(),
  };
}

/** @param {Position|undefined} position */
const positionText = (position) => (position ? `${position.epoch}:${position.offset}` : '-');

/** @param {PusherClient} client @param {string} user of presence channels @returns {DoorClient} */
function pusher(client, user) {
  const sync = async () => void (client.close === null && (await client.pong()));
  return {
    async join(rooms) {
      const answers = [];
      for (const channel of rooms) {
        const from = client.messages.length;
        client.sendSubscribe(
          channel,
          channel.startsWith('presence-') ? { user_id: user } : undefined,
        );
        const isAnswer = (/** @type {Message} */ one) =>
          one.channel === channel && /subscription_(succeeded|error)|^pusher:error/.test(one.event);
        const find = () => client.messages.slice(from).find(isAnswer);
        await client.until(() => client.close !== null || find() !== undefined, 10_000, channel);
        const answer = find();
        if (answer === undefined) answers.push(`closed ${client.close?.code}`);
        else answers.push(pusherAnswer(answer));
      }
      return answers;
    },
    // What is published has no answer, unless it is refused.
    async publish(channel, data) {
      const from = client.messages.length;
      client.send({ event: 'client-e', channel, data });
      await sync();
      return pusherAnswer(
        client.messages.slice(from).find(({ event }) => event === 'pusher:error'),
      );
    },
    async leave(channel) {
      client.unsubscribe(channel);
      await sync();
    },
    history: NO_COMMAND.history,
    presence: NO_COMMAND.presence,
    received: (room) =>
      client
        .of(room)
        .filter(({ event }) => !event.startsWith('pusher'))
        .map(({ data }) => data),
    moves: (room) =>
      client.of(room).flatMap(({ event }) => (/subscription_succ/.test(event) ? ['joined'] : [])),
    sync,
    closeCode: () => client.close?.code ?? null,
    end: () => client.socket.terminate(),
  };
}

/** @param {Message|undefined} frame */
function pusherAnswer(frame) {
  if (frame === undefined || frame.event === 'pusher_internal:subscription_succeeded') return 'ok';
  const { type, status, code, message } = frame.data;
  return type === undefined ? `${code ?? message.replace(/ .*$/, '')}` : `${type} ${status}`;
}

/** @param {Message} reply */
const centrifugoAnswer = ({ error }) => (error === undefined ? 'ok' : String(error.code));

/** What a client of Centrifugo's protocol asks, on any wire. @param {CentrifugoClient|StreamClient} client @returns {DoorClient} */
function centrifugo(client) {
  const isClosed = () => (client instanceof StreamClient ? client.isEnded : client.close !== null);
  const replies = () => (client instanceof StreamClient ? client.replies : client.messages);
  /** By the id of their subscribe. @type {Map<number, string>} */
  const channels = new Map();
  const ask = async (/** @type {string} */ method, /** @type {Message} */ request) =>
    centrifugoAnswer(await client.call(method, request));
  return {
    async join(rooms, since) {
      const answers = [];
      for (const channel of rooms) {
        const from = since?.get(channel);
        channels.set(client.lastId + 1, channel);
        answers.push(await ask('subscribe', { channel, ...(from && { recover: true, ...from }) }));
      }
      return answers;
    },
    publish: (channel, data) => ask('publish', { channel, data }),
    history: (channel) => ask('history', { channel, limit: 10 }),
    presence: (channel) => ask('presence', { channel }),
    leave: async (channel) => void (await client.call('unsubscribe', { channel })),
    received: (channel) => publicationsIn(replies(), channel, channels),
    moves: (channel) => movesIn(replies(), channel),
    sync: async () => void (isClosed() || (await client.call('ping', {}))),
    closeCode() {
      if (client instanceof StreamClient)
        return client.replies.at(-1)?.push?.disconnect?.code ?? null;
      return client.close?.code ?? null;
    },
    end() {
      if (client instanceof StreamClient) client.response.destroy();
      else client.socket.terminate();
    },
  };
}

/**
 * Pushed or recovered.
 * @param {Message[]} replies @param {string} channel
 * @param {ReadonlyMap<number, string>} channels by the id of their subscribe
 */
function publicationsIn(replies, channel, channels) {
  const data = (/** @type {Message} */ pub) =>
    typeof pub.data === 'string' ? textOf(pub.data) : pub.data;
  return replies.flatMap(({ id, push, subscribe, connect }) => [
    ...(push?.channel === channel && push.pub ? [data(push.pub)] : []),
    ...((channels.get(id) === channel && subscribe?.publications) || []).map(data),
    ...(connect?.subs?.[channel]?.publications ?? []).map(data),
  ]);
}

/** @param {Message[]} replies @param {string} channel */
function movesIn(replies, channel) {
  return replies.flatMap(({ push }) => {
    if (push?.channel !== channel) return [];
    return push.subscribe ? ['joined'] : push.unsubscribe ? ['left'] : [];
  });
}

/** Protobuf has JSON as bytes. @param {string} data */
function textOf(data) {
  try {
    return JSON.parse(Buffer.from(data, 'base64').toString());
  } catch {
    return data;
  }
}

/** @param {Owner} t @param {number} port @param {Who} who @param {Record<string, unknown>} [claims] */
async function connectCentrifugo(t, port, who, claims) {
  const client = new CentrifugoClient(`ws://127.0.0.1:${port}/connection/websocket`);
  t.after(() => client.socket.terminate());
  await client.opened;
  return { client, request: centrifugoRequest(who, claims) };
}

/** @param {Who} who @param {Record<string, unknown>} [claims] */
function centrifugoRequest({ user = '', rooms = ALL, info }, claims) {
  return user === '' ? {} : { token: connectionToken({ sub: user, rooms, info, ...claims }) };
}

/**
 * Subscriptions by the server: those of the token of `connect`, or of a later one.
 * @param {Owner} t @param {number} port @param {Who} who @param {boolean} isRefreshed
 * @returns {DoorClient}
 */
function byToken(t, port, who, isRefreshed) {
  /** @type {CentrifugoClient|null} */
  let client = null;
  return {
    async join(rooms, since) {
      const channels = rooms;
      const first = await connectCentrifugo(t, port, who, isRefreshed ? {} : { channels });
      const own = (client = first.client);
      const subs = Object.fromEntries(
        [...(since ?? [])].map(([channel, from]) => [channel, { recover: true, ...from }]),
      );
      const id = own.command('connect', { ...first.request, subs });
      const isOver = () => own.close !== null || own.messages.some((one) => one.id === id);
      await own.until(isOver, 10_000, 'connect');
      const reply = own.messages.find((one) => one.id === id);
      if (reply === undefined) return rooms.map(() => `closed ${own.close?.code}`);
      if (reply.error) return rooms.map(() => centrifugoAnswer(reply));
      if (!isRefreshed) return rooms.map((one) => (reply.connect.subs?.[one] ? 'ok' : '103'));
      const pushed = () =>
        rooms.map((one) => own.all(({ push }) => push?.subscribe && push.channel === one).length);
      const refresh = own.command('refresh', centrifugoRequest(who, { channels }));
      const isAnswered = () => own.close !== null || own.messages.some((one) => one.id === refresh);
      await own.until(isAnswered, 10_000, 'refresh');
      const ping = own.command('ping');
      await own.until(
        () => own.close !== null || own.messages.some((one) => one.id === ping),
        10_000,
        'the answers',
      );
      if (own.close !== null) return rooms.map(() => `closed ${own.close?.code}`);
      return pushed().map((count) => (count > 0 ? 'ok' : '103'));
    },
    ...NO_COMMAND,
    leave: async (channel) => void (await client?.call('unsubscribe', { channel })),
    received: (channel) => publicationsIn(client?.messages ?? [], channel, new Map()),
    moves: (channel) => movesIn(client?.messages ?? [], channel),
    sync: async () => void (client?.close === null && (await client.call('ping'))),
    closeCode: () => client?.close?.code ?? null,
    end: () => client?.socket.terminate(),
  };
}

const NO_COMMANDS = 'a stream of events takes no commands';
const OTHER_ROW = 'its clients ask as those of the row above, who differ in their first join only';
const NO_STATE = 'its messages have no keys';
const NO_KEYS = 'its messages have no idempotency keys';
const CENTRIFUGO_CANNOT = Object.freeze({ state: NO_STATE, idempotency: NO_KEYS });

/** @type {Partial<Record<ErrorCode, string>>} */
const CENTRIFUGO_WORDS = Object.freeze({
  ROOM_LIMIT: '106',
  UNAVAILABLE: '100',
  OUTCOME_UNKNOWN: '100',
  INVALID_MESSAGE_FORMAT: '107',
  PERMISSION_DENIED: '103',
  ALREADY_JOINED: '105',
  MESSAGE_TOO_LARGE: '107',
  INVALID_ROOM: '107', // of a name that is too long
  RATE_LIMIT_EXCEEDED: '111',
});

/** @type {Partial<Record<ErrorCode, string>>} */
const PUSHER_WORDS = Object.freeze({
  ROOM_LIMIT: 'LimitReached 4100',
  UNAVAILABLE: 'Unavailable 503',
  PERMISSION_DENIED: 'AuthError 401',
  ALREADY_JOINED: 'Existing',
  INVALID_ROOM: 'InvalidChannel 4009',
  RATE_LIMIT_EXCEEDED: '4301',
  MESSAGE_TOO_LARGE: '4301',
});

const READS = {
  publish: NO_COMMANDS,
  leave: NO_COMMANDS,
  history: NO_COMMANDS,
  presence: NO_COMMANDS,
  rejoin: 'its rooms are asked for once',
};
const FIRST_JOIN = {
  moves: OTHER_ROW,
  publish: OTHER_ROW,
  history: OTHER_ROW,
  presence: OTHER_ROW,
  rejoin: 'its rooms are asked for once',
};

/** @type {readonly DoorRow[]} */
export const DOORS = Object.freeze([
  {
    name: 'native',
    words: {},
    without: {},
    joinCosts: 1,
    async open(t, port, who = {}) {
      const text = tokenOf(who);
      const client = new Client(
        `ws://127.0.0.1:${port}/ws${text === null ? '' : `?token=${text}`}`,
      );
      t.after(() => client.socket.terminate());
      await client.opened;
      return native(client);
    },
  },
  {
    name: 'native, by the token of its URL',
    words: {},
    without: { ...FIRST_JOIN, recover: 'a URL has no positions' },
    open: async (t, port, who = {}) => autojoin(t, port, { user: 'ann', ...who }, true),
  },
  {
    name: 'native, by the token of hello',
    words: {},
    without: FIRST_JOIN,
    joinCosts: 0,
    open: async (t, port, who = {}) => autojoin(t, port, { user: 'ann', ...who }, false),
  },
  {
    name: 'server-sent events',
    words: {},
    without: READS,
    isWhole: true,
    open: async (t, port, who = {}) => eventStream(t, port, who, false),
  },
  {
    name: 'server-sent events, by token',
    words: {},
    without: { ...READS, moves: OTHER_ROW },
    isWhole: true,
    open: async (t, port, who = {}) => eventStream(t, port, { user: 'ann', ...who }, true),
  },
  {
    name: 'Pusher',
    words: PUSHER_WORDS,
    // Errors of events have a code if Pusher has one, else a text; these are their first words.
    publishWords: {
      ...{ PERMISSION_DENIED: 'Client', UNAVAILABLE: 'Not', OUTCOME_UNKNOWN: 'The' },
      ...{ MESSAGE_TOO_LARGE: '4301', RATE_LIMIT_EXCEEDED: '4301', INVALID_ROOM: 'Client' },
    },
    without: {
      recover: 'its clients know no positions',
      history: 'its clients cannot read it',
      presence: 'its clients get the list with the subscription',
      state: NO_STATE,
      rights: 'signatures of the application permit channels',
      echo: 'senders do not get their own events',
      idempotency: NO_KEYS,
    },
    postpones: true,
    async open(t, port, { user = '' } = {}) {
      const options = user === '' ? {} : { headers: { 'x-user': user } };
      const url = `ws://127.0.0.1:${port}/app/${APP.key}?protocol=7`;
      const client = new PusherClient(url, APP, options);
      t.after(() => client.socket.terminate());
      await client.established();
      return pusher(client, user || 'guest');
    },
  },
  {
    name: 'Centrifugo, JSON',
    words: CENTRIFUGO_WORDS,
    without: CENTRIFUGO_CANNOT,
    async open(t, port, who = {}) {
      const { client, request } = await connectCentrifugo(t, port, who);
      await client.call('connect', request);
      return centrifugo(client);
    },
  },
  {
    name: 'Centrifugo, protobuf',
    words: CENTRIFUGO_WORDS,
    without: CENTRIFUGO_CANNOT,
    async open(t, port, who = {}) {
      const client = new ProtobufClient(`ws://127.0.0.1:${port}/connection/websocket`);
      t.after(() => client.socket.terminate());
      await client.opened;
      await client.call('connect', centrifugoRequest(who));
      return centrifugo(client);
    },
  },
  {
    name: 'Centrifugo, stream of lines',
    words: CENTRIFUGO_WORDS,
    without: CENTRIFUGO_CANNOT,
    open: async (t, port, who = {}) =>
      centrifugo(await StreamClient.open(t, port, 'http_stream', centrifugoRequest(who))),
  },
  {
    name: 'Centrifugo, server-sent events',
    words: CENTRIFUGO_WORDS,
    without: CENTRIFUGO_CANNOT,
    open: async (t, port, who = {}) =>
      centrifugo(await StreamClient.open(t, port, 'sse', centrifugoRequest(who))),
  },
  {
    name: 'Centrifugo, by the token of connect',
    words: { ...CENTRIFUGO_WORDS, ROOM_LIMIT: 'closed 3505' },
    without: { ...FIRST_JOIN, state: NO_STATE },
    isWhole: true,
    open: async (t, port, who = {}) => byToken(t, port, { user: 'ann', ...who }, false),
  },
  {
    name: 'Centrifugo, by a refreshed token',
    words: { ...CENTRIFUGO_WORDS, ROOM_LIMIT: 'closed 3505', UNAVAILABLE: 'closed 3010' },
    without: { ...FIRST_JOIN, state: NO_STATE, recover: 'a refresh has no positions' },
    isWhole: true,
    open: async (t, port, who = {}) => byToken(t, port, { user: 'ann', ...who }, true),
  },
]);

const NO_MEMBER = 'an application is in no room';
const APPLICATION = Object.freeze({
  join: NO_MEMBER,
  leave: NO_MEMBER,
  rejoin: NO_MEMBER,
  recover: NO_MEMBER,
  echo: NO_MEMBER,
  rights: 'its key permits rooms',
  moves: NO_MEMBER,
  user: 'an application is trusted: no hook is asked, no rate of clients applies, no webhook comes back',
});

/** @param {(room: string, payload: unknown, options?: Message) => Promise<string>} publish @returns {DoorClient} */
const application = (publish) => ({
  ...NO_COMMAND,
  publish,
  join: async () => ['none'],
  leave: async () => {},
  received: () => [],
  moves: () => [],
  sync: async () => {},
  closeCode: () => null,
  end() {},
});

/** @param {string} [key] @returns {Record<string, string>} */
const keyHeader = (key) => (key === undefined ? {} : { 'Idempotency-Key': key });

/** The HTTP APIs, which publish for applications. @type {readonly DoorRow[]} */
export const APIS = Object.freeze([
  {
    name: 'HTTP API',
    words: { MESSAGE_TOO_LARGE: 'PAYLOAD_TOO_LARGE', INVALID_ROOM: 'INVALID_FIELD' },
    without: APPLICATION,
    async open(_t, port) {
      const api = apiOf({ port }, API_SECRET);
      return application(async (room, payload, { idempotencyKey, ...options } = {}) => {
        const headers = keyHeader(idempotencyKey);
        const { body } = await api('/publish', { body: { room, payload, ...options }, headers });
        return body.error ?? 'ok';
      });
    },
  },
  {
    name: "Pusher's HTTP API",
    words: {
      MESSAGE_TOO_LARGE: '413',
      UNAVAILABLE: '503',
      OUTCOME_UNKNOWN: '503',
      IDEMPOTENCY_CONFLICT: '400',
      INVALID_ROOM: '400',
    },
    without: { ...APPLICATION, state: NO_STATE },
    async open(_t, port) {
      const api = pusherApiOf(port);
      return application(async (channel, data, { idempotencyKey } = {}) => {
        const headers = keyHeader(idempotencyKey);
        const body = { name: 'e', channel, data: JSON.stringify(data) };
        const { status } = await api('/events', body, {}, headers);
        return status === 200 ? 'ok' : String(status);
      });
    },
  },
  {
    name: "Centrifugo's server API",
    words: { ...CENTRIFUGO_WORDS, IDEMPOTENCY_CONFLICT: '113' },
    without: { ...APPLICATION, state: NO_STATE },
    async open(_t, port) {
      const api = centrifugoApiOf(port);
      return application(async (channel, data, { idempotencyKey } = {}) =>
        centrifugoAnswer(await api('publish', { channel, data, idempotency_key: idempotencyKey })),
      );
    },
  },
]);

/** @param {DoorRow} door @param {ErrorCode} code @returns {string} */
export const wordsOf = ({ words }, code) => words[code] ?? code;

/** Of a publish. @type {typeof wordsOf} */
export const publishWordsOf = ({ words, publishWords = words }, code) => publishWords[code] ?? code;
