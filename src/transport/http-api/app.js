// app.js: the express application that an HTTP API's table of routes is built into.

import express from 'express';
import { nearest } from '../../config/nearest.js';
import { quoted } from '../../protocol/refusal.js';
import { ApiFault, faultOf } from './fault.js';

/** @import { Answer } from '../http-answers.js' */
/** @import { Call, Log, RouteName } from './call.js' */

/**
 * @template {Call<any>} C
 * @typedef {object} AppRoute
 * @property {'get'|'post'|'delete'} method @property {string} path in the notation of express
 * @property {RouteName} name for metrics
 * @property {(call: C) => Promise<object|Buffer>} handle resolves with the body of the answer, as an
 *   object or as JSON text; rejects with an ApiFault, or an error of the backend
 */

/**
 * Builds the application. The body of a request has been read before.
 * @template {Call<any>} C @param {readonly AppRoute<C>[]} routes @param {object} parts
 * @param {(request: import('node:http').IncomingMessage) => C} parts.callOf
 * @param {(fault: ApiFault) => Answer} parts.toAnswer @param {Log} parts.log
 */
export function createApp(routes, { callOf, toAnswer, log }) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', false);
  app.enable('case sensitive routing');
  app.enable('strict routing');
  /** @param {C} call @param {import('node:http').ServerResponse} response @param {ApiFault} fault */
  const refuse = (call, response, fault) => {
    const { status, headers, body } = toAnswer(fault);
    call.answer(response, status, headers, body);
  };
  for (const { method, path, name, handle } of routes) {
    app[method](path, async (request, response) => {
      const call = callOf(request);
      call.routed(name, /** @type {Record<string, string>} */ (request.params));
      try {
        const result = await handle(call);
        call.answer(response, 200, {}, Buffer.isBuffer(result) ? result : JSON.stringify(result));
      } catch (error) {
        refuse(call, response, faultOf(error, log));
      }
    });
  }
  /** The methods of each path. @type {Map<string, string[]>} */
  const methods = new Map();
  for (const { path, method } of routes) {
    const others = method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()];
    methods.set(path, [...(methods.get(path) ?? []), ...others]);
  }
  for (const [path, allowed] of methods) {
    app.all(path, (request, response) => {
      response.setHeader('Allow', allowed.join(', '));
      const message = `This path takes ${allowed.join(' or ')}, not ${request.method}.`;
      refuse(callOf(request), response, new ApiFault('METHOD_NOT_ALLOWED', { message }));
    });
  }
  // A path with parameters may resemble any other.
  const fixed = [...methods.keys()].filter((path) => !path.includes(':'));
  app.use((request, response) => {
    const meant = nearest(request.path, fixed);
    const hint = meant === '' ? '' : ` Did you mean ${meant}?`;
    const message = `There is no path ${quoted(request.path)}.${hint}`;
    refuse(callOf(request), response, new ApiFault('NOT_FOUND', { message }));
  });
  /**
   * A path that cannot be decoded. Express recognizes an error handler by its four parameters.
   * @param {Error & {status?: number}} error @param {import('express').Request} request
   * @param {import('express').Response} response @param {import('express').NextFunction} _next
   */
  const onError = (error, request, response, _next) => {
    const isClients = error.status === 400;
    const fault = isClients ? new ApiFault('INVALID_REQUEST') : faultOf(error, log);
    refuse(callOf(request), response, fault);
  };
  app.use(onError);
  return app;
}
