#!/usr/bin/env node
// hello.js: shows that a server works: two WebSockets join a room, one sends a message, both
// receive it.
//
//   node loadtest/hello.js [--target ws://127.0.0.1:3000/ws]
//
// It needs only the packages of the server itself.

import { WebSocket } from 'ws';
import { readOptions, SERVER_HERE, targetUrl } from '../test/harness/options.js';

const {
  values: { target },
  positionals: [url = target],
} = readOptions(
  `Two WebSockets join a room of a running server. One sends a message, and both receive it.

  npm run hello
  npm run hello -- ws://127.0.0.1:3000/ws`,
  `target URL | | ${SERVER_HERE} | the server; its URL alone does, too`,
  {
    positionals: 1,
    check: ({ values, positionals: [given = values.target] }) => void targetUrl(given),
  },
);
const TIMEOUT_MS = 5000;
const room = 'hello';
const payload = `Hello from process ${process.pid}`;

const timer = setTimeout(
  () => fail(`no message arrived within ${TIMEOUT_MS / 1000} s`),
  TIMEOUT_MS,
);
try {
  const [ann, ben] = await Promise.all([enter('Ann'), enter('Ben')]);
  console.log(`Ann sends    ${JSON.stringify({ type: 'message', payload })}`);
  ann.websocket.send(JSON.stringify({ type: 'message', payload }));
  await Promise.all([ann.heard, ben.heard]);
  clearTimeout(timer);
  ann.websocket.close(1000);
  ben.websocket.close(1000);
} catch (error) {
  fail(/** @type {Error} */ (error).message);
}

/**
 * Connects and joins.
 * @param {string} name
 * @returns {Promise<{websocket: WebSocket, heard: Promise<void>}>} `heard`: the message has come
 */
function enter(name) {
  const websocket = new WebSocket(url);
  return new Promise((resolve, reject) => {
    /** @type {() => void} */
    let hear;
    /** @type {Promise<void>} */
    const heard = new Promise((settle) => {
      hear = settle;
    });
    websocket.on('error', (/** @type {NodeJS.ErrnoException} */ error) => {
      reject(
        new Error(
          error.code === 'ECONNREFUSED'
            ? `nothing listens at ${url}: is the server started (npm start)?`
            : `${name}: ${error.message || error.code}`,
        ),
      );
    });
    websocket.on('open', () => websocket.send(JSON.stringify({ type: 'join', room })));
    websocket.on('message', (data) => {
      console.log(`${name} receives ${data}`);
      const message = JSON.parse(String(data));
      if (message.type === 'joined') resolve({ websocket, heard });
      else if (message.type === 'message' && message.payload === payload) hear();
      else if (message.type === 'error') fail(`${name} got an error`);
    });
  });
}

/** @param {string} why @returns {never} */
function fail(why) {
  console.error(why);
  process.exit(1);
}
