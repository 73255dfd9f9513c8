// processes.test.js: workers and primaries that are killed, frozen, terminated and replaced under
// load.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { NEMESES } from '../checker/nemesis.js';
import { Fanfare } from '../checker/trial.js';
import { pause } from '../harness/run.js';
import { connectionsPerWorker, startServer, until } from '../harness/server.js';
import { closedClients, historyMemberships, OPTIONS, smoke, tookMs } from './smoke.js';

test(
  '1: if a worker is killed, its clients are closed and recover, and others are not affected',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, {}, async (trial) => {
      const { server } = trial;
      const perWorker = [...connectionsPerWorker(await server.metrics()).values()];
      const started = performance.now();
      await trial.suffer(NEMESES.workerKilled, 0);
      const replacedMs = performance.now() - started;
      t.diagnostic(`replaced within ${Math.round(replacedMs)} ms`);
      assert.ok(replacedMs < 2000, `${replacedMs} ms`);
      await trial.workload.joined();
      // Publishers have connections, too.
      const closed = closedClients(trial).length;
      assert.ok(closed > 0 && closed < trial.workload.clients.length);
      assert.ok(
        perWorker.some((connections) => connections >= closed),
        `${closed} of ${perWorker}`,
      );
    });
    const closed = closedClients(trial);
    assert.deepEqual([...report.figures.closes], [[1006, closed.length]]);
    assert.equal(report.figures.recovered, historyMemberships(closed));
    assert.equal(report.figures.notRecovered, 0);
    assert.equal(trial.server.lines.filter(({ msg }) => msg === 'worker died').length, 1);
  },
);

test(
  '2: if a primary is killed, its workers drain and exit, and the port is free for the next one',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, {}, async (trial) => {
      const { server } = trial;
      const workers = server.process.workerPids();
      assert.equal(workers.length, 2);
      await trial.suffer(
        {
          ...NEMESES.primaryKilled,
          async inflict() {
            server.process.kill('SIGKILL');
            const goneMs = await tookMs(
              () => Fanfare.gone(workers),
              15_000,
              'the end of its workers',
            );
            t.diagnostic(`the workers left within ${Math.round(goneMs)} ms`);
            return () => server.start();
          },
        },
        0,
      );
    });
    const { clients } = trial.workload;
    assert.deepEqual([...report.figures.closes], [[1012, clients.length]]);
    assert.equal(
      report.figures.recovered + report.figures.notRecovered,
      historyMemberships(clients),
    );
  },
);

test(
  '3: a frozen worker is killed and replaced, and others are not affected',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, {}, (trial) =>
      trial.suffer(NEMESES.workerFrozen, 6000),
    );
    const closed = closedClients(trial);
    assert.ok(trial.server.lines.some(({ msg }) => msg === 'worker hung: killed'));
    assert.deepEqual([...report.figures.closes], [[1006, closed.length]]);
    assert.ok(closed.length > 0 && closed.length < trial.workload.clients.length);
    assert.equal(report.figures.notRecovered, 0);
  },
);

test(
  '51: if a server is terminated under load, no accepted message is lost, and its clients move to the other',
  OPTIONS,
  async (t) => {
    const { trial, report } = await smoke(t, { servers: 2 }, async (trial) => {
      const [server] = trial.servers;
      const started = performance.now();
      await trial.suffer(
        {
          ...NEMESES.serverTerminated,
          async inflict() {
            server.process.kill('SIGTERM');
            const { code, signal } = await server.process.exited;
            t.diagnostic(`gone within ${Math.round(performance.now() - started)} ms`);
            assert.deepEqual({ code, signal }, { code: 0, signal: null });
            return () => {};
          },
        },
        0,
      );
      assert.ok(performance.now() - started < 15_000);
      await trial.workload.joined();
      await server.start();
    });
    const closed = closedClients(trial);
    assert.deepEqual([...report.figures.closes], [[1012, closed.length]]);
    assert.equal(closed.length, trial.workload.clients.length / 2);
    assert.equal(report.figures.recovered, historyMemberships(closed));
    assert.equal(report.figures.notRecovered, 0);
  },
);

test(
  '53: a rolling reload under load replaces one worker at a time, and all clients recover',
  OPTIONS,
  async (t) => {
    let fewest = Number.POSITIVE_INFINITY;
    const { trial, report } = await smoke(t, {}, async (trial) => {
      const { server } = trial;
      const before = server.process.workerPids();
      let isRolling = true;
      const watching = (async () => {
        while (isRolling) {
          fewest = Math.min(fewest, await server.ready());
          await pause(10);
        }
      })();
      await trial.suffer(NEMESES.serverReloaded, 0);
      isRolling = false;
      await watching;
      assert.ok(server.process.workerPids().every((pid) => !before.includes(pid)));
    });
    assert.ok(fewest >= 1, `${fewest} workers`);
    const { closes, recovered, notRecovered } = report.figures;
    assert.deepEqual([...closes.keys()], [1012]);
    // Clients that move to the next worker are closed twice.
    const closed = closedClients(trial);
    assert.equal(closed.length, trial.workload.clients.length);
    assert.ok(recovered >= historyMemberships(closed), `${recovered}`);
    assert.equal(notRecovered, 0);
  },
);

test(
  'if a primary stalls, clients get `degraded`, and no address loses its places',
  OPTIONS,
  async (t) => {
    const server = await startServer(t, {
      FANFARE_MAX_CONNECTIONS_PER_IP: '5',
      FANFARE_HANDSHAKE_TIMEOUT_MS: '8000',
      FANFARE_MAX_LOOP_LAG_MS: '60000',
    });
    const open = () => {
      const socket = new WebSocket(`ws://127.0.0.1:${server.port}/`, { handshakeTimeout: 15_000 });
      t.after(() => socket.terminate());
      return new Promise((resolve) => {
        socket.on('open', () => resolve(socket));
        socket.on('error', () => resolve(null));
      });
    };
    const member = /** @type {WebSocket} */ (await open());
    /** @type {any[]} */
    const told = [];
    member.on('message', (data) => told.push(JSON.parse(String(data))));
    member.send('{"type":"join","room":"r"}');
    await until(() => told.some(({ type }) => type === 'joined'));
    server.kill('SIGSTOP');
    const waiting = Array.from({ length: 8 }, open);
    await until(
      () => told.some(({ type, degraded }) => type === 'degraded' && degraded),
      10_000,
      'degraded',
    );
    member.send('{"type":"message","room":"r","payload":1,"id":"x"}');
    await until(
      () => told.some(({ id, error }) => id === 'x' && error === 'UNAVAILABLE'),
      5000,
      'UNAVAILABLE',
    );
    const answers = await Promise.all(waiting);
    assert.deepEqual(answers, Array(8).fill(null));
    server.kill('SIGCONT');
    await until(
      () => told.some(({ type, degraded }) => type === 'degraded' && !degraded),
      10_000,
      'the end of degraded',
    );
    // All four that are free are there.
    const after = await until(async () => {
      const sockets = await Promise.all(Array.from({ length: 4 }, open));
      if (sockets.every((socket) => socket !== null)) return sockets;
      for (const socket of sockets) socket?.terminate();
      return null;
    });
    assert.equal(after.length, 4);
  },
);
