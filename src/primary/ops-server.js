// ops-server.js: the operations port: metrics of all workers, liveness, readiness, the console. It
// is not for the public and listens on the loopback address by default (METRICS_HOST).

import { createServer } from 'node:http';
import express from 'express';
import { CONTENT_TYPE } from '../observability/registry.js';

const REQUEST_TIMEOUT_MS = 10_000;
const MAX_SOCKETS = 256;

export class OpsServer {
  /**
   * @param {object} parts
   * @param {number} parts.port 0 takes any free one
   * @param {string} parts.host
   * @param {() => Promise<string>} parts.metrics in Prometheus' text format; the caller bounds its
   *   time
   * @param {() => {ready: number, workers: number, draining: boolean}} parts.readiness
   * @param {import('express').Router|null} [parts.pages] the console's routes
   * @param {import('pino').Logger} parts.log
   */
  constructor({ port, host, metrics, readiness, pages = null, log }) {
    this.port = port;
    this.host = host;
    this.log = log;
    this.server = createServer(
      {
        headersTimeout: REQUEST_TIMEOUT_MS,
        requestTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: 1000,
      },
      routes(metrics, readiness, pages, log),
    );
    this.server.maxConnections = MAX_SOCKETS;
  }

  /** @returns {Promise<number>} the port; rejects if it is in use or not permitted */
  start() {
    const { server, port, host } = this;
    return new Promise((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, () => {
        server.off('error', reject);
        server.on('error', (error) => this.log.error({ err: error }, 'operations port'));
        resolve(/** @type {import('node:net').AddressInfo} */ (server.address()).port);
      });
    });
  }

  /** @returns {Promise<void>} */
  async close() {
    if (!this.server.listening) return;
    await new Promise((resolve) => {
      this.server.close(resolve);
      this.server.closeAllConnections();
    });
  }
}

/**
 * @param {() => Promise<string>} metrics
 * @param {() => {ready: number, workers: number, draining: boolean}} readiness
 * @param {import('express').Router|null} pages
 * @param {import('pino').Logger} log
 */
function routes(metrics, readiness, pages, log) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.get('/metrics', async (_request, response) => {
    response.set('Content-Type', CONTENT_TYPE).send(await metrics());
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
    response.status(404).json({ error: 'NOT_FOUND', message: 'Not found.' });
  });
  /**
   * Express recognizes an error handler by its four parameters.
   * @param {Error & {status?: number}} error
   * @param {import('express').Request} request
   * @param {import('express').Response} response
   * @param {import('express').NextFunction} _next
   */
  const onError = (error, request, response, _next) => {
    // A path that can't be decoded is a fault of the client and arrives here with its status.
    const status = error.status ?? 500;
    if (status >= 500) log.error({ err: error, path: request.path }, 'operations port');
    response
      .status(status)
      .json({ error: status >= 500 ? 'INTERNAL_ERROR' : 'BAD_REQUEST', message: 'That failed.' });
  };
  app.use(onError);
  return app;
}
