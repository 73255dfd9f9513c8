// index.js: puts the parts of large messages together, for a worker with a bucket.

import { Bucket } from './bucket.js';
import { SignedReferences } from './references.js';
import { Signer } from './signer.js';
import { Uploads } from './uploads.js';

/**
 * @param {object} parts @param {import('../config/settings.js').Config} parts.config
 * @param {import('../config/blobs.js').BlobSettings} parts.settings
 * @param {import('../observability/counters.js').BlobCounters} parts.counters
 * @param {{observe(seconds: number): void}} parts.requestSeconds
 * @param {Pick<import('pino').Logger, 'info'|'warn'>} parts.log
 */
export function createBlobs({ config, settings, counters, requestSeconds, log }) {
  const { url, publicUrl } = settings;
  const signer = new Signer(settings);
  const bucket = new Bucket({
    url,
    signer,
    timeoutMs: config.blobTimeoutMs,
    observe: (seconds) => requestSeconds.observe(seconds),
    // Only changes are logged. The error has neither credentials nor a signed URL.
    onOutcome: (error) => {
      const isUp = error === null ? 1 : 0;
      if (counters.bucketUp === isUp) return;
      counters.bucketUp = isUp;
      if (error === null) log.info('bucket for large messages: it answers again');
      else log.warn({ err: error }, 'bucket for large messages: a request failed');
    },
  });
  const uploads = new Uploads({
    bucket,
    signer,
    publicUrl,
    maxBytes: config.blobMaxBytes,
    maxUploads: config.blobMaxUploads,
    timeoutMs: config.blobUploadTimeoutMs,
    counters,
  });
  const references = new SignedReferences({
    signer,
    publicUrl,
    urlTtlS: config.blobUrlTtlS,
    ttlDays: config.blobTtlDays,
    counters,
  });
  return { uploads, references };
}
