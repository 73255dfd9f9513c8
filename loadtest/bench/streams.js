// streams.js: holds streams of server-sent events: memory of each, and do all of them get every
// event?
//
//   node loadtest/bench/streams.js                      10,000 streams in one room, 50 messages
//   node loadtest/bench/streams.js --streams 1000 --messages 10
//
// Each stream is a raw socket that only counts the events of its room, so that the client stays
// cheap. Memory is the PSS of all processes of the server when it is idle. The first fifth of the
// streams warms the server up: the memory of a stream is the growth from there to all of them.

import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { experiment } from '../lib/experiment.js';
import { markdownTable, show } from '../lib/figures.js';
import { quiet, startServer } from './servers.js';

/** Handshakes that wait for their answer at once. */
const AT_ONCE = 100;
const QUIET_MS = 10_000;
const ARRIVE_MS = 20_000;
const MARKER = Buffer.from('"payload":');

/** Streams that count the events of their room. */
class Streams {
  events = 0;
  ended = 0;
  /** @type {import('node:net').Socket[]} */
  #sockets = [];

  /** @param {import('./servers.js').Target} target */
  constructor(target) {
    this.target = target;
  }

  /** @param {number} number of streams to open, AT_ONCE at a time */
  async open(number) {
    for (let opened = 0; opened < number; opened += AT_ONCE)
      await Promise.all(
        Array.from({ length: Math.min(AT_ONCE, number - opened) }, () => this.#openOne()),
      );
    await quiet(this.target, QUIET_MS);
  }

  /** Opens a stream, and waits until it is in the room. */
  async #openOne() {
    const { host, port } = this.target;
    const socket = connect({ host, port, noDelay: true });
    this.#sockets.push(socket);
    socket.on('error', () => {});
    socket.on('close', () => this.ended++);
    socket.write(
      'GET /sse?room=bench HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n',
    );
    for (let text = ''; !text.includes('event: joined'); ) {
      const [bytes] = await once(socket, 'data');
      text += bytes;
      if (!text.startsWith('HTTP/1.1 200')) throw new Error(text);
    }
    socket.on('data', (bytes) => {
      for (let at = bytes.indexOf(MARKER); at >= 0; at = bytes.indexOf(MARKER, at + 1))
        this.events++;
    });
  }

  /** Holds the streams, then reads the server's memory in kB. @param {number} seconds */
  async heldKb(seconds) {
    await sleep(1000 * seconds);
    await quiet(this.target, QUIET_MS);
    return this.target.pssKb();
  }

  close() {
    for (const socket of this.#sockets) socket.destroy();
  }
}

await experiment({
  question: 'Holds streams of server-sent events and measures their memory.',
  options: `streams N | whole 10..18000 | 10000 | streams in one room
  workers N | whole 1..64 | 2 | processes with connections
  messages N | whole 1..100000 | 50 | messages to the room
  rate N | number 0.1..1000 | 10 | messages a second
  hold S | number 0..3600 | 10 | time for which the streams are held before each reading of memory`,

  async setup({ owner, values: { workers } }) {
    const target = await startServer('fanfare', { workers });
    owner.after(() => target.close());
    const streams = new Streams(target);
    owner.after(() => streams.close());
    return streams;
  },

  async measure(streams, { owner, values }) {
    const { streams: count, messages, rate, hold } = values;
    const { target } = streams;
    const warm = Math.ceil(count / 5);
    await streams.open(warm);
    const kbBefore = await streams.heldKb(hold);
    const cpuOpening = target.cpuSeconds();
    await streams.open(count - warm);
    const handshakeMs = (1000 * (target.cpuSeconds() - cpuOpening)) / (count - warm);
    const kbAfter = await streams.heldKb(hold);
    const held = count - streams.ended;

    const publisher = new WebSocket(`ws://${target.host}:${target.port}/`);
    await once(publisher, 'open');
    owner.after(() => publisher.terminate());
    const cpuBefore = target.cpuSeconds();
    for (let i = 0; i < messages; i++) {
      publisher.send(JSON.stringify({ type: 'message', room: 'bench', payload: i }));
      await sleep(1000 / rate);
    }
    const expected = messages * count;
    const endMs = performance.now() + ARRIVE_MS;
    while (streams.events < expected && performance.now() < endMs) await sleep(50);
    const cpuPerMillion = (1e6 * (target.cpuSeconds() - cpuBefore)) / expected;
    const kbPerStream = (kbAfter - kbBefore) / (count - warm);
    const { events } = streams;
    return {
      warm,
      held,
      kbBefore,
      kbAfter,
      kbPerStream,
      handshakeMs,
      events,
      expected,
      cpuPerMillion,
    };
  },

  report([[measured]], { streams: count, workers }) {
    const { warm, held, kbBefore, kbAfter, events, expected } = measured;
    const isComplete = held === count && events === expected;
    return {
      title: `${count} streams of server-sent events, ${workers} workers`,
      lines: [
        `**${show(measured.kbPerStream, 1)} kB per stream** (PSS); ${isComplete ? 'all held, none lost' : 'STREAMS OR EVENTS WERE LOST'}`,
        '',
        ...markdownTable(
          [
            'streams held',
            `memory with ${warm} / ${count}, MB`,
            'server CPU per stream opened, ms',
            'events received / expected',
            'server CPU-s for a million events',
          ],
          [
            [
              `${held} / ${count}`,
              `${show(kbBefore / 1000)} / ${show(kbAfter / 1000)}`,
              show(measured.handshakeMs, 2),
              `${events} / ${expected}`,
              show(measured.cpuPerMillion, 1),
            ],
          ],
        ),
      ],
      data: { count, ...measured },
      failed: !isComplete,
    };
  },
});
