// fake-browser.js: Web Locks and channels without a browser, for unit tests of tabs that share a
// connection. A tab can stand still, and it can crash.

/** @typedef {import('../../src/client/shared/browser.js').Browser} Browser */

/**
 * @typedef {object} LockRequest
 * @property {FakeTab} tab
 * @property {boolean} isShared
 * @property {(lock: unknown) => unknown} callback
 * @property {(value?: unknown) => void} resolve
 * @property {(error: Error) => void} reject
 */

export class FakeBrowser {
  /** @type {Set<FakeTab>} */
  tabs = new Set();
  /** Holders of each lock. @type {Map<string, Set<LockRequest>>} */
  held = new Map();
  /** Requests that wait for it. @type {Map<string, LockRequest[]>} */
  waiting = new Map();

  open() {
    const tab = new FakeTab(this);
    this.tabs.add(tab);
    return tab;
  }

  /** Grants the requests that can be granted. @param {string} name */
  grant(name) {
    const waiting = this.waiting.get(name) ?? [];
    const held = this.held.get(name) ?? new Set();
    this.held.set(name, held);
    while (waiting.length > 0) {
      const [next] = waiting;
      const isFree = [...held].every(({ isShared }) => isShared && next.isShared);
      if (!isFree) return;
      waiting.shift();
      this.hold(name, next);
    }
  }

  /** @param {string} name @param {LockRequest} request */
  hold(name, request) {
    const held = this.held.get(name) ?? new Set();
    this.held.set(name, held.add(request));
    request.tab.run(async () => {
      const result = await request.callback({ name });
      if (!held.delete(request)) return;
      request.resolve(result);
      this.grant(name);
    });
  }
}

/** A page. Its `globals` are the Browser of the client. */
export class FakeTab {
  /** @type {Set<FakeChannel>} */
  channels = new Set();
  isStopped = false;
  isCrashed = false;
  /** Tasks of a page that stands still. @type {(() => void)[]} */
  #tasks = [];

  /** @param {FakeBrowser} browser */
  constructor(browser) {
    this.browser = browser;
    const tab = this;
    /** @type {EventTarget} */
    this.document = new EventTarget();
    /** @type {any} */
    this.globals = {
      document: this.document,
      location: { origin: 'https://chat.example' },
      navigator: { locks: { request: this.#request.bind(this) } },
      BroadcastChannel: class extends FakeChannel {
        /** @param {string} name */
        constructor(name) {
          super(name, tab);
        }
      },
    };
  }

  /** Runs a task, now or when the page goes on. @param {() => void} task */
  run(task) {
    if (this.isCrashed) return;
    if (this.isStopped) this.#tasks.push(task);
    else setImmediate(task);
  }

  /** The page stands still: it gets no messages and no locks. */
  stop() {
    this.isStopped = true;
  }

  continue() {
    this.isStopped = false;
    for (const task of this.#tasks.splice(0)) this.run(task);
  }

  /** The page is gone, and its locks are free. */
  crash() {
    this.isCrashed = true;
    this.channels.clear();
    this.browser.tabs.delete(this);
    const { held, waiting } = this.browser;
    for (const [name, requests] of waiting)
      waiting.set(
        name,
        requests.filter(({ tab }) => tab !== this),
      );
    for (const [name, requests] of held) {
      for (const request of requests) if (request.tab === this) requests.delete(request);
      this.browser.grant(name);
    }
  }

  /**
   * @param {string} name
   * @param {{mode?: string, steal?: boolean, ifAvailable?: boolean, signal?: AbortSignal}} options
   * @param {(lock: unknown) => unknown} callback
   */
  #request(name, { mode, steal = false, ifAvailable = false, signal }, callback) {
    const { browser } = this;
    return new Promise((resolve, reject) => {
      const isShared = mode === 'shared';
      /** @type {LockRequest} */
      const request = { tab: this, isShared, callback, resolve, reject };
      const held = browser.held.get(name) ?? new Set();
      const waiting = browser.waiting.get(name) ?? [];
      browser.waiting.set(name, waiting);
      if (steal) {
        for (const holder of held) {
          held.delete(holder);
          holder.tab.run(() => holder.reject(new DOMException('stolen', 'AbortError')));
        }
        return browser.hold(name, request);
      }
      if (ifAvailable && held.size > 0) return this.run(async () => resolve(await callback(null)));
      waiting.push(request);
      signal?.addEventListener('abort', () => {
        const index = waiting.indexOf(request);
        if (index < 0) return;
        waiting.splice(index, 1);
        reject(new DOMException('aborted', 'AbortError'));
      });
      browser.grant(name);
    });
  }
}

class FakeChannel {
  /** @type {((event: {data: any}) => void)|undefined} */
  #listener;

  /** @param {string} name @param {FakeTab} tab */
  constructor(name, tab) {
    this.name = name;
    this.tab = tab;
    tab.channels.add(this);
  }

  /** @param {'message'} _ @param {(event: {data: any}) => void} listener */
  addEventListener(_, listener) {
    this.#listener = listener;
  }

  /** @param {unknown} message */
  postMessage(message) {
    const { name, tab } = this;
    if (tab.isCrashed) return;
    if (!tab.channels.has(this)) throw new Error('The channel is closed.');
    const sent = structuredClone(message);
    for (const other of tab.browser.tabs)
      for (const channel of other.channels)
        if (channel !== this && channel.name === name)
          other.run(() => {
            if (other.channels.has(channel)) channel.#listener?.({ data: structuredClone(sent) });
          });
  }

  close() {
    this.tab.channels.delete(this);
  }
}
