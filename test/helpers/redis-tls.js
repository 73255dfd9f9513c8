// redis-tls.js: a Redis that speaks TLS and asks for a client's certificate, with an authority of
// its own.

import { freePort, redisSettings, startRedis } from '../harness/redis.js';
import { makeCertificate } from './certificates.js';
import { temporaryFolder } from './temporary-folder.js';

/** Why a test is skipped, or false: test/redis-versions.sh says so of builds without TLS. */
export const NO_TLS =
  process.env.TEST_REDIS_TLS === 'off' && 'this build of redis-server has no TLS';

/**
 * Starts one; it ends with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options]
 * @param {boolean} [options.asksClients] for a certificate
 */
export async function startTlsRedis(t, { asksClients = false } = {}) {
  const folder = temporaryFolder(t);
  const ca = await makeCertificate(folder, 'ca');
  const server = await makeCertificate(folder, 'server', { ca });
  const client = await makeCertificate(folder, 'client', { ca });
  const tlsPort = await freePort();
  const redis = await startRedis(t, {
    args: [
      ...['--tls-port', `${tlsPort}`, '--tls-ca-cert-file', ca.cert],
      ...['--tls-cert-file', server.cert, '--tls-key-file', server.key],
      ...['--tls-auth-clients', asksClients ? 'yes' : 'no'],
    ],
  });
  /** @param {Record<string, string>} [env] */
  const settings = (env = {}) =>
    redisSettings({
      REDIS_URL: `rediss://127.0.0.1:${tlsPort}`,
      REDIS_TLS_CA_FILE: ca.cert,
      ...(asksClients ? { REDIS_TLS_CERT_FILE: client.cert, REDIS_TLS_KEY_FILE: client.key } : {}),
      ...env,
    });
  return { redis, tlsPort, settings };
}
