// ops-server.js: the operations port: metrics of all workers, liveness, readiness, the console. It
// is not public, and listens on the loopback address by default (METRICS_HOST).
//
// An orchestrator restarts a server if probes fail, so other requests must not block them: probes
// have a turnstile of their own. If all sockets are taken, the address with most of them loses one.

import { createServer } from 'node:http';
import express from 'express';
import { CONTENT_TYPE } from '../observability/aggregate.js';
import { refusal, toHttp } from '../protocol/refusal.js';
import { Crowd } from '../transport/crowd.js';
import { Scrape } from './scrape.js';
import { Turnstile } from './turnstile.js';

const REQUEST_TIMEOUT_MS = 10_000;
/** A socket that takes no bytes for this time is closed. A tail has a beat every 10 s. */
const STALL_TIMEOUT_MS = 30_000;
const MAX_SOCKETS = 256;
/** 256 sockets of one address have their answers within half a second. */
const PROBES = { perSecond: 500, burst: 100 };
/** Scrapes and the console, whose page reads 30 files, then sends a request every two seconds. */
const OTHERS = { perSecond: 50, burst: 200 };
const PROBE_PATHS = new Set(['/livez', '/readyz']);

/** @import { NextFunction, Router } from 'express' */
/** @import { IncomingMessage, ServerResponse } from 'node:http' */
/** @import { AddressInfo, Socket } from 'node:net' */
/** @import { Logger } from 'pino' */

export class OpsServer {
  /** @type {Crowd<Socket>} */
  #crowd = new Crowd();
  /** @type {Map<Socket, {address: string, group: import('../transport/crowd.js').Group<Socket>|null}>} */
  #sockets = new Map();

  /**
   * @param {object} parts @param {number} parts.port 0 takes any free one
   * @param {string} parts.host
   * @param {() => Promise<string>} parts.metrics in Prometheus' text format, in bounded time
   * @param {() => {ready: number, workers: number, draining: boolean}} parts.readiness
   * @param {Router|null} [parts.pages] the console's routes @param {Logger} parts.log
   */
  constructor({ port, host, metrics, readiness, pages = null, log }) {
    this.port = port;
    this.host = host;
    this.log = log;
    /** Sockets closed by this file, by reason. */
    this.closed = { full: 0, pipelined: 0 };
    this.probes = new Turnstile(PROBES);
    this.others = new Turnstile(OTHERS);
    this.app = routes(new Scrape(metrics), readiness, pages, log);
    this.server = createServer(
      {
        headersTimeout: REQUEST_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: 1000,
      },
      (request, response) => this.#takeRequest(request, response),
    );
    this.server.timeout = STALL_TIMEOUT_MS;
    this.server.on('connection', (socket) => this.#connected(socket));
  }

  /** @returns {Promise<number>} the port; rejects if it is in use or not permitted */
  start() {
    const { server, port, host } = this;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.off('error', reject);
        server.on('error', (error) =>
          this.log.error({ err: error }, 'operations port: server error'),
        );
        resolve(/** @type {AddressInfo} */ (server.address()).port);
      });
    });
  }

  async close() {
    this.probes.close();
    this.others.close();
    if (!this.server.listening) return;
    await new Promise((resolve) => {
      this.server.close(resolve);
      this.server.closeAllConnections();
    });
  }

  /** @param {Socket} socket */
  #connected(socket) {
    const oldest = this.#crowd.size < MAX_SOCKETS ? undefined : this.#crowd.oldest();
    if (oldest !== undefined) this.#discard(oldest, 'full');
    const address = socket.remoteAddress ?? '';
    this.#sockets.set(socket, { address, group: this.#crowd.add(socket, address) });
    socket.on('close', () => this.#leave(socket));
  }

  /** @param {IncomingMessage} request @param {ServerResponse} response */
  #takeRequest(request, response) {
    const { socket } = request;
    const place = this.#sockets.get(socket);
    if (place === undefined) return; // the socket has been closed
    // Behind a request without an answer. A read has room for thousands of them.
    if (response.socket === null) return this.#discard(socket, 'pipelined');
    this.#crowd.delete(socket, place.group);
    place.group = this.#crowd.add(socket, place.address); // now the last of its address
    const path = request.url?.split('?', 1)[0] ?? '';
    const turnstile = PROBE_PATHS.has(path) ? this.probes : this.others;
    const leave = turnstile.waitInLine(place.address, () => this.app(request, response));
    response.on('close', leave);
  }

  /** @param {Socket} socket @param {keyof OpsServer['closed']} reason */
  #discard(socket, reason) {
    this.closed[reason]++;
    this.#leave(socket);
    socket.destroy();
  }

  /** @param {Socket} socket */
  #leave(socket) {
    const place = this.#sockets.get(socket);
    if (place === undefined) return;
    this.#sockets.delete(socket);
    this.#crowd.delete(socket, place.group);
  }
}

/**
 * @param {Scrape} scrape
 * @param {() => {ready: number, workers: number, draining: boolean}} readiness
 * @param {Router|null} pages @param {Logger} log
 */
function routes(scrape, readiness, pages, log) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.get('/metrics', async (_request, response) => {
    response.set('Content-Type', CONTENT_TYPE).send(await scrape.read());
  });
  app.get('/livez', (_request, response) => {
    response.json({ status: 'alive' });
  });
  app.get('/readyz', (_request, response) => {
    const state = readiness();
    const isReady = state.ready > 0 && !state.draining;
    const status = isReady ? 'ready' : state.draining ? 'draining' : 'starting';
    response.status(isReady ? 200 : 503).json({ status, ...state });
  });
  if (pages !== null) app.use(pages);
  app.use((_request, response) => {
    response
      .status(404)
      .type('json')
      .end(toHttp(refusal('NOT_FOUND')).body);
  });
  /**
   * Express recognizes an error handler by its four parameters.
   * @param {Error & {status?: number}} error @param {import('express').Request} request
   * @param {import('express').Response} response @param {NextFunction} _next
   */
  const onError = (error, request, response, _next) => {
    // A path that can't be decoded is a fault of the client and arrives here with its status.
    const status = error.status ?? 500;
    if (status >= 500)
      log.error({ err: error, path: request.path }, 'operations port: a request failed');
    const code = status >= 500 ? 'INTERNAL_ERROR' : 'INVALID_REQUEST';
    response
      .status(status)
      .type('json')
      .end(toHttp(refusal(code, 'That failed.')).body);
  };
  app.use(onError);
  return app;
}
