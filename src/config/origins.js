// origins.js: origins of pages, as settings list them, and which of them a request comes from.
//
//   https://chat.example       that origin (RFC 6454 5: scheme, host and port are equal)
//   https://*.chat.example     each origin with one label in place of the star: a preview of a
//                              hosting service, or a customer. Not chat.example itself

/** Stands for the star while URL reads the host, which it brings into the form of browsers. */
const STAND_IN = 'star--label';
/** A label of a host name. Browsers send it in lower case. */
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/** What a setting for origins accepts, for messages. */
export const AN_ORIGIN = 'scheme://host[:port], or scheme://*.host[:port] for one label; no path';

/**
 * @param {string} text @returns {string} in the form of browsers, perhaps with a star; '': it is no
 *   origin, or its star stands elsewhere, or before a top-level domain, where anybody has a name
 */
export function normalOrigin(text) {
  const [, scheme = '', rest = ''] = /^([a-z][a-z0-9+.-]*:\/\/)\*\.(.+)$/i.exec(text) ?? [];
  if (rest === '') return plainOrigin(text);
  const origin = plainOrigin(`${scheme}${STAND_IN}.${rest}`);
  const [, host = ''] = origin.split(`${STAND_IN}.`);
  if (!host.includes('.') && !/^localhost(?::|$)/.test(host)) return '';
  return origin.replace(STAND_IN, '*');
}

/** @param {string} text @returns {string} '': it is none */
function plainOrigin(text) {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/\\?#@*\s]+$/i.test(text) || !URL.canParse(text)) return '';
  const url = new URL(text);
  if (url.host === '') return '';
  // URL has no origin for non-web schemes (capacitor://localhost), but their web views send one.
  return url.origin === 'null' ? `${url.protocol}//${url.host}` : url.origin;
}

/**
 * @param {readonly string[]} origins as normalOrigin returns them
 * @returns {(origin: string) => boolean} is the origin of a request one of them?
 */
export function originMatcher(origins) {
  const isStarred = (/** @type {string} */ origin) => origin.includes('://*.');
  const exact = new Set(origins.filter((origin) => !isStarred(origin)));
  const starred = new Set(origins.filter(isStarred));
  if (starred.size === 0) return (origin) => exact.has(origin);
  return (origin) => {
    if (exact.has(origin)) return true;
    const start = origin.indexOf('://') + 3;
    const end = origin.indexOf('.', start);
    if (start < 3 || end < 0 || !LABEL.test(origin.slice(start, end))) return false;
    return starred.has(`${origin.slice(0, start)}*${origin.slice(end)}`);
  };
}
