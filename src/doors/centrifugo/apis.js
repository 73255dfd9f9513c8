// apis.js: several HTTP APIs of one door, by path.

import { partsOf } from '../../protocol/url-parts.js';

/** @import { Answer } from '../../protocol/refusal.js' */
/** @import { Api, ApiCall } from '../../transport/route.js' */
/** @import { IncomingMessage } from 'node:http' */

/** @typedef {{isPath: (path: string) => boolean, api: Api}} Part `isPath`: of the raw path */

/** @implements {Api} */
export class JoinedApis {
  /** Whose a request is. @type {WeakMap<ApiCall, Api>} */
  #owners = new WeakMap();

  /** @param {readonly Part[]} parts */
  constructor(parts) {
    this.parts = parts;
  }

  /** @param {string} path raw, without the query */
  isPath(path) {
    return this.parts.some((part) => part.isPath(path));
  }

  /** @param {IncomingMessage} request @param {boolean} hasBody @returns {ApiCall|Answer} */
  begin(request, hasBody) {
    const { path } = partsOf(request.url);
    const { api } = /** @type {Part} */ (this.parts.find((part) => part.isPath(path)));
    const call = api.begin(request, hasBody);
    if (!('status' in call)) this.#owners.set(call, api);
    return call;
  }

  /** @type {Api['handle']} */
  handle(call, ...rest) {
    /** @type {Api} */ (this.#owners.get(call)).handle(call, ...rest);
  }
}
