// versions.test.js: two versions of Fanfare side by side, under load, with every delivery checked
// (docs/architecture/versions.md): `npm run test:versions`, some minutes.
//
// Servers on one Redis are rolled from one version to another, and back. On the embedded backend
// the files of a running server are replaced.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pause } from '../../loadtest/lib/run.js';
import { until } from '../../loadtest/lib/server.js';
import { NEMESES } from '../checker/nemesis.js';
import { rollTo, unknownVersions } from '../helpers/rolling.js';
import {
  checkOut,
  copyTree,
  findBase,
  mainOf,
  makeNext,
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
    const [running, next] = [copyTree(t), makeNext(t, { writes: true })];
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
    const isSame = relayVersion(running) === relayVersion(tree);
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

/** @param {string} folder of a version */
function relayVersion(folder) {
  const text = readFileSync(join(folder, 'src/backend/embedded/relay-wire.js'), 'utf8');
  return /RELAY_VERSION = (\d+)/.exec(text)?.[1];
}
