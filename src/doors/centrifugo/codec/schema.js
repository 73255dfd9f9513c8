// schema.js: the names of the fields of Centrifugo's messages, and their numbers and types in
// Protocol Buffers (centrifugal/protocol, definitions/client.proto). Fields of features that this
// server does not have are left out: readers skip them.

/** `given`: true if the field is there. @typedef {'u32'|'u64'|'i32'|'i64'|'bool'|'string'|'bytes'|'given'} Scalar */

/**
 * @typedef {object} Field
 * @property {number} number @property {string} name @property {Scalar|Message} type of a value
 * @property {'one'|'list'|'map'} form `map`: the keys are strings
 */

/**
 * @typedef {object} Message
 * @property {Field[]} fields in the order of their numbers
 * @property {(Field|undefined)[]} byNumber
 */

/**
 * `[number, type]` by name. A type is a scalar's, or the name of a message; `*` in front: a list,
 * `@` in front: a map.
 * @type {Readonly<Record<string, Readonly<Record<string, readonly [number, string]>>>>}
 */
// biome-ignore format: several fields a line
const TABLE = {
  Command: { id: [1, 'u32'], connect: [4, 'ConnectRequest'], subscribe: [5, 'SubscribeRequest'],
    unsubscribe: [6, 'ChannelRequest'], publish: [7, 'PublishRequest'],
    presence: [8, 'ChannelRequest'], presence_stats: [9, 'ChannelRequest'],
    history: [10, 'HistoryRequest'], ping: [11, 'Empty'], send: [12, 'SendRequest'],
    rpc: [13, 'RpcRequest'], refresh: [14, 'RefreshRequest'],
    sub_refresh: [15, 'SubRefreshRequest'] },
  ConnectRequest: { token: [1, 'string'], data: [2, 'bytes'], subs: [3, '@SubscribeRequest'],
    name: [4, 'string'], version: [5, 'string'], headers: [6, '@string'], flag: [7, 'i64'] },
  SubscribeRequest: {
    channel: [1, 'string'],
    token: [2, 'string'],
    recover: [3, 'bool'],
    epoch: [6, 'string'],
    offset: [7, 'u64'],
    data: [8, 'bytes'],
    positioned: [9, 'bool'],
    recoverable: [10, 'bool'],
    join_leave: [11, 'bool'],
    // A tree of conditions, all of which are refused.
    tf: [13, 'given'],
    flag: [14, 'i64'],
    type: [15, 'i32'],
  },
  ChannelRequest: { channel: [1, 'string'] },
  PublishRequest: { channel: [1, 'string'], data: [2, 'bytes'], type: [3, 'i32'],
    key: [4, 'string'], removed: [5, 'bool'] },
  HistoryRequest: { channel: [1, 'string'], limit: [7, 'i32'], since: [8, 'StreamPosition'],
    reverse: [9, 'bool'] },
  StreamPosition: { offset: [1, 'u64'], epoch: [2, 'string'] },
  SendRequest: { data: [1, 'bytes'] },
  RpcRequest: { data: [1, 'bytes'], method: [2, 'string'] },
  RefreshRequest: { token: [1, 'string'] },
  SubRefreshRequest: { channel: [1, 'string'], token: [2, 'string'], type: [3, 'i32'] },
  EmulationRequest: { node: [1, 'string'], session: [2, 'string'], data: [3, 'bytes'] },

  Reply: { id: [1, 'u32'], error: [2, 'Error'], push: [4, 'Push'], connect: [5, 'ConnectResult'],
    subscribe: [6, 'SubscribeResult'], unsubscribe: [7, 'Empty'], publish: [8, 'Empty'],
    presence: [9, 'PresenceResult'], presence_stats: [10, 'PresenceStatsResult'],
    history: [11, 'HistoryResult'], ping: [12, 'Empty'], rpc: [13, 'RpcResult'],
    refresh: [14, 'RefreshResult'], sub_refresh: [15, 'SubRefreshResult'] },
  Error: { code: [1, 'u32'], message: [2, 'string'], temporary: [3, 'bool'] },
  Push: { channel: [2, 'string'], pub: [4, 'Publication'], join: [5, 'Member'],
    leave: [6, 'Member'], unsubscribe: [7, 'Unsubscribe'], message: [8, 'SendRequest'],
    subscribe: [9, 'Subscribe'], disconnect: [11, 'Disconnect'], refresh: [12, 'Refresh'] },
  Publication: { data: [4, 'bytes'], info: [5, 'ClientInfo'], offset: [6, 'u64'],
    tags: [7, '@string'], time: [9, 'i64'] },
  ClientInfo: { user: [1, 'string'], client: [2, 'string'], conn_info: [3, 'bytes'],
    chan_info: [4, 'bytes'] },
  Member: { info: [1, 'ClientInfo'] },
  Unsubscribe: { code: [2, 'u32'], reason: [3, 'string'] },
  Subscribe: { recoverable: [1, 'bool'], epoch: [4, 'string'], offset: [5, 'u64'],
    positioned: [6, 'bool'], data: [7, 'bytes'] },
  Disconnect: { code: [1, 'u32'], reason: [2, 'string'], reconnect: [3, 'bool'] },
  Refresh: { expires: [1, 'bool'], ttl: [2, 'u32'] },
  ConnectResult: { client: [1, 'string'], version: [2, 'string'], expires: [3, 'bool'],
    ttl: [4, 'u32'], data: [5, 'bytes'], subs: [6, '@SubscribeResult'], ping: [7, 'u32'],
    pong: [8, 'bool'], session: [9, 'string'], node: [10, 'string'], time: [11, 'i64'] },
  SubscribeResult: { expires: [1, 'bool'], ttl: [2, 'u32'], recoverable: [3, 'bool'],
    epoch: [6, 'string'], publications: [7, '*Publication'], recovered: [8, 'bool'],
    offset: [9, 'u64'], positioned: [10, 'bool'], data: [11, 'bytes'],
    was_recovering: [12, 'bool'] },
  PresenceResult: { presence: [1, '@ClientInfo'] },
  PresenceStatsResult: { num_clients: [1, 'u32'], num_users: [2, 'u32'] },
  HistoryResult: { publications: [1, '*Publication'], epoch: [2, 'string'], offset: [3, 'u64'] },
  RpcResult: { data: [1, 'bytes'] },
  RefreshResult: { client: [1, 'string'], version: [2, 'string'], expires: [3, 'bool'],
    ttl: [4, 'u32'] },
  SubRefreshResult: { expires: [1, 'bool'], ttl: [2, 'u32'] },
  Empty: {},
};

const SCALARS = new Set(['u32', 'u64', 'i32', 'i64', 'bool', 'string', 'bytes', 'given']);

/** Messages by name. @type {ReadonlyMap<string, Message>} */
const MESSAGES = new Map(Object.keys(TABLE).map((name) => [name, { fields: [], byNumber: [] }]));

for (const [name, { fields, byNumber }] of MESSAGES)
  for (const [field, [number, text]] of Object.entries(TABLE[name])) {
    const form = text[0] === '*' ? 'list' : text[0] === '@' ? 'map' : 'one';
    const type = typeOf(form === 'one' ? text : text.slice(1));
    byNumber[number] = { number, name: field, type, form };
    fields.push(byNumber[number]);
  }

/** @param {string} name @returns {Scalar|Message} */
function typeOf(name) {
  return SCALARS.has(name) ? /** @type {Scalar} */ (name) : messageNamed(name);
}

/** @param {string} name of a message @returns {Message} */
export function messageNamed(name) {
  const message = MESSAGES.get(name);
  if (message === undefined) throw new Error(`no such message: ${name}`);
  return message;
}

/** The requests of a command, in the order in which the protocol looks at them. */
export const REQUESTS = messageNamed('Command').fields.slice(1);
