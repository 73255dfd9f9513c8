// targets.js: the entry points of foreign bytes, each as a function from bytes to an outcome.
//
// A target takes inputs in batches and returns the kind of outcome of each: a close code, a status,
// an error. The kinds seen are the coverage of a run. A target throws at each violation: an
// exception that escapes, a malformed reply, a place that a gone client still holds, an answer that
// depends on the cuts between reads.

import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { createAddressResolver } from '../../../src/admission/address.js';
import { Admission } from '../../../src/admission/admission.js';
import { loadConfig, parseConfigFile } from '../../../src/config/config.js';
import {
  decodeEmulation as decodeJson,
  jsonCodec,
} from '../../../src/doors/centrifugo/codec/json.js';
import {
  decodeEmulation as decodeProtobuf,
  protobufCodec,
} from '../../../src/doors/centrifugo/codec/protobuf.js';
import { routesOf } from '../../../src/doors/centrifugo/http/routes.js';
import { Connection } from '../../../src/hub/connection.js';
import { createCounters } from '../../../src/observability/counters.js';
import { MessageRules } from '../../../src/operations/message.js';
import { decode } from '../../../src/protocol/decode.js';
import { ApiFault } from '../../../src/transport/http-api/fault.js';
import { HttpServer } from '../../../src/transport/http-server.js';
import { WebSockets } from '../../../src/transport/websocket.js';
import { Phase } from '../../../src/worker/phase.js';
import { Turn } from '../../../src/worker/turn.js';
import { accepted } from '../../helpers/accepted.js';
import { FakeTransport, messagesOf } from '../../helpers/fake-transport.js';
import { closeCode, FrameParser, OPCODES } from '../../helpers/raw-frames.js';
import { KEY } from '../../helpers/raw-http.js';
import { answers, pushes, redis, relay } from './backend-targets.js';
import { FakeSocket } from './fake-socket.js';
import {
  config,
  EMPTY,
  from,
  isCloseCode,
  kindOfMessage,
  RULE,
  turns,
  utf8,
  worker,
} from './parts.js';

/** @import { Target } from './parts.js' */

/** Frames from the socket up to the hub and back. @type {Target} */
const frames = {
  name: 'frames',
  ...from('frames'),
  share: 0.15,
  async start() {
    const { hub, commands, counters, isClean, close } = await worker();
    const heartbeat = /** @type {any} */ ({ watchConnection() {}, unwatchConnection() {} });
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
            accepted(/** @type {any} */ (socket)),
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
          hub.addConnection(connection);
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
        for (const { connection } of connections) hub.removeConnection(connection);
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
      phase: new Phase(),
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
          for (const read of isUtf8(input) ? [decodeJson, decodeProtobuf] : [decodeProtobuf]) {
            const emulated = read(input);
            assert.ok(emulated === null || emulated.data.length <= input.length);
          }
          const kinds = [jsonCodec, protobufCodec].map(({ decode }) => {
            const commands = decode(input, 1000);
            if (commands === null || commands === 'too_many') return commands ?? 'malformed';
            // A command that has waited is read again.
            for (const command of commands)
              assert.deepEqual(decode(command.source, 1000), [command]);
            return commands.map(({ method }) => method).join();
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
    const settings = config(
      '{"FANFARE_CENTRIFUGO":"on","JWT_SECRET":"0123456789abcdef0123456789abcdef"}',
    );
    const services = /** @type {any} */ ({
      config: settings,
      publisher: {
        publish: async () => ({ epoch: 'e', offset: 1 }),
        rules: new MessageRules(settings, () => null),
      },
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
      const call = /** @type {any} */ ({
        ...{ body, headers: {}, key: { name: 'k', app: null }, address: '' },
        meters: { audit: { acted() {} } },
        charge() {},
      });
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
