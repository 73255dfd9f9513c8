// app-of.js: the app that a handshake names, if it may be used so.

import { createOriginCheck } from '../../admission/origin.js';
import { compileTrustProxy } from '../../config/trust-proxy.js';
import { partsOf } from '../../protocol/url-parts.js';
import { noApp, PUSHER_CLOSES, PusherClose } from './codec/closes.js';

const MIN_VERSION = 4;
const MAX_VERSION = 7;
const APP_PATH = /^\/app\/([^/]+)$/;

/** @import { App } from '../../config/pusher.js' */
/** @import { Config } from '../../config/settings.js' */
/** @import { IncomingMessage } from 'node:http' */

/** @param {string} path without the query and the configured prefix */
export function isAppPath(path) {
  return APP_PATH.test(path);
}

/** @param {Config} config @returns {(request: IncomingMessage) => App|PusherClose} */
export function createAppOf({ pusher, trustProxy }) {
  const { apps = [], byKey = new Map(), pathPrefix = '' } = pusher ?? {};
  const trustsProxy = compileTrustProxy(trustProxy);
  /** May pages of that origin use the app? By id. */
  const isOriginOf = new Map(apps.map(({ id, origins }) => [id, createOriginCheck(origins)]));
  return ({ url, headers, socket }) => {
    const { path, query } = partsOf(url);
    const own = path.startsWith(`${pathPrefix}/`) ? path.slice(pathPrefix.length) : path;
    const key = (APP_PATH.exec(own) ?? APP_PATH.exec(path))?.[1] ?? '';
    const app = byKey.get(key);
    if (app === undefined) return noApp(key);
    if (!app.isEnabled) return PUSHER_CLOSES.APP_DISABLED;
    const isFromProxy = trustsProxy?.(socket.remoteAddress ?? '', 0) === true;
    const hasTls = isFromProxy && headers['x-forwarded-proto'] === 'https';
    const isEncrypted = 'encrypted' in socket && socket.encrypted;
    if (app.tlsOnly && !hasTls && !isEncrypted) return PUSHER_CLOSES.TLS_ONLY;
    const version = new URLSearchParams(query).get('protocol');
    if (version !== null && !/^\d{1,9}$/.test(version)) return PUSHER_CLOSES.INVALID_VERSION;
    if (version !== null && (Number(version) < MIN_VERSION || Number(version) > MAX_VERSION))
      return PUSHER_CLOSES.UNSUPPORTED_VERSION;
    // Admission has checked ALLOWED_ORIGINS, which an app's own list only narrows.
    return isOriginOf.get(app.id)?.(headers.origin) ? app : PUSHER_CLOSES.ORIGIN;
  };
}
