// redis-tls.js: a Redis that speaks TLS and asks for a client's certificate, with an authority of
// its own.

import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { freePort, redisSettings, startRedis, temporaryFolder } from '../../loadtest/lib/redis.js';

const run = promisify(execFile);

/**
 * Starts one; it ends with the test.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {object} [options]
 * @param {boolean} [options.asksClients] for a certificate
 */
export async function startTlsRedis(t, { asksClients = false } = {}) {
  const folder = await temporaryFolder();
  t.after(() => rm(folder, { recursive: true, force: true }));
  const ca = await certificate(folder, 'ca', null);
  const server = await certificate(folder, 'server', ca);
  const client = await certificate(folder, 'client', ca);
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

/**
 * @param {string} folder
 * @param {string} name
 * @param {{cert: string, key: string}|null} ca null: vouches for itself
 */
async function certificate(folder, name, ca) {
  const paths = { cert: join(folder, `${name}.pem`), key: join(folder, `${name}-key.pem`) };
  const config = join(folder, `${name}.cnf`);
  const basics =
    ca === null ? 'basicConstraints=critical,CA:TRUE' : 'subjectAltName=IP:127.0.0.1,DNS:localhost';
  await writeFile(
    config,
    `[req]\ndistinguished_name=dn\nx509_extensions=v3\nprompt=no\n[dn]\nCN=${name}\n[v3]\n${basics}\n`,
  );
  const signed = ca === null ? [] : ['-CA', ca.cert, '-CAkey', ca.key];
  await run('openssl', [
    ...[
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-days',
      '2',
    ],
    ...['-config', config, '-keyout', paths.key, '-out', paths.cert, ...signed],
  ]);
  return paths;
}
