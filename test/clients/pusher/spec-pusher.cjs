// spec-pusher.cjs: the class of pusher-js that its spec uses, with the address of the server under
// test.

// @ts-expect-error: the bundle finds it in pusher-js
const Pusher = require('core/pusher.js');

const port = Number(process.env.WS_PORT);

module.exports = class extends Pusher {
  /** @param {string} key @param {object} options */
  constructor(key, options) {
    super(key, { wsHost: 'localhost', wsPort: port, wssPort: port, ...options });
  }
};
