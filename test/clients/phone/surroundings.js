// surroundings.js: what React Native puts around an app, as its sources say (0.70 to 0.88), without
// what it lacks: no document, location, events of a page, channels between tabs, or TextEncoder.

/**
 * The module in Swift or Kotlin below a WebSocket. `connect` gets the events of its socket.
 * @typedef {object} NativeSockets
 * @property {(
 *   url: string,
 *   protocols: string[],
 *   headers: Record<string, string>,
 *   events: {
 *     opened: () => void,
 *     received: (data: string) => void,
 *     closed: (code: number, reason: string) => void,
 *     failed: (message: string) => void,
 *   },
 * ) => {send: (data: string) => void, close: (code: number, reason: string) => void}} connect
 */

/** @param {Record<string, any>} global @param {NativeSockets} native */
export function surround(global, native) {
  Object.assign(global, { window: global, self: global, navigator: { product: 'ReactNative' } });
  global.URL = OldUrl;
  global.WebSocket = class {
    readyState = 0;
    /** @type {Record<'onopen'|'onmessage'|'onerror'|'onclose', ((event: any) => void)|null>} */
    #on = { onopen: null, onmessage: null, onerror: null, onclose: null };

    /** @param {string} url @param {string|string[]} [protocols] @param {any} [options] */
    constructor(url, protocols = [], { headers = {} } = {}) {
      const emit = (/** @type {'onopen'|'onmessage'|'onerror'|'onclose'} */ name, event = {}) =>
        this[name]?.({ type: name.slice(2), ...event });
      this.native = native.connect(url, [protocols].flat(), headers, {
        opened: () => {
          this.readyState = 1;
          emit('onopen');
        },
        received: (data) => emit('onmessage', { data }),
        closed: (code, reason) => {
          this.readyState = 3;
          emit('onclose', { code, reason });
        },
        failed: (message) => {
          this.readyState = 3;
          emit('onerror');
          emit('onclose', { code: 1006, reason: message });
        },
      });
    }

    get onopen() {
      return this.#on.onopen;
    }
    set onopen(listener) {
      this.#on.onopen = listener;
    }
    get onmessage() {
      return this.#on.onmessage;
    }
    set onmessage(listener) {
      this.#on.onmessage = listener;
    }
    get onerror() {
      return this.#on.onerror;
    }
    set onerror(listener) {
      this.#on.onerror = listener;
    }
    get onclose() {
      return this.#on.onclose;
    }
    set onclose(listener) {
      this.#on.onclose = listener;
    }

    /** @param {string} data */
    send(data) {
      if (this.readyState === 0) throw new Error('INVALID_STATE_ERR');
      this.native.send(data);
    }

    close(code = 1000, reason = '') {
      if (this.readyState > 1) return;
      this.readyState = 2;
      this.native.close(code, reason);
    }
  };
}

/** It validates nothing and appends a slash to paths, as before React Native 0.80. */
class OldUrl {
  /** @param {string} url */
  constructor(url) {
    this.href = /[/?#]$|[?#]/.test(url) ? url : `${url}/`;
  }

  toString() {
    return this.href;
  }
}

/** React Native's AppState, with `enter` for a test. */
export function appStates() {
  /** @type {Set<(state: string) => void>} */
  const listeners = new Set();
  return {
    currentState: 'active',
    /** @param {string} _ @param {(state: string) => void} listener */
    addEventListener(_, listener) {
      listeners.add(listener);
      return { remove: () => void listeners.delete(listener) };
    },
    /** @param {string} state */
    enter(state) {
      this.currentState = state;
      for (const listener of listeners) listener(state);
    },
  };
}
