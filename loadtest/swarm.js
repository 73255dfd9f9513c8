#!/usr/bin/env node
// swarm.js: many clients, from several processes and source addresses, against a server that runs already.
//
//   node loadtest/swarm.js [--url ws://127.0.0.1:3000/ws]… [--connections 1000] [--rate 500] [--rooms 10]
//                          [--messages-per-second 10] [--hold 30] [--payload-bytes 100] [--sources 0] [--processes 0]
//
// One process may hold 20,000 sockets by the usual limit, and one source address some 28,000 ports to one server: at
// most PER_PROCESS connections a process; with --sources n, from 127.0.0.2 on (a server on this machine), n of them;
// 0 takes as many as are needed there. The server must run with FANFARE_LIMITS=off.
//
//   parent  --{open}-->  child: its part of the connections, at its part of the rate      --{opened}-->
//           --{count}->  child: counts from now on                                        --{counting}->
//           --{send}-->  child: its part of the messages, in an open loop, for `hold` s   --{sent}-->
//           --{end}--->  child: how much came, and how late                               --{report}-->
//
// A message goes to one room; its expected deliveries are the members of that room over all processes that were open
// when it was sent. Sender and receiver share the machine's clock, so latency holds between processes.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Latency } from './lib/latency.js';
import { count, pause, run } from './lib/run.js';
import { each, HandshakeError, WsClient } from './lib/ws-client.js';

const PER_PROCESS = 19_000;
const PORTS_PER_SOURCE = 25_000;
const SELF = fileURLToPath(import.meta.url);
const CONCURRENCY = 200;
/** Nothing more for so long: what is missing will not come. */
const SILENCE_MS = 2000;
const MAX_DRAIN_MS = 30_000;

/**
 * What one process is to do.
 * @typedef {object} Part
 * @property {number} process
 * @property {string[]} urls
 * @property {number} connections
 * @property {number} first index of its first connection over all processes
 * @property {number} rate connections a second
 * @property {number} rooms
 * @property {number} messagesPerSecond
 * @property {number} holdMs
 * @property {number} payloadBytes
 * @property {string[]} sources
 * @property {string} prefix of the rooms' names
 */
/** @typedef {{opened: number, failures: Record<string, number>, seconds: number, members: number[]}} Opened */
/** @typedef {{sentTo: number[], behindMs: number}} Sent */
/** @typedef {{received: number, strange: number, errors: Record<string, number>, closes: Record<string, number>, buckets: number[], maxMs: number, cpuSeconds: number}} Report */

if (process.send && process.argv[2] === 'child') await child();
else await parent();

async function parent() {
  const { values } = parseArgs({
    options: {
      url: { type: 'string', multiple: true, default: ['ws://127.0.0.1:3000/ws'] },
      connections: { type: 'string', default: '1000' },
      rate: { type: 'string', default: '500' },
      rooms: { type: 'string', default: '10' },
      'messages-per-second': { type: 'string', default: '10' },
      hold: { type: 'string', default: '30' },
      'payload-bytes': { type: 'string', default: '100' },
      sources: { type: 'string', default: '0' },
      processes: { type: 'string', default: '0' },
    },
  });
  const [connections, rate, rooms, messagesPerSecond, hold, payloadBytes, sources, processes] = [
    values.connections,
    values.rate,
    values.rooms,
    values['messages-per-second'],
    values.hold,
    values['payload-bytes'],
    values.sources,
    values.processes,
  ].map(Number);
  const processCount = processes || Math.ceil(connections / PER_PROCESS);
  if (connections / processCount > PER_PROCESS)
    throw new Error(`at most ${PER_PROCESS} connections a process: more --processes`);
  const isLoopback = values.url.every((url) => ['127.0.0.1', 'localhost'].includes(new URL(url).hostname));
  const sourceCount = sources || (isLoopback ? Math.max(processCount, Math.ceil(connections / PORTS_PER_SOURCE)) : 0);
  const addresses = Array.from({ length: sourceCount }, (_, i) => `127.0.0.${i + 2}`);
  const limitMs = (connections / rate + hold) * 1000 * 1.5 + 120_000;

  await run(
    `swarm: ${count(connections)} connections, ${processCount} processes, ${sourceCount || 'the kernel’s'} source addresses, ${values.url.join(' ')}`,
    async (test) => {
      const swarm = startProcesses(test, processCount);
      let first = 0;
      /** @type {Part[]} */
      const parts = Array.from({ length: processCount }, (_, i) => {
        const part = Math.floor(connections / processCount) + (i < connections % processCount ? 1 : 0);
        const own = addresses.filter((_address, at) => at % processCount === i % Math.max(1, addresses.length));
        first += part;
        return {
          process: i,
          urls: values.url,
          connections: part,
          first: first - part,
          rate: rate / processCount,
          rooms,
          messagesPerSecond: messagesPerSecond / processCount,
          holdMs: hold * 1000,
          payloadBytes,
          sources: own.length > 0 ? own : addresses,
          prefix: `swarm-${process.pid}`,
        };
      });

      const opened = /** @type {Opened[]} */ (await swarm.ask('open', parts));
      const open = total(opened.map((one) => one.opened));
      const seconds = Math.max(...opened.map((one) => one.seconds));
      const failures = merged(opened.map((one) => one.failures));
      test.note('connected', `${count(open)} in ${seconds.toFixed(1)} s: ${count(open / seconds)} a second`);
      if (failures !== '') test.note('handshakes that failed', failures);
      const members = opened[0].members.map((_, room) => total(opened.map((one) => one.members[room])));

      await swarm.ask('count', []);
      const sent = /** @type {Sent[]} */ (await swarm.ask('send', []));
      const sentTo = members.map((_, room) => total(sent.map((one) => one.sentTo[room])));
      const messages = total(sentTo);
      const expected = total(sentTo.map((n, room) => n * members[room]));
      const reports = await swarm.settled(expected);

      const latency = new Latency();
      for (const report of reports) latency.merge(report);
      const received = total(reports.map((one) => one.received));
      const closes = merged(reports.map((one) => one.closes));
      const errors = merged(reports.map((one) => one.errors));
      const behindMs = Math.max(...sent.map((one) => one.behindMs));
      test.note(
        'sent',
        `${count(messages)} messages in ${hold} s: ${count(messages / hold)} a second; at worst ${behindMs.toFixed(0)} ms behind its time`,
      );
      test.note('deliveries', `${count(received)}: ${count(received / hold)} a second`);
      test.note('latency', messages > 0 ? latency : 'no messages');
      test.note('client CPU', `${total(reports.map((one) => one.cpuSeconds)).toFixed(1)} s over all processes`);
      if (closes !== '') test.note('closes', closes);
      if (errors !== '') test.note('error replies', errors);
      test.check('connections opened', count(connections), count(open));
      test.check('deliveries', count(expected), count(received));
      test.check('connections lost', 0, total(reports.flatMap((one) => Object.values(one.closes))));
      test.check('error replies', 0, total(reports.flatMap((one) => Object.values(one.errors))));
      test.check('messages not understood', 0, total(reports.map((one) => one.strange)));
    },
    limitMs,
  );
}

/** @param {readonly number[]} numbers */
function total(numbers) {
  return numbers.reduce((sum, n) => sum + n, 0);
}

/** @param {readonly Record<string, number>[]} tallies @returns {string} what they come to, in words; nothing where all are empty */
function merged(tallies) {
  /** @type {Record<string, number>} */
  const sum = {};
  for (const tally of tallies) for (const [key, n] of Object.entries(tally)) sum[key] = (sum[key] ?? 0) + n;
  return Object.entries(sum)
    .map(([key, n]) => `${count(n)} × ${key}`)
    .join(', ');
}

/**
 * The client processes. A step is asked of all of them and done when all have answered.
 * @param {import('./lib/run.js').Run} test
 * @param {number} size
 */
function startProcesses(test, size) {
  const children = Array.from({ length: size }, () => fork(SELF, ['child'], { serialization: 'advanced' }));
  /** @type {(error: Error) => void} */
  let fail = () => {};
  const failed = new Promise((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {}); // whoever asks next hears of it
  let isOver = false;
  for (const one of children) {
    one.on('exit', (code, signal) => {
      if (!isOver) fail(new Error(`a client process ended with ${signal ?? code}`));
    });
  }
  test.after(() => {
    isOver = true;
    for (const one of children) one.kill('SIGKILL');
  });
  return {
    /** @param {string} step @param {readonly object[]} parts @returns {Promise<object[]>} */
    ask(step, parts) {
      const answers = children.map(
        (one, i) =>
          new Promise((resolve) => {
            one.once('message', resolve);
            one.send({ step, part: parts[i] });
          }),
      );
      return /** @type {Promise<object[]>} */ (Promise.race([Promise.all(answers), failed]));
    },
    /** Waits for the deliveries expected, or until no more come. @param {number} expected @returns {Promise<Report[]>} */
    async settled(expected) {
      const end = performance.now() + MAX_DRAIN_MS;
      let before = -1;
      let sinceMs = performance.now();
      for (;;) {
        const reports = /** @type {Report[]} */ (await this.ask('end', []));
        const received = total(reports.map((one) => one.received));
        const now = performance.now();
        if (received !== before) sinceMs = now;
        before = received;
        if (received >= expected || now - sinceMs > SILENCE_MS || now > end) return reports;
        await pause(100);
      }
    },
  };
}

/** One client process. */
async function child() {
  /** @type {Part} */
  let part = /** @type {any} */ (null);
  /** @type {WsClient[]} those open, each with its room */
  const clients = [];
  /** @type {number[]} */
  const roomOf = [];
  const latency = new Latency();
  /** @type {Report} */
  const report = { received: 0, strange: 0, errors: {}, closes: {}, buckets: [], maxMs: 0, cpuSeconds: 0 };
  let isCounting = false;

  /** @param {string} text */
  const onText = (text) => {
    // A delivery's time stands in its payload, and the rest need not be parsed.
    const at = text.indexOf('"swarm:');
    if (at > 0 && text.startsWith('{"type":"message"')) {
      if (!isCounting) return;
      report.received++;
      latency.add(wallMs() - Number.parseFloat(text.slice(at + 7)));
      return;
    }
    const message = JSON.parse(text);
    if (message.type === 'error') report.errors[message.error] = (report.errors[message.error] ?? 0) + 1;
    // The close that follows it is counted.
    else if (message.type !== 'SERVER_SHUTDOWN') report.strange++;
  };
  /** @param {WsClient} client */
  const onClose = (client) => {
    report.closes[client.closeCode] = (report.closes[client.closeCode] ?? 0) + 1;
  };

  /** @returns {Promise<Opened>} */
  const open = async () => {
    const { urls, connections, first, rate, rooms, sources, prefix } = part;
    /** @type {Record<string, number>} */
    const failures = {};
    const members = new Array(rooms).fill(0);
    const started = performance.now();
    await each(connections, CONCURRENCY, async (i) => {
      const dueMs = started + (i / rate) * 1000 - performance.now();
      if (dueMs > 0) await pause(dueMs);
      const room = (first + i) % rooms;
      const localAddress = sources.length > 0 ? sources[i % sources.length] : undefined;
      try {
        const client = await new WsClient(urls[(first + i) % urls.length], { localAddress, onText, onClose }).open();
        const reply = await client.request({ type: 'join', room: `${prefix}-${room}` });
        if (reply.type !== 'joined') throw new Error(`join: ${reply.error}`);
        clients.push(client);
        roomOf.push(room);
        members[room]++;
      } catch (error) {
        const why =
          error instanceof HandshakeError
            ? `HTTP ${error.status}`
            : /** @type {NodeJS.ErrnoException} */ (error).code || /** @type {Error} */ (error).message;
        failures[why] = (failures[why] ?? 0) + 1;
      }
    });
    return { opened: clients.length, failures, seconds: (performance.now() - started) / 1000, members };
  };

  /** An open loop: a message is due at its time, however long the ones before took. @returns {Promise<Sent>} */
  const send = async () => {
    const { rooms, messagesPerSecond, holdMs, payloadBytes, process: own } = part;
    const sentTo = new Array(rooms).fill(0);
    const messages = clients.length === 0 ? 0 : Math.round((messagesPerSecond * holdMs) / 1000);
    const started = performance.now();
    let behindMs = 0;
    for (let n = 0; n < messages; n++) {
      const dueMs = started + (n * 1000) / messagesPerSecond;
      if (dueMs > performance.now()) await pause(dueMs - performance.now());
      behindMs = Math.max(behindMs, performance.now() - dueMs);
      // Another member each time; a prime step visits them all.
      let at = (n * 7919 + own) % clients.length;
      while (!clients[at].isOpen && clients.some((client) => client.isOpen)) at = (at + 1) % clients.length;
      sentTo[roomOf[at]]++;
      clients[at].send(`{"type":"message","payload":"${`swarm:${wallMs().toFixed(3)} `.padEnd(payloadBytes, 'x')}"}`);
    }
    await pause(started + holdMs - performance.now());
    return { sentTo, behindMs };
  };

  process.on('message', async (/** @type {{step: string, part: Part}} */ message) => {
    /** @type {object} */
    let answer = {};
    switch (message.step) {
      case 'open':
        part = message.part;
        answer = await open();
        break;
      case 'count':
        isCounting = true;
        break;
      case 'send':
        answer = await send();
        break;
      case 'end': {
        const { user, system } = process.cpuUsage();
        answer = { ...report, buckets: [...latency.buckets], maxMs: latency.maxMs, cpuSeconds: (user + system) / 1e6 };
        break;
      }
    }
    process.send?.(answer);
  });
  // Without its parent it is nothing.
  process.on('disconnect', () => process.exit(0));
}

/** A clock that all processes share, finer than Date.now(). */
function wallMs() {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
