// relay-seeds.js: the messages between workers and the relay, as seeds. The code itself writes them,
// so they have its present form.

import {
  MessageWriter,
  OP,
  RELAY_VERSION,
  VERDICT,
} from '../../../src/backend/embedded/relay-wire.js';
import { encodeKeyed, encodePublication, KIND } from '../../../src/protocol/publication.js';

const EPOCH = '0123456789abcdef';
const PAYLOAD = Buffer.from('{"a":1}');
const MESSAGE = encodePublication(KIND.MESSAGE, 1, 0, 'abc-1', PAYLOAD, 0, PAYLOAD.length);
const KEYED = encodeKeyed(1, 'abc-1', 'k', PAYLOAD, 0, PAYLOAD.length);
const MEMBER = Buffer.from('{"user":"u"}');
const KEY = 'k'.repeat(22);
const READ = /** @type {const} */ ({ type: 'read', request: 3, room: 'h.1', after: 0, limit: 10 });
const RULE = /** @type {const} */ ({ cap: 2, mode: 'enforce' });

/** @typedef {Record<string, (writer: MessageWriter) => void>} Acts */

/** Of workers. @type {Acts} */
const REQUESTS = {
  hello: (w) => w.hello(7),
  'hello of another version': (w) => w.number(OP.HELLO, RELAY_VERSION + 1),
  subscribe: (w) => {
    w.control({ type: 'subscribe', request: 1, room: 'r.1' });
    w.control({ type: 'unsubscribe', room: 'r.1' });
  },
  publish: (w) => {
    w.control({ type: 'subscribe', request: 1, room: 'r.1' });
    for (let i = 0; i < 2; i++) w.publication(OP.PUBLISH, 'r.1', MESSAGE);
    w.number(OP.SYNC, 2);
  },
  'publish once': (w) => {
    for (let i = 0; i < 2; i++) {
      w.text(OP.KEY, `${KEY}fingerprint`);
      w.publication(OP.PUBLISH, 'r.1', MESSAGE, true);
    }
    w.number(OP.SYNC, 2);
  },
  append: (w) => {
    w.control({ type: 'subscribe', request: 1, room: 'h.1' });
    for (let i = 0; i < 2; i++) w.publication(OP.APPEND, 'h.1', MESSAGE);
    w.text(OP.KEY, KEY);
    w.publication(OP.APPEND, 'h.1', MESSAGE, true);
    for (const epoch of ['', EPOCH]) {
      w.expect({ epoch, offset: 3 });
      w.publication(OP.APPEND, 'h.1', MESSAGE, true);
    }
    w.number(OP.SYNC, 2);
    w.control({ ...READ, isForward: true });
    w.control({ ...READ, before: { epoch: EPOCH, offset: 2 }, maxBytes: 100 });
    w.control({ ...READ, endedEpoch: EPOCH });
  },
  state: (w) => {
    w.publication(OP.APPEND, 's.1', KEYED, true);
    w.number(OP.SYNC, 2);
    w.control({ ...READ, room: 's.1', since: { epoch: EPOCH, offset: 1 } });
    w.control({ ...READ, room: 's.1', keys: ['k', 'ü'] });
  },
  acquire: (w) => {
    w.control({ type: 'acquire', request: 5, key: '10.0.0.1', cap: 2, force: false });
    w.control({ type: 'acquire', request: 6, key: '10.0.0.1', cap: 1, force: true });
    w.control({ type: 'release', key: '10.0.0.1' });
  },
  places: (w) => {
    w.control({ type: 'held', request: 1, held: 1, asked: 0 });
    w.control({ type: 'places', places: [['10.0.0.1', { held: 1, asked: 0 }]] });
  },
  volunteer: (w) => {
    w.control({ type: 'volunteer', rules: { address: RULE, user: RULE } });
    w.control({ type: 'report', report: 'AAAA' });
    w.control({ type: 'resign' });
  },
  connections: (w) => {
    w.control({ type: 'connections', connections: 3 });
    w.control({ type: 'count', request: 1 });
    w.control({ type: 'workers', request: 2 });
  },
  presence: (w) => {
    w.control({ type: 'enter', room: 'p.1', user: 'u', member: MEMBER.toString('base64') });
    w.control({ type: 'who', request: 9, room: 'p.1', isCount: false });
    w.control({ type: 'who', request: 10, room: 'p.1', isCount: true });
    w.control({ type: 'exit', room: 'p.1', user: 'u' });
    w.control({ type: 'exit-all' });
  },
  occupancy: (w) => {
    w.control({ type: 'occupy', tag: 'r.1', connections: 1, isTold: true });
    w.control({ type: 'vacate', tag: 'u:"a"' });
    w.control({ type: 'connections-in', request: 1, room: 'r.1' });
    w.control({ type: 'occupied', request: 2, prefix: '', after: '', limit: 10 });
  },
  name: (w) => w.control({ type: 'name', name: 'w1' }),
};

/** Of the relay. @type {Acts} */
const ANSWERS = {
  hello: (w) => w.number(OP.HELLO, RELAY_VERSION),
  reply: (w) => w.reply(1, true, 2),
  publication: (w) => {
    for (let i = 0; i < 2; i++) w.publication(OP.PUBLICATION, 'r.1', MESSAGE);
  },
  outcomes: (w) =>
    w.outcomes(1, [
      { verdict: VERDICT.ACCEPTED, epoch: EPOCH, offset: 1 },
      { verdict: VERDICT.CONFLICT, epoch: EPOCH, offset: 2 },
    ]),
  page: (w) =>
    w.page(1, { epoch: EPOCH, offset: 1, first: 1, runs: [run(MESSAGE)], hasOlder: true }),
  members: (w) => w.members(1, 2, [MEMBER, MEMBER]),
  'members unlisted': (w) => w.members(1, 2000, null),
  gone: (w) => w.control({ type: 'gone', name: 'w1' }),
  carry: (w) => w.control({ type: 'carry', isCarrier: true }),
  keep: (w) => w.control({ type: 'keep', key: 'user:a', connections: 1 }),
  'tell places': (w) => w.control({ type: 'tell-places' }),
};

/** @param {Buffer} publication */
function run(publication) {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(publication.length);
  return Buffer.concat([length, publication]);
}

/** @param {(writer: MessageWriter) => void} act @returns {Buffer} what it writes */
function bytesOf(act) {
  /** @type {Buffer[]} */
  const parts = [];
  const writer = new MessageWriter();
  act(writer);
  const write = (/** @type {Buffer} */ part) => parts.push(part);
  writer.writeTo(/** @type {any} */ ({ write, cork() {}, uncork() {} }));
  return Buffer.concat(parts);
}

/** @param {Acts} acts @returns {Map<string, Buffer>} the bytes of each, by its name */
function written(acts) {
  return new Map(Object.entries(acts).map(([name, act]) => [name, bytesOf(act)]));
}

/** @param {object} message @returns {Buffer} a control message, with any fields */
export function controlBytes(message) {
  return bytesOf((writer) => writer.control(/** @type {any} */ (message)));
}

/** @param {Acts} acts @returns {Record<string, unknown>[]} the control messages among them */
function controlsOf(acts) {
  /** @type {Record<string, unknown>[]} */
  const controls = [];
  const writer = new MessageWriter();
  writer.control = (message) => void controls.push(message);
  for (const act of Object.values(acts)) act(writer);
  return controls;
}

export const requestSeeds = written(REQUESTS);
export const answerSeeds = written(ANSWERS);
export const controlSeeds = controlsOf(REQUESTS);
/** The beginning of a message of each kind. */
export const heads = Object.values(OP).map((op) => Buffer.from([0, 0, 0, 5, op, 0, 0, 0, 1]));
