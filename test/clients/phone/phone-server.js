// phone-server.js: a server in the same engine, for journey.js in Hermes, which has no network. It
// speaks as much of the protocol as the journey needs.

const LIMIT = 1000;

/** @returns {any} the native module of WebSockets, and what happens beside the app */
export function phoneServer() {
  /** @type {Map<string, Record<string, any>[]>} */
  const streams = new Map([
    ['chat.phone', []],
    ['price.phone', []],
  ]);
  const streamOf = (/** @type {string} */ room) => streams.get(room) ?? [];
  /** @type {{events: any, rooms: Set<string>}|undefined} */
  let member;
  /** The headers of each connection. @type {Record<string, string>[]} */
  const dialled = [];
  const soon = (/** @type {() => void} */ act) => void setTimeout(act, 1);

  const append = (
    /** @type {string} */ room,
    /** @type {any} */ payload,
    /** @type {any} */ key,
  ) => {
    const stream = streamOf(room);
    const offset = stream.length + 1;
    const message = { type: 'message', room, payload, key, from: 'bob', timestamp: 1 };
    stream.push({ ...message, epoch: 'e', offset });
    const joined = member;
    if (joined?.rooms.has(room))
      soon(() => joined.events.received(JSON.stringify(stream[stream.length - 1])));
    return { epoch: 'e', offset };
  };

  /** @param {any} command @returns {Record<string, any>[]} answers */
  const answers = ({ id, type, room, since, last = 0, payload }) => {
    const stream = streamOf(room);
    const { length: offset } = stream;
    const limits = { maxMessageBytes: LIMIT };
    if (type === 'hello') return [{ type: 'welcome', id, heartbeatMs: 30_000, limits }];
    if (type === 'message') return [{ type: 'ack', id, ...append(room, payload, undefined) }];
    if (type === 'ping') return [{ type: 'pong' }];
    if (type === 'presence') return [{ type, id, room, members: [{ user: 'ann' }], count: 1 }];
    if (type !== 'join') return [{ type: 'left', id, room }];
    member?.rooms.add(room);
    const state = room === 'price.phone' || undefined;
    const first = since ? since.offset + 1 : state ? 1 : Math.max(1, offset - last + 1);
    const about = { epoch: 'e', offset, first, recovered: !!since, state };
    const end = state ? [{ type: 'synced', room, epoch: 'e', offset }] : [];
    return [{ type: 'joined', id, room, ...about }, ...stream.slice(first - 1), ...end];
  };

  return {
    dialled,
    connect(
      /** @type {string} */ _url,
      /** @type {string[]} */ _protocols,
      /** @type {any} */ headers,
      /** @type {any} */ events,
    ) {
      dialled.push(headers);
      const own = { events, rooms: new Set() };
      member = own;
      soon(events.opened);
      return {
        send: (/** @type {string} */ text) => {
          member = own;
          for (const answer of answers(JSON.parse(text)))
            soon(() => events.received(JSON.stringify(answer)));
        },
        close: (/** @type {number} */ code) => soon(() => events.closed(code, '')),
      };
    },
    cut: (/** @type {string} */ reason) => {
      const { events } = /** @type {any} */ (member);
      member = undefined;
      events.failed(reason);
    },
    publish: async (/** @type {unknown} */ payload, /** @type {string|undefined} */ key) =>
      void append(key ? 'price.phone' : 'chat.phone', payload, key),
  };
}
