// doors.js: the public port of a worker, and what it hands requests to.
//   HTTP server -> WebSockets, streams, or an HTTP API

import { EventStreams } from '../doors/native/sse.js';
import { Heartbeat } from '../hub/heartbeat.js';
import { DoorStreams } from '../transport/door-streams.js';
import { HttpServer } from '../transport/http-server.js';
import { WebSockets } from '../transport/websocket.js';

/** @import { OpenDoor } from '../doors/contract.js' */
/** @import { HttpApi } from '../transport/http-api/http-api.js' */
/** @import { Basics } from './basics.js' */

export class Doors {
  /**
   * @param {Basics} basics @param {object} parts
   * @param {import('../hub/hub.js').Hub} parts.hub @param {import('./entry.js').Entry} parts.entry
   * @param {import('../doors/native/index.js').Commands} parts.commands
   * @param {import('../operations/index.js').Operations} parts.operations
   * @param {import('./relocation.js').Relocations} parts.relocations
   * @param {HttpApi|null} parts.api null if no API keys are configured
   * @param {readonly OpenDoor[]} parts.others the doors beside the native one
   * @param {import('../config/certificate.js').Certificate|null} parts.certificate
   * @param {() => string|null} parts.readiness null if ready; otherwise the reason
   */
  constructor(basics, parts) {
    const { hub, entry, commands, operations, relocations, api, others, certificate, readiness } =
      parts;
    const { config, log, phase, counters, turn } = basics;
    const { limiter } = entry;
    const heartbeat = (this.heartbeat = new Heartbeat({
      intervalMs: config.pingIntervalMs,
      timeoutMs: config.pongTimeoutMs,
      maxAgeMs: config.maxConnectionAgeMs,
      onAge: (connection) => relocations.closeAged(connection),
      counters,
    }));
    const common = { config, hub, heartbeat, counters };
    const admitFrame = (/** @type {{fullAt: number}} */ allowance) =>
      limiter.admitFrame(allowance, performance.now());
    const websockets = (this.websockets = new WebSockets({
      ...common,
      door: commands.door,
      turn,
      admitFrame: config.framesPerMinuteMode === 'off' ? null : admitFrame,
    }));
    const streams =
      config.sse === 'off'
        ? null
        : new EventStreams({
            ...common,
            operations,
            admitStream: (address, user, rooms, isReturning) =>
              limiter.admitStream(address, performance.now(), rooms, user, isReturning),
            overRateText: entry.overRateText,
          });
    this.api = api;
    this.others = others;
    this.http = new HttpServer({
      config,
      certificate,
      admission: entry.admission,
      streams,
      api,
      doors: others.map(({ streams = null, ...door }) => ({
        ...door,
        streams: streams && new DoorStreams({ ...common, door: streams }),
      })),
      onUpgrade: (request, socket, head, { address, credentials }, door) =>
        websockets.upgrade(
          request,
          socket,
          head,
          address,
          credentials,
          door?.doorFor?.(request) ?? door?.door,
        ),
      readiness,
      phase,
      log,
      counters,
      turn,
    });
  }

  /** @returns {Promise<{port: number, address: string}>} */
  open() {
    return this.http.listen();
  }

  /** Call it once a second. @param {number} nowMs */
  sweep(nowMs) {
    this.websockets.sweep(nowMs);
    for (const door of this.others) door.sweep(nowMs);
  }

  /** Waits for the requests of the HTTP APIs. @param {number} timeoutMs */
  async drainApis(timeoutMs) {
    await Promise.all([this.api, ...this.others].map((api) => api?.drain(timeoutMs)));
  }

  /** The public port stays open for last answers. */
  close() {
    for (const door of this.others) door.close();
  }
}
