// bucket.js: an S3-compatible server for tests: s3rver in this process, behind a wire that can go
// silent. TEST_S3_URL names another server instead, with the credentials in the usual variables.

import { createHash } from 'node:crypto';
// @ts-expect-error: the package has no types
import S3rver from '@20minutes/s3rver';
import { AwsClient } from 'aws4fetch';
import { startTcpProxy } from './tcp-proxy.js';
import { temporaryFolder } from './temporary-folder.js';

const BUCKET = 'messages';

/** Does the bucket drop a body that is shorter than its Content-Length? s3rver stores it. */
export const isStrict = process.env.TEST_S3_URL !== undefined;

/**
 * Starts a bucket.
 * @param {{after: (fn: () => unknown) => void}} t
 * @returns {Promise<{env: Record<string, string>, wire: import('./tcp-proxy.js').TcpProxy, keys: () => Promise<string[]>}>}
 *   `env`: settings of a server that uses it; `keys`: the objects in it
 */
export async function startBucket(t) {
  const { TEST_S3_URL: url } = process.env;
  const port = url === undefined ? await startS3rver(t) : Number(new URL(url).port);
  const wire = await startTcpProxy(t, port);
  const base = `http://127.0.0.1:${wire.port}/${BUCKET}`;
  const env = {
    FANFARE_BLOB_URL: `${base}/fanfare`,
    AWS_ACCESS_KEY_ID: process.env.AWS_ACCESS_KEY_ID ?? 'S3RVER',
    AWS_SECRET_ACCESS_KEY: process.env.AWS_SECRET_ACCESS_KEY ?? 'S3RVER',
    AWS_REGION: 'us-east-1',
  };
  const client = new AwsClient({
    accessKeyId: env.AWS_ACCESS_KEY_ID,
    secretAccessKey: env.AWS_SECRET_ACCESS_KEY,
    region: env.AWS_REGION,
    service: 's3',
    retries: 0,
  });
  const keys = async () => {
    const response = await client.fetch(`http://127.0.0.1:${port}/${BUCKET}?list-type=2`);
    return [...(await response.text()).matchAll(/<Key>([^<]+)<\/Key>/g)].map(([, key]) => key);
  };
  return { env, wire, keys };
}

/** @param {Buffer|string} bytes */
export const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/**
 * @param {{after: (fn: () => unknown) => void}} t
 * @returns {Promise<number>} its port
 */
async function startS3rver(t) {
  const server = new S3rver({
    address: '127.0.0.1',
    port: 0,
    silent: true,
    directory: temporaryFolder(t),
    configureBuckets: [{ name: BUCKET, configs: [] }],
  });
  const { port } = await server.run();
  t.after(() => server.close());
  return port;
}
