// channel-names.js: the names of Centrifugo's channels as rooms, and patterns of them.
//
// A channel whose name a room may have is that room, so clients of both protocols meet in it.
// Others have a room in a space of their own, which no native client can name: `~c:` and the name,
// with an escape for each other character.
//
//   news:42 -> news:42      $private -> ~c:/dprivate      dialog#42,43 -> ~c:dialog/h42/2c43

/** The rooms of channels that are no native rooms begin with it. */
export const CHANNEL_SPACE = '~c:';
const NATIVE = /^[A-Za-z0-9_.:@-]{1,200}$/;
const OTHER = /[^A-Za-z0-9_.:@*-]/g;
const ESCAPED = /\/(?:[dhs]|[2-7][0-9a-f])/g;
/** The usual ones take two characters. A digit begins the code of another one. */
const SHORT = new Map([
  ['$', '/d'],
  ['#', '/h'],
]);
const LONG = new Map([...SHORT].map(([character, code]) => [code, character]));
/** Patterns have stars of their own. */
const STAR = '/s';

/** @param {string} channel @returns {boolean} is it a native room of this name? */
export function isNativeName(channel) {
  return NATIVE.test(channel);
}

/** @param {string} channel visible ASCII, or the beginning of such a name */
export function escapeChannel(channel) {
  return escapePattern(channel).replaceAll('*', STAR);
}

/** The same for a pattern, whose stars stay. @param {string} pattern */
export function escapePattern(pattern) {
  return pattern.replace(
    OTHER,
    (character) => SHORT.get(character) ?? `/${character.charCodeAt(0).toString(16)}`,
  );
}

/** @param {string} escaped @returns {string|null} null: it does not come from `escapeChannel` */
export function unescapeChannel(escaped) {
  const channel = escaped.replace(ESCAPED, (code) =>
    code === STAR
      ? '*'
      : (LONG.get(code) ?? String.fromCharCode(Number.parseInt(code.slice(1), 16))),
  );
  return escapeChannel(channel) === escaped ? channel : null;
}
