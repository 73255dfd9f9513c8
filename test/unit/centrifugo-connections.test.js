// centrifugo-connections.test.js: times and bounds of connections and subscriptions of the Centrifugo
// door (doors/centrifugo/connections.js, expiry.js).

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { jsonCodec } from '../../src/doors/centrifugo/codec/json.js';
import { Connections } from '../../src/doors/centrifugo/connections.js';
import { Expiries } from '../../src/doors/centrifugo/expiry.js';
import { Connection } from '../../src/hub/connection.js';
import { FakeTransport } from '../helpers/fake-transport.js';
import { build } from '../helpers/recovery.js';

/** @param {Record<string, string>} [env] */
function buildConnections(env) {
  const { config, hub, counters, commands } = build({ env });
  const services = /** @type {any} */ ({
    config,
    hub,
    counters,
    commands,
    entrance: null,
    sessions: { end() {} },
    admitMessage: () => 0,
  });
  const connections = new Connections(services);
  const open = () => {
    const transport = new FakeTransport();
    const connection = new Connection(transport, '127.0.0.1');
    transport.door = /** @type {any} */ (connections.textsOf(jsonCodec));
    connections.open(connection, { headers: {}, url: '' }, null, { codec: jsonCodec });
    return { connection, transport };
  };
  return { connections, open, counters };
}

/** @param {{transport: FakeTransport}} opened @returns {number} 0: it is open */
const codeOf = ({ transport }) => transport.closed?.code ?? 0;

test('a connection without a connect is closed after 15 s with 3502', () => {
  const { connections, open, counters } = buildConnections();
  const [early, late] = [open(), open()];
  const nowMs = performance.now();
  connections.sweep(nowMs + 14_000);
  assert.equal(codeOf(early), 0);
  connections.admitted(late.connection);
  connections.sweep(nowMs + 16_000);
  assert.equal(codeOf(early), 3502);
  assert.equal(codeOf(late), 0);
  assert.equal(counters.auth.closes.timeout, 1);
});

test('the oldest of too many connections without a connect makes room', () => {
  const { open, counters } = buildConnections({ FANFARE_MAX_HANDSHAKES: '3' });
  const [first, ...others] = [open(), open(), open(), open()];
  assert.equal(codeOf(first), 3502);
  for (const other of others) assert.equal(codeOf(other), 0);
  assert.equal(counters.auth.closes.timeout, 1);
});

test('no ping is sent before the connect, and one pong answers one ping', () => {
  const { connections, open } = buildConnections();
  const opened = open();
  const { connection } = opened;
  assert.equal(connections.expectPong(connection), false);
  connections.clientOf(connection)?.become('connected');
  assert.equal(connections.expectPong(connection), true);
  connections.receiveCommands(connection, Buffer.from('{}'));
  assert.equal(codeOf(opened), 0);
  connections.receiveCommands(connection, Buffer.from('{}'));
  assert.equal(codeOf(opened), 3501);
});

test('subscriptions are looked at once their second has come, also after a jump of the clock', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  const expiries = new Expiries();
  const connection = /** @type {any} */ ({});
  const looked = () => {
    /** @type {string[]} */
    const channels = [];
    expiries.sweep((_, channel) => void channels.push(channel));
    return channels;
  };
  expiries.add(1_800_000_010, connection, 'ten');
  expiries.add(1_800_000_010.5, connection, 'eleven');
  expiries.add(1_799_000_000, connection, 'past');
  expiries.add(1_800_100_000, connection, 'later');
  assert.deepEqual(looked(), []);
  t.mock.timers.setTime(1_800_000_001_000);
  assert.deepEqual(looked(), ['past']);
  t.mock.timers.setTime(1_800_000_010_999);
  assert.deepEqual(looked(), ['ten']);
  t.mock.timers.setTime(1_900_000_000_000);
  assert.deepEqual(looked(), ['eleven', 'later']);
  assert.deepEqual(looked(), []);
});
