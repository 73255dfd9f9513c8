// url-parts.js: the two parts of a request's URL.

/** @param {string|undefined} url of a request @returns {{path: string, query: string}} both raw */
export function partsOf(url = '') {
  const mark = url.indexOf('?');
  return mark < 0
    ? { path: url, query: '' }
    : { path: url.slice(0, mark), query: url.slice(mark + 1) };
}
