// scheduled-redis.js: a client such as ioredis for the Redis of test/simulation/. A request reaches
// the server in one step of the scheduler, and its answer the client in another.

import { Failure } from '../simulation/redis/resp.js';
import { Pipe } from './interleavings.js';

/** @typedef {import('../simulation/redis/resp.js').Reply} Reply */
/** @typedef {import('../simulation/redis/server.js').RedisServer} RedisServer */
/** @typedef {import('../simulation/redis/acl.js').AclUser} AclUser */
/** @typedef {{numberOfKeys: number, lua: string}} Script */

export class ScheduledRedis {
  /** The requests without an answer; undefined: the server has not got it. @type {Map<(error: Error) => void, Reply|undefined>} */
  #unanswered = new Map();

  /** @param {import('./interleavings.js').Scheduler} s @param {RedisServer} server @param {string} name */
  constructor(s, server, name) {
    this.server = server;
    this.isWritable = true;
    /** Called when the server has taken a request. @type {() => void} */
    this.onServed = () => {};
    /** Called with each answer that the connection loses. @type {(reply: Reply) => void} */
    this.onLost = () => {};
    this.requests = new Pipe(s, `${name}: a request arrives`);
    this.answers = new Pipe(s, `${name}: an answer arrives`);
    /** Its commands and scripts. @type {any} */
    this.redis = {
      defineCommand: (/** @type {string} */ name, /** @type {Script} */ script) =>
        this.#defineCommand(name, script),
    };
    for (const command of ['sadd', 'srem', 'srandmember'])
      this.redis[command] = (/** @type {unknown[]} */ ...args) =>
        this.#ask(() => server.run([command, ...args.map(wordOf)], this.#user), textOf);
  }

  describe = String;

  get #user() {
    return /** @type {AclUser} */ (this.server.users.get('default'));
  }

  /** @param {string} name @param {Script} script */
  #defineCommand(name, { numberOfKeys, lua }) {
    const run = (/** @type {unknown[]} */ args) => {
      const { scripts } = this.server;
      const words = args.map(wordOf);
      const keys = words.splice(0, numberOfKeys);
      return scripts.run(scripts.load(lua), keys, words, this.#user);
    };
    this.redis[name] = (/** @type {unknown[]} */ ...args) => this.#ask(() => run(args), textOf);
    this.redis[`${name}Buffer`] = (/** @type {unknown[]} */ ...args) =>
      this.#ask(() => run(args), bytesOf);
  }

  /** The connection breaks: requests and answers on their way are lost. */
  cut() {
    this.isWritable = false;
    this.requests.cut();
    this.answers.cut();
    for (const [reject, reply] of this.#unanswered) {
      if (reply !== undefined) this.onLost(reply);
      reject(new Error('Connection is closed.'));
    }
    this.#unanswered.clear();
  }

  /** @template T @param {() => Reply} run @param {(reply: Reply) => T} read @returns {Promise<T>} */
  #ask(run, read) {
    return new Promise((resolve, reject) => {
      if (!this.isWritable) return reject(new Error('Connection is closed.'));
      this.#unanswered.set(reject, undefined);
      this.requests.push(() => {
        const reply = answerOf(run);
        this.#unanswered.set(reject, reply);
        this.onServed();
        this.answers.push(() => {
          this.#unanswered.delete(reject);
          if (reply instanceof Failure) reject(new Error(reply.message));
          else resolve(read(reply));
        });
      });
    });
  }
}

/** @param {() => Reply} run @returns {Reply} */
function answerOf(run) {
  try {
    return run();
  } catch (error) {
    if (error instanceof Failure) return error;
    throw error;
  }
}

/** @param {unknown} arg @returns {string} in Latin-1, as the model has all strings */
function wordOf(arg) {
  return (Buffer.isBuffer(arg) ? arg : Buffer.from(String(arg))).toString('latin1');
}

/** @param {Reply} reply @returns {any} */
function bytesOf(reply) {
  if (Array.isArray(reply)) return reply.map(bytesOf);
  return typeof reply === 'string' ? Buffer.from(reply, 'latin1') : reply;
}

/** @param {Reply} reply @returns {any} */
function textOf(reply) {
  if (Array.isArray(reply)) return reply.map(textOf);
  return typeof reply === 'string' ? Buffer.from(reply, 'latin1').toString() : reply;
}
