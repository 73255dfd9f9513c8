// spec.cjs: runs pusher-js's own integration spec as it stands in its npm package. pusher.test.js
// bundles it, because the spec requires the sources of pusher-js.
//
// The spec connects to a cluster of Pusher's by name. Here the constructor adds the address of the
// server under test. Nothing else of the spec or of pusher-js changes.

// @ts-expect-error: it is installed beside the bundle
const jasmineRequire = require('jasmine-core');
jasmineRequire.boot(jasmineRequire);

const { TRANSPORT_TLS, WS_PORT } = process.env;
/** @type {any} */
const { jasmine } = globalThis;
const env = jasmine.getEnv();
env.configure({ random: false });

// @ts-expect-error: the bundle finds it in pusher-js
require('core/pusher_spec/index.js')([{ transport: 'ws', forceTLS: TRANSPORT_TLS === 'on' }]);

const counts = { passed: 0, failed: 0, pending: 0 };
env.addReporter({
  specDone(/** @type {any} */ { fullName, status, failedExpectations }) {
    counts[/** @type {'passed'} */ (status)]++;
    console.log(`${status}: ${fullName}`);
    for (const { message } of failedExpectations) console.log(`    ${message}`);
  },
  suiteDone(/** @type {any} */ { fullName, failedExpectations }) {
    for (const { message } of failedExpectations) console.log(`failed: ${fullName}: ${message}`);
  },
  jasmineDone(/** @type {any} */ { overallStatus }) {
    console.log(`port ${WS_PORT}: ${JSON.stringify(counts)}`);
    process.exit(overallStatus === 'passed' ? 0 : 1);
  },
});
env.execute();
