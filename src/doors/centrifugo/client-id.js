// client-id.js: ids of connections as Centrifugo's clients know them.
//
// Applications may keep them as UUIDs, so they have that form: the 48 random bits of the process,
// then the connection's number. Both directions are exact.
//
//   Xb2kQ9_z1f -> 5dbda443-dff3-4000-8000-000000000033

const PREFIX_LENGTH = 8;
const CLIENT = /^([0-9a-f]{8})-([0-9a-f]{4})-4000-8000-([0-9a-f]{12})$/;

/** @param {string} id of a connection @returns {string} a UUID */
export function clientOf(id) {
  const prefix = Buffer.from(id.slice(0, PREFIX_LENGTH), 'base64url').toString('hex');
  const number = Number.parseInt(id.slice(PREFIX_LENGTH), 36);
  const digits = number.toString(16).padStart(12, '0');
  return `${prefix.slice(0, 8)}-${prefix.slice(8)}-4000-8000-${digits}`;
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
