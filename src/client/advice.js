// advice.js: what the client tells a developer: sentences for its own errors, and mistakes in
// calls.
//
// The plain scripts of dist/ leave all of this out: their build defines FANFARE_BRIEF, so esbuild
// drops each branch that leads here. They keep short texts, for which they have fewer kilobytes.

/** Advice by code. @type {Readonly<Record<string, string>>} */
const SENTENCES = {
  OFFLINE:
    "There is no connection, and the message was not sent. Await connect() first, or set { offline: 'queue' }",
  QUEUE_FULL:
    'As many messages wait for a connection or a reply as maxPending permits, and this one was not sent',
  OUTCOME_UNKNOWN:
    'The connection broke before the reply. The server may have carried out the command, or not',
  CLOSED:
    'The client is closed, or this handle of the room has left. Call connect(), or join() the room again',
  TOKEN_UNAVAILABLE: 'The token function failed',
  STATE_UNAVAILABLE: 'The function recoverFailed failed',
  BUFFER_FULL: 'The async iterator was read too slowly, and messages were dropped',
  REFUSED: 'The server refused the connection',
};

/**
 * @param {string} code @param {unknown} [cause] the error of the application's function
 * @returns {string} with a place in the guide
 */
export function sentenceOf(code, cause) {
  if (code === 'TOKEN_UNAVAILABLE' && cause === undefined) cause = 'it took longer than 15 s';
  const sentence = SENTENCES[code] ?? 'The command was refused';
  const why = cause === undefined ? '' : `: ${/** @type {Error} */ (cause)?.message ?? cause}`;
  return `${sentence}${why}. See docs/client.md#${code}`;
}

export const NO_WEBSOCKET =
  'There is no global WebSocket. In Node 20, import the client from fanfare/client (fanfare-client/node) with "ws" installed, or pass its class: new Fanfare(url, { WebSocket })';
export const NO_PAYLOAD =
  'The payload has no JSON: it is undefined or a function. To send nothing, publish null';

/** @param {number} bytes of a command @param {number} maxBytes */
export function tooLargeText(bytes, maxBytes) {
  return `The message has ${bytes} bytes, over the limit of ${maxBytes} bytes (FANFARE_MAX_MESSAGE_BYTES of the server)`;
}

const OPTIONS = [
  ...['token', 'offline', 'maxPending', 'firstDelayMs', 'maxDelayMs', 'WebSocket'],
  ...['name', 'heartbeatMs'],
];

/**
 * @param {unknown} url @param {unknown} options of `new Fanfare`
 * @param {readonly string[]} schemes that the URL may have
 * @throws {TypeError} if no connection could be made
 */
export function checkClient(url, options, schemes = ['ws', 'wss', 'http', 'https']) {
  const example = `such as new Fanfare('${schemes.includes('wss') ? 'wss://chat.example' : 'https://chat.example/sse'}')`;
  if ((typeof url !== 'string' || url === '') && !(url instanceof URL))
    throw new TypeError(`new Fanfare: the URL is missing, ${example}`);
  const [, scheme] = /^([a-z][a-z0-9+.-]*):/i.exec(String(url)) ?? [];
  if (scheme !== undefined && !schemes.includes(scheme.toLowerCase()))
    throw new TypeError(
      `new Fanfare: ${url} begins with none of ${schemes.map((one) => `${one}://`).join(', ')}; a URL is ${example}`,
    );
  // A server that renders a page does not connect, so a relative URL may stay as it is.
  if (!('location' in globalThis) && !String(url).startsWith('/')) new URL(url);
  if (typeof options !== 'object' || options === null)
    throw new TypeError('new Fanfare: the options are an object, such as { token }');
  for (const name of Object.keys(options))
    if (!OPTIONS.includes(name)) warn(`new Fanfare: unknown option "${name}"`, name, OPTIONS);
}

/** @param {string} call @param {unknown} name of a room @throws {TypeError} */
export function checkRoom(call, name) {
  if (typeof name !== 'string' || name === '')
    throw new TypeError(`${call}: the name of the room is missing, such as ${call}('lobby')`);
}

/** Events of a client, a room and its presence. */
const EVENTS = [
  ...['state', 'welcome', 'broadcast', 'degraded', 'error', 'message', 'joined', 'resync'],
  ...['change', 'synced', 'reset', 'left', 'join', 'leave'],
];

/** @param {unknown} event of `on` */
export function checkEvent(event) {
  const name = String(event);
  if (!EVENTS.includes(name) && !name.startsWith('_'))
    warn(`on: there is no event "${name}"`, name, EVENTS);
}

/** @param {string} text @param {string} name @param {readonly string[]} known */
function warn(text, name, known) {
  const meant = known.find((one) => isNear(name.toLowerCase(), one.toLowerCase()));
  console.warn(
    `${text}${meant ? `; did you mean "${meant}"?` : `; there are ${known.join(', ')}`}`,
  );
}

/** Are they at most two characters apart? @param {string} a @param {string} b */
function isNear(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + Number(a[i - 1] !== b[j - 1]));
    row = next;
  }
  return row[b.length] <= Math.min(2, a.length - 2);
}
