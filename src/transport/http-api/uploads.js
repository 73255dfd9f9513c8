// uploads.js: large messages: payloads that lie in the bucket. They get there as a raw body, as a
// large payload in JSON, or by a signed PUT of the backend; their claim is published afterwards.

import { ApiFault } from './fault.js';
import { byteCount, invalid, mediaType, readFields, sha256 } from './fields.js';

const ANNOUNCEMENT = { bytes: byteCount, sha256, contentType: mediaType };
const DEFAULT_TYPE = 'application/octet-stream';

/** @import { Call, Services } from './call.js' */

export class UploadRoutes {
  /** @param {Services} services */
  constructor({ blobs }) {
    this.blobs = blobs;
  }

  /** `POST uploads` @param {Call} call */
  create = async (call) => {
    if (this.blobs === null) throw new ApiFault('NO_BUCKET');
    const fields = readFields(call.body, ANNOUNCEMENT);
    for (const name of /** @type {const} */ (['bytes', 'sha256']))
      if (fields[name] === undefined) throw invalid(name, ANNOUNCEMENT[name].rule);
    const { bytes, sha256: hash, contentType = DEFAULT_TYPE } = fields;
    return this.blobs.announce({ bytes, sha256: hash, contentType });
  };
}
