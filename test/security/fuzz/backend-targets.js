// backend-targets.js: what Redis, workers and the relay send each other, as targets.

import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { BatchReader } from '../../../src/backend/batch.js';
import { RelayServer } from '../../../src/backend/embedded/relay-server.js';
import {
  batchAt,
  HEAD_BYTES,
  MalformedMessage,
  MessageReader,
  OP,
  readAnswer,
  readBatchRoom,
  readControl,
  readMembers,
  readNumber,
  readOp,
  readOutcome,
  readPage,
} from '../../../src/backend/embedded/relay-wire.js';
import { RedisPushes } from '../../../src/backend/redis/fast/push-reader.js';
import { Inbox } from '../../../src/backend/redis/inbox.js';
import { Keys } from '../../../src/backend/redis/keys.js';
import { Connection } from '../../../src/hub/connection.js';
import { ANNOUNCEMENTS } from '../../../src/protocol/publication.js';
import { FakeTransport } from '../../helpers/fake-transport.js';
import { countersOf } from '../../helpers/machine.js';
import { FrameParser, OPCODES } from '../../helpers/raw-frames.js';
import { FakeSocket } from './fake-socket.js';
import { from, kindOfMessage, RULE, turns, utf8, worker } from './parts.js';
import { answerSeeds, heads, requestSeeds } from './relay-seeds.js';

/** @import { Target } from './parts.js' */

/** Messages that Redis pushes to a subscriber. @type {Target} */
export const pushes = {
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
export const redis = {
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
            hub.addConnection(connection);
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
            hub.removeConnection(connection);
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

/** A room with state. */
const STATE_RULE = Object.freeze({ ...RULE, state: { everyMs: 0, maxBytes: 10_000 } });

/** @param {ReadonlyMap<string, Buffer>} seeds of relay-seeds.js */
function fromRelay(seeds) {
  const { file, corpus } = from('relay');
  corpus.names.push(...seeds.keys());
  corpus.entries.push(...seeds.values());
  corpus.tokens.push(...heads);
  return { file, corpus };
}

/** Messages of workers to the relay. @type {Target} */
export const relay = {
  name: 'relay requests',
  ...fromRelay(requestSeeds),
  share: 0.1,
  async start() {
    const log = /** @type {any} */ ({ debug() {}, error() {}, warn() {}, info() {} });
    const historyOf = (/** @type {string} */ room) =>
      room.startsWith('h.') ? RULE : room.startsWith('s.') ? STATE_RULE : null;
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
        const { workers, rooms, addresses, connections, pendingBytes } = countersOf(relay);
        assert.deepEqual({ workers, rooms, addresses, connections, pendingBytes }, NOTHING_LEFT);
        return outcomes;
      },
      close: () => relay.close(),
    };
  },
};

const NOTHING_LEFT = { workers: 0, rooms: 0, addresses: 0, connections: 0, pendingBytes: 0 };

/** Answers of the relay, as a worker reads them. @type {Target} */
export const answers = {
  name: 'relay answers',
  ...fromRelay(answerSeeds),
  share: 0.03,
  start() {
    return {
      async run(inputs, numbers) {
        return inputs.map((input, i) => {
          /** @type {Set<string>} */
          const kinds = new Set();
          /** @param {readonly Buffer[]} pieces */
          const read = (pieces) => {
            /** @type {string[]} */
            const seen = [];
            const reader = new MessageReader((buffer, start, end) => {
              const isWell = quietly(() => readMessage(buffer, start, end));
              kinds.add(`${readOp(buffer, start)}${isWell ? '' : ' malformed'}`);
              seen.push(buffer.toString('latin1', start, end));
            });
            const isWhole = quietly(() => {
              for (const piece of pieces) reader.read(piece);
            });
            if (!isWhole) {
              kinds.add('no stream');
              seen.push('no stream');
            }
            return seen;
          };
          const whole = read([input]);
          const at = numbers[i] % (input.length + 1);
          assert.deepEqual(read([input.subarray(0, at), input.subarray(at)]), whole);
          return [...kinds].slice(0, 4).join(', ');
        });
      },
      close() {},
    };
  },
};

/** @param {Buffer} buffer @param {number} start @param {number} end */
function readMessage(buffer, start, end) {
  const at = start + HEAD_BYTES;
  switch (readOp(buffer, start)) {
    case OP.PUBLICATION: {
      readBatchRoom(buffer, at, end);
      const batch = new BatchReader(buffer, batchAt(buffer, at), end);
      while (batch.next()) assert.ok((batch.publication?.length ?? 0) <= end - start);
      return;
    }
    case OP.HELLO:
      readNumber(buffer, at);
      return;
    case OP.CONTROL:
      readControl(buffer, at, end);
      return;
    case OP.PAGE:
      readPage(readAnswer(buffer, at, end).body);
      return;
    case OP.MEMBERS:
      readMembers(readAnswer(buffer, at, end).body);
      return;
    case OP.OUTCOMES:
      readOutcome(readAnswer(buffer, at, end).body, 0);
      return;
    default:
      readAnswer(buffer, at, end);
  }
}

/**
 * @param {() => unknown} act
 * @returns {boolean} false: it is malformed
 */
function quietly(act) {
  try {
    act();
    return true;
  } catch (error) {
    assert.ok(error instanceof RangeError || error instanceof MalformedMessage, String(error));
    return false;
  }
}
