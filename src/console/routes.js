// routes.js: the routes of the console.
//   GET  /  /console/…                 the page, without data
//   GET  /console/api/session          the visitor's rights, and the table of charts
//   GET  /console/api/history?since=   samples after a time, and the state of the server
//   GET  /console/api/servers          all servers with their workers, as they last answered
//   GET  /console/api/limits           limits, and how often each acted
//   GET  /console/api/doctor           the doctor's findings
//   GET  /console/api/webhooks         the endpoints of webhooks, as the courier reports them
//   POST /console/api/webhooks/:endpoint/test   sends webhook.test
//   POST /console/api/actions/:route   a route of the HTTP API, or of worker/operator.js
//   GET  /console/api/tail?room=       lines of JSON: the publications of a room, as they arrive

import { Router } from 'express';
import { VERSION } from '../config/version.js';
import { examineServer } from '../doctor/doctor.js';
import { AuditLog } from '../observability/audit-log.js';
import { refusal, toHttp } from '../protocol/refusal.js';
import { ACTIONS } from '../transport/http-api/audited.js';
import { isJson, readBody } from '../transport/http-api/body.js';
import { HEADERS, readAssets } from './assets.js';
import { CHARTS } from './charts.js';
import { POINTS, SAMPLE_MS } from './history.js';
import { limitsOf } from './limits.js';

/** A body has at most a message of the largest size, as a JSON text within JSON. */
const MAX_BODY_BYTES = 4_194_304;
/** A report is read again after this time, because it opens a connection to Redis. */
const REPORT_MS = 10_000;
/** Bytes that may wait for the reader of a tail. Further lines are counted only. */
const MAX_TAIL_BYTES = 262_144;
const TAIL_BEAT_MS = 10_000;

/** @import { Config } from '../config/settings.js' */
/** @import { Answer } from '../protocol/refusal.js' */
/** @import { Actions, Outcome, Worker } from './actions.js' */
/** @import { Gate, Admitted } from './gate.js' */
/** @import { Request, Response } from 'express' */

/** @import { Beat } from '../worker/control-messages.js' */

/** One slot of the server. @typedef {{slot: number, state: string, pid: number|null}} Slot */

/**
 * @typedef {object} Server as the console sees it
 * @property {() => Config} config the one in force
 * @property {() => {ready: number, workers: number, draining: boolean}} readiness
 * @property {() => Slot[]} slots
 * @property {() => (Worker & {slot: number, state: string, beat: Omit<Beat, 'lagMs'>})[]} workers
 * @property {() => Worker|undefined} nextReady
 * @property {() => Promise<void>} collect asks the workers for the metrics of the console
 * @property {import('../observability/aggregate.js').Aggregate} aggregate of these metrics
 * @property {() => Courier|undefined} courier undefined until there were endpoints
 * @property {import('pino').Logger} log
 */

/**
 * @typedef {object} Courier the process that sends webhooks
 * @property {{endpoints: object[], partitions: number}|null} status null while it starts
 * @property {(endpoint: string) => Promise<{outcome: string, error: string}>} test
 */

/**
 * @typedef {object} Parts that the routes act with
 * @property {Server} server @property {import('./history.js').History} history
 * @property {Actions} actions @property {Gate} gate @property {import('./fleet-figures.js').FleetFigures} fleet
 * @property {() => ReadonlyMap<string, number>} totals of the last sample
 * @property {() => import('./outages.js').BrokerState} broker
 */

/** @param {Parts} parts */
export function createRoutes(parts) {
  const routes = new Routes(parts);
  const router = Router();
  const assets = readAssets();
  router.use(['/console', '/'], (request, response, next) => {
    if (request.path === '/' || request.originalUrl.startsWith('/console')) response.set(HEADERS);
    next();
  });
  router.get([...assets.keys()], async (request, response) => {
    const refused = parts.gate.refusePage(request);
    if (refused !== null) return answer(response, toHttp(refused));
    const asset = assets.get(request.path);
    if (asset === undefined) return answer(response, NOT_FOUND);
    response.set(asset.headers).end(await asset.read());
  });

  const api = Router();
  router.use('/console/api', api);
  api.use(routes.admit);
  api.get('/session', routes.session);
  api.get('/history', routes.history);
  api.get('/servers', routes.servers);
  api.get('/limits', routes.limits);
  api.get('/doctor', routes.doctor);
  api.get('/webhooks', routes.webhooks);
  api.post('/webhooks/:endpoint/test', routes.testWebhook);
  api.post('/actions/:route', routes.act);
  api.get('/tail', routes.tail);
  api.use((_request, response) => answer(response, NOT_FOUND));
  return router;
}

class Routes {
  #startedMs = Date.now();
  /** @type {WeakMap<Request, Admitted & {address: string}>} */
  #visitors = new WeakMap();
  /** @type {{atMs: number, report: ReturnType<typeof examineServer>}|null} */
  #lastReport = null;
  #audit;

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.#audit = new AuditLog(parts.server.log);
  }

  /** @param {Request} request @param {Response} response @param {() => void} next */
  admit = (request, response, next) => {
    const found = this.parts.gate.admitVisitor(request);
    if ('code' in found) {
      // A page without a key is one that has yet to ask its visitor.
      if (request.headers.authorization !== undefined)
        this.#audit.refused({
          api: 'console',
          address: addressOf(request),
          reason: found.message,
        });
      return answer(response, toHttp(found));
    }
    // The address now: a socket that is closed before the answer has none any more.
    this.#visitors.set(request, { ...found, address: addressOf(request) });
    next();
  };

  /** @param {Request} request @returns {Admitted & {address: string}} */
  #visitorOf(request) {
    return /** @type {Admitted & {address: string}} */ (this.#visitors.get(request));
  }

  /** @param {Request} request @param {Response} response */
  session = (request, response) => {
    const { name, rights } = this.#visitorOf(request);
    const config = this.parts.server.config();
    response.json({
      key: name,
      rights,
      server: config.serverId,
      version: VERSION,
      broker: config.redis === null ? 'embedded' : 'redis',
      hasTokens: config.tokens !== null,
      charts: CHARTS.map(({ id, title, help, unit }) => ({ id, title, help, unit })),
      sampleMs: SAMPLE_MS,
      points: POINTS,
    });
  };

  /** @param {Request} request @param {Response} response */
  history = (request, response) => {
    const { history, server, broker, fleet } = this.parts;
    fleet.pageAsked(Date.now());
    const since = Number(request.query.since ?? 0);
    response.json({
      ...history.samplesSince(Number.isFinite(since) ? since : 0),
      startedMs: this.#startedMs,
      readiness: server.readiness(),
      slots: server.slots(),
      broker: broker(),
      fleet: fleet.overview(),
    });
  };

  /** @param {Request} _request @param {Response} response */
  servers = async (_request, response) => {
    const { fleet } = this.parts;
    await fleet.refresh();
    response.json({ servers: fleet.servers() });
  };

  /** @param {Request} _request @param {Response} response */
  limits = (_request, response) => {
    const { server, totals } = this.parts;
    response.json({ limits: limitsOf(server.config(), totals()) });
  };

  /** @param {Request} _request @param {Response} response */
  doctor = async (_request, response) => {
    const nowMs = performance.now();
    if (this.#lastReport === null || nowMs - this.#lastReport.atMs > REPORT_MS)
      this.#lastReport = { atMs: nowMs, report: examineServer(this.parts.server.config()) };
    response.json(await this.#lastReport.report);
  };

  /** @param {Request} _request @param {Response} response */
  webhooks = (_request, response) => {
    const { config, courier } = this.parts.server;
    const { endpoints = null, partitions = 0 } = courier()?.status ?? {};
    response.json({
      isConfigured: config().webhooks?.hasEndpoints ?? false,
      endpoints,
      partitions,
    });
  };

  /** @param {Request} request @param {Response} response */
  testWebhook = async (request, response) => {
    const { rights } = this.#visitorOf(request);
    const { courier } = this.parts.server;
    if (!rights.includes('publish')) return answer(response, NO_TEST);
    const endpoint = String(request.params.endpoint);
    const result = await courier()?.test(endpoint);
    if (result === undefined) return answer(response, NOT_FOUND);
    const { outcome, error } = result;
    this.#acted(request, 'test_webhook', { endpoint }, outcome);
    response.json({ outcome, error });
  };

  /** @param {Request} request @param {Response} response */
  act = async (request, response) => {
    const { rights, rooms } = this.#visitorOf(request);
    const route = String(request.params.route);
    const received = await readCall(request);
    if (received === null) return;
    if ('status' in received) return answer(response, received);
    const { params = {}, query = {}, body = '' } = received.call;
    if (!isTexts(params) || !isTexts(query) || typeof body !== 'string')
      return answer(response, INVALID);
    const outcome = await this.parts.actions.run({ route, params, query, body, rights, rooms });
    // An operator accounts for publishing, too.
    if (ACTIONS.has(/** @type {any} */ (route)) || route === 'publish') {
      const result = outcome.status === 200 ? 'done' : fieldsIn(outcome.body).error;
      this.#acted(request, route, { ...params, ...fieldsIn(body) }, result);
    }
    answer(response, outcome);
  };

  /**
   * @param {Request} request @param {string} action @param {object} subject
   * @param {string} outcome
   */
  #acted(request, action, subject, outcome) {
    const { name, address } = this.#visitorOf(request);
    const key = name || undefined;
    this.#audit.acted({ api: 'console', key, action, subject, address, outcome });
  }

  /** @param {Request} request @param {Response} response */
  tail = (request, response) => {
    const { rights, covers } = this.#visitorOf(request);
    const room = String(request.query.room ?? '');
    if (!rights.includes('history') || !covers(room)) return answer(response, DENIED);
    let left = 0;
    /** @param {object} line */
    const write = (line) => response.write(`${JSON.stringify(line)}\n`);
    const stop = this.parts.actions.tail(room, {
      onLines: (lines, leftByWorker) => {
        left += leftByWorker;
        if (response.writableLength > MAX_TAIL_BYTES) {
          left += lines.length;
          return;
        }
        write({ lines, left });
        left = 0;
      },
      onEnd: () => response.end(),
    });
    if (stop === null) return answer(response, BUSY);
    response.set('Content-Type', 'application/x-ndjson').flushHeaders();
    // A page that is gone without a close is noticed by a write that fails.
    const beat = setInterval(() => write({ lines: [], left: 0 }), TAIL_BEAT_MS);
    response.on('close', () => {
      clearInterval(beat);
      stop();
    });
    request.on('error', () => response.destroy());
  };
}

/**
 * Reads the body of an action.
 * @param {Request} request
 * @returns {Promise<{call: Record<string, any>}|Answer|null>} null: the client has left
 */
function readCall(request) {
  if (!isJson(request)) return Promise.resolve(toHttp(refusal('UNSUPPORTED_MEDIA_TYPE')));
  return new Promise((resolve) => {
    readBody(
      request,
      MAX_BODY_BYTES,
      (body) => resolve({ call: fieldsIn(body.toString()) }),
      (reason) => resolve(reason === 'gone' ? null : CUT[reason]),
    );
  });
}

/** @param {string} body @returns {Record<string, any>} none if it is not JSON */
function fieldsIn(body) {
  try {
    return Object(JSON.parse(body));
  } catch {
    return {};
  }
}

/** @param {Request} request */
function addressOf({ socket }) {
  return socket.remoteAddress ?? '';
}

const NOT_FOUND = toHttp(refusal('NOT_FOUND'));
/** A body that is refused before its end. */
const CUT = Object.freeze({
  body_size: toHttp(refusal('BODY_TOO_LARGE')),
  body_time: toHttp(refusal('REQUEST_TIMEOUT')),
});
const INVALID = toHttp(refusal('INVALID_REQUEST'));
const BUSY = toHttp(refusal('UNAVAILABLE', 'Too many tails are open, or no worker is ready.'));
const NO_TEST = toHttp(refusal('PERMISSION_DENIED', 'This key may not publish.'));
const DENIED = toHttp(refusal('PERMISSION_DENIED', 'This key may not read messages of this room.'));

/** @param {Response} response @param {Outcome & Partial<Answer>} outcome */
function answer(response, { status, headers = {}, body }) {
  response
    .status(status)
    .set({ ...headers, 'Content-Type': 'application/json' })
    .end(body);
}

/** @param {unknown} value @returns {value is Record<string, string>} */
function isTexts(value) {
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.values(value).every((one) => typeof one === 'string')
  );
}
