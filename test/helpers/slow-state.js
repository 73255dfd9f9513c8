// slow-state.js: an application's `recoverFailed` whose state comes when the test hands it over.

export function slowState() {
  /** One for each call: hands over the state. @type {((state: unknown) => void)[]} */
  const loads = [];
  /** Of each call. @type {unknown[]} */
  const positions = [];
  /** @param {unknown} position */
  const recoverFailed = (position) => {
    positions.push(position);
    return new Promise((resolve) => loads.push(resolve));
  };
  return { loads, positions, recoverFailed };
}
