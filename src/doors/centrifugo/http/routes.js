// routes.js: the methods of Centrifugo's server API, and `batch`, which carries out several.

import { audited } from '../../../transport/http-api/audited.js';
import { ApiFault } from '../../../transport/http-api/fault.js';
import { payload, present, readFields } from '../../../transport/http-api/fields.js';
import { inParallel } from '../../../transport/http-api/in-parallel.js';
import { DoorError } from '../codec/errors.js';
import { errorOf, hasStatus, StatusFault } from './answers.js';
import { ControlMethods } from './control.js';
import { flag, text, UNSUPPORTED } from './fields.js';
import { LookMethods } from './look.js';
import { PublishMethods } from './publish.js';

const ERROR_MODE = 'x-centrifugo-error-mode';
/** Of the replies of a batch. Each may have 4 MB of history, so later commands are refused. */
const MAX_REPLY_BYTES = 4 * 1024 * 1024;

/** @import { AppRoute } from '../../../transport/http-api/app.js' */
/** @import { Call } from '../../../transport/http-api/call.js' */
/** @import { Shape, Slice } from '../../../transport/http-api/fields.js' */
/** @import { Method, MethodServices } from './method.js' */

/** @param {MethodServices} services @returns {Readonly<Record<string, Method>>} by name */
function methodsOf(services) {
  const { publish, broadcast } = new PublishMethods(services);
  const { subscribe, unsubscribe, disconnect, refresh } = new ControlMethods(services);
  const look = new LookMethods(services);
  return {
    publish,
    broadcast,
    subscribe,
    unsubscribe,
    disconnect,
    refresh,
    presence: look.presence,
    presence_stats: look.presenceStats,
    history: look.history,
    history_remove: look.historyRemove,
    channels: look.channels,
    info: look.info,
    rpc: { route: 'centrifugo_rpc', shape: { method: text }, run: noRpc },
  };
}

/**
 * @param {string} base the configured path
 * @param {MethodServices} services @returns {readonly AppRoute<Call>[]}
 */
export function routesOf(base, services) {
  const { log } = services;
  const methods = methodsOf(services);
  const routes = Object.entries(methods).map(([name, method]) =>
    post(base, name, method.route, async (call) => {
      const isByStatus = call.headers[ERROR_MODE] === 'transport';
      try {
        return resultOf(await run(method, call, call.body));
      } catch (error) {
        if (hasStatus(error)) throw error;
        const found = errorOf(error, log);
        if (isByStatus) throw new StatusFault(found);
        return { error: found };
      }
    }),
  );
  const batch = new Batch(methods, log);
  return [...routes, post(base, 'batch', 'centrifugo_batch', batch.run)];
}

/**
 * @param {string} base @param {string} method
 * @param {AppRoute<Call>['name']} name @param {AppRoute<Call>['handle']} handle
 * @returns {AppRoute<Call>}
 */
function post(base, method, name, handle) {
  return { method: 'post', path: `${base}/${method}`, name, handle };
}

/** @param {Method} method @param {Call} call @param {Buffer} body with its fields */
function run({ route, shape, run: carryOut }, call, body) {
  let fields = {};
  return audited(
    call,
    route,
    async () => {
      fields = readRequest(body, shape);
      return carryOut(fields, call, body);
    },
    () => fields,
  );
}

class Batch {
  /** @param {Readonly<Record<string, Method>>} methods @param {MethodServices['log']} log */
  constructor(methods, log) {
    this.methods = methods;
    this.log = log;
    /** @type {Shape} */
    this.shape = {
      commands: {
        items: Object.fromEntries(Object.keys(methods).map((name) => [name, payload])),
        mayBeEmpty: true,
      },
      parallel: flag,
    };
  }

  /** `POST batch` @param {Call} call */
  run = async (call) => {
    const { commands = [], parallel = false } = this.#readBatch(call.body);
    call.charge(commands.length - 1);
    let bytes = 0;
    const reply = async (/** @type {Record<string, Slice>} */ one) => {
      const part = await this.#reply(call, one, bytes < MAX_REPLY_BYTES);
      bytes += part.length;
      return part;
    };
    const replies = await inParallel(commands, reply, parallel ? undefined : 1);
    const parts = replies.flatMap((one, index) => (index === 0 ? [one] : [COMMA, one]));
    return Buffer.concat([HEAD, ...parts, TAIL]);
  };

  /** @param {Buffer} body @throws {ApiFault} there is no other answer than a status */
  #readBatch(body) {
    try {
      return readRequest(body, this.shape);
    } catch (error) {
      if (!(error instanceof DoorError)) throw error;
      throw new StatusFault({ code: error.code, message: error.message });
    }
  }

  /** @param {Call} call @param {Record<string, Slice>} command @param {boolean} hasRoom */
  async #reply(call, command, hasRoom) {
    try {
      if (!hasRoom) {
        call.meters.counters.readsRefused++;
        throw new DoorError(106, 'the replies are too large');
      }
      // Only the first method that is set counts.
      const name = Object.keys(this.methods).find((one) => command[one] !== undefined);
      if (name === undefined) throw new DoorError(104);
      const { start, end } = command[name];
      const body = call.body.subarray(start, end);
      return around(`{"${name}":`, await run(this.methods[name], call, body));
    } catch (error) {
      return Buffer.from(JSON.stringify({ error: errorOf(error, this.log) }));
    }
  }
}

const LENIENT = Object.freeze({ ignoresUnknown: true });
const HEAD = Buffer.from('{"replies":[');
const TAIL = Buffer.from(']}');
const COMMA = Buffer.from(',');

/** @param {Buffer} body @param {Shape} shape @throws {ApiFault|DoorError} */
function readRequest(body, shape) {
  try {
    return present(readFields(body, shape, LENIENT));
  } catch (error) {
    if (!(error instanceof ApiFault) || error.code !== 'INVALID_FIELD') throw error;
    const { field = '', message } = error;
    if (shape[field] === UNSUPPORTED) throw new DoorError(108, `${field} is not supported`);
    throw new DoorError(107, message);
  }
}

/** @param {object|Buffer} result */
function resultOf(result) {
  return around('{"result":', result);
}

/** @param {string} before @param {object|Buffer} result */
function around(before, result) {
  const json = Buffer.isBuffer(result) ? result : Buffer.from(JSON.stringify(result));
  return Buffer.concat([Buffer.from(before), json, Buffer.from('}')]);
}

/** @type {Method['run']} */
async function noRpc({ method = '' }) {
  if (method === '') throw new DoorError(107, 'method is required');
  throw new DoorError(104, 'there are no methods for rpc');
}
