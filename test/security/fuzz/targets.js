// targets.js: the entry points of foreign bytes, each as a function from bytes to an outcome.
//
// A target takes inputs in batches and returns the kind of outcome of each: a close code, a status,
// an error. The kinds seen are the coverage of a run. A target throws at each violation: an
// exception that escapes, a malformed reply, a place that a gone client still holds, an answer that
// depends on the cuts between reads.

import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { createAddressResolver } from '../../../src/admission/address.js';
import { Admission } from '../../../src/admission/admission.js';
import { publicationsIn } from '../../../src/backend/embedded/histories.js';
import { RelayServer } from '../../../src/backend/embedded/relay-server.js';
import { MessageReader, OP, readMembers } from '../../../src/backend/embedded/relay-wire.js';
import { RedisPushes } from '../../../src/backend/redis/fast/push-reader.js';
import { Inbox } from '../../../src/backend/redis/inbox.js';
import { Keys } from '../../../src/backend/redis/keys.js';
import { loadConfig, parseConfigFile } from '../../../src/config/config.js';
import { RoomRules } from '../../../src/config/room-patterns.js';
import { jsonCodec } from '../../../src/doors/centrifugo/codec/json.js';
import { decodeEmulation, protobufCodec } from '../../../src/doors/centrifugo/codec/protobuf.js';
import { routesOf } from '../../../src/doors/centrifugo/http/routes.js';
import { Connection } from '../../../src/hub/connection.js';
import { createCounters } from '../../../src/observability/counters.js';
import { ERRORS } from '../../../src/protocol/codes.js';
import { decode } from '../../../src/protocol/decode.js';
import { readPosition } from '../../../src/protocol/position.js';
import { ANNOUNCEMENTS } from '../../../src/protocol/publication.js';
import { ApiFault } from '../../../src/transport/http-api/fault.js';
import { HttpServer } from '../../../src/transport/http-server.js';
import { WebSockets } from '../../../src/transport/websocket.js';
import { Turn } from '../../../src/worker/turn.js';
import { FakeTransport, messagesOf } from '../../helpers/fake-transport.js';
import { buildHub } from '../../helpers/hub.js';
import { createBackend } from '../../helpers/memory-backend/index.js';
import { closeCode, FrameParser, OPCODES } from '../../helpers/raw-frames.js';
import { KEY } from '../../helpers/raw-http.js';
import { FakeSocket } from './fake-socket.js';
import { Corpus } from './mutate.js';

const RULE = Object.freeze({ size: 5, ttlMs: 1000 });
const MAX_MESSAGE_BYTES = 4096;
const EMPTY = Buffer.alloc(0);
/** Turns of the event loop in which all that follows from an input has happened. */
const TURNS = 6;
/**
 * Close codes that a server may send: those of the table in docs/protocol.md, and echoes of a client’s.
 */
const isCloseCode = (/** @type {number} */ code) =>
  code >= 1000 && code < 5000 && code !== 1006 && code !== 1015;

/**
 * @typedef
 *   {{run: (inputs: readonly Buffer[], numbers: readonly number[]) => Promise<string[]>, close: () => Promise<void>|void}}
 *   Running
 */
/**
 * @typedef
 *   {{name: string, file: URL, corpus: Corpus, share: number, start: () => Promise<Running>|Running}}
 *   Target
 */

/** @param {string} name */
function from(name) {
  const file = new URL(`../corpus/${name}.json`, import.meta.url);
  return { file, corpus: new Corpus(JSON.parse(readFileSync(file, 'utf8'))) };
}

/** @param {string} [env] */
function config(env) {
  const { config, faults } = loadConfig({
    FANFARE_LIMITS: 'off',
    FANFARE_MAX_MESSAGE_BYTES: String(MAX_MESSAGE_BYTES),
    ...(env === undefined ? {} : JSON.parse(env)),
  });
  assert.ok(config, faults.join());
  return config;
}

async function turns() {
  for (let i = 0; i < TURNS; i++) await turn();
}

let workers = 0;

/** A whole worker but for its sockets: hub, commands, broker and presence of one process. */
async function worker() {
  const historyRules = new RoomRules([{ pattern: 'h.*', value: RULE }]);
  const presenceRules = new RoomRules([{ pattern: 'p.*', value: /** @type {const} */ (true) }]);
  const historyOf = (/** @type {string} */ room) => historyRules.of(room);
  const backend = createBackend(
    /** @type {any} */ ({
      config: {
        serverId: `fuzz-${++workers}`,
        presence: presenceRules.own,
        presenceMaxMembers: 10,
      },
      historyRules,
      announcements: ANNOUNCEMENTS,
    }),
  );
  const { broker } = backend;
  /** @type {unknown[]} */
  const errors = [];
  const parts = buildHub({
    config: config(),
    broker,
    historyOf,
    presence: /** @type {import('../../../src/backend/presence.js').Presence} */ (backend.presence),
    covers: (room) => presenceRules.of(room) !== null,
    log: { debug() {}, warn() {}, error: (fields) => void errors.push(fields) },
  });
  const { hub, scheduler } = parts;
  await broker.start({
    onPublication: (room, publication, offset, epoch) =>
      hub.broadcast(room, publication, offset, epoch),
    onLost: (rooms) => scheduler.onLost(rooms),
    onState() {},
  });
  await hub.start();
  const close = () => {
    scheduler.close();
    return backend.close();
  };
  /** All that came has gone. */
  const isClean = () => {
    assert.deepEqual(errors, []);
    assert.equal(hub.connections.length, 0);
    assert.deepEqual([...hub.rooms.keys()], ['*']);
  };
  return { ...parts, isClean, close };
}

/** The kind of a message from the server. @param {any} message */
function kindOfMessage(message) {
  assert.equal(typeof message.type, 'string');
  if (message.type !== 'error') return message.type;
  assert.ok(message.error in ERRORS, message.error);
  assert.notEqual(message.error, 'INTERNAL_ERROR');
  return message.error;
}

/** Frames from the socket up to the hub and back. @type {Target} */
const frames = {
  name: 'frames',
  ...from('frames'),
  share: 0.15,
  async start() {
    const { hub, commands, counters, isClean, close } = await worker();
    const heartbeat = /** @type {any} */ ({ add() {}, remove() {} });
    const websockets = new WebSockets({
      config: config(),
      hub,
      door: commands.door,
      heartbeat,
      counters,
      turn: new Turn(),
    });
    return {
      async run(inputs, numbers) {
        const sockets = inputs.map((input, i) => {
          const socket = new FakeSocket();
          const headers = {
            upgrade: 'websocket',
            'sec-websocket-key': KEY,
            'sec-websocket-version': '13',
          };
          const request = { method: 'GET', url: '/ws', headers, socket };
          websockets.upgrade(
            /** @type {any} */ (request),
            /** @type {any} */ (socket),
            EMPTY,
            '127.0.0.1',
          );
          socket.feed(input, numbers[i]);
          return socket;
        });
        await turns();
        const outcomes = sockets.map(({ written }) => {
          const kinds = new Set();
          let isOver = false;
          const parser = new FrameParser(({ isFinal, reserved, opcode, isMasked, body }) => {
            assert.ok(
              isFinal && reserved === 0 && !isMasked && !isOver,
              'a frame as servers send them',
            );
            if (opcode === OPCODES.text) kinds.add(kindOfMessage(JSON.parse(utf8(body))));
            else if (opcode === OPCODES.close) {
              isOver = true;
              if (body.length > 0)
                assert.ok(isCloseCode(closeCode(body)), `close ${closeCode(body)}`);
              kinds.add(`close ${closeCode(body)}`);
            } else {
              assert.ok(opcode === OPCODES.pong && body.length <= 125);
              kinds.add('pong frame');
            }
          });
          parser.push(written.subarray(written.indexOf('\r\n\r\n') + 4));
          assert.equal(parser.rest.length, 0, 'whole frames');
          return [...kinds].sort().join(' ') || 'nothing';
        });
        for (const socket of sockets) socket.destroy();
        await turns();
        isClean();
        return outcomes;
      },
      close,
    };
  },
};

/** Texts as commands, compared with JSON.parse. @type {Target} */
const commands = {
  name: 'commands',
  ...from('commands'),
  share: 0.4,
  async start() {
    const { hub, commands, isClean, close } = await worker();
    return {
      async run(inputs) {
        const connections = inputs.map((input) => {
          const transport = new FakeTransport();
          const connection = new Connection(transport, '127.0.0.1');
          hub.add(connection);
          if (isUtf8(input)) {
            compareWithJson(input);
            const bytes = Buffer.from(input);
            commands.receive(connection, bytes);
            bytes.fill('?'); // the next read's
            commands.receive(connection, Buffer.from('{"type":"ping","id":"after"}'));
          }
          return { transport, connection };
        });
        await turns();
        const outcomes = connections.map(({ transport, connection }, i) => {
          const messages = messagesOf(Buffer.concat(transport.writes));
          if (!isUtf8(inputs[i])) return 'not UTF-8';
          if (connection.isOpen)
            assert.ok(
              messages.some(({ id }) => id === 'after'),
              'the next command is answered',
            );
          const kinds = new Set(messages.filter(({ id }) => id !== 'after').map(kindOfMessage));
          return [...kinds].sort().join(' ') || 'nothing';
        });
        for (const { connection } of connections) hub.remove(connection);
        await turns();
        isClean();
        return outcomes;
      },
      close,
    };
  },
};

/**
 * JSON.parse accepts every text that `decode` accepts, with the same content.
 * @param {Buffer} input valid UTF-8
 */
function compareWithJson(input) {
  const copy = Buffer.from(input);
  const command = decode(copy);
  assert.ok(copy.equals(input), 'what is checked is not changed');
  if (command === null) return;
  const value = JSON.parse(utf8(input));
  assert.equal(command.type, value.type);
  assert.equal(command.id, value.id);
  assert.deepEqual(command.room, value.room ?? undefined);
  assert.deepEqual(command.limit, value.limit ?? undefined);
  assert.deepEqual(command.echo, value.echo ?? undefined);
  assert.deepEqual(command.last, value.last ?? undefined);
  assert.deepEqual(command.lastSeconds, value.lastSeconds ?? undefined);
  assert.deepEqual(command.since, value.since ?? undefined);
  assert.deepEqual(command.before, value.before ?? undefined);
  assert.deepEqual(command.sinceTime, value.sinceTime ?? undefined);
  for (const [start, end, part] of /** @type {const} */ ([
    [command.payloadStart, command.payloadEnd, value.payload],
    [command.textStart, command.textEnd, value.text],
  ])) {
    if (start < 0) assert.equal(part, undefined);
    else assert.deepEqual(JSON.parse(utf8(input.subarray(start, end))), part);
  }
}

/** Requires UTF-8. @param {Buffer} bytes */
function utf8(bytes) {
  assert.ok(isUtf8(bytes), 'UTF-8');
  return bytes.toString('utf8');
}

/** Heads of requests, to the public port. @type {Target} */
const http = {
  name: 'HTTP heads',
  ...from('http'),
  share: 0.05,
  start() {
    const counters = createCounters();
    const health = {
      lagMs: () => 0,
      heapPercent: () => 0,
      openDescriptors: () => 0,
      descriptorLimit: 20_000,
    };
    const addresses = { acquire: async () => ({ admitted: true, connections: 1 }), release() {} };
    const settings = config('{"FANFARE_MAX_CONNECTIONS_PER_IP_MODE":"enforce","TRUST_PROXY":"1"}');
    const admission = new Admission({
      config: settings,
      addresses,
      health: /** @type {any} */ (health),
      counters,
      now: () => performance.now(),
    });
    /** @type {Map<object, import('node:http').IncomingMessage>} */
    const upgraded = new Map();
    const server = new HttpServer({
      config: settings,
      admission,
      onUpgrade(request, socket) {
        upgraded.set(socket, request);
        socket.end('HTTP/1.1 101 Switching Protocols\r\n\r\n');
      },
      readiness: () => null,
      log: { debug() {}, error: (fields) => assert.fail(JSON.stringify(fields)) },
      counters,
      turn: new Turn(),
    });
    return {
      async run(inputs, numbers) {
        const sockets = inputs.map((input, i) => {
          const socket = new FakeSocket();
          server.reader.acceptor.emit('connection', socket);
          socket.feed(input, numbers[i]);
          return socket;
        });
        await turns();
        const outcomes = sockets.map((socket, i) => {
          const { written } = socket;
          if (written.length === 0) return 'nothing';
          const said = written.toString('latin1');
          const statuses = [
            ...said.matchAll(/HTTP\/1\.1 (\d{3}) [A-Z][\w -]*\r\n(?:[\w-]+: [^\r\n]*\r\n)*\r\n/g),
          ].map(([, status]) => status);
          assert.ok(statuses.length > 0, said);
          for (const status of statuses) assert.ok(STATUSES.has(status), said);
          if (upgraded.has(socket)) assertHandshake(inputs[i]);
          return statuses.slice(0, 3).join(' ');
        });
        for (const socket of sockets) socket.destroy();
        upgraded.clear();
        await turns();
        assert.equal(server.openSockets, 0);
        assert.equal(server.handshakes, 0);
        return outcomes;
      },
      close: () => server.close(),
    };
  },
};

const STATUSES = new Set([
  '100',
  '101',
  '200',
  '400',
  '404',
  '405',
  '408',
  '413',
  '417',
  '426',
  '429',
  '431',
  '503',
]);

/**
 * An accepted handshake meets RFC 6455 4.2.1 and contains nothing that a proxy would read
 * differently.
 * @param {Buffer} input
 */
function assertHandshake(input) {
  const text = input.toString('latin1');
  // Other requests may stand before it on the same socket. Node reads several blanks, and line
  // breaks before a request, as one.
  const isGood = [...text.matchAll(/GET +\/(?:ws)?(?:\?[^ ]*)? +HTTP\/1\.1\r?\n/g)].some(
    ({ index, 0: first }) => {
      const start = index + first.length;
      const lines = text.slice(start, text.indexOf('\r\n\r\n', start)).split('\r\n');
      const count = (/** @type {RegExp} */ pattern) =>
        lines.filter((line) => pattern.test(line)).length;
      return (
        count(/^host:/i) === 1 &&
        count(/^transfer-encoding:/i) === 0 &&
        count(/^content-length:/i) === count(/^content-length:[ \t]*0+[ \t]*$/i) &&
        count(/^sec-websocket-version:[ \t]*13[ \t]*$/i) >= 1 &&
        count(/^upgrade:[ \t]*websocket[ \t]*$/i) >= 1
      );
    },
  );
  assert.ok(isGood, `was let in: ${JSON.stringify(text)}`);
}

/** Messages that Redis pushes to a subscriber. @type {Target} */
const pushes = {
  name: 'Redis pushes',
  ...from('redis-pushes'),
  share: 0.15,
  start() {
    /** @param {readonly Buffer[]} pieces */
    const read = (pieces) => {
      const stream = new PassThrough();
      /** @type {string[]} */
      const seen = [];
      let theirs = '';
      const flush = () => {
        if (theirs !== '') seen.push(theirs);
        theirs = '';
      };
      const onTheirs = (/** @type {Buffer} */ bytes) => {
        theirs += bytes.toString('latin1');
      };
      stream.on('data', onTheirs);
      const onMessage = (/** @type {Buffer} */ channel, /** @type {Buffer} */ body) => {
        flush();
        seen.push(`${channel.toString('latin1')}=${body.toString('latin1')}`);
      };
      new RedisPushes({ kind: 'message', onMessage }).attach(stream);
      for (const piece of pieces) stream.emit('data', piece);
      flush();
      return { seen, isOver: stream.listeners('data')[0] === onTheirs };
    };
    return {
      async run(inputs, numbers) {
        return inputs.map((input, i) => {
          const at = numbers[i] % (input.length + 1);
          const whole = read([input]);
          const cut = read([input.subarray(0, at), input.subarray(at)]);
          // From the first byte that the reader can't parse, ioredis reads everything: cut off
          // within a length, that may be later.
          if (whole.isOver) assert.ok(whole.seen.join('\n').startsWith(cut.seen.join('\n')));
          else assert.deepEqual(cut.seen, whole.seen);
          const messages = whole.seen.filter((one) => /^[\w:.]*=/.test(one)).length;
          return `${Math.min(messages, 4)} messages${whole.isOver ? ', then ioredis’s' : ''}`;
        });
      },
      close() {},
    };
  },
};

/** Messages of a Redis channel, up to the frames of members. @type {Target} */
const redis = {
  name: 'Redis messages',
  ...from('redis-messages'),
  share: 0.1,
  async start() {
    const { hub, commands, isClean, close } = await worker();
    /** @type {string[]} */
    let skipped = [];
    const keys = new Keys('');
    const channelOf = (/** @type {string} */ room) => Buffer.from(keys.channelOf(room));
    const inbox = new Inbox({
      keys,
      deliver: (room, publication, offset, epoch) =>
        hub.broadcast(room, publication, offset, epoch),
      fetch: async () => null,
      onSkipped: (reason) => void skipped.push(reason),
      onMalformed: (channel) => void skipped.push(channel),
      onUnknown: (room) => void skipped.push(room),
    });
    return {
      async run(inputs) {
        /** @type {string[]} */
        const outcomes = [];
        for (const input of inputs) {
          const members = ['r.1', 'h.1', 'p.1'].map((room) => {
            const transport = new FakeTransport();
            const connection = new Connection(transport, '127.0.0.1');
            hub.add(connection);
            commands.receive(connection, Buffer.from(`{"type":"join","room":"${room}"}`));
            return { room, transport, connection };
          });
          await turn();
          skipped = [];
          for (const { room } of members) inbox.receive(channelOf(room), Buffer.from(input));
          inbox.receive(channelOf('*'), Buffer.from(input));
          await turns();
          const kinds = new Set(skipped.map(() => 'skipped'));
          for (const { transport, connection } of members) {
            for (const kind of kindsOfPushes(Buffer.concat(transport.writes))) kinds.add(kind);
            hub.remove(connection);
          }
          outcomes.push([...kinds].sort().join(' '));
        }
        await turns();
        isClean();
        return outcomes;
      },
      close() {
        inbox.close();
        return close();
      },
    };
  },
};

/**
 * The worker of the sender checks payloads; other workers do not check them again. So a program
 * that writes to this Redis can publish a payload that is no JSON. Even then the frame is whole and
 * UTF-8, and other frames are unchanged.
 * @param {Buffer} written
 */
function kindsOfPushes(written) {
  /** @type {string[]} */
  const kinds = [];
  const parser = new FrameParser(({ isFinal, reserved, opcode, body }) => {
    assert.ok(isFinal && reserved === 0 && opcode === OPCODES.text, 'a text frame');
    const text = utf8(body);
    try {
      kinds.push(kindOfMessage(JSON.parse(text)));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      assert.match(text, /^\{"type":"(?:message|broadcast|presence)",.*\}$/s);
      kinds.push('a payload that is no JSON');
    }
  });
  parser.push(written);
  assert.equal(parser.rest.length, 0, 'whole frames');
  return kinds;
}

/** Messages of workers to the relay. @type {Target} */
const relay = {
  name: 'relay requests',
  ...from('relay'),
  share: 0.1,
  async start() {
    const log = /** @type {any} */ ({ debug() {}, error() {}, warn() {}, info() {} });
    const historyOf = (/** @type {string} */ room) => (room.startsWith('h.') ? RULE : null);
    const relay = new RelayServer({
      log,
      historyOf,
      presence: { maxMembers: 10, announcements: ANNOUNCEMENTS },
    });
    await relay.start();
    const known = new Set(Object.values(OP));
    return {
      async run(inputs, numbers) {
        const sockets = inputs.map((input, i) => {
          const socket = new FakeSocket();
          relay.server?.emit('connection', socket);
          socket.feed(input, numbers[i]);
          return socket;
        });
        await turns();
        const outcomes = sockets.map((socket) => {
          const kinds = new Set();
          const reader = new MessageReader((buffer, start) => {
            const op = buffer[start + 4];
            assert.ok(known.has(/** @type {any} */ (op)), `op ${op}`);
            kinds.add(op);
          });
          reader.read(socket.written);
          return `${socket.destroyed ? 'dropped' : 'kept'} ${[...kinds].sort().join(' ')}`;
        });
        for (const socket of sockets) socket.destroy();
        await turns();
        const { workers, rooms, addresses, connections, pendingBytes } = relay.counters();
        assert.deepEqual({ workers, rooms, addresses, connections, pendingBytes }, NOTHING_LEFT);
        return outcomes;
      },
      close: () => relay.close(),
    };
  },
};

const NOTHING_LEFT = { workers: 0, rooms: 0, addresses: 0, connections: 0, pendingBytes: 0 };

/**
 * Answers of the relay, read by a worker: at worst a RangeError, which ends the
 * link.
 * @type {Target}
 */
const answers = {
  name: 'relay answers',
  ...from('relay'),
  share: 0.03,
  start() {
    return {
      async run(inputs, numbers) {
        return inputs.map((input, i) => {
          /** @param {readonly Buffer[]} pieces */
          const read = (pieces) => {
            /** @type {string[]} */
            const seen = [];
            const reader = new MessageReader((buffer, start, end) => {
              const body = buffer.subarray(start + 5, end);
              seen.push(`${buffer[start + 4]} ${body.length}`);
              for (const look of [
                readMembers,
                publicationsIn,
                (/** @type {Buffer} */ b) => readPosition(b, 0),
              ])
                quietly(() => look(body));
            });
            const isWhole = quietly(() => {
              for (const piece of pieces) reader.read(piece);
            });
            if (!isWhole) seen.push('no stream');
            return seen;
          };
          const whole = read([input]);
          const at = numbers[i] % (input.length + 1);
          assert.deepEqual(read([input.subarray(0, at), input.subarray(at)]), whole);
          return [...new Set(whole.map((one) => one.split(' ')[0]))].slice(0, 4).join(' ');
        });
      },
      close() {},
    };
  },
};

/**
 * @param {() => unknown} act
 * @returns {boolean} false: a RangeError, the error of a malformed message
 */
function quietly(act) {
  try {
    act();
    return true;
  } catch (error) {
    assert.ok(error instanceof RangeError, String(error));
    return false;
  }
}

/** A configuration file, and X-Forwarded-For. @type {Target} */
const settings = {
  name: 'settings and addresses',
  ...from('settings'),
  share: 0.02,
  start() {
    const resolvers = ['', '1', '3', '10.0.0.0/8,::1'].map(createAddressResolver);
    return {
      async run(inputs) {
        return inputs.map((input) => {
          const text = input.toString('latin1');
          const file = parseConfigFile(text);
          assert.ok(Array.isArray(file.faults));
          const { config, faults } = loadConfig(/** @type {any} */ (file.env));
          assert.ok((config === null) === faults.length > 0);
          const request = {
            headers: { 'x-forwarded-for': text },
            socket: { remoteAddress: '10.1.2.3' },
          };
          for (const resolve of resolvers) {
            const address = resolve(/** @type {any} */ (request));
            assert.match(address, /^[0-9a-f.:/]{0,45}$/);
          }
          return config === null ? `${Math.min(3, faults.length)} faults` : 'valid';
        });
      },
      close() {},
    };
  },
};

/** @type {Target} */
const centrifugo = {
  name: 'commands of Centrifugo clients',
  ...from('centrifugo'),
  share: 0.1,
  start() {
    return {
      async run(inputs) {
        return inputs.map((input) => {
          const emulated = decodeEmulation(input);
          assert.ok(emulated === null || emulated.data.length <= input.length);
          const kinds = [jsonCodec, protobufCodec].map(({ decode }) => {
            const commands = decode(input);
            // A command that has waited is read again.
            for (const command of commands ?? [])
              assert.deepEqual(decode(command.source), [command]);
            return commands === null ? 'malformed' : commands.map(({ method }) => method).join();
          });
          return kinds.join(' ');
        });
      },
      close() {},
    };
  },
};

/** Requests to Centrifugo's server API: a method, a space, the body. @type {Target} */
const centrifugoApi = {
  name: 'Centrifugo requests',
  ...from('centrifugo-api'),
  share: 0.1,
  start() {
    const none = async () => 0;
    const services = /** @type {any} */ ({
      config: config('{"FANFARE_CENTRIFUGO":"on","JWT_SECRET":"0123456789abcdef0123456789abcdef"}'),
      publisher: { publish: async () => ({ epoch: 'e', offset: 1 }) },
      fleet: {
        ...{ disconnect: none, join: none, leave: none, renew: none, deleteHistory: none },
        rooms: async () => ({ rooms: [{ room: 'a__proto__', connections: 1 }], isPartial: false }),
        workers: async () => ({ workers: [], isPartial: false }),
      },
      tracker: {
        covers: (/** @type {string} */ room) => room === 'p',
        read: async () => ({ count: 1, members: [Buffer.from('{"user":"u"}')] }),
      },
      historyOf: (/** @type {string} */ room) => (room === 'h' ? RULE : null),
      historyReader: {
        page: async (/** @type {string} */ room) =>
          room !== 'h'
            ? null
            : {
                publications: [],
                first: 1,
                epoch: 'e',
                offset: 0,
                hasMore: false,
                searchedBytes: 0,
              },
      },
      counters: createCounters(),
      log: { error: (/** @type {{err: Error}} */ { err }) => assert.fail(err) },
    });
    const routes = routesOf('', services);
    const outcomeOf = async (/** @type {Buffer} */ input) => {
      const at = input.indexOf(' ');
      const path = `/${input.toString('latin1', 0, Math.max(0, at))}`;
      const route = routes.find((one) => one.path === path);
      if (route === undefined) return 'no method';
      const body = input.subarray(at + 1);
      const call = /** @type {any} */ ({ body, headers: {}, charge() {} });
      try {
        const answer = await route.handle(call);
        const text = Buffer.isBuffer(answer) ? utf8(answer) : JSON.stringify(answer);
        const { result, replies, error } = JSON.parse(text);
        assert.equal([result, replies, error].filter((one) => one !== undefined).length, 1);
        assert.ok(error === undefined || error.code >= 100, text);
        return `${path} ${error?.code ?? 'done'}`;
      } catch (error) {
        assert.ok(error instanceof ApiFault, String(error));
        return `${path} ${error.code}`;
      }
    };
    return { run: (inputs) => Promise.all(inputs.map(outcomeOf)), close() {} };
  },
};

/** @type {readonly Target[]} */
export const TARGETS = Object.freeze([
  frames,
  commands,
  http,
  pushes,
  redis,
  relay,
  answers,
  settings,
  centrifugo,
  centrifugoApi,
]);
