// colour.js: does the environment permit colours on a terminal?

/** @param {Readonly<Record<string, string|undefined>>} env */
export function permitsColour({ NO_COLOR = '', TERM }) {
  // https://no-color.org: any value that is not empty.
  return NO_COLOR === '' && TERM !== 'dumb';
}
