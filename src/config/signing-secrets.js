// signing-secrets.js: the secrets that sign requests to backends.

/** Standard Webhooks 1.0: 24 to 64 random bytes, in Base64. */
const SECRET = /^whsec_([A-Za-z0-9+/]+={0,2})$/;
const SECRET_BYTES = Object.freeze({ min: 24, max: 64 });
export const SIGNING_SECRET_RULE = `not "whsec_" and ${SECRET_BYTES.min} to ${SECRET_BYTES.max} random bytes in Base64, or an array of two while they rotate`;

/** @param {unknown} given a secret, or an array of one or two */
export function areSigningSecrets(given) {
  const secrets = [given].flat();
  const { min, max } = SECRET_BYTES;
  const isSecret = (/** @type {unknown} */ secret) => {
    const encoded = typeof secret === 'string' ? SECRET.exec(secret)?.[1] : undefined;
    const bytes = encoded === undefined ? 0 : Buffer.from(encoded, 'base64').length;
    return bytes >= min && bytes <= max;
  };
  return secrets.length >= 1 && secrets.length <= 2 && secrets.every(isSecret);
}
