// relay-server.js: the relay, hosted by the primary: the links of its workers, their bus
// (relay-bus.js) and their places (server-places.js). Publications go through this Unix socket, not
// through the cluster's IPC channel.
//   worker --PUBLISH--> relay --PUBLICATION--> every worker subscribed to the room
//                                            (the publisher too)
//   worker --APPEND--> relay, which stores it --PUBLICATION--> the same workers, in
//                                            rooms with history
//
// When a link ends, the relay releases everything its worker held, so a crash leaves nothing
// behind.

import { createServer } from 'node:net';
import { BusPort } from './bus-port.js';
import { RelayBus } from './relay-bus.js';
import { MalformedMessage } from './relay-wire.js';
import { ServerPlaces } from './server-places.js';
import { makeSocketFolder, removeSocketFolder, sweepSocketFolders } from './socket-folder.js';
import { WorkerLink } from './worker-link.js';

const MAX_PENDING_BYTES = 64 * 1024 * 1024;
/** Queued publications. With one more of the largest size, still below MAX_PENDING_BYTES. */
const MAX_BACKLOG_BYTES = 16 * 1024 * 1024;

/** @import { Socket } from 'node:net' */
/** @import { BusOptions } from './relay-bus.js' */
/** @import { LinkOwner } from './worker-link.js' */

/**
 * @typedef {object} RelayOptions
 * @property {import('pino').Logger} log
 * @property {number} [maxBacklogBytes] publications queued for one worker
 * @property {number} [maxPendingBytes] everything queued for one worker
 * @property {(pid: number) => void} [onHung] a worker does not read its answers
 */

/** @implements {LinkOwner} */
export class RelayServer {
  /** The path of the socket; empty before `start`. */
  path = '';
  /** @type {import('node:net').Server|null} */
  server = null;
  /** Removes folders left behind by killed primaries. @type {Promise<void>} */
  swept = Promise.resolve();
  /** Links that `onDropped` was called for. */
  droppedLinks = 0;
  /** Links with something to write at the end of this tick. @type {WorkerLink[]} */
  #writing = [];

  /** @param {RelayOptions & BusOptions} options */
  constructor({
    log,
    maxBacklogBytes = MAX_BACKLOG_BYTES,
    maxPendingBytes = MAX_PENDING_BYTES,
    onHung = () => {},
    ...options
  }) {
    this.log = log;
    this.maxBacklogBytes = maxBacklogBytes;
    this.maxPendingBytes = maxPendingBytes;
    this.onHung = onHung;
    this.bus = new RelayBus({ log, ...options });
    this.places = new ServerPlaces(log);
    this.flush = this.flush.bind(this);
    this.removeFolder = this.removeFolder.bind(this);
  }

  async start() {
    this.path = await makeSocketFolder();
    process.once('exit', this.removeFolder);
    this.swept = sweepSocketFolders(this.path).catch((error) =>
      this.log.debug({ err: error }, 'relay: cannot remove old temporary folders'),
    );
    const server = createServer((socket) => this.#serverOnConnection(socket));
    this.server = server;
    await new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.path, () => resolve(undefined));
    });
    server.on('error', (error) => this.log.error({ err: error }, 'relay: server error'));
  }

  /** @param {Socket} socket */
  #serverOnConnection(socket) {
    const link = new WorkerLink(socket, this);
    const port = new BusPort(this.bus, link);
    const places = this.places.join(link);
    link.open({
      onMessage: (op, buffer, start, end) => port.receive(op, buffer, start, end),
      onControl: (message) => {
        if (port.control(message) || places.control(message)) return;
        throw new MalformedMessage('control message for workers, not for the relay');
      },
      onDrain: () => port.drain(),
      onClose: () => {
        port.close();
        places.close();
        this.log.debug({ pid: link.pid }, 'relay: worker disconnected');
      },
    });
  }

  /** @type {LinkOwner['onDropped']} */
  onDropped(isHung, pid) {
    this.droppedLinks++;
    if (isHung) this.onHung(pid);
  }

  /** Ends all links and removes the socket. May be called twice. */
  async close() {
    const { server } = this;
    this.server = null;
    if (server === null) return;
    this.bus.close();
    this.places.close();
    this.flush();
    const closed = new Promise((resolve) => server.close(resolve));
    for (const { socket } of this.bus.links) socket.destroy();
    await closed;
    process.off('exit', this.removeFolder);
    this.removeFolder();
  }

  removeFolder() {
    removeSocketFolder(this.path);
  }

  /** @param {WorkerLink} link with something to write */
  schedule(link) {
    if (this.#writing.length === 0) setImmediate(this.flush);
    this.#writing.push(link);
  }

  flush() {
    const writing = this.#writing;
    this.#writing = [];
    for (const link of writing) link.flush();
  }
}
