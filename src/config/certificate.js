// certificate.js: reads the certificate and the key of the public port.
//
// Only the primary reads the files, at its start and at each SIGHUP. So all workers have the same
// certificate, and files being replaced stop none. No fault quotes a key or a passphrase.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createSecureContext } from 'node:tls';

const PEM_CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;
const DAY_MS = 86_400_000;
/** Public authorities issue for 90 days or less. Renewals come after two thirds of that time. */
const SOON_DAYS = 14;

/**
 * @typedef {object} TlsSettings frozen
 * @property {string} certFile @property {string} keyFile
 * @property {string} passphrase of the key; '' if the key is not encrypted
 */

/**
 * @typedef {object} Certificate a certificate that has been checked, with its key
 * @property {string} cert PEM: the certificate of the server, then those of the authorities
 * @property {string} key PEM
 * @property {string} passphrase of the key
 * @property {number} validFromMs since the epoch: the latest start in the chain
 * @property {number} expiresMs since the epoch: the earliest end in the chain
 */

/**
 * Reads the settings TLS_*.
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @returns {{tls: TlsSettings|null, faults: string[]}} null if the public port speaks plain HTTP
 */
export function readTlsSettings(values) {
  const [certFile, keyFile, passphrase] = ['tlsCertFile', 'tlsKeyFile', 'tlsKeyPassphrase'].map(
    (key) => String(values[key] ?? ''),
  );
  const faults = [];
  if (certFile !== '' && keyFile === '') faults.push('TLS_KEY_FILE: required with TLS_CERT_FILE');
  if (certFile === '' && keyFile !== '') faults.push('TLS_CERT_FILE: required with TLS_KEY_FILE');
  if (passphrase !== '' && keyFile === '')
    faults.push('TLS_KEY_PASSPHRASE: has no effect without TLS_KEY_FILE');
  if (faults.length > 0 || certFile === '') return { tls: null, faults };
  return { tls: Object.freeze({ certFile, keyFile, passphrase }), faults };
}

/**
 * @param {TlsSettings|null} tls
 * @returns {{certificate: Certificate|null, faults: string[]}} null if there is a fault, or if the
 *   public port speaks plain HTTP
 */
export function readCertificate(tls) {
  if (tls === null) return { certificate: null, faults: [] };
  /** @type {string[]} */
  const faults = [];
  const cert = readFile('TLS_CERT_FILE', tls.certFile, faults);
  const key = readFile('TLS_KEY_FILE', tls.keyFile, faults);
  const chain = cert === null ? null : parseChain(tls.certFile, cert, faults);
  const privateKey = key === null ? null : parseKey(tls, key, faults);
  if (cert === null || key === null || chain === null || privateKey === null)
    return { certificate: null, faults };
  const { passphrase } = tls;
  if (!chain[0].checkPrivateKey(privateKey))
    faults.push(
      'TLS_KEY_FILE: the key does not match the first certificate of TLS_CERT_FILE, which has to be that of the server',
    );
  else {
    try {
      createSecureContext({ cert, key, passphrase });
    } catch (error) {
      // OpenSSL refuses short keys and old signatures, for example.
      faults.push(`TLS_CERT_FILE: OpenSSL refuses it: ${/** @type {Error} */ (error).message}`);
    }
  }
  if (faults.length > 0) return { certificate: null, faults };
  const certificate = Object.freeze({
    cert,
    key,
    passphrase,
    validFromMs: Math.max(...chain.map(({ validFrom }) => Date.parse(validFrom))),
    expiresMs: Math.min(...chain.map(({ validTo }) => Date.parse(validTo))),
  });
  return { certificate, faults };
}

/** @param {Certificate} certificate @param {number} [nowMs] @returns {string} a warning, or '' */
export function certificateWarning({ validFromMs, expiresMs }, nowMs = Date.now()) {
  if (nowMs >= expiresMs) return 'the TLS certificate has expired: clients refuse it';
  if (nowMs < validFromMs) return 'the TLS certificate is not valid yet: clients refuse it';
  const days = (expiresMs - nowMs) / DAY_MS;
  return days < SOON_DAYS ? `the TLS certificate expires in ${days.toFixed(1)} days` : '';
}

/** @param {string} name of the setting @param {string} path @param {string[]} faults */
function readFile(name, path, faults) {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    faults.push(`${name}: cannot read ${path}: ${code}`);
    return null;
  }
}

/** @param {string} path @param {string} pem @param {string[]} faults */
function parseChain(path, pem, faults) {
  try {
    const chain = (pem.match(PEM_CERTIFICATE) ?? []).map((one) => new X509Certificate(one));
    if (chain.length > 0) return chain;
  } catch {
    // The text between the markers is not a certificate.
  }
  faults.push(`TLS_CERT_FILE: ${path} does not contain a certificate in PEM`);
  return null;
}

/** @param {TlsSettings} tls @param {string} pem @param {string[]} faults */
function parseKey({ keyFile, passphrase }, pem, faults) {
  try {
    return createPrivateKey({ key: pem, passphrase });
  } catch {
    faults.push(
      pem.includes('ENCRYPTED')
        ? `TLS_KEY_PASSPHRASE: ${passphrase === '' ? 'required, because the key is encrypted' : 'does not decrypt the key of TLS_KEY_FILE'}`
        : `TLS_KEY_FILE: ${keyFile} does not contain a private key in PEM`,
    );
    return null;
  }
}
