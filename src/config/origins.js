// origins.js: brings an origin into the form that browsers send.

/** @param {string} text @returns {string} as browsers send it; '': it is none */
export function normalOrigin(text) {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/\\?#@*\s]+$/i.test(text) || !URL.canParse(text)) return '';
  const url = new URL(text);
  if (url.host === '') return '';
  // URL has no origin for non-web schemes (capacitor://localhost), but their web views send one.
  return url.origin === 'null' ? `${url.protocol}//${url.host}` : url.origin;
}
