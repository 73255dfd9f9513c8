// spec-helper.cjs: the helper of pusher-js's spec, with the address of the auth server of the test.

// @ts-expect-error: the bundle finds it in pusher-js
const helper = require('helpers/node/integration.js');

module.exports = { ...helper, API_URL: process.env.AUTH_URL };
