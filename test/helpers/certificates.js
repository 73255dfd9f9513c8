// certificates.js: certificates for tests, made by openssl.

import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { temporaryFolder } from './temporary-folder.js';

const run = promisify(execFile);
const EC = ['ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1'];

/** The paths of a certificate and its key. @typedef {{cert: string, key: string}} Paths */

/**
 * @param {string} folder
 * @param {string} name of the files, and the common name
 * @param {object} [options]
 * @param {Paths|null} [options.ca] signs it; null: it signs itself
 * @param {string[]} [options.algorithm] of the key
 * @param {number} [options.days] of validity
 * @param {string} [options.passphrase] encrypts the key
 * @returns {Promise<Paths>}
 */
export async function makeCertificate(
  folder,
  name,
  { ca = null, algorithm = EC, days = 2, passphrase = '' } = {},
) {
  const paths = { cert: join(folder, `${name}.pem`), key: join(folder, `${name}-key.pem`) };
  const config = join(folder, `${name}.cnf`);
  const basics = ca === null ? 'basicConstraints=critical,CA:TRUE\n' : '';
  await writeFile(
    config,
    `[req]\ndistinguished_name=dn\nx509_extensions=v3\nprompt=no\n[dn]\nCN=${name}\n[v3]\n${basics}subjectAltName=IP:127.0.0.1,DNS:localhost\n`,
  );
  await run('openssl', [
    ...['req', '-x509', '-newkey', ...algorithm, '-days', `${days}`],
    ...(passphrase === '' ? ['-nodes'] : ['-passout', `pass:${passphrase}`]),
    ...['-config', config, '-keyout', paths.key, '-out', paths.cert],
    ...(ca === null ? [] : ['-CA', ca.cert, '-CAkey', ca.key]),
  ]);
  return paths;
}

/**
 * An authority, and a certificate of it for this machine.
 * @param {{after: (fn: () => unknown) => void}} t
 * @param {{days?: number}} [options] of validity
 */
export async function makeServerCertificate(t, options) {
  const folder = temporaryFolder(t);
  const authority = await makeCertificate(folder, 'ca', options);
  const paths = await makeCertificate(folder, 'server', { ca: authority, ...options });
  return {
    folder,
    authority,
    ...paths,
    /** For clients. */
    ca: await readFile(authority.cert, 'utf8'),
    env: { TLS_CERT_FILE: paths.cert, TLS_KEY_FILE: paths.key },
  };
}
