// blobs.js: reads the settings of the bucket for large messages.
//
// The bucket's address comes from the configuration alone. Its credentials are in the usual AWS
// variables, which are ignored unless FANFARE_BLOB_URL is set, because another program may need
// them.

/** A path in this alphabet needs no escapes, so its signature has one reading only. */
const PATH = /^[A-Za-z0-9._~/-]*$/;
const REGION = /^[a-z0-9-]{1,64}$/;
const DAY_MS = 86_400_000;

/**
 * @typedef {object} BlobSettings frozen
 * @property {string} url of the bucket, with the prefix of all objects, without a slash at its end
 * @property {string} publicUrl the same bucket for clients
 * @property {string} region @property {string} accessKeyId @property {string} secretAccessKey
 * @property {string} sessionToken '' if the credentials are permanent
 */

/**
 * @param {Record<string, unknown>} values by key, as the rows of the settings' table read them
 * @returns {{blobs: BlobSettings|null, faults: string[]}} null if no bucket is configured or a
 *   setting is at fault; no fault quotes a credential
 */
export function readBlobSettings(values) {
  const text = (/** @type {string} */ key) => String(values[key] ?? '');
  /** @type {string[]} */
  const faults = [];
  const url = readUrl('FANFARE_BLOB_URL', text('blobUrl'), faults);
  const publicUrl = readUrl('FANFARE_BLOB_PUBLIC_URL', text('blobPublicUrl'), faults);
  if (text('blobUrl') === '') {
    if (text('blobPublicUrl') !== '')
      faults.push('FANFARE_BLOB_PUBLIC_URL: has no effect without FANFARE_BLOB_URL');
    return { blobs: null, faults };
  }
  for (const [name, key] of [
    ['AWS_ACCESS_KEY_ID', 'awsAccessKeyId'],
    ['AWS_SECRET_ACCESS_KEY', 'awsSecretAccessKey'],
  ]) {
    if (text(key) === '') faults.push(`${name}: required with FANFARE_BLOB_URL`);
  }
  const region = text('awsRegion');
  if (region !== '' && !REGION.test(region)) faults.push('AWS_REGION: its value is not a region');
  if (faults.length > 0) return { blobs: null, faults };
  const blobs = Object.freeze({
    url,
    publicUrl: publicUrl === '' ? url : publicUrl,
    region,
    accessKeyId: text('awsAccessKeyId'),
    secretAccessKey: text('awsSecretAccessKey'),
    sessionToken: text('awsSessionToken'),
  });
  return { blobs, faults };
}

/**
 * @param {string} name of the setting
 * @param {string} text @param {string[]} faults one is added if the text is not a URL of a bucket
 * @returns {string} '' if the setting is empty or at fault
 */
function readUrl(name, text, faults) {
  if (text === '') return '';
  const url = URL.canParse(text) ? new URL(text) : null;
  const isValid =
    url !== null &&
    (url.protocol === 'https:' || url.protocol === 'http:') &&
    url.username === '' &&
    url.password === '' &&
    url.search === '' &&
    url.hash === '' &&
    PATH.test(url.pathname);
  if (isValid) return url.href.replace(/\/+$/, '');
  // The value is not shown, because it may hold credentials.
  faults.push(`${name}: its value is not http(s)://host[:port]/bucket[/prefix] without a query`);
  return '';
}

/**
 * @typedef {{blobTtlDays: number, blobUrlTtlS: number, maxInlineBytes: number,
 *   maxUnsentBytes: number, history: readonly {pattern: string, value: {ttlMs: number}}[]}} Related
 */

/** The faults of contradictory settings. @param {Related} config @returns {string[]} */
export function blobContradictions(config) {
  const { blobTtlDays, blobUrlTtlS, history, maxInlineBytes, maxUnsentBytes } = config;
  const faults = [];
  const longest = history.find(
    ({ value }) => value.ttlMs + blobUrlTtlS * 1000 > blobTtlDays * DAY_MS,
  );
  if (longest !== undefined) {
    faults.push(
      `FANFARE_BLOB_TTL_DAYS: ${blobTtlDays} is less than the history of ${longest.pattern} and FANFARE_BLOB_URL_TTL_S together`,
    );
  }
  if (maxUnsentBytes < maxInlineBytes) {
    faults.push(
      `FANFARE_MAX_INLINE_BYTES: ${maxInlineBytes} is more than FANFARE_MAX_UNSENT_BYTES (${maxUnsentBytes})`,
    );
  }
  return faults;
}
