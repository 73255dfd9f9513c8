// hub-members.js: a hub whose publications the test sends, and its members, for unit tests.

import { Connection } from '../../src/hub/connection.js';
import { encodePublication, KIND } from '../../src/protocol/publication.js';
import { configOf } from './config.js';
import { FakeTransport } from './fake-transport.js';
import { buildHub, confirmAtOnce, noHistory, receive } from './hub.js';

/** A hub with a broker. If `manual`, the test settles the broker's promises. */
export function build({
  env = {},
  manual = false,
  budgetBytes = 1e9,
  onWarning = (/** @type {string} */ _text) => {},
  admitBroadcast = /** @type {Parameters<typeof buildHub>[0]['admitBroadcast']} */ (undefined),
  historyOf = /** @type {Parameters<typeof buildHub>[0]['historyOf']} */ (undefined),
} = {}) {
  const config = configOf(env);
  const clock = { now: 0 };
  /** @type {{room: string, resolve: () => void, reject: (error: Error) => void}[]} */
  const subscribing = [];
  /**
   * @type
   *   {{room: string, publication: Buffer, options?: import('../../src/backend/broker.js').PublishOptions, resolve: () => void, reject: (error: Error) => void}[]}
   */
  const published = [];
  /** @type {string[]} */
  const unsubscribed = [];
  const broker = {
    subscribe: (/** @type {string} */ room) =>
      manual
        ? new Promise((/** @type {(value: void) => void} */ resolve, reject) =>
            subscribing.push({ room, resolve, reject }),
          )
        : Promise.resolve(),
    unsubscribe: (/** @type {string} */ room) => void unsubscribed.push(room),
    /** @type {import('../../src/backend/broker.js').Broker['publish']} */
    publish: (room, publication, options) =>
      new Promise((/** @type {(value: void) => void} */ resolve, reject) =>
        published.push({ room, publication, options, resolve, reject }),
      ),
    reportConnections() {},
    countConnections: async () => 42,
    history: noHistory,
  };
  const { counters, turn, slowConsumers, outbox, hub, operations, commands, phase } = buildHub({
    config,
    broker,
    budgetBytes,
    clock: () => clock.now,
    admitBroadcast,
    historyOf,
    log: { debug() {}, warn: (_fields, text) => onWarning(text), error() {} },
  });
  if (!manual) confirmAtOnce(hub);
  const connect = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    hub.addConnection(connection);
    const say = (/** @type {object|string} */ message) => receive(commands, connection, message);
    return { connection, transport, say };
  };
  return {
    config,
    counters,
    clock,
    /** @type {Partial<import('../../src/backend/broker.js').Broker>} */
    broker,
    turn,
    hub,
    outbox,
    operations,
    commands,
    phase,
    slowConsumers,
    connect,
    subscribing,
    published,
    unsubscribed,
  };
}

export const publication = (/** @type {unknown} */ payload, /** @type {string} */ except = '') => {
  const json = Buffer.from(JSON.stringify(payload));
  return encodePublication(KIND.MESSAGE, 1_760_000_000_000, 0, 'me', json, 0, json.length, except);
};

export const payloads = (/** @type {FakeTransport} */ transport) => {
  return transport
    .messages()
    .filter((m) => m.type === 'message')
    .map((m) => m.payload);
};
