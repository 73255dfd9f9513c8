// hooks-file.js: the hooks file of simulated servers. Its functions ask the back end that answers hooks
// over HTTP, too.

/** @type {Readonly<Record<string, (...args: any[]) => object>>} */
const QUESTIONS = Object.freeze({
  onConnect: ({ token, user, transport, data }) => ({ request: { token, user, transport, data } }),
  onJoin: ({ id, user }, room) => ({ connection: { id, user }, room }),
  onPublish: ({ id, user }, room, payload) => ({ connection: { id, user }, room, payload }),
});

/** It knows each so many'th answer without the back end; 0: none. */
const KNOWN = Number(process.env.HOOK_KNOWN ?? 0);
let questions = 0;

/** @param {object} question */
async function ask(question) {
  const body = JSON.stringify(question);
  const response = await fetch(String(process.env.HOOK_BACKEND), { method: 'POST', body });
  if (response.status === 204) return undefined;
  if (response.status !== 200) throw new Error(`the back end answers ${response.status}`);
  return response.json();
}

export default Object.fromEntries(
  String(process.env.HOOK_NAMES)
    .split(',')
    .map((hook) => [
      hook,
      (/** @type {any[]} */ ...args) =>
        KNOWN > 0 && ++questions % KNOWN === 0
          ? undefined
          : ask({ hook, ...QUESTIONS[hook](...args) }),
    ]),
);
