// versions.test.js: two versions of Fanfare side by side, under load, with every delivery checked
// (docs/architecture/versions.md): `node test/run.js versions`, some minutes.
//
// Servers on one Redis are rolled from one version to another, and back. On the embedded backend
// the files of a running server are replaced.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NEMESES } from '../checker/nemesis.js';
import { startRedis } from '../harness/redis.js';
import { pause } from '../harness/run.js';
import { startServer, until } from '../harness/server.js';
import { connect } from '../helpers/clients.js';
import { rollTo, unknownVersions } from '../helpers/rolling.js';
import {
  checkOut,
  copyTree,
  findBase,
  mainOf,
  makeNext,
  relayOf,
  replaceFiles,
} from '../helpers/versions.js';
import { newLine, OPTIONS, smoke } from './smoke.js';

const SERVERS = 3;
const BETWEEN_MS = 1000;
const LOAD = { clients: 120, publishers: 12, rate: 300 };
const RELOAD_MS = 30_000;
/** Errors that a server logs when a worker of another version does not start. */
const REFUSED_WORKER = /worker cannot start|reload aborted|did not become ready/;

const { ref, obstacle } = findBase();
const NEEDS_BASE = { ...OPTIONS, skip: obstacle || false };

/** @typedef {import('../checker/trial.js').Trial} Trial */

/**
 * Rolls all servers through versions, one after another.
 * @param {Trial} trial
 * @param {readonly string[]} versions folders
 */
async function rollThrough(trial, versions) {
  for (const version of versions) {
    await rollTo(trial, version);
    await pause(BETWEEN_MS);
  }
}

test(`${ref} and the working tree: upgrade, rollback and upgrade again`, NEEDS_BASE, async (t) => {
  const [base, tree] = [checkOut(t, ref), copyTree(t)];
  const setting = { servers: SERVERS, main: mainOf(base), load: LOAD };
  const { trial } = await smoke(t, setting, (trial) => rollThrough(trial, [tree, base, tree]));
  assert.equal(await unknownVersions(trial), 0);
});

test(
  'a new form of messages and keys in two steps, and back: each server reads everything',
  OPTIONS,
  async (t) => {
    const tree = copyTree(t);
    const [first, second] = [makeNext(t, { writes: false }), makeNext(t, { writes: true })];
    const setting = { servers: SERVERS, main: mainOf(tree), load: LOAD };
    await smoke(t, setting, async (trial) => {
      await rollThrough(trial, [first, second, first]);
      assert.equal(await unknownVersions(trial), 0);
      await rollThrough(trial, [tree]);
    });
  },
);

test(
  'a step is skipped, and back: unknown messages are counted, and nobody is recovered across them',
  OPTIONS,
  async (t) => {
    const [tree, second] = [copyTree(t), makeNext(t, { writes: true })];
    const setting = { servers: SERVERS, main: mainOf(tree), load: LOAD };
    let unknown = 0;
    await smoke(t, setting, async (trial) => {
      await rollTo(trial, second, async () => {
        await pause(BETWEEN_MS);
        unknown = await unknownVersions(trial);
      });
      await pause(BETWEEN_MS);
      await rollTo(trial, tree);
    });
    assert.ok(unknown > 100, `${unknown} messages of an unknown version`);
  },
);

test(
  'embedded: files of another relay version do not reload, and a restart upgrades',
  OPTIONS,
  async (t) => {
    const [running, next] = [copyTree(t), makeNext(t, { writes: false })];
    const load = { ...LOAD, clients: 50 };
    const setting = { embedded: true, main: mainOf(running), load, expectedLog: REFUSED_WORKER };
    await smoke(t, setting, async (trial) => {
      const { server } = trial;
      const workers = server.process.workerPids();
      replaceFiles(running, next);
      const refused = newLine(server, /^reload aborted/);
      server.process.kill('SIGHUP');
      await until(refused, RELOAD_MS, 'the end of the reload');
      assert.ok(server.lines.some(({ err }) => /another version of Fanfare/.test(err?.message)));
      assert.deepEqual(server.process.workerPids(), workers);
      await pause(BETWEEN_MS);
      await trial.suffer(NEMESES.serverTerminated, 0);
    });
  },
);

test(
  `embedded: the files of ${ref} are replaced by the working tree, and reloaded`,
  NEEDS_BASE,
  async (t) => {
    const [running, tree] = [checkOut(t, ref), copyTree(t)];
    const isSame = relayOf(running).version === relayOf(tree).version;
    const load = { ...LOAD, clients: 50 };
    const setting = { embedded: true, main: mainOf(running), load, expectedLog: REFUSED_WORKER };
    await smoke(t, setting, async (trial) => {
      const { server } = trial;
      replaceFiles(running, tree);
      const done = newLine(server, isSame ? /^reload complete/ : /^reload aborted/);
      await trial.suffer(
        {
          ...NEMESES.serverReloaded,
          inflict: async () => {
            server.process.kill('SIGHUP');
            return () => until(done, RELOAD_MS, 'the end of the reload');
          },
        },
        0,
      );
      await server.whole();
    });
  },
);

/**
 * Starts a server of each version on one Redis, and a client of each server.
 * @param {import('node:test').TestContext} t
 * @param {readonly string[]} versions folders
 */
async function startEach(t, versions) {
  const redis = await startRedis(t);
  const env = {
    REDIS_URL: redis.url,
    WORKERS: '1',
    FANFARE_LIMITS: 'off',
    FANFARE_HISTORY: 'kept.*=100/60s',
    FANFARE_PRESENCE: 'here.*',
  };
  const servers = await Promise.all(
    versions.map((version) => startServer(t, env, { main: mainOf(version) })),
  );
  return Promise.all(servers.map(({ port }) => connect(t, port)));
}

for (const room of ['kept.a', 'plain']) {
  test(
    `${room}: an idempotency key of ${ref} holds at newer servers, and back`,
    NEEDS_BASE,
    async (t) => {
      const versions = [checkOut(t, ref), copyTree(t), makeNext(t, { writes: false })];
      const clients = await startEach(t, versions);
      for (const client of clients) await client.join(room);
      for (const [i, first] of clients.entries()) {
        const publish = { type: 'message', room, idempotencyKey: `${i}`, payload: i, id: 1 };
        const answer = await first.ask(publish, 'ack');
        assert.equal(answer.type, 'ack');
        for (const client of clients) {
          assert.deepEqual(await client.ask(publish, 'ack'), answer);
          const { error } = await client.ask({ ...publish, payload: 'another' }, 'ack');
          assert.equal(error, 'IDEMPOTENCY_CONFLICT');
        }
      }
      for (const client of clients) {
        await client.ask({ type: 'message', room, payload: 'last', id: 2 }, 'ack');
        await client.next(({ payload }) => payload === 'last');
        const payloads = client.all('message').map(({ payload }) => payload);
        assert.deepEqual(payloads.slice(0, 3), [0, 1, 2]);
      }
    },
  );

  test(
    `${room}: a key that the version after the next one wrote publishes nothing here`,
    OPTIONS,
    async (t) => {
      const [tree, next] = await startEach(t, [copyTree(t), makeNext(t, { writes: true })]);
      await tree.join(room);
      const publish = { type: 'message', room, idempotencyKey: 'k', payload: 1, id: 1 };
      assert.equal((await next.ask(publish, 'ack')).type, 'ack');
      const { type, error } = await tree.ask(publish, 'ack');
      const expected = room === 'plain' ? ['ack', undefined] : ['error', 'OUTCOME_UNKNOWN'];
      assert.deepEqual([type, error], expected);
      await tree.ask({ type: 'message', room, payload: 2, id: 2 }, 'ack');
      // In the room with history, the message of the other version is a gap.
      await tree.next(({ type, payload }) => type === 'resync' || payload === 2);
      const { messages } = await tree.ask({ type: 'history', room, id: 3 }, 'history');
      const payloads = [...tree.all('message'), ...messages].map(({ payload }) => payload);
      assert.deepEqual(new Set(payloads), new Set([2]));
    },
  );
}

test(
  `users of ${ref} and of the working tree are in one list, and leave it`,
  NEEDS_BASE,
  async (t) => {
    const clients = await startEach(t, [checkOut(t, ref), copyTree(t)]);
    const users = ['ada', 'bob'];
    for (const [i, client] of clients.entries()) {
      const presence = { user: users[i] };
      const { type } = await client.ask({ type: 'join', room: 'here.a', presence }, 'joined');
      assert.equal(type, 'joined');
    }
    for (const client of clients) {
      await until(async () => {
        const { members } = await client.ask({ type: 'presence', room: 'here.a' }, 'presence');
        return members?.length === 2;
      });
    }
    for (const [i, client] of clients.entries()) {
      client.send({ type: 'leave', room: 'here.a' });
      const other = clients[1 - i];
      await other.next(({ event, member }) => event === 'leave' && member.user === users[i]);
      await client.join('here.a');
    }
  },
);
