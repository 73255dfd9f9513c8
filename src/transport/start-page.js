// start-page.js: what a person reads who opens the public port in a browser. Clients never ask for
// it: they open a WebSocket, or do not name text/html in Accept.

/** @import { Answer } from '../protocol/refusal.js' */
/** @import { IncomingMessage } from 'node:http' */

/** Statuses of a path without a page. */
const STATUSES = new Set([404, 426]);
const HEADERS = Object.freeze({
  'Content-Type': 'text/html; charset=utf-8',
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cache-Control': 'public, max-age=300',
  Vary: 'Accept',
});
/** One page for each message, of which there are a few. @type {Map<string, string>} */
const pages = new Map();

/**
 * The same answer for a person, if the request is a browser's.
 * @param {Pick<IncomingMessage, 'method'|'headers'>} request @param {Answer} answer
 * @returns {Answer}
 */
export function forPerson({ method, headers: { accept = '' } }, answer) {
  const { status, headers, body } = answer;
  if (!STATUSES.has(status) || method !== 'GET' || !accept.includes('text/html')) return answer;
  let page = pages.get(body);
  if (page === undefined) {
    page = pageOf(status === 426 ? '' : JSON.parse(body).message);
    pages.set(body, page);
  }
  return { status, headers: { ...headers, ...HEADERS }, body: page };
}

/** @param {string} message of the refusal; '': the path is right, and the page is no client */
function pageOf(message) {
  const first =
    message === ''
      ? 'This port is for clients: pages connect to it with JavaScript, at <code>/ws</code>.'
      : message.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Fanfare</title>
<h1>Fanfare is running</h1>
<p>${first}
<ul>
<li>Try it in a terminal: <code>npm run hello</code>
<li>See rooms, clients and messages in the console: <a href="http://localhost:9090/">localhost:9090</a> on the server's machine (<code>METRICS_PORT</code>)
<li>Build a first page: <code>docs/getting-started.md</code>
<li>Publish from a backend: <code>API_KEYS</code> turns the HTTP API on
<li>Use clients of Pusher or Centrifugo: <code>FANFARE_PUSHER_APPS</code>, <code>FANFARE_CENTRIFUGO=on</code>
<li>Health checks: <code>/livez</code>, <code>/readyz</code>
</ul>
</html>
`;
}
