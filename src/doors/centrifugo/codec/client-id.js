// client-id.js: ids of connections as UUIDs, because applications may keep them so: the 48 random
// bits of the process, then the connection's number. Both directions are exact.
//
//   Xb2kQ9_z1f -> 5dbda443-dff3-4000-8000-000000000033

const PREFIX_LENGTH = 8;
const CLIENT = /^([0-9a-f]{8})-([0-9a-f]{4})-4000-8000-([0-9a-f]{12})$/;

/** The last prefix, nearly always this process's own, and its part of a UUID. */
const last = { prefix: '', digits: '' };

/** @param {string} id of a connection @returns {string} a UUID */
export function clientOf(id) {
  if (last.prefix === '' || !id.startsWith(last.prefix)) {
    last.prefix = id.slice(0, PREFIX_LENGTH);
    const hex = Buffer.from(last.prefix, 'base64url').toString('hex');
    last.digits = `${hex.slice(0, 8)}-${hex.slice(8)}-4000-8000-`;
  }
  const number = Number.parseInt(id.slice(PREFIX_LENGTH), 36);
  return last.digits + number.toString(16).padStart(12, '0');
}

/** @param {string} client @returns {string|null} the connection's id; null: not of this form */
export function idOf(client) {
  const match = CLIENT.exec(client);
  if (match === null) return null;
  const prefix = Buffer.from(match[1] + match[2], 'hex').toString('base64url');
  return prefix + Number.parseInt(match[3], 16).toString(36);
}

/** @param {string} sender of a publication @returns {boolean} is it a client, and no user? */
export function isClient(sender) {
  return CLIENT.test(sender);
}
