// app-call.js: an app's request to Pusher's HTTP API.

import { Call } from '../../../transport/http-api/call.js';
import { Holder } from '../../../transport/http-api/holder.js';

/** @import { App } from '../../../config/pusher.js' */
/** @import { DoorServices } from '../../contract.js' */

/**
 * @typedef {Pick<DoorServices['api'], 'config'|'publisher'|'fleet'|'tracker'|'historyOf'|'historyReader'
 *   |'phase'|'meters'|'readiness'|'log'>} Used
 * @typedef {Used & {counters: Pick<DoorServices['counters'], 'apps'>}} ApiServices
 */
/**
 * @typedef {Omit<ApiServices, 'meters'|'counters'> & {counters: ApiServices['meters']['counters'],
 *   appCounters: DoorServices['counters']['apps']}} RouteServices
 */

/** An app as the sender of requests. */
export class AppHolder extends Holder {
  /** @param {App} app */
  constructor(app) {
    super();
    this.app = app;
    this.name = app.key;
  }
}

/** @extends {Call<AppHolder>} */
export class AppCall extends Call {
  /**
   * @param {import('../../../transport/http-api/call.js').Meters} meters
   * @param {import('node:http').IncomingMessage} request @param {AppHolder} holder
   * @param {import('./request-signature.js').Signed} signed
   */
  constructor(meters, request, holder, signed) {
    super(meters, request, holder);
    this.signed = signed;
  }

  get app() {
    return this.key.app;
  }

  /** @param {string} name of a query parameter @returns {string|undefined} */
  parameter(name) {
    return this.signed.parameters.get(name);
  }

  /** Attributes that the query asks for. */
  get info() {
    return readInfo(this.parameter('info'));
  }
}

/** @param {string|null|undefined} text @returns {ReadonlySet<string>} */
export function readInfo(text) {
  const names = (text ?? '').split(',').map((name) => name.trim());
  return new Set(names.filter((name) => name !== ''));
}
