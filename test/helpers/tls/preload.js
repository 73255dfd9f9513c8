// preload.js: every server that a test starts speaks TLS: `TEST_TLS=on node test/run.js e2e`.
//
// The test speaks to a bridge, which speaks TLS to the server from the same loopback address. So
// tests of bytes on a plain socket run unchanged. What only an unencrypted port can do is out of
// reach, such as an answer to a connection above its rate: such tests fail.

import { setLayer } from '../../harness/server.js';
import { makeServerCertificate } from '../certificates.js';
import { startBridge } from './bridge.js';

setLayer(async (t) => {
  const { env, ca } = await makeServerCertificate(t, { days: 30 });
  return { env, portOf: (port) => startBridge(t, port, ca) };
});
