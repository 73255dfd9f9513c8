// short-handshake-answers.test.js: clients get the same bytes from a server with the short way of a
// handshake and from one without fast paths.
//
// Each case sends the same pieces to both over real sockets: good and bad heads, whole or split,
// pipelined, with bodies that hide a handshake, and with frames behind them. The pieces come from a
// seed. `node test/run.js handshakes` sends a hundred thousand cases.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { after, test } from 'node:test';
import { Admission } from '../../src/admission/admission.js';
import { Authentication } from '../../src/auth/authentication.js';
import { Lobby } from '../../src/auth/lobby.js';
import { Revocations } from '../../src/auth/revocations.js';
import { Sessions } from '../../src/auth/sessions.js';
import { TokenVerifier } from '../../src/auth/verifier.js';
import { createNativeDoor } from '../../src/doors/native/native-door.js';
import { createCounters } from '../../src/observability/counters.js';
import { HttpServer } from '../../src/transport/http-server.js';
import { WebSockets } from '../../src/transport/websocket.js';
import { Phase } from '../../src/worker/phase.js';
import { Turn } from '../../src/worker/turn.js';
import { Random } from '../checker/random.js';
import { serverConfigOf } from '../helpers/config.js';
import { randomExchange } from '../helpers/handshake-heads.js';
import { isOff } from '../helpers/hidden/fields.js';
import { SECRET, token } from '../helpers/tokens.js';

const CASES = Number(process.env.TEST_HANDSHAKE_ANSWERS ?? 1000);
const SEED = Number(process.env.TEST_SEED ?? 1);
/** A planted fault must be found within this number of cases. */
const PLANTED_CASES = 2000;
/** Turns of the event loop in which a server without load handles all that it has read. */
const TURNS = 4;
/** No case takes so long. */
const LIMIT_MS = 5000;
const VALID = token();
const skip = isOff('short_handshake') ? 'the path is off' : false;

/** @typedef {import('node:net').Socket} Socket */
/** @typedef {(request: IncomingMessage) => void} Fault changes requests before they are decided */
/** @typedef {{text: string, admitted: object[]}} Outcome the bytes until the close, without dates */

class Server {
  /** @param {Record<string, string>} env @param {Fault} [fault] */
  constructor(env, fault = () => {}) {
    const config = serverConfigOf({
      FANFARE_LIMITS: 'off',
      // Makes admission read the address from X-Forwarded-For.
      FANFARE_MESSAGES_PER_MINUTE_PER_IP_MODE: 'observe',
      TRUST_PROXY: '1',
      ALLOWED_ORIGINS: 'https://chat.example.com',
      JWT_SECRET: SECRET,
      FANFARE_AUTH: 'optional',
      ...env,
    });
    const counters = createCounters();
    const log = {
      debug() {},
      info() {},
      warn() {},
      error: () => assert.fail('an error is logged'),
    };
    const hub = { addConnection() {}, removeConnection() {}, slowConsumers: { queue: () => true } };
    const settings = /** @type {import('../../src/config/tokens.js').TokenSettings} */ (
      config.tokens
    );
    const revocations = new Revocations({
      maxLifetimeS: settings.maxLifetimeS,
      counters: counters.auth,
    });
    const authentication = new Authentication({
      config,
      verifier: new TokenVerifier({ settings, revocations, counters: counters.auth, log }),
      sessions: new Sessions({ revocations, counters: counters.auth, closeAll() {} }),
      lobby: new Lobby({ max: 1000, timeoutMs: 5000, counters: counters.auth }),
      hub,
      places: /** @type {any} */ (null),
      counters: counters.auth,
      log,
    });
    const admission = new Admission({
      config,
      addresses: /** @type {any} */ (null),
      health: {
        lagMs: () => 0,
        heapPercent: () => 0,
        openDescriptors: () => 0,
        descriptorLimit: 20_000,
      },
      counters,
      now: () => performance.now(),
      authenticator: authentication,
    });
    const websockets = new WebSockets({
      config,
      hub: /** @type {any} */ (hub),
      door: createNativeDoor({
        identities: {
          enterSession: authentication.admitConnection.bind(authentication),
          leave: authentication.leave.bind(authentication),
        },
        receive: (
          /** @type {import('../../src/hub/connection.js').Connection} */ connection,
          /** @type {Buffer} */ text,
        ) => connection.send(`${connection.session?.user} has sent ${text.length} bytes`),
      }),
      heartbeat: /** @type {any} */ ({ watchConnection() {}, unwatchConnection() {} }),
      counters,
      turn: new Turn(),
    });
    this.shortWays = 0;
    /** @type {Outcome['admitted']} */
    this.admitted = [];
    const admit = admission.admitHandshake.bind(admission);
    admission.admitHandshake = (request) => {
      if (!(request instanceof IncomingMessage)) this.shortWays++;
      fault(request);
      return admit(request);
    };
    const http = (this.http = new HttpServer({
      config,
      admission,
      onUpgrade: (request, socket, head, { address, credentials }) => {
        const { method, url, headers } = request;
        const user = credentials?.identity?.user;
        this.admitted.push({ method, url, headers: { ...headers }, address, user });
        websockets.upgrade(request, socket, head, address, credentials);
      },
      readiness: () => null,
      phase: new Phase(),
      log,
      counters,
      turn: new Turn(),
    }));
    /** The server's end of the connection of this case. @type {Socket|null} */
    this.socket = null;
    http.reader.acceptor.prependListener('connection', (socket) => {
      this.socket = socket;
    });
    this.port = 0;
  }

  async start() {
    this.port = (await this.http.listen()).port;
    after(() => this.http.close());
    return this;
  }

  /**
   * Sends each piece after the server has handled the one before it, then the client's end.
   * @param {readonly Buffer[]} pieces @returns {Promise<Outcome>}
   */
  async outcomeOf(pieces) {
    this.admitted = [];
    this.socket = null;
    const client = connect({ port: this.port, host: '127.0.0.1', noDelay: true });
    /** @type {Buffer[]} */
    const received = [];
    client.on('data', (bytes) => received.push(bytes));
    client.on('error', () => {}); // a reset
    const closed = once(client, 'close').catch(() => {});
    await Promise.all([once(client, 'connect'), turnsUntil(() => this.socket !== null)]);
    const socket = /** @type {Socket} */ (/** @type {unknown} */ (this.socket));
    let sent = 0;
    for (const piece of pieces) {
      if (!client.writable) break;
      client.write(piece);
      sent += piece.length;
      await turnsUntil(() => socket.destroyed || socket.bytesRead >= sent);
      await turns();
    }
    client.end();
    await Promise.race([
      closed,
      turnsUntil(() => client.closed), // fails if it does not close
    ]);
    const text = Buffer.concat(received).toString('latin1');
    return { text: text.replace(/^Date: .*\r\n/gm, ''), admitted: this.admitted };
  }
}

async function turns() {
  for (let i = 0; i < TURNS; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** @param {() => boolean} condition */
async function turnsUntil(condition) {
  const end = performance.now() + LIMIT_MS;
  while (!condition()) {
    assert.ok(performance.now() < end, `not within ${LIMIT_MS} ms: ${condition}`);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/**
 * Sends the same cases to both.
 * @param {Server} short
 * @param {Server} plain
 * @param {number} cases
 * @param {Map<string, number>} [kinds] counts the outcomes by their first status
 * @param {number} [seed]
 * @returns {Promise<string|null>} the first case that has two outcomes
 */
async function difference(short, plain, cases, kinds = new Map(), seed = SEED) {
  const random = new Random(seed);
  for (let i = 0; i < cases; i++) {
    const pieces = randomExchange(random, VALID);
    const [a, b] = await Promise.all([short.outcomeOf(pieces), plain.outcomeOf(pieces)]);
    try {
      assert.deepEqual(a, b);
    } catch (error) {
      const sent = JSON.stringify(pieces.map((piece) => piece.toString('latin1')));
      return `case ${i} of seed ${seed}: ${sent}: ${/** @type {Error} */ (error).message}`;
    }
    const kind = a.text.slice('HTTP/1.1 '.length, 'HTTP/1.1 200'.length);
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  return null;
}

for (const [i, compression] of ['off', 'on'].entries()) {
  test(`both ways answer alike, with compression ${compression}`, { skip }, async () => {
    const env = { FANFARE_COMPRESSION: compression };
    const short = await new Server(env).start();
    const plain = await new Server({ ...env, FANFARE_FAST_PATHS: 'off' }).start();
    const cases = CASES / 2;
    /** @type {Map<string, number>} */
    const kinds = new Map();
    assert.equal(await difference(short, plain, cases, kinds, SEED + i), null);
    assert.equal(plain.shortWays, 0);
    assert.ok(short.shortWays > 0.1 * cases, `${short.shortWays} of ${cases} took the short way`);
    for (const status of ['101', '200', '400', '403', '404', '405', '426'])
      assert.ok((kinds.get(status) ?? 0) > 0, `${status}: ${JSON.stringify([...kinds])}`);
  });
}

/** Faults of the short way alone. @type {Readonly<Record<string, Fault>>} */
const FAULTS = Object.freeze({
  'does not see Origin': ({ headers }) => delete headers.origin,
  'does not see the token': ({ headers }) => delete headers.authorization,
  'does not see subprotocols': ({ headers }) => delete headers['sec-websocket-protocol'],
  'cuts the URL': (request) => {
    request.url = '/ws';
  },
});

for (const [name, fault] of Object.entries(FAULTS)) {
  test(`a short way that ${name} is found`, { skip }, async () => {
    const short = await new Server({}, (request) => {
      if (!(request instanceof IncomingMessage)) fault(request);
    }).start();
    const plain = await new Server({ FANFARE_FAST_PATHS: 'off' }).start();
    assert.match((await difference(short, plain, PLANTED_CASES)) ?? 'none', /^case /);
  });
}
