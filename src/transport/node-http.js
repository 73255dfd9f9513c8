// node-http.js: the parts of Node's HTTP that the public port needs.
//
// `import … from 'node:http'` reads every export. Some are getters, so Node 26 loads undici, HTTP/2
// and web streams with it: 3 MB in each worker. `require` reads only what is used.

import { createRequire } from 'node:module';

/** @type {typeof import('node:http')} */
const http = createRequire(import.meta.url)('node:http');

export const { createServer, IncomingMessage, STATUS_CODES } = http;
