// queue-channel.js: lets the courier use the embedded backend's queue in the primary.
//   courier: RemoteQueue --{call, id, method, args}--> primary: answerCall --{answer, id, value}-->
//
// Each partition makes one call at a time, so calls are bounded. When the channel closes, the
// courier exits.

/** @import { EventQueue } from './queue.js' */

/** @typedef {{type: 'call', id: number, method: keyof EventQueue, args: unknown[]}} Call */

/**
 * @typedef {object} Answer
 * @property {'answer'} type @property {number} id of the call
 * @property {unknown} [value] @property {string} [error]
 */

/** @type {readonly (keyof EventQueue)[]} */
const METHODS = [
  'acquire',
  'renew',
  'release',
  'load',
  'read',
  'commit',
  'lost',
  'size',
  'pauseLeaves',
  'makeUncertain',
  'periods',
];

/** The courier's end. */
export class RemoteQueue {
  #id = 0;
  /** @type {Map<number, {resolve: (value: any) => void, reject: (error: Error) => void}>} */
  #calls = new Map();

  /** @param {(call: Call) => void} send */
  constructor(send) {
    this.send = send;
    /** @type {EventQueue} */
    this.queue = /** @type {any} */ (
      Object.fromEntries(
        METHODS.map((method) => [
          method,
          (/** @type {unknown[]} */ ...args) => this.#call(method, args),
        ]),
      )
    );
  }

  /** @param {Answer} answer */
  receive({ id, value, error }) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error === undefined) call?.resolve(value);
    else call?.reject(new Error(error));
  }

  /** @param {keyof EventQueue} method @param {unknown[]} args @returns {Promise<any>} */
  #call(method, args) {
    return new Promise((resolve, reject) => {
      const id = ++this.#id;
      this.#calls.set(id, { resolve, reject });
      this.send({ type: 'call', id, method, args });
    });
  }
}

/**
 * The primary's end. Never rejects.
 * @param {EventQueue} queue @param {Call} call @returns {Promise<Answer>}
 */
export async function answerCall(queue, { id, method, args }) {
  try {
    const run = /** @type {(...args: unknown[]) => Promise<unknown>} */ (queue[method]);
    return { type: 'answer', id, value: await run.apply(queue, args) };
  } catch (error) {
    return { type: 'answer', id, error: error instanceof Error ? error.message : String(error) };
  }
}
