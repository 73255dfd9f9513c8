// slots.js: the slot of a channel or key in a cluster, one of 16,384: CRC16 of the text between the
// first `{` and the first `}` after it ("Hash tags"), or of the whole name.

export const SLOTS = 16_384;

/** CRC-16/XMODEM by bytes. */
const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** @param {string} name @returns {number} */
export function slotOf(name) {
  const open = name.indexOf('{');
  const close = open === -1 ? -1 : name.indexOf('}', open + 1);
  return close > open + 1 ? slotOfTag(name.slice(open + 1, close)) : slotOfTag(name);
}

/** @param {string} tag @returns {number} */
export function slotOfTag(tag) {
  let crc = 0;
  for (let i = 0; i < tag.length; i++) {
    const code = tag.charCodeAt(i);
    if (code > 127) return slotOfBytes(Buffer.from(tag));
    crc = ((crc << 8) & 0xffff) ^ TABLE[(crc >> 8) ^ code];
  }
  return crc % SLOTS;
}

/** @param {Buffer} bytes */
function slotOfBytes(bytes) {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) & 0xffff) ^ TABLE[(crc >> 8) ^ byte];
  return crc % SLOTS;
}
